//! The questions about past names: names that were removed or came to mean something else.

use super::entry::PastEntry;
use super::past::Past;
use crate::{InodeNo, Result};
use yore_core::Core;
use yore_format::{EventNo, HISTORY_SHARDS};
use yore_meta::Meta;

/// A walk over all past names.
#[derive(Default)]
pub(crate) struct NamesWalk {
    shard: usize,
    from: Option<[u8; 24]>,
}

impl Past {
    /// What a name meant in a directory as of an event, if it means something else now: the entry, with its
    /// cookie.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn find_name(
        &self,
        store: &Core,
        directory: InodeNo,
        name: &[u8],
        event: EventNo,
    ) -> Result<Option<PastEntry>> {
        // The spans of a name do not overlap, so no earlier one reaches further.
        Ok(self.last_meaning(store, directory, name, event)?.filter(|found| event < found.death))
    }

    /// The last meaning of a name among those that began up to `most`, if the name means something else now.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn last_meaning(
        &self,
        store: &Core,
        directory: InodeNo,
        name: &[u8],
        most: EventNo,
    ) -> Result<Option<PastEntry>> {
        self.first().last_meaning(store, directory, name, most)
    }

    /// Calls `each` with the names after a cookie that a directory had as of an event and no longer has, in
    /// cookie order, until it returns false. `each` must not use the past.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn each_name(
        &self,
        meta: &Meta,
        directory: InodeNo,
        after: u64,
        event: EventNo,
        each: &mut dyn FnMut(PastEntry) -> Result<bool>,
    ) -> Result<()> {
        let Some(from) = after.checked_add(1) else { return Ok(()) };
        self.first().each_name(meta, directory, from, &mut |found| match found.birth <= event
            && event < found.death
        {
            true => each(found),
            false => Ok(true),
        })
    }

    /// The past name of a cookie with the greatest birth up to `most`, whether it had ended by `most` or not.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn name_until(
        &self,
        meta: &Meta,
        directory: InodeNo,
        cookie: u64,
        most: EventNo,
    ) -> Result<Option<PastEntry>> {
        self.first().name_until(meta, directory, cookie, most)
    }

    /// What a cookie meant as of an event, if it means something else now.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn name_as_of(
        &self,
        meta: &Meta,
        directory: InodeNo,
        cookie: u64,
        event: EventNo,
    ) -> Result<Option<PastEntry>> {
        Ok(self.name_until(meta, directory, cookie, event)?.filter(|found| event < found.death))
    }

    /// The last past name in a directory that has this name and began before this number.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn name_before(
        &self,
        store: &Core,
        directory: InodeNo,
        name: &[u8],
        before: EventNo,
    ) -> Result<Option<PastEntry>> {
        match before.0.checked_sub(1) {
            Some(most) => self.last_meaning(store, directory, name, EventNo(most)),
            None => Ok(None),
        }
    }

    /// Calls `each` with all past names of a directory, by cookie and birth, until it returns false. `each`
    /// must not use the past.
    ///
    /// # Errors
    /// Damage and device errors; those of `each`.
    pub(crate) fn each_past_name(
        &self,
        meta: &Meta,
        directory: InodeNo,
        each: &mut dyn FnMut(PastEntry) -> Result<bool>,
    ) -> Result<()> {
        self.first().each_name(meta, directory, 0, each)
    }

    /// Calls `each` with the next past names of the volume, at most `most`. False: there are no more.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn next_names(
        &self,
        meta: &Meta,
        walk: &mut NamesWalk,
        most: usize,
        each: &mut dyn FnMut(PastEntry),
    ) -> Result<bool> {
        let from = walk.from.unwrap_or([0; 24]);
        walk.from = self.first().names_of_shard(meta, walk.shard, from, most, each)?;
        if walk.from.is_none() {
            walk.shard += 1;
        }
        Ok(walk.shard < HISTORY_SHARDS)
    }
}
