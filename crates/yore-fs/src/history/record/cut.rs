//! A cut: its row, its time, and whether somebody holds it.

use crate::Error;
use yore_format::{key_parts, Corruption, CutRow, Number, Timestamp};

/// A cut, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Cut {
    /// Its place in the order of all cuts.
    pub number: Number,
    /// When it was, what it is of, its name.
    pub row: CutRow,
}

pub(super) fn decode_cut(key: &[u8], value: &[u8]) -> std::result::Result<Cut, Box<Corruption>> {
    let [number] = key_parts::<1>(key)?;
    if number == 0 {
        return Err(Corruption::new("cut", "number", "at least 1", "0"));
    }
    Ok(Cut { number: Number(number), row: CutRow::decode(value)? })
}

/// The present, but later than the last cut (V5).
pub(super) fn after(last: Timestamp, now: Timestamp) -> Timestamp {
    if now > last {
        return now;
    }
    match last.nanos {
        999_999_999 => Timestamp { seconds: last.seconds + 1, nanos: 0 },
        nanos => Timestamp { nanos: nanos + 1, ..last },
    }
}

/// Until when nobody gives a cut up, in seconds since 1970, if that is not over.
pub(super) fn held_until(row: &CutRow) -> Option<i64> {
    row.more.held_until.filter(|until| *until > crate::clock::now().seconds)
}

pub(super) fn until_text(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| format!("@{seconds}"), |time| time.to_string())
}

/// Whether a cut is held: by somebody, or for a time by the policy that it was taken under.
pub(crate) fn is_held(row: &CutRow) -> bool {
    row.held || held_until(row).is_some()
}

/// Why a cut is not given up, if it is held.
pub(crate) fn held(cut: &Cut) -> Option<Error> {
    let until = held_until(&cut.row);
    let until = until.map(|until| Error::HeldUntil { cut: cut.number.0, until: until_text(until) });
    until.or(cut.row.held.then_some(Error::Held { cut: cut.number.0 }))
}
