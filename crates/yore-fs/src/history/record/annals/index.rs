//! Look-ups in the two indexes.

use super::trees::Annals;
use crate::history::record::backlog::Unindexed;
use crate::history::record::ended::Ended;
use crate::{InodeNo, Result};
use yore_format::{
    BlockKind, Corruption, EventNo, HistoryTree, InodeIndexCell, NameIndexCell, EVENT_LIMIT, INODE_LIMIT,
};
use yore_meta::Meta;

/// No key has a greater number of an event.
const LAST: EventNo = EventNo(EVENT_LIMIT - 1);

/// How many cells of one cookie a listing steps over before it looks for the next one that counts.
const STEPS: u32 = 8;

/// States by inode: the rows without keys of the shard, and the index. The caller holds both locks.
impl Annals<'_> {
    /// The cell of the state of an inode that ended first at this number or later.
    pub(super) fn state_ending_from(
        self,
        meta: &Meta,
        rows: &Unindexed,
        no: InodeNo,
        from: EventNo,
    ) -> Result<Option<InodeIndexCell>> {
        if no.0 >= INODE_LIMIT || from > LAST {
            return Ok(None);
        }
        let (first, last) = (InodeIndexCell::key(no, from), InodeIndexCell::key(no, LAST));
        let tree = self.past.tree(HistoryTree::InodeIndex);
        let found = tree.find(meta, &first, &last, |key, value| Some(InodeIndexCell::decode(key, value)))?;
        let found = found.transpose()?.into_iter().chain(rows.ending_from(no, from));
        Ok(found.min_by_key(|cell| cell.end))
    }

    /// The cell of the state of an inode that ended last, up to this number.
    pub(super) fn state_ending_by(
        self,
        meta: &Meta,
        rows: &Unindexed,
        no: InodeNo,
        most: EventNo,
    ) -> Result<Option<InodeIndexCell>> {
        if no.0 >= INODE_LIMIT {
            return Ok(None);
        }
        let key = InodeIndexCell::key(no, most.min(LAST));
        let found = self.past.tree(HistoryTree::InodeIndex).floor(meta, &key, |cell| {
            cell.map(|(key, value)| InodeIndexCell::decode(key, value)).transpose()
        })??;
        let found = found.filter(|cell| cell.inode == no).into_iter().chain(rows.ending_by(no, most));
        Ok(found.max_by_key(|cell| cell.end))
    }

    /// The cells of the index alone behind this one, at most `most`.
    pub(super) fn states_behind(
        self,
        meta: &Meta,
        (no, end): (InodeNo, EventNo),
        most: usize,
    ) -> Result<Vec<InodeIndexCell>> {
        let mut found = Vec::new();
        if no.0 >= INODE_LIMIT || most == 0 {
            return Ok(found);
        }
        let (after, last) = (InodeIndexCell::key(no, end.min(LAST)), [u8::MAX; 11]);
        let collect = |key: &[u8], value: &[u8]| -> Option<std::result::Result<(), Box<Corruption>>> {
            if *key == after[..] {
                return None;
            }
            match InodeIndexCell::decode(key, value) {
                Ok(cell) => found.push(cell),
                Err(c) => return Some(Err(c)),
            }
            (found.len() == most).then_some(Ok(()))
        };
        let tree = self.past.tree(HistoryTree::InodeIndex);
        tree.find(meta, &after, &last, collect)?.transpose()?;
        Ok(found)
    }
}

/// The index by name alone. The caller holds its lock.
impl Annals<'_> {
    /// The cell of a name.
    pub(super) fn name_at(self, meta: &Meta, ended: &Ended) -> Result<NameIndexCell> {
        let key = NameIndexCell::key(ended.inode, ended.cookie, ended.end);
        let found = self
            .past
            .tree(HistoryTree::NameIndex)
            .get(meta, &key, |value| value.map(|value| NameIndexCell::decode(&key, value)).transpose())?;
        let missing =
            || Corruption::new(BlockKind::NameIndex.name(), "key", format!("{key:02x?}"), "not there");
        Ok(found?.ok_or_else(missing)?)
    }
}

/// Names by directory: the rows without keys, and then the index. Each look-up takes the locks.
impl Annals<'_> {
    /// The cell of a cookie, or of the nearest cookie below it that has any in this directory, that ended
    /// last, up to this number.
    pub(super) fn name_ending_by(
        self,
        meta: &Meta,
        directory: InodeNo,
        cookie: u64,
        most: EventNo,
    ) -> Result<Option<NameIndexCell>> {
        if directory.0 >= INODE_LIMIT {
            return Ok(None);
        }
        self.learn_all(meta)?;
        let unindexed = self.past.backlog.ending_by(directory, cookie, most.min(LAST));
        let _index = self.past.name_index.read();
        let key = NameIndexCell::key(directory, cookie, most.min(LAST));
        let found = self.past.tree(HistoryTree::NameIndex).floor(meta, &key, |cell| {
            cell.map(|(key, value)| NameIndexCell::decode(key, value)).transpose()
        })??;
        let found = found.filter(|cell| cell.directory == directory).into_iter().chain(unindexed);
        Ok(found.max_by_key(|cell| (cell.cookie, cell.death)))
    }

    /// The cell of a cookie that ended first at this number or later.
    pub(super) fn name_ending_from(
        self,
        meta: &Meta,
        directory: InodeNo,
        cookie: u64,
        from: EventNo,
    ) -> Result<Option<NameIndexCell>> {
        if directory.0 >= INODE_LIMIT || from > LAST {
            return Ok(None);
        }
        self.learn_all(meta)?;
        let unindexed = self.past.backlog.ending_from(directory, cookie, from);
        let _index = self.past.name_index.read();
        let (first, last) =
            (NameIndexCell::key(directory, cookie, from), NameIndexCell::key(directory, cookie, LAST));
        let tree = self.past.tree(HistoryTree::NameIndex);
        let found = tree.find(meta, &first, &last, |key, value| Some(NameIndexCell::decode(key, value)))?;
        let found = found.transpose()?.into_iter().chain(unindexed);
        Ok(found.min_by_key(|cell| cell.death))
    }

    /// In the index alone: the first cell of a directory from this cookie and what ended after `after` on, up
    /// to the second cookie.
    pub(super) fn indexed_name_from(
        self,
        meta: &Meta,
        directory: InodeNo,
        (cookie, last): (u64, u64),
        after: EventNo,
    ) -> Result<Option<NameIndexCell>> {
        if directory.0 >= INODE_LIMIT || after >= LAST {
            return Ok(None);
        }
        let _index = self.past.name_index.read();
        let first = NameIndexCell::key(directory, cookie, EventNo(after.0 + 1));
        let last = NameIndexCell::key(directory, last, LAST);
        let tree = self.past.tree(HistoryTree::NameIndex);
        let found = tree.find(meta, &first, &last, |key, value| Some(NameIndexCell::decode(key, value)))?;
        Ok(found.transpose()?)
    }

    /// The cells of all lives of names in a directory, from the one with this cookie and this end on, at most
    /// `most`, by cookie and end.
    pub(super) fn names_from(
        self,
        meta: &Meta,
        directory: InodeNo,
        (cookie, death): (u64, EventNo),
        most: usize,
    ) -> Result<Vec<NameIndexCell>> {
        let mut found = Vec::new();
        if directory.0 >= INODE_LIMIT || death > LAST {
            return Ok(found);
        }
        self.learn_all(meta)?;
        let unindexed = self.past.backlog.names_from(directory, (cookie, death), most, |_| true);
        let _index = self.past.name_index.read();
        let from = NameIndexCell::key(directory, cookie, death);
        self.past.tree(HistoryTree::NameIndex).scan(meta, &from, &mut |key, value| {
            let cell = NameIndexCell::decode(key, value)?;
            if cell.directory != directory {
                return Ok(false);
            }
            found.push(cell);
            Ok(found.len() < most)
        })?;
        Ok(merged(found, unindexed, most))
    }

    /// The cells of names that meant something in a directory as of an event, from a cookie on, at most
    /// `most`, by cookie. O(log names) for each, however often a name has ended.
    pub(super) fn names_as_of(
        self,
        meta: &Meta,
        directory: InodeNo,
        cookie: u64,
        event: EventNo,
        most: usize,
    ) -> Result<Vec<NameIndexCell>> {
        let mut found = Vec::new();
        if directory.0 >= INODE_LIMIT || event >= LAST {
            return Ok(found);
        }
        self.learn_all(meta)?;
        let wanted = |cell: &NameIndexCell| cell.birth <= event && event < cell.death;
        let unindexed = self.past.backlog.names_from(directory, (cookie, EventNo(0)), most, wanted);
        let _index = self.past.name_index.read();
        let tree = self.past.tree(HistoryTree::NameIndex);
        let mut next = Some((cookie, EventNo(0)));
        let (mut at, mut passed) = (cookie, 0);
        while let Some((cookie, death)) = next.take() {
            let from = NameIndexCell::key(directory, cookie, death);
            tree.scan(meta, &from, &mut |key, value| {
                let cell = NameIndexCell::decode(key, value)?;
                if cell.directory != directory {
                    return Ok(false);
                }
                if cell.cookie != at {
                    (at, passed) = (cell.cookie, 0);
                }
                if wanted(&cell) {
                    found.push(cell);
                    return Ok(found.len() < most);
                }
                passed += 1;
                if passed <= STEPS {
                    return Ok(true);
                }
                next = match cell.death <= event {
                    true => Some((at, EventNo(event.0 + 1))),
                    false => at.checked_add(1).map(|above| (above, EventNo(0))),
                };
                Ok(false)
            })?;
        }
        Ok(merged(found, unindexed, most))
    }
}

/// Both in the order of cookies and deaths, each name once, at most `most`.
fn merged(mut indexed: Vec<NameIndexCell>, unindexed: Vec<NameIndexCell>, most: usize) -> Vec<NameIndexCell> {
    if !unindexed.is_empty() {
        indexed.extend(unindexed);
        indexed.sort_unstable_by_key(|cell| (cell.cookie, cell.death));
        indexed.dedup_by_key(|cell| (cell.cookie, cell.death));
        indexed.truncate(most);
    }
    indexed
}
