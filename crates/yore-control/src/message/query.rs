//! Questions about the past of a directory, and their answers.

use serde::{Deserialize, Serialize};
use yore_fs::{
    Deleted, Difference, EventNo, EventUsage, Incarnation, InodeNo, Logged, Retained, StateUsage, Statfs,
    UsageTotals, VerifyStates,
};

/// A question about the past of a directory. Root, the daemon's user and the owner of the directory may ask
/// it; [`Query::Diff`] and [`Query::Compare`] need an owner who owned the directory at both times. A question
/// that everybody may ask says so. A user who may not do everything has a few of them answered at a time.
///
/// An owner learns only names that he could have learned anyway: those in directories that he may list as of
/// the time in question. Of what is gone he learns names only from directories that he may list now, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Query {
    /// Which directory it is. For everybody. [`QueryResult::Identity`].
    Identity,
    /// The differences between two times; `None` is the present. [`QueryResult::Differences`].
    Diff {
        /// The first time.
        from: Option<EventNo>,
        /// The second time.
        to: Option<EventNo>,
    },
    /// The same. But a file that took the place of another one of the same name and type is compared with
    /// it. [`QueryResult::Differences`].
    Compare {
        /// The first time.
        from: Option<EventNo>,
        /// The second time.
        to: Option<EventNo>,
        /// The number under which [`crate::Request::HowFar`] asks for progress, and
        /// [`crate::Request::BreakOff`] breaks it off; 0: nobody will ask.
        question: u64,
    },
    /// What a name meant over time, the latest first. [`QueryResult::Log`].
    Log {
        /// The name in the directory, or a path from there through directories that may be gone. Empty for
        /// the directory itself.
        name: Vec<u8>,
        /// How many states the answer may have, at least one; `None`: all.
        most: Option<u32>,
        /// Of which states the data is verified. The answer then says it in them.
        verify: VerifyStates,
        /// As of [`Query::Compare`].
        question: u64,
    },
    /// Everything that is gone from the directory, the latest first. [`QueryResult::Deleted`].
    Deleted {
        /// Whether the directories below count, too.
        recursive: bool,
        /// As of [`Query::Compare`].
        question: u64,
    },
    /// The bytes of the whole volume that only history holds. For everybody, as statfs(2).
    /// [`QueryResult::HistoryBytes`].
    HistoryBytes,
    /// The space that each snapshot holds below the directory. [`QueryResult::Usage`].
    Usage {
        /// As of [`Query::Compare`].
        question: u64,
    },
    /// The space that each state of a name in the directory holds. [`QueryResult::UsageOf`].
    UsageOf {
        /// As of [`Query::Log`].
        name: Vec<u8>,
        /// As of [`Query::Compare`].
        question: u64,
    },
}

impl Query {
    /// Whether it takes time in proportion to what the user has.
    pub(crate) fn takes_long(&self) -> bool {
        !matches!(self, Query::Identity | Query::HistoryBytes)
    }

    /// The name under which it is broken off.
    pub(crate) fn question_mut(&mut self) -> Option<&mut u64> {
        match self {
            Query::Compare { question, .. }
            | Query::Log { question, .. }
            | Query::Deleted { question, .. }
            | Query::Usage { question }
            | Query::UsageOf { question, .. } => Some(question),
            Query::Identity | Query::Diff { .. } | Query::HistoryBytes => None,
        }
    }
}

/// The answer to a [`Query`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueryResult {
    /// Which directory it is.
    Identity(Identity),
    /// The differences.
    Differences(Vec<Difference>),
    /// The states of a name.
    Log(Vec<Logged>),
    /// What is gone.
    Deleted(Vec<Deleted>),
    /// The bytes of the volume that only history holds.
    HistoryBytes(HistoryBytes),
    /// The totals, and the space that each snapshot holds.
    Usage(UsageTotals, Vec<EventUsage>),
    /// The totals, and the space that each state of a name holds.
    UsageOf(UsageTotals, Vec<StateUsage>),
}

/// A directory of a volume, and the time as of which it is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its inode.
    pub inode: InodeNo,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The snapshot as of which it is seen; `None`: the present.
    pub event: Option<EventNo>,
}

impl Identity {
    /// Whether both are the same directory, at whatever times.
    pub fn is_same_directory(&self, other: &Identity) -> bool {
        (self.inode, self.incarnation) == (other.inode, other.incarnation)
    }
}

/// The bytes of a volume that only history holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryBytes {
    /// Versions of files: their data, and their metadata.
    pub files: Retained,
    /// The trees that say what history keeps.
    pub index: u64,
}

impl HistoryBytes {
    /// Takes them from the statistics of a volume.
    pub fn of(space: &Statfs) -> HistoryBytes {
        let bytes = |blocks: u64| blocks.saturating_mul(space.block_size.into());
        let files = Retained {
            data: bytes(space.history_data_blocks),
            metadata: bytes(space.history_metadata_blocks),
        };
        HistoryBytes { files, index: bytes(space.history_index_blocks) }
    }

    /// All of them.
    pub fn bytes(&self) -> u64 {
        self.files.bytes().saturating_add(self.index)
    }
}
