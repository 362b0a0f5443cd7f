//! Mounts that are being served: which process serves which volume where.
//!
//! Nothing that anybody could have left somewhere is believed. What is asked is the kernel:
//! - its list of locks has the processes that may hold a volume, and a process's descriptors show whether it
//!   does;
//! - a daemon says what it serves in a file in memory, which is among its descriptors (`live/announce.rs`).
//!   So it speaks for itself: its number and its user are the kernel's word, not its own;
//! - the table of mounts has what is mounted where, and who mounted it.
//!
//! A daemon is believed about a *volume* if it holds that volume's lock, and is root's, the caller's, or of
//! the owner of the volume, or has the volume open for writing: any other user may take the lock of a file
//! that he can read. It is believed about a *directory* if the mount there was made by the user whose process
//! it is.
//!
//! Who may not look into root's processes reads what root's daemons leave below `/run/yore`, where only root
//! writes.

mod announce;
mod process;
mod table;

pub use announce::{
    announce, leave_directory, own_log, own_socket, remove_own_log, runtime_directory, Announcement,
};
pub use process::{process_start, Process};
pub use table::{is_mounted, mount_at, mount_points, mounts, Mount};

use process::{LockedFile, Seen};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What a daemon says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    /// Bytes of the volume's intent log.
    #[serde(default)]
    pub intent_log: u64,
    /// What the kernel says of it, and not the daemon.
    #[serde(skip)]
    pub known: Known,
}

/// What is known of a daemon without its word.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Whose process it is.
    user: u32,
    /// How it holds the volume; `None` if that may not be looked at.
    held: Option<LockedFile>,
    /// Where its last words will be.
    last_words: Option<Arc<File>>,
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
    Ok(identity_and_owner(path)?.0)
}

fn identity_and_owner(path: &Path) -> std::io::Result<((u64, u64), u32)> {
    let found = fs::metadata(path)?;
    let identity = match found.file_type().is_block_device() {
        true => (u64::MAX, found.rdev()),
        false => (found.dev(), found.ino()),
    };
    Ok((identity, found.uid()))
}

/// How long to wait for a daemon whose mount is gone and that is still closing the volume.
const CLOSING: Duration = Duration::from_secs(30);

/// If the daemon of a volume is closing it, waits for that; whether it is worth trying again. umount(8)
/// returns as soon as the mount is gone, so the next command often comes that early.
pub fn wait_until_closed(volume: &Path) -> bool {
    let Some(daemon) = daemon_of_volume(volume) else { return false };
    if daemon.is_mounted() {
        return false;
    }
    match Process::hold(daemon.pid) {
        Ok(None) => true,
        Ok(Some(process)) => process.wait(Some(CLOSING)).unwrap_or(false),
        Err(_) => false,
    }
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

    /// Whether its process still runs.
    pub fn lives(&self) -> bool {
        process_start(self.pid) == Some(self.process_start)
    }

    /// Whether it is mounted where it says it is, by its own user.
    pub fn is_mounted(&self) -> bool {
        self.mount().is_some()
    }

    fn mount(&self) -> Option<Mount> {
        let ours = |mount: &Mount| mount.directory == self.directory && mount.user == self.known.user;
        mounts().into_iter().find(ours)
    }

    /// What it had to say at its end, if that was bad; asked after it has ended.
    pub fn last_words(&self) -> Option<String> {
        let mut file: &File = self.known.last_words.as_ref()?;
        file.seek(SeekFrom::Start(0)).ok()?;
        process::read(file.try_clone().ok()?).filter(|message| !message.is_empty())
    }

    /// What a process says of itself, if it holds what it says it serves.
    fn of_process(pid: u32) -> Option<Daemon> {
        let seen = Seen::look(pid)?;
        let text = process::read(seen.memory_file(announce::MOUNTED)?)?;
        let mut daemon: Daemon = serde_json::from_str(&text).ok()?;
        let held = seen.held().into_iter().find(|held| held.identity == daemon.identity)?;
        daemon.known = Known {
            user: seen.user,
            held: Some(held),
            last_words: seen.memory_file(announce::LAST_WORDS).map(Arc::new),
        };
        (daemon.pid == seen.pid).then_some(daemon)
    }

    /// Whether to believe that it serves a volume of this owner.
    fn is_trusted_with(&self, owner: u32) -> bool {
        let Known { user, held, .. } = &self.known;
        let users = [0, owner, rustix::process::geteuid().as_raw()];
        users.contains(user) || held.is_some_and(|held| held.writable)
    }
}

/// All daemons that live and may be seen, with what is known of them.
fn daemons() -> impl Iterator<Item = Daemon> {
    let mut found: BTreeMap<u32, Daemon> =
        announce::of_root().into_iter().map(|daemon| (daemon.pid, daemon)).collect();
    found.extend(
        process::takers_of_locks().into_iter().filter_map(|pid| Some((pid, Daemon::of_process(pid)?))),
    );
    found.into_values()
}

/// The daemon that serves a volume, by whatever name.
pub fn daemon_of_volume(volume: &Path) -> Option<Daemon> {
    let (wanted, owner) = identity_and_owner(volume).ok()?;
    daemons().find(|daemon| daemon.identity == wanted && daemon.is_trusted_with(owner))
}

/// The daemon that serves the mount on a directory, of the present or of a snapshot.
pub fn daemon_at(directory: &Path) -> Option<Daemon> {
    let mount = mounts().into_iter().find(|mount| mount.directory == directory)?;
    let claims = |daemon: &Daemon| daemon.directory == directory || daemon.snapshot_at(directory).is_some();
    daemons().find(|daemon| daemon.known.user == mount.user && claims(daemon))
}

/// Where a volume is mounted, by the daemon's word or the kernel's.
pub fn mount_of(volume: &Path) -> Option<Mount> {
    if let Some(daemon) = daemon_of_volume(volume) {
        let mount = daemon.mount()?;
        return Some(Mount { volume: daemon.volume, ..mount });
    }
    // Its daemon may not be looked at. Whoever mounts chooses what stands in the table for the volume.
    let (_, owner) = identity_and_owner(volume).ok()?;
    let path = volume.canonicalize().ok()?;
    mounts().into_iter().find(|mount| mount.volume == path && (mount.is_trusted() || mount.user == owner))
}

/// The user of a process, if it lives.
pub fn user_of(pid: u32) -> Option<u32> {
    Seen::look(pid).map(|seen| seen.user)
}
