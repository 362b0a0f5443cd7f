//! One generation: freezing it, and writing it.

use super::along;
use super::beside::{Beside, FrozenBeside};
use super::ceilings;
use super::gather::Gather;
use super::passing::Carried;
use super::rounds::{freed_by, How, Schedule};
use crate::base::freed::Runs;
use crate::base::medium::now_seconds;
use crate::base::pending::{PassCounts, PutOff, Taken};
use crate::engine::{Pass, Place, Plan, Strategy};
use crate::error::Result;
use crate::log::intent::Leader;
use crate::log::moving;
use crate::log::region::set_position;
#[cfg(feature = "mutations")]
use crate::mutation::{is, Mutation};
use crate::rooms::Rooms;
use crate::zones::slots::Slots;
use crate::zones::zone::{Copies, Frame, FrozenZone, Zone};
use std::collections::BTreeMap;
use std::sync::Arc;
use yore_format::layout::{HEADER_SLOTS, ZONE_INDEXES};
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
    /// What it has put off itself, when it is written.
    pub(super) put_off: Vec<PutOff>,
    /// Whether it may put off what nobody waits for.
    may_put_off: bool,
    /// Whether it needs a superblock of its own, whatever it has changed.
    needs_superblock: bool,
    /// Where replay starts after it.
    pub(super) log: Option<Position>,
    /// How it is written.
    pub(super) plan: Plan,
    /// The record up to which the log was forced, if it has all that the generation changed.
    logged: Option<Lsn>,
    /// What must be forced in the log before its superblock is written.
    outstanding: Option<Lsn>,
    /// What is written beside it.
    beside: Option<FrozenBeside>,
    /// Its changes, under an engine that orders them.
    taken: Option<Taken>,
    /// Zones that earlier generations have changed and no table says so of, if this one may close although it
    /// was not to.
    unclosed: Vec<FrozenZone>,
}

/// Zones that a generation has changed and that no header says so of. Only engines that do not close each
/// generation have any.
#[derive(Default)]
pub(super) struct Unclosed(BTreeMap<ZoneNo, Arc<Zone>>);

/// Zones of which no header says all, at which a generation that nobody waits for closes: each pass copies
/// what all of them have, with the gate held alone.
const UNCLOSED_MANY: usize = 256;
/// The same for one that somebody waits for. Where each pass is one, no other would come.
const UNCLOSED_TOO_MANY: usize = 4 * UNCLOSED_MANY;

impl Unclosed {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the next generation is to close because they are many; whether somebody waits for it.
    fn are_many(&self, is_wanted: bool) -> bool {
        self.0.len() >= if is_wanted { UNCLOSED_TOO_MANY } else { UNCLOSED_MANY }
    }

    /// Keeps what a generation that does not close has changed in mind, and adds it to one that closes.
    /// Returns what is to be added to one that closes after all. With the gate held alone.
    fn freeze(&mut self, plan: Plan, ahead: Vec<Arc<Zone>>, zones: &mut Vec<FrozenZone>) -> Vec<FrozenZone> {
        self.0.extend(ahead.into_iter().map(|zone| (zone.no, zone)));
        for z in zones.iter() {
            self.0.remove(&z.zone.no);
        }
        let others = match plan.closes || plan.blocks == Place::InOrder {
            true => self.0.values().map(|zone| zone.freeze()).collect(),
            false => Vec::new(),
        };
        if plan.closes {
            self.0.clear();
            zones.extend(others);
            return Vec::new();
        }
        self.0.extend(zones.iter().map(|z| (z.zone.no, z.zone.clone())));
        others
    }

    /// The generation has closed after all.
    fn forget(&mut self) {
        self.0.clear();
    }
}

/// Freezes the running generation. Returns it, and whether it may be written, and what the log must have of
/// it, and what it has outstanding, was appended to that.
pub(super) fn freeze(
    rooms: &Rooms,
    last: &Superblock,
    (state, beside): (VolumeState, Option<Beside<'_>>),
    leader: &mut Leader,
    unclosed: &mut Unclosed,
) -> (Frozen, Result<()>) {
    let blocks = &rooms.blocks;
    let (base, changes) = (&blocks.base, &blocks.zones.changes);
    let strategy = base.medium.strategy();
    let mut gate = base.gate.hold();
    // An Op that panicked has stopped all writing before it let go of the gate: its changes are by half.
    let mut appended = base.progress.check_writable();
    let generation = gate.running();
    let may_put_off = base.progress.begin_writing(generation);
    let wants_exact = base.order.pending.wants_exact();
    let may_put_off = may_put_off && !wants_exact;
    // Records count if the last superblock says that they are of this generation. After a mount that has
    // replayed some, it says that they are of an earlier one.
    let follows = last.log_generation == generation;
    let mut last_record = match strategy.logs_first() && follows {
        true => rooms.log.gather_last(blocks, leader, &gate),
        false => None,
    };
    let is_wanted = state == VolumeState::Clean || base.progress.is_awaited(generation);
    // What the order of changes is, is known with all Ops at an end.
    let taken = base.order.pending.take();
    let is_whole = state == VolumeState::Clean
        || taken.as_ref().is_some_and(|taken| taken.whole)
        || unclosed.are_many(is_wanted);
    let mut pass = Pass { is_logged: last_record.is_some(), is_wanted, is_whole };
    let mut plan = strategy.plan(pass);
    #[cfg(feature = "mutations")]
    if is(Mutation::UnloggedInPlace) && strategy.logs_first() && follows {
        plan.blocks = Place::Same;
    }
    let beside = beside.map(Beside::freeze);
    gate.advance();
    let mut zones = changes.freeze();
    let others = unclosed.freeze(plan, blocks.zones.take_ahead(), &mut zones);
    let mut freed = base.freed.take();
    let captured: usize = zones.iter().map(|z| z.dirty.len()).sum();
    let moved = rooms.log.switch(blocks);
    let outstanding = rooms.log.freeze(blocks, last_record.as_mut());
    let head = blocks.head(gate.running());
    let mut superblock = next_superblock(rooms, last, generation, state);
    if let Some(at) = &moved {
        moving::enter(at, &mut superblock, gate.running());
    }
    // A pass begun by the background refreshes the totals, which covered passes leave stale.
    let needs_superblock = base.ledger.freeze(&mut superblock) || wants_exact || !is_wanted;
    changes.hand_over(captured);
    drop(gate);
    zones.sort_by_key(|z| z.zone.start);
    let mut logged = None;
    if let Some(last_record) = last_record.filter(|_| appended.is_ok()) {
        #[cfg(feature = "mutations")]
        if is(Mutation::BlocksReusedEarly) {
            base.freed.reclaim(&std::mem::take(&mut freed));
        }
        #[cfg(feature = "mutations")]
        if is(Mutation::LastRecordDropped) {
            leader.forget();
        }
        match rooms.log.append_last(blocks, leader, &last_record) {
            Ok(Some(number)) => {
                logged = Some(number);
                // As behind every other record: nothing that a mount can find names them any more (R3).
                if !freed.is_empty() {
                    base.freed.reclaim(&freed);
                    freed = Runs::default();
                }
            }
            Ok(None) => {
                pass.is_logged = false;
                plan = strategy.plan(pass);
            }
            Err(e) => appended = Err(e),
        }
    }
    let mut frozen = Frozen {
        generation,
        zones,
        superblock,
        freed,
        put_off: Vec::new(),
        may_put_off,
        needs_superblock,
        log: None,
        plan,
        logged,
        outstanding: None,
        beside,
        taken,
        unclosed: others,
    };
    if let Some(outstanding) = outstanding {
        let head = rooms.log.continue_with(frozen.logged.is_some(), head);
        let position = rooms.log.position();
        #[cfg(feature = "mutations")]
        let position = match is(Mutation::StalePosition) {
            true => crate::log::region::position_of(last),
            false => position,
        };
        set_position(&mut frozen.superblock, position, head.generation);
        frozen.log = Some(position);
        #[cfg(feature = "mutations")]
        let outstanding = match is(Mutation::OutstandingForgotten) {
            true => Default::default(),
            false => outstanding,
        };
        if !outstanding.is_empty() && appended.is_ok() {
            match rooms.log.append_outstanding(leader, &outstanding, &head) {
                Ok(last) => frozen.outstanding = last,
                Err(e) => appended = Err(e),
            }
        }
    }
    (frozen, appended)
}

/// The superblock of a generation behind `last`, as far as the ledger does not say it.
pub(super) fn next_superblock(
    rooms: &Rooms,
    last: &Superblock,
    generation: Generation,
    state: VolumeState,
) -> Superblock {
    let (blocks, base) = (&rooms.blocks, &rooms.blocks.base);
    let mut superblock = Superblock {
        generation: ceilings::number(last, generation),
        engine: base.medium.engine(),
        state: medium_state(base.medium.has_leaks(), base.medium.strategy(), state),
        features: base.features.wanted(),
        space_rules: base.features.space_rules(),
        volume_blocks: base.medium.geometry().blocks,
        zone_number_limit: blocks.zones.limit(),
        ..last.clone()
    };
    let since = if state == VolumeState::Clean { Generation(0) } else { superblock.in_place_since };
    superblock.set_in_place_since(since);
    superblock
}

/// What the superblock says of the volume's state. Leaks that a crash has left stay until somebody counts,
/// whatever engine has the volume by then, and whether it crashes again. Under one that promises nothing it
/// must be checked after a crash, which says more.
pub(super) fn medium_state(has_leaks: bool, strategy: &dyn Strategy, state: VolumeState) -> VolumeState {
    match state {
        VolumeState::Clean if has_leaks => VolumeState::LeaksPending,
        VolumeState::InUse if has_leaks && !strategy.must_be_checked() => VolumeState::LeaksPending,
        state => state,
    }
}

/// Writes a frozen generation; if it closes, its superblock comes last, into `slot`. `last` is the superblock
/// before it. Returns the slot of the last superblock that was written, and the number of the last round.
pub(super) fn write(
    rooms: &Rooms,
    frozen: &mut Frozen,
    (last, slot): (&Superblock, u32),
    unclosed: &mut Unclosed,
) -> Result<(u32, u16)> {
    if frozen.plan.blocks == Place::InOrder {
        let taken = frozen.taken.take().expect("who writes in order keeps it");
        let (generation, freed) = (frozen.generation, freed_by(&taken));
        let is_covered =
            !frozen.needs_superblock && ceilings::covers(last, &frozen.superblock, generation, freed);
        #[cfg(feature = "mutations")]
        let is_covered = is_covered || (is(Mutation::BoundsIgnored) && !taken.changes_orphans());
        let how = How { is_covered, puts_off: frozen.may_put_off, freed };
        if let Some(schedule) = Schedule::of(&taken, how) {
            let next = (generation, &frozen.superblock);
            let Carried { slot, superblock, put_off, last_round } =
                schedule.carry_out(rooms, (&frozen.zones, &taken.bases), next, last, slot)?;
            (frozen.superblock, frozen.put_off) = (superblock, put_off);
            return Ok((slot, last_round));
        }
        let pass = Pass { is_logged: false, is_wanted: false, is_whole: true };
        frozen.plan = rooms.blocks.base.medium.strategy().plan(pass);
        frozen.zones.append(&mut frozen.unclosed);
        frozen.zones.sort_by_key(|z| z.zone.start);
        unclosed.forget();
    }
    let held_back = match frozen.superblock.in_place_since.0 {
        0 => 0,
        _ => ceilings::raise(&mut frozen.superblock, frozen.generation),
    };
    write_together(rooms, frozen, slot)?;
    let cost = PassCounts { wholes: 1, ..PassCounts::default() };
    rooms.blocks.base.order.pending.count_pass(cost, Some(held_back));
    Ok((slot, 0))
}

/// Writes a frozen generation in one go.
fn write_together(rooms: &Rooms, frozen: &mut Frozen, slot: u32) -> Result<()> {
    let medium = &rooms.blocks.base.medium;
    let plan = frozen.plan;
    if let Some(FrozenBeside { at, bytes }) = &frozen.beside {
        medium.device().write_at(at.0 * BLOCK_SIZE as u64, bytes)?;
    }
    let forced = frozen.logged;
    #[cfg(feature = "mutations")]
    let forced = forced.filter(|_| !is(Mutation::LastRecordDropped));
    // Of each zone the dirty blocks and the header; at most as many table blocks, and the root zones'
    // headers.
    // Where blocks may go along with them, these are at most as many again.
    let times = if along::may_move(rooms, plan.blocks) { 2 } else { 1 };
    let of_zone = |zone: &FrozenZone| match zone.together {
        true => ZONE_INDEXES as usize,
        false => times * zone.dirty.len() + 2,
    };
    let blocks = frozen.zones.iter().map(of_zone).sum::<usize>() + 1;
    let mut gather = Gather::new(medium, blocks);
    let mut entries: Vec<(ZoneNo, ZoneTableEntry)> = Vec::with_capacity(frozen.zones.len());
    for zone in &mut frozen.zones {
        entries.push((zone.zone.no, write_zone(rooms, &mut gather, zone, frozen.generation, plan, forced)?));
    }
    if !plan.closes {
        return gather.submit();
    }
    let table = rooms.blocks.zones.table.update(medium, &entries, frozen.generation, plan.maps)?;
    for (at, block) in &table.blocks {
        gather.push_sealed(*at, block)?;
    }
    frozen.superblock.root_zones = table.roots;
    frozen.superblock.written_seconds = now_seconds();
    gather.submit()?;
    rooms.log.force_up_to(frozen.outstanding)?;
    if plan.flushes {
        medium.device().flush()?;
    }
    medium.write_superblock(&frozen.superblock, slot)?;
    if plan.flushes {
        medium.device().flush()?;
    }
    Ok(())
}

/// Writes the blocks of one zone and, in a generation that closes, its header; returns its entry for the
/// table.
fn write_zone(
    rooms: &Rooms,
    gather: &mut Gather<'_>,
    z: &mut FrozenZone,
    generation: Generation,
    plan: Plan,
    logged: Option<Lsn>,
) -> Result<ZoneTableEntry> {
    let medium = &rooms.blocks.base.medium;
    let orders = medium.strategy().orders();
    let used = || (!z.removed).then(|| z.zone.copies().blocks(orders));
    medium.shadows().zone_is_written(z.zone.start.0, used);
    if z.removed {
        return Ok(ZoneTableEntry::ABSENT);
    }
    let copies = write_blocks(rooms, gather, z, generation, plan.blocks, logged)?;
    if !plan.closes {
        // Memory knows where the blocks are; the header says it when one is written.
        z.zone.set_copies(copies);
        return Ok(ZoneTableEntry::ABSENT);
    }
    let medium = &rooms.blocks.base.medium;
    let header = ZoneHeader {
        uuid: medium.uuid(),
        volume_blocks: medium.geometry().blocks,
        start: z.zone.start,
        zone: z.zone.no,
        group: z.zone.group,
        generation,
        round: 0,
        exists: z.exists,
        inode_free: z.inode_free.clone(),
        extras: z.extras,
        tables: *z.tables,
        map: copies.map,
        checks: copies.checks,
    };
    let header_slot = if plan.maps == Place::Same { copies.header_slot } else { 1 - copies.header_slot };
    let (block, crc) = header.encode(generation);
    let header_block = BlockNo(z.zone.start.0 + HEADER_SLOTS[usize::from(header_slot)]);
    gather.push_sealed(header_block, &block)?;
    let ZoneHeader { map, checks, .. } = header;
    if along::may_move(rooms, plan.blocks) {
        rooms.blocks.zones.apart.note_written(z.zone.no, &map);
    }
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

/// Writes the blocks of one zone; returns where its blocks are then.
fn write_blocks(
    rooms: &Rooms,
    gather: &mut Gather<'_>,
    z: &mut FrozenZone,
    generation: Generation,
    place: Place,
    logged: Option<Lsn>,
) -> Result<Copies> {
    let in_place = place == Place::Same;
    let mut copies = z.zone.copies();
    // Slots that the last complete generation uses must not be touched.
    let used = Slots::of(&copies.map[..]);
    #[cfg(feature = "mutations")]
    let used = match is(Mutation::SlotsReusedEarly) {
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
    let written: Vec<u16> = z.dirty.iter().filter(takes_slot).map(|frame| frame.addr().index()).collect();
    let (slots, along) = match along::may_move(rooms, place) {
        true => along::place(rooms, z, &used, &written, &copies),
        false => (used.free_for(written.len()), Vec::new()),
    };
    let mut slots = slots.into_iter();
    for frame in &z.dirty {
        let Some((block, records)) = frame.capture(generation) else { continue };
        let index = usize::from(frame.addr().index());
        if !z.has(index) {
            continue; // Freed in this generation after it was changed in it.
        }
        if !in_place || copies.map[index] == 0 {
            copies.map[index] = slots.next().expect("a slot for each block");
        }
        if let Some(forced) = logged {
            let is_logged = records.is_some_and(|logged| logged.last <= forced);
            assert!(is_logged, "block {} would be written before the log has it", frame.addr());
        }
        let at = BlockNo(z.zone.start.0 + u64::from(copies.map[index]));
        copies.checks[index] = gather.push(at, &block, generation)?;
    }
    for (frame, block) in along {
        let index = usize::from(frame.addr().index());
        copies.map[index] = slots.next().expect("a slot for each block");
        let at = BlockNo(z.zone.start.0 + u64::from(copies.map[index]));
        // Even if the generation fails, a reader that follows the new map finds the block in memory.
        z.along.push(frame);
        copies.checks[index] = gather.push(at, &block, generation)?;
    }
    Ok(copies)
}
