//! Everything that can go wrong around a session; each error says what to do next.

use std::io;
use std::path::PathBuf;

/// Why a view could not be mounted. Nothing stays mounted, and the view is still open and unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The mount point does not exist.
    #[error(
        "cannot mount on {mountpoint:?}: there is no such directory; create it first (mkdir {mountpoint:?})"
    )]
    NoMountpoint {
        /// The mount point.
        mountpoint: PathBuf,
    },
    /// The mount point is not a directory.
    #[error("cannot mount on {mountpoint:?}: it is not a directory")]
    NotADirectory {
        /// The mount point.
        mountpoint: PathBuf,
    },
    /// The mount point has entries, which the mount would hide.
    #[error(
        "cannot mount on {mountpoint:?}: it is not empty (it holds {entry:?}); choose an empty directory"
    )]
    NotEmpty {
        /// The mount point.
        mountpoint: PathBuf,
        /// One of its entries.
        entry: String,
    },
    /// A Yore volume is mounted there, and a daemon serves it.
    #[error("{mountpoint:?} already has {source_name} mounted on it; unmount it first (yore umount {mountpoint:?})")]
    AlreadyMounted {
        /// The mount point.
        mountpoint: PathBuf,
        /// The source of the mount there.
        source_name: String,
    },
    /// The dead mount of another file system is in the way, and we may not remove it.
    #[error(
        "{mountpoint:?} is a dead mount of another file system ({fs_type}, {source_name}): unmount it first \
         (fusermount3 -uz {mountpoint:?})"
    )]
    DeadMountOfAnother {
        /// The mount point.
        mountpoint: PathBuf,
        /// The type in the table of mounts.
        fs_type: String,
        /// The source in the table of mounts.
        source_name: String,
    },
    /// The mount point has the mount of a dead daemon, which could not be unmounted.
    #[error("{mountpoint:?} is the dead mount of an earlier daemon and cannot be unmounted: {reason}")]
    DeadMountStays {
        /// The mount point.
        mountpoint: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The mount point cannot be examined.
    #[error("cannot mount on {mountpoint:?}: {source}")]
    Mountpoint {
        /// The mount point.
        mountpoint: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The kernel's FUSE device is missing.
    #[error("there is no /dev/fuse: load the kernel's FUSE module (modprobe fuse), or give the container that device")]
    NoFuseDevice,
    /// This user may not open the kernel's FUSE device. The helper could not open it either, because it does
    /// so in the user's name.
    #[error(
        "/dev/fuse is not open to ordinary users: ask the administrator to make it so (chmod 666 /dev/fuse; \
         distributions do that by a udev rule), or mount as root"
    )]
    FuseDeviceClosed,
    /// The kernel's FUSE device cannot be opened.
    #[error("cannot open /dev/fuse: {source}")]
    FuseDevice {
        /// The reason.
        source: io::Error,
    },
    /// The helper for users other than root is missing.
    #[error("only root can mount without the helper fusermount3, which is not installed: install the package fuse3")]
    NoHelper,
    /// The helper refused.
    #[error("fusermount3 refused to mount on {mountpoint:?}: {reason}")]
    Helper {
        /// The mount point.
        mountpoint: PathBuf,
        /// What it said.
        reason: String,
    },
    /// The user asked for `allow_other` without the right to it.
    #[error(
        "other users can be let in (allow_other) only by root, or when /etc/fuse.conf has a line `user_allow_other`: \
         ask the administrator to add it, or mount without allow_other"
    )]
    AllowOtherForbidden,
    /// Only root may use this option.
    #[error("the mount option `{option}` is for root only")]
    RootOnly {
        /// The option.
        option: &'static str,
    },
    /// The kernel refused.
    #[error("cannot mount on {mountpoint:?}: mount: {source}")]
    Kernel {
        /// The mount point.
        mountpoint: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The connection broke before it was set up.
    #[error("the FUSE connection for {mountpoint:?} could not be set up: {source}")]
    Handshake {
        /// The mount point.
        mountpoint: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The session's thread could not be started.
    #[error("cannot start the threads that serve {mountpoint:?}: {source}")]
    Threads {
        /// The mount point.
        mountpoint: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// Why a mount could not be removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnmountError {
    /// Somebody uses it.
    #[error(
        "{mountpoint:?} is in use: end the programs that use it (fuser -vm {mountpoint:?} lists them), or unmount lazily"
    )]
    Busy {
        /// The mount point.
        mountpoint: PathBuf,
    },
    /// Nothing is mounted there.
    #[error("nothing is mounted on {mountpoint:?}")]
    NotMounted {
        /// The directory.
        mountpoint: PathBuf,
    },
    /// Any other reason.
    #[error("cannot unmount {mountpoint:?}: {reason}")]
    Failed {
        /// The mount point.
        mountpoint: PathBuf,
        /// What the kernel or the helper said.
        reason: String,
    },
}

/// A session that ended badly. In every case the mount point is free again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The connection to the kernel failed. The view was closed in good order.
    #[error("the FUSE connection of {mountpoint:?} failed: {source}; the volume was closed in good order")]
    Connection {
        /// The mount point.
        mountpoint: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A contradiction in the daemon's own memory stopped it. Nothing was written after it: the volume is as
    /// after a crash, and opening it recovers it.
    #[error(
        "the daemon that served {mountpoint:?} found a contradiction in its own memory and stopped without writing \
         (a bug; the log tells where); mount the volume again"
    )]
    Panicked {
        /// The mount point.
        mountpoint: PathBuf,
    },
    /// The volume could not be closed in good order.
    #[error("closing the volume that was mounted on {mountpoint:?}: {source}")]
    Close {
        /// The mount point.
        mountpoint: PathBuf,
        /// The reason.
        source: yore_fs::Error,
    },
}

/// Why the kernel could not be notified of a change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoticeError {
    /// A thread that serves requests tried to notify: the kernel may hold the very lock that the notice needs
    /// until the request is answered.
    #[error(
        "a notice to the kernel was asked for while serving a request; that can deadlock, use another thread"
    )]
    WhileServing,
    /// The kernel refused it.
    #[error("the kernel refused a notice: {source}")]
    Refused {
        /// The reason.
        source: io::Error,
    },
}
