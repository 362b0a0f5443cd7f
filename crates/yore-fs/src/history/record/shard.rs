//! What is remembered of the trees of a shard.

use crate::core::btree::LeafHints;

/// What is remembered of the trees of a shard, under its lock.
#[derive(Default)]
pub(super) struct Shard {
    pub(super) versions: LeafHints,
    pub(super) names: LeafHints,
    pub(super) changes: LeafHints,
}

impl Shard {
    /// Something of it is about to be removed.
    pub(super) fn is_reduced(&mut self) {
        for hints in [&mut self.versions, &mut self.names, &mut self.changes] {
            hints.clear();
        }
    }
}
