//! How many blocks have data of files, of the present or of the past, each counted once however many share
//! it.
//!
//! Nothing counts them: they are what the bitmaps have as used, without what else lies among data. That is
//! the log, and zones: all that exist but root zone 0 and the first zones of groups, which the bitmaps do not
//! describe; group 0 is the exception, whose first zone lies where its data begins. So the number follows
//! from the totals that the volume keeps, and from how many groups have a first zone. Only the zone table
//! says that: it is read once, O(groups), and counted from then on.
//!
//! The totals change one by one in the Ops. Who asks while blocks are taken and freed gets a number that may
//! be off by what these Ops change.

use super::space::Alloc;
use crate::Result;
use yore_format::layout::ZONE_BLOCKS;
use yore_format::GroupNo;
use yore_meta::Meta;

impl Alloc {
    /// Blocks that have data of files, or were promised to files by `fallocate`: of files in use, with a name
    /// or without one, and of versions. O(1), but the first time O(groups).
    ///
    /// # Errors
    /// Reading the zone table may fail.
    pub fn data_in_use(&self, meta: &Meta) -> Result<u64> {
        let used_groups = self.count_used_groups(meta)?;
        let (geometry, totals) = (self.geometry(), &meta.totals);
        let described = geometry.blocks.saturating_sub(u64::from(geometry.groups()) * ZONE_BLOCKS);
        let zones = totals.zones.get().saturating_sub(used_groups);
        let taken = [totals.free_blocks.get(), zones.saturating_mul(ZONE_BLOCKS), meta.log_blocks_inside()];
        Ok(taken.into_iter().fold(described, u64::saturating_sub))
    }

    fn count_used_groups(&self, meta: &Meta) -> Result<u64> {
        if let Some(known) = self.used_groups.known() {
            return Ok(known);
        }
        let _grow = self.grow.lock();
        let mut count = 0;
        for group in (0..self.geometry().groups()).map(GroupNo) {
            count += u64::from(meta.is_initialised(group)?);
        }
        self.used_groups.set(count);
        Ok(count)
    }
}
