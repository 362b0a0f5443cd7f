//! The grammar of TIME in `name@TIME`: what people, shells, scripts and Samba write behind an `@`, and how Yore writes
//! times itself.
//!
//! **A time names a stretch, and means its end.** `2026-11-20` is a day, `2026-11-20_14.05` a minute, `1057845484` a
//! second; each means the last nanosecond of what it names, so that nothing done within it is left out. A text that
//! leaves nothing open is an instant and means just that: `now`, and durations, which count back from it.
//!
//! **What looks like a time is never the name of a snapshot.** `begins_like_a_time` decides that by how a text begins
//! (and by `ago` at its end), for both who reads times and who names snapshots. So a mistyped time is an error and not
//! a snapshot that nobody made, a snapshot's name can never hide a time, and forms added later hide no snapshot made
//! today, as long as they begin like one of these.
//!
//! **What can be read in two ways is refused**, with the ways out: `5m` (minutes or months), `2026` and `20261120`
//! (dates or seconds since 1970).
//!
//! **Local time has gaps and repetitions.** When clocks are put back, a local time names two stretches, and its end is
//! that of the later one. When they are put forward, some times name nothing and are refused; of a stretch that exists
//! in part, the end is where the gap begins (`point.rs`). [`print()`] writes the offset where local time is ambiguous.
//!
//! **What counts snapshots is no time.** `last`, `-1` and `-2` mean the last snapshot and the one before it, of those that show
//! what is asked for. Which these are only a volume knows.
//!
//! This module knows nothing of volumes, and no clock: the present and the time zone are arguments. `point.rs` reads
//! dates and numbers, `back.rs` what counts back from the present, `print.rs` writes. A form is added in one of the
//! two readers, in `FORMS` or `WORDS`, in docs/TIME.md, and in the table of `tests.rs`.

mod back;
mod point;
mod print;
#[cfg(test)]
mod tests;

pub use jiff::tz::TimeZone;
pub use print::{print, print_gmt};

use std::num::NonZeroU32;
use yore_format::Timestamp;

/// Most bytes of a snapshot's name.
pub const SNAPSHOT_NAME_MAX: usize = yore_format::CUT_NAME_MAX;

/// What is accepted where only a duration fits, as error messages say it.
const DURATIONS: &str =
    "whole numbers, each with a unit (ms, s, min, h, d, w, mon, y, and their names), as 90s, 2h30min, 3days, 1w or 2y";

/// What is accepted, as error messages say it.
const FORMS: &str =
    "2026-11-20, 2026-11-20_14.05, 2026-11-20T14:05:30+01:00, 1057845484 (seconds since 1970), \
     2h30min, 3days, 2.days.ago, yesterday, monday, now, last (the last snapshot, as -1), -2 (the one before), \
     GMT-2026.11.20-14.05.00, or the name of a snapshot";

/// The furthest back that snapshots are counted. Finding one takes time for each snapshot that is counted, and everybody may ask.
const COUNT_MAX: u32 = 9999;

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// What stands behind an `@`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum When {
    /// The last nanosecond of what was named: a time written with less precision means the end of what it names.
    /// May lie in the future, which means the last snapshot of all.
    At(Timestamp),
    /// No time: the last snapshot (1), the one before it (2), and so on, of those that show what is asked for. Points that
    /// something can be undone by are not counted.
    Last(NonZeroU32),
    /// No time: the name of a snapshot, one that [`check_snapshot_name`] allows.
    Named(String),
}

/// Why a text is neither a time nor the name of a snapshot, or not allowed as such a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeError {
    /// What was read, as it was written.
    pub text: String,
    /// Why it is refused.
    pub why: Why,
}

/// The reasons of a [`TimeError`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// Digits without separators that are as many as those of a year, month, day or minute.
    #[error(
        "that may be a date or seconds since 1970: write a date as 2026-11 or 2026-11-20, \
         and seconds with a second @, as name@@{digits}"
    )]
    DateOrSeconds {
        /// What was written, without an `@`.
        digits: String,
    },
    /// Seconds beyond the year 9999 that were not marked as seconds.
    #[error("as seconds since 1970 that is beyond the year 9999: are these milliseconds, or a date without separators?")]
    TooManySeconds,
    /// More than 9,999 snapshots back.
    #[error(
        "snapshots are counted back to -{COUNT_MAX}: name an earlier one by its time; \
         seconds before 1970 are written with a second @, as name@@-{}",
        shown(digits)
    )]
    TooFarBack {
        /// What was written, without the sign.
        digits: String,
    },
    /// Beyond what can be computed with: the years -9999 to 9999, or a 64-bit number.
    #[error("that is further away than times can be written (the years 0000 to 9999)")]
    OutOfRange,
    /// A bare `m` as a unit.
    #[error("`m` may be minutes or months: write {0}min or {0}mon", shown(count))]
    MinuteOrMonth {
        /// The number before it.
        count: String,
    },
    /// A number that nothing follows.
    #[error("{} of what? Units are ms, s, min, h, d, w, mon, y (and their names)", shown(count))]
    NoUnit {
        /// The number.
        count: String,
    },
    /// A unit that is none.
    #[error("`{}` is no unit of time: units are ms, s, min, h, d, w, mon, y (and their names)", shown(unit))]
    UnknownUnit {
        /// What stands behind the number.
        unit: String,
    },
    /// One unit twice in a duration.
    #[error("the unit `{unit}` is there twice")]
    UnitTwice {
        /// The second one.
        unit: String,
    },
    /// Something else stands where the grammar wants this.
    #[error("expected {wanted}, found {}", if found.is_empty() { "the end".into() } else { format!("`{}`", shown(found)) })]
    Expected {
        /// What is missing.
        wanted: &'static str,
        /// What is there, up to the end.
        found: String,
    },
    /// February 30, month 13, hour 24.
    #[error("there is no such {what}")]
    NoSuch {
        /// "day", "time of day" or "offset".
        what: &'static str,
    },
    /// A local time that was left out when clocks were put forward.
    #[error("the clocks were put forward over that time, so it never was; with an offset (+01:00) or Z it can be named")]
    InGap,
    /// More than nine digits of a second.
    #[error("a second has nine digits behind the point at most (nanoseconds)")]
    TooFine,
    /// Begins like a time, but is none.
    #[error("{hint}")]
    NoTime {
        /// What is wrong with it.
        hint: &'static str,
    },
    /// No duration, where only one fits.
    #[error("{why}")]
    NoDuration {
        /// What is wrong with it.
        why: Box<Why>,
    },
    /// Not allowed as the name of a snapshot.
    #[error("{rule}")]
    BadName {
        /// The rule against it.
        rule: &'static str,
    },
}

impl std::error::Error for TimeError {}

impl std::fmt::Display for TimeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = shown(&self.text);
        match self.why {
            Why::BadName { .. } => {
                write!(f, "`{text}` cannot be the name of a snapshot: {}", self.why)
            }
            Why::NoDuration { .. } => {
                write!(f, "`{text}` is not understood as a duration: {}. Accepted are {DURATIONS}", self.why)
            }
            _ => write!(f, "`{text}` is not understood as a time: {}. Accepted are {FORMS}", self.why),
        }
    }
}

/// The first characters of a text, such that they can be printed.
fn shown(text: &str) -> String {
    const MOST: usize = 80;
    let more = if text.chars().nth(MOST).is_some() { "..." } else { "" };
    text.chars().take(MOST).flat_map(char::escape_debug).chain(more.chars()).collect()
}

/// Reads what stands behind an `@`.
///
/// `now` is the present, from which durations and days count back; `zone` is for times without an offset. The whole
/// grammar is in docs/TIME.md. Upper and lower case are the same, but for names. O(bytes).
///
/// # Errors
/// What begins like a time and is none, or none that was; what can be read in two ways; and what is no snapshot's
/// name either, by the rules of [`check_snapshot_name`].
///
/// ```
/// use yore_fs::time::{parse, TimeZone, When};
/// use yore_fs::Timestamp;
///
/// let now = Timestamp { seconds: 1_795_183_530, nanos: 0 }; // 2026-11-20 14:05:30 UTC
/// let at = |text: &str| parse(text, now, &TimeZone::UTC);
/// let end_of = |seconds| Ok(When::At(Timestamp { seconds, nanos: 999_999_999 }));
///
/// assert_eq!(at("1057845484"), end_of(1_057_845_484));
/// assert_eq!(at("2026-11-20_14.05"), end_of(1_795_183_559));
/// assert_eq!(at("2026-11-20T15:05+01:00"), end_of(1_795_183_559));
/// assert_eq!(at("yesterday"), end_of(1_795_132_799));
/// assert_eq!(at("2h30min"), Ok(When::At(Timestamp { seconds: 1_795_183_530 - 9000, nanos: 0 })));
/// assert_eq!(at("last"), at("-1"));
/// assert!(matches!(at("-2"), Ok(When::Last(n)) if n.get() == 2));
/// assert_eq!(at("before-upgrade"), Ok(When::Named("before-upgrade".into())));
/// assert!(at("5m").unwrap_err().to_string().contains("5min or 5mon"));
/// ```
pub fn parse(text: &str, now: Timestamp, zone: &TimeZone) -> Result<When, TimeError> {
    read(text, now, zone, |stretch| stretch.end)
}

/// As [`parse()`], but a time means where what it names begins: for what is *before* a time.
///
/// # Errors
/// As [`parse()`].
///
/// ```
/// use yore_fs::time::{parse_begin, TimeZone, When};
/// use yore_fs::Timestamp;
///
/// let now = Timestamp { seconds: 1_795_183_530, nanos: 0 }; // 2026-11-20 14:05:30 UTC
/// let begin = parse_begin("2026-11-20", now, &TimeZone::UTC);
/// assert_eq!(begin, Ok(When::At(Timestamp { seconds: 1_795_132_800, nanos: 0 })));
/// ```
pub fn parse_begin(text: &str, now: Timestamp, zone: &TimeZone) -> Result<When, TimeError> {
    read(text, now, zone, |stretch| stretch.begin)
}

/// The time so long before `now`, of durations alone: `2h30min`, `3days`, `2.weeks`.
///
/// # Errors
/// What is no duration, and what is too long.
///
/// ```
/// use yore_fs::time::{parse_ago, TimeZone};
/// use yore_fs::Timestamp;
///
/// let now = Timestamp { seconds: 1_795_183_530, nanos: 0 };
/// let then = parse_ago("2h30min", now, &TimeZone::UTC);
/// assert_eq!(then, Ok(Timestamp { seconds: 1_795_183_530 - 9000, nanos: 0 }));
/// assert!(parse_ago("yesterday", now, &TimeZone::UTC).is_err());
/// ```
pub fn parse_ago(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Timestamp, TimeError> {
    let lower = text.to_ascii_lowercase();
    let is_duration = lower.starts_with(|first: char| first.is_ascii_digit()) && !point::is_point(&lower);
    let read = match is_duration {
        true => back::read(&lower, now, zone).map(|stretch| stretch.begin),
        false => Err(Why::NoTime { hint: "here a duration is wanted" }),
    };
    read.map_err(|why| TimeError { text: text.to_owned(), why: Why::NoDuration { why: Box::new(why) } })
}

/// What a text names, from its first to its last nanosecond.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    begin: Timestamp,
    end: Timestamp,
}

impl Stretch {
    fn instant(at: Timestamp) -> Stretch {
        Stretch { begin: at, end: at }
    }
}

fn read(
    text: &str,
    now: Timestamp,
    zone: &TimeZone,
    meant: fn(Stretch) -> Timestamp,
) -> Result<When, TimeError> {
    let refused = |why| TimeError { text: text.to_owned(), why };
    if !begins_like_a_time(text) {
        return match name_rule(text) {
            None => Ok(When::Named(text.to_owned())),
            Some(hint) => Err(refused(Why::NoTime { hint })),
        };
    }
    let lower = text.to_ascii_lowercase();
    if let Some(count) = read_count(&lower) {
        return count.map(When::Last).map_err(refused);
    }
    let read =
        if point::is_point(&lower) { point::read(&lower, zone) } else { back::read(&lower, now, zone) };
    read.map(|stretch| When::At(meant(stretch))).map_err(refused)
}

/// `last`, `-1`, `-2`: a snapshot, counted from the last one. `None`: it is no such text.
fn read_count(text: &str) -> Option<Result<NonZeroU32, Why>> {
    if text == "last" {
        return Some(Ok(NonZeroU32::MIN));
    }
    let digits = text.strip_prefix('-').filter(|digits| !digits.is_empty())?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return Some(Err(Why::NoTime {
            hint: "snapshots are counted from -1, the last one; the present has no @",
        }));
    }
    let count = significant.parse().ok().filter(|count: &NonZeroU32| count.get() <= COUNT_MAX);
    Some(count.ok_or(Why::TooFarBack { digits: digits.to_owned() }))
}

/// A time of the volume as `jiff` has it; `None` outside the years −9999 to 9999.
pub fn instant(time: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::new(time.seconds, i32::try_from(time.nanos).ok()?).ok()
}

/// Whether a snapshot may have this name: 1 to 255 bytes of UTF-8, without `/`, `@` and control characters, without
/// blanks at its ends, and nothing that could be taken for a time. That is what begins with a digit or one of `-+.`,
/// with `gmt-` or a word such as `yesterday` or `monday` (as a whole word, up to a `.`, `_` or blank, or the end),
/// and what ends in the word `ago`.
///
/// # Errors
/// The rule that forbids it.
///
/// ```
/// use yore_fs::time::check_snapshot_name;
///
/// check_snapshot_name("before-upgrade").unwrap();
/// check_snapshot_name("mondays").unwrap();
/// assert!(check_snapshot_name("Monday").is_err());
/// assert!(check_snapshot_name("2nd-try").is_err());
/// assert!(check_snapshot_name("a/b").is_err());
/// ```
pub fn check_snapshot_name(name: &str) -> Result<(), TimeError> {
    let rule = name_rule(name).or_else(|| begins_like_a_time(name).then_some(
        "it could be taken for a time. Names begin with none of 0-9 - + . and not with `gmt-`, `now`, `today`, \
         `yesterday`, `tomorrow`, `noon`, `midnight`, a day of the week or `last`, and do not end in `ago`",
    ));
    rule.map_or(Ok(()), |rule| Err(TimeError { text: name.to_owned(), why: Why::BadName { rule } }))
}

/// The rule that a name breaks whatever it looks like.
fn name_rule(name: &str) -> Option<&'static str> {
    let rules = [
        (name.is_empty(), "it is empty"),
        (name.len() > SNAPSHOT_NAME_MAX, "names of snapshots have at most 255 bytes"),
        (name.contains(['/', '@']), "names of snapshots contain neither `/` nor `@`"),
        (name.chars().any(char::is_control), "names of snapshots contain no control characters"),
        (name.trim() != name, "names of snapshots neither begin nor end with a blank"),
    ];
    rules.into_iter().find_map(|(broken, rule)| broken.then_some(rule))
}

/// Whether a text is to be read as a time and nothing else.
fn begins_like_a_time(text: &str) -> bool {
    let first = |c: char| c.is_ascii_digit() || "-+.@".contains(c);
    text.starts_with(first) || starts_with_gmt(text) || back::begins_with_word(&text.to_ascii_lowercase())
}

/// Whether this begins in Samba's manner.
fn starts_with_gmt(text: &str) -> bool {
    text.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("gmt-"))
}

/// Nanoseconds since 1970. Any [`Timestamp`] has room here.
pub(crate) fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.seconds) * NANOS_PER_SECOND + i128::from(time.nanos)
}

/// The inverse of [`nanoseconds`], for what a [`Timestamp`] can hold.
fn from_nanoseconds(nanoseconds: i128) -> Result<Timestamp, Why> {
    let seconds = i64::try_from(nanoseconds.div_euclid(NANOS_PER_SECOND)).map_err(|_| Why::OutOfRange)?;
    Ok(Timestamp { seconds, nanos: nanoseconds.rem_euclid(NANOS_PER_SECOND) as u32 })
}
