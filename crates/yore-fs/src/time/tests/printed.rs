//! Times as they are printed.

use super::*;

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
    // The next event has the very same time, so no form tells the two apart.
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
