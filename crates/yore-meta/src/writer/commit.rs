//! Writing generations.
//!
//! One thread writes one generation at a time:
//!
//! ```text
//! running G ──freeze──► frozen G (running G+1) ──capture, write──► written ──flush──► superblock ──flush──► complete
//! ```
//!
//! *Freeze* takes the gate alone: no Op is open, so no Op is split across two generations. It takes what the zones say
//! exists, their lists of dirty frames, totals and roots, and lets Ops go on in G+1. *Capture* takes each frame's
//! bytes as of G without copying; the first change in G+1 copies.
//!
//! **Crash argument (`snapshot`; R11: the medium holds a whole file system at every instant).** Until superblock G is on
//! the medium, the newest whole one is G−1 (or what this mount found). What it reaches is untouched: blocks of G go to
//! slots that the map of G−1 does not use (each zone has twice as many slots as indexes, so there always are enough),
//! headers go to the header slot that G−1's table does not name, table blocks to free slots of root zones, root headers
//! to their other slots. Data blocks freed in G, and the part of the log that it makes superfluous, are given back only
//! after the flush behind superblock G (R2, R3). All of G, and all file data it names, is flushed before superblock G is
//! written (R1), so whichever superblock survives, everything it reaches is there. Without the first flush, superblock G
//! could be on the medium before a block of G: exactly the crash that a reordering device makes.
//!
//! To what a superblock reaches belongs what it leaves to the intent log ([`crate::log::intent`]). Superblock G says that replay
//! starts where the log ended when G was frozen, so file data that is noted and not at home lies before that place. It is
//! appended again, behind it, and forced before superblock G is written; else a crash right after superblock G would lose
//! data whose fsync had returned. Nothing else is appended meanwhile. A replay from G−1 finds everything where it was; it
//! meets the repeated notes last, belonging to the generation after G, and leaves them out.
//!
//! **What a device loses without saying so** is found by whoever reads it: each header is written with the checksums of
//! the blocks in its slots, computed once when they are sealed into the batch, and is itself named by checksum.
//!
//! **`none`** uses the same writer without its two points: blocks and headers are overwritten where they are, and nothing
//! is flushed but on request. A crash leaves any mixture; the volume must be checked before it is used again.
//!
//! After an error nothing more is written; the frames of the failed generation stay in memory for readers (R16). The same
//! after a panic, which is a bug: whoever waits for the generation is told (`StopAtPanic` in `meta.rs`).

use crate::error::Result;
use crate::log::intent::{set_position, Leader};
use crate::meta::{now_seconds, Meta, RootState};
use crate::zones::zone::FrozenZone;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::Ordering;
use std::sync::Weak;
use std::time::Instant;
use yore_device::{AlignedBuf, WriteRequest};
use yore_format::layout::{HEADER_SLOTS, SUPERBLOCKS, ZONE_BLOCKS};
use yore_format::{
    seal, Block, BlockNo, Generation, Number, RootZone, Superblock, VolumeState, ZoneHeader, ZoneNo,
    ZoneTableEntry, ZoneTableMut, BLOCK_SIZE,
};
use yore_log::{Lsn, Position};

/// Blocks gathered before they go to the device together.
const BATCH_BLOCKS: usize = 512;

/// The commit thread: waits for a reason to write a generation, writes it, says so.
pub(crate) fn run(meta: &Weak<Meta>) {
    loop {
        let Some(meta) = meta.upgrade() else { return };
        let mut p = meta.progress.lock();
        if p.stop || p.error.is_some() {
            return;
        }
        let age = p.dirty_since.map(|since| since.elapsed());
        let interval = meta.options.commit_interval;
        if p.wanted <= p.completed && age.is_none_or(|age| age < interval) {
            let wait = age.map_or(interval, |age| interval - age);
            // Bounded, so that a volume whose last user is gone without closing it ends its thread.
            meta.progressed.wait_for(&mut p, wait.min(std::time::Duration::from_millis(500)));
            continue;
        }
        drop(p);
        // An error is kept in the progress and reported to whoever waits.
        let _ = commit(&meta, VolumeState::InUse);
    }
}

struct Frozen {
    generation: Generation,
    zones: Vec<FrozenZone>,
    superblock: Superblock,
    freed: Vec<(BlockNo, u32)>,
    /// Where replay starts after it.
    log: Option<Position>,
    /// What must be forced in the log before its superblock is written.
    outstanding: Option<Lsn>,
}

/// Freezes the running generation, writes it, completes it.
pub(crate) fn commit(meta: &Meta, state: VolumeState) -> Result<()> {
    let _stop = meta.stop_at_panic("writing a generation");
    let mut held = meta.superblock.lock();
    let (mut leader, served) = meta.intent.lead();
    let (mut frozen, appended) = freeze(meta, &held.0, state, &mut leader);
    drop(leader);
    let durable =
        meta.engine == yore_format::Engine::Snapshot || meta.progress.lock().wanted >= frozen.generation.0;
    let slot = 1 - held.1;
    let durable = durable || state == VolumeState::Clean;
    #[cfg(feature = "mutations")]
    wrong_before_writing(meta, &mut frozen)?;
    let write = || appended.and_then(|()| write_generation(meta, &mut frozen, slot, durable));
    let result = catch_unwind(AssertUnwindSafe(write)).unwrap_or_else(|panic| {
        // Maps name slots that were not written: what belongs there stays in memory.
        meta.unwritten.lock().append(&mut frozen.zones);
        resume_unwind(panic)
    });
    match result {
        Ok(()) => {
            *held = (frozen.superblock, slot);
            drop(held);
            complete(meta, frozen.generation, &frozen.zones, &frozen.freed, (frozen.log, served))
        }
        Err(e) => {
            meta.unwritten.lock().append(&mut frozen.zones);
            meta.progress.lock().writing = false;
            meta.stop(e.clone());
            Err(e)
        }
    }
}

/// Gives back before the superblock what must be given back behind it.
#[cfg(feature = "mutations")]
fn wrong_before_writing(meta: &Meta, frozen: &mut Frozen) -> Result<()> {
    use crate::mutation::{is, Mutation};
    if is(Mutation::BlocksReusedEarly) {
        if let Some(reclaimer) = meta.reclaimer.get().and_then(Weak::upgrade) {
            reclaimer.reclaim(&std::mem::take(&mut frozen.freed));
        }
    }
    if is(Mutation::LogReusedEarly) {
        meta.intent.complete(frozen.log, 0)?;
    }
    Ok(())
}

/// The frozen generation, and whether what the log has outstanding was appended to it.
fn freeze(meta: &Meta, last: &Superblock, state: VolumeState, leader: &mut Leader) -> (Frozen, Result<()>) {
    let mut gate = meta.gate.write();
    let generation = Generation(*gate);
    {
        // Before anything looks unchanged: who sees neither changes nor a writer believes that all is on the medium.
        let mut p = meta.progress.lock();
        p.dirty_since = None;
        p.writing = true;
    }
    *gate += 1;
    let mut zones: Vec<FrozenZone> =
        std::mem::take(&mut *meta.dirty_zones.lock()).iter().map(|z| z.freeze()).collect();
    let freed = std::mem::take(&mut *meta.freed.lock());
    let captured: usize = zones.iter().map(|z| z.dirty.len()).sum();
    meta.root_changed.store(false, Ordering::Relaxed);
    let (orphan_root, orphan_level) = *meta.orphan_root.lock();
    let log = meta.intent.freeze();
    let head = meta.intent_head(Generation(generation.0 + 1));
    let mut superblock = Superblock {
        generation,
        engine: meta.engine,
        state,
        next_incarnation: meta.next_incarnation.load(Ordering::Relaxed),
        next_number: Number(meta.next_number.load(Ordering::Relaxed)),
        orphan_root,
        orphan_level,
        history_root: meta.history_root(),
        features: meta.extensions.wanted(),
        space_rules: meta.extensions.space_rules(),
        volume_blocks: meta.geometry().blocks,
        free_blocks: meta.totals.free_blocks.get(),
        inodes: meta.totals.inodes.get(),
        metadata_blocks: meta.totals.metadata_blocks.get(),
        zones: meta.totals.zones.get() as u32,
        zone_number_limit: meta.zone_limit(),
        ..last.clone()
    };
    if let Some((position, _)) = &log {
        #[cfg(feature = "mutations")]
        let position = match crate::mutation::is(crate::mutation::Mutation::StalePosition) {
            true => &crate::log::intent::position_of(last),
            false => position,
        };
        set_position(&mut superblock, *position, head.generation);
    }
    // What is dirty now is the writer's; callers are slowed by what comes after.
    meta.dirty_frames.fetch_sub(captured, Ordering::Relaxed);
    drop(gate);
    zones.sort_by_key(|z| z.zone.place);
    let mut frozen = Frozen { generation, zones, superblock, freed, log: None, outstanding: None };
    let mut appended = Ok(());
    if let Some((position, outstanding)) = log {
        frozen.log = Some(position);
        #[cfg(feature = "mutations")]
        let outstanding = match crate::mutation::is(crate::mutation::Mutation::OutstandingForgotten) {
            true => Default::default(),
            false => outstanding,
        };
        if !outstanding.is_empty() {
            match meta.intent.append_outstanding(leader, &outstanding, &head) {
                Ok(last) => frozen.outstanding = last,
                Err(e) => appended = Err(e),
            }
        }
    }
    (frozen, appended)
}

/// Gathers writes into aligned memory and hands them to the device in large batches.
struct Gather<'m> {
    meta: &'m Meta,
    buffer: AlignedBuf,
    places: Vec<BlockNo>,
}

impl<'m> Gather<'m> {
    /// For about so many blocks: the memory for a whole batch would cost a small generation more than all the rest.
    fn new(meta: &'m Meta, blocks: usize) -> Gather<'m> {
        let blocks = blocks.clamp(1, BATCH_BLOCKS);
        Gather { meta, buffer: AlignedBuf::zeroed(blocks), places: Vec::with_capacity(blocks) }
    }

    /// Adds a copy of `block`, sealed for `generation`; returns its checksum.
    fn push(&mut self, at: BlockNo, block: &Block, generation: Generation) -> Result<u32> {
        Ok(seal(self.copy(at, block)?, generation))
    }

    /// Adds a copy of `block`, which is sealed already.
    fn push_sealed(&mut self, at: BlockNo, block: &Block) -> Result<()> {
        self.copy(at, block).map(|_| ())
    }

    fn copy(&mut self, at: BlockNo, block: &Block) -> Result<&mut Block> {
        if self.places.len() == self.buffer.blocks() {
            self.submit()?;
        }
        let offset = self.places.len() * BLOCK_SIZE;
        let copy: &mut Block =
            (&mut self.buffer[offset..offset + BLOCK_SIZE]).try_into().expect("one block of the buffer");
        copy.copy_from_slice(block);
        self.places.push(at);
        Ok(copy)
    }

    fn submit(&mut self) -> Result<()> {
        let mut writes: Vec<WriteRequest<'_>> = Vec::new();
        let mut from = 0;
        while from < self.places.len() {
            let mut to = from + 1;
            while to < self.places.len() && self.places[to].0 == self.places[to - 1].0 + 1 {
                to += 1;
            }
            let data = &self.buffer[from * BLOCK_SIZE..to * BLOCK_SIZE];
            writes.push(WriteRequest { offset: self.places[from].0 * BLOCK_SIZE as u64, data });
            from = to;
        }
        if !writes.is_empty() {
            self.meta.device.write_batch(&writes)?;
        }
        self.places.clear();
        Ok(())
    }
}

fn write_generation(meta: &Meta, frozen: &mut Frozen, slot: u32, durable: bool) -> Result<()> {
    // Of each zone the dirty blocks and the header; at most as many table blocks, and the root zones' headers.
    let blocks = frozen.zones.iter().map(|zone| zone.dirty.len() + 2).sum::<usize>() + 1;
    let mut gather = Gather::new(meta, blocks);
    let mut entries: Vec<(ZoneNo, ZoneTableEntry)> = Vec::with_capacity(frozen.zones.len());
    for zone in &frozen.zones {
        entries.push((zone.zone.no, write_zone(meta, &mut gather, zone, frozen.generation)?));
    }
    frozen.superblock.root_zones = write_table(meta, &mut gather, &entries, frozen.generation)?;
    frozen.superblock.written_seconds = now_seconds();
    gather.submit()?;
    let at = SUPERBLOCKS[slot as usize].0 * BLOCK_SIZE as u64;
    meta.intent.force(frozen.outstanding)?;
    if durable {
        meta.device.flush()?;
    }
    let mut bytes = AlignedBuf::zeroed(1);
    bytes.copy_from_slice(&frozen.superblock.encode(slot)[..]);
    meta.device.write_at(at, &bytes)?;
    if durable {
        meta.device.flush()?;
    }
    Ok(())
}

/// Writes the blocks of one zone and its header; returns its entry for the table.
fn write_zone(
    meta: &Meta,
    gather: &mut Gather<'_>,
    z: &FrozenZone,
    generation: Generation,
) -> Result<ZoneTableEntry> {
    if z.removed {
        return Ok(ZoneTableEntry::ABSENT);
    }
    let in_place = meta.engine.in_place();
    let (mut map, mut checks, old_slot, mut rotor) = {
        let s = z.zone.state.lock();
        (s.map.clone(), s.checks.clone(), s.header_slot, s.rotor)
    };
    // Slots that the last complete generation uses must not be touched.
    let mut used = [0u64; 16];
    for slot in map.iter().filter(|s| **s != 0) {
        used[usize::from(*slot) / 64] |= 1 << (slot % 64);
    }
    #[cfg(feature = "mutations")]
    if crate::mutation::is(crate::mutation::Mutation::SlotsReusedEarly) {
        (used, rotor) = ([0; 16], 0);
    }
    for index in 0..map.len() {
        if z.exists[index / 64] & (1 << (index % 64)) == 0 {
            map[index] = 0;
            checks[index] = 0;
        }
    }
    let slots = meta.first_slots();
    for frame in &z.dirty {
        let Some(block) = frame.capture(generation) else { continue };
        let index = usize::from(frame.addr().index());
        if z.exists[index / 64] & (1 << (index % 64)) == 0 {
            continue; // Freed in this generation after it was changed in it.
        }
        if !in_place || map[index] == 0 {
            map[index] = next_free_slot(&mut used, &mut rotor, slots.clone());
        }
        checks[index] = gather.push(BlockNo(z.zone.place.0 + u64::from(map[index])), &block, generation)?;
    }
    let header = ZoneHeader {
        uuid: meta.uuid,
        volume_blocks: meta.geometry().blocks,
        place: z.zone.place,
        zone: z.zone.no,
        group: z.zone.group,
        generation,
        exists: z.exists,
        inode_free: z.inode_free.clone(),
        extras: z.extras,
        map,
        checks,
    };
    let header_slot = if in_place { old_slot } else { 1 - old_slot };
    let (block, crc) = header.encode(generation);
    let place = BlockNo(z.zone.place.0 + HEADER_SLOTS[usize::from(header_slot)]);
    gather.push_sealed(place, &block)?;
    {
        // The frames written are held until the generation is complete, so nobody reads by this map before.
        let mut s = z.zone.state.lock();
        s.map = header.map;
        s.checks = header.checks;
        s.header_slot = header_slot;
        s.rotor = rotor;
    }
    Ok(ZoneTableEntry {
        place: z.zone.place.0.into(),
        generation: generation.0.into(),
        crc: crc.into(),
        header_slot,
        present: 1,
        free_blocks: (z.free_blocks as u16).into(),
        free_indexes: (z.free_indexes as u16).into(),
        free_inodes: (z.free_inodes as u16).into(),
    })
}

/// Goes round the zone, so that runs are contiguous and an old copy stays readable as long as possible.
fn next_free_slot(used: &mut [u64; 16], rotor: &mut usize, slots: std::ops::Range<u64>) -> u16 {
    let count = (slots.end - slots.start) as usize;
    for i in 0..count {
        let slot = slots.start as usize + (*rotor + i) % count;
        if used[slot / 64] & (1 << (slot % 64)) == 0 {
            used[slot / 64] |= 1 << (slot % 64);
            *rotor = (*rotor + i + 1) % count;
            return slot as u16;
        }
    }
    panic!("a zone has twice as many slots as indexes and one generation in flight");
}

/// Writes the table blocks that changed and the root zones' headers; returns what the superblock says of them.
fn write_table(
    meta: &Meta,
    gather: &mut Gather<'_>,
    entries: &[(ZoneNo, ZoneTableEntry)],
    generation: Generation,
) -> Result<Vec<Option<RootZone>>> {
    let mut changed: BTreeMap<u32, Vec<(usize, ZoneTableEntry)>> = BTreeMap::new();
    for (no, entry) in entries {
        let (t, i) = meta.geometry().table_position(*no);
        meta.table_entry(*no)?; // Brings the table block into memory.
        changed.entry(t).or_default().push((i, *entry));
    }
    // Readers of the table share this lock, so nothing goes to the device while it is held.
    let mut ready: Vec<(BlockNo, Box<Block>)> = Vec::new();
    let mut roots = meta.roots.lock();
    let mut root_used: BTreeMap<u32, [u64; 16]> = BTreeMap::new();
    let mut headers: BTreeSet<u32> = BTreeSet::new();
    for (t, changes) in changed {
        let mut block = {
            let mut table = meta.table.lock();
            let block = table.get_mut(&t).expect("just brought into memory");
            let mut writer = ZoneTableMut::new(block);
            for (i, entry) in changes {
                writer.set(i, entry);
            }
            block.clone()
        };
        let (r, index) = meta.geometry().table_home(t);
        let root = roots[r as usize].as_mut().expect("an Op that makes a zone sees to its root zone");
        let used = root_used.entry(r).or_insert_with(|| used_slots(root));
        let at = usize::from(index);
        if !meta.engine.in_place() || root.map[at] == 0 {
            let mut rotor = 0;
            root.map[at] = next_free_slot(used, &mut rotor, meta.first_slots());
        }
        root.checks[at] = seal(&mut block, generation);
        root.exists[at / 64] |= 1 << (at % 64);
        ready.push((BlockNo(root.place.0 + u64::from(root.map[at])), block));
        headers.insert(r);
    }
    for r in headers {
        let root = roots[r as usize].as_mut().expect("written above");
        ready.push(new_root_header(meta, r, root, generation));
    }
    let current = roots.iter().map(|r| r.as_ref().and_then(|r| r.current)).collect();
    drop(roots);
    for (at, block) in ready {
        gather.push_sealed(at, &block)?;
    }
    Ok(current)
}

fn used_slots(root: &RootState) -> [u64; 16] {
    let mut used = [0u64; 16];
    for slot in root.map.iter().filter(|s| **s != 0) {
        used[usize::from(*slot) / 64] |= 1 << (slot % 64);
    }
    used
}

/// Makes a root zone's next header current; returns it and its place.
fn new_root_header(
    meta: &Meta,
    r: u32,
    root: &mut RootState,
    generation: Generation,
) -> (BlockNo, Box<Block>) {
    let no = ZoneNo::root(r);
    let group = meta.geometry().group_of(root.place);
    let mut header = ZoneHeader::empty(meta.uuid, meta.geometry().blocks, root.place, no, group);
    header.exists = root.exists;
    header.map = root.map.clone();
    header.checks = root.checks.clone();
    let header_slot = match root.current {
        Some(current) if meta.engine.in_place() => current.header_slot,
        Some(current) => 1 - current.header_slot,
        None => 0,
    };
    let (block, crc) = header.encode(generation);
    let at = BlockNo(root.place.0 + HEADER_SLOTS[usize::from(header_slot)]);
    debug_assert!(at.0 < root.place.0 + ZONE_BLOCKS);
    root.current = Some(RootZone { place: root.place, generation, crc, header_slot });
    (at, block)
}

/// The generation is on the medium: what it freed may be used again, and whoever waits goes on.
fn complete(
    meta: &Meta,
    generation: Generation,
    zones: &[FrozenZone],
    freed: &[(BlockNo, u32)],
    (log, served): (Option<Position>, u64),
) -> Result<()> {
    // Before anybody is told: who finds no generation being written may append at once.
    let released = meta.intent.complete(log, served);
    for zone in zones.iter().filter(|z| z.removed) {
        meta.zones.forget(zone.zone.no);
    }
    if let Some(reclaimer) = meta.reclaimer.get().and_then(Weak::upgrade) {
        if !freed.is_empty() {
            reclaimer.reclaim(freed);
        }
    }
    let mut p = meta.progress.lock();
    p.completed = generation.0;
    p.writing = false;
    if p.dirty_since.is_none() && meta.has_changes() {
        p.dirty_since = Some(Instant::now());
    }
    meta.progressed.notify_all();
    released
}
