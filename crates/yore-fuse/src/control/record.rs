//! A snapshot in the answers of [`super::look`].
//!
//! | bytes | of a record |
//! |---|---|
//! | 0..8 | number |
//! | 8..16, 16..20 | time, seconds since 1970 (signed) and nanoseconds |
//! | 20 | kind: 1 snapshot, 2 close, 3 interval, 4 undo, 5 removed |
//! | 21 | flags: 1 held, 2 the directory asked can be seen as of it, 4 has a path, 8 has a next one, 16 of that very directory, 32 mounted by itself, 64 pinned (mounted, or something under way needs it) |
//! | 22..24 | length of the name |
//! | 24..32, 32..36 | inode and incarnation of what the event is of |
//! | 36..40 | length of the path |
//! | 40..48, 48..52 | time of the next one on the volume, whatever it is of |
//! | 56.. | the name, and behind it the path on the volume as it is now, from `/` |

use super::{put, put_time, time_at, u32_at, u64_at};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use yore_fs::{
    Event, EventKind, EventMore, EventNo, EventRow, EventState, Incarnation, InodeNo, ListedEvent, Timestamp,
};

const RECORD_BYTES: usize = 56;
const HELD: u8 = 1;
const COVERS: u8 = 2;
const PATH: u8 = 4;
const NEXT: u8 = 8;
const OWN: u8 = 16;
const MOUNTED: u8 = 32;
const PINNED: u8 = 64;

pub(super) fn encode_record(listed: &ListedEvent) -> Vec<u8> {
    let row = &listed.event.row;
    // Leaves out a path that would not fit into any answer. Such a path is four times as long as any that a
    // call takes.
    let most = 15_000;
    let path =
        listed.path.as_deref().map(|path| path.as_os_str().as_bytes()).filter(|path| path.len() <= most);
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    let mut bytes = vec![0; RECORD_BYTES];
    put(&mut bytes, 0, &listed.event.number.0.to_le_bytes());
    put_time(&mut bytes, 8, row.time);
    bytes[20] = row.kind as u8;
    bytes[21] = flag(row.held, HELD)
        | flag(listed.covers, COVERS)
        | flag(path.is_some(), PATH)
        | flag(listed.next.is_some(), NEXT)
        | flag(listed.own, OWN)
        | flag(listed.pinned, PINNED)
        | flag(listed.mounted, MOUNTED);
    put(&mut bytes, 22, &(row.name.len() as u16).to_le_bytes());
    put(&mut bytes, 24, &row.root.0.to_le_bytes());
    put(&mut bytes, 32, &row.root_incarnation.0.to_le_bytes());
    put(&mut bytes, 36, &(path.map_or(0, <[u8]>::len) as u32).to_le_bytes());
    put_time(&mut bytes, 40, listed.next.unwrap_or(Timestamp { seconds: 0, nanos: 0 }));
    bytes.extend_from_slice(row.name.as_bytes());
    bytes.extend_from_slice(path.unwrap_or_default());
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// A record, and its length.
pub(super) fn decode_record(bytes: &[u8]) -> Option<(ListedEvent, usize)> {
    let flags = *bytes.get(21)?;
    let name_len = usize::from(u16::from_le_bytes(bytes.get(22..24)?.try_into().ok()?));
    let path_at = RECORD_BYTES + name_len;
    let end = path_at.checked_add(usize::try_from(u32_at(bytes, 36)?).ok()?)?;
    let path = bytes.get(path_at..end)?;
    let row = EventRow {
        time: time_at(bytes, 8)?,
        kind: EventKind::from_u8(*bytes.get(20)?)?,
        state: EventState::Kept,
        held: flags & HELD != 0,
        root: InodeNo(u64_at(bytes, 24)?),
        root_incarnation: Incarnation(u32_at(bytes, 32)?),
        name: std::str::from_utf8(bytes.get(RECORD_BYTES..path_at)?).ok()?.to_owned(),
        more: EventMore::default(),
    };
    let listed = ListedEvent {
        event: Event { number: EventNo(u64_at(bytes, 0)?), row },
        next: if flags & NEXT != 0 { Some(time_at(bytes, 40)?) } else { None },
        covers: flags & COVERS != 0,
        own: flags & OWN != 0,
        pinned: flags & PINNED != 0,
        mounted: flags & MOUNTED != 0,
        path: (flags & PATH != 0).then(|| PathBuf::from(OsString::from_vec(path.to_vec()))),
    };
    Some((listed, end.next_multiple_of(8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of any shape survive encoding and decoding.
    #[test]
    fn records_return() {
        for (name, path) in [
            ("", None),
            ("a", Some("/".to_string())),
            (&"n".repeat(255)[..], Some("/d".repeat(3000))),
            ("\u{fc}nder", Some("/x\n".to_string())),
        ] {
            let listed = ListedEvent {
                event: Event {
                    number: EventNo(u64::MAX - 1),
                    row: EventRow {
                        time: Timestamp { seconds: -5, nanos: 999_999_999 },
                        kind: EventKind::Interval,
                        state: EventState::Kept,
                        held: true,
                        root: InodeNo(77),
                        root_incarnation: Incarnation(3),
                        name: name.to_string(),
                        more: EventMore::default(),
                    },
                },
                next: path.as_ref().map(|_| Timestamp { seconds: 9, nanos: 1 }),
                covers: path.is_none(),
                own: path.is_some(),
                pinned: name.is_empty(),
                mounted: name.len() > 1,
                path: path.map(PathBuf::from),
            };
            let bytes = encode_record(&listed);
            assert_eq!(decode_record(&bytes), Some((listed, bytes.len())));
            for len in 0..bytes.len().min(RECORD_BYTES + name.len()) {
                assert_eq!(decode_record(&bytes[..len]), None, "truncated to {len}");
            }
        }
    }
}
