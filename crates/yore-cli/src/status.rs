//! How a command ends: exit codes, and the messages of commands that failed.

use crate::nearest::{self, Known};
use crate::output::{now, printable, OutputClosed};
use crate::timed_path::{absent_path, bare_time_in, of_library, path_in, times_in};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use yore_fs::time::{parse, TimeError, TimeZone, When};

/// How a command ends: its exit status, or an error that says what happened to what.
pub type Outcome = anyhow::Result<u8>;

/// Done.
pub const OK: u8 = 0;
/// Done, and something was found (`check`, `diff --exit-code`, `status --exit-code`), or nothing (`find` has
/// no such status).
pub const FINDINGS: u8 = 1;
/// The command line makes no sense.
pub const USAGE: u8 = 2;
/// The operation failed or was refused.
pub const FAILED: u8 = 3;
/// The volume is damaged.
pub const DAMAGED: u8 = 4;
/// A mount ended, and it is not certain that everything written is on the medium.
pub const NOT_CLOSED: u8 = 5;
/// A check or a scrub was broken off before it came to its end.
pub const BROKEN_OFF: u8 = 6;
/// Whoever read the output has gone. In a shell, this is the status of a process that SIGPIPE killed.
pub const OUTPUT_CLOSED: u8 = 141;

/// A mistake on the command line that the parser could not see.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// An error whose message is complete and whose status is known.
#[derive(Debug)]
pub struct Ended {
    /// The message for people; empty if they have it already.
    pub message: String,
    /// The exit status.
    pub status: u8,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Ended {}

/// A usage error as `anyhow` carries it.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

/// The status with which an error ends the program.
pub fn of(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if cause.is::<Usage>() {
            return USAGE;
        }
        if cause.is::<OutputClosed>() {
            return OUTPUT_CLOSED;
        }
        if let Some(ended) = cause.downcast_ref::<Ended>() {
            return ended.status;
        }
        use yore_check::CheckError::{Superblock, SuperblockMissing};
        if let Some(Superblock { .. } | SuperblockMissing { .. }) = cause.downcast_ref() {
            return DAMAGED;
        }
        if of_library(cause).is_some_and(|error| matches!(error.root(), yore_fs::Error::Corruption(_))) {
            return DAMAGED;
        }
    }
    match absent_in(error) {
        Some(Absent::Unreadable(_)) => USAGE,
        _ => FAILED,
    }
}

/// The message of an error: its causes joined, without repeating what a cause already says.
pub fn message(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if message.is_empty() {
            message = text;
        } else if !message.contains(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
    }
    message
}

/// What to say below the message of an error about a path with an `@` in it.
fn hint(error: &anyhow::Error) -> Option<String> {
    if let Some(absent) = absent_in(error) {
        let known = error.downcast_ref::<Known>();
        return Some(absent.hint(path_in(error)?.0, known));
    }
    match path_in(error)? {
        (path, yore_fs::Error::NotFound) => bare_time_in(path).map(|name| {
            format!("`{name}` is the name of a file; a directory as of that time is its name and `{name}`, or `.{name}` in it")
        }),
        (path, yore_fs::Error::ReadOnly) if times_in(path).next().is_some() => Some(
            "the past cannot be changed: copy what was to a name without a time, and change that".to_string(),
        ),
        _ => None,
    }
}

fn absent_in(error: &anyhow::Error) -> Option<Absent> {
    let path = absent_path(error)?;
    Absent::of(path, error.downcast_ref::<Known>())
}

/// Why a path with a time in it leads nowhere.
enum Absent {
    /// What follows the `@` is not a time.
    Unreadable(TimeError),
    /// There is no such snapshot, or nothing existed then. This has the time as it was written.
    At(String),
    /// The same for a count from the last one.
    Last(u32),
    /// The same for a name.
    Named(String),
}

impl Absent {
    /// `None` for a path without times. Of several times, the first one that cannot be parsed counts. If all
    /// can be, the time of the first name that leads nowhere counts, or the last one before that name.
    fn of(path: &str, known: Option<&Known>) -> Option<Absent> {
        let now = now();
        let read = |text: &str| match parse(text, now, &TimeZone::system()) {
            Err(error) => Absent::Unreadable(error),
            Ok(When::At(_)) => Absent::At(text.to_string()),
            Ok(When::Last(count)) => Absent::Last(count.get()),
            Ok(When::Named(name)) => Absent::Named(name),
        };
        let unreadable = times_in(path).map(read).find(|one| matches!(one, Absent::Unreadable(_)));
        let up_to = || match known {
            Some(known) => known.up_to(),
            None => nearest::up_to_missing_on_host(path),
        };
        unreadable.or_else(|| times_in(up_to()).last().or_else(|| times_in(path).last()).map(read))
    }

    /// What to say about it, and what to do.
    fn hint(&self, path: &str, known: Option<&Known>) -> String {
        let what = match self {
            Absent::Unreadable(error) => return error.to_string(),
            Absent::At(text) => format!("no snapshot up to `{text}` has it"),
            Absent::Last(1) => "the last snapshot does not have it, or there is none".to_string(),
            Absent::Last(count) => {
                format!(
                    "the snapshot that is {count} from the last does not have it, or there are not so many"
                )
            }
            Absent::Named(name) => {
                let near = match known {
                    Some(known) => known.nearest(name).map(str::to_string),
                    None => nearest::on_mount(Path::new(path), name),
                };
                match near.filter(|near| near != name) {
                    Some(near) => format!("no snapshot named `{name}` has it; did you mean `{near}`?"),
                    None => format!("no snapshot named `{name}` has it"),
                }
            }
        };
        format!("{what}; `yore snapshots` lists those that there are").replace("?;", "?")
    }
}

/// The error for a path that leads nowhere: that what follows an `@` cannot be parsed, or what `otherwise`
/// says.
pub fn unreadable(path: &str, otherwise: impl FnOnce() -> anyhow::Error) -> anyhow::Error {
    match Absent::of(path, None) {
        Some(Absent::Unreadable(_)) => absent(path, otherwise),
        _ => otherwise(),
    }
}

/// The error for a path that leads nowhere: what is wrong with what follows an `@`, or what `otherwise` says.
pub fn absent(path: &str, otherwise: impl FnOnce() -> anyhow::Error) -> anyhow::Error {
    match Absent::of(path, None) {
        None | Some(Absent::At(_)) if bare_time_in(path).is_none() => otherwise(),
        _ => yore_fs::Error::NotFound.on_path("cannot find", path.as_bytes()).into(),
    }
}

/// Writes the message of a failure, and returns the exit status.
pub fn report(outcome: anyhow::Result<u8>) -> u8 {
    match outcome {
        Ok(status) => status,
        Err(error) => {
            let status = of(&error);
            let message = message(&error);
            if status != OUTPUT_CLOSED && !message.is_empty() {
                fail(&message, hint(&error).as_deref(), status);
            }
            status
        }
    }
}

/// Whether messages are lines of JSON. This is set once, before the first of them.
static JSON: AtomicBool = AtomicBool::new(false);

/// From now on messages are lines of JSON if the command line says so.
pub fn set_form(argv: &[OsString]) {
    let is_asked = argv.iter().skip(1).take_while(|arg| *arg != "--").any(|arg| arg == "--json");
    // `bench --json FILE` takes a file.
    let is_asked = is_asked && argv.get(1).is_none_or(|command| command != "bench");
    JSON.store(is_asked, Ordering::Relaxed);
}

/// Whether messages are lines of JSON.
pub fn is_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

/// Writes the message of a failure, with what to do about it.
pub fn fail(message: &str, hint: Option<&str>, status: u8) {
    if is_json() {
        return json_line(&serde_json::json!({ "error": message, "hint": hint, "status": status }));
    }
    warn(message);
    if let Some(hint) = hint {
        warn(hint);
    }
}

/// Writes a warning for people, beside the result.
pub fn warn(message: &str) {
    match is_json() {
        true => json_line(&serde_json::json!({ "warning": message })),
        false => tell(format_args!("yore: {message}")),
    }
}

/// Tells people something in a line on standard error. Whatever names are in it, it is one line, and sends no
/// commands to a terminal.
pub fn tell(line: impl fmt::Display) {
    write(&format!("{}\n", printable(line.to_string().as_bytes())));
}

/// The same for a question, whose answer is to stand in the same line.
pub fn ask(question: impl fmt::Display) {
    write(&printable(question.to_string().as_bytes()));
}

/// Tells programs something.
fn json_line(value: &serde_json::Value) {
    write(&format!("{value}\n"));
}

/// Writes to standard error. If that fails, there is nobody to tell, and the work goes on.
fn write(text: &str) {
    use io::Write as _;
    let _ = io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use yore_fs::{Error, NewSnapshot};

    fn hint_of(error: Error, path: &str) -> Option<String> {
        hint(&anyhow::Error::new(error.on_path("cannot open", path.as_bytes())).context("more"))
    }

    /// `yore help exit-codes` and the man pages had no word of 6, with which a check that was broken off
    /// ends. Promises that they have all that a command can end with.
    #[test]
    fn all_exit_codes_are_explained() {
        let lines: Vec<&str> = crate::args::help::EXIT_CODES.lines().collect();
        for status in [OK, FINDINGS, USAGE, FAILED, DAMAGED, NOT_CLOSED, BROKEN_OFF, 101, OUTPUT_CLOSED] {
            let begin = format!("{status:<5}");
            assert_eq!(lines.iter().filter(|line| line.starts_with(&begin)).count(), 1, "{status}");
        }
    }

    /// Promises that a time that cannot be parsed is a mistake on the command line, in a path as in an
    /// option. (In a path it was once a failed operation.) A path that merely leads nowhere is no such
    /// mistake.
    #[test]
    fn times_that_cannot_be_read_are_usage() {
        let status = |path: &str| {
            of(&anyhow::Error::new(Error::NotFound.on_path("cannot open", path.as_bytes())).context("more"))
        };
        assert_eq!(status("/a@5m/b"), USAGE);
        assert_eq!(status("/a@yesterday/b@2026"), USAGE);
        assert_eq!(status("/a@yesterday/b"), FAILED);
        assert_eq!(status("/a@befroe"), FAILED);
        assert_eq!(status("/a"), FAILED);
    }

    /// Promises that a mistyped name gets the nearest one as a hint, and that the message itself does not
    /// change.
    #[test]
    fn mistyped_names_get_the_nearest() {
        let volume = yore_fs::Volume::memory(64 << 20).unwrap();
        let view = volume.view();
        view.take_snapshot(view.root(), &NewSnapshot::named("before-upgrade")).unwrap();
        let error = Error::NotFound.on_path("cannot open", b"/a@befor-upgrade");
        let error = nearest::with_names(error.into(), &volume);
        assert!(hint(&error).unwrap().contains("did you mean `before-upgrade`? `yore snapshots`"));
        assert_eq!(
            message(&error),
            message(&Error::NotFound.on_path("cannot open", b"/a@befor-upgrade").into())
        );
        let error = nearest::with_names(Error::NotFound.on_path("cannot open", b"/a@other").into(), &volume);
        assert!(!hint(&error).unwrap().contains("did you mean"));
    }

    /// Promises that of several times in a path the message names the first one that leads nowhere. Once it
    /// named the last one.
    #[test]
    fn the_first_time_that_leads_nowhere_is_blamed() {
        let volume = yore_fs::Volume::memory(64 << 20).unwrap();
        let view = volume.view();
        volume.create_dir("d").unwrap();
        view.take_snapshot(view.root(), &NewSnapshot::named("first")).unwrap();
        let hint_of = |path: &str| {
            hint(&nearest::with_names(
                Error::NotFound.on_path("cannot open", path.as_bytes()).into(),
                &volume,
            ))
        };
        for (path, named) in [
            ("/.@two words/@at/x@y", "`two words`"),
            ("/.@first/d@other/x@first", "`other`"),
            ("/.@first/d@-7/x@first", "7 from the last"),
            ("/.@first/none/x@other", "`first`"),
            ("/none/.@other", "`other`"),
        ] {
            assert!(hint_of(path).unwrap().contains(named), "{path}: {:?}", hint_of(path));
        }
    }

    /// Promises that an unreadable time is distinguished from one at which nothing existed, and that other
    /// paths and other errors get no such advice.
    #[test]
    fn hints_for_times() {
        let absent = |path| hint_of(Error::NotFound, path);
        assert!(absent("/a@5m/b").unwrap().contains("5min or 5mon"));
        assert!(absent("/a@2026-02-30").unwrap().contains("there is no such day"));
        assert!(absent("/a@yesterday/b").unwrap().contains("no snapshot up to `yesterday`"));
        assert!(absent("/a@before-upgrade").unwrap().contains("no snapshot named `before-upgrade`"));
        assert!(absent("/a@2026").unwrap().contains("seconds since 1970"));
        assert!(absent("/a@@2026").unwrap().contains("no snapshot up to"));
        assert!(absent("/a@last").unwrap().contains("the last snapshot does not have it"));
        assert!(absent("/a@-3/b").unwrap().contains("3 from the last"));
        assert_eq!(absent("/a/b"), None);
        assert!(absent("/@5m/b@").unwrap().contains("or `.@5m` in it"));
        assert_eq!(absent("/@"), None);
        assert!(hint_of(Error::ReadOnly, "/a@yesterday/b").unwrap().contains("past"));
        assert_eq!(hint_of(Error::ReadOnly, "/a"), None);
        assert_eq!(hint_of(Error::NoSpace, "/a@yesterday"), None);
    }
}
