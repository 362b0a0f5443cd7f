//! The questions about ends: what ended in a span of numbers.

use super::ended::Ended;
use super::entry::PastEntry;
use super::past::Past;
use crate::{InodeNo, Result};
use yore_format::{EventNo, HISTORY_SHARDS};
use yore_meta::Meta;

/// A walk over what ended in a span of numbers: shard by shard, and in each in the order of the ends.
pub(crate) struct EndsWalk {
    after: EventNo,
    last: EventNo,
    shard: usize,
    /// The last end that the walk met in the shard.
    at: Ended,
}

impl EndsWalk {
    /// The walk over what ended after a number, up to another one.
    pub(crate) fn of(after: EventNo, last: EventNo) -> EndsWalk {
        EndsWalk { after, last, shard: 0, at: EndsWalk::before(after) }
    }

    /// Behind all that ended at this number or before.
    fn before(after: EventNo) -> Ended {
        Ended { end: after, inode: InodeNo(u64::MAX), cookie: u64::MAX }
    }

    /// How far it has come, in numbers of events: at the end as many times the numbers of the span as there
    /// are shards.
    pub(crate) fn passed(&self) -> u64 {
        let each = self.last.0.saturating_sub(self.after.0);
        let here = self.at.end.0.saturating_sub(self.after.0);
        each.saturating_mul(self.shard as u64).saturating_add(here)
    }
}

impl Past {
    /// The next ends of a walk, at most `most`, all of one shard. `None`: there are no more.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn next_ended(
        &self,
        meta: &Meta,
        walk: &mut EndsWalk,
        most: usize,
    ) -> Result<Option<Vec<Ended>>> {
        while walk.shard < HISTORY_SHARDS {
            let found = self.first().ended(meta, walk.shard, &walk.at, walk.last, most)?;
            match found.last().filter(|_| found.len() == most) {
                Some(last) => walk.at = *last,
                None => (walk.shard, walk.at) = (walk.shard + 1, EndsWalk::before(walk.after)),
            }
            if !found.is_empty() {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Whether any version or name ended after this event. O(log history).
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn is_changed_since(&self, meta: &Meta, event: EventNo) -> Result<bool> {
        self.first().is_changed_since(meta, event)
    }

    /// What a cookie meant until then; `None` if that name does not exist.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn name_that_ended(&self, meta: &Meta, ended: &Ended) -> Result<Option<PastEntry>> {
        let Some(before) = ended.end.0.checked_sub(1) else { return Ok(None) };
        let found = self.name_as_of(meta, ended.inode, ended.cookie, EventNo(before))?;
        Ok(found.filter(|entry| entry.death == ended.end))
    }
}
