//! Look-ups in the trees of changes.

use super::trees::First;
use crate::history::record::ended::Ended;
use crate::{InodeNo, Result};
use yore_format::{
    key_parts, name_end_key, name_shard, version_end_key, version_shard, EventNo, HistoryTree, HISTORY_SHARDS,
};
use yore_meta::Meta;

impl Ended {
    /// The shard that has the end.
    pub(super) fn shard(&self) -> usize {
        match self.cookie {
            0 => version_shard(self.inode),
            _ => name_shard(self.inode),
        }
    }

    /// The key of the end.
    pub(super) fn key(&self) -> [u8; 24] {
        match self.cookie {
            0 => version_end_key(self.end, self.inode),
            cookie => name_end_key(self.end, self.inode, cookie),
        }
    }
}

impl First<'_> {
    /// Ends of versions and names of a shard after `after`, up to a number, in order, at most `most`.
    pub(crate) fn ended(
        self,
        meta: &Meta,
        shard: usize,
        after: &Ended,
        last: EventNo,
        most: usize,
    ) -> Result<Vec<Ended>> {
        let _shard = self.past.shards[shard].read();
        let (after, mut found) = (after.key(), Vec::new());
        self.past.tree(HistoryTree::Changes(shard)).scan(meta, &after, &mut |key, _| {
            let [end, inode, cookie] = key_parts::<3>(key)?;
            if end > last.0 {
                return Ok(false);
            }
            if *key > after[..] {
                found.push(Ended { end: EventNo(end), inode: InodeNo(inode), cookie });
            }
            Ok(found.len() < most)
        })?;
        Ok(found)
    }

    /// Whether any version or name ended after this event.
    pub(crate) fn is_changed_since(self, meta: &Meta, event: EventNo) -> Result<bool> {
        for shard in 0..HISTORY_SHARDS {
            let _shard = self.past.shards[shard].read();
            let tree = self.past.tree(HistoryTree::Changes(shard));
            let last = tree
                .floor(meta, &[u8::MAX; 24], |cell| cell.map(|(key, _)| key_parts::<3>(key)).transpose())?;
            if last?.is_some_and(|[end, _, _]| end > event.0) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
