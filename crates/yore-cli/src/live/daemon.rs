//! What is known of a daemon: its own word, and the kernel's.

use super::any_path;
use super::process::{self, process_start, LockedFile};
use super::table::{mounts, Mount};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a daemon says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Daemon {
    /// Its process.
    pub pid: u32,
    /// When the process started, in the host's clock ticks since it booted.
    pub process_start: u64,
    /// The volume, an absolute path.
    #[serde(with = "any_path")]
    pub volume: PathBuf,
    /// Which file or device that is, whatever its name: see [`super::identity`].
    pub identity: (u64, u64),
    /// Where it is mounted. If only snapshots of it are mounted, where one of them is.
    #[serde(with = "any_path")]
    pub directory: PathBuf,
    /// Whether the present is mounted, and not only snapshots.
    #[serde(default = "yes")]
    pub has_present: bool,
    /// Snapshots that are mounted by themselves.
    #[serde(default)]
    pub snapshots: Vec<MountedSnapshot>,
    /// Where it takes requests.
    #[serde(
        default,
        serialize_with = "any_path::serialize_or_none",
        deserialize_with = "any_path::deserialize_or_none"
    )]
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
    /// In what state the mount found the volume.
    pub state_found: String,
    /// The format version.
    pub format: (u32, u32),
    /// The mount's number in the life of the volume.
    pub mount_id: u64,
    /// Bytes of the volume's intent log.
    #[serde(default)]
    pub intent_log: u64,
    /// What the kernel says of the daemon, rather than the daemon itself.
    #[serde(skip)]
    pub known: Known,
}

/// What is known of a daemon without relying on its word.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Whose process it is.
    pub(super) user: u32,
    /// How it holds the volume; `None` if this process may not see that.
    pub(super) held: Option<LockedFile>,
    /// Where its last words will be.
    pub(super) last_words: Option<Arc<File>>,
}

fn yes() -> bool {
    true
}

/// A snapshot that is mounted by itself.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct MountedSnapshot {
    /// Where.
    #[serde(with = "any_path")]
    pub directory: PathBuf,
    /// Its number.
    pub number: u64,
    /// Its name, or its time where it was mounted.
    pub at: String,
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

    /// Its mount, according to the kernel.
    pub(super) fn mount(&self) -> Option<Mount> {
        let ours = |mount: &Mount| mount.directory == self.directory && mount.user == self.known.user;
        mounts().into_iter().find(ours)
    }

    /// What it said at its end, if it ended badly; to be asked after it has ended.
    pub fn last_words(&self) -> Option<String> {
        let mut file: &File = self.known.last_words.as_ref()?;
        file.seek(SeekFrom::Start(0)).ok()?;
        process::read(file.try_clone().ok()?).filter(|message| !message.is_empty())
    }

    /// Whether to believe its claim that it serves a volume of this owner.
    pub(super) fn is_trusted_with(&self, owner: u32) -> bool {
        let Known { user, held, .. } = &self.known;
        let users = [0, owner, rustix::process::geteuid().as_raw()];
        users.contains(user) || held.is_some_and(|held| held.writable)
    }
}
