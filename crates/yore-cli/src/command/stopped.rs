//! Messages about a mount whose volume has stopped writing after an error.

use crate::output::{json_seconds, printable, Clock};
use serde_json::{json, Value};
use std::fs::File;
use std::path::Path;
use yore_control::{Client as _, Mounted, Stopped};

/// What to do about it.
const ADVICE: &str = "what was written since the last sync may be lost, and reads go on: copy elsewhere what matters, unmount, mend the \
                      cause, run `yore check`, and mount again";

/// Whether writing to the volume of a mount has stopped.
///
/// # Errors
/// A user who may not open the directory gets no answer, and a daemon of another version gives none.
pub fn of_mount(directory: &Path) -> anyhow::Result<Option<Stopped>> {
    Ok(Mounted(File::open(directory)?).stopped()?)
}

/// The state for programs.
pub fn json(stopped: &Stopped) -> Value {
    json!({ "since": json_seconds(stopped.since_seconds), "error": stopped.why })
}

/// The state for people, from what [`json()`] made.
pub fn text(of: &Value, clock: &Clock) -> Option<String> {
    let why = printable(of["error"].as_str()?.as_bytes());
    let since = clock.of_json(&of["since"]).unwrap_or_default();
    Some(format!("since {since}: {why}; {ADVICE}"))
}

/// The state as a whole message.
pub fn message(directory: &Path, stopped: &Stopped) -> String {
    let since = Clock::new(false).seconds(stopped.since_seconds);
    let (name, why) = (directory.display(), printable(stopped.why.as_bytes()));
    format!("{name}: nothing is written to the volume since {since}, after an error ({why}); {ADVICE}")
}
