//! Finding again what a log holds, after a crash or not.
//!
//! Recovery starts at the position that the owner kept and walks from batch to batch. A batch is *good* if
//! its header is whole (written here, by this log), fits (sequence number, chain, session, number), and its
//! body is whole. The first that is not good ends the walk, in one of three ways:
//!
//! | at the place of batch k | means |
//! |---|---|
//! | no header, an older one (sequence below k), or a body that is not whole; no header above k in the rest of the ring | the end |
//! | the same, but a header above k in the rest of the ring | damage: k had been durable |
//! | a header above k, or one of k that does not fit | damage: nothing that the log does leaves this |
//!
//! The crate's essay has the argument. The rest of the ring is read up to a whole batch's greatest length and
//! the largest gap in any case, and beyond that until two headers below k are met that are no nearer to each
//! other than the largest gap is long: the log can never have reached these again. (In between such a header
//! proves nothing: the write of batch k may have been lost, leaving what was there before. Nor does one
//! alone, which may be left over in a gap.)
//!
//! Recovery begins with a flush, so that what it reads is durable. After a crash of only the process, its
//! last writes may be readable and not yet on the medium. Without the flush, the next session's batches could
//! reach the medium before the batch to which they are chained.

use std::collections::VecDeque;
use std::sync::Arc;

use yore_device::Device;

use crate::layout::{BatchHeader, Found, RecordSpan, BATCH_BYTES_MAX, BATCH_HEADER_BYTES, GAP_BLOCKS_MAX};
use crate::ring::{Ring, Stream};
use crate::{LogError, LogId, Lsn, Position, Record, Region};

/// Where a batch with records lies, for finding records by their numbers. 16 bytes for each batch kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// Number of its first record.
    pub number: u64,
    pub block: u32,
    blocks: u16,
    gap: u16,
}

impl Entry {
    /// Of a batch at a block of a ring. It has at most [`BATCH_BYTES_MAX`] bytes, and [`GAP_BLOCKS_MAX`]
    /// blocks behind it.
    pub fn new(number: u64, block: u64, blocks: u64, gap: u64) -> Entry {
        Entry { number, block: block as u32, blocks: blocks as u16, gap: gap as u16 }
    }

    /// Blocks of the batch.
    pub fn blocks(&self) -> u64 {
        self.blocks.into()
    }

    /// Blocks that are left out behind it.
    pub fn gap(&self) -> u64 {
        self.gap.into()
    }
}

/// What recovery found: where the log goes on, and what it keeps.
#[derive(Debug, Clone)]
pub struct End {
    /// Behind the last good record.
    pub position: Position,
    /// Where reading began: what [`Log::open`](crate::Log::open) keeps until it is released.
    pub oldest: Position,
    /// The session of the last batch, if there is any.
    pub(crate) session: Option<u64>,
    pub(crate) index: VecDeque<Entry>,
}

impl End {
    /// The end of a log that keeps nothing: a new one, or one whose owner no longer needs what is before
    /// `position`.
    pub fn at(position: Position) -> End {
        End { position, oldest: position, session: None, index: VecDeque::new() }
    }
}

/// Begins to read the log `id` from `from` on. Writes nothing. See [`Recovered`].
///
/// # Errors
/// [`LogError::BadRegion`]; [`LogError::BadPosition`] if `from` cannot be a position in it;
/// [`LogError::Device`] if the device cannot make durable what was written before.
pub fn recover<D: Device>(
    device: D,
    region: Region,
    id: LogId,
    from: Position,
) -> Result<Recovered<D>, LogError> {
    begin(device, region, id, from, false)
}

/// As [`recover`], of a log whose owner was closed: `from` is its end, unless the owner has carried something
/// over. So nothing is read ahead, and the rest of the ring is not searched for later batches. That the last
/// batches were lost is not recognised then.
///
/// # Errors
/// As [`recover`].
pub fn recover_closed<D: Device>(
    device: D,
    region: Region,
    id: LogId,
    from: Position,
) -> Result<Recovered<D>, LogError> {
    begin(device, region, id, from, true)
}

fn begin<D: Device>(
    device: D,
    region: Region,
    id: LogId,
    from: Position,
    is_closed: bool,
) -> Result<Recovered<D>, LogError> {
    let ring = Ring::new(device, region)?;
    check_position(&ring, &from)?;
    ring.device().flush()?;
    let stream = match is_closed {
        true => Stream::block_by_block(ring, from.block),
        false => Stream::new(ring, from.block),
    };
    Ok(Recovered { id, stream, at: 0, end: End::at(from), current: None, is_closed, state: State::Walking })
}

/// Checks that a position can be one in this ring.
pub(crate) fn check_position<D: Device>(ring: &Ring<D>, position: &Position) -> Result<(), LogError> {
    // The end of all numbers leaves room for adding what a ring can hold.
    let sane = |number| (1..1 << 63).contains(&number);
    if position.block >= ring.blocks() || !sane(position.number.0) || !sane(position.sequence) {
        return Err(LogError::BadPosition {
            number: position.number,
            block: position.block,
            blocks: ring.blocks(),
        });
    }
    Ok(())
}

/// A log being read in sequence: [`Recovered::next_record`] until it gives none, then [`Recovered::end`].
/// Memory: what the largest batch takes, 1 MiB, and 16 bytes for each batch.
#[derive(Debug)]
pub struct Recovered<D = Arc<dyn Device>> {
    id: LogId,
    stream: Stream<D>,
    /// How many blocks from the origin on were walked.
    at: u64,
    /// The end of the walk so far.
    end: End,
    /// The batch whose records are being given.
    current: Option<Current>,
    /// What follows the end is not looked at.
    is_closed: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    Walking,
    Ended,
    /// Whoever asks again gets the same error.
    Failed(LogError),
}

/// A good batch, of which records are still to be given.
#[derive(Debug, Clone, Copy)]
struct Current {
    /// Its place in the stream, and its blocks.
    at: u64,
    blocks: u64,
    /// Bytes from its start: of the next record, and the end of the last.
    offset: usize,
    length: usize,
    /// The numbers of the next record, and of the one after the last.
    number: u64,
    end_number: u64,
}

impl<D: Device> Recovered<D> {
    /// The next record; `None` at the end of the log.
    ///
    /// # Errors
    /// [`LogError::Damaged`] and [`LogError::UnknownVersion`]: the log goes on, but what follows cannot be
    /// given.
    /// [`LogError::Device`]: it cannot be read. Whoever asks again gets the same error.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, LogError> {
        match self.advance() {
            Ok(Some((current, span))) => Ok(Some(span.record(self.stream.get(current.at, current.blocks)))),
            Ok(None) => Ok(None),
            Err(error) => {
                self.state = State::Failed(error.clone());
                Err(error)
            }
        }
    }

    /// Goes through what is left, and gives the end.
    ///
    /// # Errors
    /// As [`Recovered::next_record`].
    pub fn end(mut self) -> Result<End, LogError> {
        while self.next_record()?.is_some() {}
        Ok(self.end)
    }

    /// Goes through what is left. Returns where it ends, and how many blocks were walked.
    pub(crate) fn walk_to_end(mut self) -> Result<(Position, u64), LogError> {
        while self.next_record()?.is_some() {}
        Ok((self.end.position, self.at))
    }

    /// Finds the next record to give.
    fn advance(&mut self) -> Result<Option<(Current, RecordSpan)>, LogError> {
        match &self.state {
            State::Walking => {}
            State::Ended => return Ok(None),
            State::Failed(error) => return Err(error.clone()),
        }
        loop {
            while let Some(mut current) = self.current {
                if current.number == current.end_number {
                    self.current = None;
                    break;
                }
                let batch = self.stream.get(current.at, current.blocks);
                let Some(span) = RecordSpan::find(batch, current.offset, current.length, current.number)
                else {
                    let block = self.stream.block(current.at);
                    let number = Lsn(current.number);
                    return Err(damaged(self.stream.ring(), block, number, "a record contradicts its batch"));
                };
                (current.offset, current.number) = (span.next, span.number + 1);
                self.current = Some(current);
                if span.number >= self.end.oldest.number.0 {
                    return Ok(Some((current, span)));
                }
            }
            if !self.next_batch()? {
                self.state = State::Ended;
                return Ok(None);
            }
        }
    }

    /// Walks over one more batch, if it is good, and makes it the current one. `false` at the end.
    fn next_batch(&mut self) -> Result<bool, LogError> {
        let left = self.stream.ring().blocks() - self.at;
        if left == 0 {
            // The log fills the ring.
            return Ok(false);
        }
        let expected = self.end.position;
        let Some(header) = self.header_at(self.at)? else {
            return self.nothing_follows("it is not there");
        };
        if header.sequence.get() > expected.sequence {
            return Err(self.damaged("a later batch stands there"));
        }
        if header.sequence.get() < expected.sequence {
            return self.nothing_follows("an older batch stands there");
        }
        self.check_fits(&header, left)?;
        let blocks = header.blocks();
        self.stream.load(self.at, blocks)?;
        if !header.body_is_whole(self.stream.get(self.at, blocks)) {
            return self.nothing_follows("its checksum is wrong");
        }
        self.accept(&header);
        Ok(true)
    }

    /// The header of this log at a place of the stream.
    fn header_at(&mut self, at: u64) -> Result<Option<BatchHeader>, LogError> {
        self.stream.load(at, 1)?;
        let block = self.stream.block(at);
        match BatchHeader::find(self.stream.get(at, 1), self.id, block) {
            Found::Nothing => Ok(None),
            Found::Batch(header) => Ok(Some(header)),
            Found::UnknownVersion(found) => {
                let ring = self.stream.ring();
                let (device, block) = (ring.device().describe(), ring.device_block(block));
                Err(LogError::UnknownVersion { device, block, found })
            }
        }
    }

    /// Checks that a header of the expected sequence number continues what was walked. The header is whole,
    /// so no crash left one that does not fit.
    fn check_fits(&self, header: &BatchHeader, left: u64) -> Result<(), LogError> {
        let expected = &self.end.position;
        let number = header.number.get();
        // The position that reading starts from may lie within its batch.
        let number_fits = match self.at {
            0 if !header.is_start() => (number..=header.end_number()).contains(&expected.number.0),
            _ => number == expected.number.0,
        };
        let session_fits = self.end.session.is_none_or(|last| match header.is_start() {
            true => header.session.get() > last,
            false => header.session.get() == last,
        });
        if header.previous.get() != expected.chain {
            Err(self.damaged("it does not continue the batch before it"))
        } else if !number_fits {
            Err(self.damaged("its records have other numbers"))
        } else if !session_fits {
            Err(self.damaged("it belongs to another session"))
        } else if header.span() > left {
            Err(self.damaged("it is longer than what is left of the log"))
        } else {
            Ok(())
        }
    }

    fn accept(&mut self, header: &BatchHeader) {
        let (number, blocks) = (header.number.get(), header.blocks());
        let block = self.end.position.block;
        if !header.is_start() {
            self.end.index.push_back(Entry::new(number, block, blocks, header.gap()));
            self.current = Some(Current {
                at: self.at,
                blocks,
                offset: BATCH_HEADER_BYTES,
                length: header.length.get() as usize,
                number,
                end_number: header.end_number(),
            });
        }
        self.end.session = Some(header.session.get());
        self.end.position = Position {
            number: Lsn(header.end_number()),
            sequence: header.sequence.get() + 1,
            block: self.stream.ring().after(block, header.span()),
            chain: header.chain(),
        };
        self.at += header.span();
    }

    /// The batch at `self.at` is not good: says whether it is the end of the log (`Ok(false)`) or damage.
    fn nothing_follows(&mut self, what: &'static str) -> Result<bool, LogError> {
        if self.is_closed {
            return Ok(false);
        }
        let sequence = self.end.position.sequence;
        let next_at_latest = self.at + (BATCH_BYTES_MAX / yore_device::BLOCK_SIZE) as u64 + GAP_BLOCKS_MAX;
        let mut older_at = None;
        for at in self.at + 1..self.stream.ring().blocks() {
            match self.header_at(at)? {
                Some(header) if header.sequence.get() > sequence => return Err(self.damaged(what)),
                Some(_) if at > next_at_latest && at - *older_at.get_or_insert(at) >= GAP_BLOCKS_MAX => break,
                _ => {}
            }
        }
        Ok(false)
    }

    /// Damage of the batch that should stand at `self.at`.
    fn damaged(&self, what: &'static str) -> LogError {
        damaged(self.stream.ring(), self.end.position.block, self.end.position.number, what)
    }
}

/// Damage of the batch at a block of the ring.
pub(crate) fn damaged<D: Device>(ring: &Ring<D>, block: u64, number: Lsn, what: &'static str) -> LogError {
    LogError::Damaged { device: ring.device().describe(), block: ring.device_block(block), number, what }
}
