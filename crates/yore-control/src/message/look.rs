//! What is asked about the past of a directory, and what is told of it.

use serde::{Deserialize, Serialize};
use yore_fs::{
    Deleted, Difference, EventNo, EventUsage, Incarnation, InodeNo, Logged, Retained, StateUsage, Statfs,
    UsageTotals,
};

/// What is asked about the past of a directory. For root, the daemon's user, and the owner of the directory;
/// of differences the owner at both times. An owner is told only names that he could have learned: of
/// directories that he may list as of when they were there, and what is gone of such that he may list now,
/// too. What everybody may ask says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Look {
    /// Which directory it is. For everybody. [`Looked::Identity`].
    Identity,
    /// What differs between two times, `None` for the present. [`Looked::Differences`].
    Diff {
        /// The first.
        from: Option<EventNo>,
        /// The second.
        to: Option<EventNo>,
    },
    /// The same, where what took the place of another one of its name and type is compared with that.
    /// [`Looked::Differences`].
    Compare {
        /// The first time.
        from: Option<EventNo>,
        /// The second.
        to: Option<EventNo>,
        /// Names the question for [`crate::Request::HowFar`]; 0: nobody will ask.
        question: u64,
    },
    /// What a name meant over time, the latest first. [`Looked::Log`].
    Log {
        /// The name in the directory, empty for the directory itself. Or a path from there, by directories
        /// that may be gone.
        name: Vec<u8>,
        /// The most states that are wanted, at least one; `None`: all.
        most: Option<u32>,
    },
    /// What is gone, the latest first. [`Looked::Deleted`].
    Deleted {
        /// From all directories below, too.
        recursive: bool,
        /// As of [`Look::Compare`].
        question: u64,
    },
    /// What only history holds of the whole volume. For everybody, as statfs(2). [`Looked::HistoryBytes`].
    HistoryBytes,
    /// What each snapshot holds of what is below the directory. [`Looked::Usage`].
    Usage,
    /// What each state of a name in the directory holds. [`Looked::UsageOf`].
    UsageOf {
        /// As of [`Look::Log`].
        name: Vec<u8>,
    },
}

/// What is told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Looked {
    /// Which directory it is.
    Identity(Identity),
    /// What differs.
    Differences(Vec<Difference>),
    /// The states of a name.
    Log(Vec<Logged>),
    /// What is gone.
    Deleted(Vec<Deleted>),
    /// What only history holds of the volume.
    HistoryBytes(HistoryBytes),
    /// What snapshots hold.
    Usage(UsageTotals, Vec<EventUsage>),
    /// What the states of a name hold.
    UsageOf(UsageTotals, Vec<StateUsage>),
}

/// A directory of a volume, and as of when it is seen.
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
    /// Whether both are one directory, of whatever times.
    pub fn is_same_directory(&self, other: &Identity) -> bool {
        (self.inode, self.incarnation) == (other.inode, other.incarnation)
    }
}

/// What only history holds of a volume, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryBytes {
    /// Of files: data, and metadata.
    pub files: Retained,
    /// What says what is kept.
    pub index: u64,
}

impl HistoryBytes {
    /// Of a volume whose space is this.
    pub fn of(space: &Statfs) -> HistoryBytes {
        let bytes = |blocks: u64| blocks.saturating_mul(space.block_size.into());
        let files = Retained {
            data: bytes(space.history_data_blocks),
            metadata: bytes(space.history_metadata_blocks),
        };
        HistoryBytes { files, index: bytes(space.history_index_blocks) }
    }

    /// All of it.
    pub fn bytes(&self) -> u64 {
        self.files.bytes().saturating_add(self.index)
    }
}
