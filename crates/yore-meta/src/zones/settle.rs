//! What a zone has after a crash under an engine that orders changes: its latest header, and blocks that were
//! written over since. The rules are in docs/FORMAT.md ("Under an engine that orders changes").
//!
//! A zone is settled when it is read for the first time: its blocks are read in ascending order of their
//! slots, checksums and counts in memory become those of the blocks. So everything behind it verifies a block
//! by its checksum, as on a volume that was closed; and headers that are written later vouch for what is
//! there. A block that does not verify keeps the checksum that the header has, and whoever reads it is told.
//! So does one that cannot be read, as long as there are few of these. A device that fails to read many is
//! perhaps out of reach for a moment, and a header that is written later would be wrong about them for good.

use super::header::{read_copy, read_header, Place};
use super::zone::Counted;
use crate::base::Base;
use crate::error::Result;
use yore_format::layout::ZONE_INDEXES;
use yore_format::{
    verify_header, Block, BlockHeader, BlockNo, Generation, MetaAddr, ZoneHeader, ZoneNo, ZoneTableEntry,
    NOT_INODES,
};

/// The most blocks of a zone that may be unreadable.
const UNREADABLE_MOST: usize = 8;

/// A zone as it is read.
pub(super) struct Found {
    pub(super) header: ZoneHeader,
    pub(super) free_blocks: u32,
    pub(super) header_slot: u8,
    /// The table and the header on the medium do not say all of this: they are to be written when the volume
    /// closes.
    pub(super) is_ahead: bool,
}

/// Reads a zone that the table names.
pub(super) fn read_zone(base: &Base, no: ZoneNo, entry: &ZoneTableEntry) -> Result<Found> {
    let since = base.medium.found().in_place_since;
    let free_blocks = u32::from(entry.free_blocks.get());
    if since.0 == 0 {
        let header = read_header(base, no, entry)?;
        return Ok(Found { header, free_blocks, header_slot: entry.header_slot, is_ahead: false });
    }
    let (header, header_slot) = latest_header(base, no, entry, since)?;
    let is_ahead = header.round != 0;
    let mut found = Found { header, free_blocks, header_slot, is_ahead };
    settle(base, since, &mut found)?;
    Ok(found)
}

/// The header that counts, and its slot.
fn latest_header(
    base: &Base,
    no: ZoneNo,
    entry: &ZoneTableEntry,
    since: Generation,
) -> Result<(ZoneHeader, u8)> {
    let named = read_header(base, no, entry);
    let mut rank = (Generation(entry.generation.get()), 0);
    let mut latest = None;
    let place = Place::of(base, no, entry)?;
    for slot in 0..2 {
        // What does not verify is torn, or was never written: the other copy counts.
        let Ok(header) = read_copy(base, &place, slot)? else { continue };
        #[cfg(feature = "mutations")]
        if named.is_ok() && crate::mutation::is(crate::mutation::Mutation::OlderBelieved) {
            continue;
        }
        if header.replaces(rank, since) {
            rank = (header.generation, header.round);
            latest = Some((header, slot));
        }
    }
    match latest {
        Some(latest) => Ok(latest),
        None => named.map(|header| (header, entry.header_slot)),
    }
}

/// Takes over what the blocks of the zone say.
fn settle(base: &Base, since: Generation, found: &mut Found) -> Result<()> {
    let header = &found.header;
    let mut places: Vec<(u64, u16)> = (0..ZONE_INDEXES as u16)
        .filter(|index| header.has(*index))
        .map(|index| (u64::from(header.map[usize::from(index)]), index))
        .collect();
    places.sort_unstable();
    let (mut rest, start) = (&places[..], found.header.start.0);
    let at = |(slot, _): &(u64, u16)| BlockNo(start + slot);
    let mut unreadable = 0;
    while !rest.is_empty() {
        let (left, read) = base
            .medium
            .read_near(rest, at, |(_, index), block| settle_block(base, since, found, *index, block));
        if read.is_err() {
            // Perhaps because of one of its blocks.
            let together = &rest[..rest.len() - left.len()];
            unreadable += settle_each(base, since, found, together, UNREADABLE_MOST - unreadable)?;
        }
        rest = left;
    }
    Ok(())
}

/// Takes over what these blocks say, which are read one by one. Returns how many of them cannot be read.
///
/// # Errors
/// If these are more than `most`.
fn settle_each(
    base: &Base,
    since: Generation,
    found: &mut Found,
    places: &[(u64, u16)],
    most: usize,
) -> Result<usize> {
    let mut unreadable = 0;
    for (slot, index) in places {
        let at = BlockNo(found.header.start.0 + slot);
        match base.medium.read_block(at) {
            Ok(block) => settle_block(base, since, found, *index, &block),
            Err(error) if unreadable == most => return Err(error),
            Err(error) => {
                unreadable += 1;
                let zone = found.header.zone;
                tracing::warn!(
                    "block {at} of zone {zone} cannot be read, and what was written to it last is not known: \
                     {error}; run `yore check`"
                );
            }
        }
    }
    Ok(unreadable)
}

fn settle_block(base: &Base, since: Generation, found: &mut Found, index: u16, block: &Block) {
    let addr = MetaAddr::new(found.header.zone, index);
    let at = usize::from(index);
    let place = BlockNo(found.header.start.0 + u64::from(found.header.map[at]));
    let is_whole = verify_header(block, addr, base.medium.volume_tag(), place).is_ok();
    if !is_whole || !found.header.means(index, block, since) {
        return;
    }
    let crc = BlockHeader::of(block).crc.get();
    if found.header.checks[at] != crc {
        found.header.checks[at] = crc;
        found.is_ahead = true;
    }
    let usable = base.medium.geometry().data_blocks(found.header.group) as u32;
    let counted = Counted::of(block, usable);
    if found.header.inode_free[at] != counted.inode_free {
        found.header.inode_free[at] = counted.inode_free;
        found.is_ahead = true;
    }
    debug_assert!(counted.inode_free == NOT_INODES || counted.free_blocks.is_none());
    if let Some(free) = counted.free_blocks.filter(|_| index == 0 && found.header.zone.is_primary()) {
        if found.free_blocks != free {
            found.free_blocks = free;
            found.is_ahead = true;
        }
    }
}
