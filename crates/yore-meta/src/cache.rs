//! The metadata cache: one [`Frame`] per metadata block in memory, found by its logical address.
//!
//! States of a frame, with g the running generation and w the one being written (at most one, w < g):
//!
//! | state | `dirty` | `frozen` | how it gets there |
//! |---|---|---|---|
//! | clean | 0 | – | read from the device; captured by the writer |
//! | dirty in g | g | – | first [`Frame::modify`] in g of a clean frame; a new block |
//! | dirty in w | w | – | w was frozen while the frame was dirty |
//! | dirty in both | g | bytes of w | [`Frame::modify`] in g of a frame dirty in w |
//! | dead | 0 | bytes of w, or – | [`Frame::kill`] |
//!
//! Invariants: a zone's dirty list or the writer holds each frame that is dirty, or captured and not yet
//! committed, and what somebody holds is never evicted; so a block that misses the cache is on the medium
//! where its zone's map says. The cache itself does not know what a zone is: a frame carries what it belongs
//! to, of a type `H`. The block itself is behind an `Arc`: capturing costs no copy, and the first change
//! after it copies (the copy in memory on a frozen block's first change).

use hashbrown::HashMap;
use parking_lot::{MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use yore_format::{Block, Generation, MetaAddr};
use yore_log::Lsn;

/// A metadata block in memory. While any clone of it lives, the block stays in the cache.
pub struct Frame<H>(Arc<FrameInner<H>>);

impl<H> Clone for Frame<H> {
    #[inline]
    fn clone(&self) -> Self {
        Frame(self.0.clone())
    }
}

struct FrameInner<H> {
    addr: MetaAddr,
    home: Arc<H>,
    referenced: AtomicBool,
    /// A thread that holds this takes no other lock.
    state: RwLock<FrameState>,
}

struct FrameState {
    block: Arc<Block>,
    dirty: u64,
    /// Chunks changed in generation `dirty` and not yet logged. It means nothing in a frame that is not dirty
    /// in the running generation. The frame is in its zone's list as long as this is not zero.
    unlogged: u64,
    /// The records of the log with changes that are in no copy on the medium.
    logged: Option<Logged>,
    /// The bytes of a frozen generation, with its records.
    frozen: Option<Captured>,
    dead: bool,
}

/// The bytes that a generation has of a block, and the records that have its changes.
pub(crate) type Captured = (Arc<Block>, Option<Logged>);

/// The first and the last record of the log that has changes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Logged {
    pub(crate) first: Lsn,
    pub(crate) last: Lsn,
}

/// What is new about a frame after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Nothing.
    None,
    /// Something in it is to be logged again.
    Unlogged,
    /// It is dirty, and something in it is to be logged.
    Dirty,
}

/// The bytes of a frame, locked for reading. Hold it briefly, and not while changing the same frame.
pub type FrameGuard<'a> = MappedRwLockReadGuard<'a, Block>;

/// A frame for a block that was just made (dirty in `generation`) or read (0).
pub(crate) fn new_frame<H>(addr: MetaAddr, home: Arc<H>, block: Block, generation: Generation) -> Frame<H> {
    // All of a new block is new; nothing of a block that was read is.
    let unlogged = if generation.0 == 0 { 0 } else { u64::MAX };
    let state = FrameState {
        block: Arc::new(block),
        dirty: generation.0,
        unlogged,
        logged: None,
        frozen: None,
        dead: false,
    };
    Frame(Arc::new(FrameInner { addr, home, referenced: AtomicBool::new(true), state: RwLock::new(state) }))
}

impl<H> Frame<H> {
    /// The block's logical address.
    pub fn addr(&self) -> MetaAddr {
        self.0.addr
    }

    /// The bytes.
    pub fn read(&self) -> FrameGuard<'_> {
        RwLockReadGuard::map(self.0.state.read(), |s| &*s.block)
    }

    /// What the block belongs to.
    #[inline]
    pub(crate) fn home(&self) -> &Arc<H> {
        &self.0.home
    }

    /// Changes the bytes in `generation`; `f` returns the chunks that it touched. Returns whether the frame
    /// is now dirty, or to be logged, and was not before.
    pub(crate) fn modify<R>(
        &self,
        generation: Generation,
        f: impl FnOnce(&mut Block) -> (R, u64),
    ) -> (R, News) {
        let mut s = self.0.state.write();
        assert!(!s.dead, "change of the freed block {}", self.0.addr);
        let first = s.dirty != generation.0;
        if first {
            if s.dirty != 0 {
                assert!(s.dirty < generation.0 && s.frozen.is_none(), "two frozen generations");
                s.frozen = Some((s.block.clone(), s.logged.take()));
            }
            s.dirty = generation.0;
            s.unlogged = 0;
        }
        let (result, chunks) = f(Arc::make_mut(&mut s.block));
        let news = match (first, s.unlogged == 0 && chunks != 0) {
            (true, _) => News::Dirty,
            (false, true) => News::Unlogged,
            (false, false) => News::None,
        };
        s.unlogged |= chunks;
        (result, news)
    }

    /// Hardly anybody will need the block soon, so it need not get a second chance: it leaves memory in the
    /// first round in which it may.
    pub fn evict_soon(&self) {
        self.0.referenced.store(false, Ordering::Relaxed);
    }

    /// Calls `f` with what is to be logged of the frame, if it lives: the chunks, and the block. They count
    /// as logged then, in record `number`.
    pub(crate) fn log(&self, number: Lsn, f: impl FnOnce(u64, &Block)) {
        let mut s = self.0.state.write();
        if !s.dead && s.unlogged != 0 {
            f(s.unlogged, &s.block);
            let first = s.logged.map_or(number, |logged| logged.first);
            s.logged = Some(Logged { first, last: number });
        }
        s.unlogged = 0;
    }

    /// The block is freed in `generation`. The writer still writes what an earlier, frozen generation has of
    /// it.
    pub(crate) fn kill(&self, generation: Generation) {
        let mut s = self.0.state.write();
        assert!(!s.dead, "block {} freed twice", self.0.addr);
        if s.dirty != 0 && s.dirty != generation.0 {
            s.frozen = Some((s.block.clone(), s.logged.take()));
        }
        s.dirty = 0;
        s.dead = true;
    }

    /// Whether [`Frame::capture`] would give anything.
    pub(crate) fn is_to_be_captured(&self, generation: Generation) -> bool {
        let s = self.0.state.read();
        s.frozen.is_some() || s.dirty == generation.0
    }

    /// The bytes that `generation`, now frozen, has of the block, and the records that have its changes;
    /// `None` if it was freed in it.
    pub(crate) fn capture(&self, generation: Generation) -> Option<Captured> {
        let mut s = self.0.state.write();
        if let Some(frozen) = s.frozen.take() {
            return Some(frozen);
        }
        if s.dirty != generation.0 {
            return None;
        }
        s.dirty = 0;
        Some((s.block.clone(), s.logged.take()))
    }

    /// The bytes, if neither a generation that is being written nor the running one has changed them: those
    /// of the copy on the medium. `None` also if the block was freed.
    pub(crate) fn unchanged(&self) -> Option<Arc<Block>> {
        let s = self.0.state.read();
        (s.dirty == 0 && s.frozen.is_none() && !s.dead).then(|| s.block.clone())
    }

    /// Whether it was freed.
    pub(crate) fn is_dead(&self) -> bool {
        self.0.state.read().dead
    }
}

const SHARDS: usize = 64;
/// How many candidates an insertion looks at before it lets the cache grow for a moment.
const EVICTION_TRIES: usize = 16;
/// Freed blocks that a shard's clock may hold beside a quarter of what it has in use.
const CLOCK_SLACK: usize = 16;

struct Shard<H> {
    map: HashMap<MetaAddr, Frame<H>>,
    clock: VecDeque<Frame<H>>,
}

/// All frames, in shards by address; each shard evicts by second chance.
pub(crate) struct Cache<H> {
    /// A thread locks a shard before it locks what the frames belong to: it enters a block only while that
    /// still has the block where it was read.
    shards: Vec<Mutex<Shard<H>>>,
    frames_per_shard: usize,
}

impl<H> Cache<H> {
    pub(crate) fn new(bytes: u64) -> Cache<H> {
        let frames_per_shard = (bytes as usize / yore_format::BLOCK_SIZE / SHARDS).max(16);
        let shard = || Mutex::new(Shard { map: HashMap::new(), clock: VecDeque::new() });
        Cache { shards: (0..SHARDS).map(|_| shard()).collect(), frames_per_shard }
    }

    /// How many frames the cache should hold.
    pub(crate) fn capacity(&self) -> usize {
        self.frames_per_shard * SHARDS
    }

    fn shard(&self, addr: MetaAddr) -> &Mutex<Shard<H>> {
        // Fibonacci hashing: neighbouring blocks go to different shards.
        let hash = addr.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        &self.shards[hash as usize % SHARDS]
    }

    pub(crate) fn get(&self, addr: MetaAddr) -> Option<Frame<H>> {
        let shard = self.shard(addr).lock();
        let frame = shard.map.get(&addr)?;
        if !frame.0.referenced.load(Ordering::Relaxed) {
            frame.0.referenced.store(true, Ordering::Relaxed);
        }
        Some(frame.clone())
    }

    /// As [`Cache::get`], but the block gets no second chance by it.
    pub(crate) fn peek(&self, addr: MetaAddr) -> Option<Frame<H>> {
        self.shard(addr).lock().map.get(&addr).cloned()
    }

    /// Enters a block that was just allocated; no other can be there under its address. `appear` has its
    /// index exist. Both happen under the shard's lock, as in [`Cache::remove`]: were the index there without
    /// the frame, whoever reads blocks by their places alone would bring its predecessor back.
    pub(crate) fn insert_new(&self, frame: &Frame<H>, appear: impl FnOnce()) {
        let mut shard = self.shard(frame.addr()).lock();
        appear();
        let old = shard.map.insert(frame.addr(), frame.clone());
        assert!(old.is_none(), "block {} allocated while its predecessor is in memory", frame.addr());
        self.enter(&mut shard, frame);
    }

    /// Enters a block that was read, unless it is there already or `still_there` says that it moved since;
    /// then `None` means: look again.
    pub(crate) fn insert_read(
        &self,
        frame: Frame<H>,
        still_there: impl FnOnce() -> bool,
    ) -> Option<Frame<H>> {
        let mut shard = self.shard(frame.addr()).lock();
        if let Some(present) = shard.map.get(&frame.addr()) {
            return Some(present.clone());
        }
        if !still_there() {
            return None;
        }
        shard.map.insert(frame.addr(), frame.clone());
        self.enter(&mut shard, &frame);
        Some(frame)
    }

    /// Whether nobody has the block at `addr` in memory while `holds`, both at one instant.
    pub(crate) fn lacks(&self, addr: MetaAddr, holds: impl FnOnce() -> bool) -> bool {
        let shard = self.shard(addr).lock();
        !shard.map.contains_key(&addr) && holds()
    }

    /// Somebody has read a block for his own purpose, and is done: it leaves memory if nobody else has it.
    pub(crate) fn let_go(&self, frame: Frame<H>) {
        frame.evict_soon();
        let mut shard = self.shard(frame.addr()).lock();
        let is_there = shard.map.get(&frame.addr()).is_some_and(|f| Arc::ptr_eq(&f.0, &frame.0));
        // The map, the clock, and the caller. Who else wants it comes by the map.
        if is_there && Arc::strong_count(&frame.0) <= 3 {
            shard.map.remove(&frame.addr());
        }
    }

    fn enter(&self, shard: &mut Shard<H>, frame: &Frame<H>) {
        // Freed blocks leave the map at once. The clock only passes over them, so they are swept out before
        // they outnumber those in use: each is still a whole block of memory.
        if shard.clock.len() > shard.map.len() + shard.map.len() / 4 + CLOCK_SLACK {
            let Shard { map, clock } = shard;
            clock.retain(|f| map.get(&f.addr()).is_some_and(|present| Arc::ptr_eq(&present.0, &f.0)));
        }
        shard.clock.push_back(frame.clone());
        let mut tries = 0;
        while shard.map.len() > self.frames_per_shard && tries < EVICTION_TRIES {
            tries += 1;
            let Some(candidate) = shard.clock.pop_front() else { break };
            // The map, the clock's copy in our hands, and nobody else: neither dirty nor in use.
            let held = Arc::strong_count(&candidate.0) > 2;
            if held || candidate.0.referenced.swap(false, Ordering::Relaxed) {
                if !(candidate.is_dead()
                    && shard.map.get(&candidate.addr()).is_none_or(|f| !Arc::ptr_eq(&f.0, &candidate.0)))
                {
                    shard.clock.push_back(candidate);
                }
            } else if shard.map.get(&candidate.addr()).is_some_and(|f| Arc::ptr_eq(&f.0, &candidate.0)) {
                shard.map.remove(&candidate.addr());
            }
        }
    }

    /// Removes a freed block; `free_index` frees its address. Both happen under the shard's lock: were the
    /// index still there while the frame is gone, a reader would bring the old bytes back; were it free while
    /// the frame is there, the next block under this address would find its predecessor.
    pub(crate) fn remove(&self, addr: MetaAddr, free_index: impl FnOnce()) {
        let mut shard = self.shard(addr).lock();
        free_index();
        shard.map.remove(&addr);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks that are written once and hardly ever read take no room from those in use: they go before any
    /// of them does.
    #[test]
    fn a_block_that_hardly_anybody_needs_goes_first() {
        let cache: Cache<()> = Cache::new(0);
        let shard: *const _ = cache.shard(MetaAddr(512));
        let mut frames = (512..)
            .map(MetaAddr)
            .filter(|addr| std::ptr::eq(cache.shard(*addr), shard))
            .map(|addr| new_frame(addr, Arc::new(()), yore_format::ZERO_BLOCK, Generation(0)));
        let in_memory: Vec<MetaAddr> = frames
            .by_ref()
            .take(cache.frames_per_shard)
            .map(|frame| {
                cache.insert_new(&frame, || {});
                frame.addr()
            })
            .collect();
        let (last, others) = in_memory.split_last().expect("as many as a shard holds");
        cache.get(*last).expect("just entered").evict_soon();
        cache.insert_new(&frames.next().expect("addresses do not end"), || {});
        assert!(cache.get(*last).is_none(), "it had another chance");
        assert!(others.iter().all(|addr| cache.get(*addr).is_some()), "one that is in use went instead");
    }
}
