//! The zones of an open volume: those in memory, the table through which the others are found, and what the
//! running generation has changed in them.

pub(crate) mod apart;
mod header;
pub(crate) mod reserve;
mod settle;
pub(crate) mod slots;
pub(crate) mod table;
mod tables;
pub(crate) mod zone;

use crate::base::Base;
use crate::error::Result;
use apart::Apart;
use hashbrown::HashMap;
use header::read_header;
use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use table::Table;
use yore_format::layout::{ZONE_INDEXES, ZONE_TABLE_ENTRIES};
use yore_format::{BlockNo, Generation, GroupNo, Superblock, ZoneHeader, ZoneNo};
use zone::{Changes, Zone};

/// How many numbers of zones are looked at together: few of them may be in use.
const NUMBERS_AT_ONCE: u32 = 1024;

/// The zones in memory, and the way to the others.
pub(crate) struct Zones {
    map: RwLock<HashMap<ZoneNo, Arc<Zone>>>,
    /// Numbers found free for further zones, which the Ops that make them take.
    spare_numbers: Mutex<Vec<u32>>,
    /// Where the search for the next number goes on.
    next_number: Mutex<u32>,
    /// Zones may have numbers below this; it never falls.
    limit: AtomicU32,
    pub(crate) table: Table,
    /// Zones that were read, and that the table does not say all of: a crash came before the volume was
    /// closed.
    ahead: Mutex<Vec<Arc<Zone>>>,
    /// Those whose blocks lie apart.
    pub(crate) apart: Apart,
    /// What the running generation has changed.
    pub(crate) changes: Changes,
}

impl Zones {
    pub(crate) fn new(found: &Superblock) -> Zones {
        Zones {
            map: RwLock::new(HashMap::new()),
            spare_numbers: Mutex::new(Vec::new()),
            next_number: Mutex::new(1),
            limit: AtomicU32::new(found.zone_number_limit),
            table: Table::new(found),
            ahead: Mutex::default(),
            apart: Apart::default(),
            changes: Changes::default(),
        }
    }

    #[inline]
    pub(crate) fn loaded(&self, no: ZoneNo) -> Option<Arc<Zone>> {
        self.map.read().get(&no).cloned()
    }

    /// The zone with this number, read if need be; `None` if the table says that there is none.
    ///
    /// The reader holds no lock. Meanwhile another thread may read the zone, change it, write it, or even
    /// remove it. So what was read counts only if the zone is still not in memory, and the table still says
    /// the same of it. That suffices: the writer changes only zones that are in memory, and a zone leaves
    /// memory only when the table no longer names it.
    pub(crate) fn get(&self, base: &Base, no: ZoneNo) -> Result<Option<Arc<Zone>>> {
        loop {
            if let Some(zone) = self.loaded(no) {
                return Ok(Some(zone));
            }
            let entry = self.table.entry(&base.medium, no)?;
            if !entry.is_present() {
                return Ok(None);
            }
            let found = settle::read_zone(base, no, &entry);
            let mut map = self.map.write();
            if let Some(there) = map.get(&no) {
                return Ok(Some(there.clone()));
            }
            // The table's block is in memory since the first time.
            if self.table.entry(&base.medium, no)? != entry {
                continue;
            }
            let found = found?;
            let zone = Zone::new(&found.header, found.free_blocks, found.header_slot);
            map.insert(no, zone.clone());
            self.apart.note(no, &found.header.map);
            if found.is_ahead {
                self.ahead.lock().push(zone.clone());
            }
            return Ok(Some(zone));
        }
    }

    /// Looks at the next zones that nobody has looked at: at up to so many headers of zones that are not in
    /// memory, which stay out of it, until `stop` says so. Returns whether there are more. What cannot be
    /// read is left to whoever needs it.
    ///
    /// What is found may be otherwise at once, if another thread reads and changes the zone. Whoever lays a
    /// zone together looks again.
    pub(crate) fn examine_more(&self, base: &Base, headers: usize, stop: &dyn Fn() -> bool) -> bool {
        let (from, limit) = (self.apart.next(), self.limit());
        let mut read = 0;
        for no in (from..limit.min(from.saturating_add(NUMBERS_AT_ONCE))).map(ZoneNo) {
            if read == headers || stop() {
                return true;
            }
            let header = self.table.entry(&base.medium, no).and_then(|entry| {
                let is_unread = entry.is_present() && self.loaded(no).is_none();
                is_unread.then(|| read_header(base, no, &entry)).transpose()
            });
            match header {
                Ok(None) => {}
                Ok(Some(header)) => {
                    read += 1;
                    if self.loaded(no).is_none() {
                        self.apart.note(no, &header.map);
                    }
                }
                Err(error) => {
                    read += 1;
                    tracing::debug!(%error, "looking for zones that lie apart");
                }
            }
            self.apart.has_examined(no.0 + 1);
        }
        self.apart.next() < limit
    }

    /// Zones that were read since, and that the table does not say all of.
    pub(crate) fn take_ahead(&self) -> Vec<Arc<Zone>> {
        std::mem::take(&mut *self.ahead.lock())
    }

    /// Reads all zones, if a crash has left any of which the table does not say all.
    pub(crate) fn settle_all(&self, base: &Base) -> Result<()> {
        if base.medium.found().in_place_since.0 == 0 {
            return Ok(());
        }
        for no in (0..self.limit()).map(ZoneNo) {
            self.get(base, no)?;
        }
        Ok(())
    }

    /// The first zone of a group and those that were added to it.
    pub(crate) fn of_group(&self, base: &Base, group: GroupNo) -> Result<Vec<Arc<Zone>>> {
        let Some(primary) = self.get(base, ZoneNo::primary(group))? else { return Ok(Vec::new()) };
        let extras = primary.extras();
        let mut zones = vec![primary];
        for no in extras {
            zones.extend(self.get(base, no)?);
        }
        Ok(zones)
    }

    /// Zones may have numbers below this.
    pub(crate) fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    pub(crate) fn raise_limit(&self, limit: u32) {
        self.limit.fetch_max(limit, Ordering::Relaxed);
    }

    /// Makes a zone, which nobody finds before [`Zones::enter`]. In an Op.
    pub(crate) fn create(&self, base: &Base, no: ZoneNo, start: BlockNo, group: GroupNo) -> Arc<Zone> {
        let medium = &base.medium;
        let header = ZoneHeader::empty(medium.uuid(), medium.geometry().blocks, start, no, group);
        base.ledger.totals().zones.add(1);
        self.changes.lose();
        Zone::new(&header, 0, 1)
    }

    /// From now on everybody finds a zone that was made, and may reserve in it. In the same Op.
    pub(crate) fn enter(&self, zone: &Arc<Zone>) {
        let old = self.map.write().insert(zone.no, zone.clone());
        assert!(old.is_none(), "zone {} made twice", zone.no);
        self.raise_limit(zone.no.0 + 1);
    }

    /// Makes a further zone of a group whose first zone is in memory. In an Op.
    pub(crate) fn create_extra(&self, base: &Base, generation: Generation, group: GroupNo, start: BlockNo) {
        let no = ZoneNo(self.spare_numbers.lock().pop().expect("a number was prepared for the zone"));
        let primary = self.loaded(ZoneNo::primary(group)).expect("the group's first zone is kept in memory");
        primary.add_extra(&self.changes, generation, no);
        let zone = self.create(base, no, start, group);
        zone.note_created(&self.changes, generation);
        self.enter(&zone);
    }

    /// Takes an empty further zone out of the group; the caller frees its blocks.
    pub(crate) fn remove_extra(&self, base: &Base, generation: Generation, zone: &Arc<Zone>) {
        let primary =
            self.loaded(ZoneNo::primary(zone.group)).expect("the group's first zone is kept in memory");
        primary.remove_extra(&self.changes, generation, zone.no);
        self.remove(base, generation, zone);
    }

    /// A zone that holds nothing goes.
    pub(crate) fn remove(&self, base: &Base, generation: Generation, zone: &Arc<Zone>) {
        zone.remove(&self.changes, generation);
        base.ledger.totals().zones.add(-1);
        self.changes.lose();
    }

    /// Forgets a removed zone once its removal is committed; its number may be used again.
    pub(crate) fn forget(&self, no: ZoneNo) {
        self.map.write().remove(&no);
        self.apart.forget(no);
        if no.is_primary() {
            return;
        }
        let mut next = self.next_number.lock();
        *next = (*next).min(no.0);
    }

    /// A further zone that holds nothing, closed against reservations, for the store to remove.
    pub(crate) fn take_empty(&self) -> Option<Arc<Zone>> {
        loop {
            let no = self.changes.pop_empty()?;
            let Some(zone) = self.loaded(no) else { continue };
            let lists = |primary: Arc<Zone>| primary.extras().any(|extra| extra == no);
            if !self.loaded(ZoneNo::primary(zone.group)).is_some_and(lists) {
                // The medium has a zone that its group does not list. It stays, for the checker to find.
                continue;
            }
            if zone.close_if_empty() {
                return Some(zone);
            }
        }
    }

    /// Changes the free blocks of a group.
    pub(crate) fn count_free_blocks(&self, generation: Generation, group: GroupNo, by: i64) {
        let primary =
            self.loaded(ZoneNo::primary(group)).expect("a group that is used has its zone in memory");
        primary.count_free_blocks(&self.changes, generation, by);
    }

    /// Finds a number for a further zone whose table block is in memory and has a home.
    pub(crate) fn prepare_number(&self, base: &Base) -> Result<bool> {
        let limit = self.table.roots_in_a_row() * ZONE_INDEXES * ZONE_TABLE_ENTRIES as u32;
        let mut next = self.next_number.lock();
        while *next < limit {
            let no = *next;
            *next += 2;
            let mut spare = self.spare_numbers.lock();
            let known = spare.contains(&no) || self.loaded(ZoneNo(no)).is_some();
            if !known && !self.table.entry(&base.medium, ZoneNo(no))?.is_present() {
                spare.push(no);
                return Ok(true);
            }
        }
        Ok(false)
    }
}
