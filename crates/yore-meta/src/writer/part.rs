//! A part of the running generation, for an fsync: what a file needs of the changes that wait.
//!
//! **What is in a part.** The changes of the calls (Ops) that have changed the file's inode, its extents or
//! its names; of those that have named the directories above it, as far as these names wait; and all that
//! these changes wait for: by the edges, by the order within a unit (U1), and by the room in nodes (U3). Bits
//! that are cleared are left out unless something in the part waits for that: nobody needs them. So a part is
//! closed under the order, which is what a crash between two rounds leaves of a pass, and a mount needs no
//! new rule.
//!
//! **How it is written.** With the gate held alone the part is found, its rounds are found out as those of a
//! pass (`rounds.rs`), and its changes are noted as durable: of each block that it changes, what the medium
//! will have is the base of what follows. Then Ops go on, in the same generation, while the rounds are
//! written. The right to write is held meanwhile, so no other part and no pass begins before the medium has
//! what was noted; if it cannot be written, writing stops for good (R16).
//!
//! **The generation goes on.** It stays the running one: what it has freed is held until it is complete, and
//! its frames stay dirty, so one that goes aside has all of it. Blocks and headers of the part have the
//! number of the last complete generation, and their rounds count on from those of its pass: so the headers
//! replace all that are there, and the running generation's replace them, also if it goes aside, where its
//! round is 0.
//!
//! **What makes it the whole generation instead** ([`Outcome::Generation`]): no generation of this mount is
//! complete yet, whose number it could have, something of it goes aside as a whole, the superblock does not
//! cover it, it needs another root of the orphans, somebody wants exact superblocks, the part is so large
//! that Ops would wait too long for it to be found, or it would leave little behind. What it leaves takes
//! flushes of its own later, and a flush costs as much as [`FLUSH_BLOCKS`](super::rounds::FLUSH_BLOCKS)
//! blocks.

use super::ceilings;
use super::generation::next_superblock;
use super::room::needed_for_room;
use super::rounds::{How, Schedule};
use crate::base::index::Index;
#[cfg(feature = "mutations")]
use crate::base::order::EdgeKind;
use crate::base::pending::{cleared_by, Bases, Kept, Taken, Waiting};
use crate::base::units::{self, Piece, Units};
use crate::base::waits::{HasPlace as _, Waits, Where};
use crate::error::Result;
#[cfg(feature = "mutations")]
use crate::mutation::{is, Mutation};
use crate::rooms::Rooms;
use crate::zones::zone::FrozenZone;
use hashbrown::{HashMap, HashSet};
use std::collections::BTreeSet;
use std::sync::Arc;
use yore_format::{Block, Generation, InodeNo, MetaAddr, Superblock, VolumeState};

/// Changes beyond which a part costs more than the generation would.
const CHANGES_MOST: usize = 1 << 10;
/// Changes that are visited to find one, beyond which Ops would wait too long.
const VISITED_MOST: usize = 1 << 16;
/// Rounds of parts in a generation, of which a header counts fewer than 2^16.
const ROUNDS_MOST: u16 = 60_000;

/// What came of an fsync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// What the files need is durable.
    Durable,
    /// Only the whole generation makes it durable.
    Generation,
}

/// A part, ready to be written.
struct Part {
    generation: Generation,
    schedule: Schedule,
    zones: Vec<FrozenZone>,
    images: HashMap<MetaAddr, Arc<Block>>,
}

/// The last complete generation, and how many rounds of it were written: those of its pass, and those of
/// parts since.
#[derive(Clone, Copy, Default)]
pub(super) struct Rounds {
    pub(super) generation: Generation,
    pub(super) last: u16,
}

/// Makes durable what these files need, or says that only the whole generation does that, also if a part
/// would leave fewer than `leaves` blocks to it. `last` is the last superblock; the caller has the right to
/// write.
pub(super) fn write(
    rooms: &Rooms,
    last: &Superblock,
    files: &[InodeNo],
    rounds: &mut Rounds,
    leaves: usize,
) -> Result<Outcome> {
    let base = &rooms.blocks.base;
    let _stop = base.progress.stop_at_panic("writing a part of a generation");
    let Some(Part { generation, schedule, zones, images }) = take(rooms, last, files, *rounds, leaves)?
    else {
        return Ok(Outcome::Generation);
    };
    let written = schedule.carry_out_part(rooms, &zones, images, (generation, last), rounds.last);
    rounds.last = written.inspect_err(|e| base.progress.stop(e.clone()))?;
    Ok(Outcome::Durable)
}

/// Finds the part, and notes it as durable. `None`: only the whole generation will do.
fn take(
    rooms: &Rooms,
    last: &Superblock,
    files: &[InodeNo],
    rounds: Rounds,
    leaves: usize,
) -> Result<Option<Part>> {
    let base = &rooms.blocks.base;
    let gate = base.gate.hold();
    // An Op that panicked has stopped all writing before it let go of the gate: its changes are by half.
    base.progress.check_writable()?;
    let running = gate.running();
    let Rounds { generation, last: written } = rounds;
    let mut next = next_superblock(rooms, last, running, VolumeState::InUse);
    base.ledger.enter(&mut next);
    // A part that needs another root of the orphans is none; any other leaves it to the generation.
    (next.orphan_root, next.orphan_level) = (last.orphan_root, last.orphan_level);
    let is_numbered = generation.0 + 1 == running.0 && generation >= last.in_place_since;
    if !is_numbered || written > ROUNDS_MOST || base.ledger.has_changed_more() {
        return Ok(None);
    }
    #[cfg(feature = "mutations")]
    let generation = if is(Mutation::PartNumberedLate) { running } else { generation };
    let part = base.order.pending.with_waiting(|waiting| {
        if !ceilings::covers(last, &next, generation, *waiting.cleared) {
            return None;
        }
        let blocks = waiting.index.blocks();
        let leaves_enough = |part: usize| blocks.saturating_sub(part) >= leaves;
        // If a part of nothing would not, nobody needs to find it.
        if !leaves_enough(0) {
            return None;
        }
        let found = Finder::new(&waiting).find(files)?;
        if !leaves_enough(found.addrs.len()) {
            return None;
        }
        let taken = found.taken(&waiting);
        let how = How { is_covered: true, puts_off: false, freed: 0 };
        // What does not fit into its nodes is no part.
        let images = images(&taken)?;
        let schedule = Schedule::of(&taken, how)?;
        note_durable(waiting, files, &found, &taken, &images);
        Some((schedule, images, found.addrs))
    });
    let Some((schedule, images, addrs)) = part.flatten() else { return Ok(None) };
    let zones: BTreeSet<_> = addrs.iter().map(|addr| addr.zone()).collect();
    let zones = zones
        .into_iter()
        .map(|no| rooms.blocks.zones.loaded(no).expect("a zone that the generation has changed").as_it_is());
    Ok(Some(Part { generation, schedule, zones: zones.collect(), images }))
}

/// The blocks that a part changes, as the medium has them when it is written.
fn images(taken: &Taken) -> Option<HashMap<MetaAddr, Arc<Block>>> {
    let mut pieces: HashMap<MetaAddr, Vec<_>> = HashMap::new();
    let mut bases: HashMap<MetaAddr, &Block> =
        taken.bases.iter().map(|(addr, block)| (*addr, &**block)).collect();
    for (_, kept) in &taken.waits.changes {
        match kept {
            Kept::Block { addr, pieces: of_change } => pieces.entry(*addr).or_default().extend(of_change),
            Kept::Made { addr, block } => drop(bases.insert(*addr, block)),
            Kept::Freed { .. } | Kept::Orphans { .. } | Kept::Durable { .. } => {}
        }
    }
    let image = |(addr, base): (&MetaAddr, &&Block)| {
        let pieces = pieces.get(addr).map_or(&[][..], |pieces| pieces);
        let width = units::width_behind(base, pieces.iter().copied());
        let block = units::compose(base, width, pieces.iter().copied())?;
        (!units::is_bare(&block)).then(|| (*addr, Arc::from(block)))
    };
    bases.iter().map(image).collect()
}

/// What waits no longer has the part: when that is written, the medium has the blocks of these images.
fn note_durable(
    waiting: Waiting<'_>,
    files: &[InodeNo],
    found: &Found,
    taken: &Taken,
    images: &HashMap<MetaAddr, Arc<Block>>,
) {
    let Waiting { waits, bases, index, cleared } = waiting;
    let mut freed = Vec::new();
    for (at, (_, kept)) in found.changes.iter().zip(&taken.waits.changes) {
        match kept {
            Kept::Made { addr, .. } => waits.forget_made(*addr),
            Kept::Freed { addr } => freed.push(*addr),
            Kept::Block { .. } | Kept::Orphans { .. } | Kept::Durable { .. } => {}
        }
        *cleared -= cleared_by(kept.pieces());
        waits.changes[*at].1 = Kept::Durable { was: kept.place() };
    }
    for (addr, image) in images {
        bases.insert(*addr, Box::new(**image));
    }
    for addr in freed {
        // What still waited in it is void (U2).
        for at in index.of_block(addr).iter().copied().chain(index.made(addr)) {
            let kept = &mut waits.changes[at].1;
            *kept = Kept::Durable { was: kept.place() };
        }
        waits.forget_made(addr);
        bases.remove(&addr);
    }
    let is_durable = |at: usize| matches!(waits.changes[at].1, Kept::Durable { .. });
    found.addrs.iter().for_each(|addr| index.forget_changes(*addr, is_durable));
    for file in files {
        index.forget_inode(*file);
        waits.forget_told(*file);
    }
}

/// What a part has.
struct Found {
    /// Its changes, ascending.
    changes: Vec<usize>,
    /// The blocks that they change, make, or free.
    addrs: Vec<MetaAddr>,
}

impl Found {
    /// The part as what a pass takes, with its changes numbered anew.
    fn taken(&self, waiting: &Waiting<'_>) -> Taken {
        let waits = &*waiting.waits;
        let numbers: HashMap<usize, usize> =
            self.changes.iter().enumerate().map(|(new, at)| (*at, new)).collect();
        let mut edges = Vec::new();
        for (then, at) in self.changes.iter().enumerate() {
            let firsts = waiting.index.firsts(waits, *at);
            edges.extend(firsts.filter_map(|(kind, first)| Some((kind, *numbers.get(&first)?, then))));
        }
        let changes = self.changes.iter().map(|at| waits.changes[*at].clone()).collect();
        let base = |addr: &MetaAddr| waiting.bases.get(addr).map(|base| (*addr, base.clone()));
        Taken {
            waits: Waits::part(changes, edges),
            bases: self.addrs.iter().filter_map(base).collect::<Bases>(),
            whole: false,
        }
    }
}

/// Finds what a part has.
struct Finder<'w> {
    waits: &'w Waits<Kept>,
    bases: &'w Bases,
    index: &'w Index,
    is_in: HashSet<usize>,
    /// Changes of which what they wait for was not entered.
    open: Vec<usize>,
    /// Blocks with changes that were added since their order was examined.
    unordered: BTreeSet<MetaAddr>,
    addrs: HashSet<MetaAddr>,
    visited: usize,
}

impl<'w> Finder<'w> {
    fn new(waiting: &'w Waiting<'_>) -> Finder<'w> {
        Finder {
            waits: waiting.waits,
            bases: waiting.bases,
            index: waiting.index,
            is_in: HashSet::new(),
            open: Vec::new(),
            unordered: BTreeSet::new(),
            addrs: HashSet::new(),
            visited: 0,
        }
    }

    /// What these files need; `None`: more than a part may have.
    fn find(mut self, files: &[InodeNo]) -> Option<Found> {
        for op in self.ops(files) {
            for at in self.index.of_op(self.waits, op) {
                self.visited += 1;
                if !self.waits.changes[at].1.pieces().iter().all(Piece::only_clears)
                    || self.waits.changes[at].1.pieces().is_empty()
                {
                    self.add(at)?;
                }
            }
        }
        loop {
            while let Some(at) = self.open.pop() {
                let firsts = self.index.firsts(self.waits, at);
                #[cfg(feature = "mutations")]
                let firsts =
                    firsts.filter(|(kind, _)| *kind == EdgeKind::Made || !is(Mutation::PartWithoutFirsts));
                for (_, first) in firsts {
                    self.visited += 1;
                    self.add(first)?;
                }
            }
            let Some(addr) = self.unordered.pop_first() else { break };
            self.order(addr)?;
        }
        let mut changes: Vec<usize> = self.is_in.into_iter().collect();
        changes.sort_unstable();
        Some(Found { changes, addrs: self.addrs.into_iter().collect() })
    }

    /// The Ops of which these files need what they have changed.
    fn ops(&mut self, files: &[InodeNo]) -> BTreeSet<u64> {
        let mut ops = BTreeSet::new();
        let mut seen: HashSet<InodeNo> = files.iter().copied().collect();
        let mut above: Vec<InodeNo> = seen.iter().copied().collect();
        for file in &above {
            ops.extend(self.waits.told(*file).iter().chain(self.index.changed(*file)));
        }
        while let Some(inode) = above.pop() {
            for (by, directory) in self.waits.namings(inode) {
                self.visited += 1;
                if !self.is_durable(by) {
                    ops.insert(self.waits.changes[by].0);
                }
                if seen.insert(directory) {
                    above.push(directory);
                }
            }
        }
        ops
    }

    fn is_durable(&self, at: usize) -> bool {
        matches!(self.waits.changes[at].1, Kept::Durable { .. })
    }

    /// A change is in the part; `None`: that makes it too large.
    fn add(&mut self, at: usize) -> Option<()> {
        if self.is_durable(at) || !self.is_in.insert(at) {
            return (self.visited <= VISITED_MOST).then_some(());
        }
        self.open.push(at);
        let addr = match self.waits.changes[at].1.place() {
            Where::Block(addr) => {
                self.unordered.insert(addr);
                addr
            }
            Where::Made(addr) | Where::Freed(addr) => addr,
            Where::Superblock => return None,
        };
        self.addrs.insert(addr);
        (self.is_in.len() <= CHANGES_MOST && self.visited <= VISITED_MOST).then_some(())
    }

    /// Adds what changes of a block need of the same block: earlier ones of the same units (U1), and so many
    /// earlier ones that there is room for each set of those that were left out (U3).
    fn order(&mut self, addr: MetaAddr) -> Option<()> {
        let changes = self.index.of_block(addr);
        self.visited += changes.len();
        let mut units = Units::default();
        for at in changes.iter().rev() {
            let pieces = self.waits.changes[*at].1.pieces();
            if !self.is_in.contains(at) && units.has_any(pieces) {
                self.add(*at)?;
            }
            if self.is_in.contains(at) {
                units.add_all(pieces);
            }
        }
        let made = self.index.made(addr).map(|at| &self.waits.changes[at].1);
        let base: &Block = match made {
            Some(Kept::Made { block, .. }) => block.as_ref(),
            _ => self.bases.get(&addr)?,
        };
        if !units::is_node(base) {
            return Some(());
        }
        let all: Vec<&[Piece]> = changes.iter().map(|at| self.waits.changes[*at].1.pieces()).collect();
        let needed = needed_for_room(base, &all, &|i| self.is_in.contains(&changes[i]));
        for at in &changes[..needed] {
            self.add(*at)?;
        }
        Some(())
    }
}
