//! Mounts that are being served: which process serves which volume where.
//!
//! Two sources, neither of which is believed alone. The kernel's table of mounts says what is mounted where. The
//! daemon leaves a small JSON file, named by its process id, in a directory that other commands can find:
//! `/run/yore` for root, `$XDG_RUNTIME_DIR/yore` or `/tmp/yore-UID` for others. A file whose process is gone (told
//! from a later one with the same number by its start time) is stale: it is passed over, and removed by the next daemon.

use anyhow::Context as _;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::process::{pidfd_open, Pid, PidfdFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a daemon says of itself.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Daemon {
    /// Its process.
    pub pid: u32,
    /// When the process started, in the host's clock ticks since it booted.
    pub process_start: u64,
    /// The volume, an absolute path.
    pub volume: PathBuf,
    /// Which file or device that is, whatever its name: see [`identity`].
    pub identity: (u64, u64),
    /// Where it is mounted; if only snapshots of it are, where one of them is.
    pub directory: PathBuf,
    /// Whether the present is mounted, and not only snapshots.
    #[serde(default = "yes")]
    pub has_present: bool,
    /// Snapshots that are mounted by themselves.
    #[serde(default)]
    pub snapshots: Vec<MountedSnapshot>,
    /// Where it takes requests.
    #[serde(default)]
    pub socket: Option<PathBuf>,
    /// The engine in use.
    pub engine: String,
    /// Whether it refuses changes.
    pub read_only: bool,
    /// The volume's identity.
    pub uuid: String,
    /// The volume's label.
    pub label: String,
    /// Options as given, in one string.
    pub options: String,
    /// Where it logs.
    pub log: String,
    /// When it was mounted, seconds since 1970.
    pub mounted_seconds: u64,
    /// What the volume had been left as when it was mounted.
    pub state_found: String,
    /// The format version.
    pub format: (u32, u32),
    /// The mount's number in the life of the volume.
    pub mount_id: u64,
}

fn yes() -> bool {
    true
}

/// A snapshot that is mounted by itself.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct MountedSnapshot {
    /// Where.
    pub directory: PathBuf,
    /// Its number.
    pub number: u64,
    /// Its name, or its time where it was mounted.
    pub at: String,
}

/// Which file or device a path names: device and inode of a file, device number of a block device.
pub fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    let found = fs::metadata(path)?;
    Ok(match found.file_type().is_block_device() {
        true => (u64::MAX, found.rdev()),
        false => (found.dev(), found.ino()),
    })
}

/// When a process started, if it lives.
pub fn process_start(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name, in brackets, may contain anything; what follows the last bracket is numbers.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    // A zombie serves nothing.
    (fields.first() != Some(&"Z")).then(|| fields.get(19)?.parse().ok()).flatten()
}

/// A process that is held on to, so that its number cannot be taken by another while it is waited for.
pub struct Process(std::os::fd::OwnedFd);

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

    /// Waits for its end, at most so long; whether it ended.
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

/// How long to wait for a daemon whose mount is gone and that is still closing the volume.
const CLOSING: Duration = Duration::from_secs(30);

/// If the daemon of a volume is closing it, waits for that; whether it is worth trying again. umount(8) returns as soon
/// as the mount is gone, so the next command often comes that early.
pub fn wait_until_closed(volume: &Path) -> bool {
    let Some(daemon) = daemon_of_volume(volume) else { return false };
    if is_mounted(&daemon.directory) {
        return false;
    }
    match Process::hold(daemon.pid) {
        Ok(None) => true,
        Ok(Some(process)) => process.wait(Some(CLOSING)).unwrap_or(false),
        Err(_) => false,
    }
}

/// Where daemons of this user leave their files.
fn own_directory() -> PathBuf {
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return PathBuf::from("/run/yore");
    }
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|d| Path::new(d).is_dir()) {
        Some(runtime) => Path::new(&runtime).join("yore"),
        None => PathBuf::from(format!("/tmp/yore-{}", uid.as_raw())),
    }
}

/// All directories in which this process may find such files.
fn directories() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid();
    let mut found = vec![PathBuf::from("/run/yore"), own_directory()];
    found.push(PathBuf::from(format!("/tmp/yore-{}", uid.as_raw())));
    if uid.is_root() {
        // Root sees everybody's.
        let users = fs::read_dir("/run/user").into_iter().flatten().flatten();
        found.extend(users.map(|user| user.path().join("yore")));
        let temporary = fs::read_dir("/tmp").into_iter().flatten().flatten();
        found.extend(
            temporary.filter(|e| e.file_name().to_string_lossy().starts_with("yore-")).map(|e| e.path()),
        );
    }
    found.sort();
    found.dedup();
    // A directory in /tmp might have been put there by somebody else to tell us stories.
    found.retain(|directory| {
        fs::symlink_metadata(directory)
            .is_ok_and(|m| m.is_dir() && (m.uid() == uid.as_raw() || m.uid() == 0 || uid.is_root()))
    });
    found
}

/// The daemon's file; removed when dropped.
#[derive(Debug)]
pub struct Announcement(PathBuf);

impl Drop for Announcement {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "cannot remove the file that announces this mount");
        }
    }
}

/// A directory for files of this user's daemons, made if it is not there, and really this user's.
///
/// # Errors
/// It cannot be made, or is somebody else's.
pub fn runtime_directory() -> anyhow::Result<PathBuf> {
    let directory = own_directory();
    let uid = rustix::process::geteuid();
    let mode = if uid.is_root() { 0o755 } else { 0o700 };
    match fs::DirBuilder::new().mode(mode).create(&directory) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("cannot make {}", directory.display()));
        }
        _ => {}
    }
    let found =
        fs::symlink_metadata(&directory).with_context(|| format!("cannot use {}", directory.display()))?;
    anyhow::ensure!(
        found.is_dir() && found.uid() == uid.as_raw(),
        "{} is not a directory of this user; remove it",
        directory.display()
    );
    Ok(directory)
}

/// Leaves word of a mount, and clears away what dead daemons left.
///
/// # Errors
/// The file cannot be written.
pub fn announce(daemon: &Daemon) -> anyhow::Result<Announcement> {
    let directory = runtime_directory()?;
    for (path, found) in files_in(&directory) {
        if !found.is_some_and(|d| d.lives()) {
            // Another daemon may be clearing it away too.
            let _ = fs::remove_file(path);
        }
    }
    // Of an earlier process with this number.
    let _ = fs::remove_file(word_of(&directory, daemon.pid));
    remove_old_logs(&directory);
    let announcement = Announcement(directory.join(format!("{}.json", daemon.pid)));
    announcement.renew(daemon)?;
    Ok(announcement)
}

impl Announcement {
    /// Says something else from now on.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn renew(&self, daemon: &Daemon) -> anyhow::Result<()> {
        let Announcement(path) = self;
        let partial = path.with_extension("new");
        let _ = fs::remove_file(&partial);
        let write = || -> std::io::Result<()> {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let mut file = fs::File::from(rustix::fs::open(&partial, flags, Mode::from_raw_mode(0o644))?);
            file.write_all(serde_json::to_string_pretty(daemon)?.as_bytes())?;
            fs::rename(&partial, path)
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Where this process takes requests.
pub fn own_socket(directory: &Path) -> PathBuf {
    directory.join(format!("{}.sock", std::process::id()))
}

/// Where this process logs if nothing else is there to log to.
pub fn own_log(directory: &Path) -> PathBuf {
    directory.join(format!("{}.log", std::process::id()))
}

/// Removes that log, once there is nothing in it that anybody needs.
pub fn remove_own_log() {
    // There is none, mostly.
    let _ = fs::remove_file(own_log(&own_directory()));
}

/// How long the log and the last word of a dead daemon are kept for whoever asks why it died.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

fn remove_old_logs(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let kind = path.extension().and_then(|e| e.to_str());
        let pid = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
        let dead = pid.is_some_and(|pid| process_start(pid).is_none());
        let age = entry.metadata().ok().and_then(|found| found.modified().ok()?.elapsed().ok());
        let old = age.is_some_and(|age| age > KEPT);
        if dead && (kind == Some("sock") || matches!(kind, Some("log" | "failed")) && old) {
            // Another daemon may be doing the same.
            let _ = fs::remove_file(path);
        }
    }
}

/// How a daemon that ended badly says so to the `umount` that waits for it.
fn word_of(directory: &Path, pid: u32) -> PathBuf {
    directory.join(format!("{pid}.failed"))
}

/// Leaves word of a bad end of this process.
pub fn leave_word(message: &str) {
    let written = runtime_directory()
        .and_then(|directory| Ok(fs::write(word_of(&directory, std::process::id()), message)?));
    if let Err(error) = written {
        tracing::warn!("whoever unmounted is not told of the error: {error:#}");
    }
}

/// What a daemon that ended had to say, if its end was bad.
pub fn take_word(pid: u32) -> Option<String> {
    directories().into_iter().find_map(|directory| {
        let path = word_of(&directory, pid);
        let message = fs::read_to_string(&path).ok()?;
        // Another user's cannot be removed; its daemon's successor will.
        let _ = fs::remove_file(&path);
        Some(message)
    })
}

impl Daemon {
    /// The snapshot that it serves on a directory.
    pub fn snapshot_at(&self, directory: &Path) -> Option<&MountedSnapshot> {
        self.snapshots.iter().find(|snapshot| snapshot.directory == directory)
    }

    /// Where its snapshots are mounted, for people.
    pub fn snapshot_directories(&self) -> String {
        let all = self.snapshots.iter().map(|snapshot| snapshot.directory.display().to_string());
        all.collect::<Vec<_>>().join(" ")
    }

    /// Whether the process that wrote this still runs.
    pub fn lives(&self) -> bool {
        process_start(self.pid) == Some(self.process_start)
    }
}

/// The files in a directory, with what they say where they can be read.
fn files_in(directory: &Path) -> Vec<(PathBuf, Option<Daemon>)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .map(|path| {
            let text = fs::read(&path).unwrap_or_default();
            (path, serde_json::from_slice(&text).ok())
        })
        .collect()
}

/// All daemons that live and may be seen.
pub fn daemons() -> Vec<Daemon> {
    let mut found = BTreeMap::new();
    for directory in directories() {
        for daemon in files_in(&directory).into_iter().filter_map(|(_, daemon)| daemon) {
            if daemon.lives() {
                found.insert(daemon.pid, daemon);
            }
        }
    }
    found.into_values().collect()
}

/// The daemon that serves a volume, by whatever name.
pub fn daemon_of_volume(volume: &Path) -> Option<Daemon> {
    let wanted = identity(volume).ok()?;
    daemons().into_iter().find(|daemon| daemon.identity == wanted)
}

/// The daemon that serves the mount on a directory, of the present or of a snapshot.
pub fn daemon_at(directory: &Path) -> Option<Daemon> {
    daemons()
        .into_iter()
        .find(|daemon| daemon.directory == directory || daemon.snapshot_at(directory).is_some())
}

/// A mounted volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where.
    pub directory: PathBuf,
    /// The volume, as the table of mounts has it.
    pub volume: PathBuf,
}

/// All Yore mounts in the table of mounts.
pub fn mounts() -> Vec<Mount> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mut found: Vec<Mount> = Vec::new();
    for line in table.split(|b| *b == b'\n') {
        let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
        let Some(dash) = fields.iter().position(|f| *f == b"-") else { continue };
        let (Some(directory), Some(kind), Some(source)) =
            (fields.get(4), fields.get(dash + 1), fields.get(dash + 2))
        else {
            continue;
        };
        if *kind == b"fuse.yore" {
            let mount = Mount { directory: unescape(directory), volume: unescape(source) };
            // What lies on top comes later and hides what is below.
            found.retain(|m| m.directory != mount.directory);
            found.push(mount);
        }
    }
    found
}

/// All places where anything is mounted.
pub fn mount_points() -> Vec<PathBuf> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    table.split(|b| *b == b'\n').filter_map(|line| line.split(|b| *b == b' ').nth(4)).map(unescape).collect()
}

/// Whether a volume is mounted on a directory.
pub fn is_mounted(directory: &Path) -> bool {
    mounts().iter().any(|mount| mount.directory == directory)
}

/// Where a volume is mounted, by the daemon's word or the kernel's.
pub fn mount_of(volume: &Path) -> Option<Mount> {
    if let Some(daemon) = daemon_of_volume(volume) {
        return Some(Mount { directory: daemon.directory, volume: daemon.volume });
    }
    let wanted = identity(volume).ok()?;
    mounts().into_iter().find(|mount| identity(&mount.volume).is_ok_and(|found| found == wanted))
}

/// The mount that a directory is in, if it is a Yore mount. The directory may be a dead mount.
pub fn mount_at(directory: &Path) -> Option<Mount> {
    let path = match directory.canonicalize() {
        Ok(path) => path,
        // Every call on a dead mount fails, so only what is above it is resolved.
        Err(_) => {
            let path = std::path::absolute(directory).ok()?;
            path.parent()?.canonicalize().ok()?.join(path.file_name()?)
        }
    };
    // The longest one wins: mounts may lie inside mounts.
    let inside = mounts().into_iter().filter(|mount| path.starts_with(&mount.directory));
    let mount = inside.max_by_key(|mount| mount.directory.as_os_str().len())?;
    // Something else may be mounted between.
    if path != mount.directory {
        let device = |p: &Path| fs::metadata(p).map(|m| m.dev()).ok();
        if device(&path) != device(&mount.directory) {
            return None;
        }
    }
    Some(mount)
}

/// Undoes the octal escapes of the table of mounts (`\040` for a blank).
fn unescape(field: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|d| first == b'\\' && d.iter().all(|c| (b'0'..=b'7').contains(c)));
        match digits {
            Some(digits) => {
                bytes.push(digits.iter().fold(0u8, |n, c| n.wrapping_mul(8).wrapping_add(c - b'0')));
                rest = &tail[3..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that a process is told from a later one with its number, and from none.
    #[test]
    fn processes() {
        assert!(process_start(std::process::id()).is_some());
        assert_eq!(process_start(u32::MAX), None);
    }

    /// Promises that blanks and backslashes in mount points are understood.
    #[test]
    fn escapes() {
        assert_eq!(unescape(br"/a\040b\134c"), Path::new(r"/a b\c"));
        assert_eq!(unescape(br"/a\04"), Path::new(r"/a\04"));
    }
}
