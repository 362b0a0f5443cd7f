//! The questions about past states of inodes: their versions.

use super::annals::Annals;
use super::past::Past;
use crate::{InodeNo, Result};
use yore_format::{EventNo, Version, HISTORY_SHARDS};
use yore_meta::Meta;

/// A walk over all versions: all that an inode number has come together, the oldest first.
pub(crate) struct VersionsWalk(At);

/// How far it has come.
#[derive(Clone, Copy)]
enum At {
    /// In a shard of the old trees, behind the version with this inode and birth.
    First {
        shard: usize,
        after: Option<(InodeNo, EventNo)>,
    },
    /// At an inode of which the old trees of this shard have versions: in the annals, behind the state
    /// that ended then.
    Both {
        shard: usize,
        no: InodeNo,
        end: EventNo,
    },
    /// In the annals, behind this inode's state that ended then, at inodes of which the old trees have
    /// none.
    Annals {
        after: (InodeNo, EventNo),
    },
    End,
}

impl Default for VersionsWalk {
    fn default() -> VersionsWalk {
        VersionsWalk(At::First { shard: 0, after: None })
    }
}

impl Past {
    /// The version of an inode with the greatest birth up to `most`, whether it had ended by `most` or not.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn version(&self, meta: &Meta, no: InodeNo, most: EventNo) -> Result<Option<Version>> {
        // What is in the annals ended later than what is in the old trees, so they have the answer if they
        // have one. Where it is more likely is looked first: a tree that need not be asked need not be read.
        // What somebody looks for was recorded before, in one of them or in the other.
        if let Some(annals) = self.annals_with(most) {
            if let Some(found) = annals.version(meta, no, most)? {
                return Ok(Some(found));
            }
            return self.first().version(meta, no, most);
        }
        let first = self.first().version(meta, no, most)?;
        match self.annals().filter(|_| first.as_ref().is_none_or(|version| version.end <= most)) {
            Some(annals) => Ok(annals.version(meta, no, most)?.or(first)),
            None => Ok(first),
        }
    }

    /// The version of an inode before this one. States do not overlap, so it is the last that had ended when
    /// this one was born.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn version_before(
        &self,
        meta: &Meta,
        no: InodeNo,
        version: &Version,
    ) -> Result<Option<Version>> {
        let born = version.inode.born;
        if let Some(annals) = self.annals_with(born) {
            if let Some(found) = annals.version_ended_by(meta, no, born)? {
                return Ok(Some(found));
            }
        }
        match born.0.checked_sub(1) {
            Some(most) => self.first().version(meta, no, EventNo(most)),
            None => Ok(None),
        }
    }

    /// The first version of an inode number that was born at `from` or later.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn version_after(&self, meta: &Meta, no: InodeNo, from: EventNo) -> Result<Option<Version>> {
        // What was born then ends behind it. If the annals had begun by then, it is there.
        if let Some(annals) = self.annals_with(from) {
            return annals.version_after(meta, no, from);
        }
        match (self.first().version_after(meta, no, from)?, self.annals()) {
            (None, Some(annals)) => annals.version_after(meta, no, from),
            (first, _) => Ok(first),
        }
    }

    /// The version of an inode in the annals that ended then.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn version_ending_at(
        &self,
        meta: &Meta,
        no: InodeNo,
        end: EventNo,
    ) -> Result<Option<Version>> {
        let before = end.0.checked_sub(1).map(EventNo);
        let (Some(annals), Some(before)) = (self.annals(), before) else { return Ok(None) };
        Ok(annals.version_ending_behind(meta, no, before)?.filter(|version| version.end == end))
    }

    /// The first version of an inode in the annals that ended later than that, whenever it was born.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn version_ending_behind(
        &self,
        meta: &Meta,
        no: InodeNo,
        end: EventNo,
    ) -> Result<Option<Version>> {
        match self.annals() {
            Some(annals) => annals.version_ending_behind(meta, no, end),
            None => Ok(None),
        }
    }

    /// Whatever was born at this number or before belongs to versions of the inode, too (P3).
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn recorded_until(&self, meta: &Meta, no: InodeNo) -> Result<EventNo> {
        if !self.is_any() {
            return Ok(EventNo(0));
        }
        let last = match self.annals() {
            Some(annals) => annals.last_end(meta, no)?,
            None => None,
        };
        let end = match last {
            Some(end) => Some(end),
            None => self.first().version(meta, no, EventNo(u64::MAX))?.map(|version| version.end),
        };
        Ok(EventNo(end.map_or(0, |end| end.0 - 1)))
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
        match (walk.0, self.annals()) {
            (At::First { shard, .. }, None) if shard == HISTORY_SHARDS => walk.0 = At::End,
            (At::First { shard, .. }, Some(_)) if shard == HISTORY_SHARDS => {
                walk.0 = At::Annals { after: (InodeNo(0), EventNo(0)) };
            }
            _ => {}
        }
        match (walk.0, self.annals()) {
            (At::End, _) | (At::Both { .. } | At::Annals { .. }, None) => Ok(None),
            (At::First { shard, after }, annals) => {
                let found = self.first().versions_behind(meta, shard, after, (most, annals.is_some()))?;
                let before = after.filter(|(_, born)| annals.is_some() && born.0 < u64::MAX);
                if let Some((no, _)) = before {
                    // The batch before this one was full; it had the last versions of its inode.
                    if found.first().is_none_or(|(next, _)| *next != no) {
                        walk.0 = At::Both { shard, no, end: EventNo(0) };
                        return Ok(Some(Vec::new()));
                    }
                }
                walk.0 = match found.last() {
                    Some((no, _)) if annals.is_some() && found.len() < most => {
                        At::Both { shard, no: *no, end: EventNo(0) }
                    }
                    Some((no, version)) if found.len() == most => {
                        At::First { shard, after: Some((*no, version.inode.born)) }
                    }
                    _ => At::First { shard: shard + 1, after: None },
                };
                Ok(Some(found))
            }
            (At::Both { shard, no, end }, Some(annals)) => {
                let ends = annals.ends_behind(meta, (no, end), most)?;
                let ends: Vec<_> = ends.into_iter().take_while(|(of, _)| *of == no).collect();
                walk.0 = match ends.last().filter(|_| ends.len() == most) {
                    Some((_, end)) => At::Both { shard, no, end: *end },
                    None => At::First { shard, after: Some((no, EventNo(u64::MAX))) },
                };
                self.versions_ending(meta, annals, ends).map(Some)
            }
            (At::Annals { after }, Some(annals)) => {
                let mut ends = annals.ends_behind(meta, after, most)?;
                walk.0 = ends.last().map_or(At::End, |last| At::Annals { after: *last });
                let mut of_both = (InodeNo(0), false);
                let mut failed = Ok(());
                ends.retain(|(no, _)| {
                    if of_both.0 != *no {
                        let first = self.first().version(meta, *no, EventNo(u64::MAX));
                        of_both = (*no, matches!(first, Ok(Some(_))));
                        failed = std::mem::replace(&mut failed, Ok(())).and(first.map(drop));
                    }
                    !of_both.1
                });
                failed?;
                self.versions_ending(meta, annals, ends).map(Some)
            }
        }
    }

    /// The states of inodes that ended then, as far as they are still there.
    fn versions_ending(
        &self,
        meta: &Meta,
        annals: Annals<'_>,
        ends: Vec<(InodeNo, EventNo)>,
    ) -> Result<Vec<(InodeNo, Version)>> {
        let version = |(no, end)| {
            let version = annals.version_ending(meta, no, end);
            version.map(|version| version.map(|version| (no, version))).transpose()
        };
        ends.into_iter().filter_map(version).collect()
    }
}
