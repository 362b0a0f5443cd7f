//! Ops that make a volume longer, or shorter.
//!
//! **Z1 Growing is one generation.** The Op that lengthens the volume is alone and does the whole job: the
//! last group's bitmap gets the bits that were beyond the end, new groups are groups that were never used,
//! and the totals count both. The superblock of its generation has the new length. Before that arrives, the
//! volume has the old length, and nothing that counts lies beyond it; no record of the log says anything of
//! this generation.
//!
//! **Z2 The device is long enough first.** It is lengthened, durably, before the Op.
//!
//! **Z3 Headers of zones keep the length that the volume had when they were written.** To change it, all of
//! them would have to be written anew. So the volume first gets a feature that says: do not compare the
//! length in them; the superblock's counts.
//!
//! **Z4 Shrinking is one generation, too.** Nothing that counts may lie beyond the new end: the last group's
//! blocks there are free, and the Op marks them used; groups beyond hold nothing but their bitmaps, and go
//! with them. Whoever closed the volume shortens the device, once both superblocks have the new length.

use super::Op;
use yore_format::layout::Geometry;

impl Op<'_> {
    /// The volume has this length from now on. `free` are the blocks that this makes free in groups that were
    /// never used. The caller frees those of the last group in this Op, which [`crate::Meta::begin_alone`]
    /// opened. The Op is durable with the next generation, not before.
    ///
    /// # Panics
    /// If the volume gets shorter, or other Ops may be open.
    pub fn lengthen(&mut self, geometry: Geometry, free: u64) {
        let old = self.set_length(geometry, free as i64);
        assert!(old < geometry.blocks, "from {old} blocks to {}", geometry.blocks);
    }

    /// The volume has this length from now on. `free` free blocks go in groups that were never used. The
    /// caller marks blocks of the last group used and takes zones beyond away, in this Op, which
    /// [`crate::Meta::begin_alone`] opened.
    ///
    /// # Panics
    /// If the volume does not get shorter, or other Ops may be open.
    pub fn shorten(&mut self, geometry: Geometry, free: u64) {
        let old = self.set_length(geometry, -(free as i64));
        assert!(old > geometry.blocks, "from {old} blocks to {}", geometry.blocks);
    }

    fn set_length(&mut self, geometry: Geometry, free: i64) -> u64 {
        self.assert_alone();
        let blocks = &self.rooms.blocks;
        let old = blocks.base.medium.set_length(geometry);
        blocks.base.ledger.totals().free_blocks.add(free);
        blocks.base.ledger.note_changed();
        blocks.zones.changes.lose();
        old
    }
}
