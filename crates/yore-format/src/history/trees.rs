//! The trees of the past, and which shard has what.

use crate::header::{ANNALS_KEY_BYTES, INODE_INDEX_KEY_BYTES, NAME_INDEX_KEY_BYTES, SPAN_KEY_BYTES};
use crate::{BlockKind, InodeNo};

/// Trees of versions, of names, and of changes.
pub const HISTORY_SHARDS: usize = 16;
/// Roots in the block of roots.
pub const HISTORY_ROOTS: usize = FIRST_ROOTS + LATER_ROOTS;
/// Roots in front of the counts of blocks.
pub(super) const FIRST_ROOTS: usize = 4 + 3 * HISTORY_SHARDS;
/// Roots behind the counts: that which format 2.2 added, and those that come with the annals.
pub(super) const LATER_ROOTS: usize = 1 + ANNALS_ROOTS;
/// Roots that come with the annals.
pub(super) const ANNALS_ROOTS: usize = HISTORY_SHARDS + 3;

/// The trees of the past, in the order of their roots in the block of roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HistoryTree {
    /// The events that are kept or being forgotten, by number.
    Events,
    /// The same events by root and by name.
    EventIndex,
    /// What inodes were.
    Versions(usize),
    /// What names meant.
    Names(usize),
    /// Which version of an inode, and which past name in a directory, ended at which number.
    Changes(usize),
    /// The events that were forgotten, by number.
    Forgotten,
    /// Policies by inode: how often versions are made, and how long they are kept.
    Policies,
    /// Who did what to the past, and what a full volume gave up.
    Operations,
    /// What ended, in the order in which it ended: rows of states of inodes and of names.
    Annals(usize),
    /// Which rows of the annals an inode has.
    InodeIndex,
    /// Which rows of the annals are of a name in a directory.
    NameIndex,
    /// How many blocks the events between two, and they alone, hold.
    Spans,
}

impl HistoryTree {
    /// Its place among the roots.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn index(self) -> usize {
        let checked = |s: usize| {
            assert!(s < HISTORY_SHARDS, "a shard of the history below {HISTORY_SHARDS}, not {s}");
            s
        };
        let shard = |s: usize| 3 * checked(s);
        match self {
            HistoryTree::Events => 0,
            HistoryTree::EventIndex => 1,
            HistoryTree::Versions(s) => 2 + shard(s),
            HistoryTree::Names(s) => 3 + shard(s),
            HistoryTree::Changes(s) => 4 + shard(s),
            HistoryTree::Forgotten => FIRST_ROOTS - 2,
            HistoryTree::Policies => FIRST_ROOTS - 1,
            HistoryTree::Operations => FIRST_ROOTS,
            HistoryTree::Annals(s) => FIRST_ROOTS + 1 + checked(s),
            HistoryTree::InodeIndex => HISTORY_ROOTS - 3,
            HistoryTree::NameIndex => HISTORY_ROOTS - 2,
            HistoryTree::Spans => HISTORY_ROOTS - 1,
        }
    }

    /// All of them, in the order of their roots.
    pub fn all() -> impl Iterator<Item = HistoryTree> {
        let shards = (0..HISTORY_SHARDS)
            .flat_map(|s| [HistoryTree::Versions(s), HistoryTree::Names(s), HistoryTree::Changes(s)]);
        let first = [HistoryTree::Events, HistoryTree::EventIndex];
        let last = [HistoryTree::Forgotten, HistoryTree::Policies, HistoryTree::Operations];
        let annals = (0..HISTORY_SHARDS).map(HistoryTree::Annals);
        let indexes = [HistoryTree::InodeIndex, HistoryTree::NameIndex, HistoryTree::Spans];
        first.into_iter().chain(shards).chain(last).chain(annals).chain(indexes)
    }

    /// What its nodes are.
    pub fn kind(self) -> BlockKind {
        match self {
            HistoryTree::Events | HistoryTree::Forgotten => BlockKind::Events,
            HistoryTree::EventIndex => BlockKind::EventIndex,
            HistoryTree::Versions(_) => BlockKind::Versions,
            HistoryTree::Names(_) => BlockKind::Names,
            HistoryTree::Changes(_) => BlockKind::Changes,
            HistoryTree::Policies => BlockKind::Policies,
            HistoryTree::Operations => BlockKind::Operations,
            HistoryTree::Annals(_) => BlockKind::Annals,
            HistoryTree::InodeIndex => BlockKind::InodeIndex,
            HistoryTree::NameIndex => BlockKind::NameIndex,
            HistoryTree::Spans => BlockKind::Spans,
        }
    }

    /// The owner of its nodes.
    pub fn owner(self) -> InodeNo {
        match self {
            HistoryTree::Events | HistoryTree::EventIndex | HistoryTree::Forgotten => InodeNo::EVENTS,
            _ => InodeNo::HISTORY,
        }
    }

    /// Bytes of its keys.
    pub fn key_width(self) -> usize {
        match self {
            HistoryTree::Events | HistoryTree::Forgotten | HistoryTree::Policies => 8,
            HistoryTree::Names(_) | HistoryTree::Changes(_) => 24,
            HistoryTree::EventIndex | HistoryTree::Versions(_) | HistoryTree::Operations => 16,
            HistoryTree::Annals(_) => ANNALS_KEY_BYTES,
            HistoryTree::InodeIndex => INODE_INDEX_KEY_BYTES,
            HistoryTree::NameIndex => NAME_INDEX_KEY_BYTES,
            HistoryTree::Spans => SPAN_KEY_BYTES,
        }
    }
}

/// The shard that holds the versions of an inode, and the rows of the annals that are about it. Inodes with
/// 64 neighbouring numbers share a shard: they are often made and removed together, and their versions are
/// then neighbours too.
pub fn version_shard(inode: InodeNo) -> usize {
    shard(inode.0 / 64)
}

/// The shard that holds the past names in a directory.
pub fn name_shard(directory: InodeNo) -> usize {
    shard(directory.0)
}

fn shard(of: u64) -> usize {
    (of.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize
}
