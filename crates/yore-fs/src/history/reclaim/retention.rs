//! Which snapshots of one directory are kept: rules over their times, names and holds, and nothing else.
//!
//! **The rules add up.** A snapshot is kept if any rule keeps it; the answer says which. For each hour, day,
//! week, month or year the rules keep the last snapshot, for as many of the latest such periods as the user
//! asks for. Periods without a snapshot do not count, so after a holiday there are still seven daily ones. A
//! duration counts back from the last snapshot, not from now: a directory that gets no new snapshots loses
//! none.
//!
//! **Periods are local**, and weeks begin on Monday (ISO 8601). The hour that comes twice when clocks are put
//! back counts as two hours.
//!
//! Snapshots that somebody named, holds or has mounted are kept whatever the rules say (for names the caller
//! can choose otherwise). They count in their periods like all others. Events that were taken for
//! [`crate::history::rollback`] have names that nobody gave them: they are kept for [`UNDO_DAYS`], so that
//! the operation can be undone, and then count as unnamed.

use crate::history::record::is_held;
use crate::time::{instant, parse_ago, TimeError};
use crate::Event;
use jiff::tz::TimeZone;
use yore_format::{EventKind, EventNo, EventRow, Retention, RetentionRules, Timestamp};

/// For how many days, counted back from the last snapshot, events are kept by which something can be undone.
pub const UNDO_DAYS: u32 = 30;

/// The text of a retention, as commands write and read it: `all`, or rules with commas between them.
///
/// ```
/// use yore_fs::retention::retention_text;
/// use yore_fs::{RetentionRules, Retention};
///
/// let rules = RetentionRules { daily: 7, monthly: RetentionRules::ALL, within: "2h".into(), ..RetentionRules::default() };
/// assert_eq!(retention_text(&Retention::Rules(rules)), "daily:7,monthly:all,within:2h");
/// assert_eq!(retention_text(&Retention::Everything), "all");
/// ```
pub fn retention_text(retention: &Retention) -> String {
    let Retention::Rules(rules) = retention else { return "all".into() };
    let counts = [
        ("last", rules.last),
        ("hourly", rules.hourly),
        ("daily", rules.daily),
        ("weekly", rules.weekly),
        ("monthly", rules.monthly),
        ("yearly", rules.yearly),
    ];
    let counts = counts.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| match n {
        RetentionRules::ALL => format!("{name}:all"),
        n => format!("{name}:{n}"),
    });
    let within = (!rules.within.is_empty()).then(|| format!("within:{}", rules.within));
    counts.chain(within).collect::<Vec<_>>().join(",")
}

/// What the rules know of a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Taken<'a> {
    /// Its place in the order of all events.
    pub number: EventNo,
    /// When it was taken.
    pub time: Timestamp,
    /// Empty: it has none.
    pub name: &'a str,
    /// Whether it was taken before or after an operation that can be undone, and named for that.
    pub undo: bool,
    /// Whether somebody holds it, or the policy that it was taken under does.
    pub held: bool,
    /// Whether it is mounted by itself.
    pub mounted: bool,
}

impl<'a> Taken<'a> {
    /// The facts about an event, which may be mounted.
    pub fn of(event: &'a Event, mounted: bool) -> Taken<'a> {
        let EventRow { time, name, kind, .. } = &event.row;
        let (undo, held) = (*kind == EventKind::Undo, is_held(&event.row));
        Taken { number: event.number, time: *time, name, undo, held, mounted }
    }
}

/// Why a snapshot is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is one of the last.
    Last,
    /// The last one of its hour.
    Hourly,
    /// Of its day.
    Daily,
    /// Of its week.
    Weekly,
    /// Of its month.
    Monthly,
    /// Of its year.
    Yearly,
    /// It is not older than the duration of the rules.
    Within,
    /// It has a name that somebody gave it.
    Named,
    /// Something that was done lately can be undone by it.
    Undo,
    /// Somebody holds it.
    Held,
    /// It is mounted by itself.
    Mounted,
    /// Another user took it, and the asking user may not forget it.
    Others,
}

impl Reason {
    /// The text that lists show.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Last => "last",
            Reason::Hourly => "hourly",
            Reason::Daily => "daily",
            Reason::Weekly => "weekly",
            Reason::Monthly => "monthly",
            Reason::Yearly => "yearly",
            Reason::Within => "within",
            Reason::Named => "named",
            Reason::Undo => "undo",
            Reason::Held => "held",
            Reason::Mounted => "mounted",
            Reason::Others => "of others",
        }
    }
}

/// For each snapshot, why it is kept; one without a reason is to be forgotten. The snapshots are in ascending
/// order, as are the answers. With `names`, those that have a name, or by which something can be undone, are
/// kept only if a rule keeps them, too. A duration that is too long to compute with keeps all. O(snapshots).
///
/// # Errors
/// The duration cannot be parsed.
pub fn reasons(
    rules: &RetentionRules,
    names: bool,
    taken: &[Taken<'_>],
    zone: &TimeZone,
) -> Result<Vec<Vec<Reason>>, TimeError> {
    let mut reasons = vec![Vec::new(); taken.len()];
    for (i, of) in taken.iter().enumerate().rev().take(rules.last as usize) {
        debug_assert!(i == 0 || taken[i - 1].number < of.number, "in ascending order");
        reasons[i].push(Reason::Last);
    }
    for (reason, most, period) in [
        (Reason::Hourly, rules.hourly, "%Y-%m-%d %H %z"),
        (Reason::Daily, rules.daily, "%Y-%m-%d"),
        (Reason::Weekly, rules.weekly, "%G %V"),
        (Reason::Monthly, rules.monthly, "%Y-%m"),
        (Reason::Yearly, rules.yearly, "%Y"),
    ] {
        let (mut left, mut later) = (most, None);
        for (i, of) in taken.iter().enumerate().rev() {
            let period = period_of(of.time, period, zone);
            // A time in no year of the calendar is in a period of its own.
            if left > 0 && (period.is_none() || period != later) {
                reasons[i].push(reason);
                left -= 1;
            }
            later = period;
        }
    }
    if let Some(last) = taken.last().filter(|_| !rules.within.is_empty()) {
        let since = match parse_ago(&rules.within, last.time, zone) {
            // It reaches back beyond all times.
            Err(error) if error.is_out_of_range() => None,
            since => Some(since?),
        };
        let is_within = |time: Timestamp| since.is_none_or(|since| time >= since);
        for (reasons, _) in reasons.iter_mut().zip(taken).filter(|(_, of)| is_within(of.time)) {
            reasons.push(Reason::Within);
        }
    }
    let undo_since = match taken.last() {
        Some(last) => last.time.seconds.saturating_sub(i64::from(UNDO_DAYS) * 86_400),
        None => 0,
    };
    for (reasons, of) in reasons.iter_mut().zip(taken) {
        reasons.extend((!of.name.is_empty() && !of.undo && !names).then_some(Reason::Named));
        reasons.extend((of.undo && of.time.seconds >= undo_since && !names).then_some(Reason::Undo));
        reasons.extend(of.held.then_some(Reason::Held));
        reasons.extend(of.mounted.then_some(Reason::Mounted));
    }
    Ok(reasons)
}

/// The text that tells a period from others; `None` outside the years −9999 to 9999.
fn period_of(time: Timestamp, format: &str, zone: &TimeZone) -> Option<String> {
    Some(instant(time)?.to_zoned(zone.clone()).strftime(format).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clocks go from 02:00 to 03:00 on 2026-03-29 and from 03:00 to 02:00 on 2026-10-25.
    fn berlin() -> TimeZone {
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
    }

    /// Snapshots at these times of UTC, with a name or `held` after a blank.
    fn taken<'a>(texts: &[&'a str]) -> Vec<Taken<'a>> {
        let one = |(i, text): (usize, &&'a str)| {
            let (time, more) = text.split_once(' ').unwrap_or((text, ""));
            let time: jiff::Timestamp = time.parse().unwrap();
            Taken {
                number: EventNo(i as u64 + 1),
                time: Timestamp { seconds: time.as_second(), nanos: time.subsec_nanosecond() as u32 },
                name: if more == "held" { "" } else { more },
                undo: more.starts_with("before-") || more.starts_with("after-"),
                held: more == "held",
                mounted: false,
            }
        };
        texts.iter().enumerate().map(one).collect()
    }

    /// The reasons of each snapshot, `-` for those that are forgotten.
    fn kept((rules, names): &Asked, zone: &TimeZone, texts: &[&str]) -> Vec<String> {
        let found = reasons(rules, *names, &taken(texts), zone).unwrap();
        let text = |reasons: &Vec<Reason>| match &reasons[..] {
            [] => "-".to_string(),
            reasons => reasons.iter().map(|reason| reason.name()).collect::<Vec<_>>().join(" "),
        };
        found.iter().map(text).collect()
    }

    /// Rules, and whether they apply to named snapshots, too.
    type Asked = (RetentionRules, bool);

    fn rules() -> RetentionRules {
        RetentionRules::default()
    }

    type Case = (&'static str, Asked, &'static [&'static str], &'static [&'static str]);

    /// What each rule keeps and what it does not: the rules, times, and what becomes of them. One table,
    /// read as a whole, so it is longer than other functions.
    fn cases() -> Vec<Case> {
        vec![
            (
                "nothing is asked for",
                (rules(), false),
                &["2026-11-20T10:00Z", "2026-11-20T11:00Z"],
                &["-", "-"],
            ),
            ("there are none", (RetentionRules { last: 3, ..rules() }, false), &[], &[]),
            (
                "the last",
                (RetentionRules { last: 2, ..rules() }, false),
                &["2026-11-20T10:00Z", "2026-11-20T10:00Z", "2026-11-20T10:00:01Z"],
                &["-", "last", "last"],
            ),
            (
                "more than there are",
                (RetentionRules { last: 9, daily: 9, ..rules() }, false),
                &["2026-11-19T10:00Z", "2026-11-20T10:00Z"],
                &["last daily", "last daily"],
            ),
            (
                "hours that have one",
                (RetentionRules { hourly: 3, ..rules() }, false),
                &[
                    "2026-11-18T10:00Z",
                    "2026-11-18T10:59:59Z",
                    "2026-11-18T11:00Z",
                    "2026-11-20T10:00Z",
                    "2026-11-20T10:01Z",
                ],
                &["-", "hourly", "hourly", "-", "hourly"],
            ),
            (
                "days that have one",
                (RetentionRules { daily: 2, ..rules() }, false),
                &["2026-11-01T10:00Z", "2026-11-02T10:00Z", "2026-11-20T00:00Z", "2026-11-20T23:59:59.9Z"],
                &["-", "daily", "-", "daily"],
            ),
            (
                "weeks begin on Monday, and are one across the end of a year",
                (RetentionRules { weekly: 3, ..rules() }, false),
                // A Sunday; Monday; Thursday to Sunday of the same week, 2026-W53.
                &[
                    "2026-12-27T10:00Z",
                    "2026-12-28T10:00Z",
                    "2026-12-31T10:00Z",
                    "2027-01-03T10:00Z",
                    "2027-01-04T10:00Z",
                ],
                &["weekly", "-", "-", "weekly", "weekly"],
            ),
            (
                "months and years",
                (RetentionRules { monthly: 2, yearly: 2, ..rules() }, false),
                &[
                    "2024-05-01T00:00Z",
                    "2025-11-30T00:00Z",
                    "2026-10-01T00:00Z",
                    "2026-10-31T00:00Z",
                    "2026-11-01T00:00Z",
                ],
                &["-", "yearly", "-", "monthly", "monthly yearly"],
            ),
            (
                "the same month of another year is another",
                (RetentionRules { monthly: 2, ..rules() }, false),
                &["2025-11-20T00:00Z", "2026-11-20T00:00Z"],
                &["monthly", "monthly"],
            ),
            (
                "a duration counts from the last one, both ends included",
                (RetentionRules { within: "2d".into(), ..rules() }, false),
                &["2026-11-18T09:59:59Z", "2026-11-18T10:00Z", "2026-11-20T10:00Z"],
                &["-", "within", "within"],
            ),
            (
                "rules add up",
                (RetentionRules { last: 1, hourly: 1, daily: 2, within: "1h".into(), ..rules() }, false),
                &["2026-11-19T10:00Z", "2026-11-20T08:00Z", "2026-11-20T09:30Z", "2026-11-20T10:00Z"],
                &["daily", "-", "within", "last hourly daily within"],
            ),
            (
                "names and holds",
                (rules(), false),
                &["2026-11-18T10:00Z release", "2026-11-19T10:00Z held", "2026-11-20T10:00Z"],
                &["named", "held", "-"],
            ),
            (
                "names are no reason if that is asked for",
                (rules(), true),
                &["2026-11-18T10:00Z release", "2026-11-19T10:00Z held"],
                &["-", "held"],
            ),
            (
                "what something can be undone by, for a month",
                (RetentionRules { last: 1, ..rules() }, false),
                &[
                    "2026-10-21T09:59:59Z before-rollback-1",
                    "2026-10-21T10:00Z after-rollback-1",
                    "2026-10-21T10:00Z release",
                    "2026-11-20T10:00Z",
                ],
                &["-", "undo", "named", "last"],
            ),
            (
                "that is no reason either if it is asked for",
                (rules(), true),
                &["2026-11-20T10:00Z before-rollback-1"],
                &["-"],
            ),
            (
                "those kept anyway count in their periods",
                (RetentionRules { daily: 1, ..rules() }, false),
                &["2026-11-20T09:00Z", "2026-11-20T10:00Z release"],
                &["-", "daily named"],
            ),
        ]
    }

    #[test]
    fn each_rule_keeps_what_it_says() {
        for (what, rules, times, expected) in cases() {
            assert_eq!(kept(&rules, &TimeZone::UTC, times), *expected, "{what}");
        }
    }

    /// Days and hours are those of the clock on the wall.
    #[test]
    fn periods_are_local() {
        let two_days = ["2026-11-19T22:30:00Z", "2026-11-19T23:30:00Z"];
        let daily = (RetentionRules { daily: 5, ..rules() }, false);
        assert_eq!(kept(&daily, &berlin(), &two_days), ["daily", "daily"]);
        assert_eq!(kept(&daily, &TimeZone::UTC, &two_days), ["-", "daily"]);
        // 02:30 in summer, 02:30 and 02:45 in winter.
        let repeated = ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T01:45:00Z"];
        assert_eq!(
            kept(&(RetentionRules { hourly: 5, ..rules() }, false), &berlin(), &repeated),
            ["hourly", "-", "hourly"]
        );
        // A day of the calendar, of 25 hours.
        let within = (RetentionRules { within: "1day".into(), ..rules() }, false);
        let day = ["2026-10-24T10:30:00Z", "2026-10-24T11:00:00Z", "2026-10-25T12:00:00Z"];
        assert_eq!(kept(&within, &berlin(), &day), ["-", "within", "within"]);
    }

    /// Times beyond the calendar are kept rather than taken for one period. So is everything by a duration
    /// that reaches beyond it: one that was short enough when the policy was set can do so from an earlier
    /// snapshot, and was an error then, for which nothing on the volume was let go any more.
    #[test]
    fn times_beyond_the_calendar() {
        let far = |number, seconds| Taken {
            number: EventNo(number),
            time: Timestamp { seconds, nanos: 0 },
            name: "",
            undo: false,
            held: false,
            mounted: false,
        };
        let taken = [far(1, i64::MAX - 1), far(2, i64::MAX)];
        let daily = RetentionRules { daily: 2, ..rules() };
        let found = reasons(&daily, false, &taken, &TimeZone::UTC).unwrap();
        assert_eq!(found, [[Reason::Daily], [Reason::Daily]]);
        let endless = RetentionRules { within: "20000y".into(), ..rules() };
        for taken in [&taken[..], &[far(1, 0), far(2, 1_700_000_000)]] {
            let found = reasons(&endless, false, taken, &TimeZone::UTC).unwrap();
            assert_eq!(found, [[Reason::Within], [Reason::Within]]);
        }
        let nonsense = RetentionRules { within: "soon".into(), ..rules() };
        assert!(reasons(&nonsense, false, &taken, &TimeZone::UTC).is_err());
    }
}
