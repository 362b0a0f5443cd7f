//! How Yore writes times: as short as they stay clear, without colons, so that they go into file names and
//! host:path arguments, and so that [`parse()`] reads back what was meant.
//!
//! That is not argued but tried: of the forms from short to long, the first that is read as wanted is taken.
//! The last one, seconds since 1970 to the nanosecond, can write any time exactly.

use super::parse::{parse, When};
use super::stretch::{nanoseconds, NANOS_PER_SECOND};
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use yore_format::Timestamp;

/// The shortest unambiguous form of `time` that [`parse()`] reads, in the same zone, as a time not before
/// `time` and before `next`, the following snapshot: `2026-11-20_14.05`, with seconds if a minute holds both,
/// with as many further digits as it takes.
///
/// Where local time is repeated the offset follows (`2026-10-25_02.30+0200`). Outside the years 0000 to 9999
/// it is seconds since 1970 with a second `@`. If `next` is not after `time` it cannot be kept out; then
/// `time` is exact.
///
/// ```
/// use yore_fs::time::{print, TimeZone};
/// use yore_fs::Timestamp;
///
/// let at = |seconds, nanos| Timestamp { seconds, nanos };
/// let time = at(1_795_183_530, 250_000_000);
/// assert_eq!(print(time, None, &TimeZone::UTC), "2026-11-20_14.05");
/// assert_eq!(print(time, Some(at(1_795_183_531, 0)), &TimeZone::UTC), "2026-11-20_14.05.30");
/// assert_eq!(print(time, Some(at(1_795_183_530, 270_000_000)), &TimeZone::UTC), "2026-11-20_14.05.30.25");
/// ```
pub fn print(time: Timestamp, next: Option<Timestamp>, zone: &TimeZone) -> String {
    let (from, before) = (nanoseconds(time), next.map(nanoseconds));
    let serves = |text: &String| match parse(text, time, zone) {
        Ok(When::At(end)) => {
            nanoseconds(end) >= from && before.is_none_or(|before| nanoseconds(end) < before)
        }
        Ok(When::Last(_) | When::Named(_)) | Err(_) => false,
    };
    let local = Wall::of(time, zone);
    let mut forms = local.iter().flat_map(|wall| (0..PRECISIONS).map(|precision| wall.write(precision)));
    forms.find(serves).unwrap_or_else(|| exact(time))
}

/// Samba's form, rounded down to the second, without the `@` before it; clients ask for versions by it.
/// Outside the years 0000 to 9999, which it cannot write, as [`print()`].
///
/// ```
/// use yore_fs::{time::print_gmt, Timestamp};
///
/// assert_eq!(print_gmt(Timestamp { seconds: 1_795_183_500, nanos: 5 }), "GMT-2026.11.20-14.05.00");
/// ```
pub fn print_gmt(time: Timestamp) -> String {
    let Some(Wall { at, .. }) = Wall::of(time, &TimeZone::UTC) else { return exact(time) };
    let (date, time) = (at.date(), at.time());
    let (year, month, day) = (date.year(), date.month(), date.day());
    format!("GMT-{year:04}.{month:02}.{day:02}-{:02}.{:02}.{:02}", time.hour(), time.minute(), time.second())
}

/// Seconds since 1970, to the nanosecond.
fn exact(time: Timestamp) -> String {
    let sum = nanoseconds(time);
    let (sign, sum) = (if sum < 0 { "-" } else { "" }, sum.abs());
    format!("@{sign}{}.{:09}", sum / NANOS_PER_SECOND, sum % NANOS_PER_SECOND)
}

/// To the minute, to the second, and with one to nine further digits.
const PRECISIONS: usize = 11;

/// A time by the clock on the wall, in a year of four digits.
struct Wall {
    at: DateTime,
    /// What makes it unambiguous.
    offset: String,
}

impl Wall {
    fn of(time: Timestamp, zone: &TimeZone) -> Option<Wall> {
        let instant = jiff::Timestamp::from_nanosecond(nanoseconds(time)).ok()?;
        let offset = zone.to_offset(instant);
        let at = offset.to_datetime(instant);
        let repeated = zone.to_ambiguous_timestamp(at).is_ambiguous();
        let wall = match (repeated, offset.seconds() % 60) {
            (false, _) => Wall { at, offset: String::new() },
            (true, 0) => {
                let (sign, minutes) =
                    (if offset.is_negative() { '-' } else { '+' }, offset.seconds().abs() / 60);
                Wall { at, offset: format!("{sign}{:02}{:02}", minutes / 60, minutes % 60) }
            }
            // Offsets of old local times have seconds, which offsets as they are written have not.
            (true, _) => Wall { at: Offset::UTC.to_datetime(instant), offset: "Z".to_owned() },
        };
        (0..=9999).contains(&wall.at.year()).then_some(wall)
    }

    fn write(&self, precision: usize) -> String {
        let (date, time) = (self.at.date(), self.at.time());
        let (year, month, day) = (date.year(), date.month(), date.day());
        let mut text = format!("{year:04}-{month:02}-{day:02}_{:02}.{:02}", time.hour(), time.minute());
        if precision > 0 {
            text += &format!(".{:02}", time.second());
        }
        if precision > 1 {
            let digits = format!("{:09}", time.subsec_nanosecond());
            text += &format!(".{}", &digits[..precision - 1]);
        }
        text + &self.offset
    }
}
