//! What a crash has left under an engine that orders changes (docs/EDGES.md): what still counts without
//! reading it again, and putting the rest right.

use super::Meta;
use crate::error::{MetaError, Result};
use crate::space::Reserved;
use yore_format::{Expect, GroupNo, MetaAddr, ZoneNo};

/// By how much the totals of the superblock are to grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TotalsGrowth {
    /// Free data blocks.
    pub free_blocks: i64,
    /// Inodes in use.
    pub inodes: i64,
    /// Metadata blocks in use.
    pub metadata_blocks: i64,
}

impl Meta {
    /// Whether a group was ever used. The zone table says that, after a crash, too. [`Meta::group_summary`]
    /// reads the group's first zone then, because it also counts.
    ///
    /// # Errors
    /// Reading the zone table may fail.
    pub fn is_initialised(&self, group: GroupNo) -> Result<bool> {
        let (zones, no) = (&self.rooms.blocks.zones, ZoneNo::primary(group));
        Ok(zones.loaded(no).is_some() || zones.table.entry(&self.base().medium, no)?.is_present())
    }

    /// A check of a whole generation of this mount has found nothing, so the volume has nothing any more that
    /// a crash has left. Superblocks say so from now on, and one does when this returns.
    ///
    /// # Errors
    /// As [`Meta::sync_always`].
    pub fn leaks_are_gone(&self) -> Result<()> {
        if !self.may_have_leaks() {
            return Ok(());
        }
        self.check_writable()?;
        self.base().medium.is_recounted();
        self.sync_always()
    }

    /// Adds what the totals lack. Every Op changes them with what they count, so what a check found to be
    /// missing is missing until this is called.
    ///
    /// # Errors
    /// [`MetaError::ReadOnly`], [`MetaError::Stopped`].
    pub fn correct_totals(&self, by: TotalsGrowth) -> Result<()> {
        self.check_writable()?;
        let totals = self.base().ledger.totals();
        totals.free_blocks.add(by.free_blocks);
        totals.inodes.add(by.inodes);
        totals.metadata_blocks.add(by.metadata_blocks);
        self.base().ledger.note_changed();
        Ok(())
    }

    /// Frees a block to which nothing leads, as a check has found: then no call has come to it since, either.
    /// False if there is another block by now, or none.
    ///
    /// # Errors
    /// [`MetaError::ReadOnly`], [`MetaError::Stopped`]; those of the device.
    pub fn free_unreachable(&self, addr: MetaAddr, expect: &Expect) -> Result<bool> {
        self.check_writable()?;
        let frame = match self.read(addr, expect) {
            Ok(frame) => frame,
            // It is not what the check has met. If that is damage, the next check says so.
            Err(MetaError::Corruption(_)) => return Ok(false),
            Err(error) => return Err(error),
        };
        self.begin(Reserved::none()).free(frame);
        Ok(true)
    }
}
