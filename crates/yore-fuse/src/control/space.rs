//! What a full volume keeps, and what it gave up, by ioctl(2) on an open directory or file of a mount. The form of requests is that of
//! [`super`].
//!
//! # Keep what is read: `_IOWR('Y', 40, 8 bytes)`
//!
//! The request is zeros. The snapshot as of which what was asked is seen is not forgotten, and not given up, as long as the process that
//! asks lives; the answer is its number. For everybody who may open it. EINVAL in the present; EAGAIN: too many processes want a
//! snapshot to stay.
//!
//! # The rules: `_IOWR('Y', 41, 16 bytes)`
//!
//! | bytes | of the request, and of the answer |
//! |---|---|
//! | 0..4 | flags: 1 these are the rules from now on; without it the rest of the request is zeros |
//! | 4..8 | the share of the volume that history may take, in percent |
//! | 8..16 | the floor, in seconds |
//!
//! To ask for everybody, to change for root and the daemon's user; EPERM for others. EINVAL for a share above 100. Durable when it
//! returns.
//!
//! # What was given up: `_IOWR('Y', 42, 16376 bytes)`
//!
//! | bytes | of the request |
//! |---|---|
//! | 0..8 | the least place in the list |
//!
//! | bytes | of the answer |
//! |---|---|
//! | 0..8 | the place to go on from, or 0 at the end of the list |
//! | 8..12 | records that follow |
//! | 16.. | the records: 8 bytes of place, 4 bytes of length, then a row of that length as it is on the medium (`FORMAT.md`) |
//!
//! For root and the daemon's user; others get an empty list.
//!
//! # What would free space: `_IOWR('Y', 43, 160 bytes)`
//!
//! The request is zeros.
//!
//! | bytes | of the answer |
//! |---|---|
//! | 0..8 | data blocks that the full volume gives up by itself |
//! | 8..12 | records that follow |
//! | 16.. | the records, 24 bytes each: 4 bytes of a reason (0 too young, 1 held, 2 named, 3 mounted or needed, 4 being read, 5 somebody else's), 8 bytes from the 8th on how many stay for it, 8 bytes how many data blocks these would free |
//!
//! For root and the daemon's user; EPERM for others. It takes time for all versions on the volume.
//!
//! # Versions that there was no room for: `_IOWR('Y', 45, 16 bytes)`
//!
//! The request is zeros.
//!
//! | bytes | of the answer |
//! |---|---|
//! | 0..8 | versions that policies asked for and that were not made since the volume became full; 0: none |
//! | 8..16 | when the first of them was missed, in seconds of Unix time |
//!
//! For everybody.

use super::{call, check_writable, malformed, may_all, put, u32_at, u64_at, Failure};
use crate::keeper::Keeper;
use fuser::Errno;
use rustix::ioctl::{opcode, Opcode};
use std::fs::File;
use std::io;
use yore_fs::{MissedVersions, Number, OperationRow, PinnedBy, RowClass, SpaceRules, Stays, View, WouldFree};

const KEEP_BYTES: usize = 8;
const RULES_BYTES: usize = 16;
const LIST_BYTES: usize = 16_376;
const WOULD_FREE_BYTES: usize = 160;
const MISSED_BYTES: usize = 16;
const REASON_BYTES: usize = 24;
/// The reasons by their numbers.
const REASONS: [Option<Stays>; 6] = [
    None,
    Some(Stays::Held),
    Some(Stays::Named),
    Some(Stays::Pinned),
    Some(Stays::Read),
    Some(Stays::Others),
];
const KEEP: Opcode = opcode::read_write::<[u8; KEEP_BYTES]>(b'Y', 40);
const RULES: Opcode = opcode::read_write::<[u8; RULES_BYTES]>(b'Y', 41);
const WOULD_FREE: Opcode = opcode::read_write::<[u8; WOULD_FREE_BYTES]>(b'Y', 43);
const MISSED: Opcode = opcode::read_write::<[u8; MISSED_BYTES]>(b'Y', 45);
const GIVEN_UP: Opcode = opcode::read_write::<[u8; LIST_BYTES]>(b'Y', 42);

const SET: u32 = 1;
const ROWS_AT: usize = 16;
const ROW_HEAD: usize = 12;

/// Keeps the snapshot as of which an open file or directory of a mount is seen, as long as this process lives.
///
/// # Errors
/// ENOTTY from what is on no mount that Yore serves; EINVAL in the present; EAGAIN if too many processes want one to stay.
pub fn keep(of: &File) -> io::Result<Number> {
    let mut buffer = [0; KEEP_BYTES];
    call::<KEEP, KEEP_BYTES>(of, &mut buffer)?;
    u64_at(&buffer, 0).map(Number).ok_or_else(malformed)
}

/// How much history the volume keeps when it is full.
///
/// # Errors
/// ENOTTY from what is on no mount that Yore serves.
pub fn rules(of: &File) -> io::Result<SpaceRules> {
    let mut buffer = [0; RULES_BYTES];
    call::<RULES, RULES_BYTES>(of, &mut buffer)?;
    decode_rules(&buffer).map(|(_, rules)| rules).ok_or_else(malformed)
}

/// Changes that; durable when it returns.
///
/// # Errors
/// As [`rules`]; EPERM, EINVAL, EROFS.
pub fn set_rules(of: &File, rules: SpaceRules) -> io::Result<()> {
    check_writable(of)?;
    call::<RULES, RULES_BYTES>(of, &mut encode_rules(SET, rules))
}

/// What the volume gave up because it was full, the oldest first, each with its place in the list.
///
/// # Errors
/// As [`rules`]; `InvalidData` for an answer that is none.
pub fn given_up(of: &File) -> io::Result<Vec<(u64, OperationRow)>> {
    let (mut all, mut from) = (Vec::new(), 0u64);
    loop {
        let mut buffer = Box::new([0; LIST_BYTES]);
        put(&mut *buffer, 0, &from.to_le_bytes());
        call::<GIVEN_UP, LIST_BYTES>(of, &mut buffer)?;
        let (rows, next) = decode_rows(&*buffer).ok_or_else(malformed)?;
        all.extend(rows);
        match next {
            0 => return Ok(all),
            next if next > from => from = next,
            _ => return Err(malformed()),
        }
    }
}

/// What the volume gives up by itself when it is full, and what would free more.
///
/// # Errors
/// As [`rules`]; EPERM; `InvalidData` for an answer that is none.
pub fn what_would_free(of: &File) -> io::Result<WouldFree> {
    let mut buffer = [0; WOULD_FREE_BYTES];
    call::<WOULD_FREE, WOULD_FREE_BYTES>(of, &mut buffer)?;
    decode_would_free(&buffer).ok_or_else(malformed)
}

/// The versions that were not made since the volume became full: how many, and since when in seconds of Unix time. `None`: none.
///
/// # Errors
/// As [`rules`].
pub fn missed_versions(of: &File) -> io::Result<Option<(u64, i64)>> {
    let mut buffer = [0; MISSED_BYTES];
    call::<MISSED, MISSED_BYTES>(of, &mut buffer)?;
    let (count, since) = u64_at(&buffer, 0).zip(u64_at(&buffer, 8)).ok_or_else(malformed)?;
    Ok((count > 0).then_some((count, since as i64)))
}

fn encode_missed(missed: Option<MissedVersions>) -> Vec<u8> {
    let mut bytes = vec![0; MISSED_BYTES];
    if let Some(MissedVersions { since, count }) = missed {
        put(&mut bytes, 0, &count.to_le_bytes());
        put(&mut bytes, 8, &since.seconds.to_le_bytes());
    }
    bytes
}

fn decode_would_free(bytes: &[u8]) -> Option<WouldFree> {
    let one = |n: usize| {
        let at = ROWS_AT + n * REASON_BYTES;
        let reason = REASONS.get(u32_at(bytes, at)? as usize)?;
        Some((*reason, u64_at(bytes, at + 8)?, u64_at(bytes, at + 16)?))
    };
    let more = (0..u32_at(bytes, 8)? as usize).map(one).collect::<Option<_>>()?;
    Some(WouldFree { by_itself: u64_at(bytes, 0)?, more })
}

fn encode_would_free(found: &WouldFree) -> Vec<u8> {
    let mut bytes = vec![0; WOULD_FREE_BYTES];
    put(&mut bytes, 0, &found.by_itself.to_le_bytes());
    put(&mut bytes, 8, &(found.more.len() as u32).to_le_bytes());
    for (n, (reason, count, blocks)) in found.more.iter().enumerate() {
        let number = REASONS.iter().position(|one| one == reason).unwrap_or_default();
        let at = ROWS_AT + n * REASON_BYTES;
        put(&mut bytes, at, &(number as u32).to_le_bytes());
        put(&mut bytes, at + 8, &count.to_le_bytes());
        put(&mut bytes, at + 16, &blocks.to_le_bytes());
    }
    bytes
}

fn encode_rules(flags: u32, rules: SpaceRules) -> [u8; RULES_BYTES] {
    let mut bytes = [0; RULES_BYTES];
    put(&mut bytes, 0, &flags.to_le_bytes());
    put(&mut bytes, 4, &u32::from(rules.share_percent).to_le_bytes());
    put(&mut bytes, 8, &rules.floor_seconds.to_le_bytes());
    bytes
}

fn decode_rules(bytes: &[u8]) -> Option<(u32, SpaceRules)> {
    let share_percent = u8::try_from(u32_at(bytes, 4)?).ok()?;
    Some((u32_at(bytes, 0)?, SpaceRules { floor_seconds: u64_at(bytes, 8)?, share_percent }))
}

fn decode_rows(bytes: &[u8]) -> Option<(Vec<(u64, OperationRow)>, u64)> {
    let (next, count) = (u64_at(bytes, 0)?, u32_at(bytes, 8)?);
    let (mut at, mut rows) = (ROWS_AT, Vec::new());
    for _ in 0..count {
        let (place, length) = (u64_at(bytes, at)?, u32_at(bytes, at + 8)? as usize);
        let row = bytes.get(at + ROW_HEAD..)?.get(..length)?;
        rows.push((place, OperationRow::decode(row).ok()?));
        at += ROW_HEAD + length;
    }
    Some((rows, next))
}

/// Whether a request of this number is one of these.
pub(crate) fn is_ours(number: Opcode) -> bool {
    [KEEP, RULES, GIVEN_UP, WOULD_FREE, MISSED].contains(&number)
}

/// The daemon's half.
pub(crate) fn answer(
    view: &View,
    (uid, thread): (u32, u32),
    read_only: bool,
    keeper: &Keeper,
    (number, request): (Opcode, &[u8]),
) -> Result<Vec<u8>, Failure> {
    let refused = Failure::Number(Errno::EINVAL);
    match number {
        KEEP => {
            let cut = view.cut().filter(|_| request == [0; KEEP_BYTES]).ok_or(refused)?;
            let place = keeper.place(thread).map_err(Failure::Number)?;
            place.keep(view.pin(cut, PinnedBy::Work)?).map_err(Failure::Number)?;
            Ok(cut.0.to_le_bytes().to_vec())
        }
        RULES => {
            let view = view.present();
            match decode_rules(request).ok_or(refused)? {
                (0, SpaceRules { floor_seconds: 0, share_percent: 0 }) => {}
                (SET, _) if !may_all(uid) => return Err(Failure::Number(Errno::EPERM)),
                (SET, _) if read_only => return Err(yore_fs::Error::ReadOnly.into()),
                (SET, rules) => view.set_space_rules(rules)?,
                _ => return Err(Failure::Number(Errno::EINVAL)),
            }
            Ok(encode_rules(0, view.space_rules()).to_vec())
        }
        MISSED => Ok(encode_missed(view.missed_versions())),
        WOULD_FREE if !may_all(uid) => Err(Failure::Number(Errno::EPERM)),
        WOULD_FREE => Ok(encode_would_free(&view.present().what_would_free()?)),
        _ => {
            let from = u64_at(request, 0).ok_or(refused)?;
            let rows = match may_all(uid) {
                true => view.operations(RowClass::GivenUp)?,
                false => Vec::new(),
            };
            Ok(page(&rows, from))
        }
    }
}

/// As many rows as there is room for.
fn page(rows: &[(u64, OperationRow)], from: u64) -> Vec<u8> {
    let (mut bytes, mut at, mut count, mut next) = (vec![0; LIST_BYTES], ROWS_AT, 0u32, 0);
    for (place, row) in rows.iter().filter(|(place, _)| *place >= from) {
        let row = row.encode();
        if at + ROW_HEAD + row.len() > LIST_BYTES {
            next = *place;
            break;
        }
        put(&mut bytes, at, &place.to_le_bytes());
        put(&mut bytes, at + 8, &(row.len() as u32).to_le_bytes());
        put(&mut bytes, at + ROW_HEAD, &row);
        at += ROW_HEAD + row.len();
        count += 1;
    }
    put(&mut bytes, 0, &next.to_le_bytes());
    put(&mut bytes, 8, &count.to_le_bytes());
    bytes
}
