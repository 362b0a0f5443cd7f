//! The questions about ends: what ended in a span of numbers.

use super::ended::{Ended, EndedRow};
use super::entry::PastEntry;
use super::past::Past;
use crate::{InodeNo, Result};
use yore_format::{AnnalsKey, EventNo, HistoryRoots, EVENT_LIMIT, HISTORY_SHARDS};
use yore_meta::Meta;

/// A walk over what ended in a span of numbers: shard by shard, and in each in the order of the ends, those
/// of the old trees before those of the annals.
pub(crate) struct EndsWalk {
    after: EventNo,
    last: EventNo,
    shard: usize,
    at: At,
}

/// How far it has come in a shard.
#[derive(Clone, Copy)]
enum At {
    /// In the old trees, behind this end.
    First(Ended),
    /// In the annals, behind this row.
    Annals(AnnalsKey),
}

impl EndsWalk {
    /// The walk over what ended after a number, up to another one.
    pub(crate) fn of(after: EventNo, last: EventNo) -> EndsWalk {
        EndsWalk { after, last, shard: 0, at: EndsWalk::first(after) }
    }

    /// Before all that ended after this number.
    fn first(after: EventNo) -> At {
        At::First(Ended { end: after, inode: InodeNo(u64::MAX), cookie: u64::MAX })
    }

    /// The same in the annals.
    fn first_row(after: EventNo) -> At {
        At::Annals(AnnalsKey { end: after.min(EventNo(EVENT_LIMIT - 1)), sequence: u32::MAX })
    }

    /// How far it has come, in numbers of events: at the end as many times the numbers of the span as there
    /// are shards.
    pub(crate) fn passed(&self) -> u64 {
        let each = self.last.0.saturating_sub(self.after.0);
        let here = match self.at {
            At::First(last) => last.end,
            At::Annals(last) => last.end,
        };
        each.saturating_mul(self.shard as u64).saturating_add(here.0.saturating_sub(self.after.0))
    }
}

/// What ended, as whoever forgets finds it.
pub(crate) enum EndedBatch {
    /// In the old trees: when, and of what.
    Ends(Vec<Ended>),
    /// In the annals: whole rows of one shard, in order.
    Rows(Vec<EndedRow>),
}

impl Past {
    /// The rows of a shard that have no keys, behind this one or the first of them, at most `most`. Returns
    /// the last of them, if there may be more.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn rows_without_keys(
        &self,
        meta: &Meta,
        shard: usize,
        after: Option<AnnalsKey>,
        most: usize,
    ) -> Result<(Vec<EndedRow>, Option<AnnalsKey>)> {
        let Some(annals) = self.annals() else { return Ok((Vec::new(), None)) };
        let after = after.unwrap_or_else(|| HistoryRoots::watermark(&self.roots().read(), shard));
        annals.ended_rows(meta, shard, after, EventNo(u64::MAX), most)
    }

    /// As [`Past::next_ended`], with whole rows of the annals, at most `most`.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn next_batch(
        &self,
        meta: &Meta,
        walk: &mut EndsWalk,
        most: usize,
    ) -> Result<Option<EndedBatch>> {
        while walk.shard < HISTORY_SHARDS {
            match (walk.at, self.annals()) {
                (At::First(after), annals) => {
                    let found = self.ended_first(meta, walk, (after, annals.is_some()), most)?;
                    if !found.is_empty() {
                        return Ok(Some(EndedBatch::Ends(found)));
                    }
                }
                (At::Annals(after), Some(annals)) => {
                    let (rows, next) = annals.ended_rows(meta, walk.shard, after, walk.last, most)?;
                    match next {
                        Some(last) => walk.at = At::Annals(last),
                        None => (walk.shard, walk.at) = (walk.shard + 1, EndsWalk::first(walk.after)),
                    }
                    if !rows.is_empty() {
                        return Ok(Some(EndedBatch::Rows(rows)));
                    }
                }
                (At::Annals(_), None) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// The next ends of a walk in the old trees of its shard, behind which are the annals, if there are any.
    fn ended_first(
        &self,
        meta: &Meta,
        walk: &mut EndsWalk,
        (after, has_annals): (Ended, bool),
        most: usize,
    ) -> Result<Vec<Ended>> {
        let found = self.first().ended(meta, walk.shard, &after, walk.last, most)?;
        match found.last().filter(|_| found.len() == most) {
            Some(last) => walk.at = At::First(*last),
            None if has_annals => walk.at = EndsWalk::first_row(walk.after),
            None => (walk.shard, walk.at) = (walk.shard + 1, EndsWalk::first(walk.after)),
        }
        Ok(found)
    }

    /// The next ends of a walk, at most `most` and one more, all of one shard. `None`: there are no more.
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
            let found = match (walk.at, self.annals()) {
                (At::First(after), annals) => {
                    self.ended_first(meta, walk, (after, annals.is_some()), most)?
                }
                (At::Annals(after), Some(annals)) => {
                    let (found, next) = annals.ended(meta, walk.shard, after, walk.last, most)?;
                    match next {
                        Some(last) => walk.at = At::Annals(last),
                        None => (walk.shard, walk.at) = (walk.shard + 1, EndsWalk::first(walk.after)),
                    }
                    found
                }
                (At::Annals(_), None) => return Ok(None),
            };
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
        let annals = self.annals().map(|annals| annals.is_changed_since(meta, event)).transpose()?;
        Ok(annals.unwrap_or(false) || self.first().is_changed_since(meta, event)?)
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
