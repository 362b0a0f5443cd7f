//! One generation: freezing it, and writing it.

use super::gather::Gather;
use crate::base::freed::Runs;
use crate::base::medium::now_seconds;
use crate::error::Result;
use crate::log::intent::{FrozenLog, Leader};
use crate::log::region::set_position;
use crate::rooms::Rooms;
use crate::zones::slots::Slots;
use crate::zones::zone::{Copies, Frame, FrozenZone};
use yore_device::AlignedBuf;
use yore_format::layout::{HEADER_SLOTS, SUPERBLOCKS};
use yore_format::{
    BlockNo, Generation, Superblock, VolumeState, ZoneHeader, ZoneNo, ZoneTableEntry, BLOCK_SIZE,
};
use yore_log::{Lsn, Position};

/// A frozen generation.
pub(super) struct Frozen {
    pub(super) generation: Generation,
    pub(super) zones: Vec<FrozenZone>,
    pub(super) superblock: Superblock,
    pub(super) freed: Runs,
    /// Where replay starts after it.
    pub(super) log: Option<Position>,
    /// What must be forced in the log before its superblock is written.
    outstanding: Option<Lsn>,
}

/// Freezes the running generation. Returns it, and whether what the log has outstanding was appended to it.
pub(super) fn freeze(
    rooms: &Rooms,
    last: &Superblock,
    state: VolumeState,
    leader: &mut Leader,
) -> (Frozen, Result<()>) {
    let blocks = &rooms.blocks;
    let (base, changes) = (&blocks.base, &blocks.zones.changes);
    let mut gate = base.gate.hold();
    let generation = gate.running();
    base.progress.begin_writing();
    gate.advance();
    let mut zones = changes.freeze();
    let freed = base.freed.take();
    let captured: usize = zones.iter().map(|z| z.dirty.len()).sum();
    let log = rooms.log.freeze(blocks);
    let head = blocks.head(gate.running());
    let mut superblock = Superblock {
        generation,
        engine: base.medium.engine(),
        state,
        features: base.features.wanted(),
        space_rules: base.features.space_rules(),
        volume_blocks: base.medium.geometry().blocks,
        zone_number_limit: blocks.zones.limit(),
        ..last.clone()
    };
    base.ledger.freeze(&mut superblock);
    if let Some(FrozenLog { position, .. }) = &log {
        #[cfg(feature = "mutations")]
        let position = match crate::mutation::is(crate::mutation::Mutation::StalePosition) {
            true => &crate::log::region::position_of(last),
            false => position,
        };
        set_position(&mut superblock, *position, head.generation);
    }
    changes.hand_over(captured);
    drop(gate);
    zones.sort_by_key(|z| z.zone.start);
    let mut frozen = Frozen { generation, zones, superblock, freed, log: None, outstanding: None };
    let mut appended = Ok(());
    if let Some(FrozenLog { position, outstanding }) = log {
        frozen.log = Some(position);
        #[cfg(feature = "mutations")]
        let outstanding = match crate::mutation::is(crate::mutation::Mutation::OutstandingForgotten) {
            true => Default::default(),
            false => outstanding,
        };
        if !outstanding.is_empty() {
            match rooms.log.append_outstanding(leader, &outstanding, &head) {
                Ok(last) => frozen.outstanding = last,
                Err(e) => appended = Err(e),
            }
        }
    }
    (frozen, appended)
}

/// Writes a frozen generation, its superblock last, into `slot`.
pub(super) fn write(rooms: &Rooms, frozen: &mut Frozen, slot: u32, durable: bool) -> Result<()> {
    let medium = &rooms.blocks.base.medium;
    // Of each zone the dirty blocks and the header; at most as many table blocks, and the root zones'
    // headers.
    let blocks = frozen.zones.iter().map(|zone| zone.dirty.len() + 2).sum::<usize>() + 1;
    let mut gather = Gather::new(medium, blocks);
    let mut entries: Vec<(ZoneNo, ZoneTableEntry)> = Vec::with_capacity(frozen.zones.len());
    for zone in &frozen.zones {
        entries.push((zone.zone.no, write_zone(rooms, &mut gather, zone, frozen.generation)?));
    }
    let table = rooms.blocks.zones.table.update(medium, &entries, frozen.generation)?;
    for (at, block) in &table.blocks {
        gather.push_sealed(*at, block)?;
    }
    frozen.superblock.root_zones = table.roots;
    frozen.superblock.written_seconds = now_seconds();
    gather.submit()?;
    rooms.log.force_up_to(frozen.outstanding)?;
    if durable {
        medium.device().flush()?;
    }
    let mut bytes = AlignedBuf::zeroed(1);
    bytes.copy_from_slice(&frozen.superblock.encode(slot)[..]);
    medium.device().write_at(SUPERBLOCKS[slot as usize].0 * BLOCK_SIZE as u64, &bytes)?;
    if durable {
        medium.device().flush()?;
    }
    Ok(())
}

/// Writes the blocks of one zone and its header; returns its entry for the table.
fn write_zone(
    rooms: &Rooms,
    gather: &mut Gather<'_>,
    z: &FrozenZone,
    generation: Generation,
) -> Result<ZoneTableEntry> {
    if z.removed {
        return Ok(ZoneTableEntry::ABSENT);
    }
    let medium = &rooms.blocks.base.medium;
    let in_place = medium.engine().in_place();
    let mut copies = z.zone.copies();
    // Slots that the last complete generation uses must not be touched.
    let used = Slots::of(&copies.map[..]);
    #[cfg(feature = "mutations")]
    let used = match crate::mutation::is(crate::mutation::Mutation::SlotsReusedEarly) {
        true => Slots::default(),
        false => used,
    };
    for index in (0..copies.map.len()).filter(|index| !z.has(*index)) {
        copies.map[index] = 0;
        copies.checks[index] = 0;
    }
    let takes_slot = |frame: &&Frame| {
        let index = usize::from(frame.addr().index());
        z.has(index) && (!in_place || copies.map[index] == 0) && frame.is_to_be_captured(generation)
    };
    let mut slots = used.free_for(z.dirty.iter().filter(takes_slot).count()).into_iter();
    for frame in &z.dirty {
        let Some(block) = frame.capture(generation) else { continue };
        let index = usize::from(frame.addr().index());
        if !z.has(index) {
            continue; // Freed in this generation after it was changed in it.
        }
        if !in_place || copies.map[index] == 0 {
            copies.map[index] = slots.next().expect("a slot for each block");
        }
        let at = BlockNo(z.zone.start.0 + u64::from(copies.map[index]));
        copies.checks[index] = gather.push(at, &block, generation)?;
    }
    let header = ZoneHeader {
        uuid: medium.uuid(),
        volume_blocks: medium.geometry().blocks,
        start: z.zone.start,
        zone: z.zone.no,
        group: z.zone.group,
        generation,
        exists: z.exists,
        inode_free: z.inode_free.clone(),
        extras: z.extras,
        tables: *z.tables,
        map: copies.map,
        checks: copies.checks,
    };
    let header_slot = if in_place { copies.header_slot } else { 1 - copies.header_slot };
    let (block, crc) = header.encode(generation);
    let header_block = BlockNo(z.zone.start.0 + HEADER_SLOTS[usize::from(header_slot)]);
    gather.push_sealed(header_block, &block)?;
    let ZoneHeader { map, checks, .. } = header;
    z.zone.set_copies(Copies { map, checks, header_slot });
    Ok(ZoneTableEntry {
        start: z.zone.start.0.into(),
        generation: generation.0.into(),
        crc: crc.into(),
        header_slot,
        present: 1,
        free_blocks: (z.free_blocks as u16).into(),
        free_indexes: (z.free_indexes as u16).into(),
        free_inodes: (z.free_inodes as u16).into(),
    })
}
