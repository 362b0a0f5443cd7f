//! Data blocks that Ops have freed: they are available again once the generation that freed them is complete
//! (R2, R3).

use parking_lot::Mutex;
use std::sync::{OnceLock, Weak};
use yore_format::BlockNo;

/// Learns of data blocks that have become free for good: the generation that freed them is complete.
pub trait Reclaimer: Send + Sync {
    /// Makes the runs (first block, length) available. The writer calls this and holds no locks.
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

    /// The generation is being frozen: gives what it has freed.
    pub(crate) fn take(&self) -> Runs {
        std::mem::take(&mut *self.runs.lock())
    }

    /// The generation that freed `runs` is complete.
    pub(crate) fn reclaim(&self, runs: &[(BlockNo, u32)]) {
        if let Some(reclaimer) = self.reclaimer.get().and_then(Weak::upgrade) {
            reclaimer.reclaim(runs);
        }
    }
}
