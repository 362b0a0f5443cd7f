//! Which changes of a node fit into it while others are left out (U3 in docs/EDGES.md).
//!
//! The changes of a node are looked at in ascending order. Some are durable, some are taken now, and the
//! others are left out and follow in a later round. What is written then has the cells of the node with the
//! durable and the taken changes. Those that were left out may have taken cells away, so it can be larger
//! than the node ever was.
//!
//! **What must hold.** Every set that rounds can come to fits: from each point on, what all changes up to
//! there leave, and what the durable and the taken ones behind it add. Then the earliest change that waits
//! can always be taken, whatever was taken before it. So a change is taken only if that stays true with it.
//! `most` is the most that any such set has so far; `ahead` is what the durable changes add that are still to
//! come. It counts, too: a change that was left out in an earlier round comes before some that are durable
//! since.

use crate::base::units::{self, Piece, Units};
use hashbrown::HashMap;
use yore_format::{Block, NodeRef, NODE_PAYLOAD_BYTES};

/// The changes of a node from some place on, in their order: their pieces, and whether they are durable.
pub(super) type Later<'t, 'l> = &'l mut dyn Iterator<Item = (&'t [Piece], bool)>;

/// The room in a node for changes behind one that is left out.
pub(super) struct Room<'t> {
    cells: Cells<'t>,
    /// Units of what was left out.
    left: Units<'t>,
    most: usize,
    ahead: usize,
}

impl<'t> Room<'t> {
    /// With the cells that all changes up to here leave. `later` are the others.
    pub(super) fn new(cells: Cells<'t>, later: Later<'t, '_>) -> Room<'t> {
        let (mut after, mut ahead) = (None, 0);
        let later: Vec<_> = later.collect();
        if later.iter().any(|(_, is_durable)| *is_durable) {
            let after = after.insert(cells.clone());
            for (pieces, is_durable) in later {
                let grows = after.put_all(pieces);
                ahead += if is_durable { grows } else { 0 };
            }
        }
        Room { most: cells.bytes, cells, left: Units::default(), ahead }
    }

    /// Goes on to the next change. Returns whether what is written has it: it is durable, or it may go and
    /// there is room.
    pub(super) fn pass(&mut self, pieces: &'t [Piece], is_durable: bool, may_go: bool) -> bool {
        let grows = self.cells.put_all(pieces);
        if is_durable {
            self.ahead -= grows;
        }
        let fits = || self.most + grows + self.ahead <= NODE_PAYLOAD_BYTES;
        let is_taken = is_durable || (may_go && !self.left.has_any(pieces) && fits());
        match is_taken {
            true => self.most += grows,
            false => self.left.add_all(pieces),
        }
        self.most = self.most.max(self.cells.bytes);
        is_taken
    }
}

/// How many of the first changes of a node must be taken as well, if of all that wait some are taken and the
/// node is `base` with them then; 0: there is room without the others. If more are needed, at least one comes
/// to those that are taken.
pub(super) fn needed_for_room(base: &Block, changes: &[&[Piece]], is_taken: &dyn Fn(usize) -> bool) -> usize {
    let Some(start) = (0..changes.len()).find(|i| !is_taken(*i)) else { return 0 };
    let mut cells = Cells::of(base, units::width_behind(base, changes.iter().copied().flatten()));
    for pieces in &changes[..start] {
        cells.put_all(pieces);
    }
    let mut room = Room::new(cells, &mut changes[start..].iter().map(|pieces| (*pieces, false)));
    let lacks = (start..changes.len()).find(|i| {
        let is_in = is_taken(*i);
        room.pass(changes[*i], false, is_in) != is_in
    });
    lacks.unwrap_or(0)
}

/// The cells of a node, as far as the room that they take goes.
#[derive(Clone)]
pub(super) struct Cells<'t> {
    width: usize,
    bytes: usize,
    of: HashMap<&'t [u8], usize>,
}

impl<'t> Cells<'t> {
    /// Those of a block with keys of this width; of one that is no node, none.
    pub(super) fn of(block: &'t Block, width: usize) -> Cells<'t> {
        let mut cells = Cells { width, bytes: 0, of: HashMap::new() };
        if units::key_width(block) != 0 {
            let node = NodeRef::new(block);
            for i in 0..node.count() {
                cells.put(node.key(i), Some(node.value(i).len()));
            }
        }
        cells
    }

    fn put(&mut self, key: &'t [u8], value: Option<usize>) {
        let before = match value {
            Some(len) => {
                let bytes = NodeRef::cell_bytes(self.width, len);
                self.bytes += bytes;
                self.of.insert(key, bytes)
            }
            None => self.of.remove(key),
        };
        self.bytes -= before.unwrap_or(0);
    }

    /// Carries out a change. Returns by how many bytes the cells grow; 0 if they shrink.
    pub(super) fn put_all(&mut self, pieces: &'t [Piece]) -> usize {
        let bytes = self.bytes;
        for piece in pieces {
            if let Piece::Cell { key, value } = piece {
                self.put(key, value.as_ref().map(|value| value.len()));
            }
        }
        self.bytes.saturating_sub(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng as _, SeedableRng as _};
    use yore_format::{BlockKind, NodeMut, BLOCK_SIZE};

    const WIDTH: usize = 8;

    fn node() -> Block {
        let mut block = [0; BLOCK_SIZE];
        yore_format::BlockHeader::of_mut(&mut block).kind = BlockKind::Directory as u8;
        NodeMut::init(&mut block, WIDTH);
        block
    }

    fn cell(key: u64, value: Option<usize>) -> Piece {
        let value = value.map(|len| vec![7; len].into());
        Piece::Cell { key: key.to_be_bytes().into(), value }
    }

    /// One round: takes what may go and fits, until nothing is left to look at. Returns what is durable then.
    fn round(
        base: &Block,
        changes: &[Vec<Piece>],
        durable: &[bool],
        may_go: &dyn Fn(usize) -> bool,
    ) -> Vec<bool> {
        let mut taken = durable.to_vec();
        let Some(first) = (0..changes.len()).find(|i| !durable[*i] && !may_go(*i)) else {
            return vec![true; changes.len()];
        };
        taken[..first].fill(true);
        let mut cells = Cells::of(base, WIDTH);
        for pieces in &changes[..first] {
            cells.put_all(pieces);
        }
        let mut later = (first..changes.len()).map(|i| (&changes[i][..], durable[i]));
        let mut room = Room::new(cells, &mut later);
        for i in first..changes.len() {
            taken[i] = room.pass(&changes[i], durable[i], may_go(i));
        }
        taken
    }

    fn written(base: &Block, changes: &[Vec<Piece>], taken: &[bool]) -> Option<Box<Block>> {
        let pieces = changes.iter().zip(taken).filter(|(_, taken)| **taken).flat_map(|(pieces, _)| pieces);
        units::compose(base, WIDTH, pieces)
    }

    /// Rounds under `sync` and `soft-updates` took two inserts one round after the other, of which the second
    /// in order came first. Together they had no room without what was taken out between them, and the volume
    /// stopped.
    #[test]
    fn an_insert_leaves_room_for_a_later_one_that_is_durable() {
        let (base, third) = (node(), NODE_PAYLOAD_BYTES / 3);
        let changes: Vec<Vec<Piece>> =
            [(1, Some(third)), (1, None), (2, Some(third)), (2, None), (3, Some(third)), (3, None)]
                .map(|(key, value)| vec![cell(key, value)])
                .into();
        let durable = round(&base, &changes, &[false; 6], &|i| i == 4);
        assert_eq!(durable, [false, false, false, false, true, false]);
        let durable = round(&base, &changes, &durable, &|i| i == 2 || i == 4);
        assert!(written(&base, &changes, &durable).is_some());
        let durable = round(&base, &changes, &durable, &|i| i == 0 || i == 2);
        assert!(durable[0] && written(&base, &changes, &durable).is_some());
    }

    /// Changes of a node that were made one after the other.
    fn drawn(rng: &mut rand_xoshiro::Xoshiro256PlusPlus) -> (Block, Vec<Vec<Piece>>) {
        let texts: Vec<Vec<Piece>> = (0..rng.random_range(2..60))
            .map(|_| {
                let pieces = rng.random_range(1..4);
                let value = |rng: &mut rand_xoshiro::Xoshiro256PlusPlus| {
                    rng.random_bool(0.55).then(|| rng.random_range(0..900))
                };
                (0..pieces).map(|_| cell(rng.random_range(0..12), value(rng))).collect()
            })
            .collect();
        // Only changes with which the node still fits were made.
        let (base, mut changes) = (node(), Vec::new());
        let mut now = Cells::of(&base, WIDTH);
        for pieces in &texts {
            let mut next = now.clone();
            next.put_all(pieces);
            if next.bytes <= NODE_PAYLOAD_BYTES {
                now = next;
                changes.push(pieces.clone());
            }
        }
        (base, changes)
    }

    fn rounds_end(
        seed: u64,
        rng: &mut rand_xoshiro::Xoshiro256PlusPlus,
        base: &Block,
        changes: &[Vec<Piece>],
    ) {
        let mut durable = vec![false; changes.len()];
        while let Some(least) = durable.iter().position(|is_durable| !is_durable) {
            let ready: Vec<bool> = (0..changes.len()).map(|i| i == least || rng.random_bool(0.3)).collect();
            let before = durable.clone();
            durable = round(base, changes, &durable, &|i| before[i] || ready[i]);
            assert!(durable[least], "seed {seed}");
            assert!(before.iter().zip(&durable).all(|(before, after)| after >= before), "seed {seed}");
            assert!(written(base, changes, &durable).is_some(), "seed {seed}");
        }
    }

    /// Whatever may go in which round: what is written fits, the earliest change is never left out for want
    /// of room, and in the end all are durable.
    #[test]
    fn rounds_end_and_all_that_is_written_fits() {
        for seed in 0..400 {
            let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
            let (base, changes) = drawn(&mut rng);
            rounds_end(seed, &mut rng, &base, &changes);
        }
    }

    /// An fsync writes some changes of a node. What is written fits, and so does all that rounds come to
    /// behind it. A change that had room only because of one that was left out stopped the volume.
    #[test]
    fn a_part_of_the_changes_leaves_room_for_the_others() {
        let mut parts = 0;
        for seed in 0..400 {
            let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
            let (base, changes) = drawn(&mut rng);
            let mut is_in: Vec<bool> = changes.iter().map(|_| rng.random_bool(0.2)).collect();
            loop {
                let mut units = Units::default();
                for i in (0..changes.len()).rev() {
                    is_in[i] |= units.has_any(&changes[i]);
                    if is_in[i] {
                        units.add_all(&changes[i]);
                    }
                }
                let all: Vec<&[Piece]> = changes.iter().map(|pieces| &pieces[..]).collect();
                let needed = needed_for_room(&base, &all, &|i| is_in[i]);
                assert!(needed == 0 || is_in[..needed].contains(&false), "seed {seed}");
                if needed == 0 {
                    break;
                }
                is_in[..needed].fill(true);
            }
            parts += usize::from(is_in.contains(&false) && is_in.contains(&true));
            let base = *written(&base, &changes, &is_in).unwrap_or_else(|| panic!("seed {seed}"));
            let left = changes.iter().zip(&is_in).filter(|(_, is_in)| !**is_in).map(|(pieces, _)| pieces);
            rounds_end(seed, &mut rng, &base, &left.cloned().collect::<Vec<_>>());
        }
        assert!(parts > 100, "{parts} parts that left something out");
    }
}
