//! What `info` and `df` are asked about: a mount, or a volume that nobody has mounted; and how full it is.

use crate::live::{self, Daemon};
use crate::volume::{self, Access};
use serde_json::{json, Value};
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use yore_control::{Client as _, HistoryBytes, Mounted};
use yore_device::{DeviceError, FileDevice, OpenOptions};
use yore_fs::{MountOptions, Statfs};

/// Space, from whoever knows.
pub struct Space {
    pub size: u64,
    pub free: u64,
    pub available: u64,
    pub inodes: u64,
    pub inodes_free: u64,
    /// What only history holds; `None`: the daemon does not say so, to this user.
    pub history: Option<HistoryBytes>,
}

impl Space {
    pub fn of_mount(directory: &Path) -> anyhow::Result<Space> {
        let found = rustix::fs::statvfs(directory).map_err(|error| {
            let directory = directory.display();
            match error {
                rustix::io::Errno::NOTCONN => anyhow::anyhow!(
                    "the daemon that served {directory} is dead; mount the volume again, or `yore umount {directory}`"
                ),
                error => anyhow::anyhow!("cannot ask {directory}: {error}"),
            }
        })?;
        Ok(Space {
            size: found.f_blocks * found.f_frsize,
            free: found.f_bfree * found.f_frsize,
            available: found.f_bavail * found.f_frsize,
            inodes: found.f_files,
            inodes_free: found.f_ffree,
            // The daemon lives, as the kernel has just asked it.
            history: File::open(directory).ok().and_then(|dir| Mounted(dir).history_bytes().ok()),
        })
    }

    /// Of a volume that was opened for reading only, on which nothing is available just now: what would be,
    /// if it were opened for writing, is about what is free.
    pub fn of_volume(found: &Statfs) -> Space {
        use yore_format::layout::{ZONE_BLOCKS, ZONE_INDEXES};
        let block = u64::from(found.block_size);
        let inodes_per_zone = u64::from(ZONE_INDEXES) * yore_format::INODES_PER_BLOCK as u64;
        let possible = found.blocks_free / ZONE_BLOCKS * inodes_per_zone;
        Space {
            size: found.blocks * block,
            free: found.blocks_free * block,
            available: found.blocks_free * block,
            inodes: found.inodes + possible,
            inodes_free: found.inodes_free + possible,
            history: Some(HistoryBytes::of(found)),
        }
    }

    pub fn used(&self) -> u64 {
        self.size.saturating_sub(self.free)
    }

    /// What is used and would be without history, too.
    pub fn live(&self) -> Option<u64> {
        self.history.map(|history| self.used().saturating_sub(history.bytes()))
    }

    pub fn json(&self) -> Value {
        let history = self.history.map(|history| {
            json!({
                "total": history.bytes(), "data": history.files.data, "metadata": history.files.metadata,
                "index": history.index,
            })
        });
        json!({
            "live": self.live(), "history": history,
            "size": self.size, "used": self.used(), "free": self.free, "available": self.available,
            "inodes": self.inodes, "inodes_free": self.inodes_free,
        })
    }
}

/// The mount on a directory, or the one that the directory lies in.
fn mount_above(path: &Path) -> Option<live::Mount> {
    // A dead mount cannot be looked at, so the path as it was written comes first.
    live::mount_at(path).or_else(|| {
        let path = path.canonicalize().ok()?;
        let device = path.metadata().ok()?.dev();
        // Another file system may be mounted in between.
        let same = |above: &&Path| above.metadata().is_ok_and(|found| found.dev() == device);
        path.ancestors().skip(1).take_while(same).find_map(live::mount_at)
    })
}

/// What a target turned out to be.
pub enum Target {
    /// A mount, and its daemon if that can be seen; whether what the table of mounts has for the volume can
    /// be believed.
    Mounted { directory: PathBuf, volume: PathBuf, daemon: Option<Box<Daemon>>, is_trusted: bool },
    /// A volume that another process holds without having it mounted where we can see it.
    Held { pid: Option<u32>, command: String },
    /// A volume that nobody writes to.
    Free(Box<yore_fs::Volume>),
}

impl Target {
    pub fn find(path: &Path) -> anyhow::Result<Target> {
        // A dead mount cannot be looked at, but the table of mounts knows it.
        if path.is_dir() || path.symlink_metadata().is_err() {
            if let Some(mount) = mount_above(path) {
                let daemon = live::daemon_at(&mount.directory).map(Box::new);
                return Ok(Target::Mounted {
                    is_trusted: mount.is_trusted(),
                    directory: mount.directory,
                    volume: mount.volume,
                    daemon,
                });
            }
            anyhow::ensure!(
                !path.is_dir(),
                "{} is a directory on which, and above which, no volume is mounted; name a volume or a mount",
                path.display()
            );
        }
        live::wait_until_closed(path);
        if let Some(daemon) = live::daemon_of_volume(path).filter(Daemon::is_mounted) {
            let directory = daemon.directory.clone();
            return Ok(Target::Mounted {
                is_trusted: true,
                directory,
                volume: daemon.volume.clone(),
                daemon: Some(Box::new(daemon)),
            });
        }
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        match FileDevice::open(path, options) {
            Err(DeviceError::Busy { holder, .. }) => {
                let (pid, command) = holder.map_or((None, String::new()), |h| (Some(h.pid), h.command));
                Ok(Target::Held { pid, command })
            }
            Err(error) => Err(volume::explain(path, Access::Read, error)),
            Ok(device) => {
                let options = MountOptions { read_only: true, ..MountOptions::default() };
                Ok(Target::Free(Box::new(volume::open_on(path, std::sync::Arc::new(device), &options)?)))
            }
        }
    }
}
