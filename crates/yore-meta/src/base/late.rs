//! Late data: blocks of file data that the device gets later than the caller wrote them.
//!
//! [`Late`] is a device in front of the volume's device, with a table in memory. [`Late::accept`] puts blocks
//! into the table and returns at once. They reach the device below when the device is flushed, when somebody
//! writes to such a block directly, or when a background thread writes them ([`Late::write_some`]).
//! Everybody who uses the volume reaches the device through this one.
//!
//! **Why this needs no other argument than the device's contract.** A device may keep what was written in a
//! cache that a crash empties. What was written is visible to reads, a flush makes it durable, and nothing
//! else is promised. The table is part of that cache:
//!
//! - **L1 Visible.** A read takes what the table has of its range *first*, then reads the device below, and
//!   lays what it took over that. An entry leaves the table only when its bytes are on the device. So an
//!   entry that is not found was there to be read, and one that goes meanwhile was taken.
//! - **L2 Flushed.** A flush writes all entries that were accepted before it began, waits for those that
//!   others have under way, and then flushes the device below. So whatever relies on a flush (R1, R4)
//!   relies on it for late data, too: the generation before its superblock, and the log around its record.
//! - **L3 In order.** A write to a block that is in the table, and erasing or discarding it, waits until the
//!   entry is on the device. So an old entry never comes over newer bytes, whoever has the block by now.
//! - **L4 An error is for ever.** If the device refuses an entry, each later flush fails, and so do writes
//!   to blocks in the table. The entry stays, so readers still see what was accepted. A flush that fails
//!   stops all writing to the volume (R16).
//!
//! A crash loses the table as a device loses its cache: between two flushes any part of what was written may
//! be missing. That is the crash that all rules expect.
//!
//! **How much.** As many blocks as the device has lately written in 20 ms: a flush, and so an fsync of
//! somebody else, waits no longer than about that. At least 64, and at most what [`Late::set_most`] says.
//! A caller that finds no room writes directly.
//!
//! **Locks.** The shards are leaves. `moved` is held only to wait and to wake; a waiter looks into the shards
//! with it in hand. No lock is held while the device works.

use crate::error::Result;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use yore_device::{write_blocks, Device, DeviceError, ReadRequest, SharedBuf, WriteRequest, BLOCK_SIZE};

#[cfg(test)]
mod tests;

const SHARDS: usize = 16;
/// Blocks that follow one another and lie in one shard.
const STRIPE: u64 = 64;
/// The most blocks that are written at a time: 4 MiB.
const REQUEST: usize = 1024;
/// The most blocks in the table, however fast the device is: 8 MiB.
const MOST: usize = 2048;
/// The fewest that fit, however slow it is.
const LEAST: usize = 64;
/// For how long a flush may have to write.
const FLUSH_TAKES: Duration = Duration::from_millis(20);
/// From so many blocks on, the time that a request takes tells how fast the device is.
const TELLING: usize = 64;

type DeviceResult<T> = std::result::Result<T, DeviceError>;

struct Entry {
    bytes: SharedBuf,
    /// Its place in the order in which entries came.
    number: u64,
    /// A thread is writing it.
    under_way: bool,
}

/// Entries by block.
type Shard = BTreeMap<u64, Entry>;

/// A device, and what it has not got yet.
pub(crate) struct Late {
    below: Arc<dyn Device>,
    shards: [Mutex<Shard>; SHARDS],
    /// Entries in the table, and those that are about to come.
    count: AtomicUsize,
    /// Entries that have ever come.
    accepted: AtomicU64,
    most: AtomicUsize,
    /// Nanoseconds that the device lately took for a block; 0 if nobody knows.
    pace: AtomicU64,
    /// Why an entry could not be written.
    failed: OnceLock<DeviceError>,
    moved: Mutex<()>,
    /// Entries have gone, or are not under way any more.
    settled: Condvar,
}

impl fmt::Debug for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Late({} blocks for {:?})", self.count.load(Ordering::Relaxed), self.below)
    }
}

/// Entries that this thread writes. Dropped before they are written, they wait again.
struct UnderWay<'a> {
    late: &'a Late,
    blocks: Vec<(u64, SharedBuf)>,
    is_written: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        for (block, _) in &self.blocks {
            let mut shard = self.late.shard(*block).lock();
            if self.is_written {
                shard.remove(block);
            } else if let Some(entry) = shard.get_mut(block) {
                entry.under_way = false;
            }
        }
        if self.is_written {
            self.late.count.fetch_sub(self.blocks.len(), Ordering::AcqRel);
        }
        // Takes the lock, so that no thread is between its look and its wait.
        drop(self.late.moved.lock());
        self.late.settled.notify_all();
    }
}

/// The table.
impl Late {
    pub(crate) fn new(below: Arc<dyn Device>) -> Late {
        Late {
            below,
            shards: Default::default(),
            count: AtomicUsize::new(0),
            accepted: AtomicU64::new(0),
            most: AtomicUsize::new(MOST),
            pace: AtomicU64::new(0),
            failed: OnceLock::new(),
            moved: Mutex::new(()),
            settled: Condvar::new(),
        }
    }

    /// Sets the most blocks that the table may have; never more than 8 MiB of them.
    pub(crate) fn set_most(&self, blocks: usize) {
        self.most.store(blocks.min(MOST), Ordering::Relaxed);
    }

    /// How many blocks the table may have now.
    fn most(&self) -> usize {
        let most = self.most.load(Ordering::Relaxed);
        match self.pace.load(Ordering::Relaxed) {
            0 => most,
            pace => (FLUSH_TAKES.as_nanos() as u64 / pace).clamp(LEAST as u64, MOST as u64).min(most as u64)
                as usize,
        }
    }

    /// Whether the table has room for so many more blocks, unless others come first.
    pub(crate) fn has_room(&self, blocks: usize) -> bool {
        self.count.load(Ordering::Relaxed) + blocks <= self.most()
    }

    /// Whether the background should write some of it now.
    pub(crate) fn is_pressing(&self) -> bool {
        self.count.load(Ordering::Relaxed) * 4 > self.most()
    }

    /// Accepts blocks, each under its number: as if they had been written, for reads, writes and flushes. It
    /// writes only what the table still has under such a number. False if there is no room: then it has
    /// accepted nothing.
    ///
    /// # Errors
    /// Those of an entry that could not be written, now or earlier. Some blocks may have been accepted.
    pub(crate) fn accept(&self, blocks: &[(u64, &SharedBuf)]) -> DeviceResult<bool> {
        self.check()?;
        let most = self.most();
        let more = |count: usize| count.checked_add(blocks.len()).filter(|count| *count <= most);
        if self.count.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_err() {
            return Ok(false);
        }
        for (done, (block, bytes)) in blocks.iter().enumerate() {
            while !self.enter(*block, bytes) {
                if let Err(e) = self.settle(*block..*block + 1) {
                    self.count.fetch_sub(blocks.len() - done, Ordering::AcqRel);
                    return Err(e);
                }
            }
        }
        Ok(true)
    }

    /// Enters one block, unless there is an entry.
    fn enter(&self, block: u64, bytes: &SharedBuf) -> bool {
        let mut shard = self.shard(block).lock();
        if shard.contains_key(&block) {
            return false;
        }
        let number = self.accepted.fetch_add(1, Ordering::AcqRel) + 1;
        shard.insert(block, Entry { bytes: bytes.clone(), number, under_way: false });
        true
    }

    #[inline]
    fn shard(&self, block: u64) -> &Mutex<Shard> {
        &self.shards[(block / STRIPE) as usize % SHARDS]
    }

    /// Whether the table has nothing, and nothing is about to come.
    #[inline]
    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn check(&self) -> DeviceResult<()> {
        self.failed.get().map_or(Ok(()), |e| Err(e.clone()))
    }
}

/// Writing what the table has.
impl Late {
    /// Writes some entries, if there are any that nobody else is writing. Returns whether there were.
    ///
    /// # Errors
    /// The device's, now or earlier (L4).
    pub(crate) fn write_some(&self) -> Result<bool> {
        Ok(self.write_up_to(u64::MAX)?)
    }

    /// As [`Late::write_some`], of the entries up to the one with this number.
    fn write_up_to(&self, last: u64) -> DeviceResult<bool> {
        self.check()?;
        if self.is_empty() {
            return Ok(false);
        }
        let mut blocks = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            for (block, entry) in shard.iter_mut().filter(|(_, e)| !e.under_way && e.number <= last) {
                if blocks.len() == REQUEST {
                    break;
                }
                entry.under_way = true;
                blocks.push((*block, entry.bytes.clone()));
            }
        }
        self.write(blocks)
    }

    /// Writes entries that are marked as under way. Returns whether there were any.
    fn write(&self, blocks: Vec<(u64, SharedBuf)>) -> DeviceResult<bool> {
        if blocks.is_empty() {
            return Ok(false);
        }
        let mut under_way = UnderWay { late: self, blocks, is_written: false };
        let begun = Instant::now();
        let mut blocks: Vec<_> = under_way.blocks.iter().map(|(block, bytes)| (*block, bytes)).collect();
        let written = write_blocks(&*self.below, &mut blocks);
        if blocks.len() >= TELLING {
            let took = (begun.elapsed().as_nanos() as u64 / blocks.len() as u64).max(1);
            let before = self.pace.load(Ordering::Relaxed);
            let pace = if before == 0 { took } else { (3 * before + took) / 4 };
            self.pace.store(pace, Ordering::Relaxed);
        }
        if let Err(e) = written {
            return Err(self.failed.get_or_init(|| e).clone());
        }
        under_way.is_written = true;
        Ok(true)
    }

    /// Writes all entries that were accepted before, and waits for those that others are writing (L2).
    fn drain(&self) -> DeviceResult<()> {
        self.check()?;
        if self.is_empty() {
            return Ok(());
        }
        let last = self.accepted.load(Ordering::Acquire);
        loop {
            while self.write_up_to(last)? {}
            let mut moved = self.moved.lock();
            let (mut waits, mut some) = (false, false);
            for shard in &self.shards {
                for entry in shard.lock().values().filter(|entry| entry.number <= last) {
                    (waits, some) = (waits || !entry.under_way, true);
                }
            }
            if !some {
                return Ok(());
            }
            // What waits again was not written by whoever had it under way.
            if !waits {
                self.settled.wait(&mut moved);
            }
        }
    }

    /// Waits until the table has none of these blocks, and writes what waits (L3).
    fn settle(&self, range: Range<u64>) -> DeviceResult<()> {
        if self.is_empty() {
            return Ok(());
        }
        loop {
            let (mut waiting, mut some) = (Vec::new(), false);
            self.each_in(range.clone(), &mut |block, entry| {
                some = true;
                if !std::mem::replace(&mut entry.under_way, true) {
                    waiting.push((block, entry.bytes.clone()));
                }
            });
            if !some {
                return Ok(());
            }
            if let Err(e) = self.check() {
                drop(UnderWay { late: self, blocks: waiting, is_written: false });
                return Err(e);
            }
            if self.write(waiting)? {
                continue;
            }
            let mut moved = self.moved.lock();
            let is_under_way = || {
                let mut some = false;
                self.each_in(range.clone(), &mut |_, entry| some |= entry.under_way);
                some
            };
            while is_under_way() {
                self.settled.wait(&mut moved);
            }
        }
    }

    /// A range is about to be written, erased or discarded directly.
    fn make_way(&self, range: Range<u64>) -> DeviceResult<()> {
        #[cfg(feature = "mutations")]
        if crate::mutation::is(crate::mutation::Mutation::LateOverwritten) {
            return Ok(());
        }
        self.settle(range)
    }

    /// Calls `each` with the entries of a range, in ascending order.
    fn each_in(&self, range: Range<u64>, each: &mut dyn FnMut(u64, &mut Entry)) {
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min((at / STRIPE + 1) * STRIPE);
            for (block, entry) in self.shard(at).lock().range_mut(at..end) {
                each(*block, entry);
            }
            at = end;
        }
    }

    /// What the table has of a range of bytes, by block.
    fn taken(&self, offset: u64, len: usize) -> Vec<(u64, SharedBuf)> {
        let mut taken = Vec::new();
        if !self.is_empty() {
            self.each_in(blocks_of(offset, len as u64), &mut |block, entry| {
                taken.push((block, entry.bytes.clone()));
            });
        }
        taken
    }
}

/// The blocks of a range of bytes.
pub(crate) fn blocks_of(offset: u64, len: u64) -> Range<u64> {
    let first = offset / BLOCK_SIZE as u64;
    first..first + len / BLOCK_SIZE as u64
}

/// Lays what was taken over what the device has at `offset`.
fn lay_over(taken: &[(u64, SharedBuf)], offset: u64, buf: &mut [u8]) {
    let range = blocks_of(offset, buf.len() as u64);
    for (block, bytes) in taken.iter().filter(|(block, _)| range.contains(block)) {
        let at = (block - range.start) as usize * BLOCK_SIZE;
        buf[at..at + BLOCK_SIZE].copy_from_slice(bytes);
    }
}

impl Device for Late {
    fn size(&self) -> u64 {
        self.below.size()
    }

    fn grow(&self, size: u64) -> DeviceResult<u64> {
        self.below.grow(size)
    }

    fn use_up_to(&self, size: u64) {
        self.below.use_up_to(size);
    }

    fn read_only(&self) -> bool {
        self.below.read_only()
    }

    fn describe(&self) -> String {
        self.below.describe()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        let taken = self.taken(offset, buf.len());
        self.below.read_at(offset, buf)?;
        lay_over(&taken, offset, buf);
        Ok(())
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> DeviceResult<()> {
        let taken = self.taken(offset, bufs.iter().map(|buf| buf.len()).sum());
        self.below.read_vectored_at(offset, bufs)?;
        if !taken.is_empty() {
            let mut at = offset;
            for buf in bufs {
                lay_over(&taken, at, buf);
                at += buf.len() as u64;
            }
        }
        Ok(())
    }

    fn read_batch(&self, reads: &mut [ReadRequest<'_>]) -> DeviceResult<()> {
        let taken: Vec<_> = match self.is_empty() {
            true => Vec::new(),
            false => reads.iter().map(|read| self.taken(read.offset, read.buf.len())).collect(),
        };
        self.below.read_batch(reads)?;
        for (read, taken) in reads.iter_mut().zip(&taken) {
            lay_over(taken, read.offset, read.buf);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.make_way(blocks_of(offset, buf.len() as u64))?;
        self.below.write_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> DeviceResult<()> {
        self.make_way(blocks_of(offset, bufs.iter().map(|buf| buf.len() as u64).sum()))?;
        self.below.write_vectored_at(offset, bufs)
    }

    fn write_batch(&self, writes: &[WriteRequest<'_>]) -> DeviceResult<()> {
        if !self.is_empty() {
            for write in writes {
                self.make_way(blocks_of(write.offset, write.data.len() as u64))?;
            }
        }
        self.below.write_batch(writes)
    }

    fn flush(&self) -> DeviceResult<()> {
        #[cfg(feature = "mutations")]
        {
            use crate::mutation::{is, Mutation};
            if is(Mutation::LateLeftOut) {
                return self.below.flush();
            }
            if is(Mutation::LateBehindFlush) {
                self.below.flush()?;
                return self.drain();
            }
        }
        self.drain()?;
        self.below.flush()
    }

    fn erase(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.make_way(blocks_of(offset, len))?;
        self.below.erase(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.make_way(blocks_of(offset, len))?;
        self.below.discard(offset, len)
    }

    fn can_discard(&self) -> bool {
        self.below.can_discard()
    }

    fn blocks_gone_by(&self, next: u64) -> u64 {
        self.below.blocks_gone_by(next)
    }
}
