//! What memory knows of the backlog, the rows above the watermarks, which have no keys yet: look-ups find
//! them there.
//!
//! The rows of a shard are known from its first look-up or append on: they are read then, which after a clean
//! close are none. From then on appends note theirs. What a shard has is in two maps: by inode, under the
//! lock of the shard; and by directory, in parts of their own, since the rows of one directory's names lie in
//! all shards. A row that was appended is *fresh* at first: it stands in a list of its shard, and whoever
//! looks something up enters the list in the maps. Where nobody does, rows get their keys and were in no map.
//!
//! **Appends note before they let go of the shard**, and of the states of what they change: who then finds
//! that the present does not have what he looks for finds it here. **A row goes from the list or the maps
//! after its keys are there** (A7). Who removes a row or a fact of it does so with the shard locked, and from
//! the maps, too, in which all rows are then.

use super::trees::Annals;
use crate::history::record::backlog::{AnnalsWork, Unindexed};
use crate::history::record::past::Past;
use crate::history::record::shard::Shard;
use crate::Result;
use parking_lot::{Condvar, Mutex, RwLockReadGuard, RwLockWriteGuard};
use std::sync::Arc;
use yore_format::{AnnalsKey, AnnalsRow, HistoryRoots, HistoryTree, NameIndexCell, HISTORY_SHARDS};
use yore_meta::Meta;

impl Past {
    /// The right to index and to remove rows. The caller holds no lock of an inode.
    pub(crate) fn annals_work(&self) -> AnnalsWork<'_> {
        self.backlog.work()
    }

    /// The same, unless somebody has it.
    pub(crate) fn try_annals_work(&self) -> Option<AnnalsWork<'_>> {
        self.backlog.try_work()
    }

    /// What the thread waits for that indexes: it is woken when there are rows enough.
    pub(crate) fn set_indexer(&self, waker: &Arc<(Mutex<bool>, Condvar)>) {
        self.backlog.set_waker(waker);
    }

    /// How many rows are known to have no keys.
    pub(crate) fn backlog(&self) -> u64 {
        self.backlog.rows()
    }

    /// Learns which rows of a shard have no keys, if that is not known; fresh ones may be in no map. The
    /// caller holds the shard's lock.
    pub(super) fn learn<'s>(
        &self,
        meta: &Meta,
        shard: usize,
        locked: &'s mut Shard,
    ) -> Result<&'s mut Unindexed> {
        if locked.unindexed.is_none() {
            let watermark = HistoryRoots::watermark(&self.roots().read(), shard);
            let (mut found, mut names) = (Unindexed::default(), Vec::new());
            Annals { past: self }.rows_behind(meta, shard, watermark, &mut |key, row| {
                found.rows += 1;
                if let Some(inode) = &row.version {
                    found.states.insert((row.inode, row.end), (inode.born, key.sequence));
                }
                names.extend(name_of(shard, key, row));
                true
            })?;
            names.iter().for_each(|cell| self.backlog.add_name(cell));
            self.backlog.note_read(shard, found.rows);
            locked.unindexed = Some(found);
        }
        Ok(locked.unindexed.as_mut().expect("made above"))
    }

    /// The same, with all of them in the maps.
    pub(super) fn learn_and_enter<'s>(
        &self,
        meta: &Meta,
        shard: usize,
        locked: &'s mut Shard,
    ) -> Result<&'s mut Unindexed> {
        let unindexed = self.learn(meta, shard, locked)?;
        self.backlog.enter(shard, unindexed);
        Ok(unindexed)
    }
}

/// The cell that the index by name gets of a row.
pub(super) fn name_of(shard: usize, key: AnnalsKey, row: &AnnalsRow<'_>) -> Option<NameIndexCell> {
    let name = row.name.as_ref().filter(|_| !row.name_is_reclaimed)?;
    Some(NameIndexCell {
        directory: name.directory,
        cookie: name.cookie,
        death: row.end,
        birth: name.birth,
        sequence: key.sequence,
        shard,
    })
}

impl<'p> Annals<'p> {
    /// A shard, locked for reading, of which all rows without keys are in the maps.
    pub(super) fn read_shard(self, meta: &Meta, shard: usize) -> Result<RwLockReadGuard<'p, Shard>> {
        let read = self.past.shards[shard].read();
        if read.unindexed.as_ref().is_some_and(|unindexed| unindexed.fresh.is_empty()) {
            return Ok(read);
        }
        drop(read);
        let mut write = self.past.shards[shard].write();
        self.past.learn_and_enter(meta, shard, &mut write)?;
        Ok(RwLockWriteGuard::downgrade(write))
    }

    /// On return all rows without keys that were appended by now are in the maps. The caller holds no shard.
    pub(super) fn learn_all(self, meta: &Meta) -> Result<()> {
        for shard in (0..HISTORY_SHARDS).filter(|shard| !self.past.backlog.has_entered(*shard)) {
            drop(self.read_shard(meta, shard)?);
        }
        Ok(())
    }

    /// Calls `each` with the rows of a shard behind this one, until it returns false. The caller holds the
    /// shard's lock.
    pub(super) fn rows_behind(
        self,
        meta: &Meta,
        shard: usize,
        after: AnnalsKey,
        each: &mut dyn FnMut(AnnalsKey, &AnnalsRow<'_>) -> bool,
    ) -> Result<()> {
        let seed = &meta.found().hash_seed;
        self.past.tree(HistoryTree::Annals(shard)).scan(meta, &after.encode(), &mut |key, value| {
            let key = AnnalsKey::decode(key)?;
            Ok(key <= after || each(key, &AnnalsRow::decode(key.end, value, seed)?))
        })
    }
}
