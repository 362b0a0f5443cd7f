//! Ops that make zones and take them away (R8).

use super::{NewBlock, Op};
use crate::blocks::Blocks;
use crate::zones::zone::{Frame, Zone};
use std::sync::Arc;
use yore_format::{BlockKind, BlockNo, EventNo, GroupNo, Incarnation, InodeNo, MetaAddr, TableNo, ZoneNo};

/// A further zone that holds nothing and is closed against reservations.
pub struct EmptyZone(Arc<Zone>);

impl Drop for EmptyZone {
    /// If the zone was not removed after all, it may be used again.
    fn drop(&mut self) {
        self.0.reopen();
    }
}

impl EmptyZone {
    /// One that holds nothing, if there is any.
    pub(crate) fn take(blocks: &Blocks) -> Option<EmptyZone> {
        blocks.zones.take_empty().map(EmptyZone)
    }

    /// Its group.
    pub fn group(&self) -> GroupNo {
        self.0.group
    }

    /// Its first block.
    pub fn start(&self) -> BlockNo {
        self.0.start
    }
}

impl Op<'_> {
    /// Makes the first zone of a group that was never used, with its bitmap; returns the bitmap's frame. Its
    /// place is set aside. A group whose table entries have no home yet also gets a root zone, in the first
    /// 1,024 blocks of its data area, which its bitmap then shows as used. Call
    /// [`crate::Meta::prepare_group`] before the Op.
    pub fn create_primary_zone(&mut self, group: GroupNo) -> Frame {
        let blocks = &self.rooms.blocks;
        let (geometry, changes) = (blocks.base.medium.geometry(), &blocks.zones.changes);
        let start = geometry.primary_zone_start(group);
        let zone = blocks.zones.create(&blocks.base, ZoneNo::primary(group), start, group);
        // Nobody else finds the zone yet, so nobody has reserved this index, or another.
        let index = zone.allocate_index(changes, self.generation);
        assert_eq!(index, 0, "a new zone's first block is its bitmap");
        let new = NewBlock {
            kind: BlockKind::Bitmap,
            level: 0,
            owner: InodeNo::NONE,
            incarnation: Incarnation(0),
            birth: EventNo(0),
        };
        self.be_whole();
        let (frame, _) = self.install(&zone, 0, new);
        let usable = geometry.data_blocks(group) as u32;
        let root = blocks.zones.table.make_root_for(&blocks.base.medium, zone.no, geometry.data_start(group));
        let taken = if root { yore_format::layout::ZONE_BLOCKS as u32 } else { 0 };
        self.change(&frame, |page| {
            page.apply(|b| {
                yore_format::BitmapMut::init(b, usable).set(0, taken, true);
                yore_format::Touched::whole(0..yore_format::BITS_PER_GROUP as usize)
            })
        });
        let totals = blocks.base.ledger.totals();
        totals.zones.add(i64::from(root));
        totals.free_blocks.add(-i64::from(taken));
        zone.set_free_blocks(changes, self.generation, usable - taken);
        blocks.zones.enter(&zone);
        frame
    }

    /// Makes a further zone of `group` at `start`: 1,024 aligned blocks that the caller has just marked used
    /// in the group's bitmap. `primary` keeps the group's first zone in memory.
    ///
    /// # Panics
    /// If the group already has all 31 further zones.
    pub fn create_zone(&mut self, group: GroupNo, start: BlockNo) {
        self.be_whole();
        self.rooms.blocks.zones.create_extra(&self.rooms.blocks.base, self.generation, group, start);
    }

    /// Makes a table of a group, of zeros, from a reservation in that group
    /// ([`crate::Meta::reserve_in_group`]). Records of the log do not say so, so the next fsync completes a
    /// generation.
    ///
    /// # Panics
    /// If the reservation is in another group, or the table is there already.
    pub fn create_table(&mut self, kind: BlockKind, table: TableNo) -> Frame {
        self.be_whole();
        let zones = &self.rooms.blocks.zones;
        let primary =
            zones.loaded(ZoneNo::primary(table.group())).expect("the group's first zone is in memory");
        assert!(primary.table(kind, table.number()).is_none(), "{} is made twice", kind.name());
        let new =
            NewBlock { kind, level: 0, owner: table.owner(), incarnation: Incarnation(0), birth: EventNo(0) };
        let (frame, _) = self.allocate(new);
        assert_eq!(frame.home().group, table.group(), "a table outside of its group");
        let which = (kind, table.number());
        primary.set_table(&zones.changes, self.generation, which, Some(frame.addr()));
        zones.changes.lose();
        frame
    }

    /// Where a group has its table of this kind and number, if its first zone is in memory and it has one.
    pub fn table(&self, kind: BlockKind, table: TableNo) -> Option<MetaAddr> {
        self.rooms.blocks.zones.loaded(ZoneNo::primary(table.group()))?.table(kind, table.number())
    }

    /// Gives a table of zeros back. As for [`Op::create_table`], only a generation makes that durable.
    pub fn remove_table(&mut self, kind: BlockKind, table: TableNo, frame: Frame) {
        self.be_whole();
        let zones = &self.rooms.blocks.zones;
        let primary =
            zones.loaded(ZoneNo::primary(table.group())).expect("the group's first zone is in memory");
        primary.set_table(&zones.changes, self.generation, (kind, table.number()), None);
        zones.changes.lose();
        let _ = self.free(frame);
    }

    /// Takes an empty further zone (from [`crate::Meta::take_empty_zone`]) out of its group. The caller frees
    /// its 1,024 blocks in the bitmap, with [`Op::free_after_commit`].
    pub fn remove_zone(&mut self, zone: &EmptyZone) {
        self.be_whole();
        let blocks = &self.rooms.blocks;
        // The empty inode block that was kept for the next inode goes with it.
        if let Some(index) = zone.0.last_block() {
            let addr = MetaAddr::new(zone.0.no, index);
            if let Some(frame) = self.cached(addr) {
                frame.kill(self.generation);
            }
            zone.0.clear_free_inodes(&blocks.zones.changes, self.generation);
            blocks.remove(&zone.0, self.generation, addr);
        }
        blocks.zones.remove_extra(&blocks.base, self.generation, &zone.0);
    }

    /// Takes away the first zone of a group that goes, with its bitmap. [`crate::Meta::close_if_empty`] has
    /// said that it may.
    ///
    /// # Panics
    /// If it was not asked.
    pub fn remove_primary_zone(&mut self, group: GroupNo) {
        let blocks = &self.rooms.blocks;
        let (changes, generation) = (&blocks.zones.changes, self.generation);
        let Some(zone) = blocks.zones.loaded(ZoneNo::primary(group)) else { return };
        let (last, free) = zone.last_beside_bitmap();
        for index in [Some(0), last].into_iter().flatten() {
            let addr = MetaAddr::new(zone.no, index);
            if let Some(frame) = self.cached(addr) {
                frame.kill(generation);
            }
            blocks.remove(&zone, generation, addr);
        }
        zone.clear_free_inodes(changes, generation);
        blocks.base.ledger.totals().free_blocks.add(-i64::from(free));
        blocks.zones.remove(&blocks.base, generation, &zone);
    }
}
