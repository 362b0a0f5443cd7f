//! What the measures of [`History`] have in common: its parameters and its rounds.

pub(super) use crate::workload::lines::{medians, turns, Goal, Line};
use crate::{CompareOptions, Result};
use std::path::Path;
use std::time::Duration;
use strum::{EnumString, IntoStaticStr, VariantArray};

/// Rows of [`History`] that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum HistoryPart {
    /// Taking snapshots.
    Take,
    /// Work on the present while snapshots are taken.
    Meanwhile,
    /// The same with many snapshots behind it.
    Behind,
    /// Opening and reading the past.
    Back,
    /// Reading and overwriting a large file.
    Large,
    /// Work while snapshots are forgotten.
    Forget,
    /// Small files with short lives while snapshots are taken.
    #[strum(serialize = "postmark")]
    PostMark,
    /// Blocks of metadata with snapshots.
    Metadata,
    /// Differences of two snapshots.
    Diff,
    /// Reading a file with many versions.
    Scattered,
    /// Taking snapshots through a mount.
    Mount,
    /// Work on a mount while snapshots are mounted beside it.
    Beside,
    /// Work with the policy of new volumes.
    Usual,
    /// Restoring a large file.
    Restore,
    /// Bytes of the medium for what ends.
    Record,
    /// Requests that a look back takes on a cold disk.
    Cold,
    /// A whole tree on a cold disk.
    Tree,
    /// Mounts with snapshots, beside another file system that has them.
    Mixed,
}

impl HistoryPart {
    /// All, in the order in which they run.
    pub const ALL: &[HistoryPart] = HistoryPart::VARIANTS;

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The part of that name.
    pub fn from_name(name: &str) -> Option<HistoryPart> {
        name.parse().ok()
    }
}

/// The cost of having a past.
#[derive(Clone, Debug)]
pub struct History {
    /// What is measured.
    pub parts: Vec<HistoryPart>,
    /// Files on one volume of which snapshots are taken; the other volume has one file.
    pub files: usize,
    /// Snapshots taken of each per round; a twentieth of them durably.
    pub takes: usize,
    /// How long each step on the present goes on.
    pub step: Duration,
    /// Files of 4 KiB that the steps read, overwrite and rename.
    pub live: usize,
    /// Directories they are spread over.
    pub directories: usize,
    /// Snapshots behind the steps, and versions of the small file whose past is read.
    pub snapshots: usize,
    /// Times that each version of it is opened and read per round.
    pub reads: usize,
    /// Bytes of the large file, rounded up to whole MiB.
    pub large_bytes: u64,
    /// Snapshots forgotten while others work.
    pub forgotten: usize,
    /// Files overwritten before each of those, and between two snapshots that are compared. Also, for the
    /// file with many versions, random blocks overwritten before each snapshot.
    pub changes: usize,
    /// PostMark's transactions; its files and directories are in proportion.
    pub transactions: usize,
    /// For how long nobody asks anything of the volume whose file is scattered.
    pub idle: Duration,
}

impl Default for History {
    fn default() -> History {
        History {
            parts: HistoryPart::ALL.to_vec(),
            files: 100_000,
            takes: 2000,
            step: Duration::from_secs(4),
            live: 20_000,
            directories: 100,
            snapshots: 10_000,
            reads: 10_000,
            large_bytes: 256 << 20,
            forgotten: 1000,
            changes: 100,
            transactions: 100_000,
            idle: Duration::from_secs(60),
        }
    }
}

/// What a measure needs to know of the run.
pub(super) struct Run<'r> {
    pub(super) history: &'r History,
    pub(super) options: &'r CompareOptions,
    pub(super) dir: &'r Path,
    /// Whether the host's caches can be dropped.
    pub(super) cold: bool,
}

impl Run<'_> {
    /// The rounds, until somebody stops the run.
    pub(super) fn rounds(&self) -> impl Iterator<Item = Result<usize>> + '_ {
        (0..self.options.rounds).map(|round| self.options.check_stop().map(|()| round))
    }
}
