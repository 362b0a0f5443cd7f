//! Which texts are times, which count snapshots, which are names of snapshots, and which are errors.

use super::*;

/// These begin like times.
const NO_TIMES: &[&str] = &[
    "2.",
    "1057845484.",
    "1057845484.x",
    "1057845484.1234567890",
    "2026-",
    "2026-1",
    "2026-11-",
    "2026-11-2",
    "2026-11-20T",
    "2026-11-20T1",
    "2026-11-20T14:",
    "2026-11-20T14:5",
    "2026-11-20T14:05.30",
    "2026-11-20T14.05:30",
    "2026-11-20T14:05.5",
    "2026-11-20T1405.30",
    "2026-11-20T14:05:30.",
    "2026-11-20T14:05:30.1234567890",
    "2026-11-20T14:05 ",
    "2026-11-20T14:05+1",
    "2026-11-20T14:05+01:",
    "2026-11-20T14:05+01:00x",
    "2026-11-20T14:05[Europe/Berlin]",
    "2026-11-20+01:00",
    "2026-11-20-14",
    "2026-11-20x",
    "2026-W47",
    "2026-324",
    "2026-1120",
    "20261120T",
    "20261120T1",
    "20261120T140",
    "11/20/2026",
    "20.11.2026",
    "14:05",
    "1.5h",
    "2h30",
    "2h2h",
    "2hours1h",
    "5parsecs",
    "5µs",
    "2.days.",
    "2..days",
    "2.days.ago.",
    "2.days.ago.3",
    "2daysago",
    "-2d",
    "+2d",
    "+5",
    "-",
    "-x",
    "+",
    ".",
    "..",
    ".hidden",
    "@",
    "@@1057845484",
    "@yesterday",
    "@2d",
    "@2026-11-20",
    "@ü",
    "yesterday.14.05",
    "today_",
    "now.",
    "monday_release",
    "sun.backup",
    "last.",
    "last.week",
    "last.one",
    "noon",
    "midnight",
    "tomorrow",
    "two.weeks.ago",
    "ago",
    "long ago",
    "١٢",
    " 2026-11-20",
    "\t",
    "5 ",
    "２０２６",
];

#[test]
fn what_begins_like_a_time_but_is_none_is_an_error_and_never_a_name() {
    for &text in NO_TIMES {
        match read(text, &TimeZone::UTC) {
            // Digits of other scripts are letters here.
            Ok(When::Named(name)) => assert!(["١٢", "２０２６"].contains(&&*name), "{text:?} became a name"),
            Ok(when) => panic!("{text:?} became {when:?}"),
            Err(error) => assert_eq!(error.text, text),
        }
    }
}

/// `last` and `-N` count snapshots, and are never seconds, dates or names. `-1` was the last second before
/// 1970, and `last` a name.
#[test]
fn snapshots_are_counted_from_the_last() {
    let last = |n| Ok(When::Last(std::num::NonZeroU32::new(n).unwrap()));
    for (text, n) in
        [("last", 1), ("LAST", 1), ("-1", 1), ("-01", 1), ("-2", 2), ("-2026", 2026), ("-9999", 9999)]
    {
        assert_eq!(read(text, &TimeZone::UTC), last(n), "{text}");
        assert_eq!(parse_begin(text, utc(NOW), &TimeZone::UTC), last(n), "{text}");
        assert!(parse_ago(text, utc(NOW), &TimeZone::UTC).is_err(), "{text} is no duration");
    }
    for (text, hint) in [
        ("-0", "counted from -1"),
        ("-000", "counted from -1"),
        ("-10000", "name@@-10000"),
        ("-1057845484", "name@@-1057845484"),
        ("-99999999999999999999999", "counted back to -9999"),
        ("-1.5", "name@@-86400"),
        ("-1,5", "name@@-86400"),
        ("-", "whole number"),
        ("-1d", "without a sign"),
        ("last.2", "day of the week"),
        ("last_", "day of the week"),
        ("last-", ""),
    ] {
        match read(text, &TimeZone::UTC) {
            Err(error) => assert!(error.to_string().contains(hint), "{text}: {error}"),
            Ok(when) => assert_eq!((text, when), ("last-", When::Named("last-".into()))),
        }
    }
}

#[test]
fn anything_else_is_the_name_of_a_snapshot() {
    let longest = "x".repeat(255);
    let names = [
        "before-upgrade",
        "v1.0",
        "mondays",
        "nowhere",
        "lasting",
        "last-good",
        "friday-release",
        "Größe",
        "a b",
    ];
    for name in names.into_iter().chain(["gmt", "x2026-11-20", "agony", &longest]) {
        assert_eq!(read(name, &TimeZone::UTC), Ok(When::Named(name.into())));
        check_snapshot_name(name).unwrap();
    }
}

#[test]
fn names_of_snapshots_that_could_be_times_are_refused_with_the_rule() {
    let too_long = "ü".repeat(128);
    for (name, rule) in [
        ("", "empty"),
        (&*too_long, "255 bytes"),
        ("a/b", "neither `/` nor `@`"),
        ("a@b", "neither `/` nor `@`"),
        ("a\0", "control"),
        ("a\nb", "control"),
        (" a", "blank"),
        ("a ", "blank"),
        ("2nd", "taken for a time"),
        ("-x", "taken for a time"),
        ("+x", "taken for a time"),
        (".x", "taken for a time"),
        ("Now", "taken for a time"),
        ("noon", "taken for a time"),
        ("YESTERDAY", "taken for a time"),
        ("sun", "taken for a time"),
        ("monday_release", "taken for a time"),
        ("last", "taken for a time"),
        ("last.good", "taken for a time"),
        ("-1", "taken for a time"),
        ("GMT-zone", "taken for a time"),
        ("years.ago", "taken for a time"),
    ] {
        let error = check_snapshot_name(name).expect_err(name).to_string();
        assert!(error.contains("cannot be the name of a snapshot") && error.contains(rule), "{error}");
    }
}
