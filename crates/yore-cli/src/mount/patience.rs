//! How long an `umount` waits for the daemon, and what it says when the daemon does not end.
//!
//! When the waiting begins, the mount is gone. Then the daemon closes the volume, which takes as long as
//! writing takes. But the mount is gone only *here*: a process in another mount namespace (a container, or
//! `unshare -m`) may still have it, and nobody here can take it away from there. The kernel's list of
//! connections tells the two cases apart.

use crate::live::Mount;
use crate::status::{self, Ended};
use rustix::fs::{AtFlags, CWD};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use yore_device::mounts;

/// The time between two checks.
pub const SLICE: Duration = Duration::from_millis(250);
/// How long a connection may last once its mount is gone.
const CONNECTION: Duration = Duration::from_secs(5);
/// After how long a waiting user learns what the command waits for.
const NOTICE: Duration = Duration::from_secs(10);
/// How long closing may take.
const CLOSING: Duration = Duration::from_secs(600);
/// How long closing may take for a daemon of another user, who may never want to end it.
const CLOSING_OF_OTHERS: Duration = Duration::from_secs(60);

/// The wait for a daemon whose mount the caller has removed.
pub struct Patience<'m> {
    mount: &'m Mount,
    pid: u32,
    closing: Duration,
    begun: Instant,
    told: bool,
}

impl Patience<'_> {
    /// Begins now. `mount` is what was there.
    pub fn new(mount: &Mount, pid: u32) -> Patience<'_> {
        let closing = if mount.is_trusted() { CLOSING } else { CLOSING_OF_OTHERS };
        Patience { mount, pid, closing, begun: Instant::now(), told: false }
    }

    /// Whether to go on waiting; to be called again and again.
    ///
    /// # Errors
    /// The wait has been too long; the error says why.
    pub fn wait_on(&mut self) -> anyhow::Result<()> {
        let waited = self.begun.elapsed();
        if waited > CONNECTION && self.connection_lasts() {
            return Err(Ended { message: self.why_it_lasts(), status: status::NOT_CLOSED }.into());
        }
        let (pid, volume) = (self.pid, self.mount.volume.display());
        if waited > self.closing {
            let message = format!(
                "{} is unmounted, but process {pid} has not closed {volume} in {} seconds; its log may say why. It may be \
                 still writing; `kill {pid}` tells it to end",
                self.mount.directory.display(),
                waited.as_secs()
            );
            return Err(Ended { message, status: status::NOT_CLOSED }.into());
        }
        if waited > NOTICE && !self.told {
            self.told = true;
            status::warn(&format!("waiting until process {pid} has written {volume}"));
        }
        Ok(())
    }

    /// Whether somebody still has the mount.
    fn connection_lasts(&self) -> bool {
        let listed = format!("/sys/fs/fuse/connections/{}", self.mount.connection);
        Path::new(&listed).exists() || !self.other_users().is_empty()
    }

    /// Processes in other namespaces that have the mount, one for each namespace, as far as this process may
    /// examine them.
    fn other_users(&self) -> Vec<(u32, String)> {
        let device = (0, self.mount.connection);
        let has_it = |table: Vec<mounts::Mount>| table.iter().any(|mount| mount.device == device);
        let mut namespaces = vec![namespace("self")];
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let mut found = Vec::new();
        for pid in numbers {
            let of = namespace(&pid.to_string());
            if of.is_none() || namespaces.contains(&of) {
                continue;
            }
            namespaces.push(of);
            if mounts::mounts_of(pid).is_ok_and(has_it) {
                let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                found.push((pid, crate::output::printable(name.trim_end().as_bytes())));
            }
        }
        found
    }

    fn why_it_lasts(&self) -> String {
        let other_users = self.other_users();
        let who = match other_users.as_slice() {
            [] => {
                "a process in another namespace of mounts (a container, perhaps) keeps the mount".to_string()
            }
            [(pid, name)] => format!("process {pid} ({name}) in another namespace of mounts keeps it"),
            other_users => {
                let all: Vec<String> =
                    other_users.iter().map(|(pid, name)| format!("{pid} ({name})")).collect();
                format!("processes {} in other namespaces of mounts keep it", all.join(", "))
            }
        };
        format!(
            "{} is unmounted here, but {who}, so process {} still has {}: end what keeps it, or let the daemon close the volume \
             and end all use of it (kill {})",
            self.mount.directory.display(),
            self.pid,
            self.mount.volume.display(),
            self.pid
        )
    }
}

/// Which mount namespace a process is in.
fn namespace(process: &str) -> Option<u64> {
    let found = rustix::fs::statat(CWD, format!("/proc/{process}/ns/mnt"), AtFlags::empty());
    found.ok().map(|found| found.st_ino)
}
