//! A log being appended to, by any number of threads.
//!
//! Records go into the batch being *gathered*, in memory. When somebody wants them durable the batch is
//! *sealed* (header and checksums are computed, its place in the ring is final), written and flushed, and
//! *durable*.
//!
//! ```text
//! append ──► gathered ──seal──► sealed ──write, flush──► durable ──release──► free
//! ```
//!
//! **Group commit.** Of the threads that wait in [`Log::force`] one leads: it seals what is gathered, its own
//! records and everybody's, and writes. While it writes, others append to the next batch, and whoever wants
//! that durable waits. When the flush returns, the threads whose records it covered go on, and one of the
//! rest leads the next batch. So a batch costs one write and one flush, however many wait for it.
//!
//! **Invariants.** (a) Sealed batches are written in order, one at a time, each after the flush of the one
//! before it: whoever finds `writing` set waits. (b) The blocks from `oldest.block` to `at.block` are `kept`,
//! and those with what is gathered behind them never exceed the ring: `append` checks it before it changes
//! anything, so sealing and writing never lack space. (c) `at` is where the gathered batch will stand. Its
//! chain value is known when its predecessor is sealed, and so a [`Position`] can be given at any time, even
//! in the middle of a batch that is not written yet. (d) The session's first batch is its start (see the
//! crate's essay); it is sealed by the first append, so a session that appends nothing writes nothing. (e)
//! After an error of the device, or a panic of the writing thread, nothing more is written, and all who wait
//! are told ([`Writing`]).
//!
//! **Release ahead of writing.** An owner may release records that were never forced, if what they protect
//! was committed in another way. They are still written when their turn comes, so that the chain has no gap.
//! It does not matter what overwrites them, because the owner's anchor lies behind them.
//!
//! **Gaps.** The platters of a disk go on while a flush is answered and the next batch is gathered. Were that
//! batch to follow at once, its first block would just have gone by below the head, and each force would take
//! a whole turn. So a batch is followed by a gap, as long as what goes by meanwhile
//! ([`Device::blocks_gone_by`]); what is in the gap means nothing. Its header says how long the gap is, so
//! whoever reads the batch knows where the next one begins. Gaps use up space of the ring, but not the last
//! third of it, where batches follow each other at once. An owner who reserves no more than that may have
//! them, if whoever reads the log knows that there may be some ([`Log::leave_gaps`]).
//!
//! One lock guards the state, and it is not held across I/O. Sealing computes checksums under it: 16 MiB at
//! most, some kilobytes as a rule. Buffers are used again, so a force allocates nothing once their sizes have
//! settled.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};
use yore_device::{AlignedBuf, Device, DeviceError, BLOCK_SIZE};
use zerocopy::IntoBytes;

use crate::layout::{
    mix, BatchHeader, RecordHeader, BATCH_BYTES_MAX, BATCH_HEADER_BYTES, BATCH_MAGIC, GAP_BLOCKS_MAX,
    RECORD_HEADER_BYTES,
};
use crate::recover::{check_position, Entry};
use crate::ring::Ring;
use crate::types::now_ns;
use crate::{End, LogError, LogId, Lsn, Position, Region};

/// Bytes of the buffer that a batch is first gathered in.
const BUFFER_BYTES: usize = 64 << 10;
/// What part of the ring a gap may take.
const GAP_SHARE: u64 = 4;
/// Buffers larger than this are given back to the system.
const SPARE_BYTES_MAX: usize = 2 << 20;

/// A log open for appending. See the crate's documentation; [`LogFile`](crate::LogFile) is the form that
/// keeps its own anchor.
#[derive(Debug)]
pub struct Log {
    pub(crate) ring: Ring,
    pub(crate) id: LogId,
    session: u64,
    /// Batches may have gaps behind them.
    leaves_gaps: AtomicBool,
    state: Mutex<State>,
    /// Notified when a batch became durable, and when nobody writes any more.
    written: Condvar,
}

#[derive(Debug)]
pub(crate) struct State {
    /// Everything before it is released.
    pub oldest: Position,
    /// Where the batch being gathered will stand, with the number of its first record.
    pub at: Position,
    pub gathered: Gathered,
    /// Whether the session's start is sealed.
    started: bool,
    /// Blocks from `oldest.block` to `at.block`.
    kept: u64,
    /// Not yet durable, in order. The first one is being written if `writing`.
    pub sealed: VecDeque<Sealed>,
    /// Every record with a smaller number, and every batch with a smaller sequence number, is durable.
    durable: Lsn,
    durable_sequence: u64,
    writing: bool,
    /// Why the log accepts nothing more.
    failed: Option<LogError>,
    /// Batches with records, from the one that holds `oldest.number` to the last sealed.
    pub index: VecDeque<Entry>,
    spare: Vec<Arc<AlignedBuf>>,
}

/// As long as this lives, a thread is writing. The threads that wait go on when it ends, however it ends.
/// After a panic nobody knows what was written, and the log accepts nothing more.
struct Writing<'a, 'log> {
    state: &'a mut MutexGuard<'log, State>,
    written: &'a Condvar,
}

impl Drop for Writing<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.state.failed.get_or_insert(LogError::Panicked);
        }
        self.state.writing = false;
        self.written.notify_all();
    }
}

/// The batch being gathered: its buffer belongs to it alone.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub buffer: Arc<AlignedBuf>,
    /// Bytes used, with room for the header; a multiple of 8.
    pub length: usize,
    pub count: u32,
}

/// A batch that only waits to be written.
#[derive(Debug, Clone)]
pub(crate) struct Sealed {
    pub buffer: Arc<AlignedBuf>,
    pub at: Position,
    pub blocks: u64,
    /// The number after its last record's.
    pub end_number: Lsn,
}

impl Gathered {
    fn blocks(&self) -> u64 {
        match self.count {
            0 => 0,
            _ => blocks_for(self.length),
        }
    }

    /// The buffer, at least `length` bytes of it.
    fn room(&mut self, length: usize) -> &mut AlignedBuf {
        if length > self.buffer.len() {
            let bytes = length.next_power_of_two().max(BUFFER_BYTES);
            let mut larger = AlignedBuf::zeroed(bytes / BLOCK_SIZE);
            larger[..self.length].copy_from_slice(&self.buffer[..self.length]);
            self.buffer = Arc::new(larger);
        }
        Arc::get_mut(&mut self.buffer).expect("the buffer being filled is shared with nobody")
    }
}

/// Blocks that this many bytes take.
fn blocks_for(bytes: usize) -> u64 {
    bytes.div_ceil(BLOCK_SIZE) as u64
}

/// Bytes that a record takes in a batch, its header included.
fn record_bytes(length: usize) -> usize {
    RECORD_HEADER_BYTES + length.next_multiple_of(8)
}

impl Log {
    /// Opens the log `id` for appending at `end`, and keeps what is between `end.oldest` and `end.position`.
    /// `session` is greater than the number of every earlier opening, and the caller has made durable that it
    /// is taken. Nothing is written before the first record is forced.
    ///
    /// `end` comes from [`recover`](crate::recover()) at the same time, or is [`End::at`] the position where
    /// a recovery ended, if nothing before it is to be kept, or at [`Position::start`].
    ///
    /// # Errors
    /// [`LogError::BadRegion`], [`LogError::BadPosition`], [`LogError::SessionNotNew`]; [`LogError::Device`]
    /// if the device is open for reading only.
    pub fn open(
        device: Arc<dyn Device>,
        region: Region,
        id: LogId,
        session: u64,
        end: End,
    ) -> Result<Log, LogError> {
        let ring = Ring::new(device, region)?;
        check_position(&ring, &end.position)?;
        check_position(&ring, &end.oldest)?;
        if ring.device().read_only() {
            let device = ring.device().describe();
            return Err(DeviceError::ReadOnly { operation: yore_device::Operation::Write, device }.into());
        }
        if let Some(last) = end.session.filter(|&last| last >= session) {
            return Err(LogError::SessionNotNew { session, last });
        }
        let (first, last) = (&end.oldest, &end.position);
        let in_order = first.number <= last.number && first.sequence <= last.sequence;
        if !in_order || (first.sequence == last.sequence && first.block != last.block) {
            let blocks = ring.blocks();
            return Err(LogError::BadPosition { number: first.number, block: first.block, blocks });
        }
        let kept = span(&ring, &end.oldest, &end.position);
        let state = State {
            oldest: end.oldest,
            at: end.position,
            gathered: Gathered { buffer: new_buffer(), length: BATCH_HEADER_BYTES, count: 0 },
            started: false,
            kept,
            sealed: VecDeque::new(),
            durable: end.position.number,
            durable_sequence: end.position.sequence,
            writing: false,
            failed: None,
            index: end.index,
            spare: Vec::new(),
        };
        let leaves_gaps = AtomicBool::new(false);
        Ok(Log { ring, id, session, leaves_gaps, state: Mutex::new(state), written: Condvar::new() })
    }

    /// Appends a record made of `parts`, one after the other, and gives its number. It is copied; nothing is
    /// written until somebody forces it, or a record after it. The position after it is [`Log::position`].
    /// Records that were not forced stay in memory, up to what the ring has room for.
    ///
    /// # Errors
    /// [`LogError::Full`] until something is released, [`LogError::TooLong`]; [`LogError::Device`] if an
    /// earlier write or flush failed. Nothing was appended then.
    pub fn append(&self, parts: &[&[u8]]) -> Result<Lsn, LogError> {
        // The clock is read before the lock is taken; time stamps of records may be a little out of order.
        let time = now_ns();
        let length = parts.iter().map(|part| part.len()).fold(0, usize::saturating_add);
        let max = self.record_bytes_max();
        if length > max {
            return Err(LogError::TooLong { length: length as u64, max: max as u64 });
        }
        let bytes = record_bytes(length);
        let mut state = self.state.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        let needed = state.blocks_needed(bytes);
        let free = state.free_blocks(&self.ring);
        if needed > free {
            return Err(LogError::Full { needed, free });
        }
        if !state.started {
            self.seal_start(&mut state);
        }
        if state.gathered.length + bytes > BATCH_BYTES_MAX {
            self.seal(&mut state, false);
        }
        let number = state.next_number();
        let gathered = &mut state.gathered;
        let mut at = gathered.length;
        let buffer = gathered.room(at + bytes);
        let header = RecordHeader {
            number: number.0.into(),
            time: time.into(),
            length: (length as u32).into(),
            reserved: 0.into(),
        };
        let mut put = |part: &[u8]| {
            buffer[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        put(header.as_bytes());
        parts.iter().for_each(|part| put(part));
        put(&[0; 7][..length.next_multiple_of(8) - length]);
        gathered.length = at;
        gathered.count += 1;
        Ok(number)
    }

    /// Makes the record `number` durable, and all before it. Callers that wait at the same time share one
    /// write and one flush. If data that was written elsewhere must be durable before the record that names
    /// it, the caller flushes the device first.
    ///
    /// # Errors
    /// [`LogError::NotAppended`]; [`LogError::Device`] if this or an earlier write or flush failed, and the
    /// record was not durable by then. Whether it will be found again is then not known.
    /// [`LogError::Panicked`] likewise.
    pub fn force(&self, number: Lsn) -> Result<(), LogError> {
        self.force_with(number, true)
    }

    /// As [`Log::force`], for a caller who writes elsewhere next: there is no gap behind it.
    ///
    /// # Errors
    /// As [`Log::force`].
    pub fn force_and_leave(&self, number: Lsn) -> Result<(), LogError> {
        self.force_with(number, false)
    }

    fn force_with(&self, number: Lsn, goes_on: bool) -> Result<(), LogError> {
        let mut state = self.state.lock();
        let next = state.next_number();
        if number >= next {
            return Err(LogError::NotAppended { number, next });
        }
        loop {
            if number < state.durable {
                return Ok(());
            }
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if state.writing {
                self.written.wait(&mut state);
            } else {
                self.lead(&mut state, number, goes_on);
            }
        }
    }

    /// Makes everything durable that was appended.
    ///
    /// # Errors
    /// As [`Log::force`].
    pub fn force_all(&self) -> Result<(), LogError> {
        let next = self.state.lock().next_number();
        match next.0 {
            0 | 1 => Ok(()),
            next => self.force(Lsn(next - 1)),
        }
    }

    /// Writes batch after batch until `number` is durable or the device fails. `goes_on`: the next write is
    /// probably of the batch behind it.
    fn lead(&self, state: &mut MutexGuard<'_, State>, number: Lsn, goes_on: bool) {
        state.writing = true;
        let leading = Writing { state, written: &self.written };
        while number >= leading.state.durable {
            if leading.state.sealed.is_empty() {
                self.seal(leading.state, goes_on);
            }
            if self.write_first(leading.state).is_err() {
                break;
            }
        }
    }

    /// Writes the first batch that is sealed, and flushes. The caller has set `writing`.
    fn write_first(&self, state: &mut MutexGuard<'_, State>) -> Result<(), LogError> {
        // It stays in the queue while it is written, so that it can be read.
        let batch = state.sealed[0].clone();
        let bytes = batch.blocks as usize * BLOCK_SIZE;
        let result = MutexGuard::unlocked(state, || {
            self.ring.write(batch.at.block, &batch.buffer[..bytes])?;
            self.ring.device().flush()
        });
        drop(batch);
        if let Err(error) = result {
            let error = LogError::from(error);
            state.failed = Some(error.clone());
            return Err(error);
        }
        if let Some(batch) = state.sealed.pop_front() {
            state.durable = batch.end_number;
            state.durable_sequence = batch.at.sequence + 1;
            state.recycle(batch.buffer);
        }
        self.written.notify_all();
        Ok(())
    }

    /// Seals the batch being gathered, which must have records, with a gap behind it if one is of use.
    fn seal(&self, state: &mut State, has_gap: bool) {
        let next = state.new_gathered();
        let Gathered { buffer, length, count } = std::mem::replace(&mut state.gathered, next);
        assert!(count > 0, "a batch without records is only sealed as the start of a session");
        let gap = if has_gap { self.gap(state, blocks_for(length)) } else { 0 };
        self.seal_batch(state, buffer, (length, count), gap);
    }

    /// How many blocks are left out behind a batch of so many. What owners reserve is not touched: a third of
    /// the ring stays free.
    fn gap(&self, state: &State, blocks: u64) -> u64 {
        if !self.leaves_gaps.load(Ordering::Relaxed) {
            return 0;
        }
        // The next batch may well be as long as this one.
        let gap = self.ring.device().blocks_gone_by(blocks);
        let most = GAP_BLOCKS_MAX.min(self.ring.blocks() / GAP_SHARE);
        let fits = state.kept + blocks + gap <= self.ring.blocks() / 3 * 2;
        // A gap that is too short is worth nothing.
        if gap <= most && fits {
            gap
        } else {
            0
        }
    }

    /// Seals the batch that starts the session: one block, each of whose sectors holds bytes that nothing
    /// else holds.
    fn seal_start(&self, state: &mut State) {
        let Gathered { mut buffer, .. } = state.new_gathered();
        let bytes = Arc::get_mut(&mut buffer).expect("a new buffer is shared with nobody");
        let mut random = mix(state.at.chain ^ mix(self.session));
        for word in bytes[BATCH_HEADER_BYTES..BLOCK_SIZE].chunks_exact_mut(8) {
            random = mix(random);
            word.copy_from_slice(&random.to_le_bytes());
        }
        state.started = true;
        self.seal_batch(state, buffer, (BLOCK_SIZE, 0), 0);
    }

    fn seal_batch(
        &self,
        state: &mut State,
        mut buffer: Arc<AlignedBuf>,
        (length, count): (usize, u32),
        gap: u64,
    ) {
        let at = state.at;
        let blocks = blocks_for(length);
        let bytes = Arc::get_mut(&mut buffer).expect("the buffer being sealed is shared with nobody");
        let bytes = &mut bytes[..blocks as usize * BLOCK_SIZE];
        // The buffer held other batches before.
        bytes[length..].fill(0);
        let header = BatchHeader {
            magic: BATCH_MAGIC,
            version: BatchHeader::version_with(gap).into(),
            header_crc: 0.into(),
            body_crc: 0.into(),
            count: count.into(),
            length: (length as u32).into(),
            gap: (gap as u32).into(),
            log: self.id.0.into(),
            session: self.session.into(),
            sequence: at.sequence.into(),
            number: at.number.0.into(),
            previous: at.chain.into(),
            block: at.block.into(),
        };
        let chain = header.seal(bytes);
        let end_number = Lsn(at.number.0 + u64::from(count));
        if count > 0 {
            state.index.push_back(Entry::new(at.number.0, at.block, blocks, gap));
        }
        state.kept += blocks + gap;
        state.at = Position {
            number: end_number,
            sequence: at.sequence + 1,
            block: self.ring.after(at.block, blocks + gap),
            chain,
        };
        state.sealed.push_back(Sealed { buffer, at, blocks, end_number });
    }

    /// The position after the last record appended. Recovery from it gives exactly the records that are
    /// appended from now on. It is valid at once, whether or not the records before it are ever forced.
    pub fn position(&self) -> Position {
        let state = self.state.lock();
        Position { number: state.next_number(), ..state.at }
    }

    /// The number that the next record gets.
    pub fn next_number(&self) -> Lsn {
        self.state.lock().next_number()
    }

    /// The oldest position kept: of [`Log::open`], or the last one released.
    pub fn oldest(&self) -> Position {
        self.state.lock().oldest
    }

    /// Every record before the first of these is durable, and every batch whose sequence number is less than
    /// the second.
    pub fn durable(&self) -> (Lsn, u64) {
        let state = self.state.lock();
        (state.durable, state.durable_sequence)
    }

    /// Allows the log to overwrite what is before `up_to`. That position comes from [`Log::position`],
    /// [`Log::position_of`] or recovery, and the caller's durable anchor already names it or a later one. A
    /// position before the oldest one changes nothing. Space is freed by whole batches.
    ///
    /// # Errors
    /// [`LogError::BadPosition`] if it is not a position of this log: nothing is released.
    pub fn release(&self, up_to: Position) -> Result<(), LogError> {
        let mut state = self.state.lock();
        if up_to.number <= state.oldest.number && up_to.sequence <= state.oldest.sequence {
            return Ok(());
        }
        let bad =
            LogError::BadPosition { number: up_to.number, block: up_to.block, blocks: self.ring.blocks() };
        let between = up_to.block < self.ring.blocks()
            && (state.oldest.number..=state.next_number()).contains(&up_to.number)
            && (state.oldest.sequence..=state.at.sequence).contains(&up_to.sequence);
        if !between {
            return Err(bad);
        }
        let rest = span(&self.ring, &up_to, &state.at);
        if rest > state.kept || (up_to.sequence == state.at.sequence && rest != 0) {
            return Err(bad);
        }
        state.kept = rest;
        state.oldest = up_to;
        let next = state.at.number.0;
        while !state.index.is_empty() {
            let end = state.index.get(1).map_or(next, |entry| entry.number);
            if end > up_to.number.0 {
                break;
            }
            state.index.pop_front();
        }
        Ok(())
    }

    /// From now on batches may have gaps behind them, if the device has platters. Gaps take up to two thirds
    /// of the ring, and all of it is no longer there for records.
    pub fn leave_gaps(&self) {
        self.leaves_gaps.store(true, Ordering::Relaxed);
    }

    /// Whether gaps are of any use here.
    pub fn has_platters(&self) -> bool {
        self.ring.device().blocks_gone_by(1) > 0
    }

    /// Overwrites the blocks that no recovery needs any more with zeros. Durable after a flush of the device.
    /// Other threads may append meanwhile; records that they force are written afterwards.
    ///
    /// The session's start, and all that is sealed, is written first: zeros must not complete a torn batch
    /// that an earlier session has left in their place.
    ///
    /// # Errors
    /// [`LogError::Device`] if this or an earlier write failed.
    pub fn erase_released(&self) -> Result<(), LogError> {
        let mut state = self.state.lock();
        while state.writing {
            self.written.wait(&mut state);
        }
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        if !state.started && state.free_blocks(&self.ring) > 0 {
            self.seal_start(&mut state);
        }
        state.writing = true;
        let writing = Writing { state: &mut state, written: &self.written };
        while !writing.state.sealed.is_empty() {
            self.write_first(writing.state)?;
        }
        let state = &mut *writing.state;
        let taken = state.gathered.blocks();
        let free =
            (self.ring.after(state.at.block, taken), self.ring.blocks().saturating_sub(state.kept + taken));
        let gaps = state.index.iter().filter(|batch| batch.gap() > 0);
        let gaps = gaps.map(|batch| (self.ring.after(batch.block.into(), batch.blocks()), batch.gap()));
        let unused: Vec<(u64, u64)> = gaps.chain([free]).collect();
        let result = MutexGuard::unlocked(state, || {
            unused.into_iter().try_for_each(|(from, count)| self.ring.erase(from, count))
        });
        if let Err(error) = result {
            let error = LogError::from(error);
            state.failed = Some(error.clone());
            return Err(error);
        }
        Ok(())
    }

    /// Blocks that are free: neither kept nor taken by records that were appended.
    pub fn free_blocks(&self) -> u64 {
        self.state.lock().free_blocks(&self.ring)
    }

    /// Bytes of the longest record that [`Log::append`] takes now; 0 also where not even an empty one fits.
    pub fn free_bytes(&self) -> usize {
        let state = self.state.lock();
        let free = state.free_blocks(&self.ring).saturating_sub(u64::from(!state.started));
        let gathered = &state.gathered;
        let in_blocks = usize::try_from(free + gathered.blocks()).unwrap_or(usize::MAX);
        let joining =
            in_blocks.saturating_mul(BLOCK_SIZE).min(BATCH_BYTES_MAX).saturating_sub(gathered.length);
        let alone = usize::try_from(free).unwrap_or(usize::MAX).saturating_mul(BLOCK_SIZE);
        let alone = alone.min(BATCH_BYTES_MAX).saturating_sub(BATCH_HEADER_BYTES);
        // A record that does not fit beside the gathered ones because of the limit of batches begins a batch
        // of its own.
        let bytes = if gathered.length + alone > BATCH_BYTES_MAX { joining.max(alone) } else { joining };
        (bytes.saturating_sub(RECORD_HEADER_BYTES) & !7).min(self.record_bytes_max())
    }

    /// Blocks of the ring.
    pub fn capacity_blocks(&self) -> u64 {
        self.ring.blocks()
    }

    /// Bytes of the longest record that this log takes when it is empty.
    pub fn record_bytes_max(&self) -> usize {
        // One block is for the start of a session.
        let ring = usize::try_from(self.ring.blocks() - 1).unwrap_or(usize::MAX).saturating_mul(BLOCK_SIZE);
        ring.min(BATCH_BYTES_MAX) - BATCH_HEADER_BYTES - RECORD_HEADER_BYTES
    }

    /// Blocks that a record of `length` bytes takes at most: those of a batch of its own. (A session takes
    /// one block beside, with its first record.) For owners that reserve space before they append.
    pub fn blocks_for_record(length: usize) -> u64 {
        blocks_for(BATCH_HEADER_BYTES + record_bytes(length))
    }

    /// Whether the log accepts records.
    ///
    /// # Errors
    /// [`LogError::Device`] if an earlier write or flush failed.
    pub fn check(&self) -> Result<(), LogError> {
        self.state.lock().failed.clone().map_or(Ok(()), Err)
    }

    /// Stops the log after an error of its owner's device.
    pub(crate) fn fail(&self, error: &LogError) {
        self.state.lock().failed.get_or_insert_with(|| error.clone());
    }

    /// The state, for reading.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    /// The number that the next record gets.
    pub fn next_number(&self) -> Lsn {
        Lsn(self.at.number.0 + u64::from(self.gathered.count))
    }

    fn free_blocks(&self, ring: &Ring) -> u64 {
        ring.blocks() - self.kept - self.gathered.blocks()
    }

    /// Blocks that a record of `bytes` bytes, header included, takes beyond what is taken.
    fn blocks_needed(&self, bytes: usize) -> u64 {
        let start = u64::from(!self.started);
        start
            + match self.gathered.length + bytes {
                joined if joined <= BATCH_BYTES_MAX => blocks_for(joined) - self.gathered.blocks(),
                _ => blocks_for(BATCH_HEADER_BYTES + bytes),
            }
    }

    fn new_gathered(&mut self) -> Gathered {
        let buffer = self.spare.pop().unwrap_or_else(new_buffer);
        Gathered { buffer, length: BATCH_HEADER_BYTES, count: 0 }
    }

    /// Keeps a buffer for the next batch, unless a reader still has it, it is very large, or there are
    /// enough.
    fn recycle(&mut self, mut buffer: Arc<AlignedBuf>) {
        if self.spare.len() < 2 && buffer.len() <= SPARE_BYTES_MAX && Arc::get_mut(&mut buffer).is_some() {
            self.spare.push(buffer);
        }
    }
}

fn new_buffer() -> Arc<AlignedBuf> {
    Arc::new(AlignedBuf::zeroed(BUFFER_BYTES / BLOCK_SIZE))
}

/// Blocks from one position forward to a later one.
fn span(ring: &Ring, from: &Position, to: &Position) -> u64 {
    match ring.distance(from.block, to.block) {
        0 if from.sequence != to.sequence => ring.blocks(),
        blocks => blocks,
    }
}
