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

use super::Op;
use yore_format::layout::Geometry;

impl Op<'_> {
    /// The volume has this length from now on; `free` are the blocks that this makes free in groups that were never used. Those of the last
    /// group are freed by the caller, in this Op, which [`Meta::begin_alone`] opened. The Op is durable with the next
    /// generation, not before.
    ///
    /// # Panics
    /// If the volume gets shorter, or other Ops may be open.
    pub fn lengthen(&mut self, geometry: Geometry, free: u64) {
        let old = self.set_length(geometry, free as i64);
        assert!(old < geometry.blocks, "from {old} blocks to {}", geometry.blocks);
    }

    /// The volume has this length from now on; `free` free blocks go in groups that were never used. Blocks of the last group are marked used,
    /// and zones beyond taken away, by the caller, in this Op, which [`Meta::begin_alone`] opened.
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
