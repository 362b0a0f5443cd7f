//! Reading records while the log is open: by number, and in sequence.
//!
//! A batch is found by its first record's number in the index in memory, in O(log n), and read from memory
//! while it is not durable, else from the device, where its checksums are verified each time. The device is
//! read without the lock held. A batch that is released meanwhile may also be overwritten. So a batch that
//! does not verify is damaged only if it is still kept afterwards.

use std::sync::Arc;

use yore_device::{AlignedBuf, BLOCK_SIZE};

use crate::layout::{BatchHeader, Found, RecordSpan, BATCH_HEADER_BYTES};
use crate::log::{Log, State};
use crate::recover::{damaged, Entry};
use crate::{LogError, Lsn, OwnedRecord, Position};

/// A batch in memory, whole and verified.
#[derive(Debug)]
struct Batch {
    buffer: Arc<AlignedBuf>,
    /// End of the last record, in bytes.
    length: usize,
    /// Number of the first record, and the one after the last.
    number: u64,
    end_number: u64,
    /// Its block in the ring, for messages.
    block: u64,
}

/// Where a batch can be found.
enum BatchSource {
    Memory(Batch),
    Medium(Entry),
}

impl Log {
    /// Reads a record that is kept, durable or not.
    ///
    /// # Errors
    /// [`LogError::Forgotten`], [`LogError::NotAppended`]; [`LogError::Damaged`] if the medium holds
    /// something else; [`LogError::Device`] if it cannot be read. An earlier error of writing does not
    /// matter.
    pub fn read(&self, number: Lsn) -> Result<OwnedRecord, LogError> {
        let batch = self.batch_of(number)?;
        let mut at = BATCH_HEADER_BYTES;
        for n in batch.number..batch.end_number {
            let span = self.find(&batch, at, n)?;
            if n == number.0 {
                return Ok(span.record(&batch.buffer).to_owned());
            }
            at = span.next;
        }
        Err(damaged(&self.ring, batch.block, number, "its batch has other records"))
    }

    /// The kept records from `from` on up to the last one that is appended now, or fails at the first that
    /// cannot be read. Records before the oldest one kept are passed over.
    pub fn records(&self, from: Lsn) -> Records<'_> {
        let state = self.state();
        Records { log: self, next: from.max(state.oldest.number), end: state.next_number(), batch: None }
    }

    /// The position from which recovery gives `number` first: of a record that is kept, or of the next one.
    ///
    /// # Errors
    /// As [`Log::read`].
    pub fn position_of(&self, number: Lsn) -> Result<Position, LogError> {
        let entry = {
            let state = self.state();
            check_kept(&state, number)?;
            let next = state.next_number();
            if number > next {
                return Err(LogError::NotAppended { number, next });
            }
            if number >= state.at.number {
                return Ok(Position { number, ..state.at });
            }
            if let Some(batch) = state.sealed.iter().find(|b| (b.at.number..b.end_number).contains(&number)) {
                return Ok(Position { number, ..batch.at });
            }
            if number == state.oldest.number {
                return Ok(state.oldest);
            }
            entry_of(&state, number)?
        };
        let mut block = AlignedBuf::zeroed(1);
        self.ring.read(entry.block.into(), &mut block)?;
        match BatchHeader::find(&block, self.id, entry.block.into()) {
            Found::Batch(header) if header.number.get() == entry.number => Ok(Position {
                number,
                sequence: header.sequence.get(),
                block: entry.block.into(),
                chain: header.previous.get(),
            }),
            _ => Err(self.unverified(number, entry.block.into())),
        }
    }

    fn find(&self, batch: &Batch, at: usize, number: u64) -> Result<RecordSpan, LogError> {
        RecordSpan::find(&batch.buffer, at, batch.length, number)
            .ok_or_else(|| damaged(&self.ring, batch.block, Lsn(number), "a record contradicts its batch"))
    }

    /// The batch that holds a record.
    fn batch_of(&self, number: Lsn) -> Result<Batch, LogError> {
        let entry = match self.source_of(number)? {
            BatchSource::Memory(batch) => return Ok(batch),
            BatchSource::Medium(entry) => entry,
        };
        let mut buffer = AlignedBuf::zeroed(entry.blocks() as usize);
        self.ring.read(entry.block.into(), &mut buffer)?;
        match BatchHeader::find(&buffer, self.id, entry.block.into()) {
            Found::Batch(header)
                if header.number.get() == entry.number
                    && header.blocks() == entry.blocks()
                    && header.body_is_whole(&buffer) =>
            {
                Ok(Batch {
                    buffer: Arc::new(buffer),
                    length: header.length.get() as usize,
                    number: entry.number,
                    end_number: header.end_number(),
                    block: entry.block.into(),
                })
            }
            _ => Err(self.unverified(number, entry.block.into())),
        }
    }

    fn source_of(&self, number: Lsn) -> Result<BatchSource, LogError> {
        let state = self.state();
        check_kept(&state, number)?;
        let next = state.next_number();
        if number >= next {
            return Err(LogError::NotAppended { number, next });
        }
        if number >= state.at.number {
            // The buffer is still being filled.
            let gathered = &state.gathered;
            let copy = AlignedBuf::from_slice(&gathered.buffer[..gathered.length]);
            return Ok(BatchSource::Memory(Batch {
                buffer: Arc::new(copy),
                length: gathered.length,
                number: state.at.number.0,
                end_number: next.0,
                block: state.at.block,
            }));
        }
        if let Some(batch) = state.sealed.iter().find(|b| (b.at.number..b.end_number).contains(&number)) {
            return Ok(BatchSource::Memory(Batch {
                buffer: batch.buffer.clone(),
                length: batch.blocks as usize * BLOCK_SIZE,
                number: batch.at.number.0,
                end_number: batch.end_number.0,
                block: batch.at.block,
            }));
        }
        entry_of(&state, number).map(BatchSource::Medium)
    }

    /// Why a batch is not what the index says: it was released meanwhile, or is damaged.
    fn unverified(&self, number: Lsn, block: u64) -> LogError {
        match check_kept(&self.state(), number) {
            Err(forgotten) => forgotten,
            Ok(()) => damaged(&self.ring, block, number, "it is no longer what was written"),
        }
    }
}

fn check_kept(state: &State, number: Lsn) -> Result<(), LogError> {
    match state.oldest.number {
        oldest if number < oldest => Err(LogError::Forgotten { number, oldest }),
        _ => Ok(()),
    }
}

/// The batch that begins with the greatest number up to this one. The index may lack it: an owner may open a
/// log at a position, with nothing before it kept, that lies within a batch of an earlier session.
fn entry_of(state: &State, number: Lsn) -> Result<Entry, LogError> {
    let after = state.index.partition_point(|entry| entry.number <= number.0);
    let entry = after.checked_sub(1).and_then(|i| state.index.get(i)).copied();
    entry.ok_or(LogError::Forgotten { number, oldest: state.at.number })
}

/// The records of a log in sequence. See [`Log::records`].
#[derive(Debug)]
pub struct Records<'l> {
    log: &'l Log,
    next: Lsn,
    end: Lsn,
    /// The batch that holds `next`, and the offset of its record there.
    batch: Option<(Batch, usize)>,
}

impl Records<'_> {
    fn read_next(&mut self) -> Result<OwnedRecord, LogError> {
        let (batch, mut at) = match self.batch.take() {
            Some((batch, at)) if self.next.0 < batch.end_number => (batch, at),
            _ => {
                let batch = self.log.batch_of(self.next)?;
                let mut at = BATCH_HEADER_BYTES;
                for n in batch.number..self.next.0 {
                    at = self.log.find(&batch, at, n)?.next;
                }
                (batch, at)
            }
        };
        let span = self.log.find(&batch, at, self.next.0)?;
        let record = span.record(&batch.buffer).to_owned();
        at = span.next;
        self.batch = Some((batch, at));
        Ok(record)
    }
}

impl Iterator for Records<'_> {
    type Item = Result<OwnedRecord, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.end {
            return None;
        }
        let record = self.read_next();
        // After an error there is nothing more.
        self.next = if record.is_ok() { self.next.next() } else { self.end };
        Some(record)
    }
}
