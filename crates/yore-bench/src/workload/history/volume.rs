//! A volume of its own for a measure: created, filled, opened again, removed.

use crate::rival::{drop_caches, library, make_image};
use crate::target::LibraryTarget;
use crate::{BenchError, CompareOptions, Result, Target};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use yore_fs::{Engine, EventNo, NewSnapshot, Node, View};

/// Bytes written at a time to an image that is not to be sparse.
const PIECE: usize = 4 << 20;

/// An open volume. Its image stays until [`Volume::end`], or until the directory it is in is removed.
pub(super) struct Volume {
    pub(super) target: LibraryTarget,
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
        let target = LibraryTarget::new(library::open(&image)?);
        Ok(Volume { target, image })
    }

    /// Closes and opens it; if `cold`, without what the host has cached. All its nodes must be gone.
    pub(super) fn reopen(self, cold: bool) -> Result<Volume> {
        let image = self.close()?;
        if cold {
            drop_caches()?;
        }
        let target = LibraryTarget::new(library::open(&image)?);
        Ok(Volume { target, image })
    }

    /// The view, for a caller that closes it, and the image, which stays.
    pub(super) fn into_parts(self) -> (View, PathBuf) {
        (self.target.into_view(), self.image)
    }

    fn close(self) -> Result<PathBuf> {
        self.target.view().close().map_err(BenchError::library("closing the volume"))?;
        Ok(self.image)
    }

    /// Closes it and removes its image.
    pub(super) fn end(self) -> Result<()> {
        let image = self.close()?;
        std::fs::remove_file(&image).map_err(BenchError::system("removing the image"))
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

    /// Creates this many directories in the root, and opens them.
    pub(super) fn directories(&self, count: usize) -> Result<Vec<Node>> {
        let root = self.target.root()?;
        let names: Vec<String> = (0..count).map(|d| format!("d{d}")).collect();
        self.target.new_dirs(&root, &names)
    }
}
