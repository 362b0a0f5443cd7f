//! Opening the connection: a descriptor of /dev/fuse that is bound to the mount point.
//!
//! Root calls mount(2). Everybody else goes through the set-user-id helper `fusermount3`, which mounts and
//! hands the descriptor over on a socket. So does root if automatic unmounting is wanted, or if the right to
//! mount was taken away.
//!
//! The kernel keeps other users out (no `allow_other`); the threads that serve do not. fuser adds a check of
//! its own, by the user id of each request. That check is switched off, because it would also refuse what the
//! kernel does on nobody's behalf, such as writing back times under its own id.

use crate::mountpoint::{FS_TYPE, HELPER};
use crate::{MountConfig, MountError};
use rustix::mount::MountFlags;
use rustix::net::{
    recvmsg, sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::fs::OpenOptions;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A bound descriptor, and the helper that watches over it if automatic unmounting was asked for.
pub(crate) struct Attached {
    pub(crate) descriptor: OwnedFd,
    pub(crate) watcher: Option<Watcher>,
}

/// The helper process. It unmounts when its socket closes, which happens however this process ends.
pub(crate) struct Watcher {
    carrier: Option<UnixStream>,
    process: Child,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // The helper sees the end of its socket, unmounts what is still mounted, and ends.
        self.carrier.take();
        if let Err(error) = self.process.wait() {
            tracing::warn!(%error, "waiting for fusermount3");
        }
    }
}

/// Mounts on `path` (absolute, checked) as `config` says.
pub(crate) fn attach(path: &Path, config: &MountConfig) -> Result<Attached, MountError> {
    let root = rustix::process::geteuid().is_root();
    check_rights(config, root)?;
    // The helper needs this check too: its own message for a missing device is obscure.
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    match device.as_ref().map_err(io::Error::kind) {
        Err(io::ErrorKind::NotFound) => return Err(MountError::NoFuseDevice),
        Err(io::ErrorKind::PermissionDenied) if !root => return Err(MountError::FuseDeviceClosed),
        _ => {}
    }
    if root && !config.auto_unmount {
        let device = OwnedFd::from(device.map_err(|source| MountError::FuseDevice { source })?);
        match mount_directly(path, config, &device) {
            Ok(()) => return Ok(Attached { descriptor: device, watcher: None }),
            // Root of a container without the right to mount: the helper may have that right.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(source) => return Err(MountError::Kernel { mountpoint: path.into(), source }),
        }
    }
    mount_by_helper(path, config)
}

fn check_rights(config: &MountConfig, root: bool) -> Result<(), MountError> {
    if root {
        return Ok(());
    }
    if config.dev {
        return Err(MountError::RootOnly { option: "dev" });
    }
    if config.suid {
        return Err(MountError::RootOnly { option: "suid" });
    }
    if config.allow_other {
        let allowed = match std::fs::read_to_string("/etc/fuse.conf") {
            Ok(text) => allows_other(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            // We may not read the file. The helper can, and decides.
            Err(_) => true,
        };
        if !allowed {
            return Err(MountError::AllowOtherForbidden);
        }
    }
    Ok(())
}

/// Whether a fuse.conf lets ordinary users use `allow_other`.
fn allows_other(conf: &str) -> bool {
    conf.lines().any(|line| line.trim() == "user_allow_other")
}

fn mount_directly(path: &Path, config: &MountConfig, device: &OwnedFd) -> io::Result<()> {
    let mode = std::fs::metadata(path)?.mode();
    let mut data = format!(
        "fd={},rootmode={mode:o},user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    if config.allow_other {
        data.push_str(",allow_other");
    }
    let mut flags = MountFlags::empty();
    for (wanted, flag) in [
        (config.read_only, MountFlags::RDONLY),
        (!config.dev, MountFlags::NODEV),
        (!config.suid, MountFlags::NOSUID),
        (config.no_exec, MountFlags::NOEXEC),
    ] {
        if wanted {
            flags |= flag;
        }
    }
    let data = std::ffi::CString::new(data)?;
    rustix::mount::mount(config.fs_name.as_str(), path, FS_TYPE, flags, data.as_c_str())?;
    Ok(())
}

fn helper_options(config: &MountConfig) -> String {
    // The helper splits options at commas; a backslash protects a comma.
    let name = config.fs_name.replace('\\', "\\\\").replace(',', "\\,");
    let mut options = format!("default_permissions,subtype=yore,fsname={name}");
    for (wanted, option) in [
        (config.read_only, ",ro"),
        (config.allow_other, ",allow_other"),
        (config.auto_unmount, ",auto_unmount"),
        (config.dev, ",dev"),
        (config.suid, ",suid"),
        (config.no_exec, ",noexec"),
    ] {
        if wanted {
            options.push_str(option);
        }
    }
    options
}

fn mount_by_helper(path: &Path, config: &MountConfig) -> Result<Attached, MountError> {
    let refused = |reason: String| MountError::Helper { mountpoint: PathBuf::from(path), reason };
    let (ours, theirs) = UnixStream::pair().map_err(|e| refused(e.to_string()))?;
    // The helper's end must survive the exec. std closes all descriptors but the three standard streams, so
    // it travels as the helper's standard input, whose number is always 0.
    let mut process = Command::new(HELPER)
        .args(["-o", &helper_options(config), "--"])
        .arg(path)
        .env("_FUSE_COMMFD", "0")
        .env("LC_ALL", "C")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => MountError::NoHelper,
            _ => refused(error.to_string()),
        })?;
    match receive_descriptor(&ours) {
        Ok(descriptor) if config.auto_unmount => {
            // Nobody needs its messages any more, and a full pipe would stop it.
            process.stderr.take();
            let carrier = closed_last(&ours).map_err(|e| refused(e.to_string()))?;
            Ok(Attached { descriptor, watcher: Some(Watcher { carrier: Some(carrier), process }) })
        }
        Ok(descriptor) => {
            let ended = process.wait().map_err(|e| refused(e.to_string()))?;
            tracing::debug!(%ended, "fusermount3");
            Ok(Attached { descriptor, watcher: None })
        }
        Err(error) => {
            drop(ours);
            let output = process.wait_with_output().map_err(|e| refused(e.to_string()))?;
            let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
            Err(match said {
                said if said.contains("user_allow_other") => MountError::AllowOtherForbidden,
                said if said.is_empty() => refused(format!("{error} ({})", output.status)),
                said => refused(said),
            })
        }
    }
}

/// Keeps `socket` open for as long as the returned one is, and a moment longer.
///
/// When a process is killed, the kernel closes its descriptors in the order of their numbers or the other way
/// around. If it closed this socket before the last descriptor of /dev/fuse, the helper would ask a file
/// system that still looked alive, get ECONNABORTED instead of the ENOTCONN by which it knows a dead one, and
/// leave the mount there. So the socket is sent into the queue of another one that nobody reads. The kernel
/// closes what a queue holds only after it has closed all descriptors of the process.
fn closed_last(socket: &UnixStream) -> io::Result<UnixStream> {
    let (sender, carrier) = UnixStream::pair()?;
    let sockets = [socket.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    // There is room: the space was made for one descriptor.
    control.push(SendAncillaryMessage::ScmRights(&sockets));
    sendmsg(&sender, &[IoSlice::new(&[0])], &mut control, SendFlags::empty())?;
    Ok(carrier)
}

/// The descriptor that the helper sends with one byte.
fn receive_descriptor(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0u8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut into = [IoSliceMut::new(&mut byte)];
        match recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => continue,
            other => break other?,
        }
    };
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    match descriptor {
        Some(descriptor) if received.bytes == 1 => Ok(descriptor),
        _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended without handing a descriptor over")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the bare line counts, not a comment that mentions it.
    #[test]
    fn fuse_conf() {
        assert!(allows_other("# text\n  user_allow_other  \nmount_max = 3\n"));
        assert!(!allows_other("#user_allow_other\n# user_allow_other\n"));
        assert!(!allows_other(""));
    }

    /// A comma in the volume's path does not end the option.
    #[test]
    fn commas_in_names() {
        let options = helper_options(&MountConfig::new("/m", r"/a,b\c"));
        assert!(options.contains(r"fsname=/a\,b\\c"), "{options}");
    }
}
