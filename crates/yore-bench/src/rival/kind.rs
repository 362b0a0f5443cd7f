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
            description: self.description(),
            version,
            ours: self.is_ours(),
        }
    }

    /// What it is, for the legend.
    pub fn description(self) -> String {
        match self.ours() {
            Some(ours) => ours.description(),
            None => match self {
                RivalKind::MemoryFuse => {
                    "FUSE file system in memory with nothing behind it (the transport bound)"
                }
                RivalKind::Ext2 => "ext2 (the kernel's ext4 driver) on a loop device",
                RivalKind::Ext3 => "ext3 (the kernel's ext4 driver) on a loop device",
                RivalKind::Ext3Journal => "ext3 with data=journal on a loop device",
                RivalKind::Ext3Writeback => "ext3 with data=writeback on a loop device",
                RivalKind::Xfs => "XFS on a loop device",
                RivalKind::Btrfs => "Btrfs on a loop device",
                RivalKind::Fuse2fs => "ext4 served through FUSE by fuse2fs",
                _ => "ext4 on a loop device",
            }
            .to_owned(),
        }
    }

    /// What is particular to it, if it is Yore: the one place that says so.
    pub(crate) fn ours(self) -> Option<Ours> {
        let library = Ours {
            is_mount: false,
            engine: Engine::Snapshot,
            durability: Durability::Async,
            keeps_checksums: false,
        };
        let mount = Ours { is_mount: true, ..library };
        let with = |ours: Ours, engine| Some(Ours { engine, ..ours });
        let journal = |ours: Ours, durability| Some(Ours { engine: Engine::Journal, durability, ..ours });
        match self {
            RivalKind::Library => Some(library),
            RivalKind::LibraryNone => with(library, Engine::None),
            RivalKind::LibraryJournal => with(library, Engine::Journal),
            RivalKind::LibraryJournalGroup => journal(library, Durability::Group),
            RivalKind::LibraryJournalSync => journal(library, Durability::Sync),
            RivalKind::LibrarySoftUpdates => with(library, Engine::SoftUpdates),
            RivalKind::LibrarySync => with(library, Engine::Sync),
            RivalKind::LibraryChecksums => Some(Ours { keeps_checksums: true, ..library }),
            RivalKind::Mount => Some(mount),
            RivalKind::MountNone => with(mount, Engine::None),
            RivalKind::MountJournal => with(mount, Engine::Journal),
            RivalKind::MountJournalGroup => journal(mount, Durability::Group),
            RivalKind::MountJournalSync => journal(mount, Durability::Sync),
            RivalKind::MountSoftUpdates => with(mount, Engine::SoftUpdates),
            RivalKind::MountSync => with(mount, Engine::Sync),
            RivalKind::MountChecksums => Some(Ours { keeps_checksums: true, ..mount }),
            _ => None,
        }
    }

    /// Whether it is Yore, whose ratios to the others are of interest.
    pub fn is_ours(self) -> bool {
        self.ours().is_some()
    }

    /// Whether it is Yore mounted.
    pub(crate) fn is_mount(self) -> bool {
        self.ours().is_some_and(|ours| ours.is_mount)
    }

    /// Whether programs can use it by paths.
    pub fn has_paths(self) -> bool {
        self.ours().is_none_or(|ours| ours.is_mount)
    }
}

/// How Yore is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ours {
    /// Mounted through FUSE, or the library in the measuring process.
    pub(crate) is_mount: bool,
    pub(crate) engine: Engine,
    /// When calls return.
    pub(crate) durability: Durability,
    /// Whether the volume keeps checksums of file data.
    pub(crate) keeps_checksums: bool,
}

impl Ours {
    fn description(self) -> String {
        let mut text = match self.is_mount {
            true => "Yore, mounted through FUSE".to_owned(),
            false => "Yore, the library in the measuring process".to_owned(),
        };
        match self.engine {
            Engine::Snapshot if self.is_mount || self.keeps_checksums => {}
            Engine::None => text += ", engine none (no crash consistency)",
            engine => text += &format!(", engine {}", engine.name()),
        }
        match self.durability {
            Durability::Async => {}
            Durability::Group => text += ", calls durable in groups",
            Durability::Sync => text += ", each call durable",
        }
        if self.keeps_checksums {
            text += ", with checksums of file data";
        }
        text
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
