//! Look-ups for callers that compute how much space the past takes ([`crate::history::read::usage`]).

use super::past::Past;
use crate::{InodeNo, Result};
use yore_format::{
    key_parts, version_key, EventNo, HistoryRoots, HistorySpace, HistoryTree, Version, HISTORY_SHARDS,
};
use yore_meta::Meta;

impl Past {
    /// What the past alone holds. O(1).
    pub(crate) fn space(&self) -> HistorySpace {
        self.roots.get().map_or(HistorySpace::default(), |frame| HistoryRoots::space(&frame.read()))
    }

    /// The next versions of a shard after this one (by inode and birth), at most `most`.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn versions_behind(
        &self,
        meta: &Meta,
        shard: usize,
        after: Option<(InodeNo, EventNo)>,
        most: usize,
    ) -> Result<Vec<(InodeNo, Version)>> {
        assert!(shard < HISTORY_SHARDS, "shard {shard}");
        let _shard = self.shards[shard].read();
        let first = after.map_or([0; 16], |(no, born)| version_key(no, born));
        let mut found = Vec::new();
        self.tree(HistoryTree::Versions(shard)).scan(meta, &first, &mut |key, value| {
            if after.is_some() && *key == first[..] {
                return Ok(true);
            }
            let [no, born] = key_parts::<2>(key)?;
            found.push((InodeNo(no), Version::decode(InodeNo(no), EventNo(born), value)?));
            Ok(found.len() < most)
        })?;
        Ok(found)
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
}
