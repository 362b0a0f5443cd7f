//! Space for data: who may write a block where, and the promise that whoever was told "yes" finds room.
//!
//! **Three states of a free block.** The bitmap on the medium knows *used* and *clear*. In memory a clear block is
//! *available*, *taken* (handed to a writer that has not yet entered it in the bitmap) or *pending* (freed by a generation that
//! is not complete). Only available blocks are handed out. Rule 3 follows: [`Alloc::free`] clears bits in its Op, but
//! the blocks become available in [`yore_meta::Reclaimer::reclaim`], when the superblock that no longer names them is
//! durable.
//!
//! **Promises.** `unpromised` counts the free blocks (pending ones too: they come with the next generation) that nobody
//! was promised. Delayed allocation takes from it before the data is accepted ([`Alloc::promise`]); taking blocks later
//! spends a promise. A2: available + pending ≥ promised, so [`Alloc::take`] finds a block, if need be after one
//! generation. Metadata that the promised data will need is promised with it: one tree node for [`BLOCKS_PER_NODE`]
//! blocks must fit the zones that exist ([`Alloc::admit`] keeps other metadata off that room).
//!
//! **Withheld room.** In each group one aligned, wholly available run of 1,024 blocks is left alone while data finds room
//! elsewhere, so that metadata can grow in a fragmented volume. Data gets it when nothing else is left.
//!
//! **Where.** After the goal if there is room, else the first run in the goal's group that is long enough, else in the groups
//! after it. Groups in which nothing is available are skipped 64 at a time: a region that a search found empty is not
//! searched again until something was reclaimed there.
//!
//! Groups in memory, and how their bitmaps are made ready for Ops, are in [`groups`]; the runs of one in `runs`.
//!
//! Locks, in this order: `grow` → meta's (reserve, begin) → shard → group, or a group's claims → block. A group's mutex is
//! held for moments, never across the device.

mod groups;
mod resize;
mod runs;
mod segments;
mod shred;

#[cfg(test)]
mod tests;

pub(crate) use groups::KeptGroups;
pub(crate) use resize::{Beyond, ClosedEnd};

use crate::{Error, Result};
use groups::{bitmap, check_bits, mark, Group};
use hashbrown::HashMap;
use parking_lot::Mutex;
use segments::Segments;
use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use yore_format::layout::{Geometry, GROUP_BLOCKS, VOLUME_BLOCKS_MAX, ZONE_BLOCKS, ZONE_INDEXES};
use yore_format::{BlockNo, Corruption, GroupNo, BITS_PER_GROUP, BLOCK_SIZE};
use yore_meta::{Change, Meta, MetaError, Op, Reserved, Room};

/// Groups that one region hint covers.
const REGION: u32 = 64;
const SHARDS: usize = 16;
/// Groups of the largest volume.
const GROUPS_MAX: u32 = (VOLUME_BLOCKS_MAX / GROUP_BLOCKS) as u32;
/// Data blocks for which one node of an extent tree is promised: leaves hold 118 extents and are half full at worst.
const BLOCKS_PER_NODE: i64 = 50;
/// Metadata blocks that promises and ordinary Ops leave over.
const NODES_SPARE: i64 = 64;
/// A run this long is taken without looking for a longer one.
const RUN_GOOD: u32 = 256;
/// Groups looked at for a good run before the longest found is taken.
const GROUPS_TRIED: u32 = 8;

/// Consecutive blocks on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first.
    pub start: BlockNo,
    /// How many; at least 1, all in one group.
    pub len: u32,
}

impl Run {
    /// The block after the last.
    pub(crate) fn end(self) -> u64 {
        self.start.0 + u64::from(self.len)
    }
}

/// Data blocks promised to a writer; dropping it gives back what was not spent.
pub(crate) struct Promise<'a> {
    alloc: &'a Alloc,
    left: u64,
}

impl Promise<'_> {
    /// Blocks still promised.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Moves `blocks` of it out of this value's care: the caller keeps count and calls [`Alloc::release`] or spends them.
    pub(crate) fn keep(&mut self, blocks: u64) {
        self.left = self.left.checked_sub(blocks).expect("no more is kept than was promised");
    }
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        if self.left > 0 {
            self.alloc.release(self.left);
        }
    }
}

/// Nodes of extent trees that `blocks` blocks may need.
fn nodes_for(blocks: i64) -> i64 {
    (blocks + BLOCKS_PER_NODE - 1) / BLOCKS_PER_NODE
}

/// Metadata blocks that the zones there are have room for. Root zones hold none of them.
fn index_room(meta: &Meta) -> i64 {
    let zones = meta.totals.zones.get() as i64 - i64::from(meta.root_zone_count());
    zones * i64::from(ZONE_INDEXES) - meta.totals.metadata_blocks.get() as i64
}

#[derive(Default)]
struct Region {
    /// Counts what was reclaimed here.
    reclaimed: AtomicU32,
    /// The count (plus one) at which a search found nothing available: without and with the withheld room.
    empty_at: [AtomicU32; 2],
}

/// The space for data of an open volume.
pub(crate) struct Alloc {
    /// The length of the volume.
    volume_blocks: AtomicU64,
    unpromised: AtomicI64,
    promised: AtomicI64,
    pending: AtomicI64,
    shards: [Mutex<HashMap<u32, Arc<Group>>>; SHARDS],
    /// Available blocks of each group plus one; 0: unknown.
    known: Segments<AtomicU16>,
    regions: Segments<Region>,
    /// Counts how often groups were dropped from memory.
    drops: AtomicU64,
    /// Where the next search with no goal in a full group starts.
    spill: AtomicU32,
    /// Where the last zone was made that was not near: the search for the next goes on there, so that a volume that fills
    /// up is not searched from the start for each.
    grown: AtomicU32,
    /// Held while zones are made or given back. Taken first of all.
    grow: Mutex<()>,
    /// No block from this one on is handed out, because the volume is about to end there; else the largest
    /// number ([`resize`]).
    closed_from: AtomicU64,
    /// What is free beyond, taken so that nobody else has it. A leaf.
    beyond: Mutex<Vec<Run>>,
}

impl Alloc {
    /// The space of a volume just opened.
    pub(crate) fn new(meta: &Meta) -> Alloc {
        Alloc {
            volume_blocks: AtomicU64::new(meta.geometry().blocks),
            unpromised: AtomicI64::new(meta.totals.free_blocks.get() as i64),
            promised: AtomicI64::new(0),
            pending: AtomicI64::new(0),
            shards: std::array::from_fn(|_| Mutex::default()),
            known: Segments::new(GROUPS_MAX),
            regions: Segments::new(GROUPS_MAX / REGION),
            drops: AtomicU64::new(0),
            spill: AtomicU32::new(0),
            grown: AtomicU32::new(0),
            grow: Mutex::new(()),
            closed_from: AtomicU64::new(u64::MAX),
            beyond: Mutex::default(),
        }
    }

    fn geometry(&self) -> Geometry {
        Geometry { blocks: self.volume_blocks.load(Ordering::Acquire) }
    }

    // ---- promises ----

    /// Promises `blocks` data blocks, and the metadata to name them. Makes zones if that needs them.
    ///
    /// # Errors
    /// `NoSpace` if not all of them can be promised; `NeverFits` if an empty volume could not either.
    pub(crate) fn promise(&self, meta: &Meta, near: GroupNo, blocks: u64) -> Result<Promise<'_>> {
        let most = self.geometry().blocks - u64::from(self.geometry().groups()) * ZONE_BLOCKS;
        if blocks > most {
            let missing = blocks.saturating_sub(self.available(meta, 0)).saturating_mul(BLOCK_SIZE as u64);
            return Err(Error::NeverFits { missing });
        }
        loop {
            match self.try_promise(meta, blocks) {
                Some(promise) => return Ok(promise),
                None if self.is_short_of(blocks) => return Err(Error::NoSpace),
                None => self.make_index_room(meta, near)?,
            }
        }
    }

    /// As [`Alloc::promise`] without making zones, so that it may be called with locks held. `None`: not enough blocks, or
    /// not enough zones.
    pub(crate) fn try_promise(&self, meta: &Meta, blocks: u64) -> Option<Promise<'_>> {
        if blocks == 0 {
            return Some(Promise { alloc: self, left: 0 });
        }
        let wanted = i64::try_from(blocks).ok()?;
        self.unpromised
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
                free.checked_sub(wanted).filter(|left| *left >= 0)
            })
            .ok()?;
        let promised = self.promised.fetch_add(wanted, Ordering::Relaxed) + wanted;
        let promise = Promise { alloc: self, left: blocks };
        (index_room(meta) >= nodes_for(promised) + NODES_SPARE).then_some(promise)
    }

    /// Whether fewer than `blocks` are left to be promised.
    pub(crate) fn is_short_of(&self, blocks: u64) -> bool {
        self.unpromised.load(Ordering::Relaxed) < blocks as i64
    }

    /// Gives back promised blocks that were not needed.
    pub(crate) fn release(&self, blocks: u64) {
        self.promised.fetch_sub(blocks as i64, Ordering::Relaxed);
        self.unpromised.fetch_add(blocks as i64, Ordering::Relaxed);
    }

    /// Data blocks that can still be written: what [`Alloc::promise`] would grant if so many more were free.
    pub(crate) fn available(&self, meta: &Meta, more: u64) -> u64 {
        let more = i64::try_from(more).unwrap_or(i64::MAX);
        let blocks = self.unpromised.load(Ordering::Relaxed).max(0).saturating_add(more);
        let nodes = nodes_for(self.promised.load(Ordering::Relaxed) + blocks) + NODES_SPARE;
        // The first zones of groups never used cost no data blocks.
        let indexes = i64::from(ZONE_INDEXES);
        let short = (nodes - index_room(meta) - self.unused_groups(meta) * indexes).max(0);
        let zones = (short + indexes - 1) / indexes;
        (blocks - zones * ZONE_BLOCKS as i64).max(0) as u64
    }

    /// Blocks promised and not yet taken.
    #[cfg(test)]
    pub(crate) fn promised(&self) -> i64 {
        self.promised.load(Ordering::Relaxed)
    }

    /// Free blocks, promised or not.
    pub(crate) fn free_blocks(&self) -> u64 {
        (self.unpromised.load(Ordering::Relaxed) + self.promised.load(Ordering::Relaxed)).max(0) as u64
    }

    // ---- metadata ----

    /// Reserves metadata blocks for an Op near a group, making zones when the near ones are full. With `for_deleting` (and for
    /// promised data) also from what is kept for that.
    ///
    /// # Errors
    /// `NoSpace` if there is no room for metadata.
    pub(crate) fn reserve(
        &self,
        meta: &Meta,
        near: GroupNo,
        blocks: u32,
        for_deleting: bool,
    ) -> Result<Reserved> {
        if !for_deleting {
            self.admit(meta, near, blocks)?;
        }
        // What deletes makes zones only for what the past keeps of it, and while they are cheap.
        let may_grow = !for_deleting || (blocks > 0 && !self.is_short_of(2 * ZONE_BLOCKS));
        let tried = |result: yore_meta::Result<Reserved>| match result {
            Err(MetaError::NeedZone { .. }) => Ok(None),
            other => Ok::<_, Error>(Some(other?)),
        };
        if let Some(reserved) = tried(meta.reserve(near, blocks))? {
            return Ok(reserved);
        }
        // Another zone right here; else one with plenty of room elsewhere, which the next callers will share; else a new
        // one elsewhere; else the last of what there is. A zone is made only when no other has room: each costs data
        // 4 MiB.
        if may_grow && self.make_zone_in(meta, near)? {
            if let Some(reserved) = tried(meta.reserve(near, blocks))? {
                return Ok(reserved);
            }
        }
        if let Some(reserved) = tried(meta.reserve_elsewhere(near, blocks, Room::Plenty))? {
            return Ok(reserved);
        }
        let grown = may_grow
            && match self.grow_metadata(meta, near) {
                Ok(()) => true,
                Err(Error::NoSpace) => false,
                Err(e) => return Err(e),
            };
        if grown {
            if let Some(reserved) = tried(meta.reserve_elsewhere(near, blocks, Room::Plenty))? {
                return Ok(reserved);
            }
        }
        if let Some(reserved) = tried(meta.reserve_elsewhere(near, blocks, Room::Ordinary))? {
            return Ok(reserved);
        }
        if !for_deleting {
            return Err(Error::NoSpace);
        }
        tried(meta.reserve_elsewhere(near, blocks, Room::Deleting))?.ok_or(Error::NoSpace)
    }

    /// Makes a zone in this very group, if it has room for one.
    fn make_zone_in(&self, meta: &Meta, group: GroupNo) -> Result<bool> {
        let _grow = self.grow.lock();
        self.make_zone(meta, group)
    }

    /// Keeps ordinary metadata off the room that promised data needs.
    fn admit(&self, meta: &Meta, near: GroupNo, blocks: u32) -> Result<()> {
        let needed = nodes_for(self.promised.load(Ordering::Relaxed)) + NODES_SPARE + i64::from(blocks);
        while blocks > 0 && index_room(meta) < needed {
            self.make_index_room(meta, near)?;
        }
        Ok(())
    }

    /// Makes a zone: the first one of `near` if it was never used, else a further one there, else the same elsewhere.
    ///
    /// # Errors
    /// `NoSpace` if no group has room for one.
    pub(crate) fn grow_metadata(&self, meta: &Meta, near: GroupNo) -> Result<()> {
        self.grow(meta, near, false)
    }

    /// Makes a zone wherever it costs least: what is promised must be nameable, not near. Groups never used have room for
    /// their first zone set aside; others give up data blocks.
    ///
    /// # Errors
    /// `NoSpace` if no group has room for one.
    pub(crate) fn make_index_room(&self, meta: &Meta, near: GroupNo) -> Result<()> {
        self.grow(meta, near, true)
    }

    fn grow(&self, meta: &Meta, near: GroupNo, unused_first: bool) -> Result<()> {
        let room = index_room(meta);
        let mut guard = self.grow.lock();
        if index_room(meta) > room {
            return Ok(()); // Somebody else has just made one.
        }
        if unused_first && self.unused_groups(meta) > 0 {
            for group in self.groups_to_grow(near) {
                let known = self.known_available(group).is_some();
                if !known && !meta.group_summary(group)?.initialised && self.initialise_locked(meta, group)? {
                    self.grown.store(group.0, Ordering::Relaxed);
                    return Ok(());
                }
            }
        }
        for retry in [false, true] {
            for group in self.groups_to_grow(near) {
                if self.make_zone(meta, group)? {
                    self.grown.store(group.0, Ordering::Relaxed);
                    return Ok(());
                }
            }
            if retry || self.pending.load(Ordering::Relaxed) == 0 || !meta.may_wait() {
                break;
            }
            parking_lot::MutexGuard::unlocked(&mut guard, || meta.sync())?;
        }
        Err(Error::NoSpace)
    }

    /// How many groups were never used, at least: every zone there is may be a group's first.
    fn unused_groups(&self, meta: &Meta) -> i64 {
        let zones = meta.totals.zones.get() as i64 - i64::from(meta.root_zone_count());
        (i64::from(self.geometry().groups()) - zones).max(0)
    }

    /// A few groups near, then all from where the last zone was made.
    fn groups_to_grow(&self, near: GroupNo) -> impl Iterator<Item = GroupNo> {
        let last = GroupNo(self.grown.load(Ordering::Relaxed));
        self.groups_from(near).take(GROUPS_TRIED as usize).chain(self.groups_from(last))
    }

    fn groups_from(&self, near: GroupNo) -> impl Iterator<Item = GroupNo> {
        let groups = self.geometry().groups();
        (0..groups).map(move |i| GroupNo(((u64::from(near.0) + u64::from(i)) % u64::from(groups)) as u32))
    }

    fn make_zone(&self, meta: &Meta, group: GroupNo) -> Result<bool> {
        if self.known_available(group).is_some_and(|known| u64::from(known) < ZONE_BLOCKS) {
            return Ok(false);
        }
        let summary = meta.group_summary(group)?;
        if !summary.initialised {
            return self.initialise_locked(meta, group);
        }
        if u64::from(summary.free_blocks) < ZONE_BLOCKS || !meta.prepare_zone(group)? {
            return Ok(false);
        }
        let (loaded, frame) = self.load(meta, group)?;
        let blocks = ZONE_BLOCKS as i64;
        let paid = self.unpromised.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
            free.checked_sub(blocks).filter(|left| *left >= 0)
        });
        if paid.is_err() {
            return Ok(false);
        }
        let Some(bit) = loaded.state.lock().take_zone() else {
            self.unpromised.fetch_add(blocks, Ordering::Relaxed);
            return Ok(false);
        };
        self.note_available(group, &loaded);
        if let Err(e) = check_bits(&self.geometry(), group, &frame, bit, ZONE_BLOCKS as u32, false) {
            self.unpromised.fetch_add(blocks, Ordering::Relaxed);
            self.make_available(Run { start: self.geometry().block_of(group, bit), len: ZONE_BLOCKS as u32 });
            return Err(e.into());
        }
        let mut op = meta.begin(Reserved::none());
        mark(&mut op, &frame, bit, ZONE_BLOCKS as u32, true);
        op.count_free_blocks(group, -blocks);
        op.create_zone(group, self.geometry().block_of(group, bit));
        loaded.state.lock().settle(ZONE_BLOCKS as u32);
        Ok(true)
    }

    /// Takes zones that emptied out of their groups; their blocks become available with the next generation.
    pub(crate) fn give_back_zones(&self, meta: &Meta) -> Result<()> {
        let _grow = self.grow.lock();
        while let Some(zone) = meta.take_empty_zone() {
            let run = Run { start: zone.place(), len: ZONE_BLOCKS as u32 };
            let mut kept = KeptGroups::default();
            self.prepare_free(meta, run, &mut kept)?;
            let mut op = meta.begin(Reserved::none());
            op.remove_zone(&zone);
            self.free(&mut op, run);
        }
        Ok(())
    }

    // ---- blocks ----

    /// Takes up to `want` consecutive available blocks, at least one, as near after `goal` as it can be. The caller
    /// holds a promise for them, which this spends. They enter the bitmap by [`Alloc::commit`], or go back by
    /// [`Alloc::untake`].
    ///
    /// # Errors
    /// Reading a bitmap, or the commit that was needed to make freed blocks available, may fail.
    pub(crate) fn take(&self, meta: &Meta, goal: BlockNo, want: u32) -> Result<Run> {
        let want = want.clamp(1, BITS_PER_GROUP);
        for retry in [false, true] {
            for withheld in [false, true] {
                if let Some(run) = self.search(meta, goal, want, withheld)? {
                    self.promised.fetch_sub(i64::from(run.len), Ordering::Relaxed);
                    return Ok(run);
                }
            }
            if !meta.may_wait() {
                break;
            }
            if !retry {
                self.give_back_zones(meta)?;
                meta.sync()?;
            }
        }
        Err(Error::NoSpace)
    }

    fn search(&self, meta: &Meta, goal: BlockNo, want: u32, withheld: bool) -> Result<Option<Run>> {
        let groups = self.geometry().groups();
        let goal_group = self.geometry().group_of(goal).0.min(groups - 1);
        let first = if self.known_available(GroupNo(goal_group)) == Some(0) {
            self.spill.load(Ordering::Relaxed).min(groups - 1)
        } else {
            goal_group
        };
        let (mut tried, mut best) = (0, None);
        let mut at = 0;
        while at < groups {
            let no = (first + at) % groups;
            let region = self.regions.get(no / REGION);
            let reclaimed = region.reclaimed.load(Ordering::Acquire);
            let end = (no / REGION + 1) * REGION;
            let span = end.min(groups) - no;
            let span = span.min(groups - at);
            if region.empty_at[usize::from(withheld)].load(Ordering::Relaxed) == reclaimed.wrapping_add(1) {
                at += span;
                continue;
            }
            let mut found = false;
            for no in no..no + span {
                let bit = match self.geometry().bit_of(goal) {
                    Some((group, bit)) if group.0 == no => Some(bit),
                    _ => None,
                };
                let Some(run) = self.look(meta, GroupNo(no), bit, want, withheld)? else { continue };
                found = true;
                if run.len >= want.min(RUN_GOOD) || (bit.is_some() && run.start == goal) {
                    best = Some(run);
                    tried = GROUPS_TRIED;
                } else {
                    best = best.filter(|b: &Run| b.len >= run.len).or(Some(run));
                    tried += 1;
                }
                if tried >= GROUPS_TRIED {
                    break;
                }
            }
            if !found && span >= REGION.min(groups) {
                region.empty_at[usize::from(withheld)].store(reclaimed.wrapping_add(1), Ordering::Relaxed);
            }
            if tried >= GROUPS_TRIED {
                break;
            }
            at += span;
        }
        let Some(best) = best else { return Ok(None) };
        // Found is not taken: another may have been faster, and then the search goes again.
        match self.claim(meta, best, want, withheld)? {
            Some(run) => Ok(Some(run)),
            None => self.search(meta, goal, want, withheld),
        }
    }

    /// The run that the group has to offer.
    fn look(
        &self,
        meta: &Meta,
        no: GroupNo,
        goal: Option<u32>,
        want: u32,
        withheld: bool,
    ) -> Result<Option<Run>> {
        if self.known_available(no) == Some(0) {
            return Ok(None);
        }
        if self.known_available(no).is_none() {
            let summary = meta.group_summary(no)?;
            if !summary.initialised && !self.initialise(meta, no)? {
                return Ok(None);
            }
            if summary.free_blocks == 0 {
                // Not noted as known: somebody may be freeing there just now.
                return Ok(None);
            }
        }
        let (group, _) = self.load(meta, no)?;
        let found = group.state.lock().find(goal, want, withheld);
        self.note_available(no, &group);
        Ok(found.map(|(bit, len)| Run { start: self.geometry().block_of(no, bit), len }))
    }

    fn claim(&self, meta: &Meta, run: Run, want: u32, withheld: bool) -> Result<Option<Run>> {
        let (no, bit) = self.geometry().bit_of(run.start).expect("a group's run is in its data area");
        let (group, _) = self.load(meta, no)?;
        let taken = group.state.lock().take(bit, run.len.min(want), withheld);
        self.note_available(no, &group);
        self.spill.store(no.0, Ordering::Relaxed);
        Ok((taken > 0).then_some(Run { start: run.start, len: taken }))
    }

    /// Gives back blocks taken and not entered: a failed write. The promise for them lives again.
    pub(crate) fn untake(&self, run: Run) {
        self.promised.fetch_add(i64::from(run.len), Ordering::Relaxed);
        self.make_available(run);
    }

    /// Enters taken blocks in the bitmap. In an Op; prepared.
    pub(crate) fn commit(&self, op: &mut Op<'_>, run: Run) -> Change {
        let (no, bit) = self.place(run).expect("taken blocks are data blocks");
        let frame = op.cached(bitmap(no)).expect("the bitmap was prepared");
        let change = mark(op, &frame, bit, run.len, true);
        op.count_free_blocks(no, -i64::from(run.len));
        self.loaded(no).state.lock().settle(run.len);
        change
    }

    /// Frees blocks. In an Op; prepared. They are available once the Op's generation is complete.
    pub(crate) fn free(&self, op: &mut Op<'_>, run: Run) -> Change {
        let (no, bit) = self.place(run).expect("prepared blocks are data blocks");
        let frame = op.cached(bitmap(no)).expect("the bitmap was prepared");
        self.loaded(no).state.lock().owe(run.len);
        let change = mark(op, &frame, bit, run.len, false);
        op.count_free_blocks(no, i64::from(run.len));
        op.free_after_commit(run.start, run.len);
        self.pending.fetch_add(i64::from(run.len), Ordering::Relaxed);
        self.unpromised.fetch_add(i64::from(run.len), Ordering::Relaxed);
        change
    }

    /// The group and bit of a run that came from the medium.
    ///
    /// # Errors
    /// `Corruption` if it is not wholly in the data area of one group.
    pub(crate) fn place(&self, run: Run) -> Result<(GroupNo, u32)> {
        match (self.geometry().bit_of(run.start), self.geometry().bit_of(BlockNo(run.end() - 1))) {
            (Some((first, bit)), Some((last, _))) if first == last => Ok((first, bit)),
            _ => Err(Corruption::new(
                "extent",
                "blocks",
                "a run within one group's data area",
                format!("{} blocks from {}", run.len, run.start),
            )
            .into()),
        }
    }
}
