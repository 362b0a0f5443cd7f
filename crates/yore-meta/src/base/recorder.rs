//! Records changes with what they change, the order between them, and where an engine drains: for tests that
//! prove the order without an engine (docs/EDGES.md, "The judge").

use super::order::{Change, Did, EdgeKind, KeepsOrder};
use super::units::Piece;
use super::waits::{HasPlace, Waits, Where};
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

impl HasPlace for Place {
    fn place(&self) -> Where {
        match self {
            Place::Block { addr, .. } => Where::Block(*addr),
            Place::Made { addr, .. } => Where::Made(*addr),
            Place::Freed { addr } => Where::Freed(*addr),
            Place::Orphans { .. } => Where::Superblock,
        }
    }
}

#[derive(Default)]
struct State {
    waits: Waits<Place>,
    drains: Vec<usize>,
    whole: Vec<u64>,
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
    /// What was recorded so far.
    pub(crate) fn recording(&self) -> Recording {
        let state = self.0.lock();
        Recording {
            changes: state.waits.changes.clone(),
            edges: state.waits.edges.clone(),
            drains: state.drains.clone(),
            whole: state.whole.clone(),
        }
    }
}

impl KeepsOrder for Recorder {
    fn begin(&self, alone: bool) -> u64 {
        let mut state = self.0.lock();
        let op = state.waits.begin();
        if alone {
            state.whole.push(op);
        }
        op
    }

    fn be_whole(&self, op: u64) {
        let mut state = self.0.lock();
        if !state.whole.contains(&op) {
            state.whole.push(op);
        }
    }

    fn drain(&self) {
        let mut state = self.0.lock();
        let now = state.waits.changes.len();
        state.drains.push(now);
    }

    fn before(&self, _: MetaAddr, _: &Block) {}

    fn change(&self, op: u64, did: Did<'_>) -> Change {
        let place = match did {
            Did::Block { addr, after, pieces } => Place::Block { addr, after: Box::new(*after), pieces },
            Did::Made { addr, block } => Place::Made { addr, block: Box::new(*block) },
            Did::Freed { addr } => Place::Freed { addr },
            Did::Orphans { root, level } => Place::Orphans { root, level },
        };
        self.0.lock().waits.change(op, place)
    }

    fn edge(&self, kind: EdgeKind, first: Change, then: Change) {
        self.0.lock().waits.edge(kind, first, then);
    }

    fn ahead(&self, kind: EdgeKind, op: u64, first: Change) {
        self.0.lock().waits.ahead(kind, op, first);
    }

    fn all_before(&self, kind: EdgeKind, block: MetaAddr, by: Change) {
        self.0.lock().waits.all_before(kind, block, by);
    }

    fn linked(&self, block: MetaAddr, by: Change) {
        self.0.lock().waits.linked(block, by);
    }

    fn named(&self, inode: InodeNo, directory: InodeNo, by: Change) {
        self.0.lock().waits.named(inode, directory, by);
    }

    fn unnamed(&self, inode: InodeNo, gone: Change) {
        self.0.lock().waits.unnamed(inode, gone);
    }

    fn reborn(&self, inode: InodeNo, by: Change) {
        self.0.lock().waits.reborn(inode, by);
    }

    fn behind_birth(&self, op: u64, inode: InodeNo) {
        self.0.lock().waits.behind_birth(op, inode);
    }

    fn vacated(&self, inode: InodeNo, gone: Change) {
        self.0.lock().waits.vacated(inode, gone);
    }

    fn occupied(&self, inode: InodeNo, by: Change) {
        self.0.lock().waits.occupied(inode, by);
    }
}
