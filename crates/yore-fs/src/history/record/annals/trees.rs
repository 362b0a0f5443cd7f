//! Where look-ups in the annals begin, and the reading of a row.

use crate::history::record::past::Past;
use crate::Result;
use std::sync::atomic::Ordering;
use yore_format::{AnnalsKey, AnnalsRow, Corruption, EventNo, HistoryTree};
use yore_meta::Meta;

/// The annals of a volume that has some.
#[derive(Clone, Copy)]
pub(in crate::history::record) struct Annals<'p> {
    pub(super) past: &'p Past,
}

impl Past {
    /// The annals, if the volume has some.
    pub(in crate::history::record) fn annals(&self) -> Option<Annals<'_>> {
        (self.annals_from.load(Ordering::Acquire) > 0).then_some(Annals { past: self })
    }

    /// The annals, if what ended at this number is there.
    pub(in crate::history::record) fn annals_with(&self, end: EventNo) -> Option<Annals<'_>> {
        let from = self.annals_from.load(Ordering::Acquire);
        (1..=end.0).contains(&from).then_some(Annals { past: self })
    }
}

impl Annals<'_> {
    /// What `read` makes of a row; `None` if there is no such row. The caller holds the shard's lock. `read`
    /// must be short: it runs with a block's lock held.
    pub(super) fn row<R>(
        self,
        meta: &Meta,
        shard: usize,
        key: AnnalsKey,
        read: impl FnOnce(AnnalsRow<'_>) -> R,
    ) -> Result<Option<R>> {
        let tree = self.past.tree(HistoryTree::Annals(shard));
        let row = tree.get(meta, &key.encode(), |value| {
            let row = |value| AnnalsRow::decode(key.end, value, &meta.found().hash_seed);
            value.map(|value| row(value).map(read)).transpose()
        })?;
        Ok(row?)
    }
}

/// The error for a key of an index whose row is not there, or is another one.
pub(super) fn astray(index: HistoryTree, shard: usize, key: AnnalsKey) -> crate::Error {
    let AnnalsKey { end, sequence } = key;
    let expected = format!("a row of shard {shard} that ended at {end}, the {sequence}th, as its key says");
    Corruption::new(index.kind().name(), "row", expected, "none, or another one").into()
}
