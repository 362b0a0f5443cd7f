//! What memory keeps about the trees of a shard.

use super::backlog::Unindexed;
use yore_core::btree::LastLeaf;
use yore_format::{AnnalsKey, RowValue};

/// What memory keeps about the trees of a shard, under the shard's lock.
#[derive(Default)]
pub(super) struct Shard {
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

    /// Forgets the last leaf: a row is about to be removed, or changed.
    pub(super) fn clear_hints(&mut self) {
        self.last.clear();
    }
}
