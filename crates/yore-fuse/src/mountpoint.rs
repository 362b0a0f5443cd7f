//! The directory that is mounted on: whether it may be, what is mounted on it now, and unmounting that.
//!
//! Everything here reads the kernel's table of mounts ([`yore_fs::mounts`]), never the mounted file system: a
//! `stat` of a mount that this very process serves would wait for itself, and one of a dead mount fails with
//! ENOTCONN. The one exception asks the kernel for a number of its own ([`Identity`]), which needs no answer
//! from the mount.

use crate::{MountError, UnmountError};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, CWD};
use rustix::mount::UnmountFlags;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use yore_fs::mounts;

/// The type that the table of mounts shows for Yore.
pub(crate) const FS_TYPE: &str = "fuse.yore";

/// The set-user-id helper that mounts and unmounts for ordinary users.
pub(crate) const HELPER: &str = "fusermount3";

/// One line of the table of mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedAt {
    /// Device number, major and minor: tells one mount from the next at the same place.
    pub device: (u32, u32),
    /// The directory.
    pub mountpoint: PathBuf,
    /// The type, `fuse.yore` for Yore.
    pub fs_type: String,
    /// The source: for Yore the volume's path.
    pub source_name: String,
}

impl MountedAt {
    /// Whether it is a Yore volume.
    pub fn is_yore(&self) -> bool {
        self.fs_type == FS_TYPE
    }
}

/// The mount on `mountpoint`: the uppermost if several lie on top of each other. `None` if nothing is mounted
/// there.
pub fn mounted_at(mountpoint: &Path) -> io::Result<Option<MountedAt>> {
    Ok(all_at(&absolute(mountpoint)?)?.pop())
}

/// All mounts on a directory, the uppermost last.
fn all_at(path: &Path) -> io::Result<Vec<MountedAt>> {
    // Later lines lie on top of earlier ones.
    let found = mounts::mounts()?.into_iter().filter(|mount| mount.directory == path);
    let found = found.map(|mount| MountedAt {
        device: mount.device,
        mountpoint: mount.directory,
        fs_type: mount.fs_type,
        source_name: mount.source.to_string_lossy().into_owned(),
    });
    Ok(found.collect())
}

/// What tells a Yore mount from every other mount, before it and after it. A device number alone does not:
/// the kernel gives it to another mount as soon as this one is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Device number, major and minor.
    pub(crate) device: (u32, u32),
    /// The source in the table of mounts.
    pub(crate) source_name: String,
    /// A number that no other mount gets before the machine is started again; `None` if the kernel has none
    /// (before Linux 6.8).
    pub(crate) number: Option<u64>,
}

/// The Yore mount on `mountpoint`, if there is one.
pub(crate) fn identity_at(mountpoint: &Path) -> io::Result<Option<Identity>> {
    Ok(mounted_at(mountpoint)?.filter(MountedAt::is_yore).map(|found| Identity {
        number: unique_number(&found.mountpoint),
        device: found.device,
        source_name: found.source_name,
    }))
}

impl Identity {
    /// Whether a mount shows the same file system: it is this mount, or was bound to what this one shows
    /// (`mount --bind`), which gives a number of its own.
    pub(crate) fn is_shown_by(&self, other: &Identity) -> bool {
        // While this mount is there, no other file system has its device number.
        let is_bound = || self.number.is_some_and(|number| device_of(number) == Some(self.device));
        self.device == other.device
            && self.source_name == other.source_name
            && (self.number == other.number || is_bound())
    }
}

/// The device number of a mount, by the mount's own number. `None`: there is no such mount in this tree of
/// mounts, or the kernel does not tell (before Linux 6.8). It sends no request to whoever serves the mount.
fn device_of(number: u64) -> Option<(u32, u32)> {
    /// statmount(2). Since Linux 5.1 all kinds of machines count new calls alike.
    const STATMOUNT: libc::c_long = libc::SYS_pidfd_open + 23;
    /// STATMOUNT_SB_BASIC of <linux/mount.h>: what concerns the file system.
    const OF_FILE_SYSTEM: u64 = 1;

    /// `struct mnt_id_req` of <linux/mount.h>.
    #[repr(C)]
    struct Wanted {
        size: u32,
        spare: u32,
        number: u64,
        what: u64,
    }

    /// The beginning of `struct statmount` of <linux/mount.h>.
    #[repr(C)]
    #[derive(Default)]
    struct Facts {
        size: u32,
        options: u32,
        what: u64,
        major: u32,
        minor: u32,
    }

    let wanted = Wanted { size: size_of::<Wanted>() as u32, spare: 0, number, what: OF_FILE_SYSTEM };
    let mut facts = Facts::default();
    // SAFETY: the kernel reads as many bytes of the first structure as its first field says, and writes at
    // most as many to the second one as the third argument says.
    let outcome = unsafe {
        libc::syscall(STATMOUNT, &raw const wanted, &raw mut facts, size_of::<Facts>(), 0 as libc::c_uint)
    };
    (outcome == 0 && facts.what & OF_FILE_SYSTEM != 0).then_some((facts.major, facts.minor))
}

/// STATX_MNT_ID_UNIQUE of <linux/stat.h>.
const UNIQUE_NUMBER: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// The number of the mount that a path leads to. The kernel answers from what it knows, and sends no request
/// to whoever serves the mount.
fn unique_number(path: &Path) -> Option<u64> {
    let found = rustix::fs::statx(CWD, path, AtFlags::STATX_DONT_SYNC, UNIQUE_NUMBER).ok()?;
    StatxFlags::from_bits_retain(found.stx_mask).contains(UNIQUE_NUMBER).then_some(found.stx_mnt_id)
}

/// The path as the table of mounts has it. Only the parent is resolved through the file system: the last
/// component may be a dead mount, on which every call fails.
pub(crate) fn absolute(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Ok(path) => Ok(path),
        Err(error) if is_dead(&error) => {
            let path = std::path::absolute(path)?;
            match (path.parent(), path.file_name()) {
                (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
                _ => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// Whether this is the error of calls on a mount whose daemon is gone.
fn is_dead(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOTCONN) || error.raw_os_error() == Some(libc::ECONNABORTED)
}

/// Checks that `mountpoint` can be mounted on, removes dead Yore mounts, and returns its absolute path.
pub(crate) fn prepare(mountpoint: &Path) -> Result<PathBuf, MountError> {
    let named = || mountpoint.to_path_buf();
    // Several daemons may have died at the same place, one on top of the other.
    for _ in 0..64 {
        // The kernel may answer from its cache for attributes even if the daemon is gone; it always asks the
        // daemon for space.
        let space = rustix::fs::statvfs(mountpoint).map_err(io::Error::from);
        match fs::metadata(mountpoint).and_then(|found| space.map(|_| found)) {
            Ok(found) if !found.is_dir() => return Err(MountError::NotADirectory { mountpoint: named() }),
            Ok(_) => return check_directory(mountpoint),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(MountError::NoMountpoint { mountpoint: named() })
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(MountError::NotADirectory { mountpoint: named() })
            }
            Err(error) if is_dead(&error) => clear_dead(mountpoint)?,
            Err(source) => return Err(MountError::Mountpoint { mountpoint: named(), source }),
        }
    }
    Err(MountError::DeadMountStays {
        mountpoint: named(),
        reason: "there is always another one below".into(),
    })
}

fn check_directory(mountpoint: &Path) -> Result<PathBuf, MountError> {
    let named = || mountpoint.to_path_buf();
    let failed = |source| MountError::Mountpoint { mountpoint: named(), source };
    let path = absolute(mountpoint).map_err(failed)?;
    if let Some(there) = mounted_at(&path).map_err(failed)?.filter(MountedAt::is_yore) {
        return Err(MountError::AlreadyMounted { mountpoint: named(), source_name: there.source_name });
    }
    match fs::read_dir(&path).map_err(failed)?.next() {
        None => Ok(path),
        Some(entry) => {
            let entry = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
            Err(MountError::NotEmpty { mountpoint: named(), entry })
        }
    }
}

fn clear_dead(mountpoint: &Path) -> Result<(), MountError> {
    let named = || mountpoint.to_path_buf();
    let failed = |source| MountError::Mountpoint { mountpoint: named(), source };
    let path = absolute(mountpoint).map_err(failed)?;
    match mounted_at(&path).map_err(failed)? {
        Some(dead) if dead.is_yore() => {
            tracing::warn!(mountpoint = %path.display(), source = dead.source_name, "clearing a dead mount away");
            detach(&path).map_err(|reason| MountError::DeadMountStays { mountpoint: named(), reason })
        }
        Some(dead) => Err(MountError::DeadMountOfAnother {
            mountpoint: named(),
            fs_type: dead.fs_type,
            source_name: dead.source_name,
        }),
        // The mount is gone meanwhile: look again.
        None => Ok(()),
    }
}

/// Unmounts the Yore volume on `mountpoint`, whichever process serves it; several times if the volume was
/// bound there again (`mount --bind`). With `lazy`, new users cannot reach it from now on, and present users
/// keep it until they are done. The daemon closes the volume when the mount is gone, which may be a moment
/// after this returns.
pub fn unmount_at(mountpoint: &Path, lazy: bool) -> Result<(), UnmountError> {
    let named = || mountpoint.to_path_buf();
    let failed = |reason| UnmountError::Failed { mountpoint: named(), reason };
    let path = absolute(mountpoint).map_err(|error| failed(error.to_string()))?;
    let mut there = all_at(&path).map_err(|error| failed(error.to_string()))?;
    let top = there.pop().ok_or_else(|| UnmountError::NotMounted { mountpoint: named() })?;
    if !top.is_yore() {
        return Err(failed(format!(
            "{} of type {} is mounted there, not a Yore volume",
            top.source_name, top.fs_type
        )));
    }
    let unmount_top = || match lazy {
        true => detach(&path).map_err(failed),
        false => unmount_idle(&path),
    };
    unmount_top()?;
    // Mounts that are there at the same time and have one device number show one file system.
    for below in there.iter().rev().take_while(|below| **below == top) {
        let now = mounted_at(&path).map_err(|error| failed(error.to_string()))?;
        if now.as_ref() != Some(below) {
            break;
        }
        unmount_top()?;
    }
    Ok(())
}

/// Unmounts `path` if nobody uses it.
pub(crate) fn unmount_idle(path: &Path) -> Result<(), UnmountError> {
    let busy = || UnmountError::Busy { mountpoint: path.to_path_buf() };
    let failed = |reason| UnmountError::Failed { mountpoint: path.to_path_buf(), reason };
    match rustix::mount::unmount(path, UnmountFlags::empty()) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::BUSY) => Err(busy()),
        Err(rustix::io::Errno::PERM) => match helper_unmount(path, false) {
            Ok(()) => Ok(()),
            Err(said) if said.contains("busy") => Err(busy()),
            Err(said) => Err(failed(said)),
        },
        Err(error) => Err(failed(error.to_string())),
    }
}

/// Takes `path` out of the tree. Processes that use it keep it until they are done.
pub(crate) fn detach(path: &Path) -> Result<(), String> {
    match rustix::mount::unmount(path, UnmountFlags::DETACH) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::PERM) => helper_unmount(path, true),
        Err(error) => Err(error.to_string()),
    }
}

/// Ends the connection of the mount at `path` at once: its users get errors. Root can always do that; others
/// can if the control file system of FUSE is mounted.
pub(crate) fn abort(path: &Path, device: (u32, u32)) -> Result<(), String> {
    // The minor number alone names a connection, because FUSE mounts have no major number.
    if abort_connection(device.1) == Ok(true) {
        // The daemon removes its dead mount too, and may be the first to do so.
        let is_gone = || mounted_at(path).is_ok_and(|found| found.is_none_or(|there| there.device != device));
        return detach(path).or_else(|reason| if is_gone() { Ok(()) } else { Err(reason) });
    }
    match rustix::mount::unmount(path, UnmountFlags::FORCE | UnmountFlags::DETACH) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::PERM) => helper_unmount(path, true),
        Err(error) => Err(error.to_string()),
    }
}

/// Ends a connection by its number, wherever the mount is: in the tree, out of it, or in another namespace of
/// mounts. Returns whether there was such a connection.
pub(crate) fn abort_connection(number: u32) -> Result<bool, String> {
    const CONTROL: &str = "/sys/fs/fuse/connections";
    // The control file system has a directory for each connection. Where it is not mounted, its mount point
    // is empty.
    let is_mounted = fs::read_dir(CONTROL).is_ok_and(|mut all| all.next().is_some());
    let written = match is_mounted {
        true => fs::write(format!("{CONTROL}/{number}/abort"), b"1"),
        // Root mounts one of its own, which nobody else sees.
        false => control_files().and_then(|control| {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            let abort = rustix::fs::openat(&control, format!("{number}/abort"), flags, Mode::empty())?;
            Ok(rustix::io::write(&abort, b"1").map(drop)?)
        }),
    };
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(format!("connection {number} cannot be aborted: {error}")),
    }
}

/// The control file system of FUSE, mounted nowhere.
fn control_files() -> io::Result<OwnedFd> {
    use rustix::mount::{fsconfig_create, fsmount, fsopen, FsMountFlags, FsOpenFlags, MountAttrFlags};
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

fn helper_unmount(path: &Path, lazy: bool) -> Result<(), String> {
    let mut command = Command::new(HELPER);
    command.env("LC_ALL", "C").arg("-u");
    if lazy {
        command.arg("-z");
    }
    let output = command.arg("--").arg(path).output().map_err(|e| format!("cannot run fusermount3: {e}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The root directory is mounted, and an ordinary new directory is not.
    #[test]
    fn mounted_or_not() {
        assert!(mounted_at(Path::new("/")).unwrap().is_some());
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(mounted_at(dir.path()).unwrap(), None);
    }

    /// The kernel tells which file system a mount shows by the mount's number, if it has such numbers, and
    /// nothing of a mount that is not there.
    #[test]
    fn devices_of_mounts() {
        let root = mounted_at(Path::new("/")).unwrap().unwrap();
        if let Some(found) = unique_number(Path::new("/")).and_then(device_of) {
            assert_eq!(found, root.device);
        }
        assert_eq!(device_of(u64::MAX), None);
        let of = |number, minor| Identity { device: (0, minor), source_name: "/v".into(), number };
        assert!(of(None, 7).is_shown_by(&of(None, 7)) && !of(None, 7).is_shown_by(&of(None, 8)));
        assert!(!of(Some(u64::MAX), 7).is_shown_by(&of(Some(1), 7)), "it is not there any more");
    }

    /// Each kind of unusable mount point gets an error of its own.
    #[test]
    fn unusable_mount_points() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        assert!(matches!(prepare(&missing), Err(MountError::NoMountpoint { .. })));
        let file = dir.path().join("file");
        std::fs::write(&file, b"x").unwrap();
        assert!(matches!(prepare(&file), Err(MountError::NotADirectory { .. })));
        assert!(matches!(prepare(&file.join("below")), Err(MountError::NotADirectory { .. })));
        match prepare(dir.path()) {
            Err(MountError::NotEmpty { entry, .. }) => assert_eq!(entry, "file"),
            other => panic!("{other:?}"),
        }
        std::fs::remove_file(&file).unwrap();
        assert_eq!(prepare(dir.path()).unwrap(), dir.path().canonicalize().unwrap());
    }
}
