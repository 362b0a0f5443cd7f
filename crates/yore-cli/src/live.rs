//! Mounts that are being served: which process serves which volume where.
//!
//! This module trusts no file that anybody could have left somewhere. It asks the kernel:
//! - The kernel's list of locks names the processes that may hold a volume, and a process's descriptors show
//!   whether it does.
//! - A daemon describes what it serves in a file in memory, which is among its descriptors
//!   (`live/announce.rs`). Its process number and its user come from the kernel, not from that file.
//! - The table of mounts says what is mounted where, and who mounted it.
//!
//! A daemon is trusted about a *volume* if it holds that volume's lock and one of these is true: its user is
//! root, the caller or the owner of the volume, or it has the volume open for writing. The lock alone is not
//! enough, because any user may lock a file that he can read. A daemon is trusted about a *directory* if its
//! user made the mount there.
//!
//! A caller who may not look into root's processes reads what root's daemons leave below `/run/yore`, where
//! only root writes.

mod announce;
mod any_path;
mod daemon;
mod process;
mod table;

pub use announce::{
    announce, leave_directory, own_log, own_socket, remove_own_log, runtime_directory, Announcement,
};
pub use daemon::{Daemon, Known, MountedSnapshot};
pub use process::{process_start, Process};
pub use table::{is_mounted, mount_at, mount_points, mounts, Mount};

use process::Seen;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

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

/// How long to wait for a daemon that is still closing the volume after its mount is gone.
const CLOSING: Duration = Duration::from_secs(30);

/// If the daemon of a volume is closing it, waits until it has. Returns whether another try is worthwhile.
/// umount(8) returns as soon as the mount is gone, so the next command often starts before the volume is
/// closed.
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

/// What a process says it serves, if it really holds that volume.
fn daemon_of_process(pid: u32) -> Option<Daemon> {
    let seen = Seen::of(pid)?;
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

/// All living daemons that the caller may see.
fn daemons() -> impl Iterator<Item = Daemon> {
    let mut found: BTreeMap<u32, Daemon> =
        announce::of_root().into_iter().map(|daemon| (daemon.pid, daemon)).collect();
    found.extend(
        process::takers_of_locks().into_iter().filter_map(|pid| Some((pid, daemon_of_process(pid)?))),
    );
    found.into_values()
}

/// The daemon that serves a volume, whatever path names the volume.
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

/// Where a volume is mounted, according to its daemon, or else to the kernel.
pub fn mount_of(volume: &Path) -> Option<Mount> {
    if let Some(daemon) = daemon_of_volume(volume) {
        let mount = daemon.mount()?;
        return Some(Mount { volume: daemon.volume, ..mount });
    }
    // Perhaps the caller may not examine the daemon. The volume's name in the table was chosen by the user
    // who mounted, so that user must be trusted.
    let (_, owner) = identity_and_owner(volume).ok()?;
    let path = volume.canonicalize().ok()?;
    mounts().into_iter().find(|mount| mount.volume == path && (mount.is_trusted() || mount.user == owner))
}

/// The user of a process, if it lives.
pub fn user_of(pid: u32) -> Option<u32> {
    Seen::of(pid).map(|seen| seen.user)
}
