//! What memory keeps about the trees of a shard.

use yore_core::btree::LeafHints;

/// What memory keeps about the trees of a shard, under the shard's lock.
#[derive(Default)]
pub(super) struct Shard {
    pub(super) versions: LeafHints,
    pub(super) names: LeafHints,
    pub(super) changes: LeafHints,
}

impl Shard {
    /// Forgets the leaf hints: something is about to be removed from the shard.
    pub(super) fn clear_hints(&mut self) {
        for hints in [&mut self.versions, &mut self.names, &mut self.changes] {
            hints.clear();
        }
    }
}
