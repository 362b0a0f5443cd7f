//! Snapshots with all that can be said of them: taken, named and described later, held for a reason.
//!
//! # Take a snapshot: `_IOWR('Y', 32, 1064 bytes)`
//!
//! | bytes | of the request |
//! |---|---|
//! | 0..4 | flags, as of number 1; 16 it has the time that is given |
//! | 4..6, 6..8, 8..10 | lengths of the name (0 to 255), the description (0 to 512) and the reason for holding it (0 to 255) |
//! | 16..24, 24..28 | the time, seconds since 1970 (signed) and nanoseconds: later than that of the last snapshot or version, and not in the future; of the root directory alone |
//! | 32.. | the three texts, UTF-8, one behind the other; then zeros |
//!
//! The answer, who may, and the errors are those of number 1. ERANGE: a time that is not behind the last one, or in the future.
//!
//! # Describe a snapshot: `_IOWR('Y', 33, 1064 bytes)`
//!
//! | bytes | of the request |
//! |---|---|
//! | 0..4 | flags: 1 it gets the name, 2 it gets the description, 4 it is held for the reason, 8 it is released |
//! | 4..6, 6..8, 8..10 | lengths, as above |
//! | 16..24 | its number |
//! | 32.. | the three texts; then zeros |
//!
//! For whom, and with which errors, as of holding (number 4). EEXIST: a kept snapshot of the directory has the name. EINVAL: the name is
//! none. What is not given stays. Durable when it returns; the answer means nothing.

use super::{call, check_writable, malformed, put, put_time, time_at, u32_at, u64_at};
use rustix::io::Errno;
use rustix::ioctl::{opcode, Opcode};
use std::fs::File;
use std::io;
use yore_fs::{NewSnapshot, Number, Timestamp};

/// Bytes of both requests.
const BYTES: usize = 1064;
const TEXTS_AT: usize = 32;
pub(super) const TAKE: Opcode = opcode::read_write::<[u8; BYTES]>(b'Y', 32);
pub(super) const DESCRIBE: Opcode = opcode::read_write::<[u8; BYTES]>(b'Y', 33);

const HELD: u32 = 1;
const WAIT: u32 = 2;
const UNDO: u32 = 4;
const TIMED: u32 = 16;
const NAMED: u32 = 1;
const DESCRIBED: u32 = 2;
const HOLD: u32 = 4;
const RELEASE: u32 = 8;

/// What a snapshot gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saying<'a> {
    /// Another name; an empty one: none.
    pub name: Option<&'a str>,
    /// Another description; an empty one: none.
    pub description: Option<&'a str>,
    /// It is held for this reason, or (`Some(None)`) released.
    pub hold: Option<Option<&'a str>>,
}

/// Takes a snapshot of an open directory of a mount, as [`super::snapshot`] does, with all that can be said of one.
///
/// # Errors
/// As [`super::snapshot`]; ERANGE for a time that is not behind that of the last snapshot or version, or in the future; ENOTTY also from a
/// daemon that knows no such request.
pub fn take(dir: &File, new: &NewSnapshot<'_>) -> io::Result<(Number, Timestamp)> {
    check_writable(dir)?;
    let flag = |is: bool, flag: u32| if is { flag } else { 0 };
    let flags =
        flag(new.held, HELD) | flag(new.wait, WAIT) | flag(new.undo, UNDO) | flag(new.time.is_some(), TIMED);
    let mut buffer = encode(flags, [new.name, new.description, new.hold_reason]).ok_or(Errno::INVAL)?;
    put_time(&mut *buffer, 16, new.time.unwrap_or(Timestamp { seconds: 0, nanos: 0 }));
    rustix::fs::syncfs(dir)?;
    call::<TAKE, BYTES>(dir, &mut buffer)?;
    let (number, time) = (u64_at(&*buffer, 0), time_at(&*buffer, 8));
    number.zip(time).map(|(number, time)| (Number(number), time)).ok_or_else(malformed)
}

/// Changes what is said of a snapshot, through any open directory of the mount.
///
/// # Errors
/// As [`super::hold`]; EEXIST for a name that another snapshot of the directory has; ENOTTY also from a daemon that knows no such request.
pub fn describe(dir: &File, number: Number, saying: &Saying<'_>) -> io::Result<()> {
    check_writable(dir)?;
    let flag = |is: bool, flag: u32| if is { flag } else { 0 };
    let flags = flag(saying.name.is_some(), NAMED)
        | flag(saying.description.is_some(), DESCRIBED)
        | match saying.hold {
            None => 0,
            Some(None) => RELEASE,
            Some(Some(_)) => HOLD,
        };
    let reason = saying.hold.flatten().unwrap_or_default();
    let texts = [saying.name.unwrap_or_default(), saying.description.unwrap_or_default(), reason];
    let mut buffer = encode(flags, texts).ok_or(Errno::INVAL)?;
    put(&mut *buffer, 16, &number.0.to_le_bytes());
    call::<DESCRIBE, BYTES>(dir, &mut buffer)
}

/// `None` for texts that are too long.
fn encode(flags: u32, texts: [&str; 3]) -> Option<Box<[u8; BYTES]>> {
    let mut buffer = Box::new([0; BYTES]);
    put(&mut *buffer, 0, &flags.to_le_bytes());
    let mut at = TEXTS_AT;
    for (i, text) in texts.into_iter().enumerate() {
        if text.len() > BYTES - at {
            return None;
        }
        put(&mut *buffer, 4 + 2 * i, &u16::try_from(text.len()).ok()?.to_le_bytes());
        put(&mut *buffer, at, text.as_bytes());
        at += text.len();
    }
    Some(buffer)
}

/// Flags and texts of a request of the right length that has zeros where it should.
fn decode(bytes: &[u8]) -> Option<(u32, [&str; 3])> {
    let (mut at, mut texts) = (TEXTS_AT, [""; 3]);
    for (i, text) in texts.iter_mut().enumerate() {
        let len = bytes.get(4 + 2 * i..6 + 2 * i)?;
        let len = usize::from(u16::from_le_bytes(len.try_into().ok()?));
        *text = std::str::from_utf8(bytes.get(at..at + len)?).ok()?;
        at += len;
    }
    let unused = bytes.get(10..16)?.iter().chain(bytes.get(28..32)?).chain(bytes.get(at..)?);
    let clear = bytes.len() == BYTES && unused.into_iter().all(|b| *b == 0);
    clear.then_some((u32_at(bytes, 0)?, texts))
}

/// What a request for a snapshot asks for.
pub(super) fn decode_take(bytes: &[u8]) -> Option<NewSnapshot<'_>> {
    let (flags, [name, description, hold_reason]) = decode(bytes)?;
    let is = |flag: u32| flags & flag != 0;
    let time = time_at(bytes, 16)?;
    let known = flags & !(HELD | WAIT | UNDO | TIMED) == 0;
    (known && (is(TIMED) || time == Timestamp { seconds: 0, nanos: 0 })).then_some(NewSnapshot {
        name,
        description,
        held: is(HELD),
        hold_reason,
        user: None,
        time: is(TIMED).then_some(time),
        undo: is(UNDO),
        wait: is(WAIT),
    })
}

/// Which snapshot is to be described how.
pub(super) fn decode_describe(bytes: &[u8]) -> Option<(Number, Saying<'_>)> {
    let (flags, [name, description, reason]) = decode(bytes)?;
    let is = |flag: u32| flags & flag != 0;
    let known = flags != 0
        && flags & !(NAMED | DESCRIBED | HOLD | RELEASE) == 0
        && !(is(HOLD) && is(RELEASE))
        && u32_at(bytes, 24)? == 0;
    let unused = (!is(NAMED) && !name.is_empty())
        || (!is(DESCRIBED) && !description.is_empty())
        || (!is(HOLD) && !reason.is_empty());
    let hold = match (is(HOLD), is(RELEASE)) {
        (true, _) => Some(Some(reason)),
        (_, true) => Some(None),
        _ => None,
    };
    (known && !unused).then_some((
        Number(u64_at(bytes, 16)?),
        Saying { name: is(NAMED).then_some(name), description: is(DESCRIBED).then_some(description), hold },
    ))
}

/// As long as the answers of both.
pub(super) fn answer_of(number: Number, time: Timestamp) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    put(&mut bytes, 0, &number.0.to_le_bytes());
    put_time(&mut bytes, 8, time);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that requests are read as they were written, and that what is none is refused.
    #[test]
    fn requests_go_there_and_back() {
        let long = "ü".repeat(256);
        let texts = ["step-1", &long, "for the audit"];
        let bytes = encode(HELD | WAIT, texts).unwrap();
        let new = decode_take(&*bytes).unwrap();
        assert_eq!((new.name, new.description, new.hold_reason), (texts[0], texts[1], texts[2]));
        assert!(new.held && new.wait && !new.undo && new.time.is_none());
        assert!(encode(0, ["", &"x".repeat(BYTES), ""]).is_none());
        for (at, byte) in [(3, 1), (10, 1), (17, 1), (30, 1), (BYTES - 1, 1), (32, 0xff)] {
            let mut bad = bytes.clone();
            bad[at] = byte;
            assert!(decode_take(&*bad).is_none(), "{at}");
        }
        let mut bytes = encode(NAMED | HOLD, ["new", "", "why"]).unwrap();
        put(&mut *bytes, 16, &7u64.to_le_bytes());
        let saying = Saying { name: Some("new"), description: None, hold: Some(Some("why")) };
        assert_eq!(decode_describe(&*bytes), Some((Number(7), saying)));
        for flags in [0, HOLD | RELEASE, NAMED, 32] {
            put(&mut *bytes, 0, &flags.to_le_bytes());
            assert_eq!(decode_describe(&*bytes), None, "{flags}");
        }
    }
}
