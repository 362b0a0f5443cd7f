//! The order of changes of a volume. Most engines need none, and nothing keeps it. In tests that prove the
//! order a recorder keeps it. An engine that writes in this order will keep it here, too.

use super::order::{Change, Did, EdgeKind, KeepsOrder};
use super::recorder::{Order, Place, Recorder};
use yore_format::{InodeNo, MetaAddr};

impl KeepsOrder for Recorder {
    fn begin(&self, alone: bool) -> u64 {
        Recorder::begin(self, alone)
    }

    fn be_whole(&self, op: u64) {
        Recorder::be_whole(self, op);
    }

    fn drain(&self) {
        Recorder::drain(self);
    }

    fn change(&self, op: u64, did: Did<'_>) -> Change {
        let place = match did {
            Did::Block { addr, after, pieces } => Place::Block { addr, after: Box::new(*after), pieces },
            Did::Made { addr, block } => Place::Made { addr, block: Box::new(*block) },
            Did::Freed { addr } => Place::Freed { addr },
            Did::Orphans { root, level } => Place::Orphans { root, level },
        };
        Recorder::change(self, op, place)
    }

    fn edge(&self, kind: EdgeKind, first: Change, then: Change) {
        Recorder::edge(self, kind, first, then);
    }

    fn recorded(&self, op: u64, row: Change) {
        Recorder::recorded(self, op, row);
    }

    fn all_before(&self, kind: EdgeKind, block: MetaAddr, by: Change) {
        Recorder::all_before(self, kind, block, by);
    }

    fn linked(&self, block: MetaAddr, by: Change) {
        Recorder::linked(self, block, by);
    }

    fn named(&self, inode: InodeNo, by: Change) {
        Recorder::named(self, inode, by);
    }

    fn unnamed(&self, inode: InodeNo, gone: Change) {
        Recorder::unnamed(self, inode, gone);
    }

    fn vacated(&self, inode: InodeNo, gone: Change) {
        Recorder::vacated(self, inode, gone);
    }

    fn occupied(&self, inode: InodeNo, by: Change) {
        Recorder::occupied(self, inode, by);
    }
}

/// What may keep the order of a volume's changes.
#[derive(Default)]
pub(crate) struct Orders {
    pub(crate) recorder: Order,
}

impl Orders {
    /// What keeps the order, if anything does.
    #[inline]
    pub(crate) fn wanted(&self) -> Option<&dyn KeepsOrder> {
        self.recorder.wanted().map(|recorder| recorder as &dyn KeepsOrder)
    }

    /// All changes so far are durable, and those that follow rely on it.
    pub(crate) fn all_durable(&self) {
        if let Some(recorder) = self.recorder.wanted() {
            recorder.drain();
        }
    }
}
