//! Removing a version or a past name, together with the key of its end.

use super::trees::First;
use crate::history::record::ended::Ended;
use crate::history::record::entry::PastEntry;
use crate::history::record::past::{Past, CELL_BLOCKS};
use crate::history::record::shard::Shard;
use crate::history::record::slot::check_there;
use crate::{InodeNo, Result};
use parking_lot::RwLockWriteGuard;
use yore_core::btree::{Pins, Tree};
use yore_core::Core;
use yore_format::{
    name_end_key, name_key, name_shard, version_key, version_shard, DirEntry, EventNo, HistoryTree, PastName,
    Version,
};
use yore_meta::{Change, EdgeKind, Meta, Op};

/// A version or a name that is ready to be removed.
pub(in crate::history::record) struct FirstRemoval<'p> {
    past: &'p Past,
    shard: usize,
    which: HistoryTree,
    tree: Tree,
    key: Vec<u8>,
    ends: Tree,
    end: [u8; 24],
    _guard: RwLockWriteGuard<'p, Shard>,
    _pins: Pins,
}

impl<'p> First<'p> {
    /// Prepares removing a name.
    pub(crate) fn removal_of_name(
        self,
        meta: &Meta,
        ended: &Ended,
        birth: EventNo,
    ) -> Result<FirstRemoval<'p>> {
        let key = name_key(ended.inode, ended.cookie, birth);
        self.removal(meta, HistoryTree::Names(ended.shard()), &key, ended)
    }

    /// Prepares removing a version.
    pub(crate) fn removal_of_version(
        self,
        meta: &Meta,
        no: InodeNo,
        version: &Version,
    ) -> Result<FirstRemoval<'p>> {
        let ended = Ended { end: version.end, inode: no, cookie: 0 };
        let key = version_key(no, version.inode.born);
        self.removal(meta, HistoryTree::Versions(version_shard(no)), &key, &ended)
    }

    fn removal(self, meta: &Meta, which: HistoryTree, key: &[u8], ended: &Ended) -> Result<FirstRemoval<'p>> {
        let (past, shard) = (self.past, ended.shard());
        let guard = past.shards[shard].write();
        let (tree, ends, end) = (past.tree(which), past.tree(HistoryTree::Changes(shard)), ended.key());
        let mut pins = Pins::new();
        check_there(meta, &tree, key)?;
        check_there(meta, &ends, &end)?;
        tree.prepare(meta, key, key, &mut pins)?;
        ends.prepare(meta, &end, &end, &mut pins)?;
        let key = key.to_vec();
        Ok(FirstRemoval { past, shard, which, tree, key, ends, end, _guard: guard, _pins: pins })
    }

    /// Lets a name begin at a number before its end.
    pub(crate) fn begin_name_later(self, store: &Core, name: &PastEntry, number: EventNo) -> Result<()> {
        let PastEntry { directory, cookie, birth, death, inode, incarnation, kind, .. } = *name;
        let (past, meta) = (self.past, &store.meta);
        let reserved = store.reserve_freely(store.near(directory), CELL_BLOCKS)?;
        let shard = name_shard(directory);
        let _shard = past.shards[shard].write();
        let which = HistoryTree::Names(shard);
        let (old, new) = (name_key(directory, cookie, birth), name_key(directory, cookie, number));
        check_there(meta, &past.tree(which), &old)?;
        check_there(meta, &past.tree(HistoryTree::Changes(shard)), &name_end_key(death, directory, cookie))?;
        let mut pins = Pins::new();
        let slot = past.slot(meta, which, &new, CELL_BLOCKS)?;
        slot.tree.prepare(meta, &old, &old, &mut pins)?;
        slot.tree.prepare(meta, &new, &new, &mut pins)?;
        let entry = DirEntry { inode, incarnation, birth: number, kind, name: &name.name };
        let mut op = meta.begin(reserved);
        op.be_whole();
        let entered = slot.insert(past, &mut op, &new, &PastName { death, entry }.encode(), death);
        let mut tree = past.tree(which);
        let gone = tree.remove(&mut op, &old);
        op.edge(EdgeKind::Replaced, entered, gone.change());
        past.store(&mut op, which, &tree, gone);
        Ok(())
    }
}

impl FirstRemoval<'_> {
    /// Removes it, inside an Op. What it held may be freed after the change that is returned.
    pub(crate) fn apply(mut self, op: &mut Op<'_>) -> Change {
        op.be_whole();
        let gone = self.tree.remove(op, &self.key);
        let gone = self.past.store_cell(op, self.which, &self.tree, gone);
        let delta = self.ends.remove(op, &self.end);
        self.past.store(op, HistoryTree::Changes(self.shard), &self.ends, delta);
        gone
    }
}
