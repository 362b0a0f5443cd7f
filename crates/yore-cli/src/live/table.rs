//! The kernel's table of mounts: what is mounted where, and by whom.
//!
//! Whoever mounts chooses the text that stands there for the volume. So that text is compared and shown, and
//! never opened unless the user who mounted is trusted. The table also names that user (`user_id=`); the
//! kernel and the helper `fusermount3` make sure that this is true.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use yore_device::mounts;

/// A mounted volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where.
    pub directory: PathBuf,
    /// The volume, as the table of mounts names it.
    pub volume: PathBuf,
    /// Who mounted it.
    pub user: u32,
    /// The number of its connection, which tells it from earlier and later mounts on the same directory.
    pub connection: u32,
}

impl Mount {
    /// Whether the user of this process may believe what the table says: that user, or root, wrote it.
    pub fn is_trusted(&self) -> bool {
        self.user == 0 || self.user == rustix::process::geteuid().as_raw()
    }
}

/// All Yore mounts in the table of mounts.
pub fn mounts() -> Vec<Mount> {
    let mut found: Vec<Mount> = Vec::new();
    for mount in mounts::mounts().unwrap_or_default().into_iter().filter_map(ours) {
        // A mount on top comes later, and hides the one below.
        found.retain(|m| m.directory != mount.directory);
        found.push(mount);
    }
    found
}

/// The entry as a mount of ours, if it is one.
fn ours(mount: mounts::Mount) -> Option<Mount> {
    (mount.fs_type == "fuse.yore" && mount.device.0 == 0).then_some(())?;
    let options = mount.options.split(|b| *b == b',');
    let user = options.filter_map(|option| option.strip_prefix(b"user_id=")).next_back()?;
    Some(Mount {
        user: std::str::from_utf8(user).ok()?.parse().ok()?,
        directory: mount.directory,
        volume: mount.source.into(),
        connection: mount.device.1,
    })
}

/// All directories on which anything is mounted.
pub fn mount_points() -> Vec<PathBuf> {
    mounts::mounts().unwrap_or_default().into_iter().map(|mount| mount.directory).collect()
}

/// Whether a volume is mounted on a directory.
pub fn is_mounted(directory: &Path) -> bool {
    mounts().iter().any(|mount| mount.directory == directory)
}

/// The mount that a directory is in, if it is a Yore mount. The directory may be a dead mount.
pub fn mount_at(directory: &Path) -> Option<Mount> {
    let path = match directory.canonicalize() {
        Ok(path) => path,
        // Every call on a dead mount fails, so only the path above it is resolved.
        Err(_) => {
            let path = std::path::absolute(directory).ok()?;
            path.parent()?.canonicalize().ok()?.join(path.file_name()?)
        }
    };
    // The longest path wins: mounts may lie inside mounts.
    let inside = mounts().into_iter().filter(|mount| path.starts_with(&mount.directory));
    let mount = inside.max_by_key(|mount| mount.directory.as_os_str().len())?;
    // Something else may be mounted in between.
    if path != mount.directory {
        let device = |p: &Path| fs::metadata(p).map(|m| m.dev()).ok();
        if device(&path) != device(&mount.directory) {
            return None;
        }
    }
    Some(mount)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that the user who mounted is found, whatever the volume is called, and that other mounts are
    /// told from ours.
    #[test]
    fn lines_of_the_table() {
        let line = mounts::Mount {
            device: (0, 57),
            directory: "/m x".into(),
            fs_type: "fuse.yore".into(),
            source: "/v,user_id=7".into(),
            options: b"rw,user_id=12,group_id=0".to_vec(),
        };
        let wanted =
            Mount { directory: "/m x".into(), volume: "/v,user_id=7".into(), user: 12, connection: 57 };
        assert_eq!(ours(line.clone()), Some(wanted));
        assert_eq!(ours(mounts::Mount { fs_type: "ext4".into(), ..line.clone() }), None);
        assert_eq!(ours(mounts::Mount { options: b"rw".to_vec(), ..line }), None);
    }
}
