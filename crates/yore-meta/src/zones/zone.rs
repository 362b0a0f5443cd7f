//! A zone in memory: which of its indexes exist (Ops change that), where those are (the writer changes that),
//! and which frames the running generation has changed. And the lists in which zones enter themselves when
//! that happens.

use crate::base::shadow::ZoneBlocks;
use crate::cache::{self, News};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use yore_format::layout::{EXTRA_ZONES_PER_GROUP, HEADER_SLOTS, ZONE_INDEXES};
use yore_format::{
    BitmapRef, Block, BlockHeader, BlockKind, BlockNo, Generation, GroupNo, Inode, InodeNo, ZoneHeader,
    ZoneNo, BITS_PER_GROUP, INODES_PER_BLOCK, NOT_INODES, TABLE_PLACES,
};

const INDEXES: usize = ZONE_INDEXES as usize;
const FULL: u32 = INODES_PER_BLOCK as u32;

/// A metadata block in memory. While any clone of it lives, the block stays in the cache.
pub type Frame = cache::Frame<Zone>;

/// A zone in memory.
pub struct Zone {
    pub(crate) no: ZoneNo,
    pub(crate) start: BlockNo,
    pub(crate) group: GroupNo,
    /// Never held across the device.
    pub(super) state: Mutex<State>,
}

pub(super) struct State {
    // Logical: changed by Ops.
    pub(super) exists: [u64; 8],
    pub(super) inode_free: Box<[u8; INDEXES]>,
    pub(super) extras: [u32; EXTRA_ZONES_PER_GROUP],
    /// First zones only: where the group's tables lie.
    pub(super) tables: Box<[u16; TABLE_PLACES]>,
    /// First zones only: clear bits in the group's bitmap.
    free_blocks: u32,
    /// Taken out of its group, by an Op of the running generation or an earlier one.
    pub(super) removed: bool,
    // Derived from the above.
    pub(super) free_indexes: u32,
    pub(super) free_inodes: u32,
    // Reservations: in memory only.
    /// About to be removed: nothing more is reserved.
    pub(super) closed: bool,
    pub(super) reserved: u32,
    pub(super) taken: HashMap<u16, u16>,
    /// Indexes of inode blocks that are damaged: no inode of them is reserved.
    pub(super) passed_over: [u64; 8],
    pub(super) inode_hint: usize,
    /// What the running generation has freed, and what the frozen one has, where nobody may have it again
    /// before the removal is durable.
    pub(super) held: Held,
    pub(super) held_before: Held,
    /// Counts inode blocks gained and lost, and that the zone is closed or goes: who looked at one without
    /// the lock sees whether it may be another now.
    pub(super) inode_blocks_changed: u64,
    // The running generation's changes.
    dirty: Vec<Frame>,
    dirty_generation: u64,
    // Those of them that the intent log does not have.
    unlogged: Vec<Frame>,
    is_unlogged: bool,
    /// The running generation lays the zone together.
    together: bool,
    /// Indexes that were taken, of which the blocks are not in the cache yet. None, when no Op is open.
    making: [u64; 8],
    // Physical: changed by the writer when a generation is complete.
    copies: Copies,
}

/// Indexes and inodes that were freed and are not available yet.
#[derive(Default)]
pub(super) struct Held {
    indexes: [u64; 8],
    /// Slots of inode blocks, by index.
    inodes: HashMap<u16, u16>,
}

impl Held {
    fn count(&self) -> usize {
        let indexes: u32 = self.indexes.iter().map(|word| word.count_ones()).sum();
        let inodes: u32 = self.inodes.values().map(|slots| slots.count_ones()).sum();
        (indexes + inodes) as usize
    }
}

/// Where a zone's blocks are on the medium.
#[derive(Clone)]
pub(crate) struct Copies {
    /// The slot of each index; 0 for nowhere yet.
    pub(crate) map: Box<[u16; INDEXES]>,
    /// The checksum of the copy in each index's slot. Read and changed together with `map`.
    pub(crate) checks: Box<[u32; INDEXES]>,
    pub(crate) header_slot: u8,
}

impl Copies {
    /// The blocks of the zone that count: the header, and the slots in use. Under an engine that `orders`
    /// changes whoever reads the zone looks at both headers.
    pub(crate) fn blocks(&self, orders: bool) -> ZoneBlocks {
        let mut blocks: ZoneBlocks = [0; 16];
        let current = HEADER_SLOTS[usize::from(self.header_slot & 1)];
        let headers = HEADER_SLOTS.into_iter().filter(|header| orders || *header == current);
        let slots = self.map.iter().filter(|slot| **slot != 0).map(|slot| u64::from(*slot));
        for at in slots.chain(headers) {
            blocks[at as usize / 64] |= 1 << (at % 64);
        }
        blocks
    }
}

/// What a frozen generation has of a zone.
pub(crate) struct FrozenZone {
    pub(crate) zone: Arc<Zone>,
    pub(crate) dirty: Vec<Frame>,
    /// Blocks that the generation has not changed and that go to other slots with it. They stay in memory
    /// until it is complete, for the map already says where they will be.
    pub(crate) along: Vec<Frame>,
    /// The generation lays the zone together.
    pub(crate) together: bool,
    pub(crate) exists: [u64; 8],
    pub(crate) inode_free: Box<[u8; INDEXES]>,
    pub(crate) extras: [u32; EXTRA_ZONES_PER_GROUP],
    pub(crate) tables: Box<[u16; TABLE_PLACES]>,
    pub(crate) free_blocks: u32,
    pub(crate) free_indexes: u32,
    pub(crate) free_inodes: u32,
    pub(crate) removed: bool,
}

impl FrozenZone {
    pub(crate) fn has(&self, index: usize) -> bool {
        self.exists[index / 64] & (1 << (index % 64)) != 0
    }
}

/// What zones enter themselves in when Ops change them.
#[derive(Default)]
pub(crate) struct Changes {
    /// Zones that the running generation has changed.
    zones: Mutex<Vec<Arc<Zone>>>,
    /// Dirty frames of all of them.
    frames: AtomicUsize,
    /// Further zones that hold nothing, perhaps.
    empty: Mutex<Vec<ZoneNo>>,
    /// Whether there is a log that has to learn of changes.
    logged: AtomicBool,
    /// Zones with something that the log does not have.
    unlogged_zones: Mutex<Vec<Arc<Zone>>>,
    unlogged_frames: AtomicUsize,
    /// Whether what is freed is held until that is durable.
    holds: AtomicBool,
    /// Indexes and inodes that are held.
    held: AtomicUsize,
    /// The log can no longer say what the running generation has changed.
    lost: AtomicBool,
}

impl Changes {
    /// There is a log: it learns of all changes from now on. Nothing has been changed yet.
    pub(crate) fn start_logging(&self) {
        self.logged.store(true, Ordering::Relaxed);
    }

    /// What is freed is not available again before a generation with that is complete.
    pub(crate) fn start_holding(&self) {
        #[cfg(feature = "mutations")]
        if crate::mutation::is(crate::mutation::Mutation::HeldReusedEarly) {
            return;
        }
        self.holds.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn holds(&self) -> bool {
        self.holds.load(Ordering::Relaxed)
    }

    /// Whether something was freed that will be available with a generation.
    pub(crate) fn has_held(&self) -> bool {
        self.held.load(Ordering::Relaxed) > 0
    }

    #[inline]
    fn is_logged(&self) -> bool {
        self.logged.load(Ordering::Relaxed)
    }

    /// Something changes that records do not say (zones come or go, the history begins): only a generation
    /// makes that durable.
    #[inline]
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// Whether only a generation makes the changes durable.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// How many frames are dirty in the running generation.
    #[inline]
    pub(crate) fn dirty_frames(&self) -> usize {
        self.frames.load(Ordering::Relaxed)
    }

    /// Whether the running generation has changed any zone or frame.
    pub(crate) fn any(&self) -> bool {
        self.dirty_frames() > 0 || !self.zones.lock().is_empty()
    }

    /// The running generation is frozen, with the gate held alone: takes what it has changed.
    pub(crate) fn freeze(&self) -> Vec<FrozenZone> {
        let zones = std::mem::take(&mut *self.zones.lock());
        zones.iter().map(|zone| zone.freeze()).collect()
    }

    /// So many frames of the frozen generation are the writer's now: callers are slowed by what comes after.
    pub(crate) fn hand_over(&self, frames: usize) {
        self.frames.fetch_sub(frames, Ordering::Relaxed);
    }

    /// The running generation is frozen: the log need not say any more what it changed.
    pub(crate) fn forget_unlogged(&self) {
        self.unlogged_zones.lock().clear();
        self.unlogged_frames.store(0, Ordering::Relaxed);
        self.lost.store(false, Ordering::Relaxed);
    }

    /// How many changed frames the log does not have.
    pub(crate) fn unlogged_frames(&self) -> usize {
        self.unlogged_frames.load(Ordering::Relaxed)
    }

    /// Gives each zone with something that the log does not have, with what exists in it, and returns the
    /// frames. All count as logged then. With no Op open.
    pub(crate) fn take_unlogged(&self, mut each: impl FnMut(ZoneNo, &[u64; 8])) -> Vec<Frame> {
        let mut frames = Vec::new();
        for zone in std::mem::take(&mut *self.unlogged_zones.lock()) {
            let mut s = zone.state.lock();
            s.is_unlogged = false;
            each(zone.no, &s.exists);
            frames.append(&mut s.unlogged);
        }
        self.unlogged_frames.store(0, Ordering::Relaxed);
        frames
    }

    /// One of the further zones that may hold nothing.
    pub(crate) fn pop_empty(&self) -> Option<ZoneNo> {
        self.empty.lock().pop()
    }
}

impl State {
    fn from_header(header: &ZoneHeader, free_blocks: u32, header_slot: u8) -> State {
        let used: u32 = header.exists.iter().map(|w| w.count_ones()).sum();
        let inodes = header.inode_free.iter().filter(|free| **free != NOT_INODES);
        State {
            exists: header.exists,
            free_inodes: inodes.map(|free| u32::from(*free)).sum(),
            inode_free: header.inode_free.clone(),
            extras: header.extras,
            tables: Box::new(header.tables),
            free_blocks,
            removed: false,
            closed: false,
            free_indexes: ZONE_INDEXES - used,
            reserved: 0,
            taken: HashMap::new(),
            passed_over: [0; 8],
            inode_hint: 0,
            held: Held::default(),
            held_before: Held::default(),
            inode_blocks_changed: 0,
            dirty: Vec::new(),
            dirty_generation: 0,
            unlogged: Vec::new(),
            is_unlogged: false,
            together: false,
            making: [0; 8],
            copies: Copies { map: header.map.clone(), checks: header.checks.clone(), header_slot },
        }
    }

    #[inline]
    fn has(&self, index: u16) -> bool {
        self.exists[usize::from(index) / 64] & (1 << (index % 64)) != 0
    }

    /// The running generation writes the zone.
    #[inline]
    fn mark_to_be_written(&mut self, zone: &Arc<Zone>, changes: &Changes, generation: Generation) {
        if self.dirty_generation != generation.0 {
            self.dirty_generation = generation.0;
            changes.zones.lock().push(zone.clone());
        }
    }

    /// The running generation changes the zone, which the log has to learn.
    #[inline]
    fn mark_dirty(&mut self, zone: &Arc<Zone>, changes: &Changes, generation: Generation) {
        self.mark_to_be_written(zone, changes, generation);
        if !self.is_unlogged && changes.is_logged() {
            self.is_unlogged = true;
            changes.unlogged_zones.lock().push(zone.clone());
        }
    }

    /// Whether the zone could go: `Some(None)` if no index exists, `Some(index)` if only that of an empty
    /// inode block does.
    pub(super) fn holds_nothing(&self) -> Option<Option<u16>> {
        match ZONE_INDEXES - self.free_indexes {
            0 => Some(None),
            1 if self.free_inodes == FULL && self.taken.is_empty() => {
                let word = self.exists.iter().position(|w| *w != 0)?;
                Some(Some((word * 64) as u16 + self.exists[word].trailing_zeros() as u16))
            }
            _ => None,
        }
    }

    /// If nothing exists but the bitmap, and perhaps a block of free inodes: the index of that.
    pub(super) fn only_bitmap(&self) -> Option<Option<u16>> {
        match ZONE_INDEXES - self.free_indexes {
            1 if self.has(0) => Some(None),
            2 if self.has(0) && self.free_inodes == FULL && self.taken.is_empty() => {
                (1..ZONE_INDEXES as u16).find(|index| self.has(*index)).map(Some)
            }
            _ => None,
        }
    }

    /// The inodes of a block that are reserved, or held; all of a block that is passed over.
    pub(super) fn unavailable(&self, index: u16) -> u16 {
        if self.passed_over[usize::from(index) / 64] & (1 << (index % 64)) != 0 {
            return u16::MAX;
        }
        let of = |slots: &HashMap<u16, u16>| slots.get(&index).copied().unwrap_or(0);
        of(&self.taken) | of(&self.held.inodes) | of(&self.held_before.inodes)
    }

    /// Indexes in use.
    fn used(&self) -> u32 {
        self.exists.iter().map(|word| word.count_ones()).sum()
    }

    pub(super) fn free_inode_count(&self, index: usize) -> u32 {
        match self.inode_free[index] {
            NOT_INODES => 0,
            free => u32::from(free),
        }
    }

    pub(super) fn clear_mark(&mut self, inode: InodeNo) {
        let index = inode.addr().index();
        if let Some(mask) = self.taken.get_mut(&index) {
            *mask &= !(1 << inode.slot());
            if *mask == 0 {
                self.taken.remove(&index);
            }
        }
    }
}

/// What a zone counts of one of its blocks.
pub(crate) struct Counted {
    /// Free inodes, or [`NOT_INODES`].
    pub(crate) inode_free: u8,
    /// Free blocks, of a bitmap.
    pub(crate) free_blocks: Option<u32>,
}

impl Counted {
    /// Of a block, in a group with so many blocks of data.
    pub(crate) fn of(block: &Block, usable: u32) -> Counted {
        match BlockKind::from_repr(BlockHeader::of(block).kind) {
            Some(BlockKind::Inodes) => Counted { inode_free: count_free_inodes(block), free_blocks: None },
            Some(BlockKind::Bitmap) => {
                let used = BitmapRef::new(block).used().saturating_sub(BITS_PER_GROUP - usable);
                Counted { inode_free: NOT_INODES, free_blocks: Some(usable.saturating_sub(used)) }
            }
            _ => Counted { inode_free: NOT_INODES, free_blocks: None },
        }
    }
}

/// Free inodes in a block of inodes.
pub(crate) fn count_free_inodes(block: &Block) -> u8 {
    (0..INODES_PER_BLOCK).filter(|slot| Inode::slot_is_free(block, *slot)).count() as u8
}

/// What exists, and where it is.
impl Zone {
    pub(crate) fn new(header: &ZoneHeader, free_blocks: u32, header_slot: u8) -> Arc<Zone> {
        let state = Mutex::new(State::from_header(header, free_blocks, header_slot));
        Arc::new(Zone { no: header.zone, start: header.start, group: header.group, state })
    }

    pub(crate) fn has(&self, index: u16) -> bool {
        self.state.lock().has(index)
    }

    /// Where the block at `index` is on the medium, slot 0 for nowhere yet, and the checksum of the copy
    /// there; `None` if the index does not exist. Slot and checksum are of one copy, so they are read under
    /// one lock.
    pub(crate) fn copy_of(&self, index: u16) -> Option<(u16, u32)> {
        let s = self.state.lock();
        let at = usize::from(index);
        s.has(index).then(|| (s.copies.map[at], s.copies.checks[at]))
    }

    /// The slot of an index, whether or not that exists.
    pub(crate) fn slot_of(&self, index: u16) -> u16 {
        self.state.lock().copies.map[usize::from(index)]
    }

    /// Sets how many inodes of a block are free ([`NOT_INODES`]: it has none); tells whether that was not
    /// known.
    pub(crate) fn correct_free_inodes(&self, index: u16, free: u8) -> bool {
        let mut s = self.state.lock();
        let index = usize::from(index);
        if s.inode_free[index] == free {
            return false;
        }
        s.free_inodes -= s.free_inode_count(index);
        s.inode_free[index] = free;
        s.free_inodes += s.free_inode_count(index);
        s.inode_blocks_changed += 1;
        true
    }

    /// Blocks that exist.
    pub(crate) fn used_indexes(&self) -> u32 {
        ZONE_INDEXES - self.state.lock().free_indexes
    }

    /// First zones only: free blocks of the group.
    pub(crate) fn free_blocks(&self) -> u32 {
        self.state.lock().free_blocks
    }

    /// Where the blocks are now: for the writer, who alone changes it.
    pub(crate) fn copies(&self) -> Copies {
        self.state.lock().copies.clone()
    }

    /// The writer has written the blocks there. It holds the frames until the generation is complete, so
    /// nobody reads by this map before.
    pub(crate) fn set_copies(&self, copies: Copies) {
        self.state.lock().copies = copies;
    }

    /// What the generation being frozen has of the zone. With the gate held alone.
    pub(crate) fn freeze(self: &Arc<Self>) -> FrozenZone {
        let mut s = self.state.lock();
        s.dirty_generation = 0;
        // The log's part in this generation is over: frames forget what is unlogged with their next change.
        s.is_unlogged = false;
        s.unlogged.clear();
        s.held_before = std::mem::take(&mut s.held);
        let (dirty, together) = (std::mem::take(&mut s.dirty), std::mem::take(&mut s.together));
        FrozenZone { dirty, together, ..self.of_state(&s) }
    }

    /// What the running generation has of the zone by now, without its frames. With the gate held alone.
    pub(crate) fn as_it_is(self: &Arc<Self>) -> FrozenZone {
        self.of_state(&self.state.lock())
    }

    fn of_state(self: &Arc<Self>, s: &State) -> FrozenZone {
        FrozenZone {
            zone: self.clone(),
            dirty: Vec::new(),
            along: Vec::new(),
            together: false,
            exists: s.exists,
            inode_free: s.inode_free.clone(),
            extras: s.extras,
            tables: s.tables.clone(),
            free_blocks: s.free_blocks,
            free_indexes: ZONE_INDEXES - s.used(),
            free_inodes: s.free_inodes,
            removed: s.removed,
        }
    }
}

/// What is held.
impl Zone {
    /// The frozen generation is complete: what it freed is available again.
    pub(crate) fn release(&self, changes: &Changes) {
        if !changes.holds() {
            return;
        }
        let mut s = self.state.lock();
        let held = std::mem::take(&mut s.held_before);
        let count = held.count();
        if count == 0 {
            return;
        }
        s.free_indexes += held.indexes.iter().map(|word| word.count_ones()).sum::<u32>();
        s.inode_blocks_changed += 1;
        let is_empty = !self.no.is_primary() && s.holds_nothing().is_some();
        drop(s);
        changes.held.fetch_sub(count, Ordering::Relaxed);
        if is_empty {
            changes.empty.lock().push(self.no);
        }
    }
}

/// Changes by Ops.
impl Zone {
    /// A frame of the zone is dirty, or to be logged, and was not before. Returns whether it is the first one
    /// that is dirty.
    #[inline]
    pub(crate) fn note_changed(
        self: &Arc<Self>,
        changes: &Changes,
        generation: Generation,
        frame: &Frame,
        news: News,
    ) -> bool {
        let mut s = self.state.lock();
        s.mark_dirty(self, changes, generation);
        if changes.is_logged() {
            s.unlogged.push(frame.clone());
            changes.unlogged_frames.fetch_add(1, Ordering::Relaxed);
        }
        if news != News::Dirty {
            return false;
        }
        s.dirty.push(frame.clone());
        drop(s);
        changes.frames.fetch_add(1, Ordering::Relaxed) == 0
    }

    #[inline]
    pub(super) fn touch<R>(
        self: &Arc<Self>,
        changes: &Changes,
        generation: Generation,
        f: impl FnOnce(&mut State) -> R,
    ) -> R {
        let mut s = self.state.lock();
        s.mark_dirty(self, changes, generation);
        f(&mut s)
    }

    /// The zone is new, and to be written.
    pub(crate) fn note_created(self: &Arc<Self>, changes: &Changes, generation: Generation) {
        self.touch(changes, generation, |_| {});
    }

    /// The running generation lays the zone together, unless it was removed. With the gate held. Nothing that
    /// exists changes, so the log has nothing to learn.
    pub(crate) fn lay_together(self: &Arc<Self>, changes: &Changes, generation: Generation) -> bool {
        let mut s = self.state.lock();
        if s.removed {
            return false;
        }
        s.together = true;
        s.mark_to_be_written(self, changes, generation);
        true
    }

    /// Takes one reserved index. It exists from [`Zone::appear`] on.
    pub(crate) fn allocate_index(self: &Arc<Self>, changes: &Changes, generation: Generation) -> u16 {
        self.touch(changes, generation, |s| {
            let held = |word: usize| s.held.indexes[word] | s.held_before.indexes[word];
            let taken = |word: usize| s.exists[word] | s.making[word] | held(word);
            let word = (0..8).find(|word| taken(*word) != u64::MAX).expect("a reserved index is free");
            let index = word * 64 + taken(word).trailing_ones() as usize;
            assert!(index < INDEXES && s.free_indexes > 0, "zone {} has no free index", self.no);
            s.making[word] |= 1 << (index % 64);
            s.free_indexes -= 1;
            s.reserved = s.reserved.saturating_sub(1);
            s.inode_free[index] = NOT_INODES;
            index as u16
        })
    }

    /// The block at an index is in the cache, and exists from now on: until then the map of copies has its
    /// predecessor, which a reader would take for it.
    pub(crate) fn appear(&self, index: u16) {
        let mut s = self.state.lock();
        let (word, bit) = (usize::from(index) / 64, 1 << (index % 64));
        s.making[word] &= !bit;
        s.exists[word] |= bit;
    }

    /// A new inode block is in the cache: its inodes may be reserved from now on.
    pub(crate) fn offer_inodes(self: &Arc<Self>, changes: &Changes, generation: Generation, index: u16) {
        self.touch(changes, generation, |s| {
            // Not the block that was here before.
            s.passed_over[usize::from(index) / 64] &= !(1 << (index % 64));
            s.inode_free[usize::from(index)] = FULL as u8;
            s.free_inodes += FULL;
            s.inode_blocks_changed += 1;
        });
    }

    pub(crate) fn free_index(self: &Arc<Self>, changes: &Changes, generation: Generation, index: u16) {
        let mut s = self.state.lock();
        s.mark_dirty(self, changes, generation);
        assert!(s.has(index), "index {index} of zone {} freed twice", self.no);
        s.exists[usize::from(index) / 64] &= !(1 << (index % 64));
        s.inode_free[usize::from(index)] = NOT_INODES;
        if changes.holds() {
            // Its inodes go with it.
            let of_block = [s.held.inodes.remove(&index), s.held_before.inodes.remove(&index)];
            let inodes: u32 = of_block.into_iter().flatten().map(u16::count_ones).sum();
            s.held.indexes[usize::from(index) / 64] |= 1 << (index % 64);
            changes.held.fetch_add(1, Ordering::Relaxed);
            changes.held.fetch_sub(inodes as usize, Ordering::Relaxed);
            return;
        }
        s.free_indexes += 1;
        if !self.no.is_primary() && s.holds_nothing().is_some() {
            changes.empty.lock().push(self.no);
        }
    }

    /// Counts a reserved inode as used.
    pub(crate) fn take_inode(self: &Arc<Self>, changes: &Changes, generation: Generation, inode: InodeNo) {
        self.touch(changes, generation, |s| {
            s.clear_mark(inode);
            let free = &mut s.inode_free[usize::from(inode.addr().index())];
            assert!(*free > 0 && *free <= FULL as u8, "reserved inode {inode} is not free");
            *free -= 1;
            s.free_inodes -= 1;
        });
    }

    /// Counts an inode as free. True: the block is empty and not worth keeping, so it is to be freed.
    pub(crate) fn free_inode(
        self: &Arc<Self>,
        changes: &Changes,
        generation: Generation,
        inode: InodeNo,
    ) -> bool {
        let mut s = self.state.lock();
        s.mark_dirty(self, changes, generation);
        let index = inode.addr().index();
        let i = usize::from(index);
        assert!(s.inode_free[i] != NOT_INODES && u32::from(s.inode_free[i]) < FULL);
        s.inode_free[i] += 1;
        s.free_inodes += 1;
        if changes.holds() {
            *s.held.inodes.entry(index).or_insert(0) |= 1 << inode.slot();
            changes.held.fetch_add(1, Ordering::Relaxed);
        }
        if u32::from(s.inode_free[i]) < FULL || s.taken.contains_key(&index) {
            return false;
        }
        // One empty block stays for the next inode.
        if s.free_inodes < 2 * FULL {
            if !self.no.is_primary() && s.holds_nothing().is_some() {
                changes.empty.lock().push(self.no);
            }
            return false;
        }
        s.inode_free[i] = NOT_INODES;
        s.free_inodes -= FULL;
        s.inode_blocks_changed += 1;
        true
    }

    /// Takes over what the records of the log say: which indexes exist, and what the blocks count that they
    /// bring. Fails with an index that exists and has no content anywhere.
    pub(crate) fn install(
        self: &Arc<Self>,
        changes: &Changes,
        generation: Generation,
        exists: &[u64; 8],
        blocks: &BTreeMap<u16, Counted>,
    ) -> std::result::Result<(), u16> {
        self.touch(changes, generation, |s| {
            s.exists = *exists;
            s.free_indexes = ZONE_INDEXES - exists.iter().map(|w| w.count_ones()).sum::<u32>();
            for index in 0..INDEXES {
                if !s.has(index as u16) {
                    s.inode_free[index] = NOT_INODES;
                }
            }
            for (index, counted) in blocks {
                s.inode_free[usize::from(*index)] = counted.inode_free;
                s.free_blocks = counted.free_blocks.unwrap_or(s.free_blocks);
            }
            let inodes = s.inode_free.iter().filter(|free| **free != NOT_INODES);
            s.free_inodes = inodes.map(|free| u32::from(*free)).sum();
            let is_missing = |index: &u16| {
                s.has(*index) && s.copies.map[usize::from(*index)] == 0 && !blocks.contains_key(index)
            };
            (0..INDEXES as u16).find(is_missing).map_or(Ok(()), Err)
        })
    }
}

/// The group: its free blocks, its further zones, and zones that go.
impl Zone {
    /// First zones only: sets the free blocks of the group.
    pub(crate) fn set_free_blocks(self: &Arc<Self>, changes: &Changes, generation: Generation, blocks: u32) {
        self.touch(changes, generation, |s| s.free_blocks = blocks);
    }

    /// First zones only: changes the free blocks of the group.
    pub(crate) fn count_free_blocks(self: &Arc<Self>, changes: &Changes, generation: Generation, by: i64) {
        self.touch(changes, generation, |s| {
            s.free_blocks = u32::try_from(i64::from(s.free_blocks) + by).expect("free blocks of a group");
        });
    }

    /// First zones only: the group's further zones.
    pub(crate) fn extras(&self) -> impl Iterator<Item = ZoneNo> {
        let extras = self.state.lock().extras;
        extras.into_iter().filter(|no| *no != 0).map(ZoneNo)
    }

    /// First zones only: enters a further zone of the group.
    pub(crate) fn add_extra(self: &Arc<Self>, changes: &Changes, generation: Generation, no: ZoneNo) {
        self.touch(changes, generation, |s| {
            let free = s.extras.iter_mut().find(|e| **e == 0).expect("a group has room for 31 further zones");
            *free = no.0;
        });
    }

    /// First zones only: a further zone goes.
    pub(crate) fn remove_extra(self: &Arc<Self>, changes: &Changes, generation: Generation, no: ZoneNo) {
        self.touch(changes, generation, |s| {
            let entry = s.extras.iter_mut().find(|e| **e == no.0).expect("the group lists its zones");
            *entry = 0;
        });
    }

    /// The empty inode block that a zone without anything else may still have.
    pub(crate) fn last_block(&self) -> Option<u16> {
        self.state.lock().holds_nothing().flatten()
    }

    /// Of a closed first zone: the block of free inodes that it may have beside the bitmap, and the group's
    /// free blocks.
    pub(crate) fn last_beside_bitmap(&self) -> (Option<u16>, u32) {
        let s = self.state.lock();
        assert!(s.closed, "zone {} is in use", self.no);
        (s.only_bitmap().expect("nothing is reserved in a closed zone"), s.free_blocks)
    }

    /// The zone's last inodes go with it.
    pub(crate) fn clear_free_inodes(self: &Arc<Self>, changes: &Changes, generation: Generation) {
        self.touch(changes, generation, |s| s.free_inodes = 0);
    }

    /// The zone holds nothing any more, and goes.
    pub(crate) fn remove(self: &Arc<Self>, changes: &Changes, generation: Generation) {
        self.touch(changes, generation, |s| {
            assert!(s.closed && s.used() == 0, "zone {} is not empty", self.no);
            s.removed = true;
            s.inode_blocks_changed += 1;
        });
    }

    /// Whether an Op has taken it out of its group: it goes with that Op's generation, or is gone.
    pub(crate) fn is_removed(&self) -> bool {
        self.state.lock().removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block was freed and its index taken again, while zones were laid together: that read the old block
    /// just before the new one was in the cache, which panicked, or counted free inodes by the old one.
    #[test]
    fn an_index_exists_with_its_block() {
        let header =
            ZoneHeader::empty([0; 16], 100_000, BlockNo(1000), ZoneNo::primary(GroupNo(0)), GroupNo(0));
        let (zone, changes) = (Zone::new(&header, 0, 1), Changes::default());
        let first = zone.allocate_index(&changes, Generation(2));
        assert!(!zone.has(first) && zone.copy_of(first).is_none());
        let second = zone.allocate_index(&changes, Generation(2));
        assert_ne!(first, second);
        zone.appear(first);
        assert!(zone.has(first) && !zone.has(second));
        zone.free_index(&changes, Generation(2), first);
        assert_eq!(zone.allocate_index(&changes, Generation(2)), first);
    }
}
