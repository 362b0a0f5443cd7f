//! A volume of its own for a measure: created, filled, opened again, removed.

use crate::rival::{drop_caches, library, make_directory, make_image};
use crate::target::LibraryTarget;
use crate::{BenchError, CompareOptions, Result, Target};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use yore_fs::{Engine, EventNo, MountOptions, NewSnapshot, Node, View};
use yore_fuse::{MountConfig, Session, UnmountHow};

/// Bytes written at a time to an image that is not to be sparse.
const PIECE: usize = 4 << 20;
/// Files per directory of [`Volume::with_files`].
pub(super) const PER_DIRECTORY: usize = 1000;

/// Unmounts, and waits for the end of the session.
pub(super) fn unmount(session: Session) -> Result<()> {
    session.handle().unmount(UnmountHow::Idle)?;
    Ok(session.wait().map(drop)?)
}

/// An open volume. Its image stays until [`Volume::end`], or until the directory it is in is removed.
pub(super) struct Volume {
    pub(super) target: LibraryTarget,
    /// The directories that it was made with.
    pub(super) dirs: Vec<Node>,
    image: PathBuf,
}

impl Volume {
    /// A volume in the image `name` in `dir`, sparse, of the size that `options` say.
    pub(super) fn make(options: &CompareOptions, dir: &Path, name: &str) -> Result<Volume> {
        let image = dir.join(name);
        make_image(&image, &options.environment(dir.to_path_buf()))?;
        Volume::over(image)
    }

    /// One of `bytes`, for all of which the host has already allocated space: the first writer does not pay
    /// for that.
    pub(super) fn make_written(dir: &Path, name: &str, bytes: u64) -> Result<Volume> {
        let image = dir.join(name);
        let failed = || BenchError::system(format!("making {name}"));
        let mut file = std::fs::File::create_new(&image).map_err(failed())?;
        let zeros = vec![0; PIECE];
        for _ in 0..bytes.div_ceil(PIECE as u64) {
            file.write_all(&zeros).map_err(failed())?;
        }
        file.sync_all().map_err(failed())?;
        drop(file);
        Volume::over(image)
    }

    fn over(image: PathBuf) -> Result<Volume> {
        library::mkfs_in(&image, Engine::Snapshot)?;
        Volume::open(image, &MountOptions::default())
    }

    /// With this many directories.
    pub(super) fn with_dirs(mut self, count: usize) -> Result<Volume> {
        let names: Vec<String> = (0..count).map(|d| format!("d{d}")).collect();
        self.dirs = self.target.new_dirs(&self.target.root()?, &names)?;
        Ok(self)
    }

    /// With this many empty files. The name of each is its number.
    pub(super) fn with_files(self, count: usize) -> Result<Volume> {
        let volume = self.with_dirs(count.div_ceil(PER_DIRECTORY))?;
        for i in 0..count {
            volume.target.create(&volume.dirs[i / PER_DIRECTORY], &i.to_string())?;
        }
        volume.target.sync()?;
        Ok(volume)
    }

    /// Writes to the beginning of the file of this number, which it returns.
    pub(super) fn overwrite(&self, file: usize, data: &[u8]) -> Result<Node> {
        let node = self.target.open(&self.dirs[file / PER_DIRECTORY], &file.to_string())?;
        self.target.write_at(&node, 0, data)?;
        Ok(node)
    }

    /// Closes and opens it; if `cold`, without what the host has cached. All nodes that others have must be
    /// gone; its directories are not open any more.
    pub(super) fn reopen(self, cold: bool) -> Result<Volume> {
        self.reopen_with(cold, &MountOptions::default())
    }

    /// The same with these options.
    pub(super) fn reopen_with(mut self, cold: bool, options: &MountOptions) -> Result<Volume> {
        self.close()?;
        let Volume { target, image, .. } = self;
        // It has the device locked.
        drop(target);
        if cold {
            drop_caches()?;
        }
        Volume::open(image, options)
    }

    fn open(image: PathBuf, options: &MountOptions) -> Result<Volume> {
        let target = LibraryTarget::new(library::open_with(&image, options)?);
        Ok(Volume { target, dirs: Vec::new(), image })
    }

    /// Mounts it, and has something done below the mount point, whose outcome it returns. Then the mount and
    /// the image are removed.
    pub(super) fn on_mount<T>(self, dir: &Path, work: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        let mountpoint = dir.join("mnt");
        make_directory(&mountpoint)?;
        let (view, image) = self.into_parts();
        let session = yore_fuse::mount(view, &MountConfig::new(&mountpoint, image.display().to_string()))?;
        let done = work(&mountpoint);
        // Whatever the outcome.
        unmount(session)?;
        let done = done?;
        std::fs::remove_dir(&mountpoint).map_err(BenchError::system("removing the mount point"))?;
        std::fs::remove_file(&image).map_err(BenchError::system("removing the image"))?;
        Ok(done)
    }

    /// The view, for a caller that closes it, and the image, which stays.
    pub(super) fn into_parts(self) -> (View, PathBuf) {
        (self.target.into_view(), self.image)
    }

    fn close(&mut self) -> Result<()> {
        self.dirs.clear();
        self.target.view().close().map_err(BenchError::library("closing the volume"))
    }

    /// Closes it and removes its image.
    pub(super) fn end(mut self) -> Result<()> {
        self.close()?;
        std::fs::remove_file(&self.image).map_err(BenchError::system("removing the image"))
    }

    /// Takes a snapshot of all of it, without a name.
    pub(super) fn snapshot(&self, wait: bool) -> Result<EventNo> {
        let view = self.target.view();
        let event = view.take_snapshot(view.root(), &NewSnapshot { wait, ..NewSnapshot::default() });
        event.map(|event| event.number).map_err(BenchError::library("taking a snapshot"))
    }

    /// Forgets events, to the end.
    pub(super) fn forget(&self, events: &[EventNo]) -> Result<()> {
        let view = self.target.view();
        view.forget(events).map_err(BenchError::library("forgetting snapshots"))?;
        view.finish_forgetting(&mut |_| std::ops::ControlFlow::Continue(()))
            .map(drop)
            .map_err(BenchError::library("giving up what forgotten snapshots have seen"))
    }
}
