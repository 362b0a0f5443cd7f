//! Requests of commands to a mount, through one of its directories.

use std::fs::File;
use yore_control::{Client as _, Mounted, Saying, Take};
use yore_fs::{EventNo, Result, Timestamp};

pub fn snapshot(dir: &File, name: &str) -> Result<(EventNo, Timestamp)> {
    Mounted(dir).take(Take { name: name.into(), ..Take::default() })
}

pub fn hold(dir: &File, number: EventNo, held: bool) -> Result<()> {
    Mounted(dir).describe(number, Saying { hold: Some(held.then(String::new)), ..Saying::default() })
}

/// The number of an error that arrived whole.
#[track_caller]
pub fn number_of<T: std::fmt::Debug>(outcome: Result<T>) -> i32 {
    yore_fuse::errno(&outcome.unwrap_err()).code()
}
