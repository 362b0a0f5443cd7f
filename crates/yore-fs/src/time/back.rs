//! What counts back from the present: durations and words. Everything here is in lower case.
//!
//! Durations are instants: the present less so many years, months, weeks and days *of the calendar* (three
//! days ago at this time of day, however long those days were; a month from March 31 is February 28) and then
//! so many hours, minutes and seconds as they pass.

use super::point::{from_jiff, whole_day};
use super::stretch::{nanoseconds, Stretch};
use super::why::Why;
use jiff::civil::Weekday;
use jiff::tz::TimeZone;
use jiff::{Span, Unit, Zoned};
use yore_format::Timestamp;

/// First words of times. The last three mean nothing yet, and are kept from snapshots' names.
const WORDS: [&str; 6] = ["now", "today", "yesterday", "tomorrow", "noon", "midnight"];

const SEPARATORS: [char; 3] = ['.', '_', ' '];

/// Whether the text begins with a word that only times have, or ends in `ago`.
pub(super) fn begins_with_word(text: &str) -> bool {
    let first = text.split(SEPARATORS).next().unwrap_or_default();
    let ago = text.rsplit(SEPARATORS).next() == Some("ago");
    WORDS.contains(&first) || weekday(first).is_some() || first == "last" || ago
}

/// What the text names: an instant for durations and `now`, else a day.
pub(super) fn read(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Stretch, Why> {
    if text == "now" {
        return Ok(Stretch::instant(now));
    }
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        let span = read_duration(text)?;
        let then = zoned(now, zone)?.checked_sub(span).map_err(|_| Why::OutOfRange)?;
        return from_jiff(then.timestamp()).map(Stretch::instant);
    }
    let today = || Ok(zoned(now, zone)?.date());
    let day = match text {
        "today" => today()?,
        "yesterday" => today()?.yesterday().map_err(|_| Why::OutOfRange)?,
        _ => {
            let weekday = read_weekday(text)?;
            today()?.nth_weekday(-1, weekday).map_err(|_| Why::OutOfRange)?
        }
    };
    whole_day(day, zone)
}

fn zoned(now: Timestamp, zone: &TimeZone) -> Result<Zoned, Why> {
    let now = jiff::Timestamp::from_nanosecond(nanoseconds(now)).map_err(|_| Why::OutOfRange)?;
    Ok(now.to_zoned(zone.clone()))
}

/// `monday`, `last.monday`.
fn read_weekday(text: &str) -> Result<Weekday, Why> {
    let day = text.strip_prefix("last").and_then(|rest| rest.strip_prefix(SEPARATORS)).unwrap_or(text);
    weekday(day).ok_or(Why::NoTime {
        hint: match text {
            "tomorrow" => "that is the future, of which there is no version yet",
            _ if text.starts_with("last") => "behind `last` stands a day of the week; a week ago is 1week",
            _ if text.ends_with("ago") => "behind each number stands a unit, and numbers are written in digits: 2.weeks.ago",
            _ => "it begins with a word that times begin with; now, today, yesterday and days of the week stand alone",
        },
    })
}

fn weekday(name: &str) -> Option<Weekday> {
    Some(match name {
        "monday" | "mon" => Weekday::Monday,
        "tuesday" | "tue" => Weekday::Tuesday,
        "wednesday" | "wed" => Weekday::Wednesday,
        "thursday" | "thu" => Weekday::Thursday,
        "friday" | "fri" => Weekday::Friday,
        "saturday" | "sat" => Weekday::Saturday,
        "sunday" | "sun" => Weekday::Sunday,
        _ => return None,
    })
}

/// `2h30min`, `2.days`, `1.week.2.days.ago`: numbers and units in turn, with a separator between any of them
/// or none.
fn read_duration(text: &str) -> Result<Span, Why> {
    let mut span = Span::new();
    let mut units = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (count, behind) = split(rest, |byte| byte.is_ascii_digit());
        let behind = behind.strip_prefix(SEPARATORS).unwrap_or(behind);
        let (name, behind) = split(behind, |byte| byte.is_ascii_alphabetic());
        if count.is_empty() {
            return match (name, behind, rest.starts_with("ago")) {
                ("ago", "", true) => Ok(span),
                _ => Err(Why::Expected {
                    wanted: "a number and its unit, or `ago` at the end",
                    found: rest.to_owned(),
                }),
            };
        }
        let unit = unit(name, count, behind)?;
        if units.contains(&unit) {
            return Err(Why::UnitTwice { unit: name.to_owned() });
        }
        units.push(unit);
        span = add(span, unit, count.parse().map_err(|_| Why::OutOfRange)?)?;
        rest = match behind.strip_prefix(SEPARATORS) {
            Some("") => return Err(Why::Expected { wanted: "the end", found: behind.to_owned() }),
            Some(next) => next,
            None => behind,
        };
    }
    Ok(span)
}

/// The bytes of a kind at the start, and the rest.
fn split(text: &str, kind: impl Fn(&u8) -> bool) -> (&str, &str) {
    text.split_at(text.bytes().take_while(kind).count())
}

fn unit(name: &str, count: &str, behind: &str) -> Result<Unit, Why> {
    Ok(match name {
        "ns" | "nsec" | "nanosecond" | "nanoseconds" => Unit::Nanosecond,
        "us" | "usec" | "microsecond" | "microseconds" => Unit::Microsecond,
        "ms" | "msec" | "millisecond" | "milliseconds" => Unit::Millisecond,
        "s" | "sec" | "secs" | "second" | "seconds" => Unit::Second,
        "min" | "mins" | "minute" | "minutes" => Unit::Minute,
        "h" | "hr" | "hrs" | "hour" | "hours" => Unit::Hour,
        "d" | "day" | "days" => Unit::Day,
        "w" | "week" | "weeks" => Unit::Week,
        "mo" | "mon" | "month" | "months" => Unit::Month,
        "y" | "yr" | "yrs" | "year" | "years" => Unit::Year,
        "m" => return Err(Why::MinuteOrMonth { count: count.to_owned() }),
        "" if behind.is_empty() || behind.starts_with(|next: char| next.is_ascii_digit()) => {
            return Err(Why::NoUnit { count: count.to_owned() })
        }
        "" => return Err(Why::UnknownUnit { unit: behind.to_owned() }),
        _ => return Err(Why::UnknownUnit { unit: name.to_owned() }),
    })
}

fn add(span: Span, unit: Unit, count: i64) -> Result<Span, Why> {
    let sum = match unit {
        Unit::Year => span.try_years(count),
        Unit::Month => span.try_months(count),
        Unit::Week => span.try_weeks(count),
        Unit::Day => span.try_days(count),
        Unit::Hour => span.try_hours(count),
        Unit::Minute => span.try_minutes(count),
        Unit::Second => span.try_seconds(count),
        Unit::Millisecond => span.try_milliseconds(count),
        Unit::Microsecond => span.try_microseconds(count),
        Unit::Nanosecond => span.try_nanoseconds(count),
    };
    sum.map_err(|_| Why::OutOfRange)
}
