//! The file systems that are measured. They are created for the run and removed after it, however it ends.
//!
//! All that need a disk get an image file of the same size in the same directory, created the same way
//! (sparse, or written beforehand: [`Environment::preallocate`]), so that none has a place or a kind of file
//! that another lacks. Nothing is tuned: each is created and mounted with its own defaults, except that the
//! kernel has nothing left to initialise in the background during the measurement.
//!
//! Served file systems (the mount, the transport bound, fuse2fs) run in a process of their own, as they do in
//! use: within the measuring process a context switch would be cheaper than it is for anybody else. If this
//! program cannot start itself again ([`Serving::InProcess`], for tests) they are threads of this one.

mod host;
mod kind;
pub(crate) mod library;
mod served;
mod state;
mod system;

pub(crate) use host::{check_can_drop_caches, drop_caches, make_directory, make_image};
pub use kind::{Environment, RivalKind, Serving};
pub use served::serve_memory;
pub(crate) use state::Rival;

use crate::target::{SystemTarget, Target};
use crate::{BenchError, Result};
use state::{Measured, ServedBy};
use std::path::{Path, PathBuf};
use yore_fs::View;

/// A workload that runs on any target, like a closure that is generic over its argument.
pub(crate) trait OnTarget {
    type Output;
    fn on<T: Target>(self, target: &T) -> Result<Self::Output>;
}

impl Rival {
    /// Makes a fresh file system and mounts or opens it.
    pub(crate) fn make(kind: RivalKind, env: &Environment) -> Result<Rival> {
        let dir = env.dir.join(kind.name());
        make_directory(&dir)?;
        let mut rival = Rival {
            kind,
            env: env.clone(),
            dir,
            measured: Measured::Nothing,
            served_by: ServedBy::Nothing,
            version: None,
        };
        make_directory(&rival.mountpoint())?;
        match (kind.ours(), kind) {
            (Some(ours), _) => rival.make_volume(ours)?,
            (None, RivalKind::MemoryFuse) => {}
            (None, _) => rival.make_foreign()?,
        }
        rival.attach()?;
        Ok(rival)
    }

    /// The version of what made or serves it, if it says.
    pub(crate) fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Runs a workload.
    pub(crate) fn measure<W: OnTarget>(&self, workload: W) -> Result<W::Output> {
        match &self.measured {
            Measured::Library(target) => workload.on(target),
            Measured::System(target) => workload.on(target),
            Measured::Nothing => panic!("{} is measured while it is not there", self.kind.name()),
        }
    }

    /// The path at which programs find it.
    ///
    /// # Errors
    /// [`BenchError::Impossible`] for the library, which has no paths on the host.
    pub(crate) fn path(&self) -> Result<PathBuf> {
        match self.kind.has_paths() {
            true => Ok(self.mountpoint()),
            false => Err(BenchError::impossible(
                "programs cannot work in the library, only through a mount",
                "leave this target out",
            )),
        }
    }

    /// Puts everything on the medium, so that this file system does no work while another is measured.
    pub(crate) fn settle(&self) -> Result<()> {
        struct Sync;
        impl OnTarget for Sync {
            type Output = ();
            fn on<T: Target>(self, target: &T) -> Result<()> {
                target.sync()
            }
        }
        self.measure(Sync)
    }

    /// Forgets everything that is cached: unmounts and mounts, or closes and opens, and drops the host's page
    /// cache, which needs root.
    pub(crate) fn chill(&mut self) -> Result<()> {
        self.settle()?;
        if self.kind != RivalKind::MemoryFuse {
            // Its content would be gone.
            self.detach()?;
        }
        drop_caches()?;
        if self.kind != RivalKind::MemoryFuse {
            self.attach()?;
        }
        Ok(())
    }

    /// The view of a volume that is open in this process.
    pub(crate) fn view(&self) -> Option<View> {
        match &self.measured {
            Measured::Library(target) => Some(target.view().clone()),
            Measured::System(_) | Measured::Nothing => None,
        }
    }

    /// What it is.
    pub(crate) fn kind(&self) -> RivalKind {
        self.kind
    }

    /// How file systems in user space are served.
    pub(crate) fn serving(&self) -> &Serving {
        &self.env.serving
    }

    /// Does something with the image while it is not mounted and nobody has it open.
    pub(crate) fn with_image<T>(&mut self, work: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        self.settle()?;
        self.detach()?;
        let done = work(&self.image())?;
        self.attach()?;
        Ok(done)
    }

    /// Unmounts or closes, returns an error if that fails, and removes the image.
    pub(crate) fn end(mut self) -> Result<()> {
        self.detach()?;
        std::fs::remove_dir_all(&self.dir)
            .map_err(BenchError::system(format!("removing {}", self.dir.display())))
    }

    /// Mounts or opens what [`Rival::make`] made.
    fn attach(&mut self) -> Result<()> {
        match (self.kind.ours(), self.kind) {
            (Some(ours), _) if ours.is_mount => self.attach_mount(ours.durability)?,
            (Some(ours), _) => return self.attach_library(ours.durability),
            (None, RivalKind::MemoryFuse) => self.attach_memory()?,
            (None, RivalKind::Fuse2fs) => self.attach_fuse2fs()?,
            (None, _) => self.attach_kernel()?,
        }
        self.measured = Measured::System(SystemTarget::new(self.mountpoint())?);
        Ok(())
    }

    /// Unmounts or closes; when it returns, nothing of it runs any more.
    fn detach(&mut self) -> Result<()> {
        // A directory held open would keep a mount busy.
        let measured = std::mem::replace(&mut self.measured, Measured::Nothing);
        if let Measured::Library(target) = &measured {
            target.view().close().map_err(BenchError::library("closing the volume"))?;
        }
        drop(measured);
        // If unmounting fails, it stays until this is dropped, which removes it by force.
        let mut served_by = std::mem::replace(&mut self.served_by, ServedBy::Nothing);
        let ended = match &mut served_by {
            ServedBy::Library | ServedBy::Nothing => Ok(()),
            ServedBy::Daemon => self.detach_mount(),
            ServedBy::Child(child) => self.detach_child(child),
            ServedBy::Kernel => system::unmount(&self.mountpoint()),
            ServedBy::Session(session) => {
                session.handle().unmount(yore_fuse::UnmountHow::Idle).map_err(Into::into)
            }
        };
        if let Err(error) = ended {
            self.served_by = served_by;
            return Err(error);
        }
        match served_by {
            ServedBy::Session(session) => session.wait().map(drop).map_err(Into::into),
            _ => Ok(()),
        }
    }
}

impl Drop for Rival {
    /// Runs after a failure that is already being reported. Nothing may stay mounted, because removing the
    /// directory would then delete the content of the mount.
    fn drop(&mut self) {
        self.measured = Measured::Nothing;
        match std::mem::replace(&mut self.served_by, ServedBy::Nothing) {
            // These end when they are dropped.
            ServedBy::Library | ServedBy::Session(_) | ServedBy::Nothing => {}
            ServedBy::Daemon | ServedBy::Kernel => system::unmount_by_force(&self.mountpoint()),
            ServedBy::Child(mut child) => {
                system::unmount_by_force(&self.mountpoint());
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}
