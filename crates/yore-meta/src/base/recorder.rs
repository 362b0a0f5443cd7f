//! Records changes with what they change, the order between them, and where an engine drains: for tests that
//! prove the order without an engine (docs/EDGES.md, "The judge").
//!
//! What an order says of a block, whatever its changes are, becomes edges between changes here, as an
//! ordered engine would keep them.

use super::order::{Change, EdgeKind};
use super::units::Piece;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::sync::OnceLock;
use yore_format::{Block, InodeNo, MetaAddr};

/// What one change changed.
#[derive(Clone)]
pub enum Place {
    /// A block.
    Block {
        /// Where it is.
        addr: MetaAddr,
        /// What it became.
        after: Box<Block>,
        /// The units of it that are others now, in the order in which they changed.
        pieces: Vec<Piece>,
    },
    /// An index is in use from now on. The block is this one, until something is put into it.
    Made {
        /// The index.
        addr: MetaAddr,
        /// The block.
        block: Box<Block>,
    },
    /// An index is free from now on.
    Freed {
        /// The index.
        addr: MetaAddr,
    },
    /// The superblock has this root and level of the orphans.
    Orphans {
        /// The root.
        root: MetaAddr,
        /// Its level.
        level: u8,
    },
}

impl Place {
    /// The block that it lies in, if it is not the superblock.
    pub fn addr(&self) -> Option<MetaAddr> {
        match self {
            Place::Block { addr, .. } | Place::Made { addr, .. } | Place::Freed { addr } => Some(*addr),
            Place::Orphans { .. } => None,
        }
    }
}

/// Changes that were recorded. They are numbered from 0 on, in the order in which they were made.
#[derive(Clone, Default)]
pub struct Recording {
    /// What each change changed, and the Op that made it.
    pub changes: Vec<(u64, Place)>,
    /// Which change waits for which: the first is never behind the second.
    pub edges: Vec<(EdgeKind, usize, usize)>,
    /// The changes before which everything pending reaches the medium.
    pub drains: Vec<usize>,
    /// Ops that are alone: they reach the medium as a whole, and by themselves.
    pub whole: Vec<u64>,
}

#[derive(Default)]
struct State {
    recording: Recording,
    ops: u64,
    /// What each block has changed since it was made, or since recording began.
    by_block: HashMap<MetaAddr, Vec<usize>>,
    /// The changes that made what a block has count.
    links: HashMap<MetaAddr, Vec<usize>>,
    /// The blocks that changes of a block have made count.
    below: HashMap<MetaAddr, Vec<MetaAddr>>,
    /// The change that made a block, if that was recorded.
    made: HashMap<MetaAddr, usize>,
    /// The rows of the past that an Op has entered.
    rows: HashMap<u64, Vec<usize>>,
    /// From which changes on names of an inode count.
    names: HashMap<InodeNo, Vec<usize>>,
    /// The changes with which extents of an inode went.
    vacated: HashMap<InodeNo, Vec<usize>>,
}

/// Where the recorder of the order of changes is, once somebody wants one.
#[derive(Default)]
pub(crate) struct Order(OnceLock<Recorder>);

impl Order {
    /// The recorder, if there is one.
    #[inline]
    pub(crate) fn wanted(&self) -> Option<&Recorder> {
        self.0.get()
    }

    /// Has all changes recorded from now on, with no Op open.
    pub(crate) fn record(&self) {
        self.0.get_or_init(Recorder::default);
    }
}

/// A recorder.
#[derive(Default)]
pub(crate) struct Recorder(Mutex<State>);

impl Recorder {
    /// An Op opens; returns its number.
    pub(crate) fn begin(&self, alone: bool) -> u64 {
        let mut state = self.0.lock();
        state.ops += 1;
        let op = state.ops;
        if alone {
            state.recording.whole.push(op);
        }
        op
    }

    /// What this Op does is done as a whole and by itself.
    pub(crate) fn be_whole(&self, op: u64) {
        let mut state = self.0.lock();
        if !state.recording.whole.contains(&op) {
            state.recording.whole.push(op);
        }
    }

    /// Everything so far reaches the medium before what follows.
    pub(crate) fn drain(&self) {
        let mut state = self.0.lock();
        let now = state.recording.changes.len();
        state.recording.drains.push(now);
    }

    /// A change was made. Of a block: with its lock held, so that numbers ascend as its changes do.
    pub(crate) fn change(&self, op: u64, place: Place) -> Change {
        self.0.lock().change(op, place)
    }

    pub(crate) fn edge(&self, kind: EdgeKind, first: Change, then: Change) {
        let mut state = self.0.lock();
        state.edge(kind, first.0 as usize, then.0 as usize);
    }

    /// All later changes of this Op come behind `row`.
    pub(crate) fn recorded(&self, op: u64, row: Change) {
        self.0.lock().rows.entry(op).or_default().push(row.0 as usize);
    }

    /// All changes of a block so far come before `by`.
    pub(crate) fn all_before(&self, kind: EdgeKind, block: MetaAddr, by: Change) {
        self.0.lock().all_before(kind, block, by.0 as usize);
    }

    /// What a block has counts from the change `by` on.
    pub(crate) fn linked(&self, block: MetaAddr, by: Change) {
        self.0.lock().linked(block, by.0 as usize);
    }

    /// A name of an inode counts from `by` on.
    pub(crate) fn named(&self, inode: InodeNo, by: Change) {
        self.0.lock().names.entry(inode).or_default().push(by.0 as usize);
    }

    /// A name of an inode goes with the change `gone`.
    pub(crate) fn unnamed(&self, inode: InodeNo, gone: Change) {
        let mut state = self.0.lock();
        for name in state.names.get(&inode).cloned().unwrap_or_default() {
            if name < gone.0 as usize {
                state.edge(EdgeKind::Kept, name, gone.0 as usize);
            }
        }
    }

    /// Extents of an inode go with the change `gone`.
    pub(crate) fn vacated(&self, inode: InodeNo, gone: Change) {
        self.0.lock().vacated.entry(inode).or_default().push(gone.0 as usize);
    }

    /// Blocks come to an inode with the change `by`.
    pub(crate) fn occupied(&self, inode: InodeNo, by: Change) {
        let mut state = self.0.lock();
        for gone in state.vacated.get(&inode).cloned().unwrap_or_default() {
            state.edge(EdgeKind::Vacated, gone, by.0 as usize);
        }
    }

    /// What was recorded so far.
    pub(crate) fn recording(&self) -> Recording {
        self.0.lock().recording.clone()
    }
}

impl State {
    fn change(&mut self, op: u64, place: Place) -> Change {
        let number = self.recording.changes.len();
        match &place {
            Place::Made { addr, .. } => {
                self.by_block.remove(addr);
                self.links.remove(addr);
                self.below.remove(addr);
                self.made.insert(*addr, number);
            }
            Place::Block { addr, .. } => {
                let addr = *addr;
                if let Some(made) = self.made.get(&addr).copied() {
                    self.edge(EdgeKind::Made, made, number);
                }
                self.reached(addr, number);
                self.by_block.entry(addr).or_default().push(number);
            }
            Place::Freed { .. } | Place::Orphans { .. } => {}
        }
        for row in self.rows.get(&op).cloned().unwrap_or_default() {
            self.edge(EdgeKind::Recorded, row, number);
        }
        self.recording.changes.push((op, place));
        Change(number as u64)
    }

    fn edge(&mut self, kind: EdgeKind, first: usize, then: usize) {
        if first != then {
            self.recording.edges.push((kind, first, then));
        }
    }

    /// The block that a change lies in.
    fn block_of(&self, change: usize) -> Option<MetaAddr> {
        match &self.recording.changes[change].1 {
            Place::Block { addr, .. } => Some(*addr),
            _ => None,
        }
    }

    /// A later change of a block comes behind what made the block count, and behind what made that count.
    fn reached(&mut self, mut addr: MetaAddr, change: usize) {
        let mut links = self.links.get(&addr).cloned().unwrap_or_default();
        while let Some(by) = links.pop() {
            if by >= change {
                continue;
            }
            self.edge(EdgeKind::Reached, by, change);
            if let Some(above) = self.block_of(by) {
                addr = above;
                links.extend(self.links.get(&addr).into_iter().flatten().filter(|later| **later > by));
            }
        }
    }

    fn all_before(&mut self, kind: EdgeKind, block: MetaAddr, by: usize) {
        for change in self.by_block.get(&block).cloned().unwrap_or_default() {
            if change < by {
                self.edge(kind, change, by);
            }
        }
    }

    fn linked(&mut self, block: MetaAddr, by: usize) {
        self.contents(block, by);
        self.links.entry(block).or_default().push(by);
        if let Some(above) = self.block_of(by) {
            self.below.entry(above).or_default().push(block);
        }
        let later: Vec<usize> = self.by_block.get(&block).into_iter().flatten().copied().collect();
        for change in later.into_iter().filter(|change| *change > by) {
            self.edge(EdgeKind::Reached, by, change);
        }
    }

    /// All that was put into a block comes before `by`; and if the block did not count before, so does all
    /// that was put into blocks that it has made count.
    fn contents(&mut self, block: MetaAddr, by: usize) {
        self.all_before(EdgeKind::Contents, block, by);
        if self.made.contains_key(&block) && !self.links.contains_key(&block) {
            for below in self.below.get(&block).cloned().unwrap_or_default() {
                self.all_before(EdgeKind::Contents, below, by);
                self.contents_below(below, by);
            }
        }
    }

    fn contents_below(&mut self, block: MetaAddr, by: usize) {
        for below in self.below.get(&block).cloned().unwrap_or_default() {
            self.all_before(EdgeKind::Contents, below, by);
            self.contents_below(below, by);
        }
    }
}
