//! The file systems that are measured, made for the run and taken away after it, whatever way it ends.

use crate::{BenchError, DirectoryTarget, LibraryTarget, MemoryFuse, Result, Target};
use rustix::mount::UnmountFlags;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use yore_device::{Device, FileDevice};
use yore_fs::{MkfsOptions, MountOptions, View};
use yore_fuse::{mount, mount_filesystem, MountConfig, Session, UnmountHow};

/// The report's name for the in-memory FUSE file system.
pub(crate) const BOUND: &str = "FUSE in memory (transport bound)";
/// The report's name for ext4.
pub(crate) const EXT4: &str = "ext4 on a loop device";

/// A file system and what keeps it there.
pub(crate) struct Place {
    // Before `_keeper`: its descriptors must be closed before the mount can go.
    pub(crate) target: Box<dyn Target>,
    keeper: Keeper,
}

enum Keeper {
    Session(Session),
    View(View),
    Ext4 { mountpoint: PathBuf },
    Nothing,
}

impl Place {
    /// Unmounts or closes, and tells if that fails.
    pub(crate) fn end(mut self) -> Result<()> {
        let name = self.target.name().to_string();
        // The directory's own descriptor, which keeps a mount busy.
        self.target = Box::new(DirectoryTarget::new("ended", "/")?);
        match std::mem::replace(&mut self.keeper, Keeper::Nothing) {
            Keeper::Session(session) => match session.unmount(UnmountHow::Idle) {
                Ok(ended) => ended.map(drop).map_err(BenchError::from),
                Err((_, error)) => Err(BenchError::Command { command: name, said: error.to_string() }),
            },
            Keeper::View(view) => view.close().map_err(BenchError::library("closing the volume")),
            Keeper::Ext4 { mountpoint } => rustix::mount::unmount(&mountpoint, UnmountFlags::empty())
                .map_err(|e| BenchError::system(format!("unmounting {mountpoint:?}"))(e.into())),
            Keeper::Nothing => Ok(()),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A session ends with its own drop.
        if let Keeper::Ext4 { mountpoint } = &self.keeper {
            // After a failure that is being reported already.
            let _ = rustix::mount::unmount(mountpoint, UnmountFlags::DETACH);
        }
    }
}

fn make_directory(path: PathBuf) -> Result<PathBuf> {
    std::fs::create_dir(&path).map_err(BenchError::system(format!("making {path:?}")))?;
    Ok(path)
}

fn new_view(path: &Path, size: u64) -> Result<View> {
    let device: Arc<dyn Device> = Arc::new(FileDevice::create(path, size, Default::default())?);
    let options = MkfsOptions {
        uuid: rand::random(),
        hash_seed: rand::random(),
        label: "bench".into(),
        engine: yore_fs::Engine::Snapshot,
        owner: (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
        permissions: 0o755,
        log_size: None,
        force: false,
    };
    View::mkfs(&device, &options).map_err(BenchError::library("making the volume"))?;
    View::open(device, &MountOptions::default()).map_err(BenchError::library("opening the volume"))
}

/// The library on a volume file of `size` bytes in `dir`.
pub(crate) fn library(dir: &Path, size: u64) -> Result<Place> {
    let view = new_view(&dir.join("library.yore"), size)?;
    let target = Box::new(LibraryTarget::new("yore, library", view.clone()));
    Ok(Place { target, keeper: Keeper::View(view) })
}

/// A volume file of `size` bytes in `dir`, mounted.
pub(crate) fn mounted(dir: &Path, size: u64) -> Result<Place> {
    let volume = dir.join("mounted.yore");
    let view = new_view(&volume, size)?;
    let mountpoint = make_directory(dir.join("yore"))?;
    let config = MountConfig::new(&mountpoint, volume.display().to_string());
    let session = mount(view, &config)?;
    let target = Box::new(DirectoryTarget::new("yore, mounted", &mountpoint)?);
    Ok(Place { target, keeper: Keeper::Session(session) })
}

/// The transport bound.
pub(crate) fn bound(dir: &Path) -> Result<Place> {
    let mountpoint = make_directory(dir.join("memory"))?;
    let config = MountConfig::new(&mountpoint, "memory");
    let session = mount_filesystem(MemoryFuse::new(&config), &config)?;
    let target = Box::new(DirectoryTarget::new(BOUND, &mountpoint)?);
    Ok(Place { target, keeper: Keeper::Session(session) })
}

/// ext4 on a loop device over an image file of `size` bytes in `dir`.
pub(crate) fn ext4(dir: &Path, size: u64) -> Result<Place> {
    let image = dir.join("ext4.img");
    std::fs::File::create(&image)
        .and_then(|f| f.set_len(size))
        .map_err(BenchError::system(format!("making {image:?}")))?;
    let mountpoint = make_directory(dir.join("ext4"))?;
    // Nothing left for the kernel to initialise while it is being measured.
    run(Command::new("mkfs.ext4")
        .args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
        .arg(&image))?;
    run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&mountpoint))?;
    let target = DirectoryTarget::new(EXT4, &mountpoint);
    let keeper = Keeper::Ext4 { mountpoint };
    match target {
        Ok(target) => Ok(Place { target: Box::new(target), keeper }),
        Err(error) => {
            if let Keeper::Ext4 { mountpoint } = keeper {
                let _ = rustix::mount::unmount(&mountpoint, UnmountFlags::DETACH);
            }
            Err(error)
        }
    }
}

fn run(command: &mut Command) -> Result<()> {
    let outcome = command.output();
    let failed = |said: String| BenchError::Command { command: format!("{command:?}"), said };
    match outcome {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_string())),
        Err(error) => Err(failed(error.to_string())),
    }
}
