//! Removing facts of many rows of one shard in one Op.
//!
//! Whoever forgets reads rows in their order, so those that go lie in few leaves, and so do the keys of files
//! that were made together. One Op with all of them changes each leaf, bitmap and root once instead of once
//! for each fact.
//!
//! Each row is read again under the locks, so what was decided about it holds (A6): nobody else takes facts
//! out of rows meanwhile, and a name that expunging lets begin later has another birth.

use super::trees::{astray, Annals};
use crate::history::record::ended::LeavingRow;
use crate::history::record::past::Past;
use crate::history::record::shard::Shard;
use crate::history::record::slot::check_there;
use crate::{InodeNo, Result};
use parking_lot::RwLockWriteGuard;
use yore_core::btree::{Pins, Tree};
use yore_format::{AnnalsRow, EventNo, HistoryRoots, HistoryTree, InodeIndexCell, NameIndexCell};
use yore_meta::{Change, Meta, Op};

/// Rows of a shard of which something is ready to be removed.
pub(crate) struct RowsRemoval<'p> {
    past: &'p Past,
    shard: usize,
    tree: Tree,
    /// What is left of each row, in ascending order; `None`: nothing.
    rows: Vec<([u8; 10], Option<Vec<u8>>)>,
    /// The indexes with the keys that go.
    inodes: (Tree, Vec<[u8; 11]>),
    names: (Tree, Vec<[u8; 19]>),
    /// What goes from what memory knows of rows without keys.
    unindexed: WithoutKeys,
    // No row is to be seen without its key: the indexes are the last that others see.
    locked: RwLockWriteGuard<'p, Shard>,
    _indexes: (RwLockWriteGuard<'p, ()>, RwLockWriteGuard<'p, ()>),
    _pins: Pins,
}

/// What rows without keys lose: whole rows, states, and names.
#[derive(Default)]
struct WithoutKeys {
    rows: u64,
    states: Vec<(InodeNo, EventNo)>,
    names: Vec<(InodeNo, u64, EventNo)>,
}

impl<'p> Annals<'p> {
    /// Prepares removing facts of rows, all of one shard and in ascending order.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn removal_of_rows(
        self,
        meta: &Meta,
        shard: usize,
        leaving: &[&LeavingRow],
    ) -> Result<RowsRemoval<'p>> {
        let past = self.past;
        let mut locked = past.shards[shard].write();
        past.learn_and_enter(meta, shard, &mut locked)?;
        // It does not move: the caller holds *annals work*.
        let watermark = HistoryRoots::watermark(&past.roots().read(), shard);
        let indexes = (past.inode_index.write(), past.name_index.write());
        let mut unindexed = WithoutKeys::default();
        let (mut rows, mut inodes, mut names) = (Vec::with_capacity(leaving.len()), Vec::new(), Vec::new());
        for leaving in leaving {
            let key = leaving.row.key;
            let left = self.row(meta, shard, key, |row| left_of(leaving, &row))?.flatten();
            let left = left.ok_or_else(|| astray(HistoryTree::Annals(shard), shard, key))?;
            let is_indexed = key <= watermark;
            unindexed.rows += u64::from(!is_indexed && left.is_none());
            rows.push((key.encode(), left));
            if let Some((no, _)) = leaving.row.version.as_ref().filter(|_| leaving.version_goes) {
                match is_indexed {
                    true => inodes.push(InodeIndexCell::key(*no, key.end)),
                    false => unindexed.states.push((*no, key.end)),
                }
            }
            if let Some(name) = leaving.row.name.as_ref().filter(|_| leaving.name_goes) {
                match is_indexed {
                    true => names.push(NameIndexCell::key(name.directory, name.cookie, key.end)),
                    false => unindexed.names.push((name.directory, name.cookie, key.end)),
                }
            }
        }
        locked.clear_hints();
        let mut pins = Pins::new();
        let tree = past.tree(HistoryTree::Annals(shard));
        let keys: Vec<_> = rows.iter().map(|(key, _)| key).collect();
        tree.prepare_removals(meta, &keys, &mut pins)?;
        let inodes = prepare_keys(meta, past.tree(HistoryTree::InodeIndex), inodes, &mut pins)?;
        let names = prepare_keys(meta, past.tree(HistoryTree::NameIndex), names, &mut pins)?;
        Ok(RowsRemoval {
            past,
            shard,
            tree,
            rows,
            inodes,
            names,
            unindexed,
            locked,
            _indexes: indexes,
            _pins: pins,
        })
    }
}

/// Sorts keys of an index that go, and keeps in memory what that changes.
fn prepare_keys<K: AsRef<[u8]> + Ord>(
    meta: &Meta,
    tree: Tree,
    mut keys: Vec<K>,
    pins: &mut Pins,
) -> Result<(Tree, Vec<K>)> {
    keys.sort_unstable();
    for key in &keys {
        check_there(meta, &tree, key.as_ref())?;
    }
    tree.prepare_removals(meta, &keys, pins)?;
    Ok((tree, keys))
}

/// What is left of a row: nothing, or a shorter value. `None`: it is another row.
fn left_of(leaving: &LeavingRow, row: &AnnalsRow<'_>) -> Option<Option<Vec<u8>>> {
    let LeavingRow { row: was, version_goes, name_goes } = leaving;
    let version = row.version.as_ref().map(|inode| (row.inode, inode.born));
    let name = row.name.as_ref().filter(|_| !row.name_is_reclaimed);
    let named = name.map(|name| (name.directory, name.cookie, name.birth));
    let is_it = version == was.version.as_ref().map(|(no, version)| (*no, version.inode.born))
        && named == was.name.as_ref().map(|name| (name.directory, name.cookie, name.birth));
    let stays = (version.is_some() && !version_goes, name.is_some() && !name_goes);
    #[cfg(feature = "mutations")]
    let stays = match crate::mutation::is(crate::mutation::Mutation::BothForgotten) {
        true => (false, false),
        false => stays,
    };
    is_it.then(|| match stays {
        (false, false) => None,
        (false, true) => Some(row.clone().without_version().encode().to_vec()),
        (true, _) => {
            let name_is_reclaimed = row.name_is_reclaimed || *name_goes;
            Some(AnnalsRow { name_is_reclaimed, ..row.clone() }.encode().to_vec())
        }
    })
}

impl RowsRemoval<'_> {
    /// Changes the rows and their keys, inside an Op that needs no blocks. Returns the change of each row,
    /// after which what it held may be freed.
    pub(crate) fn apply(mut self, op: &mut Op<'_>) -> Vec<Change> {
        op.be_whole();
        let which = HistoryTree::Annals(self.shard);
        let mut changes = Vec::with_capacity(self.rows.len());
        for (key, left) in &self.rows {
            let delta = match left {
                Some(value) => self.tree.replace(op, key, value),
                None => self.tree.remove(op, key),
            };
            changes.push(self.past.store_cell(op, which, &self.tree, delta));
        }
        remove_keys(self.past, op, HistoryTree::InodeIndex, &mut self.inodes);
        remove_keys(self.past, op, HistoryTree::NameIndex, &mut self.names);
        let backlog = &self.past.backlog;
        let unindexed = self.locked.unindexed.as_mut().expect("learnt when it was prepared");
        for state in &self.unindexed.states {
            unindexed.states.remove(state);
        }
        for (directory, cookie, death) in &self.unindexed.names {
            backlog.remove_name(*directory, *cookie, *death);
        }
        backlog.count(unindexed, 0, self.unindexed.rows);
        changes
    }
}

fn remove_keys<K: AsRef<[u8]>>(
    past: &Past,
    op: &mut Op<'_>,
    which: HistoryTree,
    (tree, keys): &mut (Tree, Vec<K>),
) {
    #[cfg(feature = "mutations")]
    if crate::mutation::is(crate::mutation::Mutation::KeyLeft) {
        return;
    }
    for key in keys {
        let delta = tree.remove(op, key.as_ref());
        past.store(op, which, tree, delta);
    }
}
