//! Files of a mount that programs have mapped so that they can store to them.
//!
//! A store through a mapping reaches the daemon when the kernel writes the page, some time later. Today's
//! kernels do not wait for that in syncfs(2) on FUSE: they only begin to write. No request tells of a mapping
//! either. So a caller that needs all earlier stores reads each process's table of mappings ([`tables`]), and
//! has the kernel write the pages of those files. A file that is no longer mapped needs no such thing: the
//! kernel writes its pages before the mapping goes.
//!
//! Processes that cannot be seen are skipped: those in other namespaces, and those of other users if the
//! daemon does not run as root. Those that do not answer in time are named ([`patient`]).

pub(crate) mod patient;
mod tables;

use patient::{read_all, Found, Patience, Process, Stuck};
use std::fs;
use std::io;
use std::time::Duration;

/// How long to wait for tables. Reading one takes less than a millisecond. A snapshot waits for this.
const PATIENCE: Patience =
    Patience { alone: Duration::from_millis(100), each: Duration::from_secs(2), all: Duration::from_secs(3) };

/// The processes of this machine that did not answer, and may not have answered yet.
static STUCK: Stuck = Stuck::new();

/// The inode numbers, as `stat` shows them, of the files on a device that are mapped for writing. A thread
/// that serves must not call this: a process whose table is read may itself wait for a request.
///
/// # Errors
/// `/proc` cannot be listed; no thread can be started.
pub(crate) fn mapped_files(device: (u32, u32)) -> io::Result<Found<u64>> {
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        if let Some(number) = number {
            processes.extend(Process::find(number)?);
        }
    }
    read_all(processes, &STUCK, PATIENCE, move |process| tables::files_of(process, device))
}
