//! The metadata of an open volume: what everything else in this crate hangs on, reading blocks, and waiting for
//! generations.
//!
//! Locks, in the order in which one may be taken while another is held: the leader of the intent log → the gate → cache
//! shards → zones → frames; all others (table, roots, progress and the small ones) are leaves, but that `dirty_zones` and the
//! log's notes are looked at under progress.
//! The superblock's mutex is the writer's: it is held for the length of a commit and taken before the gate.

pub(crate) mod open;
mod resize;
pub(crate) mod shred;

use crate::base::extensions::Extensions;
use crate::cache::{new_frame, Cache, Frame};
use crate::error::{MetaError, Result};
use crate::log::intent::Intent;
use crate::log::replay::Recovered;
use crate::meta::open::MetaOptions;
use crate::op::{EmptyZone, Op};
use crate::space::{Hints, Reserved};
use crate::zones::zone::{Zone, Zones};
use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use yore_device::{AlignedBuf, Device};
use yore_format::layout::{Geometry, FIRST_SLOT, VOLUME_BLOCKS_MAX, ZONE_INDEXES};
use yore_format::{
    verify_header, verify_version, Block, BlockHeader, BlockKind, BlockNo, Corruption, Engine, Expect,
    Generation, GroupNo, Incarnation, Inode, InodeNo, MetaAddr, Number, RootZone, Superblock, VolumeState,
    ZoneNo, ZoneTableEntry, ZoneTableRef, BLOCK_SIZE, INODES_PER_BLOCK, NOT_INODES, ROOT_ZONES_MAX,
    ZERO_BLOCK,
};
/// Is told of data blocks that have become free for good: the generation that freed them is complete.
pub trait Reclaimer: Send + Sync {
    /// Makes the runs (first block, length) available. Called by the writer, without locks.
    fn reclaim(&self, runs: &[(BlockNo, u32)]);
}

/// A count that Ops change; read between generations.
#[derive(Debug, Default)]
pub struct Counter(AtomicI64);

impl Counter {
    pub(crate) fn add(&self, by: i64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// The present value. A superblock that counts less than there is, which the checker finds, shows in no less than 0.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed).max(0) as u64
    }

    /// Begins with what the medium says, which may be anything; what it cannot be is taken for the most it can.
    pub(crate) fn set(&self, to: u64) {
        self.0.store(to.min(VOLUME_BLOCKS_MAX * INODES_PER_BLOCK as u64) as i64, Ordering::Relaxed);
    }
}

/// What the superblock counts.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct Totals {
    /// Free data blocks in all groups.
    pub free_blocks: Counter,
    /// Inodes in use.
    pub inodes: Counter,
    /// Metadata blocks in use.
    pub metadata_blocks: Counter,
    /// Zones, root zones included.
    pub zones: Counter,
}

pub(crate) struct RootState {
    pub(crate) place: BlockNo,
    pub(crate) exists: [u64; 8],
    pub(crate) map: Box<[u16; ZONE_INDEXES as usize]>,
    /// The checksum of the copy in each index's slot.
    pub(crate) checks: Box<[u32; ZONE_INDEXES as usize]>,
    /// `None` until its first header is written.
    pub(crate) current: Option<RootZone>,
}

/// Where the writer is. Guarded by one mutex with a condition.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Write all generations up to this one.
    pub(crate) wanted: u64,
    /// All generations up to this one are complete.
    pub(crate) completed: u64,
    /// When the running generation got its first change.
    pub(crate) dirty_since: Option<Instant>,
    pub(crate) stop: bool,
    /// The last generation was written, or not: no other follows.
    pub(crate) closed: bool,
    /// The error that stopped all writing (R16).
    pub(crate) error: Option<MetaError>,
    pub(crate) writing: bool,
}

/// The metadata of an open volume.
pub struct Meta {
    pub(crate) device: Arc<dyn Device>,
    /// The length of the volume. Changed in an Op that is alone (`resize.rs`).
    pub(crate) volume_blocks: AtomicU64,
    pub(crate) volume_tag: u32,
    pub(crate) uuid: [u8; 16],
    pub(crate) engine: Engine,
    pub(crate) read_only: bool,
    pub(crate) options: MetaOptions,
    pub(crate) cache: Cache,
    pub(crate) zones: Zones,
    /// What the superblock counts.
    pub totals: Totals,
    /// The generation gate: the running generation. Ops hold it shared; freezing takes it alone for an instant.
    pub(crate) gate: RwLock<u64>,
    pub(crate) dirty_zones: Mutex<Vec<Arc<Zone>>>,
    pub(crate) dirty_frames: AtomicUsize,
    pub(crate) root_changed: AtomicBool,
    pub(crate) freed: Mutex<Vec<(BlockNo, u32)>>,
    pub(crate) orphan_root: Mutex<(MetaAddr, u8)>,
    /// The block with the roots of the history; 0: there is none yet.
    pub(crate) history_root: AtomicU64,
    /// Features and rules that the next superblock says.
    pub(crate) extensions: Extensions,
    pub(crate) next_incarnation: AtomicU64,
    pub(crate) next_number: AtomicU64,
    pub(crate) zone_number_limit: AtomicU32,
    pub(crate) block_hints: Hints,
    pub(crate) inode_hints: Hints,
    /// Zone table blocks in memory. Changed only by the writer.
    pub(crate) table: Mutex<HashMap<u32, Box<Block>>>,
    pub(crate) roots: Mutex<Vec<Option<RootState>>>,
    /// How many of them there are.
    pub(crate) root_zones: AtomicU32,
    /// The superblock last written, and its slot. Held by the writer for the length of a commit.
    pub(crate) superblock: Mutex<(Superblock, u32)>,
    pub(crate) progress: Mutex<Progress>,
    pub(crate) progressed: Condvar,
    pub(crate) stopped: AtomicBool,
    pub(crate) reclaimer: OnceLock<Weak<dyn Reclaimer>>,
    pub(crate) intent: Intent,
    /// What replay left for the store to do.
    pub(crate) recovered: Mutex<Option<Recovered>>,
    /// The volume is being recovered: no generation is written, and nobody waits for one.
    pub(crate) recovering: AtomicBool,
    pub(crate) writer: Mutex<Option<std::thread::JoinHandle<()>>>,
    /// The frames of a generation that could not be written: kept in memory, so that reads go on (R16).
    pub(crate) unwritten: Mutex<Vec<crate::zones::zone::FrozenZone>>,
    /// As it was when the volume was opened.
    pub(crate) found: Superblock,
}

/// The generation gate as an Op holds it.
pub(crate) enum GateGuard<'m> {
    /// Other Ops may be open, too.
    Shared { _gate: RwLockReadGuard<'m, u64> },
    /// No other is.
    Alone { _gate: RwLockWriteGuard<'m, u64> },
}

thread_local! {
    static OPS_OPEN: Cell<u32> = const { Cell::new(0) };
}

pub(crate) fn op_opened() {
    OPS_OPEN.with(|n| {
        assert_eq!(n.get(), 0, "an Op opened inside an Op");
        n.set(1);
    });
}

pub(crate) fn op_closed() {
    OPS_OPEN.with(|n| n.set(0));
}

pub(crate) fn assert_no_op() {
    OPS_OPEN.with(|n| debug_assert_eq!(n.get(), 0, "an open Op must not wait (R7)"));
}

impl Meta {
    /// Who is told of freed data blocks. Set once, right after opening.
    pub fn set_reclaimer(&self, reclaimer: Weak<dyn Reclaimer>) {
        assert!(self.reclaimer.set(reclaimer).is_ok(), "the reclaimer is set once");
    }

    /// The volume's geometry. It changes when the volume is resized; an Op sees one and the same.
    pub fn geometry(&self) -> Geometry {
        Geometry { blocks: self.volume_blocks.load(Ordering::Acquire) }
    }

    /// The device underneath, for file data.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The engine in use.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Whether nothing may be changed.
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// The superblock as it was found when the volume was opened.
    pub fn found(&self) -> &Superblock {
        &self.found
    }

    /// The superblock last written. Waits for a commit under way.
    pub fn superblock(&self) -> Superblock {
        self.superblock.lock().0.clone()
    }

    /// A fresh incarnation.
    pub fn next_incarnation(&self) -> Incarnation {
        loop {
            let n = self.next_incarnation.fetch_add(1, Ordering::Relaxed) as u32;
            if n != 0 {
                return Incarnation(n);
            }
        }
    }

    /// The number that births take now (VERSIONING).
    pub fn number(&self) -> Number {
        Number(self.next_number.load(Ordering::Relaxed))
    }

    /// Root and level of the tree of orphans.
    pub fn orphan_root(&self) -> (MetaAddr, u8) {
        *self.orphan_root.lock()
    }

    /// The block with the roots of the history, if the volume was ever cut.
    pub fn history_root(&self) -> MetaAddr {
        MetaAddr(self.history_root.load(Ordering::Acquire))
    }

    /// Opens an Op with what was reserved for it. Waits only for the instant in which a generation is frozen.
    pub fn begin(&self, reserved: Reserved) -> Op<'_> {
        let gate = self.gate.read();
        let generation = Generation(*gate);
        Op::open(self, reserved, GateGuard::Shared { _gate: gate }, generation)
    }

    /// As [`Meta::begin`], with no other Op open until this one ends: for what must lie wholly before or wholly behind each of
    /// them. Waits for those that are open.
    pub fn begin_alone(&self, reserved: Reserved) -> Op<'_> {
        let gate = self.gate.write();
        let generation = Generation(*gate);
        Op::open(self, reserved, GateGuard::Alone { _gate: gate }, generation)
    }

    /// The block at `addr`, from memory or the device, verified to be what `expect` says.
    ///
    /// # Errors
    /// [`MetaError::Corruption`] and [`MetaError::Device`].
    ///
    /// # Panics
    /// In debug builds, if an Op is open on this thread (R7).
    pub fn read(&self, addr: MetaAddr, expect: &Expect) -> Result<Frame> {
        let frame = self.read_any(addr)?;
        expect.check(&frame.read()).map_err(|c| c.at(addr))?;
        Ok(frame)
    }

    /// As [`Meta::read`], for a caller that checks itself what the block is, when it looks at it anyway: with
    /// [`Expect::check`], before anything else.
    ///
    /// # Errors
    /// As [`Meta::read`], but for what [`Expect::check`] finds.
    ///
    /// # Panics
    /// As [`Meta::read`].
    pub fn read_any(&self, addr: MetaAddr) -> Result<Frame> {
        assert_no_op();
        loop {
            if let Some(frame) = self.cache.get(addr) {
                return Ok(frame);
            }
            if let Some(frame) = self.read_missing(addr)? {
                return Ok(frame);
            }
        }
    }

    /// `Ok(None)`: the block moved while it was read; look again.
    fn read_missing(&self, addr: MetaAddr) -> Result<Option<Frame>> {
        let missing = |what: &'static str| {
            Corruption::new("metadata pointer", "target", "an existing block", what).at(addr)
        };
        if !addr.is_plausible() || addr.zone().is_root() {
            return Err(missing("no possible address").into());
        }
        let Some(zone) = self.zones.get(self, addr.zone())? else {
            return Err(missing("no such zone").into());
        };
        // Slot and checksum are of one copy, so they are read under one lock.
        let (slot, check) = {
            let s = zone.state.lock();
            if !s.has(addr.index()) {
                return Err(missing("an index that does not exist").into());
            }
            s.copy_of(addr.index())
        };
        if slot == 0 {
            // Exists and was never written, so it is in memory: made since we looked.
            return match self.cache.get(addr) {
                Some(frame) => Ok(Some(frame)),
                None if zone.state.lock().map[usize::from(addr.index())] != 0 => Ok(None),
                None => Err(missing("a block that was never written").into()),
            };
        }
        let at = BlockNo(zone.place.0 + u64::from(slot));
        let block = self.read_block(at)?;
        let still_there = |zone: &Zone| {
            let s = zone.state.lock();
            s.has(addr.index()) && s.copy_of(addr.index()) == (slot, check)
        };
        if let Err(c) = self.verify_copy(&block, check, addr, at) {
            // An engine that writes in place may have overwritten the block meanwhile, and says so in the map only
            // afterwards; until then the frame that it wrote is in memory.
            let is_wrong = self.cache.lacks(addr, || still_there(&zone));
            return if is_wrong { Err(c.into()) } else { Ok(None) };
        }
        let counted = match block[4] == BlockKind::Inodes as u8 {
            true => (0..INODES_PER_BLOCK).filter(|slot| Inode::slot_is_free(&block, *slot)).count() as u8,
            false => NOT_INODES,
        };
        // Freeing the last inode by the header's count frees the block, so a count that contradicts the block is not believed:
        // the block's own counts from now on, as in replay. The two change together, with the block in memory, so what
        // nobody has in memory shows no half of a change.
        let is_wrong = self.cache.lacks(addr, || {
            still_there(&zone) && zone.state.lock().correct_free_inodes(addr.index(), counted)
        });
        if is_wrong {
            tracing::warn!(
                "the header of zone {} counts free inodes of {addr} wrongly; run `yore check`",
                zone.no
            );
        }
        let frame = new_frame(addr, zone.clone(), *block, Generation(0));
        Ok(self.cache.insert_read(frame, || still_there(&zone)))
    }

    /// The verifier after every read of a block that a zone's map leads to: the block itself, then that it is the copy
    /// which the map means.
    fn verify_copy(
        &self,
        block: &Block,
        check: u32,
        addr: MetaAddr,
        at: BlockNo,
    ) -> std::result::Result<(), Box<Corruption>> {
        verify_header(block, addr, self.volume_tag, at)?;
        verify_version(block, check, addr, at)
    }

    pub(crate) fn read_block(&self, at: BlockNo) -> Result<Box<Block>> {
        let mut buf = AlignedBuf::zeroed(1);
        self.device.read_at(at.0 * BLOCK_SIZE as u64, &mut buf)?;
        let mut block = Box::new(ZERO_BLOCK);
        block.copy_from_slice(&buf);
        Ok(block)
    }

    /// What the zone table says of a zone, as of the last commit.
    pub(crate) fn table_entry(&self, no: ZoneNo) -> Result<ZoneTableEntry> {
        let (t, i) = self.geometry().table_position(no);
        if let Some(block) = self.table.lock().get(&t) {
            return Ok(ZoneTableRef::new(block).entry(i));
        }
        let (r, index) = self.geometry().table_home(t);
        let copy = {
            let roots = self.roots.lock();
            match roots.get(r as usize) {
                Some(Some(root)) if root.map[usize::from(index)] != 0 => {
                    let at = BlockNo(root.place.0 + u64::from(root.map[usize::from(index)]));
                    Some((at, root.checks[usize::from(index)]))
                }
                _ => None,
            }
        };
        let addr = MetaAddr::new(ZoneNo::root(r), index);
        let block = match copy {
            Some((at, check)) => {
                let block = self.read_block(at)?;
                let verified = self
                    .verify_copy(&block, check, addr, at)
                    .and_then(|()| Expect::volume(BlockKind::ZoneTable).check(&block));
                if let Err(c) = verified {
                    // Only the writer changes the table, and what it changes it keeps in memory from before the change.
                    return match self.table.lock().get(&t) {
                        Some(block) => Ok(ZoneTableRef::new(block).entry(i)),
                        None => Err(c.into()),
                    };
                }
                block
            }
            None => {
                let mut block = Box::new(ZERO_BLOCK);
                let (kind, tag) = (BlockKind::ZoneTable, self.volume_tag);
                BlockHeader::init(&mut block, kind, 0, addr, InodeNo::NONE, Incarnation(0), tag, Number(0));
                block
            }
        };
        let mut table = self.table.lock();
        Ok(ZoneTableRef::new(table.entry(t).or_insert(block)).entry(i))
    }

    /// Root zones that exist.
    pub fn root_zone_count(&self) -> u32 {
        self.root_zones.load(Ordering::Relaxed)
    }

    /// Root zones from the first one on without a gap: those whose table blocks have a home.
    pub(crate) fn root_zones_in_a_row(&self) -> u32 {
        self.roots.lock().iter().take_while(|r| r.is_some()).count() as u32
    }

    /// Makes a root zone at `place` if the table entry of `zone` has no home. In an Op.
    pub(crate) fn make_root_zone_for(&self, zone: ZoneNo, place: BlockNo) -> bool {
        let (t, _) = self.geometry().table_position(zone);
        let (r, _) = self.geometry().table_home(t);
        let mut roots = self.roots.lock();
        if roots.get(r as usize).is_some_and(Option::is_some) {
            return false;
        }
        assert!((r as usize) < ROOT_ZONES_MAX, "prepare_group has checked it");
        while roots.len() <= r as usize {
            roots.push(None);
        }
        let (map, checks) = (Box::new([0; ZONE_INDEXES as usize]), Box::new([0; ZONE_INDEXES as usize]));
        self.root_zones.fetch_add(1, Ordering::Relaxed);
        roots[r as usize] = Some(RootState { place, exists: [0; 8], map, checks, current: None });
        self.totals.zones.add(1);
        true
    }

    /// Reads what an Op needs that makes a group's first zone.
    ///
    /// # Errors
    /// Reading the zone table may fail; [`MetaError::NeedZone`] if the superblock can name no further root zone.
    pub fn prepare_group(&self, group: GroupNo) -> Result<()> {
        let no = ZoneNo::primary(group);
        let (t, _) = self.geometry().table_position(no);
        if self.geometry().table_home(t).0 as usize >= ROOT_ZONES_MAX {
            return Err(MetaError::NeedZone { near: group });
        }
        self.table_entry(no).map(|_| ())
    }

    /// Finds a number for a further zone of `group` and keeps the group's first zone in memory. Before each Op that
    /// calls [`Op::create_zone`]; false if no number is left or the group has all its zones.
    ///
    /// # Errors
    /// Reading the zone table may fail.
    pub fn prepare_zone(&self, group: GroupNo) -> Result<bool> {
        let Some(primary) = self.zones.get(self, ZoneNo::primary(group))? else { return Ok(false) };
        if primary.state.lock().extras.iter().all(|e| *e != 0) {
            return Ok(false);
        }
        self.zones.prepare_number(self)
    }

    /// An empty further zone that can be taken out of its group, by [`Op::remove_zone`].
    pub fn take_empty_zone(&self) -> Option<EmptyZone> {
        self.zones.take_empty().map(EmptyZone)
    }

    pub(crate) fn zone_limit(&self) -> u32 {
        self.zone_number_limit.load(Ordering::Relaxed)
    }

    /// Zones may have numbers below `limit`; it never falls.
    pub(crate) fn raise_zone_limit(&self, limit: u32) {
        self.zone_number_limit.fetch_max(limit, Ordering::Relaxed);
    }

    pub(crate) fn note_freed(&self, start: BlockNo, len: u32) {
        self.freed.lock().push((start, len));
    }

    /// Whether blocks were freed that become available only with the next generation.
    pub fn has_pending_frees(&self) -> bool {
        !self.freed.lock().is_empty() || self.progress.lock().writing
    }

    pub(crate) fn note_root_changed(&self) {
        self.root_changed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn note_dirty_frame(&self) {
        let before = self.dirty_frames.fetch_add(1, Ordering::Relaxed);
        if before == 0 {
            let mut p = self.progress.lock();
            p.dirty_since.get_or_insert_with(Instant::now);
        }
    }

    /// Fails if nothing may be changed (any more).
    ///
    /// # Errors
    /// [`MetaError::ReadOnly`]; [`MetaError::Stopped`] after a write error, and once the volume is closed.
    pub fn check_writable(&self) -> Result<()> {
        if self.read_only {
            return Err(MetaError::ReadOnly);
        }
        if self.stopped.load(Ordering::Acquire) {
            let first = self.progress.lock().error.clone();
            let first = Box::new(first.unwrap_or_else(|| MetaError::Refused("the volume is closed".into())));
            return Err(MetaError::Stopped { first });
        }
        Ok(())
    }

    /// Stops all writing for good after an error of the device (R16). The first error is kept.
    pub fn stop(&self, error: MetaError) {
        let mut p = self.progress.lock();
        if p.error.is_none() {
            tracing::error!("writing stops: {error}");
            p.error = Some(error);
        }
        self.stopped.store(true, Ordering::Release);
        self.progressed.notify_all();
    }

    /// For whoever writes to the device past this layer: if `what` panics, all writing stops as after an error.
    pub fn stop_at_panic(&self, what: &'static str) -> StopAtPanic<'_> {
        StopAtPanic { meta: self, what }
    }

    /// Slows callers gradually while one generation is being written and the next fills up; starts one when a
    /// quarter of the cache is dirty.
    pub(crate) fn throttle(&self) {
        assert_no_op();
        if !self.may_wait() {
            return;
        }
        let dirty = self.dirty_frames.load(Ordering::Relaxed);
        let (soft, hard) = (self.cache.capacity() / 4, self.cache.capacity() / 2);
        if dirty < soft {
            return;
        }
        let generation = *self.gate.read();
        let mut p = self.progress.lock();
        if p.wanted < generation {
            p.wanted = generation;
            self.progressed.notify_all();
        }
        if p.writing && dirty < hard {
            // From nothing at the soft limit to 2 ms a call near the hard one.
            let share = (dirty - soft) as u64 * 2_000 / (hard - soft).max(1) as u64;
            self.progressed.wait_for(&mut p, Duration::from_micros(share));
        }
        while self.dirty_frames.load(Ordering::Relaxed) >= hard && p.error.is_none() && !p.stop {
            self.progressed.wait_for(&mut p, Duration::from_millis(10));
        }
    }

    /// All changes made before are on the medium when this returns. Concurrent callers share one commit.
    ///
    /// # Errors
    /// The error that stopped writing, if one did.
    pub fn sync(&self) -> Result<()> {
        assert_no_op();
        self.check_writable()?;
        let generation = *self.gate.read();
        let p = self.progress.lock();
        // The generation that we read may have been frozen since: then nothing is dirty any more, and it is being written.
        let is_settled = !self.has_changes() && !self.intent.has_notes();
        if !p.writing && is_settled && p.completed + 1 == generation {
            drop(p);
            return self.device.flush().map_err(|e| {
                self.stop(e.clone().into());
                e.into()
            });
        }
        drop(p);
        self.sync_generation(generation)
    }

    /// As [`Meta::sync`] where something is known to be uncommitted.
    pub(crate) fn sync_running(&self) -> Result<()> {
        let generation = *self.gate.read();
        self.sync_generation(generation)
    }

    fn sync_generation(&self, generation: u64) -> Result<()> {
        let mut p = self.progress.lock();
        p.wanted = p.wanted.max(generation);
        self.progressed.notify_all();
        while p.completed < generation {
            if let Some(e) = &p.error {
                return Err(MetaError::Stopped { first: Box::new(e.clone()) });
            }
            if p.closed {
                return Err(MetaError::Refused("the volume is closed".into()));
            }
            self.progressed.wait(&mut p);
        }
        Ok(())
    }

    /// Whether one may wait for a generation: none is written while the volume is being recovered.
    pub fn may_wait(&self) -> bool {
        !self.recovering.load(Ordering::Acquire)
    }

    /// Waits until no generation is being written. One that panicked never ends.
    pub(crate) fn wait_for_writer(&self) -> Result<()> {
        let mut p = self.progress.lock();
        while p.writing && p.error.is_none() {
            self.progressed.wait(&mut p);
        }
        match &p.error {
            Some(e) => Err(MetaError::Stopped { first: Box::new(e.clone()) }),
            None => Ok(()),
        }
    }

    pub(crate) fn has_changes(&self) -> bool {
        self.dirty_frames.load(Ordering::Relaxed) > 0
            || self.root_changed.load(Ordering::Relaxed)
            || !self.dirty_zones.lock().is_empty()
    }

    /// Writes the last generation, marks the volume clean and stops the writer. Further changes are refused.
    ///
    /// # Errors
    /// The error that stopped writing, now or earlier; the volume is then left as its last generation says.
    pub fn close(&self) -> Result<()> {
        let Some(writer) = self.writer.lock().take() else { return Ok(()) };
        {
            let mut p = self.progress.lock();
            p.stop = true;
            self.progressed.notify_all();
        }
        if writer.thread().id() != std::thread::current().id() && writer.join().is_err() {
            self.stop(MetaError::Refused("the commit thread panicked".into()));
        }
        let result = match self.check_writable() {
            Ok(()) => crate::writer::commit::commit(self, VolumeState::Clean),
            Err(e) => Err(e),
        };
        self.stopped.store(true, Ordering::Release);
        // Whoever waits for a generation that will never be written goes on.
        self.progress.lock().closed = true;
        self.progressed.notify_all();
        result
    }

    pub(crate) fn first_slots(&self) -> std::ops::Range<u64> {
        FIRST_SLOT..yore_format::layout::ZONE_BLOCKS
    }

    /// The last generation that is complete on the medium (counting those in which nothing changed).
    pub fn completed_generation(&self) -> u64 {
        self.progress.lock().completed
    }
}

/// Stops all writing if it is dropped by a panic: what was under way will not complete, so nobody must wait for it, and what
/// memory says of the medium may be wrong.
pub struct StopAtPanic<'m> {
    meta: &'m Meta,
    /// What panicked, to be told.
    what: &'static str,
}

impl Drop for StopAtPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.meta.stop(MetaError::Refused(format!("{} panicked, which is a bug", self.what)));
        }
    }
}

impl Drop for Meta {
    fn drop(&mut self) {
        if self.writer.lock().is_some() {
            if let Err(e) = self.close() {
                tracing::error!("closing the volume: {e}");
            }
        }
    }
}

/// Seconds since 1970.
pub(crate) fn now_seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
