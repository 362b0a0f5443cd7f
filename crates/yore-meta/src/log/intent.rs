//! The intent log: what makes an fsync cheaper than a generation.
//!
//! [`Meta::force`] makes all that was done before durable by appending to the log what changed in metadata since the last
//! append (or since the last generation was frozen): the chunks of blocks that changed, and which blocks exist in the zones
//! touched. It takes the gate alone for an instant, so no Op is half in a record; it needs nothing of the file that is
//! synced but that its changes are in Ops. So after a crash the volume is what it was at the instant of a record, or of a
//! generation: a prefix of the operations either way (R12). Callers that come while a record is being written share the
//! next one.
//!
//! **Notes** carry file data: a small write is durable in its record, with one write and one flush, before it has blocks. The
//! layer above notes the bytes ([`Meta::note_data`]), and later that they are at home or cut off ([`Op::note`]). What is noted
//! and neither is *outstanding*; it is kept here, by reference to the pages' memory.
//!
//! **Rule 9.** The superblock of a generation names the place in the log that was reached when it was frozen; replay starts
//! there. While a generation is being written nothing is appended for callers: they wait for it. So records that change
//! metadata never cross a generation. What was outstanding when it was frozen is appended once more, behind that place, and
//! forced before the superblock is written; these records belong to the generation after it. If the superblock never
//! arrives, replay of the one before meets them last, and leaves them out.
//!
//! **Room.** Outstanding data takes at most a quarter of the log, and ordinary records leave as much free as it takes: so a
//! generation can always append it. When there is much of it, whoever notes should bring some home ([`Meta::notes_press`]).
//!
//! **What is not logged** is done by a generation: zones that come or go, and more than [`FRAMES_MOST`] blocks or a record
//! that does not fit the log. [`Meta::force`] then waits for one.
//!
//! **Order on the medium (R4).** A record may name data blocks that were written and not flushed: then a flush comes before the
//! record. What an Op names that way it says with [`Meta::note_data_named`]. Data overwritten in place needs only the flush
//! behind the record.
//!
//! **A panic of who leads**, in the device perhaps, leaves changes that count as logged and are not. So it stops all writing
//! before anybody else can lead, and those who wait are told.
//!
//! Locks: leader → gate → zones → frames; notes and `leading` are leaves. The writer holds the leader's lock until the
//! generation is frozen and what is outstanding is appended.

use crate::error::{MetaError, Result};
use crate::log::noted::{NotedFiles, Trim};
use crate::meta::Meta;
use crate::op::Op;
use crate::zones::zone::Zone;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use yore_device::{AlignedBuf, Device, SharedBuf};
use yore_format::{
    encode_note, BlockNo, Generation, Incarnation, InodeNo, IntentHead, IntentNote, IntentWriter, Number,
    Superblock, BLOCK_SIZE,
};
use yore_log::{Log, LogError, LogId, Lsn, Position, Region};

/// Blocks in a record beyond which a generation is cheaper, and does not hold up Ops as long.
const FRAMES_MOST: usize = 2048;
/// What part of the log outstanding data may take.
const OUTSTANDING_SHARE: usize = 4;
/// Bytes that a page of outstanding data takes in the log: itself, its note, and its share of heads and frames.
const PAGE_RECORD_BYTES: usize = BLOCK_SIZE + 96;
/// Bytes that a file takes of which the size alone is outstanding.
const FILE_RECORD_BYTES: usize = 64;
/// Bytes of outstanding data in one record.
const OUTSTANDING_RECORD_BYTES: usize = 256 << 10;
/// What batches and records may take beside their contents.
const RECORD_SPARE: usize = 4 * BLOCK_SIZE;

/// What the log of a volume is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStatus {
    /// Its length in blocks; 0 if the volume has none.
    pub blocks: u64,
    /// Blocks that hold records a crash would need; 0 if the log is not open for appending.
    pub used: u64,
    /// Records appended since the volume was opened.
    pub records: u64,
    /// Records replayed when the volume was opened; in a volume opened read-only, those that the next mount replays.
    pub replayed: u64,
}

/// The intent log of an open volume.
#[derive(Default)]
pub(crate) struct Intent {
    /// `None` in it: no log in this volume, or not with this engine, or only reading.
    log: OnceLock<Option<Log>>,
    /// Whether changes are tracked: only with a log.
    on: AtomicBool,
    /// Zones with something that the log does not have.
    zones: Mutex<Vec<Arc<Zone>>>,
    frames: AtomicUsize,
    /// The running generation can no longer be logged.
    lost: AtomicBool,
    notes: Mutex<Notes>,
    /// Metadata names data that was written since the device was flushed last.
    data_named: AtomicBool,
    /// Data was written since the device was flushed last.
    data_written: AtomicBool,
    /// Counts callers of [`Meta::force`].
    arrivals: AtomicU64,
    /// Callers with smaller numbers are served by the last generation completed.
    committed: AtomicU64,
    /// Callers with smaller numbers are served by the last record forced.
    forced: AtomicU64,
    records: AtomicU64,
    pub(crate) replayed: AtomicU64,
    /// Whether a caller leads. The others wait for [`Intent::led`] together: were they queued for the leader's lock, each
    /// would be woken by the one before it, and the next record would begin with the first of them alone.
    leading: Mutex<bool>,
    led: Condvar,
    leader: Mutex<Leader>,
}

/// The right to lead the callers of [`Meta::force`].
struct Lead<'a>(&'a Intent);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        *self.0.leading.lock() = false;
        self.0.led.notify_all();
    }
}

#[derive(Default)]
struct Notes {
    bytes: Vec<u8>,
    count: u32,
    /// What would be lost with the log: replaying all notes made so far leaves this.
    outstanding: NotedFiles<NotedBytes>,
}

/// A page's memory, and how many of its bytes count.
#[derive(Clone)]
pub(crate) struct NotedBytes(SharedBuf, usize);

impl Trim for NotedBytes {
    fn trim(&mut self, len: usize) {
        self.1 = self.1.min(len);
    }
}

impl Notes {
    fn encode(&mut self, note: &IntentNote<'_>) {
        encode_note(note, &mut self.bytes);
        self.count += 1;
    }

    /// Bytes that what is outstanding takes in records. A file counts beside its pages: it stays when all of them were cut
    /// off, for its size may be nowhere else.
    fn outstanding_bytes(&self) -> usize {
        let (pages, files) = self.outstanding.count();
        pages * PAGE_RECORD_BYTES + files * FILE_RECORD_BYTES
    }

    /// Notes that something is no longer outstanding.
    fn take_back(&mut self, note: &IntentNote<'_>) {
        match *note {
            IntentNote::Cut { inode, incarnation, size } => self.outstanding.cut((inode, incarnation), size),
            IntentNote::Data { .. } => unreachable!("data is noted with its memory"),
        }
        self.encode(note);
    }
}

/// The right to append; and the memory that it takes.
#[derive(Default)]
pub(crate) struct Leader {
    writer: IntentWriter,
}

impl Intent {
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    pub(crate) fn note_unlogged_zone(&self, zone: &Arc<Zone>) {
        self.zones.lock().push(zone.clone());
    }

    pub(crate) fn note_unlogged_frame(&self) {
        self.frames.fetch_add(1, Ordering::Relaxed);
    }

    /// Something changed that records do not say (zones came or went, the history began): only a generation makes that
    /// durable.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// Turns on the tracking of changes. Nothing has been changed yet.
    pub(crate) fn start(&self, log: Option<Log>) {
        self.on.store(log.is_some(), Ordering::Relaxed);
        assert!(self.log.set(log).is_ok(), "the log is opened once");
    }

    /// Whether something was noted that neither the log nor a generation has. With nothing else changed, what is outstanding
    /// on the medium may be more than what is: a replay would bring back data that something newer has replaced at home.
    pub(crate) fn has_notes(&self) -> bool {
        self.notes.lock().count > 0
    }

    fn log(&self) -> Option<&Log> {
        self.log.get().and_then(Option::as_ref)
    }

    /// Overwrites the records that no replay needs any more.
    pub(crate) fn erase_released(&self) -> Result<()> {
        match self.log() {
            Some(log) => Ok(log.erase_released()?),
            None => Ok(()),
        }
    }

    /// The writer is about to freeze: nobody appends until the guard goes. Callers with smaller numbers than the one given
    /// are served by the generation.
    pub(crate) fn lead(&self) -> (MutexGuard<'_, Leader>, u64) {
        let leader = self.leader.lock();
        (leader, self.arrivals.load(Ordering::SeqCst))
    }

    /// The running generation is being frozen, with the gate held alone: what it changed is in it. Returns where replay
    /// starts once it is complete, and what is outstanding.
    pub(crate) fn freeze(&self) -> Option<(Position, NotedFiles<NotedBytes>)> {
        let log = self.log()?;
        self.zones.lock().clear();
        self.frames.store(0, Ordering::Relaxed);
        self.lost.store(false, Ordering::Relaxed);
        // The generation's own flush, which is still to come, covers what was written before this instant.
        self.data_named.store(false, Ordering::SeqCst);
        self.data_written.store(false, Ordering::SeqCst);
        let mut notes = self.notes.lock();
        notes.bytes.clear();
        notes.count = 0;
        Some((log.position(), notes.outstanding.clone()))
    }

    /// Appends what was outstanding when a generation was frozen, behind the place that its superblock will name. The number
    /// to force before that is written, if there is any.
    pub(crate) fn append_outstanding(
        &self,
        leader: &mut Leader,
        outstanding: &NotedFiles<NotedBytes>,
        head: &IntentHead,
    ) -> Result<Option<Lsn>> {
        let log = self.log().expect("what is outstanding is in a log");
        let mut last = None;
        let (mut bytes, mut count) = (Vec::new(), 0);
        let mut append = |bytes: &mut Vec<u8>, count: &mut u32| -> Result<()> {
            if *count > 0 {
                leader.writer.begin();
                leader.writer.notes(*count, bytes);
                last = Some(log.append(&[leader.writer.end(head)])?);
                bytes.clear();
                *count = 0;
            }
            Ok(())
        };
        for ((inode, incarnation), file) in outstanding.iter() {
            let (inode, incarnation, size) = (*inode, *incarnation, file.size);
            let only_size = [(0, &[][..])];
            let pages = file.pages.iter().map(|(page, bytes)| (*page, &bytes.0[..bytes.1]));
            for (page, data) in only_size.into_iter().filter(|_| file.pages.is_empty()).chain(pages) {
                encode_note(&IntentNote::Data { inode, incarnation, size, page, bytes: data }, &mut bytes);
                count += 1;
                if bytes.len() >= OUTSTANDING_RECORD_BYTES {
                    append(&mut bytes, &mut count)?;
                }
            }
        }
        append(&mut bytes, &mut count)?;
        Ok(last)
    }

    /// Makes durable what was appended up to `number`.
    pub(crate) fn force(&self, number: Option<Lsn>) -> Result<()> {
        match (self.log(), number) {
            (Some(log), Some(number)) => Ok(log.force(number)?),
            _ => Ok(()),
        }
    }

    /// Whether what a caller of [`Meta::force`] asked for is durable.
    fn has_served(&self, arrival: u64) -> bool {
        self.forced.load(Ordering::SeqCst).max(self.committed.load(Ordering::SeqCst)) > arrival
    }

    /// Waits until the caller is served, or is the one to lead.
    fn await_turn(&self, arrival: u64) -> Option<Lead<'_>> {
        let mut leading = self.leading.lock();
        while !self.has_served(arrival) {
            if !std::mem::replace(&mut *leading, true) {
                return Some(Lead(self));
            }
            self.led.wait(&mut leading);
        }
        None
    }

    /// The generation whose superblock names `position` is complete.
    pub(crate) fn complete(&self, position: Option<Position>, served: u64) -> Result<()> {
        self.committed.fetch_max(served, Ordering::SeqCst);
        match (self.log(), position) {
            (Some(log), Some(position)) => Ok(log.release(position)?),
            _ => Ok(()),
        }
    }
}

/// Where a superblock says that replay starts.
pub(crate) fn position_of(superblock: &Superblock) -> Position {
    Position {
        number: Lsn(superblock.log_number),
        sequence: superblock.log_sequence,
        block: superblock.log_position,
        chain: superblock.log_chain,
    }
}

/// Says in a superblock where replay starts, and which generation the records there will belong to.
pub(crate) fn set_position(superblock: &mut Superblock, position: Position, generation: Generation) {
    superblock.log_number = position.number.0;
    superblock.log_sequence = position.sequence;
    superblock.log_position = position.block;
    superblock.log_chain = position.chain;
    superblock.log_generation = generation;
}

/// The log's place on the device; `None` if the volume has none.
pub(crate) fn region_of(superblock: &Superblock) -> Option<(Region, LogId)> {
    let region = Region { first_block: superblock.log_start.0, blocks: superblock.log_blocks };
    (superblock.log_blocks > 0).then_some((region, LogId(superblock.log_id)))
}

/// The length in blocks of the log that a volume of `blocks` blocks gets unless told otherwise: a 128th of it, at least
/// 256 KiB and at most 32 MiB. What a crash leaves in a log of that length is replayed within a second.
pub fn default_log_blocks(blocks: u64) -> u64 {
    (blocks / 128).clamp(64, 8_192)
}

/// Zeroes the log of a volume being made, so that later flushes change no metadata of a file that holds the volume; the
/// position to be entered in its superblock.
pub(crate) fn format(device: &dyn Device, region: Region, id: LogId) -> Result<Position> {
    let zeros = AlignedBuf::zeroed(256);
    let mut at = region.first_block;
    let end = at + region.blocks;
    while at < end {
        let n = (end - at).min(256);
        device.write_at(at * BLOCK_SIZE as u64, &zeros[..n as usize * BLOCK_SIZE])?;
        at += n;
    }
    Ok(Position::start(id))
}

impl Meta {
    /// Whether there is a log that data can be noted in.
    pub fn has_log(&self) -> bool {
        self.intent.is_on()
    }

    /// Notes pages of a file, by index with their memory, for the next record. They count up to the file's `size`. False
    /// if too much is outstanding, or there is no log: the data must be written to its blocks then.
    pub fn note_data(
        &self,
        (inode, incarnation): (InodeNo, Incarnation),
        size: u64,
        pages: &[(u32, SharedBuf)],
    ) -> bool {
        let Some(log) = self.intent.log() else { return false };
        let mut notes = self.intent.notes.lock();
        let most = log.capacity_blocks() as usize * BLOCK_SIZE / OUTSTANDING_SHARE;
        if notes.outstanding_bytes() + FILE_RECORD_BYTES + pages.len() * PAGE_RECORD_BYTES > most {
            return false;
        }
        for (page, bytes) in pages {
            let valid =
                size.saturating_sub(u64::from(*page) * BLOCK_SIZE as u64).min(BLOCK_SIZE as u64) as usize;
            notes.encode(&IntentNote::Data { inode, incarnation, size, page: *page, bytes: &bytes[..valid] });
            notes.outstanding.data((inode, incarnation), size, *page, NotedBytes(bytes.clone(), valid));
        }
        true
    }

    /// Whether so much is outstanding that some of it should be brought home soon.
    pub fn notes_press(&self) -> bool {
        let Some(log) = self.intent.log() else { return false };
        let outstanding = self.intent.notes.lock().outstanding_bytes();
        outstanding > log.capacity_blocks() as usize * BLOCK_SIZE / OUTSTANDING_SHARE / 2
    }

    /// Notes that data noted earlier is at home and counts without an Op, for it was written over blocks that metadata has
    /// named before; or that nobody needs it any more. A flush comes before the record that says so.
    pub fn note(&self, note: &IntentNote<'_>) {
        if self.intent.is_on() {
            self.note_home_first();
            self.intent.notes.lock().take_back(note);
        }
    }

    /// What is taken back must not be lost from where it is now: it is flushed before the record that says so.
    fn note_home_first(&self) {
        #[cfg(feature = "mutations")]
        if crate::mutation::is(crate::mutation::Mutation::HomeTooEarly) {
            return;
        }
        self.note_data_written_first();
    }

    /// Data was written over blocks that metadata has named before.
    pub fn note_data_written(&self) {
        self.intent.data_written.store(true, Ordering::SeqCst);
    }

    /// The Op about to be opened names blocks that were just written (R4).
    pub fn note_data_named(&self) {
        self.intent.data_named.store(true, Ordering::SeqCst);
    }

    /// What the Op about to be opened changes must not be durable before data that was written over blocks named before.
    pub fn note_data_written_first(&self) {
        if self.intent.data_written.load(Ordering::SeqCst) {
            self.intent.data_named.store(true, Ordering::SeqCst);
        }
    }

    /// What the log is doing.
    pub fn log_status(&self) -> LogStatus {
        LogStatus {
            blocks: self.found.log_blocks,
            used: self.intent.log().map_or(0, |log| log.capacity_blocks() - log.free_blocks()),
            records: self.intent.records.load(Ordering::Relaxed),
            replayed: self.intent.replayed.load(Ordering::Relaxed),
        }
    }

    /// All changes made before, and data noted or written before, are durable when this returns: by a record in the log, or
    /// by a generation. Concurrent callers share one. Costs one write and one flush; a second flush if metadata names
    /// data that was written since the last.
    ///
    /// # Errors
    /// The error that stopped writing, if one did.
    pub fn force(&self) -> Result<()> {
        crate::meta::assert_no_op();
        self.check_writable()?;
        let intent = &self.intent;
        let Some(log) = intent.log() else { return self.sync() };
        let arrival = intent.arrivals.fetch_add(1, Ordering::SeqCst);
        let Some(_lead) = intent.await_turn(arrival) else { return Ok(()) };
        loop {
            let mut leader = intent.leader.lock();
            // Dropped before the leader's lock: who gets that next finds everything stopped.
            let _stop = self.stop_at_panic("writing a record of the intent log");
            if intent.has_served(arrival) {
                return Ok(());
            }
            self.check_writable()?;
            if self.progress.lock().writing {
                drop(leader);
                self.wait_for_writer()?;
                continue;
            }
            let lost = intent.lost.load(Ordering::Relaxed)
                || intent.frames.load(Ordering::Relaxed) > FRAMES_MOST
                || !self.append(log, &mut leader)?;
            if !lost {
                return Ok(());
            }
            drop(leader);
            return self.sync_running();
        }
    }

    /// Appends what changed and makes it durable. False if it does not fit.
    fn append(&self, log: &Log, leader: &mut Leader) -> Result<bool> {
        let intent = &self.intent;
        let upto = intent.arrivals.load(Ordering::SeqCst);
        let head = self.collect(&mut leader.writer);
        if leader.writer.is_empty() {
            // Everything is on the medium but perhaps data written in place.
            if intent.data_written.swap(false, Ordering::SeqCst) {
                self.flush_for_log()?;
            }
            intent.forced.fetch_max(upto, Ordering::SeqCst);
            return Ok(true);
        }
        if intent.data_named.swap(false, Ordering::SeqCst) {
            self.flush_for_log()?;
        }
        intent.data_written.store(false, Ordering::SeqCst);
        // What a generation may have to carry over stays free: as much as may be outstanding then, not as much as is now.
        let kept = log.capacity_blocks() as usize * BLOCK_SIZE / OUTSTANDING_SHARE + RECORD_SPARE;
        if log.free_bytes() < leader.writer.len() + RECORD_SPARE + kept {
            intent.lost.store(true, Ordering::Relaxed);
            return Ok(false);
        }
        let number = match log.append(&[leader.writer.end(&head)]) {
            Ok(number) => number,
            Err(LogError::Full { .. } | LogError::TooLong { .. }) => {
                // What was collected counts as logged and is not: a generation has it all.
                intent.lost.store(true, Ordering::Relaxed);
                return Ok(false);
            }
            Err(e) => return Err(self.stop_for_log(e)),
        };
        log.force(number).map_err(|e| self.stop_for_log(e))?;
        intent.records.fetch_add(1, Ordering::Relaxed);
        intent.forced.fetch_max(upto, Ordering::SeqCst);
        Ok(true)
    }

    /// Gathers what the log does not have, at an instant at which no Op is open.
    fn collect(&self, writer: &mut IntentWriter) -> IntentHead {
        let intent = &self.intent;
        let gate = self.gate.write();
        writer.begin();
        let mut frames = Vec::new();
        for zone in std::mem::take(&mut *intent.zones.lock()) {
            let mut state = zone.state.lock();
            state.is_unlogged = false;
            writer.zone(zone.no, &state.exists);
            frames.append(&mut state.unlogged);
        }
        for frame in &frames {
            frame.log(|chunks, block| writer.block(frame.addr(), chunks, block));
        }
        intent.frames.store(0, Ordering::Relaxed);
        {
            let mut notes = intent.notes.lock();
            writer.notes(notes.count, &notes.bytes);
            notes.bytes.clear();
            notes.count = 0;
        }
        self.intent_head(Generation(*gate))
    }

    /// The state beside zones and blocks. With no Op open.
    pub(crate) fn intent_head(&self, generation: Generation) -> IntentHead {
        let (orphan_root, orphan_level) = *self.orphan_root.lock();
        IntentHead {
            generation,
            orphan_root,
            orphan_level,
            free_blocks: self.totals.free_blocks.get(),
            inodes: self.totals.inodes.get(),
            metadata_blocks: self.totals.metadata_blocks.get(),
            next_number: Number(self.next_number.load(Ordering::Relaxed)),
            next_incarnation: self.next_incarnation.load(Ordering::Relaxed),
            zone_number_limit: self.zone_limit(),
        }
    }

    fn flush_for_log(&self) -> Result<()> {
        self.device.flush().map_err(|e| {
            self.stop(e.clone().into());
            e.into()
        })
    }

    fn stop_for_log(&self, error: LogError) -> MetaError {
        let error = MetaError::from(error);
        self.stop(error.clone());
        error
    }
}

impl Op<'_> {
    /// Notes in the log what this Op does to data noted earlier: it makes count what is at home, or cuts off. A flush comes
    /// before the record that says so. Does nothing without a log.
    pub fn note(&mut self, note: &IntentNote<'_>) {
        let intent = &self.meta().intent;
        if intent.is_on() {
            self.meta().note_home_first();
            intent.notes.lock().take_back(note);
        }
    }
}

/// The first block of the log and those after it, where a volume with a log of `blocks` blocks has it: behind group 0's
/// first zone.
pub(crate) fn place(zone: BlockNo, blocks: u64) -> Region {
    Region { first_block: zone.0 + yore_format::layout::ZONE_BLOCKS, blocks }
}
