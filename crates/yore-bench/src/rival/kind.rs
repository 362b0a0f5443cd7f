//! The kinds of file systems, and what those of a run have in common.

use crate::report::TargetInfo;
use std::path::PathBuf;
use strum::{EnumString, IntoStaticStr, VariantArray};
use yore_fs::{Durability, Engine};

/// A kind of file system to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum RivalKind {
    /// The library in the measuring process.
    Library,
    /// The same with the engine `none`: the cost of metadata without any order or promise.
    LibraryNone,
    /// The same with the engine `journal`.
    LibraryJournal,
    /// The same, where each call returns when what it did is durable, together with others.
    LibraryJournalGroup,
    /// The same, where each call has a record of its own.
    LibraryJournalSync,
    /// The same with the engine `soft-updates`.
    LibrarySoftUpdates,
    /// The same with the engine `sync`.
    LibrarySync,
    /// The library, on a volume that keeps checksums of file data.
    LibraryChecksums,
    /// A volume mounted through FUSE with default options.
    Mount,
    /// The same with a volume that keeps checksums of file data.
    MountChecksums,
    /// The same with the engine `none`.
    MountNone,
    /// The same with the engine `journal`.
    MountJournal,
    /// The same, where each call returns when what it did is durable, together with others.
    MountJournalGroup,
    /// The same, where each call has a record of its own.
    MountJournalSync,
    /// The same with the engine `soft-updates`.
    MountSoftUpdates,
    /// The same with the engine `sync`.
    MountSync,
    /// The FUSE file system with nothing behind it.
    MemoryFuse,
    /// ext2, as the kernel's ext4 driver serves it.
    Ext2,
    /// ext3, as the kernel's ext4 driver serves it: its journal has metadata, and data is written before it.
    Ext3,
    /// The same with data in the journal, too.
    Ext3Journal,
    /// The same without an order between data and the journal.
    Ext3Writeback,
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
            RivalKind::LibraryJournal => "Yore, the library in the measuring process, engine journal",
            RivalKind::LibraryJournalGroup => {
                "Yore, the library in the measuring process, engine journal, calls durable in groups"
            }
            RivalKind::LibraryJournalSync => {
                "Yore, the library in the measuring process, engine journal, each call durable"
            }
            RivalKind::LibrarySoftUpdates => {
                "Yore, the library in the measuring process, engine soft-updates"
            }
            RivalKind::LibrarySync => "Yore, the library in the measuring process, engine sync",
            RivalKind::LibraryChecksums => {
                "Yore, the library in the measuring process, with checksums of file data"
            }
            RivalKind::Mount => "Yore, mounted through FUSE",
            RivalKind::MountChecksums => "Yore, mounted through FUSE, with checksums of file data",
            RivalKind::MountNone => "Yore, mounted through FUSE, engine none (no crash consistency)",
            RivalKind::MountJournal => "Yore, mounted through FUSE, engine journal",
            RivalKind::MountJournalGroup => {
                "Yore, mounted through FUSE, engine journal, calls durable in groups"
            }
            RivalKind::MountJournalSync => "Yore, mounted through FUSE, engine journal, each call durable",
            RivalKind::MountSoftUpdates => "Yore, mounted through FUSE, engine soft-updates",
            RivalKind::MountSync => "Yore, mounted through FUSE, engine sync",
            RivalKind::MemoryFuse => {
                "FUSE file system in memory with nothing behind it (the transport bound)"
            }
            RivalKind::Ext2 => "ext2 (the kernel's ext4 driver) on a loop device",
            RivalKind::Ext3 => "ext3 (the kernel's ext4 driver) on a loop device",
            RivalKind::Ext3Journal => "ext3 with data=journal on a loop device",
            RivalKind::Ext3Writeback => "ext3 with data=writeback on a loop device",
            RivalKind::Ext4 => "ext4 on a loop device",
            RivalKind::Xfs => "XFS on a loop device",
            RivalKind::Btrfs => "Btrfs on a loop device",
            RivalKind::Fuse2fs => "ext4 served through FUSE by fuse2fs",
        }
    }

    /// The engine of a volume of Yore, and when calls return; `None` for the others.
    pub(crate) fn engine(self) -> Option<(Engine, Durability)> {
        match self {
            RivalKind::Library
            | RivalKind::Mount
            | RivalKind::LibraryChecksums
            | RivalKind::MountChecksums => Some((Engine::Snapshot, Durability::Async)),
            RivalKind::LibraryNone | RivalKind::MountNone => Some((Engine::None, Durability::Async)),
            RivalKind::LibraryJournal | RivalKind::MountJournal => Some((Engine::Journal, Durability::Async)),
            RivalKind::LibraryJournalGroup | RivalKind::MountJournalGroup => {
                Some((Engine::Journal, Durability::Group))
            }
            RivalKind::LibraryJournalSync | RivalKind::MountJournalSync => {
                Some((Engine::Journal, Durability::Sync))
            }
            RivalKind::LibrarySoftUpdates | RivalKind::MountSoftUpdates => {
                Some((Engine::SoftUpdates, Durability::Async))
            }
            RivalKind::LibrarySync | RivalKind::MountSync => Some((Engine::Sync, Durability::Async)),
            _ => None,
        }
    }

    /// Whether it is Yore, whose ratios to the others are of interest.
    pub fn is_ours(self) -> bool {
        self.engine().is_some()
    }

    /// Whether it is Yore mounted.
    pub(crate) fn is_mount(self) -> bool {
        self.is_ours() && self.has_paths()
    }

    /// Whether programs can use it by paths.
    pub fn has_paths(self) -> bool {
        !matches!(
            self,
            RivalKind::Library
                | RivalKind::LibraryNone
                | RivalKind::LibraryJournal
                | RivalKind::LibraryJournalGroup
                | RivalKind::LibraryJournalSync
                | RivalKind::LibrarySoftUpdates
                | RivalKind::LibrarySync
                | RivalKind::LibraryChecksums
        )
    }

    /// Whether its volume keeps checksums of file data.
    pub(crate) fn keeps_checksums(self) -> bool {
        matches!(self, RivalKind::LibraryChecksums | RivalKind::MountChecksums)
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
