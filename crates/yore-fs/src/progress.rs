//! How far something is that takes long: told by who does it, and read by who waits, from another thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// How far something has come.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// What is done, and all that there is to do as far as that is known: in no unit, but in proportion to
    /// time. The second number may grow.
    pub fn get(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    /// So much more is to be done.
    pub(crate) fn expect(&self, more: u64) {
        self.total.fetch_add(more, Ordering::Relaxed);
    }

    /// So much more is done.
    pub(crate) fn add(&self, done: u64) {
        self.done.fetch_add(done, Ordering::Relaxed);
    }

    /// Something else begins, of which so much is to be done.
    pub(crate) fn restart(&self, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }
}
