//! Reservations: an Op takes what it may need before it opens (R6), so that it cannot fail.
//!
//! Metadata blocks are reserved by count, in one zone, or in several when no zone has room for all of them;
//! inodes by slot. Every zone keeps [`SPARE_INDEXES`] indexes that only deleting may reserve, so a full
//! volume can always be emptied (R8).
//!
//! A block of inodes that is damaged or cannot be read is passed over: a new one is as good.

use crate::blocks::Blocks;
use crate::error::{is_of_place, MetaError, Result};
use crate::zones::reserve::Marked;
use crate::zones::zone::{Frame, Zone};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use yore_format::layout::ZONE_BLOCKS;
use yore_format::{BlockKind, BlockNo, Corruption, Expect, Generation, GroupNo, InodeNo, MetaAddr, ZoneNo};

/// Indexes that each zone keeps for deleting.
pub(crate) const SPARE_INDEXES: u32 = 16;
/// Free indexes of a zone that is worth going to: in a zone with fewer, the next caller would have to search
/// again.
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

/// For each group, where room was found last. A wrong guess costs nothing, so groups share places.
struct Hints([AtomicU64; 64]);

impl Hints {
    fn new() -> Hints {
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
    /// In further zones, when no zone had room for all of them.
    more: Vec<(Arc<Zone>, u32)>,
}

impl Reserved {
    /// For an Op that makes no blocks.
    pub fn none() -> Reserved {
        Reserved::default()
    }

    pub(crate) fn take_block(&mut self) -> Arc<Zone> {
        if self.left == 0 {
            let (zone, blocks) = self.more.pop().expect("an Op takes more blocks than it reserved");
            (self.zone, self.left) = (Some(zone), blocks);
        }
        self.left -= 1;
        self.zone.clone().expect("a reservation has a zone")
    }

    /// Adds blocks of another zone.
    fn join(&mut self, zone: Arc<Zone>, blocks: u32) {
        self.more.push((zone, blocks));
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let (Some(zone), 1..) = (&self.zone, self.left) {
            zone.unreserve(self.left);
        }
        for (zone, blocks) in &self.more {
            zone.unreserve(*blocks);
        }
    }
}

/// A free inode set aside for one Op. Dropping it unused gives it back.
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

    /// The inode is in use from now on.
    pub(crate) fn take(mut self, blocks: &Blocks, generation: Generation) {
        self.used = true;
        self.zone.take_inode(&blocks.zones.changes, generation, self.inode);
    }
}

impl Drop for ReservedInode {
    fn drop(&mut self) {
        if !self.used {
            self.zone.unmark_inode(self.inode);
        }
    }
}

/// Where room was found last.
pub(crate) struct Space {
    block_hints: Hints,
    inode_hints: Hints,
}

impl Space {
    pub(crate) fn new() -> Space {
        Space { block_hints: Hints::new(), inode_hints: Hints::new() }
    }

    /// Sets `count` metadata blocks aside, in a zone of group `near` or wherever those of that group went
    /// last.
    #[inline]
    pub(crate) fn reserve(&self, blocks: &Blocks, near: GroupNo, count: u32) -> Result<Reserved> {
        blocks.base.progress.check_writable()?;
        blocks.throttle();
        if count == 0 {
            return Ok(Reserved::none());
        }
        if let Some(zone) = self.block_hints.get(near).and_then(|no| blocks.zones.loaded(no)) {
            if let Some(r) = reserve_in_zone(&zone, count, SPARE_INDEXES) {
                return Ok(r);
            }
        }
        match self.reserve_in_group(blocks, near, count)? {
            Some(r) => Ok(r),
            None => Err(MetaError::NeedZone { near }),
        }
    }

    /// As [`Space::reserve`], in whichever zone has as much room as `room` says; unless that is plenty, in
    /// several zones when none has so much.
    pub(crate) fn reserve_elsewhere(
        &self,
        blocks: &Blocks,
        near: GroupNo,
        count: u32,
        room: Room,
    ) -> Result<Reserved> {
        blocks.base.progress.check_writable()?;
        if count == 0 {
            return Ok(Reserved::none());
        }
        let spare = match room {
            Room::Plenty => PLENTY_INDEXES,
            Room::Ordinary => SPARE_INDEXES,
            Room::Deleting => 0,
        };
        let mut found = None;
        self.each_zone(blocks, near, count + spare, &mut |zone| {
            found = reserve_in_zone(zone, count, spare);
            if found.is_some() {
                self.block_hints.set(near, zone.no);
            }
            found.is_none()
        })?;
        if found.is_none() && room != Room::Plenty && count > 1 {
            found = self.reserve_in_several(blocks, near, count, spare)?;
        }
        found.ok_or(MetaError::NeedZone { near })
    }

    /// Sets metadata blocks aside in as many zones as it takes; `None` if all zones together have not so
    /// many.
    fn reserve_in_several(
        &self,
        blocks: &Blocks,
        near: GroupNo,
        count: u32,
        spare: u32,
    ) -> Result<Option<Reserved>> {
        let (mut reserved, mut left) = (Reserved::none(), count);
        self.each_zone(blocks, near, spare + 1, &mut |zone| {
            let taken = zone.reserve_most(left, spare);
            if taken > 0 {
                reserved.join(zone.clone(), taken);
                left -= taken;
            }
            left > 0
        })?;
        Ok((left == 0).then_some(reserved))
    }

    /// Calls `visit` for zones that may have so many free indexes, until it returns false. It begins where
    /// room was found last.
    fn each_zone(
        &self,
        blocks: &Blocks,
        near: GroupNo,
        free: u32,
        visit: &mut dyn FnMut(&Arc<Zone>) -> bool,
    ) -> Result<()> {
        let zones = &blocks.zones;
        let limit = zones.limit();
        let from = self.block_hints.get(near).map_or(0, |no| no.0);
        for no in (0..limit).map(|i| ZoneNo((from + i) % limit)) {
            // The table's count is of the last commit; a zone in memory knows better.
            let may_have = match zones.loaded(no) {
                Some(_) => true,
                None => {
                    let entry = zones.table.entry(&blocks.base.medium, no)?;
                    // After a crash under an engine that orders changes that count is a hint.
                    let is_known = blocks.base.medium.found().in_place_since.0 == 0;
                    entry.is_present() && (!is_known || u32::from(entry.free_indexes.get()) >= free)
                }
            };
            if !may_have {
                continue;
            }
            match zones.get(&blocks.base, no)? {
                Some(zone) if !visit(&zone) => return Ok(()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Sets metadata blocks aside in one of the group's zones.
    pub(crate) fn reserve_in(&self, blocks: &Blocks, group: GroupNo, count: u32) -> Result<Option<Reserved>> {
        blocks.base.progress.check_writable()?;
        blocks.throttle();
        self.reserve_in_group(blocks, group, count)
    }

    fn reserve_in_group(&self, blocks: &Blocks, group: GroupNo, count: u32) -> Result<Option<Reserved>> {
        let primary = ZoneNo::primary(group);
        let Some(primary) = blocks.zones.get(&blocks.base, primary)? else { return Ok(None) };
        if let Some(r) = reserve_in_zone(&primary, count, SPARE_INDEXES) {
            self.block_hints.set(group, primary.no);
            return Ok(Some(r));
        }
        for zone in blocks.zones.of_group(&blocks.base, group)?.into_iter().skip(1) {
            if let Some(r) = reserve_in_zone(&zone, count, SPARE_INDEXES) {
                self.block_hints.set(group, zone.no);
                return Ok(Some(r));
            }
        }
        Ok(None)
    }

    /// Sets a free inode aside, in group `near` or wherever that group's inodes or blocks went last.
    pub(crate) fn reserve_inode(&self, blocks: &Blocks, near: GroupNo) -> Result<Option<ReservedInode>> {
        blocks.base.progress.check_writable()?;
        if let Some(zone) = self.inode_hints.get(near).and_then(|no| blocks.zones.loaded(no)) {
            if let Some(r) = reserve_inode_in(blocks, &zone)? {
                return Ok(Some(r));
            }
        }
        let mut zones = blocks.zones.of_group(&blocks.base, near)?;
        // Where the group's blocks go when its own zones are full, its inode blocks go, too.
        zones.extend(self.block_hints.get(near).and_then(|no| blocks.zones.loaded(no)));
        for zone in zones {
            if let Some(r) = reserve_inode_in(blocks, &zone)? {
                self.inode_hints.set(near, zone.no);
                return Ok(Some(r));
            }
        }
        Ok(None)
    }
}

fn reserve_in_zone(zone: &Arc<Zone>, count: u32, spare: u32) -> Option<Reserved> {
    zone.reserve(count, spare).then(|| Reserved { zone: Some(zone.clone()), left: count, more: Vec::new() })
}

fn reserve_inode_in(blocks: &Blocks, zone: &Arc<Zone>) -> Result<Option<ReservedInode>> {
    loop {
        let Some((index, state)) = zone.find_inode_block() else { return Ok(None) };
        let read = blocks.read(MetaAddr::new(zone.no, index), &Expect::volume(BlockKind::Inodes));
        let error = match read {
            Ok(frame) => match zone.mark_inode(index, state, &frame) {
                Marked::Again => continue,
                Marked::Slot(slot) => {
                    let inode = InodeNo::new(frame.addr(), slot as u8);
                    return Ok(Some(ReservedInode { zone: zone.clone(), frame, inode, used: false }));
                }
                Marked::Wrong(free) => {
                    // The zone header counts free inodes that the block does not have.
                    let c = Corruption::new("zone header", "free inodes", "as many as free slots", free);
                    c.at(frame.addr()).into()
                }
            },
            Err(_) if zone.inode_blocks_moved(state) => continue,
            Err(error) => error,
        };
        // Whoever wants one of the block's inodes is told of it.
        let may_pass = match &error {
            MetaError::Corruption(_) => false,
            MetaError::Device(error) if is_of_place(error) => true,
            _ => return Err(error),
        };
        tracing::warn!("new inodes are made elsewhere until the volume is opened again: {error}");
        zone.pass_over_inodes(index, state);
        if may_pass {
            // If the device is only out of reach for a moment, this is the only block that is lost.
            return Ok(None);
        }
    }
}

/// The first of these blocks that cannot be data although they lie in the group's data area: a zone's, or the
/// log's.
pub(crate) fn taken_block(
    blocks: &Blocks,
    group: GroupNo,
    start: BlockNo,
    len: u32,
) -> Result<Option<BlockNo>> {
    let end = start.0 + u64::from(len);
    let meets = |from: u64, blocks: u64| {
        (start.0 < from.saturating_add(blocks) && from < end).then(|| BlockNo(from.max(start.0)))
    };
    let (medium, zones) = (&blocks.base.medium, &blocks.zones);
    let (first, log) = (medium.geometry().primary_zone_start(group), medium.log_blocks());
    let fixed = meets(first.0, ZONE_BLOCKS).or_else(|| meets(log.start, log.end - log.start));
    if fixed.is_some() {
        return Ok(fixed);
    }
    let Some(primary) = zones.get(&blocks.base, ZoneNo::primary(group))? else { return Ok(None) };
    for no in primary.extras() {
        let start = match zones.loaded(no) {
            Some(zone) => zone.start.0,
            None => zones.table.entry(medium, no)?.start.get(),
        };
        if let Some(block) = meets(start, ZONE_BLOCKS).filter(|_| start != 0) {
            return Ok(Some(block));
        }
    }
    if zones.table.root_count() > 1 {
        return Ok(zones.table.find_root(|start| meets(start.0, ZONE_BLOCKS)));
    }
    Ok(None)
}

/// What is known about a group without reading its bitmap.
pub(crate) fn group_summary(blocks: &Blocks, group: GroupNo) -> Result<GroupSummary> {
    let primary = ZoneNo::primary(group);
    if let Some(zone) = blocks.zones.loaded(primary) {
        return Ok(GroupSummary { initialised: true, free_blocks: zone.free_blocks() });
    }
    let medium = &blocks.base.medium;
    let entry = blocks.zones.table.entry(medium, primary)?;
    if !entry.is_present() {
        let free_blocks = medium.geometry().data_blocks(group) as u32;
        return Ok(GroupSummary { initialised: false, free_blocks });
    }
    // After a crash under an engine that orders changes the table's count is a hint. The zone is settled when
    // it is read.
    let settled = match medium.found().in_place_since.0 {
        0 => None,
        _ => blocks.zones.get(&blocks.base, primary)?,
    };
    let free_blocks = settled.map_or(u32::from(entry.free_blocks.get()), |zone| zone.free_blocks());
    Ok(GroupSummary { initialised: true, free_blocks })
}
