//! Making ready for a longer or a shorter volume. `op/resize.rs` has the Ops and the argument.

use super::Meta;
use crate::error::{MetaError, Result};
use yore_format::layout::{Geometry, VOLUME_BLOCKS_MAX, ZONE_BLOCKS};
use yore_format::{BlockNo, Corruption, GroupNo, MetaAddr, WriteFeatures, ZoneNo, BLOCK_SIZE};

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

    /// How many blocks from `start` to the end of its group are no data although they lie in its data area:
    /// further zones', root zones', the log's.
    ///
    /// # Errors
    /// Reading the zone table, or a zone, may fail.
    pub fn table_blocks_from(&self, group: GroupNo, start: BlockNo) -> Result<u64> {
        let (zones, geometry) = (&self.rooms.blocks.zones, self.geometry());
        let end = geometry.data_start(group).0 + geometry.data_blocks(group);
        let overlap =
            |from: u64, blocks: u64| from.saturating_add(blocks).min(end).saturating_sub(from.max(start.0));
        let log = self.base().medium.log_blocks();
        let mut sum = overlap(log.start, log.end - log.start);
        for zone in zones.of_group(self.base(), group)?.iter().filter(|zone| !zone.no.is_primary()) {
            sum += overlap(zone.start.0, ZONE_BLOCKS);
        }
        // The first root zone lies before the data of the first group.
        zones.table.find_root(|start| {
            sum += overlap(start.0, ZONE_BLOCKS);
            None::<BlockNo>
        });
        Ok(sum)
    }

    /// How many blocks of metadata a group that goes would take along: all of its zones but the bitmap, and
    /// an inode block that is empty.
    ///
    /// # Errors
    /// Reading the zone table, or a zone, may fail.
    pub fn metadata_beyond(&self, group: GroupNo) -> Result<u64> {
        let zone = self.rooms.blocks.zones.get(self.base(), ZoneNo::primary(group))?;
        match zone.is_none_or(|zone| zone.is_only_bitmap()) {
            true => Ok(0),
            false => Ok(self.metadata_blocks_in(group)?.saturating_sub(1)),
        }
    }

    /// Where the zone begins that has a block of metadata.
    ///
    /// # Errors
    /// Reading the zone table, or the zone, may fail; `Corruption` if there is no such zone.
    pub fn zone_of(&self, addr: MetaAddr) -> Result<BlockNo> {
        match self.rooms.blocks.zones.get(self.base(), addr.zone())? {
            Some(zone) => Ok(zone.start),
            None => Err(Corruption::new("block", "zone", "one that the table has", "none").at(addr).into()),
        }
    }

    /// How many blocks of metadata a group's own zones have, the bitmap among them.
    fn metadata_blocks_in(&self, group: GroupNo) -> Result<u64> {
        let zones = self.rooms.blocks.zones.of_group(self.base(), group)?;
        Ok(zones.iter().map(|zone| u64::from(zone.used_indexes())).sum())
    }
}
