//! Volumes on the command line: what `VOL:/PATH` means, how a volume is opened, and what to say if that
//! fails.

use crate::live;
use crate::status;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use yore_device::{Device, DeviceError, FileDevice, OpenOptions};
use yore_fs::{Error, LogDevice, LogPlace, MountOptions, Volume};

/// What an operand of a copy names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A path of the host.
    Host(PathBuf),
    /// A path on a volume.
    On(OnVolume),
    /// `-`
    Standard,
}

/// A path on a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnVolume {
    /// The image file or block device.
    pub volume: PathBuf,
    /// The path on it, which begins with `/`.
    pub path: PathBuf,
}

impl OnVolume {
    /// Splits `VOL:/PATH` at the first `:/`, so that a volume's name may contain colons.
    pub fn split(operand: &OsStr) -> Option<OnVolume> {
        let bytes = operand.as_bytes();
        let at = bytes.windows(2).position(|pair| pair == b":/")?;
        let (volume, path) = (&bytes[..at], &bytes[at + 1..]);
        let path_of = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        (!volume.is_empty()).then(|| OnVolume { volume: path_of(volume), path: path_of(path) })
    }

    /// The same, but a file that is really called so is meant first.
    pub fn split_unless_there(operand: &OsStr) -> Option<OnVolume> {
        OnVolume::split(operand).filter(|_| std::fs::symlink_metadata(operand).is_err())
    }

    /// Does the same for commands that only work on volumes.
    ///
    /// # Errors
    /// A usage error that says how such paths are written.
    pub fn parse(operand: &OsStr) -> anyhow::Result<OnVolume> {
        OnVolume::split(operand).ok_or_else(|| {
            let name = operand.to_string_lossy();
            let plain = name.trim_end_matches([':', '/']);
            let hint = match std::fs::metadata(operand) {
                Ok(found) if found.is_dir() => {
                    format!("{name} is a directory of this system, for ls, cp, rm and so on without yore")
                }
                Ok(found) if found.is_file() && !may_be_volume(operand) => {
                    format!("{name} is a file of this system, for cat, cp, rm and so on without yore")
                }
                Ok(_) => format!("did you mean {plain}:/ ?"),
                Err(_) if name.ends_with(':') && Path::new(plain).exists() => {
                    format!("did you mean {plain}:/ ?")
                }
                Err(_) => "for example volume.yore:/letters".to_string(),
            };
            status::usage(format!("{name}: a path on a volume is written VOL:/PATH; {hint}"))
        })
    }

    /// Splits all operands of a command, which must be on one volume.
    ///
    /// # Errors
    /// A usage error.
    pub fn parse_all(operands: &[OsString]) -> anyhow::Result<(PathBuf, Vec<PathBuf>)> {
        let parsed = operands.iter().map(|o| OnVolume::parse(o)).collect::<anyhow::Result<Vec<_>>>()?;
        let volume = parsed.first().map(|p| p.volume.clone()).unwrap_or_default();
        if let Some(other) = parsed.iter().find(|p| p.volume != volume) {
            return Err(status::usage(format!(
                "{} and {} are different volumes; run the command once for each",
                volume.display(),
                other.volume.display()
            )));
        }
        Ok((volume, parsed.into_iter().map(|p| p.path).collect()))
    }
}

impl Operand {
    /// What an operand of `cp` is.
    pub fn parse(operand: &OsStr) -> Operand {
        match OnVolume::split(operand) {
            Some(on) => Operand::On(on),
            None if operand == "-" => Operand::Standard,
            None => Operand::Host(PathBuf::from(operand)),
        }
    }
}

/// Whether a command changes the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

impl Access {
    /// What a command needs that changes the volume, or does not.
    pub fn of(changes: bool) -> Access {
        match changes {
            true => Access::Write,
            false => Access::Read,
        }
    }
}

/// Opens the device of a volume.
///
/// # Errors
/// What is wrong with it; if a daemon holds it, where it is mounted.
pub fn open_device(volume: &Path, access: Access) -> anyhow::Result<Arc<dyn Device>> {
    let options = OpenOptions { read_only: access == Access::Read, ..OpenOptions::default() };
    let mut opened = FileDevice::open(volume, options);
    if matches!(opened, Err(DeviceError::Busy { .. })) && live::wait_until_closed(volume) {
        opened = FileDevice::open(volume, options);
    }
    match opened {
        Ok(device) => Ok(Arc::new(device)),
        Err(error) => Err(explain(volume, access, error)),
    }
}

/// Opens the device of a volume's log.
///
/// # Errors
/// As [`open_device`].
pub fn log_device(path: &Path, access: Access) -> anyhow::Result<LogDevice> {
    Ok(LogDevice { device: open_device(path, access)?, path: absolute(path)? })
}

/// The log's device for a command that was told its path.
///
/// # Errors
/// What is wrong with it.
pub fn log_place(path: Option<&Path>, access: Access) -> anyhow::Result<LogPlace> {
    Ok(match path {
        Some(path) => LogPlace::On(log_device(path, access)?),
        None => LogPlace::Recorded,
    })
}

/// A path as a volume keeps it, for mounts that begin in another directory.
///
/// # Errors
/// If there is no working directory.
pub fn absolute(path: &Path) -> anyhow::Result<Vec<u8>> {
    Ok(std::path::absolute(path)?.into_os_string().into_vec())
}

/// Opens a volume for a command.
///
/// # Errors
/// As [`open_device`], and why the volume cannot be used.
pub fn open(volume: &Path, access: Access) -> anyhow::Result<Volume> {
    let device = open_device(volume, access)?;
    open_on(volume, device, &MountOptions { read_only: access == Access::Read, ..MountOptions::default() })
}

/// Opens the volume on a device.
///
/// # Errors
/// Why it cannot be used.
pub fn open_on(volume: &Path, device: Arc<dyn Device>, options: &MountOptions) -> anyhow::Result<Volume> {
    crate::inspect::superblock::usable(volume, device.as_ref())?;
    Volume::open(device, options).map_err(|error| {
        let name = volume.display();
        let what = match error.root() {
            Error::Corruption(_) if !options.read_only => format!(
                "cannot open {name} for writing; much of it may be read all the same, with `yore mount -o ro` or `yore get`"
            ),
            _ => format!("cannot open the volume {name}"),
        };
        anyhow::Error::new(error).context(what)
    })
}

/// The user who works on a volume that this process has open, for the record of operations.
pub fn doing(view: &yore_fs::View) -> yore_fs::Doing<'_> {
    yore_fs::Doing { view, uid: rustix::process::getuid().as_raw() }
}

/// The process that holds a volume, if that can be determined.
pub fn holder(volume: &Path) -> Option<u32> {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    match FileDevice::open(volume, options) {
        Err(DeviceError::Busy { holder, .. }) => holder.map(|holder| holder.pid),
        _ => None,
    }
}

/// Adds what this program knows about who holds a volume.
pub fn explain(volume: &Path, access: Access, error: DeviceError) -> anyhow::Error {
    let name = volume.display();
    match &error {
        DeviceError::Busy { holder, .. } => {
            let who = holder.as_ref().map_or("another process".to_string(), |holder| holder.to_string());
            let daemon = live::daemon_of_volume(volume).filter(|daemon| !daemon.has_present);
            if let Some(daemon) = daemon.filter(live::Daemon::is_mounted) {
                return anyhow::anyhow!(
                    "{name} is in use by {who}, which has snapshots of it mounted; unmount them first (yore umount {})",
                    daemon.snapshot_directories()
                );
            }
            match live::mount_of(volume) {
                Some(mount) => anyhow::anyhow!(
                    "{name} is in use by {who}, which has it mounted on {dir}; use {dir} instead, or unmount it first \
                     (yore umount {dir})",
                    dir = mount.directory.display()
                ),
                None => anyhow::anyhow!("{name} is in use by {who}; wait for it or stop it, then try again"),
            }
        }
        DeviceError::PermissionDenied { .. } if access == Access::Write => {
            let may_read = rustix::fs::access(volume, rustix::fs::Access::READ_OK).is_ok();
            match may_read {
                true => anyhow::anyhow!(
                    "cannot open {name} for writing: no permission to; check its owner and mode (chmod u+w), or only read it, for \
                     example with `yore mount -o ro {name} DIR`"
                ),
                false => anyhow::Error::new(error).context(format!("cannot open {name} for writing")),
            }
        }
        DeviceError::OpenFailed { source, .. }
            if access == Access::Write && source.kind == std::io::ErrorKind::ReadOnlyFilesystem =>
        {
            anyhow::anyhow!("{name} is on a read-only file system; it can only be read, for example with `yore mount -o ro {name} DIR`")
        }
        DeviceError::TooSmall { size, .. } => {
            anyhow::anyhow!("{name} is no Yore volume: it has only {size} bytes; check the path, or make a volume with `yore mkfs`")
        }
        _ => anyhow::Error::new(error),
    }
}

/// Whether a file has anything of a volume. One that cannot be opened may.
fn may_be_volume(file: &OsStr) -> bool {
    let options = OpenOptions { read_only: true, lock: false, ..OpenOptions::default() };
    match FileDevice::open(file, options) {
        Ok(device) => crate::inspect::superblock::is_any(&device),
        Err(DeviceError::TooSmall { .. }) => false,
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that a volume's name may contain colons and slashes, and that paths of the host are told
    /// apart from it.
    #[test]
    fn operands() {
        let on = |volume: &str, path: &str| OnVolume { volume: volume.into(), path: path.into() };
        assert_eq!(OnVolume::split("v.yore:/a/b".as_ref()), Some(on("v.yore", "/a/b")));
        assert_eq!(OnVolume::split("dir/a:b.yore:/".as_ref()), Some(on("dir/a:b.yore", "/")));
        assert_eq!(OnVolume::split("v:/a:/b".as_ref()), Some(on("v", "/a:/b")));
        assert_eq!(OnVolume::split(":/x".as_ref()), None);
        assert_eq!(OnVolume::split("v.yore".as_ref()), None);
        assert_eq!(Operand::parse("-".as_ref()), Operand::Standard);
        assert_eq!(Operand::parse("a/b".as_ref()), Operand::Host("a/b".into()));
        let mixed = ["a:/x".into(), "b:/y".into()];
        assert!(OnVolume::parse_all(&mixed).is_err());
    }

    /// Promises that names that are not text pass unchanged.
    #[test]
    fn any_bytes() {
        let odd = OsStr::from_bytes(b"v\xff:/\xfe");
        let split = OnVolume::split(odd).unwrap();
        assert_eq!(split.volume.as_os_str().as_bytes(), b"v\xff");
        assert_eq!(split.path.as_os_str().as_bytes(), b"/\xfe");
    }
}
