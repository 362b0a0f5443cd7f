//! The questions about past states of inodes: their versions.

use super::past::Past;
use crate::{InodeNo, Result};
use yore_format::{EventNo, Version, HISTORY_SHARDS};
use yore_meta::Meta;

/// A walk over all versions: all that an inode number has come together, the oldest first.
#[derive(Default)]
pub(crate) struct VersionsWalk {
    shard: usize,
    /// The inode and the birth of the last version that the walk met in the shard.
    after: Option<(InodeNo, EventNo)>,
}

impl Past {
    /// The version of an inode with the greatest birth up to `most`, whether it had ended by `most` or not.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn version(&self, meta: &Meta, no: InodeNo, most: EventNo) -> Result<Option<Version>> {
        self.first().version(meta, no, most)
    }

    /// The first version of an inode number that was born at `from` or later.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn version_after(&self, meta: &Meta, no: InodeNo, from: EventNo) -> Result<Option<Version>> {
        self.first().version_after(meta, no, from)
    }

    /// Whatever was born at this number or before belongs to versions of the inode, too (P3).
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn recorded_until(&self, meta: &Meta, no: InodeNo) -> Result<EventNo> {
        if !self.is_any() {
            return Ok(EventNo(0));
        }
        let newest = self.version(meta, no, EventNo(u64::MAX))?;
        Ok(EventNo(newest.map_or(0, |version| version.end.0 - 1)))
    }

    /// The versions of an inode that ended after `from` and were born before `to`, the oldest first.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn versions_of(
        &self,
        meta: &Meta,
        no: InodeNo,
        from: EventNo,
        to: EventNo,
    ) -> Result<Vec<Version>> {
        let mut found = Vec::new();
        let mut most = to.0;
        while let Some(below) = most.checked_sub(1) {
            let version = self.version(meta, no, EventNo(below))?;
            let Some(version) = version.filter(|version| version.end > from) else { break };
            most = version.inode.born.0;
            found.push(version);
        }
        found.reverse();
        Ok(found)
    }

    /// The next versions of the volume, at most `most`. `None`: there are no more.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn next_versions(
        &self,
        meta: &Meta,
        walk: &mut VersionsWalk,
        most: usize,
    ) -> Result<Option<Vec<(InodeNo, Version)>>> {
        if walk.shard == HISTORY_SHARDS {
            return Ok(None);
        }
        let found = self.first().versions_behind(meta, walk.shard, walk.after, most)?;
        match found.last().filter(|_| found.len() == most) {
            Some((no, version)) => walk.after = Some((*no, version.inode.born)),
            None => (walk.shard, walk.after) = (walk.shard + 1, None),
        }
        Ok(Some(found))
    }
}
