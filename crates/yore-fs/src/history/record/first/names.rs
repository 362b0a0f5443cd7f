//! Look-ups in the trees of past names.

use super::trees::First;
use crate::history::record::entry::{PastEntry, RUN};
use crate::{InodeNo, Result};
use yore_core::Core;
use yore_format::{name_cookie, name_key, name_shard, EventNo, HistoryTree};
use yore_meta::Meta;

impl First<'_> {
    /// The last meaning of a name among those that began up to `most`.
    pub(crate) fn last_meaning(
        self,
        store: &Core,
        directory: InodeNo,
        name: &[u8],
        most: EventNo,
    ) -> Result<Option<PastEntry>> {
        let shard = name_shard(directory);
        let _shard = self.past.shards[shard].read();
        let tree = self.past.tree(HistoryTree::Names(shard));
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

    /// Calls `each` with the names of a directory from a cookie on, by cookie and birth, until it returns
    /// false.
    pub(crate) fn each_name(
        self,
        meta: &Meta,
        directory: InodeNo,
        from: u64,
        each: &mut dyn FnMut(PastEntry) -> Result<bool>,
    ) -> Result<()> {
        let shard = name_shard(directory);
        let _shard = self.past.shards[shard].read();
        let from = name_key(directory, from, EventNo(0));
        self.past.tree(HistoryTree::Names(shard)).scan(meta, &from, &mut |key, value| {
            let found = PastEntry::decode(key, value)?;
            match found.directory == directory {
                true => each(found),
                false => Ok(false),
            }
        })
    }

    /// The past name of a cookie with the greatest birth up to `most`.
    pub(crate) fn name_until(
        self,
        meta: &Meta,
        directory: InodeNo,
        cookie: u64,
        most: EventNo,
    ) -> Result<Option<PastEntry>> {
        let shard = name_shard(directory);
        let _shard = self.past.shards[shard].read();
        let key = name_key(directory, cookie, most);
        let found = self
            .past
            .tree(HistoryTree::Names(shard))
            .floor(meta, &key, |cell| cell.map(|(key, value)| PastEntry::decode(key, value)).transpose())??;
        Ok(found.filter(|found| (found.directory, found.cookie) == (directory, cookie)))
    }

    /// Calls `each` with past names of a shard from a key on, at most `most`; returns the key to go on from.
    pub(crate) fn names_of_shard(
        self,
        meta: &Meta,
        shard: usize,
        from: [u8; 24],
        most: usize,
        each: &mut dyn FnMut(PastEntry),
    ) -> Result<Option<[u8; 24]>> {
        let _shard = self.past.shards[shard].read();
        let (mut met, mut next) = (0, None);
        self.past.tree(HistoryTree::Names(shard)).scan(meta, &from, &mut |key, value| {
            let entry = PastEntry::decode(key, value)?;
            if met == most {
                next = Some(name_key(entry.directory, entry.cookie, entry.birth));
                return Ok(false);
            }
            met += 1;
            each(entry);
            Ok(true)
        })?;
        Ok(next)
    }
}
