//! What commands print: lists in three forms, sizes, times, modes, names of any bytes.

mod safe;

pub use safe::{printable, shell};

use crate::args::Listing;
use jiff::tz::TimeZone;
use serde_json::{json, Value};
use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufWriter, StdoutLock, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;
use yore_fs::time::{instant, When};
use yore_fs::{FileKind, InodeFlags, Metadata, Timestamp};

/// The error that nobody reads standard output any more.
#[derive(Debug)]
pub struct OutputClosed;

impl fmt::Display for OutputClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads the output any more")
    }
}

impl std::error::Error for OutputClosed {}

/// Standard output. If its reader goes away, the command ends quietly, as SIGPIPE would end it.
pub struct Out(BufWriter<StdoutLock<'static>>);

impl Out {
    /// Locks standard output until dropped; call [`Out::done`] at the end.
    pub fn new() -> Out {
        Out(BufWriter::with_capacity(64 << 10, io::stdout().lock()))
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// [`OutputClosed`], or what the host says.
    pub fn bytes(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.0.write_all(bytes).map_err(write_error)
    }

    /// Writes text and a newline.
    ///
    /// # Errors
    /// As [`Out::bytes`].
    pub fn line(&mut self, text: impl fmt::Display) -> anyhow::Result<()> {
        writeln!(self.0, "{text}").map_err(write_error)
    }

    /// Writes what is still in the buffer.
    ///
    /// # Errors
    /// As [`Out::bytes`].
    pub fn done(mut self) -> anyhow::Result<()> {
        self.flush()
    }

    /// Writes what is still in the buffer, and goes on.
    ///
    /// # Errors
    /// As [`Out::bytes`].
    pub fn flush(&mut self) -> anyhow::Result<()> {
        self.0.flush().map_err(write_error)
    }
}

/// Prints one JSON value.
///
/// # Errors
/// As [`Out::bytes`].
pub fn print_json(value: &Value) -> anyhow::Result<()> {
    print_line(serde_json::to_string_pretty(value)?)
}

/// Prints one line.
///
/// # Errors
/// As [`Out::bytes`].
pub fn print_line(text: impl fmt::Display) -> anyhow::Result<()> {
    let mut out = Out::new();
    out.line(text)?;
    out.done()
}

fn write_error(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => OutputClosed.into(),
        _ => anyhow::Error::new(error).context("cannot write to standard output"),
    }
}

/// A list being printed: lines, names ended by zero bytes, or a JSON array.
pub struct List {
    out: Out,
    listing: Listing,
    count: usize,
}

impl List {
    /// An empty one.
    pub fn new(listing: Listing) -> List {
        List { out: Out::new(), listing, count: 0 }
    }

    /// How it is printed.
    pub fn listing(&self) -> Listing {
        self.listing
    }

    /// Prints an entry: what precedes the name on its line, the name, what follows it, and the entry as JSON,
    /// which is made only if needed. All of the line is safe for terminals ([`printable`]).
    ///
    /// # Errors
    /// As [`Out::bytes`].
    pub fn entry(
        &mut self,
        before: &str,
        name: &[u8],
        after: &str,
        value: impl FnOnce() -> Value,
    ) -> anyhow::Result<()> {
        self.entry_of_lines(before, name, &[after.to_string()], value)
    }

    /// Prints an entry of several lines, of which the first begins with the name.
    ///
    /// # Errors
    /// As [`Out::bytes`].
    pub fn entry_of_lines(
        &mut self,
        before: &str,
        name: &[u8],
        lines: &[String],
        value: impl FnOnce() -> Value,
    ) -> anyhow::Result<()> {
        self.count += 1;
        if self.listing.json {
            let start = if self.count == 1 { "[\n" } else { ",\n" };
            return self.out.bytes(format!("{start}{}", value()).as_bytes());
        }
        if self.listing.null {
            self.out.bytes(name)?;
            return self.out.bytes(b"\0");
        }
        self.out.bytes(printable(before.as_bytes()).as_bytes())?;
        self.out.bytes(printable(name).as_bytes())?;
        for line in lines {
            self.out.bytes(printable(line.as_bytes()).as_bytes())?;
            self.out.bytes(b"\n")?;
        }
        Ok(())
    }

    /// Prints a line that only the form with lines has: a heading, an empty line.
    ///
    /// # Errors
    /// As [`Out::bytes`].
    pub fn heading(&mut self, text: &[u8]) -> anyhow::Result<()> {
        if self.listing.json || self.listing.null {
            return Ok(());
        }
        self.out.bytes(printable(text).as_bytes())?;
        self.out.bytes(b"\n")
    }

    /// Ends the list.
    ///
    /// # Errors
    /// As [`Out::bytes`].
    pub fn done(mut self) -> anyhow::Result<()> {
        if self.listing.json {
            self.out.bytes(if self.count == 0 { b"[]\n" } else { b"\n]\n" })?;
        }
        self.out.done()
    }

    /// Shows the entries so far, before work that takes time.
    ///
    /// # Errors
    /// As [`Out::bytes`].
    pub fn flush(&mut self) -> anyhow::Result<()> {
        self.out.flush()
    }

    /// The end of the list of work that may have failed. An array that was begun is whole all the same;
    /// without entries nothing is printed of work that failed.
    ///
    /// # Errors
    /// That of the work; or as [`Out::bytes`].
    pub fn end<T>(self, work: anyhow::Result<T>) -> anyhow::Result<T> {
        let ended = if work.is_err() && self.count == 0 { Ok(()) } else { self.done() };
        work.and_then(|value| ended.map(|()| value))
    }
}

/// Puts a name into a JSON object: as text under `key`, and if it is not UTF-8, also as bytes under
/// `key_bytes`.
pub fn json_name(object: &mut Value, key: &str, name: &[u8]) {
    object[key] = json!(String::from_utf8_lossy(name));
    if std::str::from_utf8(name).is_err() {
        object[format!("{key}_bytes")] = json!(name);
    }
}

/// The same of a name that may be unknown, which is `null`.
pub fn json_name_or_null(object: &mut Value, key: &str, name: Option<&[u8]>) {
    match name {
        Some(name) => json_name(object, key, name),
        None => object[key] = Value::Null,
    }
}

/// A file's attributes as JSON.
pub fn json_metadata(metadata: &Metadata) -> Value {
    let attr = metadata.attr();
    json!({
        "inode": attr.inode.0,
        "incarnation": attr.incarnation,
        "type": kind_name(attr.kind),
        "mode": format!("{:04o}", attr.permissions),
        "links": attr.links,
        "uid": attr.uid,
        "gid": attr.gid,
        "rdev": attr.rdev,
        "size": attr.size,
        "allocated": attr.blocks_512 * 512,
        "accessed": json_time(attr.atime),
        "modified": json_time(attr.mtime),
        "changed": json_time(attr.ctime),
        "created": json_time(attr.btime),
        "flags": flag_names(attr.flags),
    })
}

/// Flags, their letters in `chattr` and `lsattr`, and their names.
const FLAG_NAMES: [(InodeFlags, &str, &str); 4] = [
    (InodeFlags::IMMUTABLE, "i", "immutable"),
    (InodeFlags::APPEND_ONLY, "a", "append only"),
    (InodeFlags::NO_ACCESS_TIMES, "A", "no access times"),
    (InodeFlags::NO_DUMP, "d", "no dump"),
];

/// The letters of flags, as `lsattr` shows them.
fn flag_names(flags: InodeFlags) -> String {
    FLAG_NAMES.iter().filter(|(flag, ..)| flags.contains(*flag)).map(|(_, letter, _)| *letter).collect()
}

/// Flags for people.
pub fn flags_text(flags: InodeFlags) -> String {
    let words = FLAG_NAMES.iter().filter(|(flag, ..)| flags.contains(*flag)).map(|(.., word)| *word);
    format!("{} ({})", flag_names(flags), words.collect::<Vec<_>>().join(", "))
}

/// What a kind of file is called.
pub fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "pipe",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "character device",
        FileKind::BlockDevice => "block device",
    }
}

/// `drwxr-xr-t`
pub fn mode_text(metadata: &Metadata) -> String {
    let kind = match metadata.attr().kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
    };
    let mode = metadata.permissions();
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// The present.
pub fn now() -> Timestamp {
    timestamp(jiff::Timestamp::now())
}

fn timestamp(instant: jiff::Timestamp) -> Timestamp {
    let nanos = instant.subsec_nanosecond();
    // Before 1970 this fraction is negative; on the volume it never is.
    match u32::try_from(nanos) {
        Ok(nanos) => Timestamp { seconds: instant.as_second(), nanos },
        Err(_) => {
            Timestamp { seconds: instant.as_second() - 1, nanos: (1_000_000_000 + nanos).unsigned_abs() }
        }
    }
}

/// A time as JSON: ISO 8601 in UTC, to the nanosecond.
pub fn json_time(time: Timestamp) -> Value {
    match instant(time) {
        Some(instant) => json!(instant.to_string()),
        None => json!(time.seconds),
    }
}

/// Seconds since 1970 as JSON, ISO 8601 in UTC.
pub fn json_seconds(seconds: u64) -> Value {
    json_time(Timestamp { seconds: i64::try_from(seconds).unwrap_or(i64::MAX), nanos: 0 })
}

/// How precisely times are printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    Minutes,
    Nanoseconds,
}

/// Prints times in one zone.
pub struct Clock {
    zone: TimeZone,
    /// Whether times are printed in UTC, although they are read as local times.
    utc: bool,
}

impl Clock {
    /// Local times, or UTC.
    pub fn new(utc: bool) -> Clock {
        Clock { zone: if utc { TimeZone::UTC } else { TimeZone::system() }, utc }
    }

    /// A time as text.
    pub fn text(&self, time: Timestamp, precision: Precision) -> String {
        let Some(instant) = instant(time) else {
            return format!("@{}", time.seconds);
        };
        let zoned = instant.to_zoned(self.zone.clone());
        match precision {
            Precision::Minutes => zoned.strftime("%Y-%m-%d %H:%M").to_string(),
            Precision::Nanoseconds => zoned.strftime("%Y-%m-%d %H:%M:%S.%9f %:z").to_string(),
        }
    }

    /// The shortest time that, after an `@`, names a snapshot of `time` if the next one is of `next`, and
    /// that goes on naming it. Without a next one, the printed time must be over: otherwise it would later
    /// mean a snapshot that is taken in the same minute, and that one would be forgotten in place of this
    /// one. A time in UTC gets a `Z`, because times are read as local ones.
    pub fn name(&self, time: Timestamp, next: Option<Timestamp>) -> String {
        let next = next.or_else(|| Some(now()).filter(|now| *now > time));
        let text = yore_fs::time::print(time, next, &self.zone);
        // Seconds since 1970, which stand for years that have no date, are the same in every zone.
        if self.utc && !text.starts_with('@') {
            return text + "Z";
        }
        text
    }

    /// Seconds since 1970 as text.
    pub fn seconds(&self, seconds: u64) -> String {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        match instant(Timestamp { seconds, nanos: 0 }) {
            Some(instant) => {
                instant.to_zoned(self.zone.clone()).strftime("%Y-%m-%d %H:%M:%S %:z").to_string()
            }
            None => format!("@{seconds}"),
        }
    }

    /// A time that [`json_time`] or [`json_seconds`] made, as [`Clock::seconds`] has it; `None` if it is
    /// none.
    pub fn of_json(&self, value: &Value) -> Option<String> {
        let instant: jiff::Timestamp = value.as_str()?.parse().ok()?;
        Some(self.seconds(u64::try_from(instant.as_second()).ok()?))
    }

    /// The beginning of a time that a person wrote, in the grammar that all times have.
    ///
    /// # Errors
    /// A message for people: the text cannot be read, or it names a snapshot and not a time.
    pub fn parse(&self, text: &str) -> Result<Timestamp, String> {
        match yore_fs::time::parse_begin(text, now(), &self.zone) {
            Ok(When::At(time)) => Ok(time),
            Ok(When::Last(_) | When::Named(_)) => {
                Err(format!("{text:?} is no time but a snapshot; here a time is wanted, as 2026-11-20 or 2026-11-20_14.05"))
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Bytes in the unit that suits them: `1.5 GiB`.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = (bytes.max(1).ilog2() / 10) as usize;
    if unit == 0 {
        return format!("{bytes} B");
    }
    let value = bytes as f64 / (1u64 << (10 * unit)) as f64;
    match value < 10.0 && value.fract() != 0.0 {
        true => format!("{value:.1} {}", UNITS[unit]),
        false => format!("{value:.0} {}", UNITS[unit]),
    }
}

/// A duration as settings have it: `1d12h`, or `0`.
pub fn duration_text(duration: Duration) -> String {
    const SECOND: u128 = 1_000_000_000;
    let units =
        [(86_400 * SECOND, "d"), (3_600 * SECOND, "h"), (60 * SECOND, "min"), (SECOND, "s"), (1, "ns")];
    let (mut left, mut text) = (duration.as_nanos(), String::new());
    for (unit, name) in units {
        if left >= unit {
            text += &format!("{}{name}", left / unit);
            left %= unit;
        }
    }
    if text.is_empty() {
        return "0".into();
    }
    text
}

/// Names of users and groups, from the host's `/etc/passwd` and `/etc/group`.
pub struct Names {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Names {
    /// Reads both files. If one cannot be read, numbers are shown instead of its names.
    pub fn load() -> Names {
        Names { users: table("/etc/passwd"), groups: table("/etc/group") }
    }

    /// A user's name or number.
    pub fn user(&self, uid: u32) -> String {
        self.users.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }

    /// A group's name or number.
    pub fn group(&self, gid: u32) -> String {
        self.groups.get(&gid).cloned().unwrap_or_else(|| gid.to_string())
    }
}

/// `name:password:number:…`
fn table(path: &str) -> HashMap<u32, String> {
    let text = std::fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&text)
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?.to_string();
            Some((fields.nth(1)?.parse().ok()?, name))
        })
        .collect()
}

/// The bytes of a path.
pub fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that flags have the letters that `lsattr` gives them.
    #[test]
    fn flags() {
        assert_eq!(flags_text(InodeFlags::IMMUTABLE | InodeFlags::NO_DUMP), "id (immutable, no dump)");
        assert_eq!(flag_names(InodeFlags::CHOSEN), "iaAd");
        assert_eq!(flag_names(InodeFlags::empty()), "");
    }

    /// Promises that sizes are printed in a suitable unit.
    #[test]
    fn sizes() {
        assert_eq!(human(0), "0 B");
        assert_eq!(human(10 << 30), "10 GiB");
        assert_eq!(human(1536 << 20), "1.5 GiB");
    }

    /// Promises that times before and after 1970 are read to the nanosecond.
    #[test]
    fn times() {
        let clock = Clock::new(true);
        let time = |text: &str| clock.parse(text).unwrap();
        assert_eq!(time("@17"), Timestamp { seconds: 17, nanos: 0 });
        assert_eq!(time("1970-01-02"), Timestamp { seconds: 86400, nanos: 0 });
        assert_eq!(time("1970-01-01T00:00:00.5+00"), Timestamp { seconds: 0, nanos: 500_000_000 });
        assert_eq!(time("1969-12-31T23:59:59.25Z"), Timestamp { seconds: -1, nanos: 250_000_000 });
        assert!(clock.parse("soon").unwrap_err().contains("a time is wanted"));
        assert!(clock.parse("last").is_err());
        assert!(clock.parse("5m").unwrap_err().contains("5min or 5mon"));
        let far = Timestamp { seconds: i64::MAX, nanos: 0 };
        assert_eq!(clock.text(far, Precision::Minutes), format!("@{}", i64::MAX));
    }

    /// Promises that a time in a list goes on naming the same snapshot. Once `yore forget`, given a time from
    /// a list, forgot a version that was saved after the list was printed, in the same minute.
    #[test]
    fn names_are_not_taken_over_by_later_ones() {
        let (clock, time) = (Clock::new(true), now());
        std::thread::sleep(std::time::Duration::from_millis(20));
        let end = match yore_fs::time::parse(&clock.name(time, None), time, &TimeZone::UTC) {
            Ok(When::At(end)) => end,
            other => panic!("{other:?}"),
        };
        assert!(time <= end && end < now(), "{end:?}");
    }

    /// Promises that a time printed in UTC is read as UTC everywhere.
    #[test]
    fn names_in_utc_say_so() {
        let at = |seconds, nanos| Timestamp { seconds, nanos };
        let time = at(1_795_183_530, 250_000_000);
        let clock = Clock::new(true);
        let texts = [
            (None, "2026-11-20_14.05Z"),
            (Some(at(1_795_183_531, 0)), "2026-11-20_14.05.30Z"),
            (Some(at(1_795_183_530, 260_000_000)), "2026-11-20_14.05.30.25Z"),
        ];
        for (next, text) in texts {
            assert_eq!(clock.name(time, next), text);
            for zone in ["Europe/Berlin", "America/New_York"] {
                let zone = TimeZone::get(zone).unwrap();
                let end = match yore_fs::time::parse(text, time, &zone) {
                    Ok(When::At(end)) => end,
                    other => panic!("{text}: {other:?}"),
                };
                assert!(end >= time && next.is_none_or(|next| end < next), "{text} is {end:?}");
            }
        }
    }
}
