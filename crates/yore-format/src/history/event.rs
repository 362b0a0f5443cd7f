//! The rows of events in the table of events.

use super::more::EventMore;
use crate::{Corruption, Incarnation, InodeNo, StructLayout, Timestamp, NAME_MAX};
use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of an event's row before its name.
pub const EVENT_FIXED_BYTES: usize = 32;
/// The longest name of a snapshot, in bytes.
pub const EVENT_NAME_MAX: usize = NAME_MAX;

/// What made an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::FromRepr)]
#[repr(u8)]
pub enum EventKind {
    /// Somebody asked for a snapshot.
    Snapshot = 1,
    /// A file was closed, under a policy that makes a version then.
    Close = 2,
    /// The interval of a policy had passed.
    Interval = 3,
    /// Something that can be undone was about to change much.
    Undo = 4,
    /// A file lost its last name, under a policy that makes a version when a file is closed. As of this event
    /// the file no longer exists.
    Removed = 5,
    /// The history of a file up to this number is being deleted (expunge). Nobody can look at this event: it
    /// is dying from the beginning, and nothing remembers it afterwards.
    Expunge = 6,
    /// A directory is being rolled back, and the rollback is not finished. Nobody can look at this event: it
    /// is dying from the beginning, and nothing remembers it afterwards. Its name says what is to be done
    /// ([`crate::RollbackIntent`]).
    Rollback = 7,
}

impl EventKind {
    /// Whether it is an event of a single file or directory and covers nothing below that.
    pub fn is_of_file(self) -> bool {
        matches!(self, EventKind::Close | EventKind::Removed | EventKind::Expunge | EventKind::Rollback)
    }

    /// Whether it records work under way and is no event that anybody can look at. Such rows are dying from
    /// the beginning and are never forgotten.
    pub fn is_work(self) -> bool {
        matches!(self, EventKind::Expunge | EventKind::Rollback)
    }
}

/// What has become of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::FromRepr)]
#[repr(u8)]
pub enum EventState {
    /// It is retained and can be looked at.
    Kept = 1,
    /// It is being forgotten: nobody can look at it, and what it alone held is being reclaimed.
    Dying = 2,
    /// It was forgotten. Its time remains for a while, so that nobody is silently given an older one instead.
    Forgotten = 3,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEvent {
    seconds: I64,
    nanos: U32,
    kind: u8,
    state: u8,
    held: u8,
    name_length: u8,
    root: U64,
    root_incarnation: U32,
    more_length: U16,
    reserved: U16,
}

const _: () = assert!(size_of::<RawEvent>() == EVENT_FIXED_BYTES);

/// The row of an event in the table of events; its key is the number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRow {
    /// When it was. Later numbers have later times.
    pub time: Timestamp,
    /// What made it.
    pub kind: EventKind,
    /// What has become of it.
    pub state: EventState,
    /// It is not forgotten until it is released.
    pub held: bool,
    /// The directory or file that the event is of.
    pub root: InodeNo,
    /// Its incarnation.
    pub root_incarnation: Incarnation,
    /// Its name, or nothing.
    pub name: String,
    /// The fields that only some events have.
    pub more: EventMore,
}

impl EventRow {
    /// The row as a value.
    ///
    /// # Panics
    /// For texts that are too long ([`EventMore`]).
    pub fn encode(&self) -> Vec<u8> {
        let more = self.more.encode();
        let raw = RawEvent {
            seconds: self.time.seconds.into(),
            nanos: self.time.nanos.into(),
            kind: self.kind as u8,
            state: self.state as u8,
            held: u8::from(self.held),
            name_length: self.name.len() as u8,
            root: self.root.0.into(),
            root_incarnation: self.root_incarnation.0.into(),
            more_length: (more.len() as u16).into(),
            reserved: 0.into(),
        };
        [raw.as_bytes(), self.name.as_bytes(), &more].concat()
    }

    /// Decodes a row.
    ///
    /// # Errors
    /// [`Corruption`] for an impossible value.
    pub fn decode(bytes: &[u8]) -> Result<EventRow, Box<Corruption>> {
        let bad =
            |field, expected: &str, found: String| Err(Corruption::new("event", field, expected, found));
        let Ok((raw, rest)) = RawEvent::ref_from_prefix(bytes) else {
            return bad("length", "at least 32 bytes", bytes.len().to_string());
        };
        let Some(kind) = EventKind::from_repr(raw.kind) else {
            return bad("kind", "1 to 7", raw.kind.to_string());
        };
        let Some(state) = EventState::from_repr(raw.state) else {
            return bad("state", "1 to 3", raw.state.to_string());
        };
        if raw.held > 1 {
            return bad("hold", "0 or 1", raw.held.to_string());
        }
        if raw.nanos.get() >= 1_000_000_000 {
            return bad("nanoseconds", "below 10^9", raw.nanos.to_string());
        }
        if raw.reserved.get() != 0 {
            return bad("reserved bytes", "zero", raw.reserved.to_string());
        }
        let root = InodeNo(raw.root.get());
        if !root.is_file() {
            return bad("root", "a file's number", root.to_string());
        }
        let name_length = usize::from(raw.name_length);
        if rest.len() != name_length + usize::from(raw.more_length.get()) {
            return bad("lengths", "the rest of the row", format!("{name_length} and {}", raw.more_length));
        }
        let (name, more) = rest.split_at(name_length);
        let name = match std::str::from_utf8(name) {
            Ok(name) if !name.contains(['/', '\0', '@']) => name.to_string(),
            _ => {
                return bad("name", "UTF-8 without /, @ and NUL", String::from_utf8_lossy(name).into_owned())
            }
        };
        Ok(EventRow {
            time: Timestamp { seconds: raw.seconds.get(), nanos: raw.nanos.get() },
            kind,
            state,
            held: raw.held == 1,
            root,
            root_incarnation: Incarnation(raw.root_incarnation.get()),
            name,
            more: EventMore::decode(more)?,
        })
    }
}

/// The layout of what has a fixed size.
pub(super) fn layout() -> StructLayout {
    crate::tables::layout!("Event", RawEvent: seconds, nanos, kind, state, held, name_length, root, root_incarnation, more_length, reserved)
}
