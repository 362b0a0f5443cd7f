//! Making ready for a longer or a shorter volume. `op/resize.rs` has the Ops and the argument.

use super::Meta;
use crate::error::{MetaError, Result};
use yore_format::layout::{Geometry, VOLUME_BLOCKS_MAX};
use yore_format::{GroupNo, WriteFeatures, ZoneNo, BLOCK_SIZE};

impl Meta {
    /// Makes ready for a longer volume: the device, and the feature. Returns the geometry that fits the
    /// length asked for, in bytes; that of now if it is not longer.
    ///
    /// # Errors
    /// [`MetaError::Refused`] if the volume would be too long, or its device cannot be made as long;
    /// [`MetaError::Device`], [`MetaError::ReadOnly`]; those of writing a generation.
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
        let found = self.device().grow(need)?;
        if found < need {
            return Err(MetaError::Refused(format!(
                "{} has {found} bytes and cannot be made longer from here; make the device longer first",
                self.device().describe()
            )));
        }
        self.extend(WriteFeatures::RESIZED)?;
        Ok(geometry)
    }

    /// Whether the first zone of a group has nothing but the group's bitmap, and perhaps a block of free
    /// inodes; so it may go, by [`crate::Op::remove_primary_zone`]. From then on nothing is reserved in it.
    /// It is kept in memory as long as the volume is open. A group that was never used has no zone, and
    /// nothing to go.
    ///
    /// # Errors
    /// Reading the zone table, or the zone, may fail.
    pub fn close_if_empty(&self, group: GroupNo) -> Result<bool> {
        let zone = self.rooms.blocks.zones.get(self.base(), ZoneNo::primary(group))?;
        Ok(zone.is_none_or(|zone| zone.close_if_only_bitmap()))
    }

    /// The zone is used again: what it was closed for did not come to be.
    pub fn reopen(&self, group: GroupNo) {
        if let Some(zone) = self.rooms.blocks.zones.loaded(ZoneNo::primary(group)) {
            zone.reopen();
        }
    }

    /// How many blocks of metadata a group's own zones have, the bitmap among them.
    ///
    /// # Errors
    /// Reading the zone table, or a zone, may fail.
    pub fn metadata_blocks_in(&self, group: GroupNo) -> Result<u64> {
        let zones = self.rooms.blocks.zones.of_group(self.base(), group)?;
        Ok(zones.iter().map(|zone| u64::from(zone.used_indexes())).sum())
    }
}
