//! Reading metadata again from the medium, whatever memory has of it.
//!
//! While a zone is read no generation is written, so its map names what is on the medium.

use super::Meta;
use crate::error::Result;
use std::ops::ControlFlow;
use yore_format::layout::{HEADER_SLOTS, ZONE_INDEXES};
use yore_format::{verify_header, BlockNo, Corruption, MetaAddr, ZoneHeader, ZoneNo};

/// Blocks that are read while no generation may be written: 256 KiB.
const TOGETHER: usize = 64;

impl Meta {
    /// Reads all metadata blocks of all zones from `from` on, and one header of each. `wrong` is called with
    /// each that is not what the volume has there, `told` now and then with the zone and how many were read:
    /// it says whether to go on. O(metadata).
    ///
    /// # Errors
    /// Device errors. Damage of a zone's own header goes to `wrong`.
    pub fn scrub_metadata(
        &self,
        from: ZoneNo,
        wrong: &mut dyn FnMut(Box<Corruption>),
        told: &mut dyn FnMut(ZoneNo, u64) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let blocks = &self.rooms.blocks;
        for no in from.0..blocks.zones.limit() {
            let zone = match blocks.zones.get(&blocks.base, ZoneNo(no)) {
                Ok(Some(zone)) => zone,
                Ok(None) => continue,
                Err(crate::MetaError::Corruption(c)) => {
                    wrong(c);
                    continue;
                }
                Err(e) => return Err(e),
            };
            let indexes: Vec<u16> = (0..ZONE_INDEXES as u16).filter(|index| zone.has(*index)).collect();
            for (n, some) in indexes.chunks(TOGETHER).enumerate() {
                let mut read = 0;
                {
                    let _no_generation = self.writer.pause();
                    if n == 0 {
                        read += 1;
                        self.scrub_header(&zone, wrong)?;
                    }
                    for index in some {
                        // What was never written has no slot, and what is gone has none any more.
                        let Some((slot, check)) = zone.copy_of(*index).filter(|(slot, _)| *slot != 0) else {
                            continue;
                        };
                        read += 1;
                        let at = BlockNo(zone.start.0 + u64::from(slot));
                        let block = blocks.base.medium.read_block(at)?;
                        let addr = MetaAddr::new(zone.no, *index);
                        if let Err(c) = blocks.base.medium.verify_copy(&block, check, addr, at) {
                            wrong(c);
                        }
                    }
                }
                if told(zone.no, read).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// One of the two headers is the current one; a zone that was never written has none.
    fn scrub_header(
        &self,
        zone: &crate::zones::zone::Zone,
        wrong: &mut dyn FnMut(Box<Corruption>),
    ) -> Result<()> {
        let (addr, medium) = (ZoneHeader::addr(zone.no), &self.base().medium);
        let mut first = None;
        for slot in HEADER_SLOTS {
            let at = BlockNo(zone.start.0 + slot);
            match verify_header(&*medium.read_block(at)?, addr, medium.volume_tag(), at) {
                Ok(()) => return Ok(()),
                Err(c) => first = first.or(Some(c)),
            }
        }
        let is_written = (0..ZONE_INDEXES as u16).any(|index| zone.slot_of(index) != 0);
        if let Some(c) = first.filter(|_| is_written) {
            wrong(c);
        }
        Ok(())
    }
}
