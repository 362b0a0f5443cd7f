//! How far a long operation has come: one thread reports it, and another one, which waits, reads it.

use std::sync::atomic::{AtomicU64, Ordering};

/// How far an operation has come.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// How much is done, and how much there is to do in all, as far as that is known: in no unit, but in
    /// proportion to time. The second number may grow.
    pub fn get(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    /// Says how much is done, and how much there is to do in all.
    pub fn set(&self, done: u64, total: u64) {
        self.total.store(total, Ordering::Relaxed);
        self.done.store(done, Ordering::Relaxed);
    }

    /// Adds work to be done.
    pub(crate) fn expect(&self, more: u64) {
        self.total.fetch_add(more, Ordering::Relaxed);
    }

    /// Adds work that is done.
    pub(crate) fn add(&self, done: u64) {
        self.done.fetch_add(done, Ordering::Relaxed);
    }

    /// Begins another operation, with so much work.
    pub(crate) fn restart(&self, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }
}
