//! Reading the header of a zone.

use crate::base::Base;
use crate::error::Result;
use yore_format::layout::HEADER_SLOTS;
use yore_format::{verify_header, BlockNo, Corruption, GroupNo, ZoneHeader, ZoneNo, ZoneTableEntry};

/// Where a zone is, and which.
pub(super) struct Place {
    no: ZoneNo,
    start: BlockNo,
}

fn wrong(no: ZoneNo, field: &'static str, expected: String, found: String) -> Corruption {
    *Corruption::new("zone table", field, expected, found).at(ZoneHeader::addr(no))
}

impl Place {
    /// Of a zone that the table (or the superblock) names.
    pub(super) fn of(base: &Base, no: ZoneNo, entry: &ZoneTableEntry) -> Result<Place> {
        let start = BlockNo(entry.start.get());
        let start_ok = base.medium.geometry().is_zone_start(start) || (no == ZoneNo::root(0) && start.0 == 0);
        if !start_ok || entry.header_slot > 1 {
            let wrong = wrong(no, "place", "a zone's place".into(), start.to_string());
            return Err(Box::new(wrong).into());
        }
        Ok(Place { no, start })
    }

    fn header(&self, slot: u8) -> BlockNo {
        BlockNo(self.start.0 + HEADER_SLOTS[usize::from(slot)])
    }
}

/// Reads the header in one of a zone's two slots, and verifies that it is one of this zone. The device's
/// errors are the outer ones.
pub(super) fn read_copy(
    base: &Base,
    place: &Place,
    slot: u8,
) -> Result<std::result::Result<ZoneHeader, Box<Corruption>>> {
    let (no, at) = (place.no, place.header(slot));
    let block = base.medium.read_block(at)?;
    let decoded = verify_header(&block, ZoneHeader::addr(no), base.medium.volume_tag(), at)
        .and_then(|()| ZoneHeader::decode(&block));
    Ok(decoded.and_then(|header| check_identity(base, place, at, header)))
}

fn check_identity(
    base: &Base,
    place: &Place,
    at: BlockNo,
    header: ZoneHeader,
) -> std::result::Result<ZoneHeader, Box<Corruption>> {
    let (no, start, geometry) = (place.no, place.start, base.medium.geometry());
    if header.start != start
        || header.zone != no
        || (!no.is_root() && header.group != geometry.group_of(start))
        || (no.is_primary() && start != geometry.primary_zone_start(GroupNo(no.0 / 2)))
        || !base.may_have_been_long(header.volume_blocks)
        || header.uuid != base.medium.uuid()
    {
        let expected = format!("zone {no} at {start}, in that group");
        let found = format!("zone {} at {} of group {}", header.zone, header.start, header.group);
        return Err(Box::new(wrong(no, "header's identity", expected, found)).on(at));
    }
    Ok(header)
}

/// Reads a zone's current header and checks it against what the table (or superblock) says of it.
pub(crate) fn read_header(base: &Base, no: ZoneNo, entry: &ZoneTableEntry) -> Result<ZoneHeader> {
    let place = Place::of(base, no, entry)?;
    let at = place.header(entry.header_slot);
    let block = base.medium.read_block(at)?;
    verify_header(&block, ZoneHeader::addr(no), base.medium.volume_tag(), at)?;
    let header = ZoneHeader::decode(&block)?;
    let stored = yore_format::BlockHeader::of(&block).crc.get();
    if header.generation.0 != entry.generation.get() || stored != entry.crc.get() {
        let expected = format!("generation {} with checksum {:#010x}", entry.generation, entry.crc);
        let found = format!("generation {} with checksum {stored:#010x}", header.generation);
        return Err(Box::new(wrong(no, "header", expected, found)).on(at).into());
    }
    Ok(check_identity(base, &place, at, header)?)
}
