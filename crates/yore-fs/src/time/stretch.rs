//! A stretch of time, and times as numbers.

use super::why::Why;
use yore_format::Timestamp;

pub(super) const NANOS_PER_SECOND: i128 = 1_000_000_000;
/// What a text names, from its first to its last nanosecond.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) begin: Timestamp,
    pub(super) end: Timestamp,
}

impl Stretch {
    pub(super) fn instant(at: Timestamp) -> Stretch {
        Stretch { begin: at, end: at }
    }
}

/// A time of the volume as `jiff` has it; `None` outside the years −9999 to 9999.
pub fn instant(time: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::new(time.seconds, i32::try_from(time.nanos).ok()?).ok()
}

/// Nanoseconds since 1970. Any [`Timestamp`] has room here.
pub(crate) fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.seconds) * NANOS_PER_SECOND + i128::from(time.nanos)
}

/// The inverse of [`nanoseconds`], for what a [`Timestamp`] can hold.
pub(super) fn from_nanoseconds(nanoseconds: i128) -> Result<Timestamp, Why> {
    let seconds = i64::try_from(nanoseconds.div_euclid(NANOS_PER_SECOND)).map_err(|_| Why::OutOfRange)?;
    Ok(Timestamp { seconds, nanos: nanoseconds.rem_euclid(NANOS_PER_SECOND) as u32 })
}
