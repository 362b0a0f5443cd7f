//! Reading all metadata in the order of the disk.
//!
//! The zone table says where each zone lies and how many blocks it has. The scan goes over the zones in
//! ascending order of their places. Of each it reads the header, together with all blocks if they are few or
//! likely to lie behind it, and then, in ascending order, the blocks that the header names and that were not
//! among these. What lies between two of them is read with them if that is cheaper than another request.
//! Blocks that are sound are held ([`Held`]) for the steps after the scan, which then rarely read anything.
//! So each block is read once, and the time that takes depends on zones and bytes alone.
//!
//! *Threads.* Each worker takes the next zone, reads it and verifies it, one request after the other. While
//! one verifies, others read; the requests still go out in ascending order, one of each worker at a time.
//! Nothing waits in a queue, so memory is that of the blocks held, and of one request for each worker.
//!
//! *Slow devices.* Where a request costs a movement, requests of several workers to several zones would each
//! cost one. There all workers share one zone ([`Shared`]): one reads the next part of it, and leaves the
//! rest to another one while it verifies its part. A part begins where the one before ended, so the device
//! reads each zone in one go. Parts are small enough to keep buffers small, and large enough for most zones
//! to be a single one, for between two of them another thread may move the arm. What lies between blocks of a
//! zone is read with them, for it passes under the head anyhow.
//!
//! *Memory.* The table also says beforehand how much there will be to hold. If that is more than the check
//! may use, inode blocks are left out: the steps after the scan take them in ascending order, and get them
//! zone by zone, in requests as large as here. Other blocks are held as far as memory suffices. What is left
//! is read one by one, when a walk comes to it.
//!
//! *The fast pass* ([`crate::proof`]) is a scan whose workers sum up nearly all blocks when they arrive, in
//! place of holding them. Where something must be known before that, workers sum up what an earlier scan
//! holds. It ends at the first doubt.
//!
//! *Damage.* The scan reports nothing. What it cannot read or does not find sound is not held; so the steps
//! after it read it themselves, and report what is wrong with it, as if there were no scan.

use crate::held::{Held, HeldBlock};
use crate::known::{CurrentCopy, Zone};
use crate::pace::Pace;
use crate::proof::digest::Digest;
use crate::proof::doubt::Doubt;
use crate::proof::ground::Ground;
use crate::proof::summary::Summary;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use yore_device::{near, AlignedBuf, Device};
use yore_format::layout::{HEADER_SLOTS, ZONE_BLOCKS, ZONE_INDEXES};
use yore_format::{
    verify_header, verify_own_header, verify_version, Block, BlockHeader, BlockKind, BlockNo, Features,
    MetaAddr, ZoneHeader, ZoneNo, ZoneTableEntry, BLOCK_SIZE, NOT_INODES,
};

/// Most blocks of a request: 2 MiB. A zone has at most 510 blocks, so that is mostly all of it; and a buffer
/// of that size is a huge page ([`AlignedBuf`]).
const REQUEST_BLOCKS: u64 = 512;
/// So many zones are read as on a slow device after one that took its time. On such a device a header comes
/// quickly now and then, if it happens to be where the head is; if the threads went apart for that, each of
/// their requests would move the arm.
const SLOW_ZONES: u32 = 8;
/// Blocks that are read behind as many as a small zone has: a block that was written lately lies behind its
/// old place, and a few blocks take less time than another request.
const BEHIND: u64 = 4;
/// On a quick device a header is read with as many blocks as its zone has, if the blocks of so many zones
/// before it lay together behind theirs. On a slow one the blocks follow as quickly in another request.
const WITH_BLOCKS: u32 = 4;
/// Blocks of a zone at which its header is read alone. The header says where the blocks are, which may be
/// anywhere; what a smaller zone has lies in its beginning mostly.
const WITH_HEADER: u64 = 64;
/// Blocks that are read without being wanted, rather than with another request: as many as a device for which
/// requests cost little takes as long for.
const GAP_QUICK: u64 = 16;
/// The same of a device on which each request costs a movement.
const GAP_SLOW: u64 = 256;
/// What a request takes at least on the latter, beside ...
const SLOW: Duration = Duration::from_millis(2);
/// ... what each of its blocks takes at most on either: 200 MB/s.
const TRANSFER: Duration = Duration::from_micros(20);
/// Fewer blocks than these are not worth a thread.
const BLOCKS_PER_WORKER: u64 = 1024;
/// Most workers.
pub(crate) const WORKERS_MAX: usize = 8;

/// A zone to read.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) number: ZoneNo,
    pub(crate) start: BlockNo,
    /// Which header slot is current.
    pub(crate) slot: u8,
    /// Blocks that it has, as far as that is known.
    pub(crate) blocks: u64,
}

impl Job {
    /// A zone of the table.
    pub(crate) fn of(number: ZoneNo, entry: &ZoneTableEntry) -> Job {
        let blocks = u64::from(ZONE_INDEXES).saturating_sub(entry.free_indexes.get().into());
        Job { number, start: BlockNo(entry.start.get()), slot: entry.header_slot, blocks }
    }
}

/// How much was read, and in how many requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Reading {
    /// Requests to the device, by the scan and by the steps after it.
    pub requests: u64,
    /// Bytes of these requests.
    pub bytes: u64,
    /// Requests of the scan among them.
    pub scan_requests: u64,
    /// Bytes of these.
    pub scan_bytes: u64,
    /// Blocks that the scan found sound.
    pub scan_blocks: u64,
}

impl Reading {
    pub(crate) fn add(&mut self, other: &Reading) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.scan_requests += other.scan_requests;
        self.scan_bytes += other.scan_bytes;
        self.scan_blocks += other.scan_blocks;
    }
}

/// Which blocks of a zone are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    All,
    /// All but inode blocks.
    NoInodes,
}

/// A scan: what all workers know.
pub(crate) struct Scan<'a> {
    pub(crate) device: &'a dyn Device,
    pub(crate) device_blocks: u64,
    pub(crate) volume_tag: u32,
    /// Blocks that may be held.
    pub(crate) memory_blocks: u64,
    /// The most workers there are.
    pub(crate) threads: usize,
    /// What the last zones have shown of the device.
    pub(crate) speed: Speed,
    /// Of how many zones in a row the blocks lay together behind the header.
    pub(crate) behind_headers: AtomicU32,
}

/// Whether requests take long on a device.
#[derive(Debug)]
pub(crate) struct Speed {
    /// For how many zones it still counts as slow.
    slow: AtomicU32,
}

impl Default for Speed {
    /// Nobody knows before the first zone.
    fn default() -> Speed {
        Speed { slow: AtomicU32::new(1) }
    }
}

impl Speed {
    fn is_slow(&self) -> bool {
        self.slow.load(Ordering::Relaxed) > 0
    }

    /// The first request for a zone took its time, or not.
    fn note(&self, was_slow: bool) {
        let next = |zones: u32| match was_slow {
            true => Some(SLOW_ZONES),
            false => zones.checked_sub(1),
        };
        // An error says that it was not slow, and is not.
        let _ = self.slow.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}

/// What is wanted of a zone.
struct Plan {
    header: ZoneHeader,
    /// Blocks that are wanted, in the order of the disk.
    wanted: Vec<(u16, CurrentCopy)>,
}

impl Plan {
    fn new(header: ZoneHeader, is_wanted: impl Fn(&ZoneHeader, u16) -> bool) -> Arc<Plan> {
        let mut wanted: Vec<(u16, CurrentCopy)> = (0..ZONE_INDEXES as u16)
            .filter(|index| is_wanted(&header, *index))
            .filter_map(|index| Some((index, CurrentCopy::of(&header, index)?)))
            .collect();
        wanted.sort_unstable_by_key(|(_, copy)| copy.block);
        Arc::new(Plan { header, wanted })
    }
}

/// A zone that is being read.
struct Visit {
    plan: Arc<Plan>,
    /// Wanted blocks for which nothing is left to read.
    done: usize,
    /// What came with the header: it is in the buffer of whoever read that, until its next request.
    there: Arrived,
    /// Where the last request ended.
    end: u64,
    is_slow: bool,
    /// When it began, and how many blocks the table says that the zone has.
    began: Instant,
    blocks: u64,
}

/// The zone that all workers read together, if the device is slow. Whoever has the lock reads the next part.
type Shared = Mutex<Option<Visit>>;

/// A part of a zone that is in a worker's buffer.
struct Part {
    plan: Arc<Plan>,
    /// Which of the wanted blocks it has.
    wanted: Range<usize>,
    arrived: Arrived,
}

/// Blocks that a buffer has from its beginning on: the number of the first one, and how many.
#[derive(Clone, Copy)]
struct Arrived {
    first: u64,
    count: u64,
}

impl Arrived {
    const NOTHING: Arrived = Arrived { first: 0, count: 0 };

    fn end(&self) -> u64 {
        self.first + self.count
    }

    fn has(&self, block: u64) -> bool {
        (self.first..self.end()).contains(&block)
    }
}

/// What one worker has and does.
struct Worker<'s, 'a> {
    scan: &'s Scan<'a>,
    wanted: Wanted,
    /// Blocks that may still be held, by all workers; it may fall below 0.
    left: &'s AtomicI64,
    buffer: AlignedBuf,
    /// The zone that it reads alone.
    own: Option<Visit>,
    reading: Reading,
    /// Blocks that were found sound.
    sound: u64,
    /// What is held of each zone, or of a part of it.
    done: Vec<(ZoneNo, Vec<HeldBlock>)>,
    /// Of the fast pass: takes blocks in place of holding them.
    digest: Option<Digest<'s>>,
}

impl Scan<'_> {
    /// Reads zones, and holds what of them is sound. `pace` learns how far it is, on this thread. With a
    /// `ground` it is the fast pass, which holds only what is not summed up, and ends early if there is a
    /// doubt.
    pub(crate) fn run(
        &self,
        mut jobs: Vec<Job>,
        held: &mut Held,
        pace: &mut Pace<'_>,
        ground: Option<&Ground>,
    ) -> (Reading, Summary) {
        // The comparison reports zones that lie beyond the end of the device.
        jobs.retain(|job| job.start.0.saturating_add(ZONE_BLOCKS) <= self.device_blocks);
        jobs.sort_unstable_by_key(|job| job.start);
        let blocks: u64 = jobs.iter().map(|job| job.blocks).sum();
        let wanted = match ground.is_some() || blocks <= self.memory_blocks {
            true => Wanted::All,
            false => Wanted::NoInodes,
        };
        let left = AtomicI64::new(i64::try_from(self.memory_blocks).unwrap_or(i64::MAX));
        let (next, shared) = (AtomicUsize::new(0), Shared::default());
        pace.begin_scan(jobs.len() as u64, blocks);
        let is_given_up = || ground.is_some_and(Ground::is_doubted);
        let take = || jobs.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| !is_given_up());
        let others = self.workers(blocks, jobs.len()) - 1;
        let pace = &*pace;
        let finished = self.in_threads(others, || {
            let mut worker = Worker::new(self, wanted, &left, ground);
            while let Some(part) = worker.next(take, &shared, pace) {
                worker.take_part(&part);
            }
            let Reading { requests, bytes, .. } = worker.reading;
            let (scan_requests, scan_bytes, scan_blocks) = (requests, bytes, worker.sound);
            let reading = Reading { requests, bytes, scan_requests, scan_bytes, scan_blocks };
            (worker.done, reading, worker.digest.map(|digest| digest.summary))
        });
        let (mut reading, mut summary) = (Reading::default(), Summary::new(0));
        for (zones, of_worker, digested) in finished {
            reading.add(&of_worker);
            for (zone, blocks) in zones {
                held.insert(zone, blocks);
            }
            if let Some(digested) = digested {
                summary.take(digested);
            }
        }
        (reading, summary)
    }

    /// Sums up the blocks of zones that are held, and those that are not as they are read again. It ends
    /// early if there is a doubt.
    pub(crate) fn digest_held(
        &self,
        zones: &[Zone],
        held: &Held,
        pace: &Pace<'_>,
        ground: &Ground,
    ) -> (Reading, Summary) {
        let blocks: u64 = zones.iter().map(|zone| zone.indexes().len() as u64).sum();
        let mut in_order: Vec<&Zone> = zones.iter().collect();
        in_order.sort_unstable_by_key(|zone| zone.header.start);
        let (next, reader) = (AtomicUsize::new(0), Mutex::new(()));
        let work = || {
            let (mut digest, mut reading) = (Digest::new(ground), Reading::default());
            while let Some(zone) = in_order.get(next.fetch_add(1, Ordering::Relaxed)) {
                if ground.is_doubted() {
                    break;
                }
                reading.add(&self.digest_zone(&zone.header, (held, &reader), pace, &mut digest));
            }
            (reading, digest.summary)
        };
        let finished = self.in_threads(self.workers(blocks, zones.len()) - 1, work);
        let (mut reading, mut summary) = (Reading::default(), Summary::new(0));
        for (of_worker, digested) in finished {
            reading.add(&of_worker);
            summary.take(digested);
        }
        (reading, summary)
    }

    /// Sums up the blocks of a zone. On a slow device one thread reads at a time.
    fn digest_zone(
        &self,
        header: &ZoneHeader,
        (held, reader): (&Held, &Mutex<()>),
        pace: &Pace<'_>,
        digest: &mut Digest<'_>,
    ) -> Reading {
        let mut lacking = [false; ZONE_INDEXES as usize];
        for index in 0..ZONE_INDEXES as u16 {
            let Some(copy) = CurrentCopy::of(header, index) else { continue };
            match held.get(MetaAddr::new(header.zone, index), copy) {
                Some(block) => {
                    if digest.take(header, index, &block) {
                        pace.compared();
                    }
                }
                None => lacking[usize::from(index)] = true,
            }
        }
        let count = lacking.iter().filter(|is_lacking| **is_lacking).count();
        let mut reading = Reading::default();
        if count > 0 {
            let alone = self.speed.is_slow().then(|| reader.lock().unwrap_or_else(PoisonError::into_inner));
            let read = self.blocks(header, |index| lacking[usize::from(index)]);
            drop(alone);
            if read.0.len() < count {
                digest.ground.say(Doubt("a block that is not sound"));
            }
            for block in read.0 {
                if digest.take(header, block.index, &block.bytes) {
                    pace.compared();
                }
            }
            reading = read.1;
        }
        digest.part_is_over();
        digest.summary.tally.zones += 1;
        reading
    }

    /// Has so many other threads do the same work, beside this one. Where no thread can be had, this one does
    /// all of it.
    fn in_threads<T: Send>(&self, others: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
        std::thread::scope(|scope| {
            let begin = || std::thread::Builder::new().spawn_scoped(scope, &work).ok();
            let threads: Vec<_> = (0..others).filter_map(|_| begin()).collect();
            let mut finished = vec![work()];
            // A worker that panics has found a bug, and so has this check.
            finished.extend(threads.into_iter().map(|thread| match thread.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            }));
            finished
        })
    }

    /// How many threads read, this one included.
    fn workers(&self, blocks: u64, zones: usize) -> usize {
        let worth = usize::try_from(blocks / BLOCKS_PER_WORKER).unwrap_or(usize::MAX).min(zones);
        worth.min(self.threads).clamp(1, WORKERS_MAX)
    }

    /// Reads the inode blocks of a zone whose header is known.
    pub(crate) fn inode_blocks(&self, header: &ZoneHeader) -> (Vec<HeldBlock>, Reading) {
        self.blocks(header, |index| header.inode_free[usize::from(index)] != NOT_INODES)
    }

    /// Reads some blocks of a zone whose header is known.
    pub(crate) fn blocks(
        &self,
        header: &ZoneHeader,
        is_wanted: impl Fn(u16) -> bool,
    ) -> (Vec<HeldBlock>, Reading) {
        let left = AtomicI64::new(i64::MAX);
        let mut worker = Worker::new(self, Wanted::All, &left, None);
        let mut visit = Visit {
            plan: Plan::new(header.clone(), |_, index| is_wanted(index)),
            done: 0,
            there: Arrived::NOTHING,
            end: 0,
            is_slow: self.speed.is_slow(),
            began: Instant::now(),
            blocks: 0,
        };
        while let Some(part) = worker.read_part(&mut visit) {
            worker.take_part(&part);
        }
        let blocks = worker.done.into_iter().flat_map(|(_, blocks)| blocks).collect();
        (blocks, worker.reading)
    }
}

impl<'s, 'a> Worker<'s, 'a> {
    fn new(
        scan: &'s Scan<'a>,
        wanted: Wanted,
        left: &'s AtomicI64,
        ground: Option<&'s Ground>,
    ) -> Worker<'s, 'a> {
        let (buffer, reading) = (AlignedBuf::zeroed(0), Reading::default());
        let digest = ground.map(Digest::new);
        Worker { scan, wanted, left, buffer, own: None, reading, sound: 0, done: Vec::new(), digest }
    }

    /// Something could not be read, or is not sound.
    fn doubt(&self, why: &'static str) {
        if let Some(digest) = &self.digest {
            digest.ground.say(Doubt(why));
        }
    }

    /// Reads the next part of a zone, if there is one: of that which this worker or, on a slow device, all of
    /// them read, or of the next one that there is to `take`.
    fn next<'j>(
        &mut self,
        take: impl Fn() -> Option<&'j Job>,
        shared: &Shared,
        pace: &Pace<'_>,
    ) -> Option<Part> {
        loop {
            if let Some(visit) = self.own.take() {
                let (part, rest) = self.go_on(visit, pace);
                self.own = rest;
                if part.is_some() {
                    return part;
                }
                continue;
            }
            // Without it no zone is taken either, so that zones are read in ascending order. A worker that
            // panicked has left no zone here.
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            let visit = match shared.take() {
                Some(visit) => visit,
                None => {
                    let job = take()?;
                    if !self.scan.speed.is_slow() {
                        drop(shared);
                        self.own = self.begin(job, pace);
                        continue;
                    }
                    let Some(visit) = self.begin(job, pace) else { continue };
                    visit
                }
            };
            let (part, rest) = self.go_on(visit, pace);
            *shared = rest;
            if part.is_some() {
                return part;
            }
        }
    }

    /// Reads the next part of a zone. Returns that, and the zone if it was not the last.
    fn go_on(&mut self, mut visit: Visit, pace: &Pace<'_>) -> (Option<Part>, Option<Visit>) {
        let part = self.read_part(&mut visit);
        if visit.done < visit.plan.wanted.len() {
            return (part, Some(visit));
        }
        if let Some(digest) = &mut self.digest {
            digest.summary.tally.zones += 1;
        }
        pace.zone_done(visit.blocks, visit.began.elapsed());
        (part, None)
    }

    /// Reads the header of a zone, and with it what may be all of a small one.
    fn begin(&mut self, job: &Job, pace: &Pace<'_>) -> Option<Visit> {
        let began = Instant::now();
        let visit = self.try_to_begin(job, began);
        if visit.is_none() {
            self.doubt("a zone header that cannot be used");
            pace.zone_done(job.blocks, began.elapsed());
        }
        visit
    }

    /// The same. `None` if the header cannot be used.
    fn try_to_begin(&mut self, job: &Job, began: Instant) -> Option<Visit> {
        // From the current header slot on.
        let first = HEADER_SLOTS[usize::from(job.slot & 1)];
        let behind = match self.wanted {
            Wanted::All => job.blocks + HEADER_SLOTS[1] - first,
            Wanted::NoInodes => 0,
        };
        let is_expected =
            || !self.scan.speed.is_slow() && self.scan.behind_headers.load(Ordering::Relaxed) >= WITH_BLOCKS;
        let count = match behind < WITH_HEADER {
            true => 1 + behind + behind.min(BEHIND),
            false if is_expected() => (1 + behind).min(REQUEST_BLOCKS),
            false => 1,
        };
        if !self.read(BlockNo(job.start.0 + first), count) {
            return None;
        }
        self.scan.speed.note(began.elapsed() >= SLOW + TRANSFER * count as u32);
        let is_slow = self.scan.speed.is_slow();
        let block = part(&self.buffer, 0)?;
        let (addr, block_no) = (ZoneHeader::addr(job.number), BlockNo(job.start.0 + first));
        if verify_header(block, addr, self.scan.volume_tag, block_no).is_err()
            || BlockHeader::of(block).kind != BlockKind::ZoneHeader as u8
        {
            return None;
        }
        // The map of another zone, or of another place, leads to blocks that are not this zone's.
        let is_own = |header: &ZoneHeader| header.start == job.start && header.zone == job.number;
        let header = ZoneHeader::decode(block).ok().filter(is_own)?;
        let index = ZoneHeader::INDEX;
        let held = HeldBlock { index, check: 0, block: block_no, bytes: Arc::new(*block) };
        self.done.push((job.number, vec![held]));
        self.sound += 1;
        let wanted = self.wanted;
        let plan = Plan::new(header, |header, index| match wanted {
            Wanted::All => true,
            Wanted::NoInodes => header.inode_free[usize::from(index)] == NOT_INODES,
        });
        if behind >= WITH_HEADER {
            // A few of them may come with another request.
            let until = block_no.0 + behind + behind / 4;
            let is_behind = |(_, copy): &(u16, CurrentCopy)| copy.block.0 <= until;
            match plan.wanted.last().is_none_or(is_behind) {
                true => self.scan.behind_headers.fetch_add(1, Ordering::Relaxed),
                false => self.scan.behind_headers.swap(0, Ordering::Relaxed),
            };
        }
        let there = Arrived { first: block_no.0, count };
        let end = there.end();
        Some(Visit { plan, done: 0, there, end, is_slow, began, blocks: job.blocks })
    }

    /// Reads the next part of a zone into the buffer, unless it came with the header. `None` if nothing is
    /// left.
    fn read_part(&mut self, visit: &mut Visit) -> Option<Part> {
        let plan = visit.plan.clone();
        let there = std::mem::replace(&mut visit.there, Arrived::NOTHING);
        let gap = if visit.is_slow { GAP_SLOW } else { GAP_QUICK };
        while let Some((_, copy)) = plan.wanted.get(visit.done) {
            let (from, first) = (visit.done, copy.block.0);
            let arrived = if there.has(first) {
                there
            } else {
                // The disk goes on where it is. A request that leaves out a block or two may come too late,
                // and wait for a whole turn.
                let skipped = first.checked_sub(visit.end).filter(|_| visit.is_slow);
                let skipped = skipped.filter(|skipped| *skipped <= gap).unwrap_or(0);
                let count = skipped + run(&plan.wanted[from..], gap, REQUEST_BLOCKS - skipped);
                let arrived = Arrived { first: first - skipped, count };
                if !self.read(BlockNo(arrived.first), count) {
                    self.doubt("a block that cannot be read");
                    visit.done += 1;
                    continue;
                }
                visit.end = arrived.end();
                arrived
            };
            visit.done += plan.wanted[from..].partition_point(|(_, copy)| copy.block.0 < arrived.end());
            return Some(Part { wanted: from..visit.done, arrived, plan });
        }
        None
    }

    /// Takes the blocks of a part.
    fn take_part(&mut self, part: &Part) {
        let (header, wanted) = (&part.plan.header, &part.plan.wanted[part.wanted.clone()]);
        let mut blocks = Vec::with_capacity(if self.digest.is_some() { 0 } else { wanted.len() });
        let digested = |worker: &Self| worker.digest.as_ref().map_or(0, |d| d.summary.tally.blocks);
        let before = digested(self);
        // Inodes first: then less is kept of the names that they have.
        let is_inodes = |index: u16| header.inode_free[usize::from(index)] != NOT_INODES;
        for is_first in [true, false] {
            for (index, copy) in wanted.iter().filter(|(index, _)| is_inodes(*index) == is_first) {
                self.take(header, *index, *copy, part.arrived, &mut blocks);
            }
        }
        if let Some(digest) = &mut self.digest {
            digest.part_is_over();
        }
        self.sound += blocks.len() as u64 + digested(self) - before;
        if !blocks.is_empty() {
            self.done.push((header.zone, blocks));
        }
    }

    /// Takes a block that is in the buffer.
    fn take(
        &mut self,
        header: &ZoneHeader,
        index: u16,
        copy: CurrentCopy,
        from: Arrived,
        blocks: &mut Vec<HeldBlock>,
    ) {
        let Some(block) = part(&self.buffer, (copy.block.0 - from.first) as usize) else { return };
        let addr = MetaAddr::new(header.zone, index);
        let check = copy.check.unwrap_or_default();
        let tag = self.scan.volume_tag;
        // The fast pass decodes all inodes of a block, which is all that their verifier does.
        let is_decoded = self.digest.is_some() && BlockHeader::of(block).kind == BlockKind::Inodes as u8;
        let verified = match is_decoded {
            true => verify_own_header(block, addr, tag, copy.block, Features::SUPPORTED),
            false => verify_header(block, addr, tag, copy.block),
        };
        if verified.is_err() || verify_version(block, check, addr, copy.block).is_err() {
            self.doubt("a block that is not sound");
            return;
        }
        if self.digest.as_mut().is_some_and(|digest| digest.take(header, index, block)) {
            return;
        }
        if self.left.fetch_sub(1, Ordering::Relaxed) > 0 {
            blocks.push(HeldBlock { index, check, block: copy.block, bytes: Arc::new(*block) });
        }
    }

    /// Reads blocks into the buffer. False if that fails: then whoever needs one of them reads it alone, and
    /// reports the error if it comes again.
    fn read(&mut self, first: BlockNo, count: u64) -> bool {
        if (self.buffer.blocks() as u64) < count {
            self.buffer = AlignedBuf::zeroed(REQUEST_BLOCKS as usize);
        }
        let bytes = count as usize * BLOCK_SIZE;
        self.reading.requests += 1;
        self.reading.bytes += bytes as u64;
        self.scan.device.read_at(first.0 * BLOCK_SIZE as u64, &mut self.buffer[..bytes]).is_ok()
    }
}

/// How many blocks one request of at most so many reads for the first of these, which ascend.
fn run(wanted: &[(u16, CurrentCopy)], gap: u64, most: u64) -> u64 {
    near(wanted.iter().map(|(_, copy)| copy.block.0), gap, most).1
}

/// Block `at` of a buffer.
fn part(buffer: &AlignedBuf, at: usize) -> Option<&Block> {
    buffer.get(at * BLOCK_SIZE..(at + 1) * BLOCK_SIZE)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use yore_device::MemoryDevice;
    use yore_format::layout::FIRST_SLOT;
    use yore_format::GroupNo;

    /// A device of two zones each block of which begins with its number.
    fn numbered() -> MemoryDevice {
        let device = MemoryDevice::new(2 * ZONE_BLOCKS * BLOCK_SIZE as u64);
        for block in 0..2 * ZONE_BLOCKS {
            let mut bytes = AlignedBuf::zeroed(1);
            bytes[..8].copy_from_slice(&block.to_le_bytes());
            device.write_at(block * BLOCK_SIZE as u64, &bytes).unwrap();
        }
        device
    }

    /// A header that comes quickly now and then does not make a slow device a quick one; several do.
    #[test]
    fn one_quick_request_makes_no_quick_device() {
        let speed = Speed::default();
        assert!(speed.is_slow(), "nobody knows");
        speed.note(false);
        assert!(!speed.is_slow());
        speed.note(false);
        speed.note(true);
        (1..SLOW_ZONES).for_each(|_| speed.note(false));
        assert!(speed.is_slow());
        speed.note(false);
        assert!(!speed.is_slow());
    }

    /// Promises that on a quick device, once the blocks of some zones lay behind their headers, header and
    /// blocks come with one request, each block once; that this ends with a zone whose blocks lie elsewhere;
    /// and that a slow device is not read so.
    #[test]
    fn headers_come_with_their_blocks_where_those_lie_behind() {
        const ZONES: u64 = 14;
        let device = MemoryDevice::new(ZONES * ZONE_BLOCKS * BLOCK_SIZE as u64);
        let job = |zone: u64, blocks: u64, far: u16| {
            let start = BlockNo(zone * ZONE_BLOCKS);
            let mut header = ZoneHeader::empty([0; 16], 0, start, ZoneNo(zone as u32), GroupNo(0));
            for index in 0..blocks as u16 {
                header.exists[usize::from(index) / 64] |= 1 << (index % 64);
                header.map[usize::from(index)] = far + index;
            }
            let (block, _) = header.encode(yore_format::Generation(1));
            let slot = (zone % 2) as u8;
            let at = start.0 + HEADER_SLOTS[usize::from(slot)];
            device.write_at(at * BLOCK_SIZE as u64, &block[..]).unwrap();
            Job { number: header.zone, start, slot, blocks }
        };
        let near = FIRST_SLOT as u16;
        // Only the blocks of one lie elsewhere.
        let far = |zone: u64| if zone == 8 { 500 } else { near };
        let jobs: Vec<Job> = (0..ZONES).map(|zone| job(zone, 64 + zone * 34, far(zone))).collect();
        for (slow, expected) in
            [(0, [2, 2, 2, 2, 1, 1, 1, 1, 2, 2, 2, 2, 2, 1]), (u32::MAX, [2; ZONES as usize])]
        {
            let scan = Scan {
                device: &device,
                device_blocks: ZONES * ZONE_BLOCKS,
                volume_tag: 0,
                memory_blocks: 0,
                threads: 1,
                speed: Speed { slow: AtomicU32::new(slow) },
                behind_headers: AtomicU32::new(0),
            };
            let left = AtomicI64::new(0);
            let mut worker = Worker::new(&scan, Wanted::All, &left, None);
            let requests = jobs.iter().map(|job| {
                let before = worker.reading.requests;
                let mut visit = worker.begin(job, &Pace::new(None)).expect("a sound header");
                // A machine with other work may take its time.
                scan.speed.slow.store(slow, Ordering::Relaxed);
                let mut blocks = 0;
                while let Some(part) = worker.read_part(&mut visit) {
                    blocks += part.wanted.len() as u64;
                    assert!(part.plan.wanted[part.wanted].iter().all(|(_, at)| part.arrived.has(at.block.0)));
                }
                assert_eq!(blocks, job.blocks);
                worker.reading.requests - before
            });
            assert_eq!(requests.collect::<Vec<_>>(), expected);
        }
    }

    /// Promises that a zone of a slow device is read in parts that follow one another, none of them longer
    /// than a request, and each block of which is at its place in the buffer; that each wanted block is in
    /// one, wherever they lie and however often a header names it; and that what lies close together is read
    /// in one go.
    #[test]
    fn a_zone_is_read_to_its_end() {
        let device = numbered();
        let scan = Scan {
            device: &device,
            device_blocks: 2 * ZONE_BLOCKS,
            volume_tag: 0,
            memory_blocks: 0,
            threads: 1,
            speed: Speed::default(),
            behind_headers: AtomicU32::new(0),
        };
        let header = ZoneHeader::empty([0; 16], 0, BlockNo(ZONE_BLOCKS), ZoneNo(0), GroupNo(0));
        let close: Vec<u64> = (0..250).map(|i| ZONE_BLOCKS + 5 + i * 4).collect();
        let far = vec![ZONE_BLOCKS + 3, ZONE_BLOCKS + 13, ZONE_BLOCKS + 600, ZONE_BLOCKS + 1000];
        let again = [close.clone(), close.clone()].concat();
        for (mut blocks, requests) in [(close, 3), (far, 4), (again, 3), (Vec::new(), 1)] {
            let left = AtomicI64::new(0);
            let mut worker = Worker::new(&scan, Wanted::All, &left, None);
            let there = Arrived { first: ZONE_BLOCKS + 2, count: 10 };
            assert!(worker.read(BlockNo(there.first), there.count));
            blocks.sort_unstable();
            let copy = |block: &u64| (0, CurrentCopy { block: BlockNo(*block), check: None });
            let wanted: Vec<_> = blocks.iter().map(copy).collect();
            let plan = Arc::new(Plan { header: header.clone(), wanted });
            let (end, began) = (there.end(), Instant::now());
            let mut visit = Visit { plan, done: 0, there, end, is_slow: true, began, blocks: 0 };
            let (mut found, mut end) = (Vec::new(), there.end());
            while let Some(read) = worker.read_part(&mut visit) {
                for (_, copy) in &read.plan.wanted[read.wanted] {
                    let at = copy.block.0 - read.arrived.first;
                    assert!(at < REQUEST_BLOCKS);
                    let bytes = part(&worker.buffer, at as usize).unwrap();
                    assert_eq!(bytes[..8], copy.block.0.to_le_bytes());
                    found.push(copy.block.0);
                }
                assert!(requests != 3 || [there.first, end].contains(&read.arrived.first));
                end = read.arrived.end();
            }
            assert_eq!(found, blocks);
            assert_eq!(worker.reading.requests, requests, "{blocks:?}");
        }
    }
}
