//! Reading metadata again from the medium, whatever memory has of it; and reading on behind blocks that the
//! device cannot read.
//!
//! While blocks of a zone are read no generation is written, so its map names what is on the medium. Behind
//! each block that the device cannot read one may be written: the device may have tried for seconds, and so
//! it may with the next one.

use super::Meta;
use crate::error::{is_of_place, MetaError, Result};
use crate::zones::zone::Zone;
use std::ops::ControlFlow;
use yore_device::{Device, DeviceError};
use yore_format::layout::{HEADER_SLOTS, ZONE_INDEXES};
use yore_format::{verify_header, BlockNo, Corruption, MetaAddr, ZoneHeader, ZoneNo, BLOCK_SIZE};

/// The most blocks that are read while no generation may be written: 256 KiB.
const TOGETHER: usize = 64;
/// So many blocks that cannot be read, one behind the other, are more than a bad place: the device is gone.
const UNREADABLE_MOST: u32 = 1024;

/// How far whoever reads goes on behind blocks that cannot be read.
#[derive(Debug, Default)]
pub struct Patience {
    /// Blocks that could not be read since one could.
    in_a_row: u32,
}

impl Patience {
    /// Reads blocks from `start` on: with one request, or each by itself if that fails. `failed` is called
    /// with each that cannot be read, by its place among them; its bytes mean nothing then.
    ///
    /// # Errors
    /// Those of the device that are of more than a place of it.
    pub fn read(
        &mut self,
        device: &dyn Device,
        start: BlockNo,
        bytes: &mut [u8],
        failed: &mut dyn FnMut(usize, DeviceError),
    ) -> Result<()> {
        match device.read_at(start.0 * BLOCK_SIZE as u64, bytes) {
            Ok(()) => {
                self.in_a_row = 0;
                return Ok(());
            }
            Err(error) if !is_of_place(&error) => return Err(error.into()),
            Err(_) => {}
        }
        for (at, block) in bytes.chunks_mut(BLOCK_SIZE).enumerate() {
            match device.read_at((start.0 + at as u64) * BLOCK_SIZE as u64, block) {
                Ok(()) => self.in_a_row = 0,
                Err(error) => failed(at, self.bear(error.into())?),
            }
        }
        Ok(())
    }

    /// A block cannot be read. Returns why, unless reading ends with that.
    fn bear(&mut self, error: MetaError) -> Result<DeviceError> {
        match error {
            MetaError::Device(error) if is_of_place(&error) && self.in_a_row < UNREADABLE_MOST => {
                self.in_a_row += 1;
                Ok(error)
            }
            error => Err(error),
        }
    }
}

/// A metadata block that cannot be read, as damage.
fn unreadable(addr: MetaAddr, error: &DeviceError) -> Box<Corruption> {
    let found = format!("a block that cannot be read ({error})");
    Corruption::new("metadata block", "content", "what was written there", found).at(addr)
}

impl Meta {
    /// Reads all metadata blocks of all zones from `from` on, and one header of each. `wrong` is called with
    /// each that is not what the volume has there, or cannot be read; `told` now and then with the zone and
    /// how many were read: it says whether to go on. O(metadata).
    ///
    /// # Errors
    /// Device errors that are of more than a place of the device. Damage of a zone's own header goes to
    /// `wrong`.
    pub fn scrub_metadata(
        &self,
        from: ZoneNo,
        wrong: &mut dyn FnMut(Box<Corruption>),
        told: &mut dyn FnMut(ZoneNo, u64) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let blocks = &self.rooms.blocks;
        let mut patience = Patience::default();
        for no in (from.0..blocks.zones.limit()).map(ZoneNo) {
            let zone = match blocks.zones.get(&blocks.base, no) {
                Ok(Some(zone)) => zone,
                Ok(None) => continue,
                Err(MetaError::Corruption(c)) => {
                    wrong(c);
                    continue;
                }
                Err(error) => {
                    wrong(unreadable(ZoneHeader::addr(no), &patience.bear(error)?));
                    continue;
                }
            };
            let indexes: Vec<u16> = (0..ZONE_INDEXES as u16).filter(|index| zone.has(*index)).collect();
            if indexes.is_empty() {
                continue;
            }
            self.scrub_header(&zone, &mut patience, wrong)?;
            let (mut rest, mut read) = (&indexes[..], 1);
            while !rest.is_empty() {
                let (left, more) = self.scrub_blocks(&zone, rest, &mut patience, wrong)?;
                if told(no, read + more).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                (rest, read) = (left, 0);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Reads the first of these blocks of a zone while no generation is written, up to one that cannot be
    /// read. Returns the others, and how many of those that it came to the medium has.
    fn scrub_blocks<'i>(
        &self,
        zone: &Zone,
        indexes: &'i [u16],
        patience: &mut Patience,
        wrong: &mut dyn FnMut(Box<Corruption>),
    ) -> Result<(&'i [u16], u64)> {
        let _no_generation = self.writer.pause();
        let (medium, mut read) = (&self.base().medium, 0);
        let (some, rest) = indexes.split_at(indexes.len().min(TOGETHER));
        for (n, index) in some.iter().enumerate() {
            // What was never written has no slot, and what is gone has none any more.
            let Some((slot, check)) = zone.copy_of(*index).filter(|(slot, _)| *slot != 0) else {
                continue;
            };
            read += 1;
            let (at, addr) = (BlockNo(zone.start.0 + u64::from(slot)), MetaAddr::new(zone.no, *index));
            match medium.read_block(at) {
                Ok(block) => {
                    patience.in_a_row = 0;
                    if let Err(c) = medium.verify_copy(&block, check, addr, at) {
                        wrong(c);
                    }
                }
                Err(error) => {
                    wrong(unreadable(addr, &patience.bear(error)?).on(at));
                    return Ok((&indexes[n + 1..], read));
                }
            }
        }
        Ok((rest, read))
    }

    /// One of the two headers is the current one; a zone that was never written has none. If a generation was
    /// written between the two, the first header of a zone would seem to be missing. Only behind one that
    /// cannot be read one may be written: the zone is told to be damaged anyway.
    fn scrub_header(
        &self,
        zone: &Zone,
        patience: &mut Patience,
        wrong: &mut dyn FnMut(Box<Corruption>),
    ) -> Result<()> {
        let (addr, medium) = (ZoneHeader::addr(zone.no), &self.base().medium);
        let (mut no_generation, mut first) = (self.writer.pause(), None);
        for slot in HEADER_SLOTS {
            let at = BlockNo(zone.start.0 + slot);
            match medium.read_block(at) {
                Ok(block) => {
                    patience.in_a_row = 0;
                    match verify_header(&block, addr, medium.volume_tag(), at) {
                        Ok(()) => return Ok(()),
                        Err(c) => first = first.or(Some(c)),
                    }
                }
                Err(error) => {
                    // It may be the current one, though the other one is whole.
                    wrong(unreadable(addr, &patience.bear(error)?).on(at));
                    drop(no_generation);
                    no_generation = self.writer.pause();
                }
            }
        }
        let is_written = (0..ZONE_INDEXES as u16).any(|index| zone.slot_of(index) != 0);
        if let Some(c) = first.filter(|_| is_written) {
            wrong(c);
        }
        Ok(())
    }
}
