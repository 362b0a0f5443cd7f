//! Rows in the order in which they were appended: what ended when.

use super::names::entry_of;
use super::trees::Annals;
use crate::history::record::ended::{Ended, EndedRow};
use crate::history::record::entry::PastEntry;
use crate::Result;
use yore_format::{AnnalsKey, AnnalsRow, EventNo, HistoryTree, Version, HISTORY_SHARDS};
use yore_meta::Meta;

impl Annals<'_> {
    /// What the rows of a shard behind this one say that ended, up to a number, in order, at most `most` and
    /// one more. Returns the last of these rows, if there may be more.
    pub(crate) fn ended(
        self,
        meta: &Meta,
        shard: usize,
        after: AnnalsKey,
        last: EventNo,
        most: usize,
    ) -> Result<(Vec<Ended>, Option<AnnalsKey>)> {
        let mut found = Vec::new();
        let next = self.rows_up_to(meta, shard, (after, last), &mut |_, row| {
            if row.version.is_some() {
                found.push(Ended { end: row.end, inode: row.inode, cookie: 0 });
            }
            if let Some(name) = row.name.as_ref().filter(|_| !row.name_is_reclaimed) {
                found.push(Ended { end: row.end, inode: name.directory, cookie: name.cookie });
            }
            found.len() < most
        })?;
        Ok((found, next))
    }

    /// The rows of a shard behind this one that ended up to a number, in order, at most `most`. Returns the
    /// last of them, if there may be more.
    pub(crate) fn ended_rows(
        self,
        meta: &Meta,
        shard: usize,
        after: AnnalsKey,
        last: EventNo,
        most: usize,
    ) -> Result<(Vec<EndedRow>, Option<AnnalsKey>)> {
        let mut found: Vec<EndedRow> = Vec::new();
        let next = self.rows_up_to(meta, shard, (after, last), &mut |key, row| {
            let version = row.version.as_ref().map(|inode| {
                let version = Version { end: row.end, inode: inode.clone().into_owned() };
                (row.inode, version)
            });
            found.push(EndedRow { shard, key, version, name: entry_of(row) });
            found.len() < most
        })?;
        Ok((found, next))
    }

    /// Calls `each` with the past names in the rows of a shard behind this one, at most `most`. Returns the
    /// last of these rows, if there may be more.
    pub(crate) fn names_of_shard(
        self,
        meta: &Meta,
        shard: usize,
        after: AnnalsKey,
        most: usize,
        each: &mut dyn FnMut(PastEntry),
    ) -> Result<Option<AnnalsKey>> {
        let mut met = 0;
        self.rows(meta, shard, after, &mut |_, row| {
            if let Some(entry) = entry_of(row) {
                each(entry);
            }
            met += 1;
            met < most
        })
    }

    /// Whether anything ended after this event.
    pub(crate) fn is_changed_since(self, meta: &Meta, event: EventNo) -> Result<bool> {
        for shard in 0..HISTORY_SHARDS {
            let _shard = self.past.shards[shard].read();
            if self.last_row(meta, shard)?.is_some_and(|key| key.end > event) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The key of the last row of a shard, whose lock the caller holds.
    pub(super) fn last_row(self, meta: &Meta, shard: usize) -> Result<Option<AnnalsKey>> {
        let tree = self.past.tree(HistoryTree::Annals(shard));
        Ok(tree
            .floor(meta, &[u8::MAX; 10], |cell| cell.map(|(key, _)| AnnalsKey::decode(key)).transpose())??)
    }

    /// As [`Annals::rows`], with the rows that ended up to a number.
    fn rows_up_to(
        self,
        meta: &Meta,
        shard: usize,
        (after, last): (AnnalsKey, EventNo),
        each: &mut dyn FnMut(AnnalsKey, &AnnalsRow<'_>) -> bool,
    ) -> Result<Option<AnnalsKey>> {
        let mut is_beyond = false;
        let next = self.rows(meta, shard, after, &mut |key, row| {
            is_beyond = row.end > last;
            !is_beyond && each(key, row)
        })?;
        Ok(next.filter(|_| !is_beyond))
    }

    /// Calls `each` with the rows of a shard behind this one, until it returns false. Returns the last row
    /// that it was called with, if it returned false.
    fn rows(
        self,
        meta: &Meta,
        shard: usize,
        after: AnnalsKey,
        each: &mut dyn FnMut(AnnalsKey, &AnnalsRow<'_>) -> bool,
    ) -> Result<Option<AnnalsKey>> {
        let _shard = self.past.shards[shard].read();
        let (seed, mut last) = (&meta.found().hash_seed, None);
        self.past.tree(HistoryTree::Annals(shard)).scan(meta, &after.encode(), &mut |key, value| {
            let key = AnnalsKey::decode(key)?;
            if key > after && !each(key, &AnnalsRow::decode(key.end, value, seed)?) {
                last = Some(key);
                return Ok(false);
            }
            Ok(true)
        })?;
        Ok(last)
    }
}
