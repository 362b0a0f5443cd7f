//! The order of changes of a volume. Most engines need none, and nothing keeps it. In tests that prove the
//! order a recorder keeps it; under an engine that writes in this order it is kept for the writer.

use super::order::KeepsOrder;
use super::pending::Pending;
use super::recorder::Order;

/// What may keep the order of a volume's changes.
#[derive(Default)]
pub(crate) struct Orders {
    pub(crate) recorder: Order,
    pub(crate) pending: Pending,
}

impl Orders {
    /// What keeps the order, if anything does.
    #[inline]
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
