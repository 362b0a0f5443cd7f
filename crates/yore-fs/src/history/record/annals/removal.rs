//! Removing one of the facts of a row, and letting a name begin later.

use super::trees::{astray, Annals};
use crate::history::record::ended::Ended;
use crate::history::record::entry::PastEntry;
use crate::history::record::past::Past;
use crate::history::record::shard::Shard;
use crate::history::record::slot::check_there;
use crate::{InodeNo, Result};
use parking_lot::RwLockWriteGuard;
use yore_core::btree::{LeafHints, Pins, Tree};
use yore_core::Core;
use yore_format::{
    version_shard, AnnalsKey, AnnalsRow, Corruption, EventNo, HistoryTree, InodeIndexCell, NameIndexCell,
    RowName, Version, EVENT_LIMIT, INODE_LIMIT,
};
use yore_meta::{Change, Meta, Op};

/// A fact of a row that is ready to be removed, or to be changed.
pub(in crate::history::record) struct AnnalsRemoval<'p> {
    past: &'p Past,
    shard: usize,
    /// What is left of the row; `None`: nothing.
    row: (AnnalsKey, Option<Vec<u8>>),
    tree: Tree,
    /// The index that has the key of the fact, that key, and the value that it gets; `None`: it goes.
    index: HistoryTree,
    key: (Vec<u8>, Option<Vec<u8>>),
    keys: Tree,
    // The row is to be seen without its key by nobody: the index is the last that others see.
    _shard: RwLockWriteGuard<'p, Shard>,
    _index: RwLockWriteGuard<'p, LeafHints>,
    _pins: Pins,
}

/// What becomes of a row.
enum Left {
    Value(Vec<u8>),
    Nothing,
    /// It is another row.
    Other,
}

impl<'p> Annals<'p> {
    /// Prepares removing a version.
    pub(crate) fn removal_of_version(
        self,
        meta: &Meta,
        no: InodeNo,
        version: &Version,
    ) -> Result<AnnalsRemoval<'p>> {
        let (shard, end, index) = (version_shard(no), version.end, HistoryTree::InodeIndex);
        check_key(no, end)?;
        let locked = self.past.shards[shard].write();
        let keys = self.past.inode_index.write();
        let key = InodeIndexCell::key(no, end);
        check_there(meta, &self.past.tree(index), &key)?;
        let cell = self.state_ending_from(meta, no, end)?;
        let sequence = cell.map_or(0, |cell| cell.sequence);
        let row = AnnalsKey { end, sequence };
        let left = |row: AnnalsRow<'_>| match &row.version {
            Some(inode) if row.inode == no && inode.born == version.inode.born => {
                match row.name.is_some() && !row.name_is_reclaimed {
                    true => Left::Value(row.without_version().encode().to_vec()),
                    false => Left::Nothing,
                }
            }
            _ => Left::Other,
        };
        self.change(meta, (shard, row), left, (index, key.to_vec(), None), (locked, keys))
    }

    /// Prepares removing a name.
    pub(crate) fn removal_of_name(
        self,
        meta: &Meta,
        ended: &Ended,
        birth: EventNo,
    ) -> Result<AnnalsRemoval<'p>> {
        let (cell, locked, keys) = self.lock_name(meta, ended)?;
        let left = |row: AnnalsRow<'_>| match &row.name {
            Some(name) if is_name_of(name, &cell) && birth == cell.birth && !row.name_is_reclaimed => {
                match row.version.is_some() {
                    true => Left::Value(AnnalsRow { name_is_reclaimed: true, ..row }.encode().to_vec()),
                    false => Left::Nothing,
                }
            }
            _ => Left::Other,
        };
        let key = NameIndexCell::key(cell.directory, cell.cookie, cell.death).to_vec();
        let row = AnnalsKey { end: cell.death, sequence: cell.sequence };
        self.change(meta, (cell.shard, row), left, (HistoryTree::NameIndex, key, None), (locked, keys))
    }

    /// Lets a name begin at a number before its end.
    pub(crate) fn begin_name_later(self, store: &Core, name: &PastEntry, number: EventNo) -> Result<()> {
        let meta = &store.meta;
        let reserved = store.reserve_freely(store.near(name.directory), 0)?;
        let ended = Ended { end: name.death, inode: name.directory, cookie: name.cookie };
        let (cell, locked, keys) = self.lock_name(meta, &ended)?;
        let left = |mut row: AnnalsRow<'_>| match &mut row.name {
            Some(in_row) if is_name_of(in_row, &cell) && name.birth == cell.birth => {
                in_row.birth = number;
                Left::Value(row.encode().to_vec())
            }
            _ => Left::Other,
        };
        let key = NameIndexCell::key(cell.directory, cell.cookie, cell.death).to_vec();
        let value = NameIndexCell { birth: number, ..cell }.value().to_vec();
        let row = AnnalsKey { end: cell.death, sequence: cell.sequence };
        let key = (HistoryTree::NameIndex, key, Some(value));
        let change = self.change(meta, (cell.shard, row), left, key, (locked, keys))?;
        change.apply(&mut meta.begin(reserved));
        Ok(())
    }

    /// The cell of a name, with the locks of the shard and the index.
    #[allow(clippy::type_complexity)]
    fn lock_name(
        self,
        meta: &Meta,
        ended: &Ended,
    ) -> Result<(NameIndexCell, RwLockWriteGuard<'p, Shard>, RwLockWriteGuard<'p, LeafHints>)> {
        check_key(ended.inode, ended.end)?;
        let shard = {
            let _index = self.past.name_index.read();
            self.name_at(meta, ended)?.shard
        };
        // Nobody else removes or changes rows.
        let locked = self.past.shards[shard].write();
        let keys = self.past.name_index.write();
        let cell = self.name_at(meta, ended)?;
        match cell.shard == shard {
            true => Ok((cell, locked, keys)),
            false => Err(astray(HistoryTree::NameIndex, shard, AnnalsKey { end: ended.end, sequence: 0 })),
        }
    }

    /// Prepares the change of a row and of a key.
    fn change(
        self,
        meta: &Meta,
        (shard, row): (usize, AnnalsKey),
        left: impl FnOnce(AnnalsRow<'_>) -> Left,
        (index, key, value): (HistoryTree, Vec<u8>, Option<Vec<u8>>),
        (mut locked, mut hints): (RwLockWriteGuard<'p, Shard>, RwLockWriteGuard<'p, LeafHints>),
    ) -> Result<AnnalsRemoval<'p>> {
        let past = self.past;
        let left = match self.row(meta, shard, row, left)? {
            Some(Left::Value(value)) => Some(value),
            Some(Left::Nothing) => None,
            Some(Left::Other) | None => return Err(astray(index, shard, row)),
        };
        locked.clear_hints();
        hints.clear();
        let (tree, keys, mut pins) = (past.tree(HistoryTree::Annals(shard)), past.tree(index), Pins::new());
        let row_key = row.encode();
        tree.prepare(meta, &row_key, &row_key, &mut pins)?;
        keys.prepare(meta, &key, &key, &mut pins)?;
        Ok(AnnalsRemoval {
            past,
            shard,
            row: (row, left),
            tree,
            index,
            key: (key, value),
            keys,
            _shard: locked,
            _index: hints,
            _pins: pins,
        })
    }
}

/// Fails if no key can be of this inode and end: they are those of a damaged cell of the first edition.
fn check_key(no: InodeNo, end: EventNo) -> Result<()> {
    match no.0 < INODE_LIMIT && end.0 < EVENT_LIMIT {
        true => Ok(()),
        false => {
            let expected = format!("an inode below {INODE_LIMIT} and an end below {EVENT_LIMIT}");
            let found = format!("{no}, {end}");
            Err(Corruption::new("key of the history", "inode and end", expected, found).into())
        }
    }
}

fn is_name_of(name: &RowName<'_>, cell: &NameIndexCell) -> bool {
    (name.directory, name.cookie, name.birth) == (cell.directory, cell.cookie, cell.birth)
}

impl AnnalsRemoval<'_> {
    /// Changes the row and its key, inside an Op that needs no blocks. What the fact held may be freed after
    /// the change that is returned.
    pub(crate) fn apply(mut self, op: &mut Op<'_>) -> Change {
        let (row, left) = self.row;
        let of_row = match &left {
            Some(value) => self.tree.replace(op, &row.encode(), value),
            None => self.tree.remove(op, &row.encode()),
        };
        self.past.store(op, HistoryTree::Annals(self.shard), &self.tree, &of_row);
        let of_key = match &self.key {
            (key, Some(value)) => self.keys.replace(op, key, value),
            (key, None) => self.keys.remove(op, key),
        };
        self.past.store(op, self.index, &self.keys, &of_key);
        of_row.change
    }
}
