//! Attributes in the terms of `std::fs`.

use crate::Attr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use yore_format::{FileKind, Timestamp};

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileType(FileKind);

impl FileType {
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.0 == FileKind::Directory
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.0 == FileKind::Regular
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.0 == FileKind::Symlink
    }

    /// Which of the seven types it is.
    pub fn kind(&self) -> FileKind {
        self.0
    }
}

/// The attributes that a file had when they were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata(Attr);

// The length of a directory does not show whether the directory is empty, so there is no `is_empty` here, as
// in `std`.
#[allow(clippy::len_without_is_empty)]
impl Metadata {
    pub(super) fn new(attr: Attr) -> Metadata {
        Metadata(attr)
    }

    /// All attributes, as [`crate::View`] gives them.
    pub fn attr(&self) -> &Attr {
        &self.0
    }

    /// Its type.
    pub fn file_type(&self) -> FileType {
        FileType(self.0.kind)
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// Whether it is a symbolic link. Never true for the result of [`crate::Volume::metadata`], which follows
    /// links.
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// Permission, set-id and sticky bits (12 bits).
    pub fn permissions(&self) -> u32 {
        self.0.permissions
    }

    /// Type and permissions as in `st_mode`.
    pub fn mode(&self) -> u32 {
        self.0.kind.mode() | self.0.permissions
    }

    /// Inode number.
    pub fn ino(&self) -> u64 {
        self.0.inode.0
    }

    /// Number of names.
    pub fn nlink(&self) -> u32 {
        self.0.links
    }

    /// Owner.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Group.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// Device number of device files.
    pub fn rdev(&self) -> u32 {
        self.0.rdev
    }

    /// Space used, in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.0.blocks_512
    }

    /// Last change of content.
    pub fn modified(&self) -> SystemTime {
        system_time(self.0.mtime)
    }

    /// Last access.
    pub fn accessed(&self) -> SystemTime {
        system_time(self.0.atime)
    }

    /// Last change of the inode.
    pub fn changed(&self) -> SystemTime {
        system_time(self.0.ctime)
    }

    /// Creation.
    pub fn created(&self) -> SystemTime {
        system_time(self.0.btime)
    }
}

/// A time of the volume as the host expresses it. A time that the host cannot express (beyond the year
/// 292,000,000,000) becomes 1970, so that bytes on the medium do not cause a panic.
fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = match time.seconds < 0 {
        true => UNIX_EPOCH.checked_sub(seconds),
        false => UNIX_EPOCH.checked_add(seconds),
    };
    whole.and_then(|t| t.checked_add(Duration::from_nanos(time.nanos.into()))).unwrap_or(UNIX_EPOCH)
}

/// A time of the host as the volume stores it.
pub(super) fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp {
            seconds: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            nanos: after.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            let seconds = -i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match before.subsec_nanos() {
                0 => Timestamp { seconds, nanos: 0 },
                nanos => Timestamp { seconds: seconds.saturating_sub(1), nanos: 1_000_000_000 - nanos },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that times on both sides of 1970 survive the way to the volume and back.
    #[test]
    fn times_go_there_and_back() {
        for (seconds, nanos) in [(0, 0), (1, 999_999_999), (-1, 0), (-1, 1), (-2, 500_000_000), (1 << 40, 7)]
        {
            let time = Timestamp { seconds, nanos };
            assert_eq!(timestamp(system_time(time)), time);
        }
        system_time(Timestamp { seconds: i64::MAX, nanos: 0 });
        system_time(Timestamp { seconds: i64::MIN, nanos: 0 });
    }
}
