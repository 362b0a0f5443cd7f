//! Look-ups of states of inodes.

use super::trees::{astray, Annals};
use crate::history::record::backlog::Unindexed;
use crate::{InodeNo, Result};
use yore_format::{
    version_shard, AnnalsKey, EventNo, HistoryTree, InodeIndexCell, Version, HISTORY_SHARDS, INODE_LIMIT,
};
use yore_meta::Meta;

impl Annals<'_> {
    /// The state of an inode with the greatest birth up to `most`.
    pub(crate) fn version(self, meta: &Meta, no: InodeNo, most: EventNo) -> Result<Option<Version>> {
        if !self.past.backlog.has_entered(version_shard(no)) {
            // The index alone may have the answer. Then nobody reads the rows that have no keys.
            if let Some(found) = self.indexed_version(meta, no, most)? {
                return Ok(Some(found));
            }
        }
        self.version_with(meta, no, |rows| {
            // Of states that do not overlap, the one that was then, or the last that had ended by then.
            let next = EventNo(most.0.saturating_add(1));
            match self.state_ending_from(meta, rows, no, next)?.filter(|cell| cell.born <= most) {
                Some(cell) => Ok(Some(cell)),
                None => self.state_ending_by(meta, rows, no, most),
            }
        })
    }

    /// The state of an inode as of a number, if the index leads to it (A7b).
    pub(crate) fn indexed_version(self, meta: &Meta, no: InodeNo, as_of: EventNo) -> Result<Option<Version>> {
        let Some(next) = as_of.0.checked_add(1).map(EventNo) else { return Ok(None) };
        let _shard = self.past.shards[version_shard(no)].read();
        let _index = self.past.inode_index.read();
        let found = self.state_ending_from(meta, &Unindexed::default(), no, next)?;
        found.filter(|cell| cell.born <= as_of).map(|cell| self.version_of(meta, cell)).transpose()
    }

    /// The state of an inode that ended last, up to this number.
    pub(crate) fn version_ended_by(self, meta: &Meta, no: InodeNo, most: EventNo) -> Result<Option<Version>> {
        self.version_with(meta, no, |rows| self.state_ending_by(meta, rows, no, most))
    }

    /// The first state of an inode number that was born at `from` or later.
    pub(crate) fn version_after(self, meta: &Meta, no: InodeNo, from: EventNo) -> Result<Option<Version>> {
        self.version_with(meta, no, |rows| {
            let mut end = from;
            while let Some(next) = end.0.checked_add(1) {
                match self.state_ending_from(meta, rows, no, EventNo(next))? {
                    Some(cell) if cell.born < from => end = cell.end,
                    found => return Ok(found),
                }
            }
            Ok(None)
        })
    }

    /// The first version of an inode that ended later than that.
    pub(crate) fn version_ending_behind(
        self,
        meta: &Meta,
        no: InodeNo,
        end: EventNo,
    ) -> Result<Option<Version>> {
        let Some(next) = end.0.checked_add(1).map(EventNo) else { return Ok(None) };
        self.version_with(meta, no, |rows| self.state_ending_from(meta, rows, no, next))
    }

    /// When the last state of an inode ended.
    pub(crate) fn last_end(self, meta: &Meta, no: InodeNo) -> Result<Option<EventNo>> {
        if no.0 >= INODE_LIMIT {
            return Ok(None);
        }
        let shard = self.read_shard(meta, version_shard(no))?;
        let rows = shard.unindexed();
        let _index = self.past.inode_index.read();
        Ok(self.state_ending_by(meta, rows, no, EventNo(u64::MAX))?.map(|cell| cell.end))
    }

    /// Which states there are behind the one of this inode that ended then, by inode and end, at most `most`.
    pub(crate) fn ends_behind(
        self,
        meta: &Meta,
        after: (InodeNo, EventNo),
        most: usize,
    ) -> Result<Vec<(InodeNo, EventNo)>> {
        // The maps first, and then the index (A7).
        let mut cells = Vec::new();
        for shard in 0..HISTORY_SHARDS {
            let locked = self.read_shard(meta, shard)?;
            cells.extend(locked.unindexed.iter().flat_map(|rows| rows.behind(after, most)));
        }
        {
            let _index = self.past.inode_index.read();
            cells.extend(self.states_behind(meta, after, most)?);
        }
        cells.sort_unstable();
        cells.dedup();
        cells.truncate(most);
        Ok(cells.into_iter().map(|cell| (cell.inode, cell.end)).collect())
    }

    /// The state of an inode that ended at this number.
    pub(crate) fn version_ending(self, meta: &Meta, no: InodeNo, end: EventNo) -> Result<Option<Version>> {
        self.version_with(meta, no, |rows| {
            Ok(self.state_ending_from(meta, rows, no, end)?.filter(|cell| cell.end == end))
        })
    }

    /// The state to which `find` finds the cell.
    fn version_with(
        self,
        meta: &Meta,
        no: InodeNo,
        find: impl FnOnce(&Unindexed) -> Result<Option<InodeIndexCell>>,
    ) -> Result<Option<Version>> {
        let locked = self.read_shard(meta, version_shard(no))?;
        let _index = self.past.inode_index.read();
        find(locked.unindexed())?.map(|cell| self.version_of(meta, cell)).transpose()
    }

    /// The state to which a cell leads. The caller holds the locks of its shard and of the index.
    fn version_of(self, meta: &Meta, cell: InodeIndexCell) -> Result<Version> {
        let InodeIndexCell { inode: no, end, sequence, born } = cell;
        let shard = version_shard(no);
        let key = AnnalsKey { end, sequence };
        let inode = self.row(meta, shard, key, |row| match row.version {
            Some(inode) if row.inode == no && inode.born == born => Some(inode.into_owned()),
            _ => None,
        })?;
        match inode.flatten() {
            Some(inode) => Ok(Version { end, inode }),
            None => Err(astray(HistoryTree::InodeIndex, shard, key)),
        }
    }
}
