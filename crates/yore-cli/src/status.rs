//! How a command ends: exit codes, and the messages of those that failed.

use std::fmt;
use std::io;

/// Done.
pub const OK: u8 = 0;
/// Done, and something was found (`check`), or nothing (`find` has no such status).
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
1    `check` found something wrong with the volume
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

/// Writes the message of a failure, and gives the status to end with.
pub fn report(outcome: anyhow::Result<u8>) -> u8 {
    match outcome {
        Ok(status) => status,
        Err(error) => {
            let status = of(&error);
            let message = message(&error);
            if status != OUTPUT_CLOSED && !message.is_empty() {
                warn(&message);
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
