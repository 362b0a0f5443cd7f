//! Where to read a log from whose owner has lost the position.
//!
//! Batches say what they are: log, block, sequence, session, and the chain value of the batch before them. So
//! the newest whole batch can be found, and with it those that lead to it, back to the first one that was not
//! overwritten since. What was torn at the end is no part of that, as in recovery. Which of the records still
//! count only the owner can tell; he is asked for each.

use crate::layout::{BatchHeader, Found, Position, RecordSpan, BATCH_HEADER_BYTES};
use crate::recover::check_position;
use crate::ring::Ring;
use crate::{LogError, LogId, Lsn, Record, Region};
use std::collections::BTreeMap;
use yore_device::{AlignedBuf, Device, BLOCK_SIZE};

/// Blocks whose headers are looked for at once.
const WINDOW_BLOCKS: u64 = 256;

/// What a search has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Searched {
    /// Where reading begins.
    pub position: Position,
    /// The greatest session of any batch that is there, whole or not.
    pub session: Option<u64>,
}

/// Looks for the place where reading the log `id` must begin, so that all records are given that `counts`
/// says count. If some are of the last session, reading begins in that: what counts of sessions before was
/// taken over when it began. If none does, the end of the log is returned. Reads all of the ring, and writes
/// nothing.
///
/// # Errors
/// [`LogError::BadRegion`]; [`LogError::Device`]; [`LogError::UnknownVersion`].
pub fn find_position<D: Device>(
    device: D,
    region: Region,
    id: LogId,
    mut counts: impl FnMut(&Record<'_>) -> bool,
) -> Result<Searched, LogError> {
    let ring = Ring::new(device, region)?;
    let headers = headers(&ring, id)?;
    let run = newest_run(&ring, &headers)?;
    let Some(last) = run.last() else {
        return Ok(Searched {
            position: Position::start(id),
            session: headers.values().map(|h| h.session.get()).max(),
        });
    };
    let mut found: Option<(u64, Position)> = None;
    for header in &run {
        let session = header.session.get();
        if found.is_some_and(|(of, _)| of == session) {
            continue;
        }
        let batch = body(&ring, header)?;
        let (mut at, mut number) = (BATCH_HEADER_BYTES, header.number.get());
        while number < header.end_number() {
            let Some(span) = RecordSpan::find(&batch, at, header.length.get() as usize, number) else {
                break;
            };
            if counts(&span.record(&batch)) {
                found = Some((session, at_record(header, number)));
                break;
            }
            (at, number) = (span.next, number + 1);
        }
    }
    let end = Position {
        number: Lsn(last.end_number()),
        sequence: last.sequence.get() + 1,
        block: ring.after(last.block.get(), last.span()),
        chain: last.chain(),
    };
    let position = found.map_or(end, |(_, position)| position);
    check_position(&ring, &position)?;
    Ok(Searched { position, session: headers.values().map(|header| header.session.get()).max() })
}

/// The position of a record of a batch.
fn at_record(header: &BatchHeader, number: u64) -> Position {
    Position {
        number: Lsn(number),
        sequence: header.sequence.get(),
        block: header.block.get(),
        chain: header.previous.get(),
    }
}

/// All headers of this log, by their sequence numbers.
fn headers<D: Device>(ring: &Ring<D>, id: LogId) -> Result<BTreeMap<u64, BatchHeader>, LogError> {
    let mut found = BTreeMap::new();
    let mut window = AlignedBuf::zeroed(WINDOW_BLOCKS.min(ring.blocks()) as usize);
    let mut first = 0;
    while first < ring.blocks() {
        let count = WINDOW_BLOCKS.min(ring.blocks() - first);
        let bytes = &mut window[..count as usize * BLOCK_SIZE];
        ring.read(first, bytes)?;
        for (block, bytes) in (first..).zip(bytes.chunks_exact(BLOCK_SIZE)) {
            match BatchHeader::find(bytes, id, block) {
                Found::Nothing => {}
                Found::Batch(header) => drop(found.insert(header.sequence.get(), header)),
                Found::UnknownVersion(found) => {
                    let (device, block) = (ring.device().describe(), ring.device_block(block));
                    return Err(LogError::UnknownVersion { device, block, found });
                }
            }
        }
        first += count;
    }
    Ok(found)
}

/// The bytes of a batch.
fn body<D: Device>(ring: &Ring<D>, header: &BatchHeader) -> Result<AlignedBuf, LogError> {
    let mut batch = AlignedBuf::zeroed(header.blocks().min(ring.blocks()) as usize);
    ring.read(header.block.get(), &mut batch)?;
    Ok(batch)
}

/// The newest whole batch, with the batches before it that lead to it, in their order.
fn newest_run<D: Device>(
    ring: &Ring<D>,
    headers: &BTreeMap<u64, BatchHeader>,
) -> Result<Vec<BatchHeader>, LogError> {
    let mut run: Vec<BatchHeader> = Vec::new();
    let mut blocks = 0;
    for header in headers.values().rev() {
        let fits = match run.last() {
            None => header.blocks() <= ring.blocks(),
            Some(next) => {
                let is_before = header.sequence.get() + 1 == next.sequence.get()
                    && header.chain() == next.previous.get()
                    && ring.after(header.block.get(), header.span()) == next.block.get();
                is_before && blocks + header.span() <= ring.blocks()
            }
        };
        let is_whole = fits && header.body_is_whole(&body(ring, header)?);
        match (is_whole, run.is_empty()) {
            (true, _) => {
                blocks += header.span();
                run.push(*header);
            }
            // Torn by the crash.
            (false, true) => {}
            (false, false) => break,
        }
    }
    run.reverse();
    Ok(run)
}
