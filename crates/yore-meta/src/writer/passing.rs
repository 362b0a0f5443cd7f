//! Carries out the rounds of a pass (`rounds.rs`): blocks, headers, superblocks, and the flushes between.

use super::ceilings;
use super::gather::Gather;
use super::rounds::{Round, Schedule, What};
use crate::base::medium::now_seconds;
use crate::base::pending::{Bases, PutOff};
use crate::error::Result;
#[cfg(feature = "mutations")]
use crate::mutation::{is, Mutation};
use crate::rooms::Rooms;
use crate::zones::slots::Slots;
use crate::zones::zone::{Copies, FrozenZone};
use hashbrown::{HashMap, HashSet};
use std::sync::Arc;
use yore_format::layout::{HEADER_SLOTS, ZONE_INDEXES};
use yore_format::{
    is_same_but_for_seal, Block, BlockNo, Generation, MetaAddr, Superblock, ZoneHeader, ZoneNo, NOT_INODES,
};

/// What was written of a pass.
pub(super) struct Carried {
    /// The slot of the last superblock, and that one.
    pub(super) slot: u32,
    pub(super) superblock: Superblock,
    pub(super) put_off: Vec<PutOff>,
    /// The number of the last round.
    pub(super) last_round: u16,
}

/// A zone while a pass is written.
struct Working<'z> {
    zone: &'z FrozenZone,
    copies: Copies,
    /// Indexes that the header names.
    named: [u64; 8],
    /// Slots that were in use when the pass began, or are since.
    used: Slots,
    /// Written in this round: index, and checksum.
    written: Vec<(usize, u32)>,
}

/// Writes a pass.
struct Passing<'w> {
    rooms: &'w Rooms,
    generation: Generation,
    zones: HashMap<ZoneNo, Working<'w>>,
    images: HashMap<MetaAddr, Arc<Block>>,
    superblock: Superblock,
    slot: u32,
}

impl Schedule {
    /// Writes what a frozen generation has of these zones, and its superblock if it needs one. The medium has
    /// `bases`. `last` is the superblock before it, and `slot` where its own goes.
    pub(super) fn carry_out(
        self,
        rooms: &Rooms,
        (zones, bases): (&[FrozenZone], &Bases),
        (generation, superblock): (Generation, &Superblock),
        last: &Superblock,
        slot: u32,
    ) -> Result<Carried> {
        let cost = self.cost();
        let Schedule { how, ahead, mut rounds, put_off } = self;
        let (root, level) = (superblock.orphan_root, superblock.orphan_level);
        let (first, unpromised) = match how.is_covered {
            true => (last.clone(), None),
            false => {
                // Some of these may have been taken again, so there may be fewer.
                let freed = how.freed.min(superblock.free_blocks);
                let mut first = Superblock {
                    free_blocks: superblock.free_blocks - freed,
                    orphan_root: last.orphan_root,
                    orphan_level: last.orphan_level,
                    ..superblock.clone()
                };
                let held_back = ceilings::raise(&mut first, generation);
                (first, Some(freed + held_back))
            }
        };
        rooms.blocks.base.order.pending.count_pass(cost, unpromised);
        let images = captured(zones, generation);
        let mut passing = Passing::new(rooms, zones, images, (generation, first), slot);
        // What changed without any change that has an order goes with the first round, unless it is there:
        // what has not changed since an fsync wrote it.
        let ordered: HashSet<MetaAddr> =
            rounds.iter().flat_map(|round| &round.blocks).chain(&ahead).map(|(addr, _)| *addr).collect();
        let waiting: HashSet<MetaAddr> = put_off.iter().map(|of_block| of_block.addr).collect();
        let is_there = |addr: &MetaAddr, image: &Block| {
            bases.get(addr).is_some_and(|base| is_same_but_for_seal(base, image))
        };
        let others = passing.images.iter().filter(|(addr, image)| {
            !ordered.contains(*addr) && !waiting.contains(*addr) && !is_there(addr, image)
        });
        let others: Vec<MetaAddr> = others.map(|(addr, _)| *addr).collect();
        if !others.is_empty() {
            if rounds.is_empty() {
                rounds.push(Round::default());
            }
            rounds[0].blocks.extend(others.into_iter().map(|addr| (addr, What::Whole)));
        }
        let last_round = passing.write_rounds(ahead, rounds, !how.is_covered, 0)?;
        let Passing { zones, slot, superblock, .. } = passing;
        debug_assert_eq!((superblock.orphan_root, superblock.orphan_level), (root, level));
        for working in zones.into_values() {
            debug_assert!((0..ZONE_INDEXES as usize)
                .all(|index| working.zone.has(index) == (working.copies.map[index] != 0)));
            working.zone.zone.set_copies(working.copies);
        }
        Ok(Carried { slot, superblock, put_off, last_round })
    }

    /// Writes a part of the running generation, which has these zones and images, under the number of an
    /// earlier generation of which `after` was the last round. Returns the number of its own last round.
    pub(super) fn carry_out_part(
        self,
        rooms: &Rooms,
        zones: &[FrozenZone],
        images: HashMap<MetaAddr, Arc<Block>>,
        (generation, last): (Generation, &Superblock),
        after: u16,
    ) -> Result<u16> {
        rooms.blocks.base.order.pending.count_part(self.cost());
        let Schedule { ahead, rounds, .. } = self;
        let mut passing = Passing::new(rooms, zones, images, (generation, last.clone()), 0);
        let number = passing.write_rounds(ahead, rounds, false, after)?;
        for working in passing.zones.into_values() {
            working.zone.zone.set_copies(working.copies);
        }
        Ok(number)
    }
}

/// The blocks that a frozen generation has changed.
fn captured(zones: &[FrozenZone], generation: Generation) -> HashMap<MetaAddr, Arc<Block>> {
    let mut images = HashMap::new();
    for zone in zones {
        for frame in &zone.dirty {
            let Some((block, _)) = frame.capture(generation) else { continue };
            if zone.has(usize::from(frame.addr().index())) {
                images.insert(frame.addr(), block);
            }
        }
    }
    images
}

impl<'w> Passing<'w> {
    fn new(
        rooms: &'w Rooms,
        frozen: &'w [FrozenZone],
        images: HashMap<MetaAddr, Arc<Block>>,
        (generation, superblock): (Generation, Superblock),
        slot: u32,
    ) -> Passing<'w> {
        let mut zones = HashMap::new();
        for zone in frozen {
            let copies = zone.zone.copies();
            let shadows = rooms.blocks.base.medium.shadows();
            shadows.zone_is_written(zone.zone.start.0, || Some(copies.blocks(true)));
            let used = Slots::of(&copies.map[..]);
            let mut named = [0; 8];
            for index in (0..ZONE_INDEXES as usize).filter(|index| copies.map[*index] != 0) {
                named[index / 64] |= 1 << (index % 64);
            }
            zones.insert(zone.zone.no, Working { zone, copies, named, used, written: Vec::new() });
        }
        Passing { rooms, generation, zones, images, superblock, slot: 1 - slot }
    }

    /// Writes what goes ahead, the superblock if it is needed, and the rounds, which are numbered behind
    /// `after`; each is flushed. Returns the number of the last one.
    fn write_rounds(
        &mut self,
        ahead: Vec<(MetaAddr, What)>,
        rounds: Vec<Round>,
        needs_superblock: bool,
        after: u16,
    ) -> Result<u16> {
        let device = self.rooms.blocks.base.medium.device();
        self.write_round(after, Round { blocks: ahead, ..Round::default() })?;
        if needs_superblock {
            self.write_superblock()?;
        }
        // Of file data, too, that is named in this generation.
        device.flush()?;
        let mut number = after;
        for round in rounds {
            number += 1;
            self.write_round(number, round)?;
            #[cfg(feature = "mutations")]
            if is(Mutation::RoundsUnflushed) {
                continue;
            }
            device.flush()?;
        }
        Ok(number)
    }

    fn write_superblock(&mut self) -> Result<()> {
        self.slot = 1 - self.slot;
        self.superblock.written_seconds = now_seconds();
        self.rooms.blocks.base.medium.write_superblock(&self.superblock, self.slot)
    }

    fn write_round(&mut self, number: u16, round: Round) -> Result<()> {
        let medium = &self.rooms.blocks.base.medium;
        let mut gather = Gather::new(medium, round.blocks.len() + round.headers.len());
        let mut blocks = round.blocks;
        // In the order of the disk.
        blocks.sort_by_key(|(addr, _)| (self.zones[&addr.zone()].zone.zone.start, addr.index()));
        for (addr, what) in &blocks {
            let block = match what {
                What::Whole => self.images.get(addr).expect("a block that was frozen"),
                What::Undone(block) => &**block,
            };
            let working = self.zones.get_mut(&addr.zone()).expect("a zone that the generation has changed");
            let index = usize::from(addr.index());
            if working.copies.map[index] == 0 {
                working.copies.map[index] = working.used.take_first();
            }
            let at = BlockNo(working.zone.zone.start.0 + u64::from(working.copies.map[index]));
            let crc = gather.push(at, block, self.generation)?;
            working.written.push((index, crc));
        }
        for (zone, indexes) in &round.headers {
            let working = self.zones.get_mut(zone).expect("a zone that the generation has changed");
            working.change_header(self.rooms, &mut gather, self.generation, number, indexes)?;
        }
        gather.submit()?;
        if let Some((root, level)) = round.orphans {
            (self.superblock.orphan_root, self.superblock.orphan_level) = (root, level);
            self.superblock.step = 1;
            self.write_superblock()?;
        }
        for working in self.zones.values_mut() {
            for (index, crc) in working.written.drain(..) {
                working.copies.checks[index] = crc;
            }
        }
        Ok(())
    }
}

impl Working<'_> {
    /// Writes a header that names these indexes, or names them no longer, to the slot that does not count.
    fn change_header(
        &mut self,
        rooms: &Rooms,
        gather: &mut Gather<'_>,
        generation: Generation,
        round: u16,
        indexes: &[(u16, bool)],
    ) -> Result<()> {
        let medium = &rooms.blocks.base.medium;
        let mut header = ZoneHeader::empty(
            medium.uuid(),
            medium.geometry().blocks,
            self.zone.zone.start,
            self.zone.zone.no,
            self.zone.zone.group,
        );
        for (index, exists) in indexes {
            let index = usize::from(*index);
            match exists {
                true => self.named[index / 64] |= 1 << (index % 64),
                false => {
                    self.named[index / 64] &= !(1 << (index % 64));
                    self.copies.map[index] = 0;
                    self.copies.checks[index] = 0;
                }
            }
        }
        header.round = round;
        header.exists = self.named;
        header.extras = self.zone.extras;
        header.tables = *self.zone.tables;
        for index in (0..ZONE_INDEXES as usize).filter(|index| self.copies.map[*index] != 0) {
            if !header.has(index as u16) {
                // It is written in this round, or was in an earlier one, and is named later.
                continue;
            }
            header.map[index] = self.copies.map[index];
            // What this round writes is not durable before its flush.
            header.checks[index] = self.copies.checks[index];
            header.inode_free[index] = match self.zone.has(index) {
                true => self.zone.inode_free[index],
                false => NOT_INODES,
            };
        }
        self.copies.header_slot = 1 - self.copies.header_slot;
        let (block, _) = header.encode(generation);
        let slot = HEADER_SLOTS[usize::from(self.copies.header_slot)];
        gather.push_sealed(BlockNo(self.zone.zone.start.0 + slot), &block)
    }
}
