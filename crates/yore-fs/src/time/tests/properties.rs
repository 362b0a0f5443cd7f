//! Any text, any time, any zone.

use super::*;
use jiff::civil::Weekday;
use jiff::{Span, Zoned};
use proptest::prelude::*;

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

/// Any time, but mostly of the present day, and often near a change of clocks.
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

    /// Each part of a date stands for everything within it, so no less precise form ends earlier.
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
