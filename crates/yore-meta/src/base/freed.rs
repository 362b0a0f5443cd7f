//! Data blocks that Ops have freed: they are available again once the generation that freed them is complete,
//! or a record of the log that every mount goes through (R2, R3).

use parking_lot::Mutex;
use std::sync::{OnceLock, Weak};
use yore_format::BlockNo;

/// Learns of data blocks that have become free for good: the generation that freed them is complete.
pub trait Reclaimer: Send + Sync {
    /// Makes the runs (first block, length) available. Whoever calls this may hold the superblock's mutex and
    /// lead the log, and holds no other lock of the metadata layer.
    fn reclaim(&self, runs: &[(BlockNo, u32)]);
}

/// Runs of blocks: the first one, and how many.
pub(crate) type Runs = Vec<(BlockNo, u32)>;

/// What the running generation has freed, and who is to know.
#[derive(Default)]
pub(crate) struct Freed {
    runs: Mutex<Runs>,
    reclaimer: OnceLock<Weak<dyn Reclaimer>>,
}

impl Freed {
    /// Sets, once, who learns of freed blocks.
    pub(crate) fn set_reclaimer(&self, reclaimer: Weak<dyn Reclaimer>) {
        assert!(self.reclaimer.set(reclaimer).is_ok(), "the reclaimer is set once");
    }

    #[inline]
    pub(crate) fn add(&self, start: BlockNo, len: u32) {
        self.runs.lock().push((start, len));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.lock().is_empty()
    }

    /// The generation is being frozen, or a record gathered: gives what was freed until then.
    pub(crate) fn take(&self) -> Runs {
        std::mem::take(&mut *self.runs.lock())
    }

    /// What was taken is not in a record after all: the generation gives it back.
    pub(crate) fn put_back(&self, mut runs: Runs) {
        self.runs.lock().append(&mut runs);
    }

    /// The generation that freed `runs` is complete, or a record that says so durable.
    pub(crate) fn reclaim(&self, runs: &[(BlockNo, u32)]) {
        if let Some(reclaimer) = self.reclaimer.get().and_then(Weak::upgrade) {
            reclaimer.reclaim(runs);
        }
    }
}
