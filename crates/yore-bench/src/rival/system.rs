//! The kernel's file systems, on loop devices over image files.

use super::host::{make_image, need_root, version_of};
use super::kind::RivalKind;
use super::state::{Rival, ServedBy};
use crate::{program, BenchError, Result};
use rustix::mount::UnmountFlags;
use std::path::Path;
use std::time::{Duration, Instant};

/// How to create one: the program, its arguments, its package, and how to ask for its version.
struct Maker {
    program: &'static str,
    arguments: &'static [&'static str],
    package: &'static str,
    version: &'static str,
}

/// Leaves nothing for the kernel to initialise during the measurement; otherwise the defaults.
const EAGER: [&str; 4] = ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"];

/// The same without a journal.
const EAGER_EXT2: [&str; 4] = ["-q", "-F", "-E", "lazy_itable_init=0"];

fn maker(kind: RivalKind) -> Maker {
    match kind {
        RivalKind::Ext2 => {
            Maker { program: "mkfs.ext2", arguments: &EAGER_EXT2, package: "e2fsprogs", version: "-V" }
        }
        RivalKind::Ext3 | RivalKind::Ext3Journal | RivalKind::Ext3Writeback => {
            Maker { program: "mkfs.ext3", arguments: &EAGER, package: "e2fsprogs", version: "-V" }
        }
        RivalKind::Ext4 | RivalKind::Fuse2fs => {
            Maker { program: "mkfs.ext4", arguments: &EAGER, package: "e2fsprogs", version: "-V" }
        }
        RivalKind::Xfs => {
            Maker { program: "mkfs.xfs", arguments: &["-q"], package: "xfsprogs", version: "-V" }
        }
        RivalKind::Btrfs => {
            Maker { program: "mkfs.btrfs", arguments: &["-q"], package: "btrfs-progs", version: "-V" }
        }
        _ => panic!("{} is not made by another program", kind.name()),
    }
}

impl Rival {
    pub(super) fn make_foreign(&mut self) -> Result<()> {
        need_root(&format!("mounting {}", self.kind.name()))?;
        let maker = maker(self.kind);
        make_image(&self.image(), &self.env)?;
        program::run(program::command(maker.program).args(maker.arguments).arg(self.image()), maker.package)?;
        self.version = version_of(maker.program, maker.version, maker.package);
        Ok(())
    }

    pub(super) fn attach_kernel(&mut self) -> Result<()> {
        let (name, options) = match self.kind {
            RivalKind::Ext3Journal => ("ext3", "loop,data=journal"),
            RivalKind::Ext3Writeback => ("ext3", "loop,data=writeback"),
            kind => (kind.name(), "loop"),
        };
        let mut mount = program::command("mount");
        mount.args(["-t", name, "-o", options]).arg(self.image()).arg(self.mountpoint());
        program::run(&mut mount, "mount")?;
        self.served_by = ServedBy::Kernel;
        Ok(())
    }
}

/// Unmounts by the kernel, or for ordinary users by FUSE's helper. A program that reads all mounts (a
/// desktop, an indexer) may hold it for a moment.
pub(super) fn unmount(mountpoint: &Path) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        let mut helper = program::command("fusermount3");
        return program::run(helper.arg("-u").arg(mountpoint), "fuse3").map(drop);
    }
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        match rustix::mount::unmount(mountpoint, UnmountFlags::empty()) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::BUSY) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(20))
            }
            Err(error) => {
                let doing = format!("unmounting {}", mountpoint.display());
                return Err(BenchError::system(doing)(error.into()));
            }
        }
    }
}

/// Removes a mount from the tree even if something uses it, after a failure that is already being reported.
pub(super) fn unmount_by_force(mountpoint: &Path) {
    if rustix::process::geteuid().is_root() {
        let _ = rustix::mount::unmount(mountpoint, UnmountFlags::DETACH);
    } else {
        let _ = program::run(program::command("fusermount3").arg("-uz").arg(mountpoint), "fuse3");
    }
}
