//! Removing one of the facts of a row, and letting a name begin later. The key of the fact follows in the
//! same Op, if the row is at or below the watermark; otherwise there is none (A5), and what memory knows of
//! rows without keys follows.

use super::trees::{astray, Annals};
use crate::history::record::ended::Ended;
use crate::history::record::entry::PastEntry;
use crate::history::record::past::Past;
use crate::history::record::shard::Shard;
use crate::history::record::slot::check_there;
use crate::{InodeNo, Result};
use parking_lot::RwLockWriteGuard;
use yore_core::btree::{Pins, Tree};
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
    keys: Keys<'p>,
    // The row is to be seen without its key by nobody: the index is the last that others see.
    locked: RwLockWriteGuard<'p, Shard>,
    _pins: Pins,
}

/// What leads to a fact.
enum Key<'p> {
    /// A key in this index, which gets this value; `None`: it goes.
    Indexed { which: HistoryTree, key: Vec<u8>, value: Option<Vec<u8>>, index: RwLockWriteGuard<'p, ()> },
    /// The row has no key. This is what memory knows of it.
    Unindexed(Fact),
}

/// A fact of a row without keys.
enum Fact {
    State(InodeNo, EventNo),
    Name(InodeNo, u64, EventNo),
    /// A name that begins later.
    Later(NameIndexCell),
}

/// The same, ready to be changed.
enum Keys<'p> {
    Indexed {
        which: HistoryTree,
        key: Vec<u8>,
        value: Option<Vec<u8>>,
        tree: Tree,
        _index: RwLockWriteGuard<'p, ()>,
    },
    Unindexed(Fact),
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
        let (shard, end) = (version_shard(no), version.end);
        check_key(no, end)?;
        let mut locked = self.past.shards[shard].write();
        let known = self.past.learn_and_enter(meta, shard, &mut locked)?.states.get(&(no, end)).copied();
        let (sequence, lead) = match known {
            Some((_, sequence)) => (sequence, Key::Unindexed(Fact::State(no, end))),
            None => {
                let index = self.past.inode_index.write();
                let (which, key) = (HistoryTree::InodeIndex, InodeIndexCell::key(no, end));
                check_there(meta, &self.past.tree(which), &key)?;
                let cell = self.state_ending_from(meta, locked.unindexed(), no, end)?;
                let sequence = cell.map_or(0, |cell| cell.sequence);
                (sequence, Key::Indexed { which, key: key.to_vec(), value: None, index })
            }
        };
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
        self.change(meta, (shard, row), left, lead, locked)
    }

    /// Prepares removing a name.
    pub(crate) fn removal_of_name(
        self,
        meta: &Meta,
        ended: &Ended,
        birth: EventNo,
    ) -> Result<AnnalsRemoval<'p>> {
        let (cell, locked, index) = self.lock_name(meta, ended)?;
        let left = |row: AnnalsRow<'_>| match &row.name {
            Some(name) if is_name_of(name, &cell) && birth == cell.birth && !row.name_is_reclaimed => {
                match row.version.is_some() {
                    true => Left::Value(AnnalsRow { name_is_reclaimed: true, ..row }.encode().to_vec()),
                    false => Left::Nothing,
                }
            }
            _ => Left::Other,
        };
        let row = AnnalsKey { end: cell.death, sequence: cell.sequence };
        let lead = match index {
            Some(index) => key_of_name(&cell, None, index),
            None => Key::Unindexed(Fact::Name(cell.directory, cell.cookie, cell.death)),
        };
        self.change(meta, (cell.shard, row), left, lead, locked)
    }

    /// Lets a name begin at a number before its end.
    pub(crate) fn begin_name_later(self, store: &Core, name: &PastEntry, number: EventNo) -> Result<()> {
        let meta = &store.meta;
        let reserved = store.reserve_freely(store.near(name.directory), 0)?;
        let ended = Ended { end: name.death, inode: name.directory, cookie: name.cookie };
        let (cell, locked, index) = self.lock_name(meta, &ended)?;
        let left = |mut row: AnnalsRow<'_>| match &mut row.name {
            Some(in_row) if is_name_of(in_row, &cell) && name.birth == cell.birth => {
                in_row.birth = number;
                Left::Value(row.encode().to_vec())
            }
            _ => Left::Other,
        };
        let row = AnnalsKey { end: cell.death, sequence: cell.sequence };
        let later = NameIndexCell { birth: number, ..cell };
        let lead = match index {
            Some(index) => key_of_name(&cell, Some(later.value().to_vec()), index),
            None => Key::Unindexed(Fact::Later(later)),
        };
        let change = self.change(meta, (cell.shard, row), left, lead, locked)?;
        change.apply(&mut meta.begin(reserved));
        Ok(())
    }

    /// The cell of a name, with the lock of the shard, and that of the index if the key is there.
    #[allow(clippy::type_complexity)]
    fn lock_name(
        self,
        meta: &Meta,
        ended: &Ended,
    ) -> Result<(NameIndexCell, RwLockWriteGuard<'p, Shard>, Option<RwLockWriteGuard<'p, ()>>)> {
        check_key(ended.inode, ended.end)?;
        self.learn_all(meta)?;
        // Nobody else removes, changes or indexes rows.
        let known = self.past.backlog.ending_from(ended.inode, ended.cookie, ended.end);
        if let Some(cell) = known.filter(|cell| cell.death == ended.end) {
            return Ok((cell, self.past.shards[cell.shard].write(), None));
        }
        let shard = {
            let _index = self.past.name_index.read();
            self.name_at(meta, ended)?.shard
        };
        let locked = self.past.shards[shard].write();
        let index = self.past.name_index.write();
        let cell = self.name_at(meta, ended)?;
        match cell.shard == shard {
            true => Ok((cell, locked, Some(index))),
            false => Err(astray(HistoryTree::NameIndex, shard, AnnalsKey { end: ended.end, sequence: 0 })),
        }
    }

    /// Prepares the change of a row and of a key.
    fn change(
        self,
        meta: &Meta,
        (shard, row): (usize, AnnalsKey),
        left: impl FnOnce(AnnalsRow<'_>) -> Left,
        lead: Key<'p>,
        mut locked: RwLockWriteGuard<'p, Shard>,
    ) -> Result<AnnalsRemoval<'p>> {
        let past = self.past;
        let which = match &lead {
            Key::Indexed { which, .. } => *which,
            Key::Unindexed(_) => HistoryTree::Annals(shard),
        };
        let left = self.row(meta, shard, row, left)?;
        #[cfg(feature = "mutations")]
        let left = match left {
            Some(Left::Value(_)) if crate::mutation::is(crate::mutation::Mutation::BothForgotten) => {
                Some(Left::Nothing)
            }
            left => left,
        };
        let left = match left {
            Some(Left::Value(value)) => Some(value),
            Some(Left::Nothing) => None,
            Some(Left::Other) | None => return Err(astray(which, shard, row)),
        };
        locked.clear_hints();
        let (tree, mut pins) = (past.tree(HistoryTree::Annals(shard)), Pins::new());
        let row_key = row.encode();
        tree.prepare(meta, &row_key, &row_key, &mut pins)?;
        let keys = match lead {
            Key::Unindexed(fact) => Keys::Unindexed(fact),
            Key::Indexed { which, key, value, index } => {
                let tree = past.tree(which);
                tree.prepare(meta, &key, &key, &mut pins)?;
                Keys::Indexed { which, key, value, tree, _index: index }
            }
        };
        Ok(AnnalsRemoval { past, shard, row: (row, left), tree, keys, locked, _pins: pins })
    }
}

/// The key of a name in the index.
fn key_of_name<'p>(cell: &NameIndexCell, value: Option<Vec<u8>>, index: RwLockWriteGuard<'p, ()>) -> Key<'p> {
    let key = NameIndexCell::key(cell.directory, cell.cookie, cell.death).to_vec();
    Key::Indexed { which: HistoryTree::NameIndex, key, value, index }
}

/// Fails if no key can be of this inode and end: they are those of a damaged cell of an old tree.
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
        op.be_whole();
        let (row, left) = self.row;
        let of_row = match &left {
            Some(value) => self.tree.replace(op, &row.encode(), value),
            None => self.tree.remove(op, &row.encode()),
        };
        let of_row = self.past.store_cell(op, HistoryTree::Annals(self.shard), &self.tree, of_row);
        match self.keys {
            #[cfg(feature = "mutations")]
            Keys::Indexed { .. } if crate::mutation::is(crate::mutation::Mutation::KeyLeft) => {}
            Keys::Indexed { which, key, value, mut tree, _index } => {
                let of_key = match value {
                    Some(value) => tree.replace(op, &key, &value),
                    None => tree.remove(op, &key),
                };
                self.past.store(op, which, &tree, of_key);
            }
            Keys::Unindexed(fact) => {
                let backlog = &self.past.backlog;
                let unindexed = self.locked.unindexed.as_mut().expect("learnt when it was prepared");
                match fact {
                    Fact::State(no, end) => drop(unindexed.states.remove(&(no, end))),
                    Fact::Name(directory, cookie, death) => backlog.remove_name(directory, cookie, death),
                    Fact::Later(cell) => backlog.add_name(&cell),
                }
                if left.is_none() {
                    backlog.count(unindexed, 0, 1);
                }
            }
        }
        of_row
    }
}
