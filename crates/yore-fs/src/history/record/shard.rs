//! What memory keeps about the trees of a shard.

use super::backlog::Unindexed;
use yore_core::btree::{LastLeaf, LeafHints};
use yore_format::{AnnalsKey, RowValue};

/// What memory keeps about the trees of a shard, under the shard's lock.
#[derive(Default)]
pub(super) struct Shard {
    pub(super) versions: LeafHints,
    pub(super) names: LeafHints,
    pub(super) changes: LeafHints,
    /// The end of the annals.
    pub(super) last: LastLeaf,
    /// The values of rows that are about to be appended. What a call encodes needs no memory of its own.
    pub(super) values: Vec<RowValue>,
    /// The greatest key that a row of the annals has had; `None`: nobody has appended one yet.
    pub(super) greatest: Option<AnnalsKey>,
    /// The rows without keys, if it is known which these are.
    pub(super) unindexed: Option<Unindexed>,
}

impl Shard {
    /// The rows without keys.
    ///
    /// # Panics
    /// If nobody has learnt them.
    pub(super) fn unindexed(&self) -> &Unindexed {
        self.unindexed.as_ref().expect("who locks a shard to look something up learns them first")
    }

    /// Forgets the leaf hints and the last leaf: something is about to be removed from the shard, or changed
    /// there.
    pub(super) fn clear_hints(&mut self) {
        for hints in [&mut self.versions, &mut self.names, &mut self.changes] {
            hints.clear();
        }
        self.last.clear();
    }
}
