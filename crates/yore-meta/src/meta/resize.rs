//! Making a volume longer, or shorter.
//!
//! **Z1 Growing is one generation.** The Op that lengthens the volume is alone, and does all there is to do: the last group's bitmap
//! gets the bits that were beyond the end, groups that were not there are groups that were never used, and the totals
//! count both. The superblock of its generation has the new length. Before that arrives, the volume has the old one, and nothing that
//! counts lies beyond it; no record of the log says anything of this generation.
//!
//! **Z2 The device is long enough first.** It is lengthened, durably, before the Op.
//!
//! **Z3 Headers of zones keep the length that the volume had when they were written.** All of them would have to be written anew to change it.
//! So the volume gets a feature before, by which the length in them is not compared any more; that of the superblock counts.

//!
//! **Z4 Shrinking is one generation, too.** Nothing that counts may lie beyond the new end: the last group's blocks there are free, and
//! are marked used in the Op; groups beyond hold nothing but their bitmaps, and go with them. The device is shortened by who
//! closed the volume, when both superblocks have the new length.

use crate::error::{MetaError, Result};
use crate::meta::Meta;
use crate::op::Op;
use std::sync::atomic::Ordering;
use yore_format::layout::{Geometry, VOLUME_BLOCKS_MAX, VOLUME_BLOCKS_MIN};
use yore_format::{GroupNo, MetaAddr, WriteFeatures, ZoneNo, BLOCK_SIZE};

impl Meta {
    /// Whether a header of a zone may have this length of the volume.
    pub(crate) fn may_have_been_long(&self, blocks: u64) -> bool {
        blocks == self.geometry().blocks
            || (self.extensions.wanted().contains(WriteFeatures::RESIZED)
                && (VOLUME_BLOCKS_MIN..=VOLUME_BLOCKS_MAX).contains(&blocks))
    }

    /// Makes ready for a longer volume: the device, and the feature. Returns the geometry that fits the length asked for, in bytes;
    /// that of now if it is not longer.
    ///
    /// # Errors
    /// [`MetaError::Refused`] if the volume would be too long, or its device cannot be made as long; [`MetaError::Device`],
    /// [`MetaError::ReadOnly`]; those of writing a generation.
    pub fn prepare_growth(&self, bytes: u64) -> Result<Geometry> {
        self.check_writable()?;
        let (wanted, now) = (bytes / BLOCK_SIZE as u64, self.geometry());
        if wanted > VOLUME_BLOCKS_MAX {
            let most = VOLUME_BLOCKS_MAX * BLOCK_SIZE as u64;
            return Err(MetaError::Refused(format!("a volume has at most {most} bytes")));
        }
        let geometry = Geometry::new(wanted);
        if geometry.blocks <= now.blocks {
            return Ok(now);
        }
        let need = geometry.blocks * BLOCK_SIZE as u64;
        let found = self.device.grow(need)?;
        if found < need {
            return Err(MetaError::Refused(format!(
                "{} has {found} bytes and cannot be made longer from here; make the device longer first",
                self.device.describe()
            )));
        }
        self.extend(WriteFeatures::RESIZED)?;
        Ok(geometry)
    }

    /// Whether the first zone of a group has nothing but the group's bitmap, and perhaps a block of free inodes; so it may go, by
    /// [`Op::remove_primary_zone`]. From then on nothing is reserved in it. It is kept in memory as long as the volume is open. A
    /// group that was never used has no zone, and nothing to go.
    ///
    /// # Errors
    /// Reading the zone table, or the zone, may fail.
    pub fn close_if_empty(&self, group: GroupNo) -> Result<bool> {
        let Some(zone) = self.zones.get(self, ZoneNo::primary(group))? else { return Ok(true) };
        // The Op finds both blocks in memory.
        let mut s = zone.state.lock();
        let is_empty = s.only_bitmap().is_some() && s.extras.iter().all(|e| *e == 0) && s.reserved == 0;
        s.closed |= is_empty;
        Ok(is_empty)
    }

    /// The zone is used again: what it was closed for did not come to be.
    pub fn reopen(&self, group: GroupNo) {
        if let Some(zone) = self.zones.loaded(ZoneNo::primary(group)) {
            zone.state.lock().closed = false;
        }
    }

    /// How many blocks of metadata a group's own zones have, the bitmap among them.
    ///
    /// # Errors
    /// Reading the zone table, or a zone, may fail.
    pub fn metadata_blocks_in(&self, group: GroupNo) -> Result<u64> {
        let Some(primary) = self.zones.get(self, ZoneNo::primary(group))? else { return Ok(0) };
        let mut zones = self.extra_zones(&primary)?;
        zones.push(primary);
        let used = |zone: &std::sync::Arc<crate::zones::zone::Zone>| {
            u64::from(yore_format::layout::ZONE_INDEXES - zone.state.lock().free_indexes)
        };
        Ok(zones.iter().map(used).sum())
    }
}

impl Op<'_> {
    /// The volume has this length from now on; `free` are the blocks that this makes free in groups that were never used. Those of the last
    /// group are freed by the caller, in this Op, which [`Meta::begin_alone`] opened. The Op is durable with the next
    /// generation, not before.
    ///
    /// # Panics
    /// If the volume gets shorter, or other Ops may be open.
    pub fn lengthen(&mut self, geometry: Geometry, free: u64) {
        self.assert_alone();
        let old = self.meta().volume_blocks.swap(geometry.blocks, Ordering::AcqRel);
        assert!(old < geometry.blocks, "from {old} blocks to {}", geometry.blocks);
        self.meta().totals.free_blocks.add(free as i64);
        self.meta().intent.lose();
        self.meta().note_root_changed();
    }

    /// The volume has this length from now on; `free` free blocks go in groups that were never used. Blocks of the last group are marked used,
    /// and zones beyond taken away, by the caller, in this Op, which [`Meta::begin_alone`] opened.
    ///
    /// # Panics
    /// If the volume does not get shorter, or other Ops may be open.
    pub fn shorten(&mut self, geometry: Geometry, free: u64) {
        self.assert_alone();
        let old = self.meta().volume_blocks.swap(geometry.blocks, Ordering::AcqRel);
        assert!(old > geometry.blocks, "from {old} blocks to {}", geometry.blocks);
        self.meta().totals.free_blocks.add(-(free as i64));
        self.meta().intent.lose();
        self.meta().note_root_changed();
    }

    /// Takes away the first zone of a group that goes, with its bitmap. [`Meta::close_if_empty`] has said that it may.
    ///
    /// # Panics
    /// If it was not asked.
    pub fn remove_primary_zone(&mut self, group: GroupNo) {
        let meta = self.meta();
        let Some(zone) = meta.zones.loaded(ZoneNo::primary(group)) else { return };
        let (last, free) = {
            let s = zone.state.lock();
            assert!(s.closed, "zone {} is in use", zone.no);
            (s.only_bitmap().expect("nothing is reserved in a closed zone"), s.free_blocks)
        };
        let generation = self.generation();
        for index in [Some(0), last].into_iter().flatten() {
            let addr = MetaAddr::new(zone.no, index);
            if let Some(frame) = self.cached(addr) {
                frame.kill(generation);
            }
            meta.cache.remove(addr, || zone.free_index(meta, generation, index));
            meta.totals.metadata_blocks.add(-1);
        }
        zone.touch(meta, generation, |s| {
            s.free_inodes = 0;
            s.removed = true;
        });
        meta.totals.free_blocks.add(-i64::from(free));
        meta.totals.zones.add(-1);
        meta.intent.lose();
    }
}
