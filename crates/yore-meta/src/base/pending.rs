//! The changes of the running generation, under an engine that writes them in order: with the units that they
//! mean, and what each waits for. The writer takes them when it freezes the generation
//! (`writer/rounds.rs`).

use super::index::Index;
use super::order::{Change, Did, EdgeKind, KeepsOrder};
use super::units::{Piece, Units};
use super::waits::{HasPlace, Waits, Where, NO_OP};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::sync::OnceLock;
use yore_format::{Block, InodeNo, MetaAddr};

/// What is kept of a change.
#[derive(Clone)]
pub(crate) enum Kept {
    /// It changed these units of a block.
    Block { addr: MetaAddr, pieces: Vec<Piece> },
    /// It made a block, which was this one until something was put into it.
    Made { addr: MetaAddr, block: Box<Block> },
    /// It freed one.
    Freed { addr: MetaAddr },
    /// The superblock has this root and level of the orphans.
    Orphans { root: MetaAddr, level: u8 },
    /// It is durable: an fsync has written it, and it lies here.
    Durable { was: Where },
}

impl Kept {
    /// The units of a block that it changed.
    pub(crate) fn pieces(&self) -> &[Piece] {
        match self {
            Kept::Block { pieces, .. } => pieces,
            Kept::Made { .. } | Kept::Freed { .. } | Kept::Orphans { .. } | Kept::Durable { .. } => &[],
        }
    }
}

impl HasPlace for Kept {
    fn place(&self) -> Where {
        match self {
            Kept::Block { addr, .. } => Where::Block(*addr),
            Kept::Made { addr, .. } => Where::Made(*addr),
            Kept::Freed { addr } => Where::Freed(*addr),
            Kept::Orphans { .. } => Where::Superblock,
            Kept::Durable { was } => *was,
        }
    }

    fn each_slot(&self, each: &mut dyn FnMut(u16)) {
        for piece in self.pieces() {
            if let Piece::Slot { slot, .. } = piece {
                each(*slot);
            }
        }
    }
}

/// Blocks as the medium has them, of those that this generation has changed: as the generation before left
/// them, or a part of this one.
pub(crate) type Bases = HashMap<MetaAddr, Box<Block>>;

/// The most edges that are kept: 48 MiB. A generation that would have more is written as a whole, which needs
/// none.
const EDGES_MOST: usize = 1 << 21;
/// So many edges count as one change that waits. So a generation begins when there are half of the most.
const EDGES_A_CHANGE: usize = 8;

#[derive(Default)]
struct State {
    waits: Waits<Kept>,
    bases: Bases,
    whole: bool,
    /// So many edges were given up because they were too many.
    given_up: usize,
    counts: PassCounts,
    /// Free blocks that the last superblock does not count. `None`: the last pass has written none, so the
    /// totals of the one before are not those of that pass.
    unpromised: Option<u64>,
    /// So many changes were put off by the generation before.
    put_off: usize,
    /// So many callers want each superblock to be of the last pass, and nothing to be put off.
    wants_exact: usize,
    /// Bits of bitmaps that the generation has cleared, or was left to clear.
    cleared: u64,
    /// Where the changes of a file are found, as far as an fsync has entered them.
    index: Index,
}

impl State {
    /// All of the generation is there or not together, so nothing in it waits.
    fn be_whole(&mut self) {
        if !std::mem::replace(&mut self.whole, true) {
            self.waits.come_together();
        }
    }

    /// Edges come, unless the generation needs none.
    fn order(&mut self, tell: impl FnOnce(&mut Waits<Kept>)) {
        if self.whole {
            return;
        }
        tell(&mut self.waits);
        if self.waits.edges.len() > EDGES_MOST {
            self.given_up = self.waits.edges.len();
            self.be_whole();
        }
    }
}

/// How many bits of bitmaps these clear.
pub(crate) fn cleared_by(pieces: &[Piece]) -> u64 {
    let cleared = pieces.iter().map(|piece| match piece {
        Piece::Bits { mask, to, .. } => u64::from((mask & !to).count_ones()),
        Piece::Cell { .. } | Piece::Slot { .. } | Piece::Word { .. } => 0,
    });
    cleared.sum()
}

/// What a pass has put off of a block.
pub(crate) struct PutOff {
    pub(crate) addr: MetaAddr,
    /// The block as the medium has it.
    pub(crate) base: Box<Block>,
    /// What was put off.
    pub(crate) pieces: Vec<Piece>,
}

/// What a generation has changed.
pub(crate) struct Taken {
    pub(crate) waits: Waits<Kept>,
    pub(crate) bases: Bases,
    /// Something in it has no order in which a crash may stop anywhere: all of it is there, or nothing.
    pub(crate) whole: bool,
}

#[cfg(feature = "mutations")]
impl Taken {
    /// Whether the root of the orphans is another one.
    pub(crate) fn changes_orphans(&self) -> bool {
        self.waits.changes.iter().any(|(_, kept)| matches!(kept, Kept::Orphans { .. }))
    }
}

/// What the generations of an engine that orders changes have cost since the volume was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassCounts {
    /// Generations that were written in rounds.
    pub passes: u64,
    /// Generations that were written aside as a whole.
    pub wholes: u64,
    /// Rounds of all passes.
    pub rounds: u64,
    /// Blocks that the rounds have written, without headers.
    pub blocks: u64,
    /// How many of these were rollbacks: written without some of their changes, and again later.
    pub rollbacks: u64,
    /// Parts of generations that were written for an fsync; their rounds and blocks are among those above.
    pub parts: u64,
}

impl PassCounts {
    /// What came to it since it was `before`.
    pub fn since(self, before: PassCounts) -> PassCounts {
        PassCounts {
            passes: self.passes - before.passes,
            wholes: self.wholes - before.wholes,
            rounds: self.rounds - before.rounds,
            blocks: self.blocks - before.blocks,
            rollbacks: self.rollbacks - before.rollbacks,
            parts: self.parts - before.parts,
        }
    }

    /// Adds those of another time.
    pub fn add(&mut self, other: PassCounts) {
        self.passes += other.passes;
        self.wholes += other.wholes;
        self.rounds += other.rounds;
        self.blocks += other.blocks;
        self.rollbacks += other.rollbacks;
        self.parts += other.parts;
    }
}

/// What waits, for whoever looks for a part of it.
pub(crate) struct Waiting<'s> {
    pub(crate) waits: &'s mut Waits<Kept>,
    pub(crate) bases: &'s mut Bases,
    pub(crate) index: &'s mut Index,
    /// Bits of bitmaps that the generation clears.
    pub(crate) cleared: &'s mut u64,
}

/// Keeps them, once an engine wants that.
#[derive(Default)]
pub(crate) struct Pending(OnceLock<Mutex<State>>);

impl Pending {
    /// Keeps all changes from now on, with no Op open.
    pub(crate) fn start(&self) {
        self.0.get_or_init(|| Mutex::new(State { unpromised: Some(0), ..State::default() }));
    }

    /// What keeps them, if an engine wants that.
    #[inline]
    pub(crate) fn wanted(&self) -> Option<&dyn KeepsOrder> {
        self.0.get().map(|state| state as &dyn KeepsOrder)
    }

    /// How many changes wait for the next generation. If the edges between them take more memory than they
    /// do, these count.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.0.get().map_or(0, |state| {
            let state = state.lock();
            let edges = state.waits.edges.len() + state.given_up;
            state.waits.changes.len().max(edges / EDGES_A_CHANGE)
        })
    }

    /// What the generation has changed that is being frozen, with the gate held alone.
    pub(crate) fn take(&self) -> Option<Taken> {
        let mut state = self.0.get()?.lock();
        let whole = std::mem::take(&mut state.whole);
        let bases = std::mem::take(&mut state.bases);
        (state.put_off, state.given_up, state.cleared) = (0, 0, 0);
        state.index = Index::default();
        Some(Taken { waits: state.waits.take(), bases, whole })
    }

    /// Has `find` examine what waits, for a part of it that is to be written by itself; with the gate held
    /// alone. `None`: the generation cannot be written in parts, for all of it is there or nothing, or
    /// somebody wants exact superblocks.
    pub(crate) fn with_waiting<T>(&self, find: impl FnOnce(Waiting<'_>) -> T) -> Option<T> {
        let mut state = self.0.get()?.lock();
        if state.whole || state.wants_exact > 0 {
            return None;
        }
        let State { waits, bases, index, cleared, .. } = &mut *state;
        index.enter(waits);
        Some(find(Waiting { waits, bases, index, cleared }))
    }

    /// A part of the running generation is written, which costs this. The last superblock says less of it.
    pub(crate) fn count_part(&self, cost: PassCounts) {
        self.count_pass(PassCounts { passes: 0, parts: 1, ..cost }, None);
    }

    /// A generation is written, which costs this. Its superblock counts `unpromised` free blocks less than
    /// there are; `None`: it needs none.
    pub(crate) fn count_pass(&self, cost: PassCounts, unpromised: Option<u64>) {
        if let Some(state) = self.0.get() {
            let mut state = state.lock();
            state.counts.add(cost);
            state.unpromised = unpromised;
        }
    }

    /// How many free blocks the superblock of the last generation does not count; `None`: it is not of the
    /// last generation.
    pub(crate) fn unpromised(&self) -> Option<u64> {
        let Some(state) = self.0.get() else { return Some(0) };
        let state = state.lock();
        state.unpromised.filter(|_| state.put_off == 0)
    }

    /// While this lives each generation that is frozen writes its superblock, and puts nothing off.
    pub(crate) fn want_exact(&self) -> Exact<'_> {
        if let Some(state) = self.0.get() {
            state.lock().wants_exact += 1;
        }
        Exact(self)
    }

    /// Whether somebody wants that.
    pub(crate) fn wants_exact(&self) -> bool {
        self.0.get().is_some_and(|state| state.lock().wants_exact > 0)
    }

    /// Whether anything was changed but for what was put off.
    pub(crate) fn has_news(&self) -> bool {
        self.0.get().is_some_and(|state| {
            let state = state.lock();
            state.waits.changes.len() > state.put_off
        })
    }

    /// The generation just written did not clear these bits; the running one does. With no Op open. The new
    /// change follows those that the running one has already made to the block. They concern other bits,
    /// since the blocks have not been reusable yet.
    pub(crate) fn put_off(&self, PutOff { addr, base, pieces }: PutOff) {
        let Some(state) = self.0.get() else { return };
        let mut state = state.lock();
        let mut clearing = Units::default();
        clearing.add_all(&pieces);
        for later in state.waits.changes_of(addr) {
            assert!(
                !clearing.has_any(later.pieces()),
                "bits of {addr} were changed before they were cleared"
            );
        }
        drop(clearing);
        state.bases.insert(addr, base);
        state.cleared += cleared_by(&pieces);
        state.waits.change(NO_OP, Kept::Block { addr, pieces });
        state.put_off += 1;
    }

    /// What all have cost since the volume was opened.
    pub(crate) fn counts(&self) -> PassCounts {
        self.0.get().map_or_else(PassCounts::default, |state| state.lock().counts)
    }
}

/// As [`Pending::want_exact`] says.
pub(crate) struct Exact<'p>(&'p Pending);

impl Drop for Exact<'_> {
    fn drop(&mut self) {
        if let Some(state) = self.0 .0.get() {
            state.lock().wants_exact -= 1;
        }
    }
}

impl KeepsOrder for Mutex<State> {
    fn begin(&self, alone: bool) -> u64 {
        let mut state = self.lock();
        if alone {
            state.be_whole();
        }
        state.waits.begin()
    }

    fn be_whole(&self, _op: u64) {
        self.lock().be_whole();
    }

    fn drain(&self) {
        // What came before is then there or not together with what follows.
        self.lock().be_whole();
    }

    fn before(&self, addr: MetaAddr, block: &Block) {
        let mut state = self.lock();
        if !state.waits.has_made(addr) {
            state.bases.entry(addr).or_insert_with(|| Box::new(*block));
        }
    }

    fn change(&self, op: u64, did: Did<'_>) -> Change {
        let kept = match did {
            Did::Block { addr, pieces, .. } => Kept::Block { addr, pieces },
            Did::Made { addr, block } => Kept::Made { addr, block: Box::new(*block) },
            Did::Freed { addr } => Kept::Freed { addr },
            Did::Orphans { root, level } => Kept::Orphans { root, level },
        };
        let mut state = self.lock();
        state.cleared += cleared_by(kept.pieces());
        state.waits.change(op, kept)
    }

    fn edge(&self, kind: EdgeKind, first: Change, then: Change) {
        self.lock().order(|waits| waits.edge(kind, first, then));
    }

    fn ahead(&self, kind: EdgeKind, op: u64, first: Change) {
        self.lock().order(|waits| waits.ahead(kind, op, first));
    }

    fn all_before(&self, kind: EdgeKind, block: MetaAddr, by: Change) {
        self.lock().order(|waits| waits.all_before(kind, block, by));
    }

    fn linked(&self, block: MetaAddr, by: Change) {
        self.lock().order(|waits| waits.linked(block, by));
    }

    fn named(&self, inode: InodeNo, directory: InodeNo, by: Change) {
        self.lock().order(|waits| waits.named(inode, directory, by));
    }

    fn unnamed(&self, inode: InodeNo, gone: Change) {
        self.lock().order(|waits| waits.unnamed(inode, gone));
    }

    fn reborn(&self, inode: InodeNo, by: Change) {
        self.lock().order(|waits| waits.reborn(inode, by));
    }

    fn behind_birth(&self, op: u64, inode: InodeNo) {
        self.lock().order(|waits| waits.behind_birth(op, inode));
    }

    fn vacated(&self, inode: InodeNo, gone: Change) {
        self.lock().order(|waits| waits.vacated(inode, gone));
    }

    fn occupied(&self, inode: InodeNo, by: Change) {
        self.lock().order(|waits| waits.occupied(inode, by));
    }
}

#[cfg(test)]
mod tests;
