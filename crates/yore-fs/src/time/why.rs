//! Why a text is no time, in words for whoever wrote it.

/// What is accepted where only a duration fits, as error messages say it.
const DURATIONS: &str =
    "whole numbers, each with a unit (ms, s, min, h, d, w, mon, y, and their names), as 90s, 2h30min, 3days, 1w or 2y";

/// What is accepted, as error messages say it.
const FORMS: &str =
    "2026-11-20, 2026-11-20_14.05, 2026-11-20T14:05:30+01:00, 1057845484 (seconds since 1970), \
     2h30min, 3days, 2.days.ago, yesterday, monday, now, last (the last snapshot, as -1), -2 (the one before), \
     GMT-2026.11.20-14.05.00, or the name of a snapshot";

/// The furthest back that snapshots are counted. Finding one takes time for each snapshot that is counted,
/// and everybody may ask.
pub(super) const COUNT_MAX: u32 = 9999;

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

impl TimeError {
    /// Whether the text can be read, and only leads further away than times can be written.
    pub fn is_out_of_range(&self) -> bool {
        match &self.why {
            Why::NoDuration { why } => **why == Why::OutOfRange,
            why => *why == Why::OutOfRange,
        }
    }
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
