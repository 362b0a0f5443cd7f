//! The order of changes of a volume. Most engines need none, and nothing keeps it. In tests that prove the
//! order a recorder keeps it; under an engine that writes in this order it is kept for the writer.

use super::order::KeepsOrder;
use super::pending::Pending;
use super::recorder::Order;
use std::sync::atomic::{AtomicBool, Ordering};

/// What may keep the order of a volume's changes.
#[derive(Default)]
pub(crate) struct Orders {
    /// Whether anything does. Never taken back, and set with no Op open.
    is_kept: AtomicBool,
    pub(crate) recorder: Order,
    pub(crate) pending: Pending,
}

impl Orders {
    /// Whether anything keeps the order.
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::Relaxed)
    }

    /// Has all changes recorded from now on, with no Op open.
    pub(crate) fn record(&self) {
        self.recorder.record();
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// Keeps all changes for the writer from now on, with no Op open.
    pub(crate) fn keep(&self) {
        self.pending.start();
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// What keeps the order, if anything does.
    pub(crate) fn wanted(&self) -> Option<&dyn KeepsOrder> {
        match self.recorder.wanted() {
            Some(recorder) => Some(recorder),
            None => self.pending.wanted(),
        }
    }

    /// All changes so far are durable, and those that follow rely on it.
    pub(crate) fn all_durable(&self) {
        if let Some(recorder) = self.recorder.wanted() {
            recorder.drain();
        }
    }
}
