//! The grammar of TIME in `name@TIME`: what people, shells, scripts and Samba write behind an `@`, and how
//! Yore writes times itself.
//!
//! **A time names a stretch, and means its end.** `2026-11-20` is a day, `2026-11-20_14.05` a minute,
//! `1057845484` a second; each means the last nanosecond of what it names, so that nothing done within it is
//! left out. A text that leaves nothing open is an instant and means just that: `now`, and durations, which
//! count back from it.
//!
//! **What looks like a time is never the name of a snapshot.** `parse.rs` decides that by how a text begins
//! (and by `ago` at its end), for both who reads times and who names snapshots. So a mistyped time is an
//! error and not a snapshot that nobody made, a snapshot's name can never hide a time, and forms added later
//! hide no snapshot made today, as long as they begin like one of these.
//!
//! **What can be read in two ways is refused**, with the ways out: `5m` (minutes or months), `2026` and
//! `20261120` (dates or seconds since 1970).
//!
//! **Local time has gaps and repetitions.** When clocks are put back, a local time names two stretches, and
//! its end is that of the later one. When they are put forward, some times name nothing and are refused; of a
//! stretch that exists in part, the end is where the gap begins (`point.rs`). [`print()`] writes the offset
//! where local time is ambiguous.
//!
//! **What counts snapshots is no time.** `last`, `-1` and `-2` mean the last snapshot and the one before it,
//! of those that show what is asked for. Which these are only a volume knows.
//!
//! This module knows nothing of volumes, and no clock: the present and the time zone are arguments.
//! `point.rs` reads dates and numbers, `back.rs` what counts back from the present, `parse.rs` chooses
//! between them, `print.rs` writes. A form is added in one of the two readers, in `FORMS` or `WORDS`, in
//! docs/TIME.md, and in the table of `tests.rs`.

mod back;
mod parse;
mod point;
mod print;
mod stretch;
#[cfg(test)]
mod tests;
mod why;

pub use jiff::tz::TimeZone;
pub use parse::{check_snapshot_name, parse, parse_ago, parse_begin, When, SNAPSHOT_NAME_MAX};
pub use print::{print, print_gmt};
pub use stretch::instant;
pub(crate) use stretch::nanoseconds;
pub use why::{TimeError, Why};
