//! How a command ends: exit codes, and the messages of those that failed.

use std::fmt;
use std::io;

/// Done.
pub const OK: u8 = 0;
/// Done, and something was found (`check`, `diff --exit-code`), or nothing (`find` has no such status).
pub const FINDINGS: u8 = 1;
/// The command line makes no sense.
pub const USAGE: u8 = 2;
/// The operation failed or was refused.
pub const FAILED: u8 = 3;
/// The volume is damaged.
pub const DAMAGED: u8 = 4;
/// A mount ended, and it is not certain that everything written is on the medium.
pub const NOT_CLOSED: u8 = 5;
/// Whoever read the output went away: what a process killed by SIGPIPE has in a shell.
pub const OUTPUT_CLOSED: u8 = 141;

/// The table of exit codes for people.
pub const TABLE: &str = "\
0    done
1    `check` found something wrong with the volume; `diff --exit-code` found differences
2    the command line makes no sense; nothing was done
3    the operation failed or was refused; the message says why and what to do
4    the volume is damaged: what was read is not what was written; run `yore check`
5    a mount ended badly (`mount --foreground`): not everything written may be on the medium
101  a bug in yore: please report the message
141  whoever read the output (a pipe) stopped reading";

/// A mistake on the command line that the parser could not see.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Nobody reads standard output any more.
#[derive(Debug)]
pub struct OutputClosed;

impl fmt::Display for OutputClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads the output any more")
    }
}

impl std::error::Error for OutputClosed {}

/// An error whose message is complete and whose status is known.
#[derive(Debug)]
pub struct Ended {
    /// For people; empty if it was given already.
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

/// The status that an error ends the program with.
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
        if let Some(error) = cause.downcast_ref::<yore_fs::Error>() {
            if matches!(error.root(), yore_fs::Error::Corruption(_)) {
                return DAMAGED;
            }
        }
        // An error of the volume's file system that went through `std::io`.
        let inner = cause.downcast_ref::<io::Error>().and_then(|e| e.get_ref());
        if let Some(error) = inner.and_then(|e| e.downcast_ref::<yore_fs::Error>()) {
            if matches!(error.root(), yore_fs::Error::Corruption(_)) {
                return DAMAGED;
            }
        }
    }
    FAILED
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
    let found = error.chain().find_map(|cause| {
        let inner = cause.downcast_ref::<io::Error>().and_then(|e| e.get_ref());
        cause.downcast_ref::<yore_fs::Error>().or(inner.and_then(|e| e.downcast_ref()))
    })?;
    match (path_of(found)?, found.root()) {
        (path, yore_fs::Error::NotFound) => hint_for_absent(path),
        (path, yore_fs::Error::ReadOnly) if times_in(path).next().is_some() => Some(
            "the past cannot be changed: copy what was to a name without a time, and change that".to_string(),
        ),
        _ => None,
    }
}

fn path_of(error: &yore_fs::Error) -> Option<&str> {
    match error {
        yore_fs::Error::Path { path, source, .. } => path_of(source).or(Some(path)),
        _ => None,
    }
}

/// What stands behind the last `@` of each name of a path; of two of them the second is the time's.
fn times_in(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|name| {
        let at = name.rfind('@').filter(|at| *at > 0 && at + 1 < name.len())?;
        let two = at > 1 && name[..at].ends_with('@');
        Some(&name[if two { at } else { at + 1 }..])
    })
}

/// For a path that leads nowhere: which `@` cannot be read as a time, or what was looked for.
fn hint_for_absent(path: &str) -> Option<String> {
    use yore_fs::time::{parse, TimeZone, When};
    let now = crate::output::now();
    let mut hint = None;
    for text in times_in(path) {
        match parse(text, now, &TimeZone::system()) {
            Err(error) => return Some(error.to_string()),
            Ok(When::At(_)) => hint = Some(format!("no snapshot up to `{text}` has it")),
            Ok(When::Named(_)) => hint = Some(format!("no snapshot named `{text}` has it")),
        }
    }
    hint.map(|hint| format!("{hint}; `yore snapshots` lists those that there are"))
}

/// Writes the message of a failure, and gives the status to end with.
pub fn report(outcome: anyhow::Result<u8>) -> u8 {
    match outcome {
        Ok(status) => status,
        Err(error) => {
            let status = of(&error);
            let message = message(&error);
            if status != OUTPUT_CLOSED && !message.is_empty() {
                warn(&message);
                if let Some(hint) = hint(&error) {
                    warn(&hint);
                }
            }
            status
        }
    }
}

/// A line on standard error. That it cannot be written is the one error nobody can be told of.
pub fn warn(message: &str) {
    use io::Write as _;
    let _ = writeln!(io::stderr(), "yore: {message}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use yore_fs::Error;

    fn hint_of(error: Error, path: &str) -> Option<String> {
        hint(&anyhow::Error::new(error.on_path("cannot open", path.as_bytes())).context("more"))
    }

    /// Promises that a time that cannot be read is told from one at which nothing was there, and that other paths and other
    /// errors get no such advice.
    #[test]
    fn hints_for_times() {
        let absent = |path| hint_of(Error::NotFound, path);
        assert!(absent("/a@5m/b").unwrap().contains("5min or 5mon"));
        assert!(absent("/a@2026-02-30").unwrap().contains("there is no such day"));
        assert!(absent("/a@yesterday/b").unwrap().contains("no snapshot up to `yesterday`"));
        assert!(absent("/a@before-upgrade").unwrap().contains("no snapshot named `before-upgrade`"));
        assert!(absent("/a@2026").unwrap().contains("seconds since 1970"));
        assert!(absent("/a@@2026").unwrap().contains("no snapshot up to"));
        assert_eq!(absent("/a/b"), None);
        assert_eq!(absent("/@5m/b@"), None);
        assert!(hint_of(Error::ReadOnly, "/a@yesterday/b").unwrap().contains("past"));
        assert_eq!(hint_of(Error::ReadOnly, "/a"), None);
        assert_eq!(hint_of(Error::NoSpace, "/a@yesterday"), None);
    }
}
