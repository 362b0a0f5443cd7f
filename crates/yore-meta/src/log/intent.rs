//! The intent log: what makes an fsync cheaper than a generation.
//!
//! [`Intent::force`] makes everything done so far durable. It appends to the log what changed in metadata
//! since the last append (or since the last generation was frozen): the chunks of blocks that changed, and
//! which blocks exist in the zones touched. It takes the gate alone for an instant, so no Op is half in a
//! record. It does not look at the file that is synced: the changes of the file are in Ops like all others.
//! So after a crash the volume is as it was at the instant of a record, or of a generation: a prefix of the
//! operations either way (R12). Callers that come while a record is being written share the next one.
//!
//! **Notes** carry file data: a small write is durable in its record, with one write and one flush, before it
//! is in its blocks. The layer above notes the bytes ([`Intent::note_data`]), and later notes that they are
//! at home or truncated ([`Intent::note`]). Until then the bytes are *outstanding*: the log keeps them, by
//! reference to the pages' memory.
//!
//! **Rule 9.** The superblock of a generation names the place that the log had reached when the generation
//! was frozen; replay starts there. While a generation is being written, callers wait for it and append
//! nothing, unless the log has all that it changed: under an engine that logs first, the writer appends and
//! forces that before anybody else may append, and the records that follow say that they *continue*. So
//! records that change metadata cross a generation only if all of it was logged. The writer appends once
//! more, behind that place, what was outstanding when the generation was frozen, and forces it before it
//! writes the superblock; these records belong to the generation after it. If the superblock never arrives,
//! replay from the one before meets them last, and leaves them out unless they continue.
//!
//! **Room.** Outstanding data takes at most a quarter of the log, and ordinary records leave that much free:
//! so a generation can always append it. When much is outstanding, the layer above should bring some home
//! ([`Intent::notes_press`]).
//!
//! **What is not logged** is left to a generation: zones that come or go, more than [`FRAMES_MOST`] blocks,
//! and a record that does not fit the log. [`Intent::force`] then waits for a generation. The zones know what
//! has changed since the last append (`zones::zone::Changes`).
//!
//! **Order on the medium (R4).** A record may name data blocks that were written and not flushed: then a
//! flush comes before the record. An Op that names such blocks says so with [`Intent::note_data_named`]. Data
//! overwritten in place needs only the flush behind the record. If the log has a device of its own, that
//! flush says nothing of the volume's: then such data is flushed before the record, too.
//!
//! **If the leader panics**, in the device perhaps, it leaves changes that count as logged and are not. So a
//! panic stops all writing before anybody else can lead, and those who wait are told.
//!
//! The writer holds the leader's lock until the generation is frozen and what is outstanding is appended.
//! `made` and `leading` are leaves, and so is `notes`, but that `made` may be taken with it held.

use super::notes::{NotedBytes, NotedFiles, Notes};
use super::opened::{NextLog, OpenLog};
use crate::base::freed::Runs;
use crate::base::gate::{assert_no_op, GateAlone};
use crate::blocks::Blocks;
use crate::error::{MetaError, Result};
#[cfg(feature = "mutations")]
use crate::mutation::{is, Mutation};
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use yore_device::SharedBuf;
use yore_format::{encode_note, Incarnation, InodeNo, IntentHead, IntentNote, IntentWriter, BLOCK_SIZE};
use yore_log::{Log, LogError, Lsn, Position};

/// Blocks in a record beyond which a generation is cheaper, and does not hold up Ops as long.
const FRAMES_MOST: usize = 2048;
/// The same for the last record of a generation whose blocks are written in place. Calls ask for a record
/// before there are as many.
const LAST_FRAMES_MOST: usize = 2 * FRAMES_MOST;
/// What part of the log outstanding data may take.
const OUTSTANDING_SHARE: usize = 4;
/// What part of the log one call may note at once, within [`NOTED_PAGES`]: a short log would be full after a
/// few calls, and a generation costs more than it saves to note much.
const NOTED_SHARE: u64 = 64;
/// So many pages may be noted at once in any log, and so many at most: 64 and 128 KiB. More are better
/// written once.
const NOTED_PAGES: (u64, u64) = (16, 32);
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
    /// Records replayed when the volume was opened; in a volume opened read-only, those that the next mount
    /// replays.
    pub replayed: u64,
}

/// The intent log of an open volume.
#[derive(Default)]
pub(crate) struct Intent {
    /// `None`: no log in this volume, or not with this engine, or only reading. Changed while nobody appends.
    pub(super) log: RwLock<Option<Arc<OpenLog>>>,
    /// The log that the running generation is the first one of.
    pub(super) next: Mutex<Option<NextLog>>,
    pub(super) notes: Mutex<Notes>,
    /// Logs that were made to take the place of another, and perhaps have. What is outstanding fits each of
    /// them that is still there.
    pub(super) made: Mutex<Vec<Weak<OpenLog>>>,
    /// Metadata names data that was written since the device was flushed last.
    data_named: AtomicBool,
    /// Data was written since the device was flushed last.
    data_written: AtomicBool,
    /// Counts callers of [`Intent::force`].
    arrivals: AtomicU64,
    /// Callers with smaller numbers are served by the last generation completed.
    committed: AtomicU64,
    /// Callers with smaller numbers are served by the last record forced.
    forced: AtomicU64,
    pub(super) records: AtomicU64,
    pub(super) replayed: AtomicU64,
    /// All that the generation frozen last has changed is in the log, durably. Records may follow while it is
    /// being written. Changed with the leader's lock held.
    continues: AtomicBool,
    /// Whether a caller leads. The others wait for [`Intent::led`] together: were they queued for the
    /// leader's lock, each would be woken by the one before it, and the next record would begin with the
    /// first of them alone.
    leading: Mutex<bool>,
    led: Condvar,
    leader: Mutex<Leader>,
}

/// The right to lead the callers of [`Intent::force`].
struct Lead<'a>(&'a Intent);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        *self.0.leading.lock() = false;
        self.0.led.notify_all();
    }
}

/// The right to append; and the memory that it takes.
#[derive(Default)]
pub(crate) struct Leader {
    writer: IntentWriter,
}

/// The last record of a generation: its contents are in the leader's memory.
pub(crate) struct LastRecord {
    head: IntentHead,
    /// Whether it names data that was not flushed when it was gathered.
    names_data: bool,
    /// Whether data was written over blocks named before, and not flushed.
    has_written: bool,
}

impl Leader {
    /// What was gathered is not appended.
    #[cfg(feature = "mutations")]
    pub(crate) fn forget(&mut self) {
        self.writer.begin();
    }
}

/// The log, if there is one.
impl Intent {
    /// The log that is open for appending.
    #[inline]
    pub(crate) fn log(&self) -> Option<Arc<OpenLog>> {
        self.log.read().clone()
    }

    /// Whether there is a log that data can be noted in.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.log.read().is_some()
    }
}

/// Notes of file data, and what is on the medium before what.
impl Intent {
    /// How many pages may be noted at once; 0 if there is no log.
    pub(crate) fn noted_most(&self) -> usize {
        let (least, most) = NOTED_PAGES;
        self.log().map_or(0, |log| (log.capacity_blocks() / NOTED_SHARE).clamp(least, most) as usize)
    }

    /// Notes pages of a file, by index with their memory, for the next record. They count up to the file's
    /// `size`. False if too much is outstanding, or there is no log: the data must be written to its blocks
    /// then.
    pub(crate) fn note_data(
        &self,
        file: (InodeNo, Incarnation),
        size: u64,
        pages: &[(u32, SharedBuf)],
    ) -> bool {
        let Some(log) = self.log() else { return false };
        let mut notes = self.notes.lock();
        let most = self.notes_most(&log);
        notes.data(file, size, pages, most)
    }

    /// How much may be outstanding: what each log has room for that the volume may have next. Called with the
    /// notes locked, or it may be otherwise at once.
    fn notes_most(&self, log: &Log) -> usize {
        let made = self.made.lock();
        let next = made.iter().filter_map(Weak::upgrade).map(|log| outstanding_most(&log));
        next.fold(outstanding_most(log), usize::min)
    }

    /// Whether half of the log holds records that a crash would need.
    pub(crate) fn presses(&self) -> bool {
        self.log().is_some_and(|log| log.free_blocks() < log.capacity_blocks() / 2)
    }

    /// Whether so much is outstanding that some of it should be brought home soon.
    pub(crate) fn notes_press(&self) -> bool {
        let Some(log) = self.log() else { return false };
        let most = self.notes_most(&log);
        self.notes.lock().outstanding_bytes() > most / 2
    }

    /// Notes that data noted earlier is at home or truncated. A flush comes before the record that says so.
    /// Does nothing without a log.
    pub(crate) fn note(&self, note: &IntentNote<'_>) {
        if self.is_on() {
            self.note_home_first();
            self.notes.lock().take_back(note);
        }
    }

    /// What is taken back must not be lost from where it is now: it is flushed before the record that says
    /// so.
    fn note_home_first(&self) {
        #[cfg(feature = "mutations")]
        if crate::mutation::is(crate::mutation::Mutation::HomeTooEarly) {
            return;
        }
        self.note_data_written_first();
    }

    /// Data was written over blocks that metadata has named before.
    pub(crate) fn note_data_written(&self) {
        self.data_written.store(true, Ordering::SeqCst);
    }

    /// The Op about to be opened names blocks that were just written (R4).
    pub(crate) fn note_data_named(&self) {
        self.data_named.store(true, Ordering::SeqCst);
    }

    /// What the Op about to be opened changes must not be durable before data that was written over blocks
    /// named before.
    pub(crate) fn note_data_written_first(&self) {
        if self.data_written.load(Ordering::SeqCst) {
            self.data_named.store(true, Ordering::SeqCst);
        }
    }
}

/// Whether what was written over blocks in use must be flushed before a record, and not with it.
fn needs_flush(log: &OpenLog) -> bool {
    #[cfg(feature = "mutations")]
    if is(Mutation::OverwrittenUnflushed) {
        return false;
    }
    log.is_elsewhere()
}

/// What part of a log outstanding data may take, in bytes.
pub(super) fn outstanding_most(log: &Log) -> usize {
    log.capacity_blocks() as usize * BLOCK_SIZE / OUTSTANDING_SHARE
}

/// What the writer of generations asks of the log.
impl Intent {
    /// The writer is about to freeze: nobody appends until the guard goes. Callers with smaller numbers than
    /// the one given are served by the generation.
    pub(crate) fn lead(&self) -> (MutexGuard<'_, Leader>, u64) {
        let leader = self.leader.lock();
        (leader, self.arrivals.load(Ordering::SeqCst))
    }

    /// The running generation is being frozen, with the gate held alone: what it changed is in it. Returns
    /// what is outstanding; `None` without a log. `last`, if there is one, learns of data that was not
    /// flushed.
    pub(crate) fn freeze(
        &self,
        blocks: &Blocks,
        last: Option<&mut LastRecord>,
    ) -> Option<NotedFiles<NotedBytes>> {
        self.log()?;
        blocks.zones.changes.forget_unlogged();
        // The generation's own flush, which is still to come, covers what was written before this instant.
        let names_data = self.data_named.swap(false, Ordering::SeqCst);
        let has_written = self.data_written.swap(false, Ordering::SeqCst);
        if let Some(last) = last {
            last.names_data |= names_data;
            last.has_written |= has_written;
        }
        Some(self.notes.lock().freeze())
    }

    /// Gathers what the log does not have of the generation that is being frozen, for engines that write
    /// nothing in place before the log has it. `None` if the log cannot have all of it.
    pub(crate) fn gather_last(
        &self,
        blocks: &Blocks,
        leader: &mut Leader,
        gate: &GateAlone<'_>,
    ) -> Option<LastRecord> {
        let changes = &blocks.zones.changes;
        let log = self.log()?;
        if changes.is_lost() || changes.unlogged_frames() > LAST_FRAMES_MOST {
            return None;
        }
        let head = self.collect_behind(blocks, &mut leader.writer, gate);
        self.fits(&log, &leader.writer).then_some(LastRecord { head, names_data: false, has_written: false })
    }

    /// Appends what was gathered of a generation that is frozen now, and forces it: the write-ahead rule.
    /// What the record names is flushed before it (R4), and so is, one way or the other, all data that was
    /// written before the freeze. Returns the last record that there is; `None` if the log does not take what
    /// was gathered.
    pub(crate) fn append_last(
        &self,
        blocks: &Blocks,
        leader: &mut Leader,
        last: &LastRecord,
    ) -> Result<Option<Lsn>> {
        let log = self.log().expect("it was gathered for a log");
        let device = blocks.base.medium.device();
        if leader.writer.is_empty() {
            // All is in records before, each of which was forced by whoever appended it.
            if last.names_data || last.has_written {
                device.flush()?;
            }
            return Ok(Some(Lsn(log.position().number.0 - 1)));
        }
        let flushes = last.names_data || (last.has_written && needs_flush(&log));
        #[cfg(feature = "mutations")]
        let flushes = flushes && !is(Mutation::NamedUnflushed);
        if flushes {
            device.flush()?;
        }
        let number = match log.append(&[leader.writer.end(&last.head)]) {
            Ok(number) => number,
            Err(LogError::Full { .. } | LogError::TooLong { .. }) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        #[cfg(feature = "mutations")]
        if is(Mutation::BlocksBeforeLog) {
            return Ok(Some(number));
        }
        log.force(number)?;
        self.records.fetch_add(1, Ordering::Relaxed);
        Ok(Some(number))
    }

    /// A generation is frozen, and `is_whole` in the log, durably, or not. Records of the next one, which
    /// begin with this head, may follow while it is being written only if it is: else a mount that finds them
    /// and not its superblock would lack what is before them.
    pub(crate) fn continue_with(&self, is_whole: bool, head: IntentHead) -> IntentHead {
        #[cfg(feature = "mutations")]
        let is_whole = is_whole || is(Mutation::ContinuedEarly);
        self.continues.store(is_whole, Ordering::SeqCst);
        IntentHead { continues: is_whole, ..head }
    }

    /// Where the next record goes. It stays there while the caller leads.
    pub(crate) fn position(&self) -> Position {
        self.log().expect("there is a log").position()
    }

    /// Appends what was outstanding when a generation was frozen, behind the place that its superblock will
    /// name. Returns the number to force before that is written, if there is any.
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
            let pages = file.pages.iter().map(|(page, noted)| (*page, noted.bytes()));
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

    /// Makes durable what was appended up to `number`, for whoever writes a superblock next.
    pub(crate) fn force_up_to(&self, number: Option<Lsn>) -> Result<()> {
        match (self.log(), number) {
            (Some(log), Some(number)) => Ok(log.force_and_leave(number)?),
            _ => Ok(()),
        }
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

/// Making durable what was done: by a record, or by a generation.
impl Intent {
    /// All changes made before are on the medium when this returns. Concurrent callers share one generation.
    pub(crate) fn sync(&self, blocks: &Blocks) -> Result<()> {
        self.await_generation(blocks, true)
    }

    /// As [`Intent::force`], without a log: by a generation, which may put off what nobody waits for.
    fn force_generation(&self, blocks: &Blocks) -> Result<()> {
        self.await_generation(blocks, !blocks.base.medium.strategy().orders())
    }

    /// By a generation, which puts nothing off if it is wanted `whole`.
    fn await_generation(&self, blocks: &Blocks, whole: bool) -> Result<()> {
        assert_no_op();
        let base = &blocks.base;
        base.progress.check_writable()?;
        let running = base.gate.running();
        let has_changes = || match whole {
            // With nothing else changed, notes still count: what is outstanding on the medium may be more
            // than what is, and a replay would bring back data that something newer has replaced at home.
            true => blocks.has_changes() || self.notes.lock().any(),
            false => base.ledger.has_changed() || base.order.pending.has_news(),
        };
        if base.progress.is_settled(running, has_changes) {
            return base.flush();
        }
        base.progress.sync(running, whole)
    }

    /// All changes made before, and data noted or written before, are durable when this returns: by a record
    /// in the log, or by a generation. Concurrent callers share one. Costs one write and one flush; a second
    /// flush if metadata names data that was written since the last. Under an engine that does not force
    /// metadata, a flush for data and no more.
    pub(crate) fn force(&self, blocks: &Blocks) -> Result<()> {
        assert_no_op();
        let progress = &blocks.base.progress;
        progress.check_writable()?;
        if !blocks.base.medium.strategy().forces() {
            return blocks.base.flush();
        }
        if !self.is_on() {
            return self.force_generation(blocks);
        }
        let arrival = self.arrivals.fetch_add(1, Ordering::SeqCst);
        let Some(_lead) = self.await_turn(arrival) else { return Ok(()) };
        self.lead_until_served(blocks, arrival, true)
    }

    /// Appends a record, or has a generation written, so that what a caller asked for is durable. If it
    /// `shares`, a record of another's will do.
    fn lead_until_served(&self, blocks: &Blocks, arrival: u64, shares: bool) -> Result<()> {
        let progress = &blocks.base.progress;
        loop {
            let mut leader = self.leader.lock();
            // Dropped before the leader's lock: who gets that next finds everything stopped.
            let _stop = progress.stop_at_panic("writing a record of the intent log");
            if shares && self.has_served(arrival) {
                return Ok(());
            }
            progress.check_writable()?;
            if progress.is_writing() && !self.continues.load(Ordering::SeqCst) {
                drop(leader);
                progress.await_writer()?;
                continue;
            }
            let changes = &blocks.zones.changes;
            let lost = changes.is_lost()
                || changes.unlogged_frames() > FRAMES_MOST
                || !self.append(blocks, &mut leader)?;
            if !lost {
                return Ok(());
            }
            drop(leader);
            return progress.sync(blocks.base.gate.running(), true);
        }
    }

    /// Appends what changed and makes it durable, for nobody in particular. Called by the thread that writes
    /// generations, so none is being written.
    pub(crate) fn record(&self, blocks: &Blocks) -> Result<()> {
        if !self.is_on() {
            return Ok(());
        }
        let progress = &blocks.base.progress;
        let mut leader = self.leader.lock();
        let _stop = progress.stop_at_panic("writing a record of the intent log");
        progress.check_writable()?;
        let changes = &blocks.zones.changes;
        if changes.is_lost() || !self.append(blocks, &mut leader)? {
            progress.want(blocks.base.gate.running());
        }
        Ok(())
    }

    /// All changes made before are durable when this returns, by a record of this caller's own unless another
    /// has just had them: callers do not share one.
    pub(crate) fn force_alone(&self, blocks: &Blocks) -> Result<()> {
        assert_no_op();
        if !self.is_on() {
            return self.force_generation(blocks);
        }
        let arrival = self.arrivals.fetch_add(1, Ordering::SeqCst);
        self.lead_until_served(blocks, arrival, false)
    }

    /// Whether what a caller of [`Intent::force`] asked for is durable.
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

    /// Appends what changed and makes it durable. False if it does not fit, or records do not say all of it.
    fn append(&self, blocks: &Blocks, leader: &mut Leader) -> Result<bool> {
        let Some(log) = self.log() else { return Ok(false) };
        let upto = self.arrivals.load(Ordering::SeqCst);
        let (head, freed) = self.collect(blocks, &mut leader.writer);
        // An Op that panicked stopped all writing before it let go of the gate: its changes are by half.
        blocks.base.progress.check_writable()?;
        if blocks.zones.changes.is_lost() {
            // By an Op that came before the gate was held. What was collected counts as logged and is not.
            blocks.base.freed.put_back(freed);
            return Ok(false);
        }
        #[cfg(feature = "mutations")]
        let freed = match is(Mutation::BlocksReusedEarly) {
            true => {
                blocks.base.freed.reclaim(&freed);
                Runs::default()
            }
            false => freed,
        };
        if leader.writer.is_empty() {
            // Everything is on the medium but perhaps data written in place.
            if self.data_written.swap(false, Ordering::SeqCst) {
                blocks.base.flush()?;
            }
            self.forced.fetch_max(upto, Ordering::SeqCst);
            blocks.base.freed.put_back(freed);
            return Ok(true);
        }
        let names_data = self.data_named.swap(false, Ordering::SeqCst);
        // In the volume the flush behind the record is for what was overwritten, too.
        let has_written = self.data_written.swap(false, Ordering::SeqCst);
        let flushes = names_data || (has_written && needs_flush(&log));
        #[cfg(feature = "mutations")]
        let flushes = flushes && !is(Mutation::NamedUnflushed);
        if flushes {
            blocks.base.flush()?;
        }
        if !self.fits(&log, &leader.writer) {
            blocks.zones.changes.lose();
            blocks.base.freed.put_back(freed);
            return Ok(false);
        }
        let stop = |e: LogError| {
            let error = MetaError::from(e);
            blocks.base.progress.stop(error.clone());
            error
        };
        let number = match log.append(&[leader.writer.end(&head)]) {
            Ok(number) => number,
            Err(LogError::Full { .. } | LogError::TooLong { .. }) => {
                // What was collected counts as logged and is not: a generation has it all.
                blocks.zones.changes.lose();
                blocks.base.freed.put_back(freed);
                return Ok(false);
            }
            Err(e) => return Err(stop(e)),
        };
        log.force(number).map_err(stop)?;
        if !freed.is_empty() {
            blocks.base.freed.reclaim(&freed);
        }
        self.records.fetch_add(1, Ordering::Relaxed);
        self.forced.fetch_max(upto, Ordering::SeqCst);
        if blocks.base.medium.strategy().logs_first() {
            let progress = &blocks.base.progress;
            progress.note_recorded();
            if self.presses() {
                progress.want(head.generation);
            }
        }
        Ok(true)
    }

    /// Whether the log has room for a record, and for what a generation may have to carry over behind it: as
    /// much as may be outstanding then, not as much as is now. That goes into many records, so only this one
    /// must be no longer than the longest that the log takes.
    fn fits(&self, log: &Log, record: &IntentWriter) -> bool {
        let needed = record.len() + RECORD_SPARE;
        let free = log.free_blocks().saturating_mul(BLOCK_SIZE as u64);
        log.free_bytes() >= needed && free >= (needed + outstanding_most(log) + RECORD_SPARE) as u64
    }

    /// Gathers what the log does not have, at an instant at which no Op is open. Under an engine that logs
    /// first also the data blocks that were freed until then: once the record is durable, every mount goes
    /// through it before it looks at any file, and nothing names them (R3).
    fn collect(&self, blocks: &Blocks, writer: &mut IntentWriter) -> (IntentHead, Runs) {
        let gate = blocks.base.gate.hold();
        let freed = match blocks.base.medium.strategy().logs_first() {
            true => blocks.base.freed.take(),
            false => Runs::default(),
        };
        (self.collect_behind(blocks, writer, &gate), freed)
    }

    /// As [`Intent::collect`], in the instant in which somebody holds the gate alone.
    fn collect_behind(&self, blocks: &Blocks, writer: &mut IntentWriter, gate: &GateAlone<'_>) -> IntentHead {
        writer.begin();
        let frames = blocks.zones.changes.take_unlogged(|zone, exists| writer.zone(zone, exists));
        // Only who leads appends, so the record gets this number, if it is appended.
        let number = self.log().map_or(Lsn(0), |log| log.position().number);
        for frame in &frames {
            frame.log(number, |chunks, block| writer.block(frame.addr(), chunks, block));
        }
        self.notes.lock().log(|count, bytes| writer.notes(count, bytes));
        IntentHead { continues: self.continues.load(Ordering::SeqCst), ..blocks.head(gate.running()) }
    }
}
