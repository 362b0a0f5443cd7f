//! An event: its row, its time, and whether somebody holds it.

use crate::Error;
use yore_format::{key_parts, Corruption, EventNo, EventRow, Features, Timestamp, WriteFeatures};
use yore_meta::Meta;

/// An event, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Event {
    /// Its place in the order of all events.
    pub number: EventNo,
    /// Its time, its root, its name.
    pub row: EventRow,
}

/// How rows of events are encoded on this volume: with annals some are short.
pub(super) fn row_features(meta: &Meta) -> Features {
    match meta.has_features(WriteFeatures::ANNALS) {
        true => Features::ANNALS,
        false => Features::empty(),
    }
}

pub(super) fn decode_event(
    meta: &Meta,
    key: &[u8],
    value: &[u8],
) -> std::result::Result<Event, Box<Corruption>> {
    let [number] = key_parts::<1>(key)?;
    if number == 0 {
        return Err(Corruption::new("event", "number", "at least 1", "0"));
    }
    Ok(Event { number: EventNo(number), row: EventRow::decode_with(value, row_features(meta))? })
}

/// The present time, but later than the last event's (V5).
pub(super) fn after(last: Timestamp, now: Timestamp) -> Timestamp {
    if now > last {
        return now;
    }
    match last.nanos {
        999_999_999 => Timestamp { seconds: last.seconds + 1, nanos: 0 },
        nanos => Timestamp { nanos: nanos + 1, ..last },
    }
}

/// Until when the event is not given up, in seconds since 1970; `None` if that time is over.
pub(super) fn held_until(row: &EventRow) -> Option<i64> {
    row.more.held_until.filter(|until| *until > crate::clock::now().seconds)
}

pub(super) fn until_text(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| format!("@{seconds}"), |time| time.to_string())
}

/// Whether an event is held: by somebody, or for a time by the policy that it was taken under.
pub(crate) fn is_held(row: &EventRow) -> bool {
    row.held || held_until(row).is_some()
}

/// The error that says why an event is not given up, if it is held.
pub(crate) fn held(event: &Event) -> Option<Error> {
    let until = held_until(&event.row);
    let until = until.map(|until| Error::HeldUntil { event: event.number.0, until: until_text(until) });
    until.or(event.row.held.then_some(Error::Held { event: event.number.0 }))
}
