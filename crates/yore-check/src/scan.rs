//! Reading all metadata in the order of the disk.
//!
//! The zone table says where each zone lies and how many blocks it has. The scan goes over the zones in
//! ascending order of their places. Of each it reads the header, together with all blocks if they are few and
//! may lie behind it, and then, in ascending order, the blocks that the header names and that were not among
//! these. What lies between two of them is read with them if that is cheaper than another request. Blocks
//! that are sound are held ([`Held`]) for the steps after the scan, which then rarely read anything. So each
//! block is read once, and the time that takes depends on zones and bytes alone.
//!
//! *Threads.* Each worker takes the next zone, reads it and verifies it. While one verifies, others read; the
//! requests still go out in ascending order, one of each worker at a time. Nothing waits in a queue, so
//! memory is that of the blocks held, and of one request for each worker.
//!
//! *Slow devices.* Where a request costs a movement, requests of several workers in turn would each cost one.
//! There a worker reads a zone to its end before another one begins with the next ([`Sweep`]), in requests as
//! large as they can be, and verifies it while others read. What lies between blocks of a zone is read with
//! them, for it passes under the head anyhow.
//!
//! *Memory.* The table also says beforehand how much there will be to hold. If that is more than the check
//! may use, inode blocks are left out: the steps after the scan take them in ascending order, and get them
//! zone by zone, in requests as large as here. Other blocks are held as far as memory suffices. What is left
//! is read one by one, when a walk comes to it.
//!
//! *The fast pass* ([`crate::proof`]) is a scan whose workers sum up nearly all blocks when they arrive, in
//! place of holding them. It ends at the first doubt.
//!
//! *Damage.* The scan reports nothing. What it cannot read or does not find sound is not held; so the steps
//! after it read it themselves, and report what is wrong with it, as if there were no scan.

use crate::held::{Held, HeldBlock};
use crate::known::CurrentCopy;
use crate::pace::Pace;
use crate::proof::digest::Digest;
use crate::proof::doubt::Doubt;
use crate::proof::ground::Ground;
use crate::proof::summary::Summary;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use yore_device::{near, AlignedBuf, Device};
use yore_format::layout::{HEADER_SLOTS, ZONE_BLOCKS, ZONE_INDEXES};
use yore_format::{
    verify_header, verify_own_header, verify_version, Block, BlockHeader, BlockKind, BlockNo, Features,
    MetaAddr, ZoneHeader, ZoneNo, ZoneTableEntry, BLOCK_SIZE, NOT_INODES,
};

/// Most blocks of a request, unless the device is slow: 1 MiB.
const REQUEST_BLOCKS: u64 = 256;
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
const WORKERS_MAX: usize = 8;

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
    pub(crate) sweep: Sweep,
}

/// Lets one worker at a time read a zone, if the device is slow.
#[derive(Default)]
pub(crate) struct Sweep {
    /// What the last zone has shown of the device.
    is_slow: AtomicBool,
    turn: Mutex<()>,
}

/// The right to read a zone to its end.
type Turn<'s> = MutexGuard<'s, ()>;

impl Sweep {
    /// Waits until nobody else reads a zone, if the device is slow.
    fn turn(&self) -> Option<Turn<'_>> {
        // A worker that panicked leaves nothing behind: the lock guards no data.
        let turn = || self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_slow.load(Ordering::Relaxed).then(turn)
    }

    /// How many blocks are read without being wanted.
    fn gap(&self) -> u64 {
        match self.is_slow.load(Ordering::Relaxed) {
            true => GAP_SLOW,
            false => GAP_QUICK,
        }
    }
}

/// Blocks that a buffer has: the number of the first one, how many, and where in the buffer they begin.
#[derive(Clone, Copy)]
struct Arrived {
    first: u64,
    count: u64,
    at: u64,
}

impl Arrived {
    const NOTHING: Arrived = Arrived { first: 0, count: 0, at: 0 };

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
    gap: u64,
    reading: Reading,
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
        let next = AtomicUsize::new(0);
        pace.begin_scan(jobs.len() as u64, blocks);
        let is_given_up = || ground.is_some_and(Ground::is_doubted);
        let take = || jobs.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| !is_given_up());
        let others = workers(blocks, jobs.len()) - 1;
        let pace = &*pace;
        let mut finished = std::thread::scope(|scope| {
            let work = |mut worker: Worker<'_, '_>| {
                // In this order, so that zones are read in ascending order.
                let next = || {
                    let turn = self.sweep.turn();
                    take().map(|job| (job, turn))
                };
                while let Some((job, turn)) = next() {
                    let began = Instant::now();
                    worker.zone(job, turn);
                    pace.zone_done(job.blocks, began.elapsed());
                }
                (worker.done, worker.reading, worker.digest.map(|digest| digest.summary))
            };
            // Where no thread can be had, this one does all the work.
            let threads: Vec<_> = (0..others)
                .filter_map(|_| {
                    let left = &left;
                    let begin = move || work(Worker::new(self, wanted, left, ground));
                    std::thread::Builder::new().spawn_scoped(scope, begin).ok()
                })
                .collect();
            let mut finished = vec![work(Worker::new(self, wanted, &left, ground))];
            // A worker that panics has found a bug, and so has this check.
            finished.extend(threads.into_iter().map(|thread| match thread.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            }));
            finished
        });
        let (mut reading, mut summary) = (Reading::default(), Summary::new(0));
        for (zones, of_worker, digested) in finished.drain(..) {
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
        let mut blocks = Vec::new();
        worker.slots(header, is_wanted, (Arrived::NOTHING, self.sweep.turn()), &mut blocks);
        (blocks, worker.reading)
    }
}

/// How many threads read, this one included.
fn workers(blocks: u64, zones: usize) -> usize {
    let worth = usize::try_from(blocks / BLOCKS_PER_WORKER).unwrap_or(usize::MAX).min(zones);
    if worth < 2 {
        return 1;
    }
    // One more than there are processors, for some of them wait for the device.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (processors + 1).min(worth).min(WORKERS_MAX)
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
        let gap = scan.sweep.gap();
        Worker { scan, wanted, left, buffer, gap, reading, done: Vec::new(), digest }
    }

    /// Something could not be read, or is not sound.
    fn doubt(&self, why: &'static str) {
        if let Some(digest) = &self.digest {
            digest.ground.say(Doubt(why));
        }
    }

    /// Reads a zone and keeps what is sound.
    fn zone(&mut self, job: &Job, turn: Option<Turn<'_>>) {
        if !self.try_zone(job, turn) {
            self.doubt("a zone header that cannot be used");
        }
    }

    /// The same. False if the header cannot be used.
    fn try_zone(&mut self, job: &Job, turn: Option<Turn<'_>>) -> bool {
        // From the current header slot on.
        let first = HEADER_SLOTS[usize::from(job.slot & 1)];
        let behind = match self.wanted {
            Wanted::All => job.blocks + HEADER_SLOTS[1] - first,
            Wanted::NoInodes => 0,
        };
        let count = if behind < WITH_HEADER { 1 + behind } else { 1 };
        let began = Instant::now();
        if !self.read(BlockNo(job.start.0 + first), count, 0) {
            return false;
        }
        let is_slow = began.elapsed() >= SLOW + TRANSFER * count as u32;
        self.scan.sweep.is_slow.store(is_slow, Ordering::Relaxed);
        self.gap = self.scan.sweep.gap();
        let Some(block) = part(&self.buffer, 0) else { return false };
        let (addr, block_no) = (ZoneHeader::addr(job.number), BlockNo(job.start.0 + first));
        if verify_header(block, addr, self.scan.volume_tag, block_no).is_err()
            || BlockHeader::of(block).kind != BlockKind::ZoneHeader as u8
        {
            return false;
        }
        // The map of another zone, or of another place, leads to blocks that are not this zone's.
        let is_own = |header: &ZoneHeader| header.start == job.start && header.zone == job.number;
        let Some(header) = ZoneHeader::decode(block).ok().filter(is_own) else { return false };
        let index = ZoneHeader::INDEX;
        let mut blocks = vec![HeldBlock { index, check: 0, block: block_no, bytes: Arc::new(*block) }];
        let wanted = self.wanted;
        let is_wanted = |index: u16| match wanted {
            Wanted::All => true,
            Wanted::NoInodes => header.inode_free[usize::from(index)] == NOT_INODES,
        };
        let before = self.digest.as_ref().map_or(0, |digest| digest.summary.tally.blocks);
        let arrived = Arrived { first: block_no.0, count, at: 0 };
        self.slots(&header, is_wanted, (arrived, turn), &mut blocks);
        self.reading.scan_requests = self.reading.requests;
        self.reading.scan_bytes = self.reading.bytes;
        self.reading.scan_blocks += blocks.len() as u64;
        if let Some(digest) = &mut self.digest {
            digest.summary.tally.zones += 1;
            digest.zone_is_over();
            self.reading.scan_blocks += digest.summary.tally.blocks - before;
        }
        self.done.push((job.number, blocks));
        true
    }

    /// Reads the blocks that a header names and that are wanted, beside those that are in the buffer already.
    /// Whoever has the turn reads all of them before it takes the first, and gives the turn to the next one.
    fn slots(
        &mut self,
        header: &ZoneHeader,
        is_wanted: impl Fn(u16) -> bool,
        (there, turn): (Arrived, Option<Turn<'_>>),
        blocks: &mut Vec<HeldBlock>,
    ) {
        let mut wanted: Vec<(u16, CurrentCopy)> = (0..ZONE_INDEXES as u16)
            .filter(|index| is_wanted(*index))
            .filter_map(|index| Some((index, CurrentCopy::of(header, index)?)))
            .collect();
        wanted.sort_unstable_by_key(|(_, copy)| copy.block);
        blocks.reserve(wanted.len());
        let mut parts = vec![there];
        if turn.is_some() {
            self.read_ahead(&wanted, &mut parts);
        }
        drop(turn);
        let mut left = &wanted[..];
        while let Some((_, copy)) = left.first() {
            let first = copy.block.0;
            let part = match parts.iter().find(|part| part.has(first)) {
                Some(part) => *part,
                None => {
                    let count = run(left, self.gap, REQUEST_BLOCKS);
                    // It takes the place of what was in the buffer.
                    parts.clear();
                    if !self.read(copy.block, count, 0) {
                        self.doubt("a block that cannot be read");
                        left = &left[1..];
                        continue;
                    }
                    let part = Arrived { first, count, at: 0 };
                    parts.push(part);
                    part
                }
            };
            let arrived = left.partition_point(|(_, copy)| copy.block.0 < part.end());
            let (arrived, others) = left.split_at(arrived);
            left = others;
            // Inodes first: then less is kept of the names that they have.
            let is_inodes = |index: u16| header.inode_free[usize::from(index)] != NOT_INODES;
            for is_first in [true, false] {
                for (index, copy) in arrived.iter().filter(|(index, _)| is_inodes(*index) == is_first) {
                    self.take(header, *index, *copy, part, blocks);
                }
            }
        }
    }

    /// Reads all wanted blocks that are not there yet into the buffer, one part behind the other. A part that
    /// cannot be read is left to whoever takes its blocks.
    fn read_ahead(&mut self, wanted: &[(u16, CurrentCopy)], parts: &mut Vec<Arrived>) {
        let mut left = wanted;
        while let Some((_, copy)) = left.first() {
            let first = copy.block.0;
            let mut end = first + 1;
            if let Some(part) = parts.iter().find(|part| part.has(first)) {
                end = part.end();
            } else {
                let at = parts.iter().map(|part| part.count).sum::<u64>();
                // The disk goes on where it is. A request that leaves out a block or two may come too late,
                // and wait for a whole turn.
                let before = parts.last().map_or(first, Arrived::end);
                let skipped = first.checked_sub(before).filter(|skipped| *skipped <= self.gap).unwrap_or(0);
                // Blocks that a header names twice must not make the buffer grow.
                let most = ZONE_BLOCKS.saturating_sub(at);
                let count = (skipped + run(left, self.gap, most)).min(most);
                let part = Arrived { first: first - skipped, count, at };
                if count > skipped && self.read(BlockNo(part.first), count, at) {
                    end = part.end();
                    parts.push(part);
                }
            }
            left = &left[left.partition_point(|(_, copy)| copy.block.0 < end)..];
        }
    }

    /// Takes a block that is in this part of the buffer.
    fn take(
        &mut self,
        header: &ZoneHeader,
        index: u16,
        copy: CurrentCopy,
        from: Arrived,
        blocks: &mut Vec<HeldBlock>,
    ) {
        let at = from.at + (copy.block.0 - from.first);
        let Some(block) = part(&self.buffer, at as usize) else { return };
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

    /// Reads blocks into the buffer, behind the `at` blocks that it keeps. False if that fails: then whoever
    /// needs one of them reads it alone, and reports the error if it comes again.
    fn read(&mut self, first: BlockNo, count: u64, at: u64) -> bool {
        if (self.buffer.blocks() as u64) < at + count {
            let mut larger = AlignedBuf::zeroed((at + count) as usize);
            let kept = at as usize * BLOCK_SIZE;
            larger[..kept].copy_from_slice(&self.buffer[..kept]);
            self.buffer = larger;
        }
        let (from, bytes) = (at as usize * BLOCK_SIZE, count as usize * BLOCK_SIZE);
        self.reading.requests += 1;
        self.reading.bytes += bytes as u64;
        let buffer = &mut self.buffer[from..from + bytes];
        self.scan.device.read_at(first.0 * BLOCK_SIZE as u64, buffer).is_ok()
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

    /// Promises that whoever has the turn gets all wanted blocks of a zone behind what is there, wherever
    /// they lie, and each at its place in the buffer; that what lies close together comes with one request,
    /// which begins where the one before has ended; and that the buffer never has more than a zone, however
    /// often a header names a block.
    #[test]
    fn a_zone_is_read_to_its_end() {
        let device = numbered();
        let scan = Scan {
            device: &device,
            device_blocks: 2 * ZONE_BLOCKS,
            volume_tag: 0,
            memory_blocks: 0,
            sweep: Sweep::default(),
        };
        let close: Vec<u64> = (0..250).map(|i| ZONE_BLOCKS + 5 + i * 4).collect();
        let far = vec![ZONE_BLOCKS + 3, ZONE_BLOCKS + 13, ZONE_BLOCKS + 600, ZONE_BLOCKS + 1000];
        let again = [close.clone(), close.clone()].concat();
        for (blocks, requests) in [(close, 2), (far, 4), (again, 2), (Vec::new(), 1)] {
            let left = AtomicI64::new(0);
            let mut worker = Worker::new(&scan, Wanted::All, &left, None);
            worker.gap = GAP_SLOW;
            assert!(worker.read(BlockNo(ZONE_BLOCKS + 2), 10, 0));
            let mut parts = vec![Arrived { first: ZONE_BLOCKS + 2, count: 10, at: 0 }];
            let copy = |block: &u64| (0, CurrentCopy { block: BlockNo(*block), check: None });
            let mut wanted: Vec<_> = blocks.iter().map(copy).collect();
            wanted.sort_unstable_by_key(|(_, copy)| copy.block);
            worker.read_ahead(&wanted, &mut parts);
            assert_eq!(worker.reading.requests, requests, "{blocks:?}");
            assert!(worker.buffer.blocks() as u64 <= ZONE_BLOCKS);
            for block in blocks {
                let arrived = parts.iter().find(|part| part.has(block)).expect("it was read");
                let bytes = part(&worker.buffer, (arrived.at + block - arrived.first) as usize).unwrap();
                assert_eq!(bytes[..8], block.to_le_bytes());
            }
            if requests == 2 {
                assert_eq!(parts[1].first, parts[0].end());
            }
        }
    }
}
