//! Reservations: what an Op may need, taken before it opens (R6), so that it cannot fail.
//!
//! Metadata blocks are reserved by count in one zone; inodes by slot. Every zone keeps [`SPARE_INDEXES`] indexes that
//! only deleting may reserve, so a full volume can always be emptied (R8).

use crate::cache::Frame;
use crate::error::{MetaError, Result};
use crate::meta::Meta;
use crate::zones::zone::Zone;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use yore_format::layout::ZONE_BLOCKS;
use yore_format::{
    BlockKind, BlockNo, Expect, Generation, GroupNo, Inode, InodeNo, MetaAddr, ZoneNo, INODES_PER_BLOCK,
};

/// Indexes of each zone that are kept for deleting.
pub(crate) const SPARE_INDEXES: u32 = 16;
/// Free indexes of a zone that is worth going to: in one with less the next caller would have to look again.
const PLENTY_INDEXES: u32 = 128;

/// How much room a zone must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Enough for many more.
    Plenty,
    /// Enough, beside what is kept for deleting.
    Ordinary,
    /// Also what is kept for deleting.
    Deleting,
}

/// For each group, where room was found last. A guess that costs nothing to get wrong: groups share places.
pub(crate) struct Hints([AtomicU64; 64]);

impl Hints {
    pub(crate) fn new() -> Hints {
        Hints(std::array::from_fn(|_| AtomicU64::new(u64::MAX)))
    }

    fn get(&self, group: GroupNo) -> Option<ZoneNo> {
        let hint = self.0[group.0 as usize % 64].load(Ordering::Relaxed);
        (hint >> 32 == u64::from(group.0)).then_some(ZoneNo(hint as u32))
    }

    fn set(&self, group: GroupNo, zone: ZoneNo) {
        let hint = u64::from(group.0) << 32 | u64::from(zone.0);
        self.0[group.0 as usize % 64].store(hint, Ordering::Relaxed);
    }
}

/// What is known about a group without reading its bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSummary {
    /// Whether it was ever used; if not, it has no zone and all of its data blocks are free.
    pub initialised: bool,
    /// Clear bits in its bitmap.
    pub free_blocks: u32,
}

/// Metadata blocks set aside for one Op. What it does not take goes back when this is dropped.
#[derive(Default)]
pub struct Reserved {
    zone: Option<Arc<Zone>>,
    left: u32,
}

impl Reserved {
    /// For an Op that makes no blocks.
    pub fn none() -> Reserved {
        Reserved::default()
    }

    pub(crate) fn take_block(&mut self) -> Arc<Zone> {
        assert!(self.left > 0, "an Op takes more blocks than it reserved");
        self.left -= 1;
        self.zone.clone().expect("a reservation has a zone")
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let (Some(zone), 1..) = (&self.zone, self.left) {
            zone.state.lock().reserved -= self.left;
        }
    }
}

/// A free inode set aside for one Op. Given back when dropped unused.
pub struct ReservedInode {
    zone: Arc<Zone>,
    frame: Frame,
    inode: InodeNo,
    used: bool,
}

impl ReservedInode {
    /// Its number.
    pub fn inode(&self) -> InodeNo {
        self.inode
    }

    /// Its inode block.
    pub fn frame(&self) -> &Frame {
        &self.frame
    }

    fn clear_mark(&self, state: &mut crate::zones::zone::ZoneState) {
        let index = self.inode.addr().index();
        if let Some(mask) = state.taken.get_mut(&index) {
            *mask &= !(1 << self.inode.slot());
            if *mask == 0 {
                state.taken.remove(&index);
            }
        }
    }

    pub(crate) fn take(mut self, meta: &Meta, generation: Generation) {
        self.used = true;
        self.zone.touch(meta, generation, |s| {
            self.clear_mark(s);
            let free = &mut s.inode_free[usize::from(self.inode.addr().index())];
            assert!(
                *free > 0 && *free <= INODES_PER_BLOCK as u8,
                "reserved inode {} is not free",
                self.inode
            );
            *free -= 1;
            s.free_inodes -= 1;
        });
    }
}

impl Drop for ReservedInode {
    fn drop(&mut self) {
        if !self.used {
            self.clear_mark(&mut self.zone.state.lock());
        }
    }
}

impl Meta {
    /// Sets `blocks` metadata blocks aside, in a zone of group `near` or wherever those of that group went last. Slows the
    /// caller down while too much is dirty. Not to be called with an Op open.
    ///
    /// # Errors
    /// [`MetaError::NeedZone`] if there is no room (the store then makes a zone, or calls [`Meta::reserve_elsewhere`]);
    /// [`MetaError::ReadOnly`], [`MetaError::Stopped`].
    pub fn reserve(&self, near: GroupNo, blocks: u32) -> Result<Reserved> {
        self.check_writable()?;
        self.throttle();
        if blocks == 0 {
            return Ok(Reserved::none());
        }
        if let Some(zone) = self.block_hints.get(near).and_then(|no| self.zones.loaded(no)) {
            if let Some(r) = reserve_in_zone(&zone, blocks, SPARE_INDEXES) {
                return Ok(r);
            }
        }
        match self.reserve_in_group(near, blocks, SPARE_INDEXES)? {
            Some(r) => Ok(r),
            None => Err(MetaError::NeedZone { near }),
        }
    }

    /// As [`Meta::reserve`], in whichever zone has as much room as `room` says. Looks at all zones, from where it found
    /// room last, so it is for when the near ones are full.
    ///
    /// # Errors
    /// [`MetaError::NeedZone`] if no zone has that room.
    pub fn reserve_elsewhere(&self, near: GroupNo, blocks: u32, room: Room) -> Result<Reserved> {
        self.check_writable()?;
        if blocks == 0 {
            return Ok(Reserved::none());
        }
        let spare = match room {
            Room::Plenty => PLENTY_INDEXES,
            Room::Ordinary => SPARE_INDEXES,
            Room::Deleting => 0,
        };
        let limit = self.zone_limit();
        let from = self.block_hints.get(near).map_or(0, |no| no.0);
        for no in (0..limit).map(|i| ZoneNo((from + i) % limit)) {
            // The table's count is of the last commit; a zone in memory knows better.
            let room = match self.zones.loaded(no) {
                Some(_) => true,
                None => {
                    let entry = self.table_entry(no)?;
                    entry.is_present() && u32::from(entry.free_indexes.get()) >= blocks + spare
                }
            };
            if !room {
                continue;
            }
            if let Some(zone) = self.zones.get(self, no)? {
                if let Some(r) = reserve_in_zone(&zone, blocks, spare) {
                    self.block_hints.set(near, no);
                    return Ok(r);
                }
            }
        }
        Err(MetaError::NeedZone { near })
    }

    fn reserve_in_group(&self, group: GroupNo, blocks: u32, spare: u32) -> Result<Option<Reserved>> {
        let Some(primary) = self.zones.get(self, ZoneNo::primary(group))? else { return Ok(None) };
        if let Some(r) = reserve_in_zone(&primary, blocks, spare) {
            self.block_hints.set(group, primary.no);
            return Ok(Some(r));
        }
        for zone in self.extra_zones(&primary)? {
            if let Some(r) = reserve_in_zone(&zone, blocks, spare) {
                self.block_hints.set(group, zone.no);
                return Ok(Some(r));
            }
        }
        Ok(None)
    }

    pub(crate) fn extra_zones(&self, primary: &Arc<Zone>) -> Result<Vec<Arc<Zone>>> {
        let extras = primary.state.lock().extras;
        let mut zones = Vec::new();
        for no in extras.into_iter().filter(|e| *e != 0) {
            zones.extend(self.zones.get(self, ZoneNo(no))?);
        }
        Ok(zones)
    }

    /// The first of these blocks that cannot be data although they lie in the group's data area: a zone's, or the log's.
    ///
    /// # Errors
    /// Reading the zone table may fail.
    pub fn taken_block(&self, group: GroupNo, start: BlockNo, len: u32) -> Result<Option<BlockNo>> {
        let end = start.0 + u64::from(len);
        let meets = |from: u64, blocks: u64| {
            (start.0 < from.saturating_add(blocks) && from < end).then(|| BlockNo(from.max(start.0)))
        };
        let first = self.geometry().primary_zone_place(group);
        let fixed =
            meets(first.0, ZONE_BLOCKS).or_else(|| meets(self.found.log_start.0, self.found.log_blocks));
        if fixed.is_some() {
            return Ok(fixed);
        }
        let Some(primary) = self.zones.get(self, ZoneNo::primary(group))? else { return Ok(None) };
        let extras = primary.state.lock().extras;
        for no in extras.into_iter().filter(|no| *no != 0).map(ZoneNo) {
            let place = match self.zones.loaded(no) {
                Some(zone) => zone.place.0,
                None => self.table_entry(no)?.place.get(),
            };
            if let Some(block) = meets(place, ZONE_BLOCKS).filter(|_| place != 0) {
                return Ok(Some(block));
            }
        }
        if self.root_zone_count() > 1 {
            let roots = self.roots.lock();
            return Ok(roots.iter().flatten().find_map(|root| meets(root.place.0, ZONE_BLOCKS)));
        }
        Ok(None)
    }

    /// Sets a free inode aside, near the inode block or directory at `near`. `Ok(None)`: no inode block there has room;
    /// the caller opens an Op with one reserved block, calls [`crate::Op::add_inode_block`] and tries again.
    ///
    /// # Errors
    /// Reading the inode block may fail; [`MetaError::ReadOnly`], [`MetaError::Stopped`].
    pub fn reserve_inode(&self, near: GroupNo) -> Result<Option<ReservedInode>> {
        self.check_writable()?;
        if let Some(zone) = self.inode_hints.get(near).and_then(|no| self.zones.loaded(no)) {
            if let Some(r) = self.reserve_inode_in(&zone)? {
                return Ok(Some(r));
            }
        }
        let mut zones = Vec::new();
        if let Some(primary) = self.zones.get(self, ZoneNo::primary(near))? {
            zones = self.extra_zones(&primary)?;
            zones.insert(0, primary);
        }
        // Where the group's blocks go when its own zones are full, its inode blocks go, too.
        zones.extend(self.block_hints.get(near).and_then(|no| self.zones.loaded(no)));
        for zone in zones {
            if let Some(r) = self.reserve_inode_in(&zone)? {
                self.inode_hints.set(near, zone.no);
                return Ok(Some(r));
            }
        }
        Ok(None)
    }

    fn reserve_inode_in(&self, zone: &Arc<Zone>) -> Result<Option<ReservedInode>> {
        loop {
            let (index, changed) = {
                let mut s = zone.state.lock();
                let Some(index) = s.find_inode_block() else { return Ok(None) };
                (index, s.inode_blocks_changed)
            };
            let read = self.read(MetaAddr::new(zone.no, index), &Expect::volume(BlockKind::Inodes));
            let mut s = zone.state.lock();
            if s.inode_blocks_changed != changed {
                continue; // What we read may be freed by now, or another block under the same address.
            }
            let frame = read?;
            let taken = s.taken.get(&index).copied().unwrap_or(0);
            let free = s.inode_free[usize::from(index)];
            if free == yore_format::NOT_INODES || u32::from(free) <= taken.count_ones() {
                continue; // Taken by somebody else meanwhile.
            }
            let block = frame.read();
            let slot =
                (0..INODES_PER_BLOCK).find(|s| taken & (1 << s) == 0 && Inode::slot_is_free(&block, *s));
            drop(block);
            let Some(slot) = slot else {
                // Counted as free and not free: the zone header contradicts the block.
                let c =
                    yore_format::Corruption::new("zone header", "free inodes", "as many as free slots", free);
                return Err(c.at(frame.addr()).into());
            };
            *s.taken.entry(index).or_insert(0) |= 1 << slot;
            drop(s);
            let inode = InodeNo::new(frame.addr(), slot as u8);
            return Ok(Some(ReservedInode { zone: zone.clone(), frame, inode, used: false }));
        }
    }

    /// What is known about a group without reading its bitmap.
    ///
    /// # Errors
    /// Reading the zone table may fail.
    pub fn group_summary(&self, group: GroupNo) -> Result<GroupSummary> {
        if let Some(zone) = self.zones.loaded(ZoneNo::primary(group)) {
            return Ok(GroupSummary { initialised: true, free_blocks: zone.state.lock().free_blocks });
        }
        let entry = self.table_entry(ZoneNo::primary(group))?;
        if entry.is_present() {
            return Ok(GroupSummary { initialised: true, free_blocks: u32::from(entry.free_blocks.get()) });
        }
        Ok(GroupSummary { initialised: false, free_blocks: self.geometry().data_blocks(group) as u32 })
    }
}

fn reserve_in_zone(zone: &Arc<Zone>, blocks: u32, spare: u32) -> Option<Reserved> {
    let mut s = zone.state.lock();
    if s.closed || s.free_indexes < s.reserved + blocks + spare {
        return None;
    }
    s.reserved += blocks;
    Some(Reserved { zone: Some(zone.clone()), left: blocks })
}

impl Meta {
    /// The group that a zone in memory serves; group 0 if it is not in memory (a place to start looking, no more).
    pub fn zone_group(&self, zone: ZoneNo) -> GroupNo {
        self.zones.loaded(zone).map_or(GroupNo(0), |z| z.group)
    }

    /// Metadata blocks that fit the zones there are, roughly.
    pub fn free_index_estimate(&self) -> u64 {
        let root_zones = u64::from(self.root_zone_count());
        let zones = self.totals.zones.get().saturating_sub(root_zones);
        (zones * u64::from(yore_format::layout::ZONE_INDEXES))
            .saturating_sub(self.totals.metadata_blocks.get())
    }
}
