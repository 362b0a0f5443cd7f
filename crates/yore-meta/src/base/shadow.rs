//! Shadows: the metadata of one generation, kept readable while later ones are written.
//!
//! [`Shadows`] is a device in front of the volume's device, below the one with late data. A [`Shadow`] is
//! begun in an instant in which no generation and no record of the log is being written. From then on the old
//! contents of a metadata block are saved before anything is written over it, and a [`Shadow`] is a device to
//! read that shows them. So a check reads one generation as a whole, for as long as it takes, and no call
//! waits for it.
//!
//! **What is saved**: of the zones that the generation has, the slots and the header that it uses; both
//! superblocks; and the log, if it is in the volume. File data is not: a check reads none.
//!
//! - **W1 Saved first.** A block's old contents are in the table before the device below gets a write, an
//!   erasure or a discard of it. Only the first one saves, so the table has what the generation had.
//! - **W2 Read first, look second.** A reader of the shadow reads the device, and *then* takes what the table
//!   has. If any of the bytes that it read came from a later write, that write was begun before the reading
//!   ended, and by W1 the table had the old contents by then. (Late data has it the other way round, because
//!   there the table has the *newer* bytes.)
//! - **W3 Nothing under way.** What was being written when the shadow began would not have been saved. The
//!   caller of [`Shadows::begin`] sees to it that nothing of what is saved is: it holds the superblock and
//!   the leader of the log. Blocks of a zone of this generation come to others only through a later one.
//! - **W4 Which slots.** The writer says which slots a zone has in use, before it writes the first of them
//!   ([`Shadows::zone_is_written`]). The last generation of that zone is then still the one of the shadow. A
//!   zone of which nobody has said it is saved whole: a root zone; and one that was given back, whose slots
//!   may be anybody's by then.
//! - **W5 Whoever cannot save lets the write go on.** The shadow is lost then, and says why to its reader.
//!   Calls never fail for a check.
//!
//! **Memory.** So much as the caller allows; beyond it what is saved goes to an unnamed temporary file.
//!
//! **Locks.** The table is a leaf, and held while old contents are read: only who writes over a metadata
//! block that the shadow uses meets it. Without a shadow a write costs one relaxed load. It needs no more: by
//! W3 and R2 whoever writes over such a block has taken a lock since that the beginner of the shadow held.

use crate::base::late::blocks_of;
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use std::fmt;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use yore_device::{AlignedBuf, Device, DeviceError, HostError, Operation, ReadRequest, WriteRequest};
use yore_format::layout::{SUPERBLOCKS, ZONE_BLOCKS};
use yore_format::{Block, BLOCK_SIZE};

#[cfg(test)]
mod tests;

/// The most blocks that are read and saved at a time.
const REQUEST: u64 = 256;

type DeviceResult<T> = std::result::Result<T, DeviceError>;

/// A set of the blocks of a zone.
pub(crate) type ZoneBlocks = [u64; (ZONE_BLOCKS / 64) as usize];

/// Where a saved block is.
enum Place {
    Memory(Box<Block>),
    /// The n-th block of the file.
    File(u64),
}

/// What was saved.
#[derive(Default)]
struct Table {
    blocks: HashMap<u64, Place>,
    /// Which blocks of a zone count, by its first block. All of them if it is not here.
    used: HashMap<u64, ZoneBlocks>,
    in_memory: usize,
    /// For what does not fit into memory, and how many blocks it has.
    file: Option<(File, u64)>,
}

/// What one shadow saves.
struct Kept {
    /// First blocks of the zones, in ascending order.
    zones: Vec<u64>,
    log: Range<u64>,
    /// How many blocks may be in memory.
    memory: usize,
    table: Mutex<Table>,
    /// Why it cannot be read any more.
    lost: OnceLock<DeviceError>,
    saved: AtomicU64,
}

/// A device, and the shadow that it has at present.
pub(crate) struct Shadows {
    below: Arc<dyn Device>,
    is_on: AtomicBool,
    now: RwLock<Option<Arc<Kept>>>,
}

impl fmt::Debug for Shadows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shadows({:?})", self.below)
    }
}

/// The metadata of one generation, to be read as a device. It ends when this is dropped.
///
/// What is no metadata of that generation reads as the device has it at the moment.
pub struct Shadow {
    of: Arc<Shadows>,
    kept: Arc<Kept>,
    /// The log has a device of its own, of which nothing is kept. Everything up to the generation is where it
    /// belongs without it, unless the volume is open for reading only.
    pub log_is_elsewhere: bool,
    /// How many free blocks the superblock of that generation does not count, because only this generation
    /// has freed them: a crash could have left them marked as used.
    pub unpromised: u64,
}

impl fmt::Debug for Shadow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let saved = self.kept.saved.load(Ordering::Relaxed);
        write!(f, "Shadow({saved} blocks saved of {:?})", self.of.below)
    }
}

/// How much was saved for a shadow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Blocks.
    pub blocks: u64,
    /// Those of them that are in a temporary file.
    pub in_file: u64,
}

impl Kept {
    /// The parts of a range of blocks that the shadow has: (first block of the zone, or none; blocks).
    fn parts(&self, range: Range<u64>) -> Vec<(Option<u64>, Range<u64>)> {
        let mut parts = Vec::new();
        let mut add = |zone: Option<u64>, of: Range<u64>| {
            let part = range.start.max(of.start)..range.end.min(of.end);
            if !part.is_empty() {
                parts.push((zone, part));
            }
        };
        add(None, SUPERBLOCKS[0].0..SUPERBLOCKS[1].0 + 1);
        let first = self.zones.partition_point(|start| start + ZONE_BLOCKS <= range.start);
        for start in self.zones[first..].iter().take_while(|start| **start < range.end) {
            add(Some(*start), *start..start + ZONE_BLOCKS);
        }
        add(None, self.log.clone());
        parts
    }

    /// Saves what a range of blocks has, as far as the shadow needs it and does not have it yet (W1).
    fn save(&self, below: &dyn Device, range: Range<u64>) {
        if self.lost.get().is_some() {
            return;
        }
        for (zone, part) in self.parts(range) {
            if let Err(e) = self.save_part(below, zone, part) {
                // W5.
                let _ = self.lost.set(e);
                return;
            }
        }
    }

    fn save_part(&self, below: &dyn Device, zone: Option<u64>, part: Range<u64>) -> DeviceResult<()> {
        let mut table = self.table.lock();
        let used = zone.and_then(|start| table.used.get(&start)).copied();
        let is_needed = |table: &Table, block: u64| {
            let is_used = zone.zip(used).is_none_or(|(start, used)| has(&used, block - start));
            is_used && !table.blocks.contains_key(&block)
        };
        let mut at = part.start;
        while at < part.end {
            if !is_needed(&table, at) {
                at += 1;
                continue;
            }
            let most = part.end.min(at + REQUEST);
            let end = (at..most).find(|block| !is_needed(&table, *block)).unwrap_or(most);
            let mut old = AlignedBuf::zeroed((end - at) as usize);
            below.read_at(at * BLOCK_SIZE as u64, &mut old)?;
            for (i, bytes) in old.chunks_exact(BLOCK_SIZE).enumerate() {
                let bytes: &Block = bytes.try_into().expect("one block");
                let place = table.put(bytes, self.memory)?;
                table.blocks.insert(at + i as u64, place);
            }
            self.saved.fetch_add(end - at, Ordering::Relaxed);
            at = end;
        }
        Ok(())
    }

    /// Lays what was saved over what the device has at `offset` (W2).
    fn lay_over(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        let first = offset / BLOCK_SIZE as u64;
        let table = self.table.lock();
        if !table.blocks.is_empty() {
            for (block, bytes) in (first..).zip(buf.chunks_exact_mut(BLOCK_SIZE)) {
                match table.blocks.get(&block) {
                    None => {}
                    Some(Place::Memory(saved)) => bytes.copy_from_slice(&saved[..]),
                    Some(Place::File(at)) => {
                        let (file, _) = table.file.as_ref().expect("a block is in it");
                        let read = file.read_exact_at(bytes, at * BLOCK_SIZE as u64);
                        read.map_err(|e| file_failed(Operation::Read, *at, &e))?;
                    }
                }
            }
        }
        drop(table);
        self.check()
    }

    fn check(&self) -> DeviceResult<()> {
        self.lost.get().map_or(Ok(()), |e| Err(e.clone()))
    }
}

impl Table {
    /// Puts a block's bytes where there is room.
    fn put(&mut self, bytes: &Block, memory: usize) -> DeviceResult<Place> {
        if self.in_memory < memory {
            self.in_memory += 1;
            return Ok(Place::Memory(Box::new(*bytes)));
        }
        let (file, count) = match &mut self.file {
            Some(file) => file,
            none => {
                let file = tempfile::tempfile().map_err(|e| file_failed(Operation::Create, 0, &e))?;
                none.insert((file, 0))
            }
        };
        let written = file.write_all_at(bytes, *count * BLOCK_SIZE as u64);
        written.map_err(|e| file_failed(Operation::Write, *count, &e))?;
        *count += 1;
        Ok(Place::File(*count - 1))
    }
}

fn has(blocks: &ZoneBlocks, block: u64) -> bool {
    blocks[block as usize / 64] & (1 << (block % 64)) != 0
}

/// The file for what was saved failed, at its n-th block.
fn file_failed(operation: Operation, block: u64, e: &std::io::Error) -> DeviceError {
    DeviceError::Io {
        operation,
        offset: block * BLOCK_SIZE as u64,
        len: BLOCK_SIZE as u64,
        device: format!("the temporary file of a check in {}", std::env::temp_dir().display()),
        source: HostError::from(e),
    }
}

impl Shadows {
    pub(crate) fn new(below: Arc<dyn Device>) -> Shadows {
        Shadows { below, is_on: AtomicBool::new(false), now: RwLock::new(None) }
    }

    /// Begins a shadow of what the device has now, with zones that begin at these blocks, and this log.
    /// `None` if there is one. The caller has what W3 needs.
    pub(crate) fn begin(
        self: &Arc<Self>,
        mut zones: Vec<u64>,
        log: Range<u64>,
        memory: usize,
    ) -> Option<Shadow> {
        zones.sort_unstable();
        let mut now = self.now.write();
        if now.is_some() {
            return None;
        }
        let (table, lost, saved) = (Mutex::default(), OnceLock::new(), AtomicU64::new(0));
        let kept = Arc::new(Kept { zones, log, memory, table, lost, saved });
        *now = Some(kept.clone());
        self.is_on.store(true, Ordering::SeqCst);
        Some(Shadow { of: self.clone(), kept, log_is_elsewhere: false, unpromised: 0 })
    }

    /// Whether there is a shadow.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    fn now(&self) -> Option<Arc<Kept>> {
        match self.is_on.load(Ordering::Relaxed) {
            true => self.now.read().clone(),
            false => None,
        }
    }

    /// A generation is about to write a zone, or has removed it. `used` says which blocks of it the last one
    /// uses; `None`: all of them count (W4).
    pub(crate) fn zone_is_written(&self, start: u64, used: impl FnOnce() -> Option<ZoneBlocks>) {
        let Some(kept) = self.now() else { return };
        if kept.zones.binary_search(&start).is_ok() {
            let mut table = kept.table.lock();
            table.used.entry(start).or_insert_with(|| used().unwrap_or([u64::MAX; 16]));
        }
    }

    /// A range is about to be overwritten.
    #[inline]
    fn save(&self, range: impl FnOnce() -> Range<u64>) {
        if let Some(kept) = self.now() {
            kept.save(&*self.below, range());
        }
    }

    /// Does something that overwrites a range, once what it had is saved.
    #[inline]
    fn over(
        &self,
        range: impl Fn() -> Range<u64>,
        write: impl FnOnce() -> DeviceResult<()>,
    ) -> DeviceResult<()> {
        #[cfg(feature = "mutations")]
        if crate::mutation::is(crate::mutation::Mutation::SavedBehindWrite) {
            let written = write();
            self.save(range);
            return written;
        }
        self.save(range);
        write()
    }
}

impl Device for Shadows {
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
        self.below.read_at(offset, buf)
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> DeviceResult<()> {
        self.below.read_vectored_at(offset, bufs)
    }

    fn read_batch(&self, reads: &mut [ReadRequest<'_>]) -> DeviceResult<()> {
        self.below.read_batch(reads)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.over(|| blocks_of(offset, buf.len() as u64), || self.below.write_at(offset, buf))
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> DeviceResult<()> {
        let len = || bufs.iter().map(|buf| buf.len() as u64).sum();
        self.over(|| blocks_of(offset, len()), || self.below.write_vectored_at(offset, bufs))
    }

    fn write_batch(&self, writes: &[WriteRequest<'_>]) -> DeviceResult<()> {
        let save = || {
            if self.is_on.load(Ordering::Relaxed) {
                writes.iter().for_each(|w| self.save(|| blocks_of(w.offset, w.data.len() as u64)));
            }
        };
        #[cfg(feature = "mutations")]
        if crate::mutation::is(crate::mutation::Mutation::SavedBehindWrite) {
            let written = self.below.write_batch(writes);
            save();
            return written;
        }
        save();
        self.below.write_batch(writes)
    }

    fn flush(&self) -> DeviceResult<()> {
        self.below.flush()
    }

    fn flush_range(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.below.flush_range(offset, len)
    }

    fn erase(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.over(|| blocks_of(offset, len), || self.below.erase(offset, len))
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.over(|| blocks_of(offset, len), || self.below.discard(offset, len))
    }

    fn can_discard(&self) -> bool {
        self.below.can_discard()
    }

    fn blocks_gone_by(&self, next: u64) -> u64 {
        self.below.blocks_gone_by(next)
    }
}

impl Shadow {
    /// How much was saved so far.
    pub fn saved(&self) -> Saved {
        let in_file = self.kept.table.lock().file.as_ref().map_or(0, |(_, count)| *count);
        Saved { blocks: self.kept.saved.load(Ordering::Relaxed), in_file }
    }

    /// From now on reading it fails, so that whoever reads it ends soon.
    pub fn break_off(&self) {
        let _ = self.kept.lost.set(DeviceError::Io {
            operation: Operation::Read,
            offset: 0,
            len: 0,
            device: self.describe(),
            source: HostError { errno: 0, kind: std::io::ErrorKind::Interrupted },
        });
    }

    fn refuse(&self, operation: Operation) -> DeviceError {
        DeviceError::ReadOnly { operation, device: self.describe() }
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        let mut now = self.of.now.write();
        self.of.is_on.store(false, Ordering::SeqCst);
        *now = None;
    }
}

impl Device for Shadow {
    fn size(&self) -> u64 {
        self.of.below.size()
    }

    fn read_only(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        self.of.below.describe()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.kept.check()?;
        self.of.below.read_at(offset, buf)?;
        self.kept.lay_over(offset, buf)
    }

    fn read_batch(&self, reads: &mut [ReadRequest<'_>]) -> DeviceResult<()> {
        self.kept.check()?;
        self.of.below.read_batch(reads)?;
        reads.iter_mut().try_for_each(|read| self.kept.lay_over(read.offset, read.buf))
    }

    fn write_at(&self, _: u64, _: &[u8]) -> DeviceResult<()> {
        Err(self.refuse(Operation::Write))
    }

    /// There is nothing to make durable.
    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> DeviceResult<()> {
        Err(self.refuse(Operation::Discard))
    }
}
