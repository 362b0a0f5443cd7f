//! Past names: the records of names that were removed or came to mean something else, and the look-ups of
//! them.

use super::entry::PastEntry;
use super::past::Past;
use crate::{InodeNo, Result};
use yore_core::Core;
use yore_format::{name_cookie, name_key, name_shard, EventNo, HistoryTree};
use yore_meta::Meta;

/// The last of the cookies that names of one hash take.
const RUN: u64 = 0xff;

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
        let shard = name_shard(directory);
        let _shard = self.shards[shard].read();
        let tree = self.tree(HistoryTree::Names(shard));
        let first = name_cookie(&store.hash_seed, name);
        let mut last: Option<PastEntry> = None;
        let mut at = Some(name_key(directory, first | RUN, most));
        while let Some(key) = at {
            let found = tree.floor(&store.meta, &key, |cell| {
                cell.map(|(key, value)| PastEntry::decode(key, value)).transpose()
            })??;
            let Some(found) = found.filter(|e| e.directory == directory && e.cookie >= first) else { break };
            // Goes downwards through the births of each cookie until the name fits; then to the cookie below.
            let (cookie, birth) = (found.cookie, found.birth);
            at = match (birth <= most, found.name == name) {
                (true, false) if birth.0 > 0 => Some(name_key(directory, cookie, EventNo(birth.0 - 1))),
                (false, _) => Some(name_key(directory, cookie, most)),
                _ if cookie > first => Some(name_key(directory, cookie - 1, most)),
                _ => None,
            };
            if birth <= most && found.name == name && last.as_ref().is_none_or(|last| last.birth < birth) {
                last = Some(found);
            }
        }
        Ok(last)
    }

    /// Calls `each` with the names after a cookie that a directory had as of an event and no longer has, in
    /// cookie order, until it returns false.
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
        let shard = name_shard(directory);
        let _shard = self.shards[shard].read();
        let from = name_key(directory, from, EventNo(0));
        self.tree(HistoryTree::Names(shard)).scan(meta, &from, &mut |key, value| {
            let found = PastEntry::decode(key, value)?;
            if found.directory != directory {
                return Ok(false);
            }
            if found.birth <= event && event < found.death {
                return each(found);
            }
            Ok(true)
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
        let shard = name_shard(directory);
        let _shard = self.shards[shard].read();
        let key = name_key(directory, cookie, most);
        let found = self
            .tree(HistoryTree::Names(shard))
            .floor(meta, &key, |cell| cell.map(|(key, value)| PastEntry::decode(key, value)).transpose())??;
        Ok(found.filter(|found| (found.directory, found.cookie) == (directory, cookie)))
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

    /// Calls `each` with all past names of a directory from a cookie on, by cookie and birth, until it
    /// returns false. `each` must not use the past.
    ///
    /// # Errors
    /// Damage and device errors; those of `each`.
    pub(crate) fn each_past_name(
        &self,
        meta: &Meta,
        directory: InodeNo,
        from: u64,
        each: &mut dyn FnMut(PastEntry) -> Result<bool>,
    ) -> Result<()> {
        let shard = name_shard(directory);
        let _shard = self.shards[shard].read();
        let from = name_key(directory, from, EventNo(0));
        self.tree(HistoryTree::Names(shard)).scan(meta, &from, &mut |key, value| {
            let found = PastEntry::decode(key, value)?;
            match found.directory == directory {
                true => each(found),
                false => Ok(false),
            }
        })
    }
}
