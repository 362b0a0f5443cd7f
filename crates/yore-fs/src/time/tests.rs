//! The forms one by one, against times in words of UTC; then anything at all. Zones are rules of POSIX, so
//! that no test depends on what the machine knows of the world.

use super::stretch::{from_nanoseconds, NANOS_PER_SECOND};
use super::*;
use jiff::civil::Weekday;
use jiff::{Span, Zoned};
use proptest::prelude::*;
use yore_format::Timestamp;

/// Friday, 2026-11-20 14:05:30.25 UTC.
const NOW: &str = "2026-11-20T14:05:30.25Z";

fn utc(text: &str) -> Timestamp {
    from_nanoseconds(text.parse::<jiff::Timestamp>().unwrap().as_nanosecond()).unwrap()
}

fn zone(rule: &str) -> TimeZone {
    TimeZone::posix(rule).unwrap()
}

/// Clocks go from 02:00 to 03:00 on 2026-03-29 and from 03:00 to 02:00 on 2026-10-25.
fn berlin() -> TimeZone {
    zone("CET-1CEST,M3.5.0,M10.5.0/3")
}

fn read(text: &str, zone: &TimeZone) -> Result<When, TimeError> {
    parse(text, utc(NOW), zone)
}

fn why(text: &str) -> Why {
    let error = read(text, &TimeZone::UTC).expect_err(text);
    assert_eq!(error.text, text);
    error.why
}

#[track_caller]
fn all_mean(zone: &TimeZone, table: &[(&str, &str)]) {
    for (text, expected) in table {
        assert_eq!(read(text, zone), Ok(When::At(utc(expected))), "{text:?} should be {expected}");
    }
}

#[track_caller]
fn none_was(zone: &TimeZone, texts: &[&str]) {
    for text in texts {
        assert_eq!(read(text, zone).unwrap_err().why, Why::InGap, "{text:?}");
    }
}

#[test]
fn seconds_mean_the_end_of_what_their_digits_name() {
    all_mean(
        &berlin(),
        &[
            ("1057845484", "2003-07-10T13:58:04.999999999Z"),
            ("1057845484.2", "2003-07-10T13:58:04.299999999Z"),
            ("1057845484.25", "2003-07-10T13:58:04.259999999Z"),
            ("1057845484,25", "2003-07-10T13:58:04.259999999Z"),
            ("1057845484.250000001", "2003-07-10T13:58:04.250000001Z"),
            ("@1057845484", "2003-07-10T13:58:04.999999999Z"),
            ("0", "1970-01-01T00:00:00.999999999Z"),
            ("99999", "1970-01-02T03:46:39.999999999Z"),
            ("@2026", "1970-01-01T00:33:46.999999999Z"),
            ("@20261120.5", "1970-08-23T12:05:20.599999999Z"),
            ("@-1", "1969-12-31T23:59:59.999999999Z"),
            // The digits are those of the number, so that of -0.25 comes before that of -0.24.
            ("@-0.25", "1969-12-31T23:59:59.759999999Z"),
            ("@-1.000000000", "1969-12-31T23:59:59Z"),
        ],
    );
}

#[test]
fn marked_seconds_go_as_far_as_they_can_be_kept() {
    let at = |seconds, nanos| Ok(When::At(Timestamp { seconds, nanos }));
    assert_eq!(read("@9223372036854775807", &TimeZone::UTC), at(i64::MAX, 999_999_999));
    assert_eq!(read("@-9223372036854775808", &TimeZone::UTC), at(i64::MIN, 999_999_999));
    for text in [
        "@9223372036854775808",
        "@-9223372036854775809",
        "@-9223372036854775808.5",
        "@99999999999999999999999",
    ] {
        assert_eq!(why(text), Why::OutOfRange, "{text}");
    }
    assert_eq!(
        read("253402300799", &TimeZone::UTC).unwrap_err().why,
        Why::DateOrSeconds { digits: "253402300799".into() }
    );
    assert_eq!(read("99999999999", &TimeZone::UTC), at(99_999_999_999, 999_999_999));
}

#[test]
fn milliseconds_are_not_taken_for_seconds() {
    for text in ["1057845484000", "20261120140530", "1057845484000000000", "99999999999999999999999"] {
        assert_eq!(why(text), Why::TooManySeconds, "{text}");
    }
}

#[test]
fn digits_that_may_be_a_date_are_refused() {
    for text in ["2026", "1000", "202611", "20261120", "202611201405", "2026.11", "20261120.1405"] {
        assert_eq!(why(text), Why::DateOrSeconds { digits: text.into() });
    }
    let message = read("2026", &TimeZone::UTC).unwrap_err().to_string();
    assert!(message.contains("2026-11-20") && message.contains("name@@2026"), "{message}");
}

#[test]
fn dates_and_times_of_day_mean_their_end() {
    all_mean(
        &TimeZone::UTC,
        &[
            ("2026-11", "2026-11-30T23:59:59.999999999Z"),
            ("2028-02", "2028-02-29T23:59:59.999999999Z"),
            ("2026-11-20", "2026-11-20T23:59:59.999999999Z"),
            ("2026-11-20T14", "2026-11-20T14:59:59.999999999Z"),
            ("2026-11-20T14:05", "2026-11-20T14:05:59.999999999Z"),
            ("2026-11-20T14:05:30", "2026-11-20T14:05:30.999999999Z"),
            ("2026-11-20T14:05:30.25", "2026-11-20T14:05:30.259999999Z"),
            ("2026-11-20T14:05:30,25", "2026-11-20T14:05:30.259999999Z"),
            ("2026-11-20T14:05:30.123456789", "2026-11-20T14:05:30.123456789Z"),
            ("2026-11-20 14:05", "2026-11-20T14:05:59.999999999Z"),
            ("2026-11-20_14:05", "2026-11-20T14:05:59.999999999Z"),
            ("2026-11-20t14:05z", "2026-11-20T14:05:59.999999999Z"),
            // Without colons.
            ("2026-11-20_14", "2026-11-20T14:59:59.999999999Z"),
            ("2026-11-20_14.05", "2026-11-20T14:05:59.999999999Z"),
            ("2026-11-20_14.05.30", "2026-11-20T14:05:30.999999999Z"),
            ("2026-11-20_14.05.30.25", "2026-11-20T14:05:30.259999999Z"),
            ("2026-11-20T14.05", "2026-11-20T14:05:59.999999999Z"),
            ("2026-11-20_1405", "2026-11-20T14:05:59.999999999Z"),
            // The basic form of ISO 8601.
            ("20261120T14", "2026-11-20T14:59:59.999999999Z"),
            ("20261120T1405", "2026-11-20T14:05:59.999999999Z"),
            ("20261120T140530.25Z", "2026-11-20T14:05:30.259999999Z"),
            ("20261120_140530", "2026-11-20T14:05:30.999999999Z"),
            ("20261120 14:05", "2026-11-20T14:05:59.999999999Z"),
            // The future is allowed.
            ("2999-01-01", "2999-01-01T23:59:59.999999999Z"),
        ],
    );
}

#[test]
fn times_are_of_the_zone_unless_they_have_an_offset() {
    all_mean(
        &berlin(),
        &[
            ("2026-11", "2026-11-30T22:59:59.999999999Z"),
            ("2026-11Z", "2026-11-30T23:59:59.999999999Z"),
            ("2026-07-20", "2026-07-20T21:59:59.999999999Z"),
            ("2026-07-20z", "2026-07-20T23:59:59.999999999Z"),
            ("2026-11-20_14.05", "2026-11-20T13:05:59.999999999Z"),
            ("2026-11-20_14.05Z", "2026-11-20T14:05:59.999999999Z"),
            ("2026-11-20T14Z", "2026-11-20T14:59:59.999999999Z"),
            ("2026-11-20T14+05", "2026-11-20T09:59:59.999999999Z"),
            ("2026-11-20T14-05", "2026-11-20T19:59:59.999999999Z"),
            ("2026-11-20_14.05+0530", "2026-11-20T08:35:59.999999999Z"),
            ("2026-11-20T14:05:30.25-05:30", "2026-11-20T19:35:30.259999999Z"),
            // As stat(1) and ls(1) write it.
            ("2026-11-20 14:05:30.250000000 +0100", "2026-11-20T13:05:30.25Z"),
            ("2026-11-20 14:05 Z", "2026-11-20T14:05:59.999999999Z"),
        ],
    );
}

#[test]
fn samba_writes_utc_to_the_second() {
    let expected = "2026-11-20T14:05:00.999999999Z";
    all_mean(
        &berlin(),
        &[
            ("GMT-2026.11.20-14.05.00", expected),
            ("gmt-2026.11.20-14.05.00", expected),
            ("@GMT-2026.11.20-14.05.00", expected),
        ],
    );
    assert_eq!(print_gmt(utc(expected)), "GMT-2026.11.20-14.05.00");
    for text in ["GMT-2026.11.20", "gmt-", "GMT-2026-11-20_14.05", "GMT-2026.11.20-14.05.00.5", "GMT-before"]
    {
        assert!(matches!(why(text), Why::Expected { .. }), "{text}");
    }
    assert_eq!(why("GMT-2026.02.30-14.05.00"), Why::NoSuch { what: "day" });
}

#[test]
fn durations_are_instants() {
    all_mean(
        &TimeZone::UTC,
        &[
            ("now", NOW),
            ("0s", NOW),
            ("90s", "2026-11-20T14:04:00.25Z"),
            ("90sec", "2026-11-20T14:04:00.25Z"),
            ("90seconds", "2026-11-20T14:04:00.25Z"),
            ("1second", "2026-11-20T14:05:29.25Z"),
            ("250ms", "2026-11-20T14:05:30Z"),
            ("250milliseconds", "2026-11-20T14:05:30Z"),
            ("1us", "2026-11-20T14:05:30.249999Z"),
            ("1ns", "2026-11-20T14:05:30.249999999Z"),
            ("5min", "2026-11-20T14:00:30.25Z"),
            ("5minutes", "2026-11-20T14:00:30.25Z"),
            ("1minute", "2026-11-20T14:04:30.25Z"),
            ("2h", "2026-11-20T12:05:30.25Z"),
            ("2hours", "2026-11-20T12:05:30.25Z"),
            ("2h30min", "2026-11-20T11:35:30.25Z"),
            ("30min2h", "2026-11-20T11:35:30.25Z"),
            ("2h 30min", "2026-11-20T11:35:30.25Z"),
            ("3d", "2026-11-17T14:05:30.25Z"),
            ("3days", "2026-11-17T14:05:30.25Z"),
            ("1w", "2026-11-13T14:05:30.25Z"),
            ("2weeks", "2026-11-06T14:05:30.25Z"),
            ("1mon", "2026-10-20T14:05:30.25Z"),
            ("1month", "2026-10-20T14:05:30.25Z"),
            ("1months", "2026-10-20T14:05:30.25Z"),
            ("2y", "2024-11-20T14:05:30.25Z"),
            ("2years", "2024-11-20T14:05:30.25Z"),
            ("1y2mon3w4d5h6min7s", "2025-08-26T08:59:23.25Z"),
            // Of git.
            ("2.days.ago", "2026-11-18T14:05:30.25Z"),
            ("1.week.2.days.ago", "2026-11-11T14:05:30.25Z"),
            ("2 days ago", "2026-11-18T14:05:30.25Z"),
            ("2_days_ago", "2026-11-18T14:05:30.25Z"),
            ("2days.ago", "2026-11-18T14:05:30.25Z"),
            ("2.days", "2026-11-18T14:05:30.25Z"),
            ("3DAYS", "2026-11-17T14:05:30.25Z"),
            ("2.Days.Ago", "2026-11-18T14:05:30.25Z"),
        ],
    );
}

#[test]
fn units_have_short_and_long_names() {
    for names in [
        "ns nsec nanosecond nanoseconds",
        "us usec microsecond microseconds",
        "ms msec millisecond milliseconds",
        "s sec secs second seconds",
        "min mins minute minutes",
        "h hr hrs hour hours",
        "d day days",
        "w week weeks",
        "mo mon month months",
        "y yr yrs year years",
    ] {
        let read = |name: &str| read(&format!("7{name}"), &TimeZone::UTC).unwrap();
        let first = read(names.split(' ').next().unwrap());
        assert!(
            names.split(' ').all(|name| read(name) == first && read(&name.to_uppercase()) == first),
            "{names}"
        );
    }
}

#[test]
fn a_month_is_clamped_to_the_end_of_the_shorter_one() {
    let back = |text, now| parse(text, utc(now), &TimeZone::UTC);
    assert_eq!(back("1month", "2026-03-31T12:00:00Z"), Ok(When::At(utc("2026-02-28T12:00:00Z"))));
    assert_eq!(back("1y", "2028-02-29T12:00:00Z"), Ok(When::At(utc("2027-02-28T12:00:00Z"))));
}

#[test]
fn a_day_back_is_the_same_time_of_day_and_24_hours_are_hours() {
    let now = utc("2026-03-29T10:00:00Z");
    assert_eq!(parse("1day", now, &berlin()), Ok(When::At(utc("2026-03-28T11:00:00Z"))));
    assert_eq!(parse("24h", now, &berlin()), Ok(When::At(utc("2026-03-28T10:00:00Z"))));
    // 02:30 was skipped the day before: an hour later then.
    let now = utc("2026-03-30T00:30:00Z");
    assert_eq!(parse("1day", now, &berlin()), Ok(When::At(utc("2026-03-29T01:30:00Z"))));
}

#[test]
fn days_with_a_name_mean_their_end() {
    all_mean(
        &TimeZone::UTC,
        &[
            ("today", "2026-11-20T23:59:59.999999999Z"),
            ("yesterday", "2026-11-19T23:59:59.999999999Z"),
            ("Yesterday", "2026-11-19T23:59:59.999999999Z"),
            ("monday", "2026-11-16T23:59:59.999999999Z"),
            ("Tue", "2026-11-17T23:59:59.999999999Z"),
            ("thursday", "2026-11-19T23:59:59.999999999Z"),
            // Today is a Friday.
            ("friday", "2026-11-13T23:59:59.999999999Z"),
            ("SATURDAY", "2026-11-14T23:59:59.999999999Z"),
            ("last.monday", "2026-11-16T23:59:59.999999999Z"),
            ("last monday", "2026-11-16T23:59:59.999999999Z"),
            ("last_sun", "2026-11-15T23:59:59.999999999Z"),
        ],
    );
    // Half past midnight in Berlin is still the day before in UTC.
    let now = utc("2026-11-19T23:30:00Z");
    assert_eq!(parse("yesterday", now, &berlin()), Ok(When::At(utc("2026-11-19T22:59:59.999999999Z"))));
    assert_eq!(parse("yesterday", now, &TimeZone::UTC), Ok(When::At(utc("2026-11-18T23:59:59.999999999Z"))));
}

#[test]
fn a_bare_m_is_refused() {
    for (text, count) in [("5m", "5"), ("5M", "5"), ("2h30m", "30"), ("5.m.ago", "5")] {
        assert_eq!(why(text), Why::MinuteOrMonth { count: count.into() }, "{text}");
    }
    let message = read("5m", &TimeZone::UTC).unwrap_err().to_string();
    assert!(message.contains("5min or 5mon"), "{message}");
}

#[test]
fn dates_and_times_that_do_not_exist_are_refused() {
    for text in
        ["2026-02-30", "2027-02-29", "2026-13", "2026-00", "2026-11-00", "2026-11-31_14.05", "20260230T14"]
    {
        assert_eq!(why(text), Why::NoSuch { what: "day" }, "{text}");
    }
    for text in ["2026-11-20T24", "2026-11-20T14:60", "2026-11-20T14:05:60", "2026-11-20T99.99"] {
        assert_eq!(why(text), Why::NoSuch { what: "time of day" }, "{text}");
    }
    assert_eq!(why("2026-11-20T14:05+24:00"), Why::NoSuch { what: "offset" });
    assert_eq!(why("2026-11-20T14:05+01:60"), Why::NoSuch { what: "offset" });
}

#[test]
fn what_cannot_be_computed_is_refused() {
    for text in [
        "20000y",
        "99999999999999999999y",
        "9999999999999999s",
        "300000mon",
        "9999-12-31",
        "0000-01-01T00+23:00",
    ] {
        let read = read(text, &TimeZone::UTC);
        match text {
            "0000-01-01T00+23:00" => assert!(read.is_ok()),
            _ => assert_eq!(read.unwrap_err().why, Why::OutOfRange, "{text}"),
        }
    }
    let far = Timestamp { seconds: i64::MAX, nanos: 0 };
    assert_eq!(parse("1s", far, &TimeZone::UTC).unwrap_err().why, Why::OutOfRange);
    assert_eq!(parse("yesterday", far, &TimeZone::UTC).unwrap_err().why, Why::OutOfRange);
    assert_eq!(parse("now", far, &TimeZone::UTC), Ok(When::At(far)));
}

#[test]
fn what_begins_like_a_time_but_is_none_is_an_error_and_never_a_name() {
    for text in [
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
    ] {
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

#[test]
fn messages_say_what_was_read_why_not_and_what_is_accepted() {
    let message = read("2026-02-30", &TimeZone::UTC).unwrap_err().to_string();
    assert!(
        message.starts_with("`2026-02-30` is not understood as a time: there is no such day"),
        "{message}"
    );
    assert!(message.contains("2.days.ago") && message.ends_with("the name of a snapshot"), "{message}");
    let long = read(&"9".repeat(1 << 20), &TimeZone::UTC).unwrap_err().to_string();
    assert!(long.len() < 600, "{}", long.len());
    let message = read(&format!("5{}", "x".repeat(1 << 20)), &TimeZone::UTC).unwrap_err().to_string();
    assert!(message.len() < 600, "{}", message.len());
}

#[test]
fn times_that_clocks_skipped_are_refused() {
    none_was(
        &berlin(),
        &[
            "2026-03-29T02",
            "2026-03-29T02:00",
            "2026-03-29_02.30",
            "2026-03-29_02.59.59",
            "2026-03-29_02.00.00.000000000",
            "2026-03-29_02.59.59.999999999",
        ],
    );
    all_mean(
        &berlin(),
        &[
            ("2026-03-29_01.59", "2026-03-29T00:59:59.999999999Z"),
            ("2026-03-29_03.00", "2026-03-29T01:00:59.999999999Z"),
            ("2026-03-29T02:30Z", "2026-03-29T02:30:59.999999999Z"),
            ("2026-03-29", "2026-03-29T21:59:59.999999999Z"),
        ],
    );
}

#[test]
fn of_what_was_skipped_in_part_the_rest_counts() {
    // From 23:30 to 00:30: half of the last hour of Saturday never was.
    let late = zone("AAA0BBB,M3.5.0/-0:30,M10.5.0");
    let end = "2026-03-28T23:29:59.999999999Z";
    all_mean(&late, &[("2026-03-28", end), ("2026-03-28T23", end), ("2026-03-28_23.29", end)]);
    none_was(&late, &["2026-03-28_23.30", "2026-03-29_00.29"]);
    // A day that never was, as the 30th of December 2011 in Samoa; and the month that it would have ended.
    let samoa = zone("AAA0BBB-24,J120/0,J300/0");
    none_was(&samoa, &["2026-04-30", "2026-04-30T12", "2026-04-30_12.05"]);
    all_mean(
        &samoa,
        &[("2026-04", "2026-04-29T23:59:59.999999999Z"), ("2026-05-01", "2026-04-30T23:59:59.999999999Z")],
    );
}

#[test]
fn what_clocks_repeat_ends_the_second_time() {
    all_mean(
        &berlin(),
        &[
            ("2026-10-25_02.30", "2026-10-25T01:30:59.999999999Z"),
            ("2026-10-25T02", "2026-10-25T01:59:59.999999999Z"),
            ("2026-10-25_02.30+0200", "2026-10-25T00:30:59.999999999Z"),
            ("2026-10-25_02.30+0100", "2026-10-25T01:30:59.999999999Z"),
            ("2026-10-25T01", "2026-10-24T23:59:59.999999999Z"),
            ("2026-10-25", "2026-10-25T22:59:59.999999999Z"),
        ],
    );
    // Midnight repeated: the day ends the second time.
    let havana = zone("CST5CDT,M3.2.0/0,M11.1.0/1");
    all_mean(
        &havana,
        &[
            ("2026-10-31", "2026-11-01T03:59:59.999999999Z"),
            ("2026-11-01_00.30", "2026-11-01T05:30:59.999999999Z"),
        ],
    );
    let beirut = zone("EET-2EEST,M3.5.0/0,M10.5.0/0");
    all_mean(&beirut, &[("2026-10-24", "2026-10-24T21:59:59.999999999Z")]);
}

#[test]
fn times_are_printed_short_and_unambiguous() {
    let print =
        |time: &str, next: Option<&str>, zone: &TimeZone| super::print(utc(time), next.map(utc), zone);
    let time = "2026-11-20T14:05:30.251Z";
    assert_eq!(print(time, None, &TimeZone::UTC), "2026-11-20_14.05");
    assert_eq!(print(time, None, &berlin()), "2026-11-20_15.05");
    assert_eq!(print(time, Some("2026-11-20T14:06:00Z"), &TimeZone::UTC), "2026-11-20_14.05");
    assert_eq!(print(time, Some("2026-11-20T14:05:59Z"), &TimeZone::UTC), "2026-11-20_14.05.30");
    assert_eq!(print(time, Some("2026-11-20T14:05:30.3Z"), &TimeZone::UTC), "2026-11-20_14.05.30.2");
    assert_eq!(print(time, Some("2026-11-20T14:05:30.27Z"), &TimeZone::UTC), "2026-11-20_14.05.30.25");
    assert_eq!(
        print(time, Some("2026-11-20T14:05:30.251000001Z"), &TimeZone::UTC),
        "2026-11-20_14.05.30.251000000"
    );
    // Repeated local time.
    assert_eq!(print("2026-10-25T00:30:00Z", None, &berlin()), "2026-10-25_02.30+0200");
    assert_eq!(print("2026-10-25T01:30:00Z", None, &berlin()), "2026-10-25_02.30+0100");
    assert_eq!(
        print("2026-10-25T00:30:00Z", Some("2026-10-25T00:30:30.5Z"), &berlin()),
        "2026-10-25_02.30.00+0200"
    );
    // An offset with seconds.
    let old = zone("LMT-0:53:28CET-2,M3.5.0,M10.5.0/3");
    assert_eq!(print("2026-10-25T01:30:00Z", None, &old), "2026-10-25_01.30Z");
    // No next, or none that can be kept out.
    assert_eq!(print(time, Some(time), &TimeZone::UTC), "@1795183530.251000000");
}

#[test]
fn times_beyond_the_calendar_are_printed_as_seconds() {
    for (seconds, nanos, text) in [
        (i64::MAX, 999_999_999, "@9223372036854775807.999999999"),
        (i64::MIN, 500_000_000, "@-9223372036854775807.500000000"),
        (i64::MIN, 0, "@-9223372036854775808.000000000"),
        (-62_167_219_201, 0, "@-62167219201.000000000"),
    ] {
        let time = Timestamp { seconds, nanos };
        assert_eq!(print(time, None, &TimeZone::UTC), text);
        assert_eq!(print_gmt(time), text);
        assert_eq!(read(text, &TimeZone::UTC), Ok(When::At(time)));
    }
}

fn zones() -> impl Strategy<Value = TimeZone> {
    prop_oneof![
        Just(TimeZone::UTC),
        Just(berlin()),
        // Half hours, midnights, days and seconds that are skipped and repeated.
        Just(zone("<+1030>-10:30<+11>-11,M10.1.0,M4.1.0")),
        Just(zone("CST5CDT,M3.2.0/0,M11.1.0/1")),
        Just(zone("<-02>2<-01>,M3.5.0/-1,M10.5.0/0")),
        Just(zone("AAA0BBB-24,J120/0,J300/0")),
        Just(zone("LMT-0:53:28BBB-1:07:13,J100/1:13:37,J300/12:00:03")),
    ]
}

/// Any time, but mostly of our days, and often near a change of clocks.
fn times() -> impl Strategy<Value = Timestamp> {
    let nanos = prop_oneof![Just(0), Just(999_999_999), Just(500_000_000), 0..1_000_000_000_u32];
    let seconds = prop_oneof![
        4 => 1_700_000_000..2_000_000_000_i64,
        // Berlin's changes, Havana's in autumn, the others' on the 110th, 120th and 300th day of 2026.
        4 => (prop::sample::select(vec![1_774_746_000, 1_792_890_000, 1_793_505_600, 1_776_643_200, 1_777_507_200,
            1_793_059_200_i64]), -90_000..90_000_i64).prop_map(|(change, off)| change + off),
        1 => -70_000_000_000..260_000_000_000_i64,
        1 => any::<i64>(),
    ];
    (seconds, nanos).prop_map(|(seconds, nanos)| Timestamp { seconds, nanos })
}

/// Texts of the pieces that times are made of.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[0-9]{1,4}",
        "[0-9]{2}",
        "[0-9]{5,25}",
        "[-+.:,@_ tTzZ]",
        prop::sample::select(vec![
            "2026-",
            "11-",
            "20",
            "_",
            "T",
            "14",
            ".05",
            ":05",
            "+01:00",
            "GMT-",
            "gmt-",
            "ago",
            "day",
            "mon",
            "y",
            "h",
            "min",
            "m",
            "w",
            "ms",
            "last",
            "monday",
            "yesterday",
            "now",
            "ü",
            "\0",
            "/",
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..9).prop_map(|pieces| pieces.concat())
}

const UNITS: [&str; 10] = ["y", "mon", "w", "d", "h", "min", "s", "ms", "us", "ns"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_printed_is_read_as_including_the_time_and_not_the_next(
        time in times(), after in prop_oneof![Just(None), (0..40_u32, 1..100_i128).prop_map(Some)], zone in zones(),
    ) {
        let next = after.and_then(|(bits, factor)| from_nanoseconds(nanoseconds(time) + (factor << bits)).ok());
        let text = print(time, next, &zone);
        prop_assert!(!text.contains([':', '/']));
        let Ok(When::At(end)) = parse(&text, time, &zone) else { panic!("{text}") };
        prop_assert!(end >= time, "{} is before", text);
        prop_assert!(next.is_none_or(|next| end < next), "{} includes the next", text);
        prop_assert!(check_snapshot_name(&text).is_err());
        let gmt = print_gmt(time);
        let Ok(When::At(end)) = parse(&gmt, time, &zone) else { panic!("{gmt}") };
        prop_assert!(end >= time && nanoseconds(end) - nanoseconds(time) < NANOS_PER_SECOND);
    }

    #[test]
    fn any_text_is_a_time_a_name_or_an_error(
        text in prop_oneof![pieces(), any::<String>(), "\\PC{0,12}"], now in times(), zone in zones(),
    ) {
        match parse(&text, now, &zone) {
            Ok(When::At(time)) => {
                prop_assert!(time.nanos < 1_000_000_000);
                prop_assert!(check_snapshot_name(&text).is_err(), "a time may be a name: {}", text);
            }
            Ok(When::Last(_)) => {
                prop_assert!(check_snapshot_name(&text).is_err(), "a count may be a name: {}", text);
            }
            Ok(When::Named(name)) => {
                prop_assert_eq!(&name, &text);
                prop_assert!(check_snapshot_name(&name).is_ok());
            }
            Err(error) => {
                prop_assert!(!error.to_string().is_empty());
                prop_assert!(check_snapshot_name(&text).is_err(), "an error may be a name: {}", text);
            }
        }
    }

    #[test]
    fn upper_case_is_lower_case(text in pieces(), now in times(), zone in zones()) {
        let time_of = |text: &str| match parse(text, now, &zone) {
            Ok(When::At(time)) => Some(time),
            _ => None,
        };
        prop_assert_eq!(time_of(&text.to_ascii_lowercase()), time_of(&text.to_ascii_uppercase()));
    }

    #[test]
    fn durations_are_what_jiff_subtracts(
        now in 0..2_000_000_000_i64, zone in zones(), git in any::<bool>(),
        counts in prop::collection::btree_map(0..UNITS.len(), 0..50_i64, 1..5),
    ) {
        let mut span = Span::new();
        let mut text = String::new();
        for (&unit, &count) in &counts {
            span = match unit {
                0 => span.years(count), 1 => span.months(count), 2 => span.weeks(count), 3 => span.days(count),
                4 => span.hours(count), 5 => span.minutes(count), 6 => span.seconds(count),
                7 => span.milliseconds(count), 8 => span.microseconds(count), _ => span.nanoseconds(count),
            };
            text += &if git { format!("{count}.{}.", UNITS[unit]) } else { format!("{count}{}", UNITS[unit]) };
        }
        if git {
            text += "ago";
        }
        let then: Zoned = jiff::Timestamp::new(now, 0).unwrap().to_zoned(zone.clone()) - span;
        let read = parse(&text, Timestamp { seconds: now, nanos: 0 }, &zone);
        let expected = from_nanoseconds(then.timestamp().as_nanosecond()).unwrap();
        prop_assert_eq!(read, Ok(When::At(expected)), "{}", text);
    }

    #[test]
    fn a_day_of_the_week_is_the_last_one_before_today(now in 1_700_000_000..2_000_000_000_i64, day in 0..7_i8) {
        let names = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
        let read = parse(names[day as usize], Timestamp { seconds: now, nanos: 0 }, &TimeZone::UTC);
        let Ok(When::At(end)) = read else { panic!("{read:?}") };
        let midnight = now - now.rem_euclid(86_400);
        prop_assert!(end.seconds < midnight && midnight - end.seconds <= 7 * 86_400);
        let date = jiff::Timestamp::new(end.seconds, 0).unwrap().to_zoned(TimeZone::UTC);
        prop_assert_eq!(date.weekday(), Weekday::from_monday_zero_offset(day).unwrap());
    }

    /// Each part of a date names what lies within it: no less precise form ends earlier.
    #[test]
    fn less_precision_never_means_less(time in times(), zone in zones()) {
        let Ok(instant) = jiff::Timestamp::from_nanosecond(nanoseconds(time)) else { return Ok(()) };
        let exact = zone.to_datetime(instant).strftime("%Y-%m-%d_%H.%M.%S.%9f").to_string();
        if exact.len() != 29 || exact.starts_with('-') {
            return Ok(()); // a year of more or less than four digits
        }
        let mut ends = Vec::new();
        for length in [29, 28, 25, 21, 19, 16, 13, 10, 7] {
            let Ok(When::At(end)) = parse(&exact[..length], time, &zone) else { continue };
            ends.push(end);
        }
        prop_assert!(ends.len() >= 8 && ends[0] >= time);
        prop_assert!(ends.is_sorted(), "{} {:?}", exact, ends);
    }
}

mod begin;
