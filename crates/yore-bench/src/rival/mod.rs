//! The file systems that are measured, made for the run and taken away after it, whatever way it ends.
//!
//! All that need a disk get an image file of the same size in the same directory, made the same way (sparse,
//! or written beforehand: [`Environment::preallocate`]), so that none has a place or a kind of file that
//! another lacks. Nothing is tuned: each is made and mounted with its own defaults, except that the kernel is
//! left nothing to initialise in the background while it is being measured.
//!
//! Served file systems (the mount, the transport bound, fuse2fs) run in a process of their own, as they do in
//! use: within the measuring process a context switch would be cheaper than it is for anybody else. Where
//! this program cannot start itself again ([`Serving::InProcess`], for tests) they are threads of this one.

pub(crate) mod library;
mod served;
pub use served::serve_memory;
mod system;

use crate::report::TargetInfo;
use crate::target::{LibraryTarget, SystemTarget, Target};
use crate::{program, BenchError, Result};
use std::path::{Path, PathBuf};
use std::process::Child;

/// A kind of file system to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RivalKind {
    /// The library in the measuring process.
    Library,
    /// The same with the engine `none`: what metadata without any order or promise would cost.
    LibraryNone,
    /// A volume mounted through FUSE with default options.
    Mount,
    /// The FUSE file system with nothing behind it.
    MemoryFuse,
    /// ext3, as the kernel's ext4 driver serves it.
    Ext3,
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// ext4 through FUSE.
    Fuse2fs,
}

impl RivalKind {
    /// All of them, in the order of reports.
    pub const ALL: [RivalKind; 9] = [
        RivalKind::Library,
        RivalKind::LibraryNone,
        RivalKind::Mount,
        RivalKind::MemoryFuse,
        RivalKind::Ext3,
        RivalKind::Ext4,
        RivalKind::Xfs,
        RivalKind::Btrfs,
        RivalKind::Fuse2fs,
    ];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            RivalKind::Library => "library",
            RivalKind::LibraryNone => "library-none",
            RivalKind::Mount => "mount",
            RivalKind::MemoryFuse => "memory-fuse",
            RivalKind::Ext3 => "ext3",
            RivalKind::Ext4 => "ext4",
            RivalKind::Xfs => "xfs",
            RivalKind::Btrfs => "btrfs",
            RivalKind::Fuse2fs => "fuse2fs",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<RivalKind> {
        RivalKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// What a report says of it.
    pub(crate) fn info(self, version: Option<String>) -> TargetInfo {
        TargetInfo {
            name: self.name().into(),
            description: self.description().into(),
            version,
            ours: self.is_ours(),
        }
    }

    /// What it is, for the legend.
    pub fn description(self) -> &'static str {
        match self {
            RivalKind::Library => "Yore, the library in the measuring process, engine snapshot",
            RivalKind::LibraryNone => {
                "Yore, the library in the measuring process, engine none (no crash consistency)"
            }
            RivalKind::Mount => "Yore, mounted through FUSE",
            RivalKind::MemoryFuse => {
                "FUSE file system in memory with nothing behind it (the transport bound)"
            }
            RivalKind::Ext3 => "ext3 (the kernel's ext4 driver) on a loop device",
            RivalKind::Ext4 => "ext4 on a loop device",
            RivalKind::Xfs => "XFS on a loop device",
            RivalKind::Btrfs => "Btrfs on a loop device",
            RivalKind::Fuse2fs => "ext4 served through FUSE by fuse2fs",
        }
    }

    /// Whether it is Yore, whose ratios to the others are of interest.
    pub fn is_ours(self) -> bool {
        matches!(self, RivalKind::Library | RivalKind::LibraryNone | RivalKind::Mount)
    }

    /// Whether programs can use it by paths.
    pub fn has_paths(self) -> bool {
        !matches!(self, RivalKind::Library | RivalKind::LibraryNone)
    }
}

/// How file systems that need a server get one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Serving {
    /// Threads of this process.
    InProcess,
    /// The `yore` program at this path: `yore mount` and `yore bench serve-memory`.
    Program(PathBuf),
}

/// What all rivals of a run have in common.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Bytes of each volume and image.
    pub volume_bytes: u64,
    /// Allocate the images on the host beforehand; otherwise they are sparse, as users would have them.
    pub preallocate: bool,
    /// How to serve.
    pub serving: Serving,
    /// Options for `yore mount -o`; empty for the defaults.
    pub mount_options: String,
    /// Where everything is made.
    pub(crate) dir: PathBuf,
}

/// A workload that runs on any target: what a closure over all types would be.
pub(crate) trait OnTarget {
    type Output;
    fn on<T: Target>(self, target: &T) -> Result<Self::Output>;
}

enum Measured {
    Library(LibraryTarget),
    System(SystemTarget),
    /// Between unmounting and mounting.
    Nothing,
}

/// What keeps a file system there.
enum Keeper {
    Library,
    Session(yore_fuse::Session),
    Daemon,
    Child(Child),
    Kernel,
    Nothing,
}

/// A file system under measurement and what keeps it there.
pub(crate) struct Rival {
    kind: RivalKind,
    env: Environment,
    /// Of this rival alone: the image and the mount point are in it.
    dir: PathBuf,
    measured: Measured,
    keeper: Keeper,
    version: Option<String>,
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
            keeper: Keeper::Nothing,
            version: None,
        };
        make_directory(&rival.mountpoint())?;
        match kind {
            RivalKind::Library => rival.make_volume(yore_fs::Engine::Snapshot)?,
            RivalKind::LibraryNone => rival.make_volume(yore_fs::Engine::None)?,
            RivalKind::Mount => rival.make_volume(yore_fs::Engine::Snapshot)?,
            RivalKind::MemoryFuse => {}
            _ => rival.make_foreign()?,
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

    /// Where programs find it.
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

    /// Everything on the medium, so that this file system does no work while another is measured.
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

    /// Unmounts or closes, tells if that fails, and removes the image.
    pub(crate) fn end(mut self) -> Result<()> {
        self.detach()?;
        std::fs::remove_dir_all(&self.dir)
            .map_err(BenchError::system(format!("removing {}", self.dir.display())))
    }

    fn image(&self) -> PathBuf {
        self.dir.join("image")
    }

    fn mountpoint(&self) -> PathBuf {
        self.dir.join("mnt")
    }

    /// Mounts or opens what [`Rival::make`] made.
    fn attach(&mut self) -> Result<()> {
        match self.kind {
            RivalKind::Library | RivalKind::LibraryNone => return self.attach_library(),
            RivalKind::Mount => self.attach_mount()?,
            RivalKind::MemoryFuse => self.attach_memory()?,
            RivalKind::Fuse2fs => self.attach_fuse2fs()?,
            RivalKind::Ext3 | RivalKind::Ext4 | RivalKind::Xfs | RivalKind::Btrfs => self.attach_kernel()?,
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
        // Should unmounting fail, it stays to be taken away by force when this is dropped.
        let mut keeper = std::mem::replace(&mut self.keeper, Keeper::Nothing);
        let ended = match &mut keeper {
            Keeper::Library | Keeper::Nothing => Ok(()),
            Keeper::Daemon => self.detach_mount(),
            Keeper::Child(child) => self.detach_child(child),
            Keeper::Kernel => system::unmount(&self.mountpoint()),
            Keeper::Session(session) => {
                session.handle().unmount(yore_fuse::UnmountHow::Idle).map_err(Into::into)
            }
        };
        if let Err(error) = ended {
            self.keeper = keeper;
            return Err(error);
        }
        match keeper {
            Keeper::Session(session) => session.wait().map(drop).map_err(Into::into),
            _ => Ok(()),
        }
    }
}

impl Drop for Rival {
    /// After a failure that is being reported already: nothing may stay mounted, or removing the directory
    /// would go into it.
    fn drop(&mut self) {
        self.measured = Measured::Nothing;
        match std::mem::replace(&mut self.keeper, Keeper::Nothing) {
            // These end with their own drop.
            Keeper::Library | Keeper::Session(_) | Keeper::Nothing => {}
            Keeper::Daemon | Keeper::Kernel => system::unmount_by_force(&self.mountpoint()),
            Keeper::Child(mut child) => {
                system::unmount_by_force(&self.mountpoint());
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

pub(crate) fn make_directory(path: &Path) -> Result<()> {
    std::fs::create_dir(path).map_err(BenchError::system(format!("making {}", path.display())))
}

/// An image file of `env.volume_bytes`, the same way for everybody.
pub(crate) fn make_image(path: &Path, env: &Environment) -> Result<()> {
    let failed = || BenchError::system(format!("making {}", path.display()));
    let file = std::fs::File::create_new(path).map_err(failed())?;
    file.set_len(env.volume_bytes).map_err(failed())?;
    if env.preallocate {
        let flags = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&file, flags, 0, env.volume_bytes).map_err(|e| failed()(e.into()))?;
    }
    Ok(())
}

/// Whether the host's page cache can be dropped.
pub(crate) fn check_can_drop_caches() -> Result<()> {
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => Err(BenchError::impossible(
            "cold caches need root, to drop the host's page cache",
            "run it as root",
        )),
    }
}

/// Drops the host's clean pages, names and inodes.
pub(crate) fn drop_caches() -> Result<()> {
    check_can_drop_caches()?;
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3\n")
        .map_err(BenchError::system("dropping the host's caches"))
}

/// Root, or why not.
pub(crate) fn need_root(what: &str) -> Result<()> {
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => Err(BenchError::impossible(format!("{what} needs root"), "run it as root")),
    }
}

/// The first line of what a program says of its version.
fn version_of(program: &str, argument: &str, package: &str) -> Option<String> {
    let said = program::run(program::command(program).arg(argument), package).ok()?;
    said.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_string)
}
