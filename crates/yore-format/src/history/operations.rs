//! The tree of operations: who did what to the past, and which history a full volume reclaimed.

use super::keys::pair;
use crate::{tagged, Corruption, EventNo, Timestamp};
use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const WHAT: &str = "operation";
/// The longest path in a row, in bytes. A longer one is shortened.
pub const OPERATION_PATH_MAX: usize = 768;
/// The longest note in a row, in bytes.
pub const OPERATION_NOTE_MAX: usize = 512;

/// Which list a row belongs to. Each list has its own bound, so a long one cannot push another out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum RowClass {
    /// What a full volume reclaimed.
    GivenUp = 1,
    /// What somebody did.
    Done = 2,
}

impl RowClass {
    /// The class with this number on the medium.
    pub fn from_u64(n: u64) -> Option<RowClass> {
        [RowClass::GivenUp, RowClass::Done].into_iter().find(|class| *class as u64 == n)
    }
}

/// What was done.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::FromRepr, strum::IntoStaticStr,
)]
#[repr(u8)]
#[allow(missing_docs)]
#[strum(serialize_all = "kebab-case")]
pub enum OperationKind {
    /// History was reclaimed because the volume was full.
    GaveUp = 1,
    Snapshot = 2,
    Restore = 3,
    Undelete = 4,
    Rollback = 5,
    Undo = 6,
    Redo = 7,
    Forget = 8,
    Expunge = 9,
    Policy = 10,
    Hold = 11,
    Release = 12,
    /// A snapshot was given another name or description.
    Rename = 13,
    /// The volume was made larger or smaller.
    Resize = 14,
    /// The rules by which a full volume reclaims history were changed.
    SpaceRules = 15,
}

impl OperationKind {
    /// The word for people and in JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawOperation {
    seconds: I64,
    nanos: U32,
    uid: U32,
    first: U64,
    last: U64,
    count: U64,
    bytes: U64,
    kind: u8,
    reserved: [u8; 3],
    path_length: U16,
    note_length: U16,
}

/// One row of the tree of operations; its key is [`operation_key`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationRow {
    /// When.
    pub time: Timestamp,
    /// What.
    pub kind: OperationKind,
    /// The user who did it, or whose request needed the space; `u32::MAX`: the program itself.
    pub uid: u32,
    /// The first event concerned, or 0.
    pub first: EventNo,
    /// The last event concerned, or 0.
    pub last: EventNo,
    /// How many.
    pub count: u64,
    /// Bytes: freed, or needed.
    pub bytes: u64,
    /// The file or directory concerned, as it was called then: at most [`OPERATION_PATH_MAX`] bytes.
    pub path: Vec<u8>,
    /// What else there is to say, at most [`OPERATION_NOTE_MAX`] bytes of UTF-8.
    pub note: String,
}

/// The key of a row: the list it belongs to, and its place in it. Places ascend and are not used twice.
pub fn operation_key(class: RowClass, sequence: u64) -> [u8; 16] {
    pair(class as u64, sequence)
}

impl OperationRow {
    /// The row as a value.
    ///
    /// # Panics
    /// For a path or a note that is too long.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.path.len() <= OPERATION_PATH_MAX, "a path of {} bytes", self.path.len());
        assert!(tagged::is_storable_text(&self.note, OPERATION_NOTE_MAX), "a note: {:?}", self.note);
        let raw = RawOperation {
            seconds: self.time.seconds.into(),
            nanos: self.time.nanos.into(),
            uid: self.uid.into(),
            first: self.first.0.into(),
            last: self.last.0.into(),
            count: self.count.into(),
            bytes: self.bytes.into(),
            kind: self.kind as u8,
            reserved: [0; 3],
            path_length: (self.path.len() as u16).into(),
            note_length: (self.note.len() as u16).into(),
        };
        [raw.as_bytes(), &self.path, self.note.as_bytes()].concat()
    }

    /// Decodes a row.
    ///
    /// # Errors
    /// [`Corruption`] for an impossible value.
    pub fn decode(bytes: &[u8]) -> Result<OperationRow, Box<Corruption>> {
        let bad = |field, expected: &str, found: String| Err(Corruption::new(WHAT, field, expected, found));
        let Ok((raw, rest)) = RawOperation::ref_from_prefix(bytes) else {
            return bad("length", "at least 56 bytes", bytes.len().to_string());
        };
        let Some(kind) = OperationKind::from_repr(raw.kind) else {
            return bad("kind", "1 to 15", raw.kind.to_string());
        };
        if raw.nanos.get() >= 1_000_000_000 {
            return bad("nanoseconds", "below 10^9", raw.nanos.to_string());
        }
        if raw.reserved != [0; 3] {
            return bad("reserved bytes", "zero", "something else".into());
        }
        let (path, note) = (usize::from(raw.path_length.get()), usize::from(raw.note_length.get()));
        if rest.len() != path + note || path > OPERATION_PATH_MAX {
            return bad("lengths", "the rest of the row", format!("{path} and {note}"));
        }
        let (path, note) = rest.split_at(path);
        Ok(OperationRow {
            time: Timestamp { seconds: raw.seconds.get(), nanos: raw.nanos.get() },
            kind,
            uid: raw.uid.get(),
            first: EventNo(raw.first.get()),
            last: EventNo(raw.last.get()),
            count: raw.count.get(),
            bytes: raw.bytes.get(),
            path: path.to_vec(),
            note: tagged::text(WHAT, "note", OPERATION_NOTE_MAX, note)?,
        })
    }
}

/// The layout of what has a fixed size.
pub(super) fn layout() -> crate::StructLayout {
    crate::tables::layout!("Operation", RawOperation: seconds, nanos, uid, first, last, count, bytes, kind, reserved, path_length, note_length)
}
