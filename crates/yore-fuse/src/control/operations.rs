//! Who did what to the past.
//!
//! # `_IOWR('Y', 34, 16376 bytes)`
//!
//! | bytes | of the request |
//! |---|---|
//! | 0..8 | only those before this place in the list; 0: from the latest |
//!
//! | bytes | of the answer |
//! |---|---|
//! | 0..8 | the place to go on from, or 0 at the end |
//! | 8..12 | records that follow, the latest first |
//! | 16.. | the records: 0..8 place, 8..12 length of the row, 16.. the row as on the medium (FORMAT.md); each as long as a multiple of 8 |
//!
//! Root and the daemon's user see all; others what they did, and what concerns directories and files that are theirs. It does not matter
//! which directory is asked.

use super::{call, malformed, put, u32_at, u64_at, Failure};
use rustix::ioctl::{opcode, Opcode};
use std::fs::File;
use std::io;
use yore_fs::{OperationRow, View};

const BYTES: usize = 16_376;
const RECORDS_AT: usize = 16;
const ROW_AT: usize = 16;
pub(super) const LIST: Opcode = opcode::read_write::<[u8; BYTES]>(b'Y', 34);

/// What was recorded of who did what, the latest first, as far as the caller may see it: at most so many, each with its place.
///
/// # Errors
/// ENOTTY if it is no directory of a mount that Yore serves, or its daemon knows no such list; `InvalidData` for an answer that is none.
pub fn operations(dir: &File, most: usize) -> io::Result<Vec<(u64, OperationRow)>> {
    let (mut all, mut from) = (Vec::new(), 0u64);
    loop {
        let mut buffer = Box::new([0; BYTES]);
        put(&mut *buffer, 0, &from.to_le_bytes());
        call::<LIST, BYTES>(dir, &mut buffer)?;
        let (page, next) = decode(&*buffer).ok_or_else(malformed)?;
        all.extend(page);
        match next {
            next if next != 0 && (from == 0 || next < from) && all.len() < most => from = next,
            _ => break,
        }
    }
    all.truncate(most);
    Ok(all)
}

fn decode(bytes: &[u8]) -> Option<(Vec<(u64, OperationRow)>, u64)> {
    let (next, mut at, mut rows) = (u64_at(bytes, 0)?, RECORDS_AT, Vec::new());
    for _ in 0..u32_at(bytes, 8)? {
        let len = usize::try_from(u32_at(bytes, at + 8)?).ok()?;
        let row = bytes.get(at + ROW_AT..at.checked_add(ROW_AT + len)?)?;
        rows.push((u64_at(bytes, at)?, OperationRow::decode(row).ok()?));
        at = (at + ROW_AT + len).next_multiple_of(8);
    }
    Some((rows, next))
}

/// The place of a request that is one.
pub(super) fn decode_request(bytes: &[u8]) -> Option<u64> {
    let clear = bytes.len() == BYTES && bytes.iter().skip(8).all(|b| *b == 0);
    u64_at(bytes, 0).filter(|_| clear)
}

/// The daemon's half. `seen_by`: all is seen if it is nobody.
pub(super) fn list(view: &View, seen_by: Option<u32>, before: u64) -> Result<Vec<u8>, Failure> {
    let (mut bytes, mut count, mut last, mut next) = (vec![0; RECORDS_AT], 0u32, 0, 0);
    for (place, row) in view.done(seen_by)? {
        if before != 0 && place >= before {
            continue;
        }
        let row = row.encode();
        if bytes.len() + ROW_AT + row.len() > BYTES - 8 {
            next = last;
            break;
        }
        let at = bytes.len();
        bytes.resize(at + ROW_AT, 0);
        put(&mut bytes, at, &place.to_le_bytes());
        put(&mut bytes, at + 8, &(row.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&row);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        (count, last) = (count + 1, place);
    }
    put(&mut bytes, 0, &u64::to_le_bytes(next));
    put(&mut bytes, 8, &count.to_le_bytes());
    bytes.resize(BYTES, 0);
    Ok(bytes)
}
