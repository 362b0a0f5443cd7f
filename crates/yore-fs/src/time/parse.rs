//! Reading: which of the readers a text is for, and which texts may be names of snapshots.

use super::point::starts_with_gmt;
use super::stretch::Stretch;
use super::why::{TimeError, Why, COUNT_MAX};
use super::{back, point};
use jiff::tz::TimeZone;
use std::num::NonZeroU32;
use yore_format::Timestamp;

/// Most bytes of a snapshot's name.
pub const SNAPSHOT_NAME_MAX: usize = yore_format::EVENT_NAME_MAX;

/// What stands behind an `@`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum When {
    /// The last nanosecond of what was named: a time written with less precision means the end of what it
    /// names. May lie in the future, which means the last snapshot of all.
    At(Timestamp),
    /// No time: the last snapshot (1), the one before it (2), and so on, of those that show what is asked
    /// for. Points that something can be undone by are not counted.
    Last(NonZeroU32),
    /// No time: the name of a snapshot, one that [`check_snapshot_name`] allows.
    Named(String),
}

/// Reads what stands behind an `@`.
///
/// `now` is the present, from which durations and days count back; `zone` is for times without an offset. The
/// whole grammar is in docs/TIME.md. Upper and lower case are the same, but for names. O(bytes).
///
/// # Errors
/// What begins like a time and is none, or none that was; what can be read in two ways; and what is no
/// snapshot's name either, by the rules of [`check_snapshot_name`].
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

fn read(
    text: &str,
    now: Timestamp,
    zone: &TimeZone,
    to_time: fn(Stretch) -> Timestamp,
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
    read.map(|stretch| When::At(to_time(stretch))).map_err(refused)
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

/// Whether a snapshot may have this name: 1 to 255 bytes of UTF-8, without `/`, `@` and control characters,
/// without blanks at its ends, and nothing that could be taken for a time. That is what begins with a digit
/// or one of `-+.`, with `gmt-` or a word such as `yesterday` or `monday` (as a whole word, up to a `.`, `_`
/// or blank, or the end), and what ends in the word `ago`.
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
