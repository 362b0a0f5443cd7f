//! What the kernel says of other processes, read in such a way that nothing they have open can make the
//! reader wait.
//!
//! A process may have anything open: a pipe that nobody writes to, a file of a FUSE file system that never
//! answers. So this module asks only for what the kernel itself knows: `status`, `fdinfo`, the text of a
//! link. Attributes come from `statx` with `AT_STATX_DONT_SYNC`, which answers from memory. A file is opened
//! only when it is known to lie in memory.
//!
//! All of it goes through one descriptor of `/proc/PID`. Once the process has ended that descriptor leads
//! nowhere, even if another process has its number by then.

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{AtFlags, FileType, MemfdFlags, Mode, OFlags, Statx, StatxFlags, CWD};
use rustix::process::{pidfd_open, Pid, PidfdFlags};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The most bytes that are read of any file here.
const TEXT_MAX: u64 = 64 << 10;
/// How many of a process's descriptors are examined. A daemon opens what matters first, so its numbers are
/// low.
const DESCRIPTORS_MAX: usize = 4096;

/// When a process started, if it lives.
pub fn process_start(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name, in brackets, may contain anything. Only numbers follow the last bracket.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    // A zombie serves nothing.
    (fields.first() != Some(&"Z")).then(|| fields.get(19)?.parse().ok()).flatten()
}

/// A process, held by a descriptor, so that waiting never ends up at another process that has taken its
/// number.
pub struct Process(OwnedFd);

impl Process {
    /// The process with this number; `None` if there is none any more.
    ///
    /// # Errors
    /// What the host says.
    pub fn hold(pid: u32) -> std::io::Result<Option<Process>> {
        let Some(pid) = Pid::from_raw(pid.cast_signed()) else { return Ok(None) };
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => Ok(Some(Process(descriptor))),
            Err(rustix::io::Errno::SRCH) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for its end, at most this long; returns whether it has ended.
    ///
    /// # Errors
    /// What the host says.
    pub fn wait(&self, at_most: Option<Duration>) -> std::io::Result<bool> {
        let end = at_most.map(|most| Instant::now() + most);
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let left = left.map(|left| Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            });
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], left.as_ref()) {
                Ok(0) => return Ok(false),
                Ok(_) => return Ok(true),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A file or device that a process has open and locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockedFile {
    /// Which one: see [`super::identity`].
    pub identity: (u64, u64),
    /// Who owns it.
    pub owner: u32,
    /// Whether it is open for writing.
    pub writable: bool,
}

/// A process as the kernel shows it.
pub struct Seen {
    directory: OwnedFd,
    /// Its number.
    pub pid: u32,
    /// The user who started it.
    pub user: u32,
}

impl Seen {
    /// The process with this number, if it lives.
    pub fn of(pid: u32) -> Option<Seen> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, format!("/proc/{pid}"), flags, Mode::empty()).ok()?;
        let mut seen = Seen { directory, pid, user: 0 };
        let status = seen.text("status")?;
        let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        seen.user = users.split_ascii_whitespace().next()?.parse().ok()?;
        Some(seen)
    }

    /// What the kernel says of the process in the file of this name.
    fn text(&self, name: &str) -> Option<String> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.directory, name, flags, Mode::empty()).ok()?);
        read(file)
    }

    /// The numbers of its descriptors; empty if this process may not look into it.
    fn descriptors(&self) -> Vec<u32> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = rustix::fs::openat(&self.directory, "fd", flags, Mode::empty());
        let Some(listing) = open.ok().and_then(|fd| rustix::fs::Dir::new(fd).ok()) else { return Vec::new() };
        let numbers = listing.filter_map(|entry| entry.ok()?.file_name().to_str().ok()?.parse().ok());
        numbers.take(DESCRIPTORS_MAX).collect()
    }

    /// The files whose locks it holds.
    pub fn held(&self) -> Vec<LockedFile> {
        let one = |number: u32| {
            let info = self.text(&format!("fdinfo/{number}"))?;
            let is_lock = |line: &str| line.starts_with("lock:") && line.contains(" FLOCK ");
            info.lines().any(is_lock).then_some(())?;
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
            let access = u32::from_str_radix(flags.trim(), 8).ok()? & OFlags::ACCMODE.bits();
            let found = status_from_memory(&self.directory, &format!("fd/{number}"), AtFlags::empty())?;
            Some(LockedFile {
                identity: identity_of(&found),
                owner: found.stx_uid,
                writable: access != OFlags::RDONLY.bits(),
            })
        };
        self.descriptors().into_iter().filter_map(one).collect()
    }

    /// The file in memory that it has made under this name.
    pub fn memory_file(&self, name: &str) -> Option<File> {
        let link = format!("/memfd:{name} (deleted)");
        self.descriptors().into_iter().find_map(|number| {
            let path = format!("fd/{number}");
            let found = rustix::fs::readlinkat(&self.directory, &path, Vec::new()).ok()?;
            (found.as_bytes() == link.as_bytes()).then_some(())?;
            // Files elsewhere may have that name, too. An `O_PATH` descriptor, which does not open the file,
            // shows where this one lies.
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&self.directory, &path, flags, Mode::empty()).ok()?;
            let found = status_from_memory(&file, "", AtFlags::EMPTY_PATH)?;
            let is_memory = Some((found.stx_dev_major, found.stx_dev_minor)) == device_of_memory()
                && FileType::from_raw_mode(found.stx_mode.into()) == FileType::RegularFile;
            is_memory.then(|| File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()).flatten()
        })
    }
}

/// Text of at most [`TEXT_MAX`] bytes.
pub fn read(file: File) -> Option<String> {
    let mut text = String::new();
    file.take(TEXT_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Attributes from the kernel's memory, without asking a file system.
fn status_from_memory(directory: &OwnedFd, path: &str, flags: AtFlags) -> Option<Statx> {
    let flags = flags | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(directory, path, flags, StatxFlags::BASIC_STATS).ok()
}

fn identity_of(found: &Statx) -> (u64, u64) {
    match FileType::from_raw_mode(found.stx_mode.into()) {
        FileType::BlockDevice => (u64::MAX, rustix::fs::makedev(found.stx_rdev_major, found.stx_rdev_minor)),
        _ => (rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino),
    }
}

/// A new file in memory.
///
/// # Errors
/// What the host says.
pub fn new_memory_file(name: &str) -> std::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // A kernel before 6.3.
        Err(rustix::io::Errno::INVAL) => Ok(rustix::fs::memfd_create(name, flags)?),
        other => Ok(other?),
    }
}

/// The device on which the kernel keeps such files. There is one, and nobody can mount it.
fn device_of_memory() -> Option<(u32, u32)> {
    static DEVICE: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    *DEVICE.get_or_init(|| {
        let found = status_from_memory(&new_memory_file("yore").ok()?, "", AtFlags::EMPTY_PATH)?;
        Some((found.stx_dev_major, found.stx_dev_minor))
    })
}

/// The processes that hold a lock of the kind that volumes have, according to the kernel's list, which
/// anybody may read.
pub fn takers_of_locks() -> BTreeSet<u32> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    locks.lines().filter_map(taker_in_line).collect()
}

/// `1: FLOCK  ADVISORY  WRITE 5021 fe:00:9978199 0 EOF`; `1: -> FLOCK …` only waits.
fn taker_in_line(line: &str) -> Option<u32> {
    let mut words = line.split_ascii_whitespace().skip(1);
    (words.next()? == "FLOCK").then(|| words.nth(2)?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that a living process has a start, and a number that no process has has none.
    #[test]
    fn processes() {
        assert!(process_start(std::process::id()).is_some());
        assert_eq!(process_start(u32::MAX), None);
    }

    /// Promises that the lines of the kernel's list of locks are understood.
    #[test]
    fn locks() {
        assert_eq!(taker_in_line("1: FLOCK  ADVISORY  WRITE 5021 fe:00:9978199 0 EOF"), Some(5021));
        assert_eq!(taker_in_line("1: -> FLOCK  ADVISORY  WRITE 5021 fe:00:9978199 0 EOF"), None);
        assert_eq!(taker_in_line("2: POSIX  ADVISORY  WRITE 5021 fe:00:9978199 0 EOF"), None);
    }

    /// Promises that the locked files and the files in memory of a process are found, and that a file
    /// elsewhere is not taken for one in memory because of its name.
    #[test]
    fn what_a_process_has_open() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("memfd:yore-test (deleted)");
        let file = File::options().write(true).create(true).truncate(true).open(&path).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        let own = Seen::of(std::process::id()).unwrap();
        assert_eq!(own.user, rustix::process::getuid().as_raw());
        let identity = crate::live::identity(&path).unwrap();
        assert!(own.held().contains(&LockedFile { identity, owner: own.user, writable: true }));
        assert!(own.memory_file("yore-test").is_none());
        let memory = new_memory_file("yore-test").unwrap();
        rustix::io::write(&memory, b"text").unwrap();
        assert_eq!(read(own.memory_file("yore-test").unwrap()).as_deref(), Some("text"));
        assert!(takers_of_locks().contains(&own.pid));
    }
}
