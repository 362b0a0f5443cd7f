//! What a directory of the host lies in.

use rustix::fs::{makedev, AtFlags, Mode, OFlags, StatxFlags, CWD};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// The device and the inode of a directory, and of everything that it lies in, up to the root. Symbolic links
/// are followed.
///
/// The way up is `..`, so it does not matter by what path the directory was found, and whether the user may
/// go that path.
///
/// # Errors
/// What the host says.
pub fn of(path: &Path) -> io::Result<Vec<(u64, u64)>> {
    let mut directory = open(CWD, path)?;
    let mut place = place_of(&directory)?;
    let mut found = vec![place.0];
    loop {
        let above = match open(&directory, Path::new("..")) {
            // The user can do nothing with what is in this directory, so no copy of the user's comes through
            // it from above.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(found),
            other => other?,
        };
        let next = place_of(&above)?;
        // Only the root lies in itself.
        if next == place {
            return Ok(found);
        }
        found.push(next.0);
        (directory, place) = (above, next);
    }
}

/// Opens a directory to go on from there, which needs no permission to read it.
fn open(from: impl AsFd, path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(from, path, flags, Mode::empty())?.into())
}

/// The device and the inode of a directory; and its mount, because a directory can be mounted in itself.
fn place_of(directory: &File) -> io::Result<((u64, u64), u64)> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    let found = rustix::fs::statx(directory, "", AtFlags::EMPTY_PATH, wanted)?;
    let device = makedev(found.stx_dev_major, found.stx_dev_minor);
    Ok(((device, found.stx_ino), found.stx_mnt_id))
}
