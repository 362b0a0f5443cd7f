//! The kernel's table of mounts: what is mounted where, and by whom.
//!
//! Whoever mounts chooses the text that stands there for the volume, so that text is compared and shown, and never
//! opened unless the user who mounted is trusted. That user stands there, too (`user_id=`): the kernel and the helper
//! `fusermount3` see to it that it is true.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A mounted volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where.
    pub directory: PathBuf,
    /// The volume, as the table of mounts has it.
    pub volume: PathBuf,
    /// Who mounted it.
    pub user: u32,
    /// The number of its connection, which tells it from what is mounted there before and after.
    pub connection: u32,
}

impl Mount {
    /// Whether the user of this process may believe what stands in the table: he or root wrote it.
    pub fn is_trusted(&self) -> bool {
        self.user == 0 || self.user == rustix::process::geteuid().as_raw()
    }
}

/// All Yore mounts in the table of mounts.
pub fn mounts() -> Vec<Mount> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mut found: Vec<Mount> = Vec::new();
    for mount in table.split(|b| *b == b'\n').filter_map(of_line) {
        // What lies on top comes later and hides what is below.
        found.retain(|m| m.directory != mount.directory);
        found.push(mount);
    }
    found
}

/// `36 35 0:57 / /mnt rw,nosuid shared:5 - fuse.yore /v.yore rw,user_id=0,group_id=0`, if it is a mount of ours.
fn of_line(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    let dash = fields.iter().position(|f| *f == b"-")?;
    (*fields.get(dash + 1)? == b"fuse.yore").then_some(())?;
    let options = fields.get(dash + 3)?.split(|b| *b == b',');
    let user = options.filter_map(|option| option.strip_prefix(b"user_id=")).next_back()?;
    Some(Mount {
        directory: unescape(fields.get(4)?),
        volume: unescape(fields.get(dash + 2)?),
        user: std::str::from_utf8(user).ok()?.parse().ok()?,
        connection: std::str::from_utf8(fields.get(2)?).ok()?.strip_prefix("0:")?.parse().ok()?,
    })
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
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that blanks and backslashes in mount points are understood, and who mounted.
    #[test]
    fn lines_of_the_table() {
        assert_eq!(unescape(br"/a\040b\134c"), Path::new(r"/a b\c"));
        assert_eq!(unescape(br"/a\04"), Path::new(r"/a\04"));
        let line =
            br"36 35 0:57 / /m\040x rw,nosuid shared:5 - fuse.yore /v,user_id=7 rw,user_id=12,group_id=0";
        let wanted =
            Mount { directory: "/m x".into(), volume: "/v,user_id=7".into(), user: 12, connection: 57 };
        assert_eq!(of_line(line), Some(wanted));
        assert_eq!(of_line(b"36 35 0:57 / /m rw - ext4 /dev/a rw"), None);
        assert_eq!(of_line(b""), None);
    }
}
