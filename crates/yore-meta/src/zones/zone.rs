//! Zones in memory: which of their indexes exist (changed by Ops), where those are (changed by the writer), and which
//! frames the running generation has changed.

use crate::cache::{Frame, News};
use crate::error::Result;
use crate::meta::Meta;
use crate::op::is_inode_block;
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use yore_format::layout::{HEADER_SLOTS, ZONE_INDEXES};
use yore_format::{
    verify_header, BlockNo, Corruption, Generation, GroupNo, ZoneHeader, ZoneNo, ZoneTableEntry,
    INODES_PER_BLOCK, NOT_INODES,
};

const INDEXES: usize = ZONE_INDEXES as usize;

pub(crate) struct Zone {
    pub(crate) no: ZoneNo,
    pub(crate) place: BlockNo,
    pub(crate) group: GroupNo,
    /// Lock order: after cache shards, before frames. Never held across the device.
    pub(crate) state: Mutex<ZoneState>,
}

pub(crate) struct ZoneState {
    // Logical: changed by Ops.
    pub(crate) exists: [u64; 8],
    pub(crate) inode_free: Box<[u8; INDEXES]>,
    pub(crate) extras: [u32; yore_format::layout::EXTRA_ZONES_PER_GROUP],
    /// First zones only: clear bits in the group's bitmap.
    pub(crate) free_blocks: u32,
    /// Taken out of its group, by an Op of the running generation or an earlier one.
    pub(crate) removed: bool,
    // Derived from the above.
    pub(crate) free_indexes: u32,
    pub(crate) free_inodes: u32,
    // Reservations: in memory only.
    /// About to be removed: nothing more is reserved.
    pub(crate) closed: bool,
    pub(crate) reserved: u32,
    pub(crate) taken: HashMap<u16, u16>,
    pub(crate) inode_hint: usize,
    /// Counts inode blocks gained and lost: who looked at one without the lock sees whether it may be another now.
    pub(crate) inode_blocks_changed: u64,
    // The running generation's changes.
    pub(crate) dirty: Vec<Frame>,
    pub(crate) dirty_generation: u64,
    // Those of them that the intent log does not have.
    pub(crate) unlogged: Vec<Frame>,
    pub(crate) is_unlogged: bool,
    // Physical: changed by the writer when a generation is complete.
    pub(crate) map: Box<[u16; INDEXES]>,
    /// The checksum of the copy in each index's slot. Read and changed together with `map`.
    pub(crate) checks: Box<[u32; INDEXES]>,
    pub(crate) header_slot: u8,
    pub(crate) rotor: usize,
}

/// What a frozen generation has of a zone.
pub(crate) struct FrozenZone {
    pub(crate) zone: Arc<Zone>,
    pub(crate) dirty: Vec<Frame>,
    pub(crate) exists: [u64; 8],
    pub(crate) inode_free: Box<[u8; INDEXES]>,
    pub(crate) extras: [u32; yore_format::layout::EXTRA_ZONES_PER_GROUP],
    pub(crate) free_blocks: u32,
    pub(crate) free_indexes: u32,
    pub(crate) free_inodes: u32,
    pub(crate) removed: bool,
}

impl ZoneState {
    fn from_header(header: &ZoneHeader, free_blocks: u32, header_slot: u8) -> ZoneState {
        let used: u32 = header.exists.iter().map(|w| w.count_ones()).sum();
        let free_inodes =
            header.inode_free.iter().filter(|f| is_inode_block(**f)).map(|f| u32::from(*f)).sum();
        ZoneState {
            exists: header.exists,
            inode_free: header.inode_free.clone(),
            extras: header.extras,
            free_blocks,
            removed: false,
            closed: false,
            free_indexes: ZONE_INDEXES - used,
            free_inodes,
            reserved: 0,
            taken: HashMap::new(),
            inode_hint: 0,
            inode_blocks_changed: 0,
            dirty: Vec::new(),
            dirty_generation: 0,
            unlogged: Vec::new(),
            is_unlogged: false,
            map: header.map.clone(),
            checks: header.checks.clone(),
            header_slot,
            rotor: 0,
        }
    }

    pub(crate) fn has(&self, index: u16) -> bool {
        self.exists[usize::from(index) / 64] & (1 << (index % 64)) != 0
    }

    /// Where the block at `index` is on the medium, slot 0 for nowhere yet, and the checksum of the copy there.
    pub(crate) fn copy_of(&self, index: u16) -> (u16, u32) {
        (self.map[usize::from(index)], self.checks[usize::from(index)])
    }

    fn mark_dirty(&mut self, zone: &Arc<Zone>, meta: &Meta, generation: Generation) {
        if self.dirty_generation != generation.0 {
            self.dirty_generation = generation.0;
            meta.dirty_zones.lock().push(zone.clone());
        }
        if !self.is_unlogged && meta.intent.is_on() {
            self.is_unlogged = true;
            meta.intent.note_unlogged_zone(zone);
        }
    }

    /// Whether the zone could go: `Some(None)` if no index exists, `Some(index)` if only that of an empty inode block does.
    pub(crate) fn holds_nothing(&self) -> Option<Option<u16>> {
        match ZONE_INDEXES - self.free_indexes {
            0 => Some(None),
            1 if self.free_inodes == INODES_PER_BLOCK as u32 && self.taken.is_empty() => {
                let word = self.exists.iter().position(|w| *w != 0)?;
                Some(Some((word * 64) as u16 + self.exists[word].trailing_zeros() as u16))
            }
            _ => None,
        }
    }

    /// If nothing exists but the bitmap, and perhaps a block of free inodes: the index of that.
    pub(crate) fn only_bitmap(&self) -> Option<Option<u16>> {
        match ZONE_INDEXES - self.free_indexes {
            1 if self.has(0) => Some(None),
            2 if self.has(0) && self.free_inodes == INODES_PER_BLOCK as u32 && self.taken.is_empty() => {
                (1..ZONE_INDEXES as u16).find(|index| self.has(*index)).map(Some)
            }
            _ => None,
        }
    }

    fn free_inode_count(&self, index: usize) -> u32 {
        match self.inode_free[index] {
            NOT_INODES => 0,
            free => u32::from(free),
        }
    }

    /// Sets how many inodes of a block are free ([`NOT_INODES`]: it has none); tells whether that was not known.
    pub(crate) fn correct_free_inodes(&mut self, index: u16, free: u8) -> bool {
        let index = usize::from(index);
        if self.inode_free[index] == free {
            return false;
        }
        self.free_inodes -= self.free_inode_count(index);
        self.inode_free[index] = free;
        self.free_inodes += self.free_inode_count(index);
        self.inode_blocks_changed += 1;
        true
    }

    /// An inode block with a free inode that nobody has reserved. O(1) while the last one found has room.
    pub(crate) fn find_inode_block(&mut self) -> Option<u16> {
        if self.free_inodes == 0 || self.closed {
            return None;
        }
        for index in (self.inode_hint..INDEXES).chain(0..self.inode_hint) {
            let free = self.free_inode_count(index);
            if free > 0 && free > self.taken.get(&(index as u16)).map_or(0, |m| m.count_ones()) {
                self.inode_hint = index;
                return Some(index as u16);
            }
        }
        None
    }
}

impl Zone {
    pub(crate) fn new(header: &ZoneHeader, free_blocks: u32, header_slot: u8) -> Arc<Zone> {
        let state = Mutex::new(ZoneState::from_header(header, free_blocks, header_slot));
        Arc::new(Zone { no: header.zone, place: header.place, group: header.group, state })
    }

    /// A frame of the zone is dirty, or to be logged, and was not before.
    pub(crate) fn note_changed(
        self: &Arc<Self>,
        meta: &Meta,
        generation: Generation,
        frame: &Frame,
        news: News,
    ) {
        let mut s = self.state.lock();
        s.mark_dirty(self, meta, generation);
        if meta.intent.is_on() {
            s.unlogged.push(frame.clone());
            meta.intent.note_unlogged_frame();
        }
        if news == News::Dirty {
            s.dirty.push(frame.clone());
            drop(s);
            meta.note_dirty_frame();
        }
    }

    pub(crate) fn touch(
        self: &Arc<Self>,
        meta: &Meta,
        generation: Generation,
        f: impl FnOnce(&mut ZoneState),
    ) {
        let mut s = self.state.lock();
        s.mark_dirty(self, meta, generation);
        f(&mut s);
    }

    /// Takes one reserved index.
    pub(crate) fn allocate_index(self: &Arc<Self>, meta: &Meta, generation: Generation) -> u16 {
        let mut s = self.state.lock();
        s.mark_dirty(self, meta, generation);
        let word = s.exists.iter().position(|w| *w != u64::MAX).expect("a reserved index is free");
        let index = word * 64 + s.exists[word].trailing_ones() as usize;
        assert!(index < INDEXES && s.free_indexes > 0, "zone {} has no free index", self.no);
        s.exists[word] |= 1 << (index % 64);
        s.free_indexes -= 1;
        s.reserved = s.reserved.saturating_sub(1);
        s.inode_free[index] = NOT_INODES;
        index as u16
    }

    /// A new inode block is in the cache: its inodes may be reserved from now on.
    pub(crate) fn offer_inodes(self: &Arc<Self>, meta: &Meta, generation: Generation, index: u16) {
        self.touch(meta, generation, |s| {
            s.inode_free[usize::from(index)] = INODES_PER_BLOCK as u8;
            s.free_inodes += INODES_PER_BLOCK as u32;
            s.inode_blocks_changed += 1;
        });
    }

    pub(crate) fn free_index(self: &Arc<Self>, meta: &Meta, generation: Generation, index: u16) {
        let mut s = self.state.lock();
        s.mark_dirty(self, meta, generation);
        assert!(s.has(index), "index {index} of zone {} freed twice", self.no);
        s.exists[usize::from(index) / 64] &= !(1 << (index % 64));
        s.free_indexes += 1;
        s.inode_free[usize::from(index)] = NOT_INODES;
        if !self.no.is_primary() && s.holds_nothing().is_some() {
            meta.zones.note_empty(self.no);
        }
    }

    /// Counts an inode as free. True: the block is empty and not worth keeping, so it is to be freed.
    pub(crate) fn free_inode(self: &Arc<Self>, meta: &Meta, generation: Generation, index: u16) -> bool {
        let mut s = self.state.lock();
        s.mark_dirty(self, meta, generation);
        let i = usize::from(index);
        assert!(is_inode_block(s.inode_free[i]) && usize::from(s.inode_free[i]) < INODES_PER_BLOCK);
        s.inode_free[i] += 1;
        s.free_inodes += 1;
        let full = INODES_PER_BLOCK as u8;
        if s.inode_free[i] < full || s.taken.contains_key(&index) {
            return false;
        }
        // One empty block stays for the next inode.
        if s.free_inodes < 2 * u32::from(full) {
            if !self.no.is_primary() && s.holds_nothing().is_some() {
                meta.zones.note_empty(self.no);
            }
            return false;
        }
        s.inode_free[i] = NOT_INODES;
        s.free_inodes -= u32::from(full);
        s.inode_blocks_changed += 1;
        true
    }

    pub(crate) fn freeze(self: &Arc<Self>) -> FrozenZone {
        let mut s = self.state.lock();
        s.dirty_generation = 0;
        // The log's part in this generation is over: frames forget what is unlogged with their next change.
        s.is_unlogged = false;
        s.unlogged.clear();
        FrozenZone {
            zone: self.clone(),
            dirty: std::mem::take(&mut s.dirty),
            exists: s.exists,
            inode_free: s.inode_free.clone(),
            extras: s.extras,
            free_blocks: s.free_blocks,
            free_indexes: s.free_indexes,
            free_inodes: s.free_inodes,
            removed: s.removed,
        }
    }
}

/// The zones in memory, and the zone table they are found through.
pub(crate) struct Zones {
    map: RwLock<HashMap<ZoneNo, Arc<Zone>>>,
    /// Numbers found free for further zones, taken by the Ops that make them.
    spare_numbers: Mutex<Vec<u32>>,
    /// Where the search for the next number goes on.
    next_number: Mutex<u32>,
    empty: Mutex<Vec<ZoneNo>>,
}

impl Zones {
    pub(crate) fn new() -> Zones {
        Zones {
            map: RwLock::new(HashMap::new()),
            spare_numbers: Mutex::new(Vec::new()),
            next_number: Mutex::new(1),
            empty: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn loaded(&self, no: ZoneNo) -> Option<Arc<Zone>> {
        self.map.read().get(&no).cloned()
    }

    /// The zone with this number, read if need be; `None` if the table says that there is none.
    pub(crate) fn get(&self, meta: &Meta, no: ZoneNo) -> Result<Option<Arc<Zone>>> {
        if let Some(zone) = self.loaded(no) {
            return Ok(Some(zone));
        }
        let entry = meta.table_entry(no)?;
        if !entry.is_present() {
            return Ok(None);
        }
        let header = read_header(meta, no, &entry)?;
        let zone = Zone::new(&header, u32::from(entry.free_blocks.get()), entry.header_slot);
        Ok(Some(self.map.write().entry(no).or_insert(zone).clone()))
    }

    pub(crate) fn create(&self, meta: &Meta, no: ZoneNo, place: BlockNo, group: GroupNo) -> Arc<Zone> {
        let header = ZoneHeader::empty(meta.uuid, meta.geometry().blocks, place, no, group);
        let zone = Zone::new(&header, 0, 1);
        meta.totals.zones.add(1);
        meta.intent.lose();
        meta.raise_zone_limit(no.0 + 1);
        let old = self.map.write().insert(no, zone.clone());
        assert!(old.is_none(), "zone {no} made twice");
        zone
    }

    pub(crate) fn create_extra(&self, meta: &Meta, generation: Generation, group: GroupNo, place: BlockNo) {
        let no = self.spare_numbers.lock().pop().expect("a number was prepared for the zone");
        let primary = self.loaded(ZoneNo::primary(group)).expect("the group's first zone is kept in memory");
        primary.touch(meta, generation, |s| {
            let free = s.extras.iter_mut().find(|e| **e == 0).expect("a group has room for 31 further zones");
            *free = no;
        });
        let zone = self.create(meta, ZoneNo(no), place, group);
        zone.touch(meta, generation, |_| {});
    }

    /// Takes an empty further zone out of the group; the caller frees its blocks.
    pub(crate) fn remove_extra(&self, meta: &Meta, generation: Generation, zone: &Arc<Zone>) {
        let primary =
            self.loaded(ZoneNo::primary(zone.group)).expect("the group's first zone is kept in memory");
        primary.touch(meta, generation, |s| {
            let entry = s.extras.iter_mut().find(|e| **e == zone.no.0).expect("the group lists its zones");
            *entry = 0;
        });
        zone.touch(meta, generation, |s| {
            assert!(s.closed && s.free_indexes == ZONE_INDEXES, "zone {} is not empty", zone.no);
            s.removed = true;
        });
        meta.totals.zones.add(-1);
        meta.intent.lose();
    }

    /// Forgets a removed zone once its removal is committed; its number may be used again.
    pub(crate) fn forget(&self, no: ZoneNo) {
        self.map.write().remove(&no);
        if no.is_primary() {
            return;
        }
        let mut next = self.next_number.lock();
        *next = (*next).min(no.0);
    }

    pub(crate) fn note_empty(&self, no: ZoneNo) {
        self.empty.lock().push(no);
    }

    /// A further zone that holds nothing, closed against reservations, for the store to remove.
    pub(crate) fn take_empty(&self) -> Option<Arc<Zone>> {
        loop {
            let no = self.empty.lock().pop()?;
            let Some(zone) = self.loaded(no) else { continue };
            let lists = |primary: Arc<Zone>| primary.state.lock().extras.contains(&no.0);
            if !self.loaded(ZoneNo::primary(zone.group)).is_some_and(lists) {
                // The medium has a zone that its group does not list. It stays, for the checker to find.
                continue;
            }
            let mut s = zone.state.lock();
            if s.holds_nothing().is_some() && s.reserved == 0 && !s.closed {
                s.closed = true;
                drop(s);
                return Some(zone);
            }
        }
    }

    pub(crate) fn count_free_blocks(&self, meta: &Meta, generation: Generation, group: GroupNo, by: i64) {
        let primary =
            self.loaded(ZoneNo::primary(group)).expect("a group that is used has its zone in memory");
        primary.touch(meta, generation, |s| {
            s.free_blocks = u32::try_from(i64::from(s.free_blocks) + by).expect("free blocks of a group");
        });
    }

    /// Finds a number for a further zone whose table block is in memory and has a home.
    pub(crate) fn prepare_number(&self, meta: &Meta) -> Result<bool> {
        let limit =
            meta.root_zones_in_a_row() * ZONE_INDEXES * yore_format::layout::ZONE_TABLE_ENTRIES as u32;
        let mut next = self.next_number.lock();
        while *next < limit {
            let no = *next;
            *next += 2;
            let mut spare = self.spare_numbers.lock();
            let known = spare.contains(&no) || self.loaded(ZoneNo(no)).is_some();
            if !known && !meta.table_entry(ZoneNo(no))?.is_present() {
                spare.push(no);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Reads a zone's current header and checks it against what the table (or superblock) says of it.
pub(crate) fn read_header(meta: &Meta, no: ZoneNo, entry: &ZoneTableEntry) -> Result<ZoneHeader> {
    let place = BlockNo(entry.place.get());
    let wrong = |field, expected: String, found: String| {
        Corruption::new("zone table", field, expected, found).at(ZoneHeader::addr(no))
    };
    let place_ok = meta.geometry().is_zone_place(place) || (no == ZoneNo::root(0) && place.0 == 0);
    if !place_ok || entry.header_slot > 1 {
        return Err(wrong("place", "a zone's place".into(), place.to_string()).into());
    }
    let at = BlockNo(place.0 + HEADER_SLOTS[usize::from(entry.header_slot)]);
    let block = meta.read_block(at)?;
    verify_header(&block, ZoneHeader::addr(no), meta.volume_tag, at)?;
    let header = ZoneHeader::decode(&block)?;
    let stored = yore_format::BlockHeader::of(&block).crc.get();
    if header.generation.0 != entry.generation.get() || stored != entry.crc.get() {
        let expected = format!("generation {} with checksum {:#010x}", entry.generation, entry.crc);
        return Err(wrong(
            "header",
            expected,
            format!("generation {} with checksum {stored:#010x}", header.generation),
        )
        .on(at)
        .into());
    }
    if header.place != place
        || header.zone != no
        || (!no.is_root() && header.group != meta.geometry().group_of(place))
        || (no.is_primary() && place != meta.geometry().primary_zone_place(GroupNo(no.0 / 2)))
        || !meta.may_have_been_long(header.volume_blocks)
        || header.uuid != meta.uuid
    {
        return Err(wrong(
            "header's identity",
            format!("zone {no} at {place}, in that group"),
            format!("zone {} at {} of group {}", header.zone, header.place, header.group),
        )
        .on(at)
        .into());
    }
    Ok(header)
}
