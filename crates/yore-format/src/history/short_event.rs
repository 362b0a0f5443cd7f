//! The short form of an event's row: no name and no tagged fields, and numbers of as many bytes as they need.
//!
//! Most rows have nothing to say that needs more. A row that is shorter than [`EVENT_FIXED_BYTES`] has this
//! form, a longer one that of volumes without annals. A volume may have both: a row gets short when it is
//! next written.

use crate::history::event::{EventKind, EventRow, EventState, EVENT_FIXED_BYTES};
use crate::history::more::EventMore;
use crate::varint::{Reader, ShortBytes};
use crate::{Corruption, Features, Incarnation, InodeNo, Timestamp};

const KIND: u8 = 7;
const STATE_SHIFT: u32 = 3;
const STATE: u8 = 3;
const HELD: u8 = 1 << 5;
const UNUSED: u8 = 3 << 6;
/// Head, seconds, nanoseconds, root, incarnation.
const MOST: usize = 1 + 10 + 4 + 10 + 5;
// So the two forms cannot be mistaken for each other.
const _: () = assert!(MOST < EVENT_FIXED_BYTES);
// Later kinds do not fit the head: their rows are long ones.
const _: () = assert!(EventKind::Rollback as u8 <= KIND);

impl EventRow {
    /// The row as a value in a volume with these features: short where it can be.
    ///
    /// # Panics
    /// As [`EventRow::encode`].
    pub fn encode_with(&self, features: Features) -> Vec<u8> {
        let is_plain = self.name.is_empty() && self.more.is_empty();
        if !features.contains(Features::ANNALS) || !is_plain {
            return self.encode();
        }
        let mut out = ShortBytes::<MOST>::new();
        let held = if self.held { HELD } else { 0 };
        out.byte(self.kind as u8 | (self.state as u8) << STATE_SHIFT | held);
        out.signed(self.time.seconds as u64);
        out.bytes(&self.time.nanos.to_le_bytes());
        out.number(self.root.0);
        out.number(self.root_incarnation.0.into());
        out.to_vec()
    }

    /// Decodes a row of a volume that has at most these features.
    ///
    /// # Errors
    /// As [`EventRow::decode`].
    pub fn decode_with(bytes: &[u8], features: Features) -> Result<EventRow, Box<Corruption>> {
        if !features.contains(Features::ANNALS) || bytes.len() >= EVENT_FIXED_BYTES {
            return EventRow::decode(bytes);
        }
        let mut reader = Reader::new("event", bytes);
        let head = reader.byte("head")?;
        let (kind, state) =
            (EventKind::from_repr(head & KIND), EventState::from_repr(head >> STATE_SHIFT & STATE));
        let (Some(kind), Some(state), 0) = (kind, state, head & UNUSED) else {
            return reader.bad("head", "a kind and a state", format!("{head:#04x}"));
        };
        let seconds = reader.signed("seconds")? as i64;
        let nanos = u32::from_le_bytes(reader.array("nanoseconds")?);
        if nanos >= 1_000_000_000 {
            return reader.bad("nanoseconds", "below 10^9", nanos);
        }
        let root = InodeNo(reader.number("root")?);
        if !root.is_file() {
            return reader.bad("root", "a file's number", root);
        }
        let root_incarnation = Incarnation(reader.number32("incarnation of the root")?);
        reader.end()?;
        Ok(EventRow {
            time: Timestamp { seconds, nanos },
            kind,
            state,
            held: head & HELD != 0,
            root,
            root_incarnation,
            name: String::new(),
            more: EventMore::default(),
        })
    }
}
