//! Points of the calendar and of the count of seconds: `2026-11-20T14:05`, `GMT-2026.11.20-14.05.00`,
//! `1057845484`.
//!
//! Dates have four, two and two digits and hyphens; or eight digits, if a time of day follows. A time of day
//! has hours, perhaps minutes, perhaps seconds with up to nine further digits, with colons, with points, or
//! with nothing between. Everything here is in lower case.

use super::stretch::{from_nanoseconds, Stretch, NANOS_PER_SECOND};
use super::why::Why;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use yore_format::Timestamp;

/// The first second after the year 9999: unmarked numbers lie before it. Negative ones are always marked.
const SECONDS_END: i128 = 253_402_300_800;
/// Digits of 2026, 202611, 20261120 and 202611201405. Ten are not among them: those are seconds from 2001
/// to 2286.
const DIGITS_OF_DATES: [usize; 4] = [4, 6, 8, 12];

const NANOSECOND: jiff::SignedDuration = jiff::SignedDuration::from_nanos(1);
const LAST_OF_DAY: Time = Time::constant(23, 59, 59, 999_999_999);

/// Whether the text, which begins like a time, is for this module: no duration and no word.
pub(super) fn is_point(text: &str) -> bool {
    let (digits, rest) = split_digits(text);
    let only_digits = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_digit());
    match rest.bytes().next() {
        None | Some(b'-' | b'+' | b'@' | b':') => true,
        Some(b'.' | b',') => digits.is_empty() || only_digits(&rest[1..]),
        Some(b't' | b'_' | b' ') => digits.len() == 8 && !split_digits(&rest[1..]).0.is_empty(),
        Some(_) => starts_with_gmt(text),
    }
}

/// Whether this begins in Samba's manner.
pub(super) fn starts_with_gmt(text: &str) -> bool {
    text.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("gmt-"))
}

/// What the text names.
pub(super) fn read(text: &str, zone: &TimeZone) -> Result<Stretch, Why> {
    let (marked, text) = text.strip_prefix('@').map_or((false, text), |text| (true, text));
    if starts_with_gmt(text) {
        return read_gmt(text);
    }
    if marked {
        return read_seconds(text, true);
    }
    let (digits, rest) = split_digits(text);
    match rest.bytes().next() {
        Some(b'.') if digits.is_empty() => Err(Why::NoTime { hint: "a time does not begin with a point" }),
        Some(b'+') if digits.is_empty() => Err(Why::NoTime { hint: "a time has no sign before it" }),
        Some(b'-') if digits.is_empty() => match split_digits(&rest[1..]).1.bytes().next() {
            None | Some(b'.' | b',') => Err(Why::NoTime {
                hint: "behind a `-` stands how many snapshots to count back, a whole number; seconds before 1970 are written \
                       with a second @, as name@@-86400",
            }),
            Some(_) => Err(Why::NoTime { hint: "a duration counts back as it is, without a sign" }),
        },
        Some(b':') => Err(Why::NoTime { hint: "a time of day stands behind its date" }),
        None | Some(b'.' | b',') => read_seconds(text, false),
        Some(_) => read_date(text)?.stretch(zone),
    }
}

/// The digits at the start, and the rest.
fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// `1057845484[.25]`: that second, or that fraction of one. A mark says that it is no date; then it may be
/// negative.
fn read_seconds(text: &str, marked: bool) -> Result<Stretch, Why> {
    let wanted = "digits, seconds since 1970";
    let (negative, number) = text.strip_prefix('-').map_or((false, text), |number| (true, number));
    let mut reader = Reader { rest: number };
    let digits = reader.run();
    if digits.is_empty() {
        return Err(reader.expected(wanted));
    }
    let (fraction, step) =
        if reader.take(".,").is_some() { reader.fraction()? } else { (0, NANOS_PER_SECOND) };
    if !reader.rest.is_empty() {
        return Err(reader.expected("the end behind seconds since 1970"));
    }
    let too_many = || if marked { Why::OutOfRange } else { Why::TooManySeconds };
    let seconds: u64 = digits.parse().map_err(|_| too_many())?;
    let sum = i128::from(seconds) * NANOS_PER_SECOND + fraction;
    let first = if negative { -sum } else { sum };
    if !marked && DIGITS_OF_DATES.contains(&digits.len()) {
        return Err(Why::DateOrSeconds { digits: text.to_owned() });
    }
    if !marked && first.div_euclid(NANOS_PER_SECOND) >= SECONDS_END {
        return Err(too_many());
    }
    Ok(Stretch { begin: from_nanoseconds(first)?, end: from_nanoseconds(first + step - 1)? })
}

const SAMBA: &str = "digits and separators as in GMT-2026.11.20-14.05.00";

/// `gmt-2026.11.20-14.05.00`, as Samba and its clients write it: that second.
fn read_gmt(text: &str) -> Result<Stretch, Why> {
    let mut reader = Reader { rest: &text[4..] };
    let mut fields = [0; 6];
    for (n, separator) in ["", ".", ".", "-", ".", "."].into_iter().enumerate() {
        if n > 0 && reader.take(separator).is_none() {
            return Err(reader.expected(SAMBA));
        }
        let digits = if n == 0 { 4 } else { 2 };
        fields[n] = reader.number(digits, SAMBA)?;
    }
    if !reader.rest.is_empty() {
        return Err(reader.expected(SAMBA));
    }
    let [year, month, day, hour, minute, second] = fields;
    let day = date(year, month, day)?;
    let [first, last] = [time(hour, minute, second, 0)?, time(hour, minute, second, 999_999_999)?];
    let (first, last) = (day.to_datetime(first), day.to_datetime(last));
    Wall { first, last, offset: Some(Offset::UTC) }.stretch(&TimeZone::UTC)
}

/// What a date, with or without a time of day, names: from and to, by the clock on the wall.
struct Wall {
    first: DateTime,
    last: DateTime,
    offset: Option<Offset>,
}

/// `2026-11`, `2026-11-20`, `2026-11-20t14:05:30.25+01:00` and what lies between.
fn read_date(text: &str) -> Result<Wall, Why> {
    let mut reader = Reader { rest: text };
    let year = reader.number(4, "the four digits of a year")?;
    let hyphens = reader.take("-").is_some();
    let month = reader.number(2, "the two digits of a month")?;
    if hyphens && reader.take("-").is_none() {
        let first = date(year, month, 1)?;
        let offset = reader.utc_or_end("a hyphen and the day, or the end")?;
        return Ok(days(first, first.last_of_month(), offset));
    }
    let day = reader.number(2, "the two digits of a day")?;
    let day = date(year, month, day)?;
    if reader.take("t_ ").is_none() {
        let offset = reader.utc_or_end("T, _ or a blank and the time of day, or the end")?;
        return Ok(days(day, day, offset));
    }
    read_time_of_day(&mut reader, day)
}

fn read_time_of_day(reader: &mut Reader<'_>, day: Date) -> Result<Wall, Why> {
    let hour = reader.number(2, "the two digits of an hour")?;
    let separator = match reader.rest.bytes().next() {
        Some(b':') => ":",
        Some(b'.') => ".",
        _ => "",
    };
    let minute = reader.field(separator, "the two digits of a minute")?;
    let second = match minute {
        Some(_) => reader.field(separator, "the two digits of a second")?,
        None => None,
    };
    let part = match second {
        Some(_) if reader.take(".,").is_some() => Some(reader.fraction()?),
        _ => None,
    };
    let offset = reader.offset()?;
    let (from, step) = part.map_or((0, NANOS_PER_SECOND), |part| part);
    let first = time(hour, minute.unwrap_or(0), second.unwrap_or(0), from)?;
    let last = time(hour, minute.unwrap_or(59), second.unwrap_or(59), from + step - 1)?;
    Ok(Wall { first: day.to_datetime(first), last: day.to_datetime(last), offset })
}

/// Whole days, both of them included.
fn days(first: Date, last: Date, offset: Option<Offset>) -> Wall {
    Wall { first: first.to_datetime(Time::midnight()), last: last.to_datetime(LAST_OF_DAY), offset }
}

/// A day as `zone` has it.
pub(super) fn whole_day(day: Date, zone: &TimeZone) -> Result<Stretch, Why> {
    days(day, day, None).stretch(zone)
}

impl Wall {
    fn stretch(&self, zone: &TimeZone) -> Result<Stretch, Why> {
        Ok(Stretch { begin: self.begin(zone)?, end: self.end(zone)? })
    }

    /// Its first nanosecond. Where local time is repeated that of the first time; where its beginning was
    /// left out, the first behind the gap.
    fn begin(&self, zone: &TimeZone) -> Result<Timestamp, Why> {
        let instant = |offset: Offset| offset.to_timestamp(self.first).map_err(|_| Why::OutOfRange);
        if let Some(offset) = self.offset {
            return from_jiff(instant(offset)?);
        }
        match zone.to_ambiguous_timestamp(self.first).offset() {
            AmbiguousOffset::Unambiguous { offset } => from_jiff(instant(offset)?),
            AmbiguousOffset::Fold { before, after } => from_jiff(instant(before)?.min(instant(after)?)),
            AmbiguousOffset::Gap { before, .. } => from_jiff(gap_before(instant(before)?, zone)?),
        }
    }

    /// Its last nanosecond. Where local time is repeated that of the later repetition; where its end was left
    /// out, the last before the gap, if that is in it.
    fn end(&self, zone: &TimeZone) -> Result<Timestamp, Why> {
        let instant = |offset: Offset| offset.to_timestamp(self.last).map_err(|_| Why::OutOfRange);
        if let Some(offset) = self.offset {
            return from_jiff(instant(offset)?);
        }
        match zone.to_ambiguous_timestamp(self.last).offset() {
            AmbiguousOffset::Unambiguous { offset } => from_jiff(instant(offset)?),
            AmbiguousOffset::Fold { before, after } => from_jiff(instant(before)?.max(instant(after)?)),
            AmbiguousOffset::Gap { before, .. } => {
                let gap = gap_before(instant(before)?, zone)?;
                let end = gap.checked_sub(NANOSECOND).map_err(|_| Why::OutOfRange)?;
                if zone.to_datetime(end) < self.first {
                    return Err(Why::InGap);
                }
                from_jiff(end)
            }
        }
    }
}

/// When clocks were put forward over a local time that comes out as this by the offset before. By that one,
/// times in the gap come out at or behind it: the last change up to there is the gap.
fn gap_before(time: jiff::Timestamp, zone: &TimeZone) -> Result<jiff::Timestamp, Why> {
    let behind = time.checked_add(NANOSECOND).map_err(|_| Why::OutOfRange)?;
    Ok(zone.preceding(behind).next().ok_or(Why::InGap)?.timestamp())
}

pub(super) fn from_jiff(instant: jiff::Timestamp) -> Result<Timestamp, Why> {
    from_nanoseconds(instant.as_nanosecond())
}

fn date(year: u32, month: u32, day: u32) -> Result<Date, Why> {
    // Four and two digits: they fit.
    Date::new(year as i16, month as i8, day as i8).map_err(|_| Why::NoSuch { what: "day" })
}

fn time(hour: u32, minute: u32, second: u32, nanos: i128) -> Result<Time, Why> {
    let nanos = i32::try_from(nanos).map_err(|_| Why::TooFine)?;
    Time::new(hour as i8, minute as i8, second as i8, nanos).map_err(|_| Why::NoSuch { what: "time of day" })
}

/// What is still to be read.
struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn expected(&self, wanted: &'static str) -> Why {
        Why::Expected { wanted, found: self.rest.to_owned() }
    }

    /// The next character, if it is one of these (of ASCII).
    fn take(&mut self, these: &str) -> Option<char> {
        let next = self.rest.chars().next().filter(|next| these.contains(*next))?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    /// All digits that follow.
    fn run(&mut self) -> &'a str {
        let (digits, rest) = split_digits(self.rest);
        self.rest = rest;
        digits
    }

    /// A number of exactly so many digits, at most four; `wanted` names it.
    fn number(&mut self, digits: usize, wanted: &'static str) -> Result<u32, Why> {
        let found = self.rest.get(..digits).filter(|found| found.bytes().all(|byte| byte.is_ascii_digit()));
        let number = found.and_then(|found| found.parse().ok()).ok_or_else(|| self.expected(wanted))?;
        self.rest = &self.rest[digits..];
        Ok(number)
    }

    /// Minutes or seconds with their separator, if there are any.
    fn field(&mut self, separator: &str, wanted: &'static str) -> Result<Option<u32>, Why> {
        let there = match separator {
            "" => self.rest.starts_with(|next: char| next.is_ascii_digit()),
            _ => self.take(separator).is_some(),
        };
        if there {
            self.number(2, wanted).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Digits behind the point: (nanoseconds, those that the last digit stands for).
    fn fraction(&mut self) -> Result<(i128, i128), Why> {
        let digits = self.run();
        match digits.len() {
            0 => Err(self.expected("digits behind the point")),
            1..=9 => {
                let step = 10_i128.pow(9 - digits.len() as u32);
                Ok((digits.parse::<i128>().map_err(|_| Why::TooFine)? * step, step))
            }
            _ => Err(Why::TooFine),
        }
    }

    /// `z` or nothing.
    fn utc_or_end(&mut self, wanted: &'static str) -> Result<Option<Offset>, Why> {
        let utc = self.take("z").map(|_| Offset::UTC);
        if self.rest.is_empty() {
            Ok(utc)
        } else {
            Err(self.expected(wanted))
        }
    }

    /// `z`, `+01`, `+0100`, `+01:00`, with a blank before it or not; or nothing. Then the end.
    fn offset(&mut self) -> Result<Option<Offset>, Why> {
        let blank = self.take(" ").is_some();
        let Some(sign) = self.take("+-") else {
            let utc = self.utc_or_end("the end, or an offset: Z, +0100 or +01:00")?;
            return if blank && utc.is_none() {
                Err(self.expected("an offset behind the blank"))
            } else {
                Ok(utc)
            };
        };
        let hours = self.number(2, "the two digits of an offset's hours")?;
        let colon = self.take(":").is_some();
        let minutes = if colon || !self.rest.is_empty() {
            self.number(2, "the two digits of an offset's minutes")?
        } else {
            0
        };
        if !self.rest.is_empty() {
            return Err(self.expected("the end behind the offset"));
        }
        if hours > 23 || minutes > 59 {
            return Err(Why::NoSuch { what: "offset" });
        }
        let seconds = (hours * 3600 + minutes * 60) as i32;
        let seconds = if sign == '-' { -seconds } else { seconds };
        Offset::from_seconds(seconds).map(Some).map_err(|_| Why::NoSuch { what: "offset" })
    }
}
