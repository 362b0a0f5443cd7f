//! Look-ups of what names meant.

use super::trees::{astray, Annals};
use crate::history::record::entry::{PastEntry, RUN};
use crate::{InodeNo, Result};
use yore_core::Core;
use yore_format::{name_cookie, AnnalsKey, AnnalsRow, EventNo, HistoryTree, NameIndexCell, HISTORY_SHARDS};
use yore_meta::Meta;

/// How many cells are looked up at a time.
const BATCH: usize = 256;

impl Annals<'_> {
    /// The last meaning of a name among those that began up to `most`.
    pub(crate) fn last_meaning(
        self,
        store: &Core,
        directory: InodeNo,
        name: &[u8],
        most: EventNo,
    ) -> Result<Option<PastEntry>> {
        let first = name_cookie(&store.hash_seed, name);
        if (0..HISTORY_SHARDS).any(|shard| !self.past.backlog.has_entered(shard)) {
            // The index alone may have the answer. Then nobody reads the rows that have no keys.
            if let Some(found) = self.indexed_meaning(&store.meta, directory, (first, name), most)? {
                return Ok(Some(found));
            }
        }
        let mut last: Option<PastEntry> = None;
        let mut at = Some(first | RUN);
        while let Some(cookie) = at {
            let below = self.name_ending_by(&store.meta, directory, cookie, EventNo(u64::MAX))?;
            let Some(NameIndexCell { cookie, .. }) = below.filter(|cell| cell.cookie >= first) else { break };
            let found = self.life_until(&store.meta, directory, cookie, most, |entry| entry.name == name)?;
            if let Some(found) = found {
                if last.as_ref().is_none_or(|last| last.birth < found.birth) {
                    last = Some(found);
                }
            }
            at = cookie.checked_sub(1).filter(|below| *below >= first);
        }
        Ok(last)
    }

    /// What a name, whose first cookie this is, meant as of a number, if the index leads to it (A7b).
    fn indexed_meaning(
        self,
        meta: &Meta,
        directory: InodeNo,
        (first, name): (u64, &[u8]),
        as_of: EventNo,
    ) -> Result<Option<PastEntry>> {
        let mut at = Some(first);
        while let Some(cookie) = at.filter(|cookie| *cookie <= first | RUN) {
            let found = self.indexed_name_from(meta, directory, (cookie, first | RUN), as_of)?;
            let Some(cell) = found else { return Ok(None) };
            #[cfg(feature = "mutations")]
            if crate::mutation::is(crate::mutation::Mutation::LaterNameAccepted) {
                return self.entry(meta, cell);
            }
            at = match (cell.birth <= as_of, cell.death <= as_of) {
                // The next cookie, with what ended up to then: what ended later is looked for.
                (_, true) => Some(cell.cookie),
                (false, _) => cell.cookie.checked_add(1),
                (true, false) => {
                    let entry = self.entry(meta, cell)?.filter(|entry| entry.birth <= as_of);
                    if let Some(found) = entry.filter(|entry| entry.name == name && as_of < entry.death) {
                        return Ok(Some(found));
                    }
                    cell.cookie.checked_add(1)
                }
            };
        }
        Ok(None)
    }

    /// The past name of a cookie with the greatest birth up to `most`.
    pub(crate) fn name_until(
        self,
        meta: &Meta,
        directory: InodeNo,
        cookie: u64,
        most: EventNo,
    ) -> Result<Option<PastEntry>> {
        self.life_until(meta, directory, cookie, most, |_| true)
    }

    /// Of the lives of a cookie that are `wanted`, the one with the greatest birth up to `most`.
    fn life_until(
        self,
        meta: &Meta,
        directory: InodeNo,
        cookie: u64,
        most: EventNo,
        wanted: impl Fn(&PastEntry) -> bool,
    ) -> Result<Option<PastEntry>> {
        // The one that was then; then downwards through those that had ended by then.
        let next = EventNo(most.0.saturating_add(1));
        let now = self.name_ending_from(meta, directory, cookie, next)?.filter(|cell| cell.birth <= most);
        let mut below = Some(most);
        let mut at = now;
        loop {
            if let Some(cell) = at.take() {
                if let Some(entry) = self.entry(meta, cell)? {
                    if entry.birth <= most && wanted(&entry) {
                        return Ok(Some(entry));
                    }
                }
            }
            let Some(ended) = below else { return Ok(None) };
            let found = self.name_ending_by(meta, directory, cookie, ended)?;
            let Some(cell) = found.filter(|cell| cell.cookie == cookie) else { return Ok(None) };
            below = cell.death.0.checked_sub(1).map(EventNo);
            at = Some(cell);
        }
    }

    /// What names meant in a directory as of an event, from a cookie on, as far as `wanted`, at most `most`,
    /// by cookie.
    pub(crate) fn entries_as_of(
        self,
        meta: &Meta,
        directory: InodeNo,
        from: u64,
        event: EventNo,
        most: usize,
        wanted: &dyn Fn(&PastEntry) -> bool,
    ) -> Result<Vec<PastEntry>> {
        let (mut entries, mut from) = (Vec::new(), Some(from));
        while let Some(cookie) = from {
            let cells = self.names_as_of(meta, directory, cookie, event, most)?;
            from = cells.last().filter(|_| cells.len() == most).and_then(|cell| cell.cookie.checked_add(1));
            for cell in cells {
                let entry = self.entry(meta, cell)?.filter(|entry| entry.birth <= event && wanted(entry));
                entries.extend(entry);
                if entries.len() == most {
                    return Ok(entries);
                }
            }
        }
        Ok(entries)
    }

    /// Calls `each` with all past names of a directory, by cookie and birth, until it returns false.
    pub(crate) fn each_past_name(
        self,
        meta: &Meta,
        directory: InodeNo,
        each: &mut dyn FnMut(PastEntry) -> Result<bool>,
    ) -> Result<()> {
        let mut from = Some((0, EventNo(0)));
        while let Some(at) = from {
            let cells = self.names_from(meta, directory, at, BATCH)?;
            let next = |cell: &NameIndexCell| (cell.cookie, EventNo(cell.death.0 + 1));
            from = cells.last().filter(|_| cells.len() == BATCH).map(next);
            for cell in cells {
                if let Some(entry) = self.entry(meta, cell)? {
                    if !each(entry)? {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// The name to which a cell of the index leads; `None` if it was reclaimed since the cell was read.
    fn entry(self, meta: &Meta, mut cell: NameIndexCell) -> Result<Option<PastEntry>> {
        loop {
            let key = AnnalsKey { end: cell.death, sequence: cell.sequence };
            let found = {
                let _shard = self.past.shards[cell.shard].read();
                self.row(meta, cell.shard, key, |row| entry_of(&row))?.flatten()
            };
            let of = |entry: &PastEntry| (entry.directory, entry.cookie, entry.birth);
            let is_it = |entry: &PastEntry| of(entry) == (cell.directory, cell.cookie, cell.birth);
            if let Some(entry) = found.filter(is_it) {
                return Ok(Some(entry));
            }
            let now = self.name_ending_from(meta, cell.directory, cell.cookie, cell.death)?;
            match now.filter(|now| now.death == cell.death) {
                Some(now) if now == cell => return Err(astray(HistoryTree::NameIndex, cell.shard, key)),
                // Expunging lets it begin later.
                Some(now) => cell = now,
                None => return Ok(None),
            }
        }
    }
}

/// The name in a row, unless it was reclaimed.
pub(super) fn entry_of(row: &AnnalsRow<'_>) -> Option<PastEntry> {
    let name = row.name.as_ref().filter(|_| !row.name_is_reclaimed)?;
    Some(PastEntry {
        directory: name.directory,
        cookie: name.cookie,
        birth: name.birth,
        death: row.end,
        inode: row.inode,
        incarnation: row.incarnation,
        kind: name.kind,
        name: name.name.to_vec(),
    })
}
