//! Reading the header of a zone.

use crate::base::Base;
use crate::error::Result;
use yore_format::layout::HEADER_SLOTS;
use yore_format::{verify_header, BlockNo, Corruption, GroupNo, ZoneHeader, ZoneNo, ZoneTableEntry};

/// Reads a zone's current header and checks it against what the table (or superblock) says of it.
pub(crate) fn read_header(base: &Base, no: ZoneNo, entry: &ZoneTableEntry) -> Result<ZoneHeader> {
    let start = BlockNo(entry.start.get());
    let wrong = |field, expected: String, found: String| {
        Corruption::new("zone table", field, expected, found).at(ZoneHeader::addr(no))
    };
    let start_ok = base.medium.geometry().is_zone_start(start) || (no == ZoneNo::root(0) && start.0 == 0);
    if !start_ok || entry.header_slot > 1 {
        return Err(wrong("place", "a zone's place".into(), start.to_string()).into());
    }
    let at = BlockNo(start.0 + HEADER_SLOTS[usize::from(entry.header_slot)]);
    let block = base.medium.read_block(at)?;
    verify_header(&block, ZoneHeader::addr(no), base.medium.volume_tag(), at)?;
    let header = ZoneHeader::decode(&block)?;
    let stored = yore_format::BlockHeader::of(&block).crc.get();
    if header.generation.0 != entry.generation.get() || stored != entry.crc.get() {
        let expected = format!("generation {} with checksum {:#010x}", entry.generation, entry.crc);
        return Err(wrong(
            "header",
            expected,
            format!("generation {} with checksum {stored:#010x}", header.generation),
        )
        .on(at)
        .into());
    }
    if header.start != start
        || header.zone != no
        || (!no.is_root() && header.group != base.medium.geometry().group_of(start))
        || (no.is_primary() && start != base.medium.geometry().primary_zone_start(GroupNo(no.0 / 2)))
        || !base.may_have_been_long(header.volume_blocks)
        || header.uuid != base.medium.uuid()
    {
        return Err(wrong(
            "header's identity",
            format!("zone {no} at {start}, in that group"),
            format!("zone {} at {} of group {}", header.zone, header.start, header.group),
        )
        .on(at)
        .into());
    }
    Ok(header)
}
