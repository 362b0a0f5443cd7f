//! The questions about past names: names that were removed or came to mean something else.

use super::entry::PastEntry;
use super::past::Past;
use crate::{InodeNo, Result};
use yore_core::Core;
use yore_format::{AnnalsKey, EventNo, HISTORY_SHARDS};
use yore_meta::Meta;

/// A walk over all past names.
pub(crate) struct NamesWalk(At);

/// How far it has come.
#[derive(Clone, Copy)]
enum At {
    /// In a shard of the old trees, at this key.
    First(usize, [u8; 24]),
    /// In a shard of the annals, behind this row.
    Annals(usize, AnnalsKey),
}

impl Default for NamesWalk {
    fn default() -> NamesWalk {
        NamesWalk(At::First(0, [0; 24]))
    }
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
        // What is in the annals ended later.
        if let Some(annals) = self.annals() {
            if let Some(found) = annals.last_meaning(store, directory, name, most)? {
                return Ok(Some(found));
            }
        }
        self.first().last_meaning(store, directory, name, most)
    }

    /// The names after a cookie that a directory had as of an event and no longer has, as far as they are
    /// `wanted`: at most `most`, in cookie order.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn names_as_of(
        &self,
        meta: &Meta,
        (directory, after): (InodeNo, u64),
        event: EventNo,
        most: usize,
        wanted: &dyn Fn(&PastEntry) -> bool,
    ) -> Result<Vec<PastEntry>> {
        let (mut names, Some(from)) = (Vec::new(), after.checked_add(1)) else { return Ok(Vec::new()) };
        self.first().each_name(meta, directory, from, &mut |found| {
            if found.birth <= event && event < found.death && wanted(&found) {
                names.push(found);
            }
            Ok(names.len() < most)
        })?;
        if let Some(annals) = self.annals() {
            let more = annals.entries_as_of(meta, directory, from, event, most, wanted)?;
            if names.is_empty() {
                return Ok(more);
            }
            names.extend(more);
            names.sort_by_key(|entry| entry.cookie);
            names.truncate(most);
        }
        Ok(names)
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
        if let Some(annals) = self.annals() {
            if let Some(found) = annals.name_until(meta, directory, cookie, most)? {
                return Ok(Some(found));
            }
        }
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

    /// Calls `each` with all past names of a directory until it returns false. `each` must not use the past.
    ///
    /// # Errors
    /// Damage and device errors; those of `each`.
    pub(crate) fn each_past_name(
        &self,
        meta: &Meta,
        directory: InodeNo,
        each: &mut dyn FnMut(PastEntry) -> Result<bool>,
    ) -> Result<()> {
        let mut goes_on = true;
        self.first().each_name(meta, directory, 0, &mut |entry| {
            goes_on = each(entry)?;
            Ok(goes_on)
        })?;
        match self.annals().filter(|_| goes_on) {
            Some(annals) => annals.each_past_name(meta, directory, each),
            None => Ok(()),
        }
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
        walk.0 = match (walk.0, self.annals()) {
            (At::First(shard, from), annals) => {
                let next = self.first().names_of_shard(meta, shard, from, most, each)?;
                match (next, annals) {
                    (Some(from), _) => At::First(shard, from),
                    (None, _) if shard + 1 < HISTORY_SHARDS => At::First(shard + 1, [0; 24]),
                    (None, Some(_)) => At::Annals(0, AnnalsKey::default()),
                    (None, None) => return Ok(false),
                }
            }
            (At::Annals(shard, after), Some(annals)) => {
                match annals.names_of_shard(meta, shard, after, most, each)? {
                    Some(after) => At::Annals(shard, after),
                    None if shard + 1 < HISTORY_SHARDS => At::Annals(shard + 1, AnnalsKey::default()),
                    None => return Ok(false),
                }
            }
            (At::Annals(..), None) => return Ok(false),
        };
        Ok(true)
    }
}
