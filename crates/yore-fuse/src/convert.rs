//! Converts values of the protocol to the library's and back.

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use yore_fs::{Attr, FileKind, InodeNo, SetTime, Timestamp};

/// The inode that FUSE's `node` stands for.
pub(crate) fn inode_of(node: INodeNo, root: InodeNo) -> InodeNo {
    if node == INodeNo::ROOT {
        root
    } else {
        InodeNo(node.0)
    }
}

/// FUSE's number for `inode`.
pub(crate) fn node_of(inode: InodeNo, root: InodeNo) -> INodeNo {
    if inode == root {
        INodeNo::ROOT
    } else {
        INodeNo(inode.0)
    }
}

pub(crate) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::Directory => FileType::Directory,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Regular => FileType::RegularFile,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Socket => FileType::Socket,
    }
}

/// A point in time. A time that this machine's clock type cannot hold (corrupt nanoseconds, or seconds beyond
/// its range) becomes 1970 rather than a panic.
pub(crate) fn system_time(time: Timestamp) -> SystemTime {
    let nanos = Duration::from_nanos(u64::from(time.nanos));
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole =
        if time.seconds >= 0 { UNIX_EPOCH.checked_add(seconds) } else { UNIX_EPOCH.checked_sub(seconds) };
    whole.and_then(|t| t.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

/// The time the kernel sent. For times before 1970 fuser 0.18 subtracts the nanoseconds that it ought to add;
/// the distance from 1970 shows them, so undoing exactly that yields the time that the kernel sent.
fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp { seconds: after.as_secs() as i64, nanos: after.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            Timestamp { seconds: (before.as_secs() as i64).wrapping_neg(), nanos: before.subsec_nanos() }
        }
    }
}

pub(crate) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::To(timestamp(time)),
    }
}

/// The library's attributes in the protocol's form, with the true inode number.
pub(crate) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.inode.0),
        size: attr.size,
        blocks: attr.blocks_512,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: system_time(attr.btime),
        kind: file_type(attr.kind),
        perm: (attr.permissions & 0o7777) as u16,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: 4096,
        flags: 0,
    }
}

/// A placeholder for attributes where the protocol wants some but none exist: a name that does not exist
/// (node 0).
pub fn no_attr() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every time that the kernel can send survives fuser's decoding, also before 1970.
    #[test]
    fn times_before_1970() {
        // What fuser 0.18 makes of (seconds, nanoseconds).
        let as_fuser_reads = |seconds: i64, nanos: u32| {
            if seconds >= 0 {
                UNIX_EPOCH + Duration::new(seconds as u64, nanos)
            } else {
                UNIX_EPOCH - Duration::new((-seconds) as u64, nanos)
            }
        };
        for (seconds, nanos) in [(0, 0), (5, 7), (-1, 0), (-1, 1), (-2, 500_000_000), (-100, 999_999_999)] {
            let sent = Timestamp { seconds, nanos };
            assert_eq!(timestamp(as_fuser_reads(seconds, nanos)), sent);
        }
    }

    /// Times from the medium never panic.
    #[test]
    fn absurd_times() {
        for seconds in [i64::MIN, i64::MIN + 1, i64::MAX] {
            for nanos in [0, u32::MAX] {
                system_time(Timestamp { seconds, nanos });
            }
        }
        let half = system_time(Timestamp { seconds: -2, nanos: 500_000_000 });
        assert_eq!(UNIX_EPOCH.duration_since(half).unwrap(), Duration::from_millis(1500));
    }
}
