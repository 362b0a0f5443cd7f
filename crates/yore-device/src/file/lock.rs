//! Locks that keep others away from an open device, and the search for whoever holds one.
//!
//! The lock is `flock(2)`: exclusive for a writer, shared for readers. It belongs to the open file, not to
//! the process: two handles in one process exclude each other, and a daemon that forks after opening keeps
//! the lock in the child when the parent exits. It is released when the last copy of the descriptor closes,
//! so also by a crash. (Classic `fcntl` locks do neither: they are not inherited, and closing any descriptor
//! of the file drops them. Open-file-description locks would do, but the host never says who holds one.)
//!
//! The host remembers the process that *took* a lock. After a fork that process may be gone or, worse, its
//! number may belong to a stranger. So we look for the holder where we cannot be wrong: among all open
//! descriptors (`/proc/<pid>/fd`), for those of the same file whose `fdinfo` lists a `FLOCK`. Only if we may
//! not look at the descriptors (another user's process) do we believe `/proc/locks`, and only about processes
//! that exist.
//!
//! Writers open block devices with `O_EXCL` besides, which the host refuses for a device that it has mounted
//! or otherwise claimed, and which also holds between different names of one device. That leaves the lock on
//! a block device to be held by readers, or for an instant by the host itself: udev takes a shared lock
//! whenever somebody has closed a device that was open for writing, so that formatting and then opening would
//! often fail. A writer of a block device therefore waits up to [`PATIENCE`] for the lock. Everybody else
//! waits for [`MOMENT`]: a process that is just being started holds copies of what its parent has open until
//! its program is loaded, so a volume closed by one thread while another starts a command is free only then.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{makedev, AtFlags, FileType, FlockOperation, Statx, StatxFlags, CWD};
use rustix::io::Errno;

use crate::{mounts, DeviceError, Holder};

/// How long a writer waits for the lock of a block device.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long everybody waits.
const MOMENT: Duration = Duration::from_millis(500);
/// How long between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// Takes the lock, or says who has it.
pub(super) fn take(file: &File, path: &str, exclusive: bool) -> Result<(), DeviceError> {
    let found = file.metadata().map_err(|error| super::failure::failed(path, &error))?;
    let patience = match exclusive && found.file_type().is_block_device() {
        true => PATIENCE,
        false => MOMENT,
    };
    let start = Instant::now();
    let operation = match exclusive {
        true => FlockOperation::NonBlockingLockExclusive,
        false => FlockOperation::NonBlockingLockShared,
    };
    loop {
        return match rustix::fs::flock(file, operation) {
            Ok(()) => Ok(()),
            Err(Errno::INTR) => continue,
            Err(Errno::WOULDBLOCK) if start.elapsed() < patience => {
                std::thread::sleep(PAUSE);
                continue;
            }
            Err(Errno::WOULDBLOCK) => {
                Err(DeviceError::Busy { device: path.to_string(), holder: holder(&found) })
            }
            Err(errno) => Err(super::failure::failed(path, &io::Error::from(errno))),
        };
    }
}

/// The error for a block device that the host refuses to give out exclusively.
pub(super) fn claimed(path: &str, device: &Metadata) -> DeviceError {
    let name = path.to_string();
    match mount_point(device.rdev()) {
        Some(mount_point) => DeviceError::Mounted { device: name, mount_point },
        None => DeviceError::Busy { device: name, holder: holder(device) },
    }
}

/// Whether two files are the same file, or two names of the same block device.
fn same_device(a: &Statx, b: &Metadata) -> bool {
    let kind = FileType::from_raw_mode(a.stx_mode.into());
    match (kind == FileType::BlockDevice, b.file_type().is_block_device()) {
        (true, true) => makedev(a.stx_rdev_major, a.stx_rdev_minor) == b.rdev(),
        (false, false) => (makedev(a.stx_dev_major, a.stx_dev_minor), a.stx_ino) == (b.dev(), b.ino()),
        _ => false,
    }
}

/// The process that holds a lock on a file, if that can be found out.
fn holder(device: &Metadata) -> Option<Holder> {
    let taker = taker(device);
    let holders = lock_holders(device);
    // The process that took the lock, if it still has it; else one that inherited it.
    let inherited = holders.iter().copied().find(|&pid| Some(pid) == taker);
    let pid = inherited.or(holders.first().copied()).or(taker)?;
    let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(Holder { pid, command: command.trim_end().to_string() })
}

/// All processes that have the file open by a descriptor that holds a lock. Processes and descriptors come
/// and go while we look, and we may not look at many of them. Those are passed over.
fn lock_holders(device: &Metadata) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&pid| holds_lock(pid, device))
        .collect();
    pids.sort_unstable();
    pids
}

/// A stranger's file may be on a file system that never answers. So we first ask the host for what it knows
/// itself, and then for attributes as it remembers them.
fn holds_lock(pid: u32, device: &Metadata) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo"));
    descriptors.into_iter().flatten().flatten().any(|entry| {
        let info = fs::read_to_string(entry.path());
        info.is_ok_and(|text| text.lines().any(is_lock_line))
            && entry.file_name().to_str().is_some_and(|number| {
                let file = format!("/proc/{pid}/fd/{number}");
                let (flags, all) = (AtFlags::STATX_DONT_SYNC, StatxFlags::BASIC_STATS);
                rustix::fs::statx(CWD, file, flags, all).is_ok_and(|found| same_device(&found, device))
            })
    })
}

/// Whether a line of `fdinfo` is a lock that is held: `lock: 1: FLOCK ADVISORY WRITE 359 00:13:11691 0 EOF`.
fn is_lock_line(line: &str) -> bool {
    line.starts_with("lock:") && line.split_ascii_whitespace().any(|word| word == "FLOCK")
}

/// The process that took the lock, by the host's list of locks, if it still exists.
fn taker(device: &Metadata) -> Option<u32> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let file_id =
        format!("{:02x}:{:02x}:{}", libc::major(device.dev()), libc::minor(device.dev()), device.ino());
    locks.lines().find_map(|line| {
        let pid = taker_in_line(line, &file_id)?;
        Path::new(&format!("/proc/{pid}")).exists().then_some(pid)
    })
}

/// The process in a line such as `1: FLOCK ADVISORY WRITE 5021 fe:00:9978199 0 EOF`, if it is about this
/// place and about a holder, not a waiter (`1: -> FLOCK …`).
fn taker_in_line(line: &str, file_id: &str) -> Option<u32> {
    let words: Vec<_> = line.split_ascii_whitespace().collect();
    match words[..] {
        [_, "FLOCK", _, _, pid, found, ..] if found == file_id => pid.parse().ok(),
        _ => None,
    }
}

/// Where a block device is mounted, by the host's list of mounts.
fn mount_point(device: u64) -> Option<String> {
    let number = (libc::major(device), libc::minor(device));
    let mount = mounts::mounts().ok()?.into_iter().find(|mount| mount.device == number)?;
    Some(mount.directory.display().to_string())
}

/// Turns direct I/O on or off for an open file.
pub(super) fn set_direct(file: &File, direct: bool) -> Result<(), Errno> {
    let mut flags = rustix::fs::fcntl_getfl(file)?;
    flags.set(rustix::fs::OFlags::DIRECT, direct);
    rustix::fs::fcntl_setfl(file, flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that lines of the host's lists are understood.
    #[test]
    fn lists_of_the_host_are_understood() {
        let line = "1: FLOCK  ADVISORY  WRITE 5021 fe:00:9978199 0 EOF";
        assert_eq!(taker_in_line(line, "fe:00:9978199"), Some(5021));
        assert_eq!(taker_in_line(line, "fe:00:9978198"), None);
        let waiting = "1: -> FLOCK  ADVISORY  WRITE 5022 fe:00:9978199 0 EOF";
        assert_eq!(taker_in_line(waiting, "fe:00:9978199"), None);
        assert!(is_lock_line("lock:\t1: FLOCK  ADVISORY  WRITE 359 00:13:11691 0 EOF"));
        assert!(!is_lock_line("flags:\t0100002"));
    }
}
