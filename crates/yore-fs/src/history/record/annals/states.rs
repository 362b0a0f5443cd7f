//! Look-ups of states of inodes.

use super::trees::{astray, Annals};
use crate::{InodeNo, Result};
use yore_format::{version_shard, AnnalsKey, EventNo, HistoryTree, InodeIndexCell, Version};
use yore_meta::Meta;

impl Annals<'_> {
    /// The state of an inode with the greatest birth up to `most`.
    pub(crate) fn version(self, meta: &Meta, no: InodeNo, most: EventNo) -> Result<Option<Version>> {
        self.version_with(meta, no, || {
            // Of states that do not overlap, the one that was then, or the last that had ended by then.
            let next = EventNo(most.0.saturating_add(1));
            match self.state_ending_from(meta, no, next)?.filter(|cell| cell.born <= most) {
                Some(cell) => Ok(Some(cell)),
                None => self.state_ending_by(meta, no, most),
            }
        })
    }

    /// The first state of an inode number that was born at `from` or later.
    pub(crate) fn version_after(self, meta: &Meta, no: InodeNo, from: EventNo) -> Result<Option<Version>> {
        self.version_with(meta, no, || {
            let mut end = from;
            while let Some(next) = end.0.checked_add(1) {
                match self.state_ending_from(meta, no, EventNo(next))? {
                    Some(cell) if cell.born < from => end = cell.end,
                    found => return Ok(found),
                }
            }
            Ok(None)
        })
    }

    /// When the last state of an inode ended.
    pub(crate) fn last_end(self, meta: &Meta, no: InodeNo) -> Result<Option<EventNo>> {
        let _index = self.past.inode_index.read();
        Ok(self.state_ending_by(meta, no, EventNo(u64::MAX))?.map(|cell| cell.end))
    }

    /// Which states there are behind the one of this inode that ended then, by inode and end, at most `most`.
    pub(crate) fn ends_behind(
        self,
        meta: &Meta,
        after: (InodeNo, EventNo),
        most: usize,
    ) -> Result<Vec<(InodeNo, EventNo)>> {
        let _index = self.past.inode_index.read();
        let cells = self.states_behind(meta, after, most)?;
        Ok(cells.into_iter().map(|cell| (cell.inode, cell.end)).collect())
    }

    /// The state of an inode that ended at this number.
    pub(crate) fn version_ending(self, meta: &Meta, no: InodeNo, end: EventNo) -> Result<Option<Version>> {
        self.version_with(meta, no, || {
            Ok(self.state_ending_from(meta, no, end)?.filter(|cell| cell.end == end))
        })
    }

    /// The state to which `find` finds the cell.
    fn version_with(
        self,
        meta: &Meta,
        no: InodeNo,
        find: impl FnOnce() -> Result<Option<InodeIndexCell>>,
    ) -> Result<Option<Version>> {
        let shard = version_shard(no);
        let _shard = self.past.shards[shard].read();
        let _index = self.past.inode_index.read();
        let Some(InodeIndexCell { end, sequence, born, .. }) = find()? else { return Ok(None) };
        let key = AnnalsKey { end, sequence };
        let inode = self.row(meta, shard, key, |row| match row.version {
            Some(inode) if row.inode == no && inode.born == born => Some(inode.into_owned()),
            _ => None,
        })?;
        match inode.flatten() {
            Some(inode) => Ok(Some(Version { end, inode })),
            None => Err(astray(HistoryTree::InodeIndex, shard, key)),
        }
    }
}
