//! Where stretches of time begin, and durations by themselves.

use super::*;

#[test]
fn what_is_before_a_time_ends_where_it_begins() {
    let begins = |zone: &TimeZone, text: &str, expected: &str| {
        let begin = parse_begin(text, utc("2026-11-20T14:05:30Z"), zone);
        assert_eq!(begin, Ok(When::At(utc(expected))), "{text:?} should begin at {expected}");
    };
    for (text, begin) in [
        ("2026-11", "2026-11-01T00:00:00Z"),
        ("2026-11-20", "2026-11-20T00:00:00Z"),
        ("2026-11-20T14", "2026-11-20T14:00:00Z"),
        ("2026-11-20_14.05", "2026-11-20T14:05:00Z"),
        ("2026-11-20T14:05:30.25+01:00", "2026-11-20T13:05:30.25Z"),
        ("1057845484", "2003-07-10T13:58:04Z"),
        ("1057845484.25", "2003-07-10T13:58:04.25Z"),
        ("@-1.25", "1969-12-31T23:59:58.75Z"),
        ("GMT-2026.11.20-14.05.00", "2026-11-20T14:05:00Z"),
        ("yesterday", "2026-11-19T00:00:00Z"),
        ("monday", "2026-11-16T00:00:00Z"),
        ("2h30min", "2026-11-20T11:35:30Z"),
        ("now", "2026-11-20T14:05:30Z"),
    ] {
        begins(&TimeZone::UTC, text, begin);
    }
    // Clocks go forward from 02:00 to 03:00, and back from 03:00 to 02:00.
    begins(&berlin(), "2026-03-29", "2026-03-28T23:00:00Z");
    begins(&berlin(), "2026-03-29T03", "2026-03-29T01:00:00Z");
    begins(&berlin(), "2026-10-25_02.30", "2026-10-25T00:30:00Z");
    // In Cairo they go forward at midnight, so the day begins at one.
    begins(&zone("EET-2EEST,M4.5.5/0,M10.5.4/24"), "2026-04-24", "2026-04-23T22:00:00Z");
    assert_eq!(parse_begin("name", utc("2026-11-20T00:00:00Z"), &berlin()), Ok(When::Named("name".into())));
    assert_eq!(
        parse_begin("5m", utc("2026-11-20T00:00:00Z"), &berlin()),
        Err(read("5m", &berlin()).unwrap_err())
    );
}

#[test]
fn a_duration_is_nothing_else() {
    let now = utc("2026-11-20T14:05:30Z");
    let ago = |text| parse_ago(text, now, &TimeZone::UTC);
    assert_eq!(ago("2d"), Ok(utc("2026-11-18T14:05:30Z")));
    assert_eq!(ago("1y"), Ok(utc("2025-11-20T14:05:30Z")));
    assert_eq!(ago("2.weeks.ago"), Ok(utc("2026-11-06T14:05:30Z")));
    for text in ["yesterday", "now", "2026-11-20", "1057845484", "name", "", "monday", "-2d", "@5"] {
        assert!(ago(text).unwrap_err().to_string().contains("a duration is wanted"), "{text:?}");
    }
    for text in ["5m", "2x", "20000y"] {
        assert!(ago(text).is_err(), "{text:?}");
    }
}
