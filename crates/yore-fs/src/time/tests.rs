//! Each form of a time, compared with a time in UTC; `properties` tests any text and time. Zones are POSIX
//! rules, so no test depends on the machine's time zone database.

use super::stretch::{from_nanoseconds, NANOS_PER_SECOND};
use super::*;
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
            // The digits are those of the number, so -0.25 means an earlier time than -0.24.
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
            // As stat(1) and ls(1) write times.
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
            // Forms of git.
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
    // The day before, 02:30 was skipped; then the time is an hour later.
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
    // Clocks go from 23:30 to 00:30: half of the last hour of Saturday never was.
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
    // Midnight comes twice: the day ends the second time.
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

mod begin;
mod names;
mod printed;
mod properties;
