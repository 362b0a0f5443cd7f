//! The kinds of file systems, and what those of a run have in common.

use crate::report::TargetInfo;
use std::path::PathBuf;
use strum::{EnumString, IntoStaticStr, VariantArray};

/// A kind of file system to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum RivalKind {
    /// The library in the measuring process.
    Library,
    /// The same with the engine `none`: the cost of metadata without any order or promise.
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
    pub const ALL: &[RivalKind] = RivalKind::VARIANTS;

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<RivalKind> {
        name.parse().ok()
    }

    /// How a report describes it.
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

/// The settings that all rivals of a run share.
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
