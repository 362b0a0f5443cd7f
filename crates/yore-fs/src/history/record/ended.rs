//! What says that something ended.

use super::entry::PastEntry;
use crate::InodeNo;
use yore_format::{AnnalsKey, EventNo, Version};

/// The end of a version or, with a cookie, of what that cookie meant in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// When.
    pub end: EventNo,
    /// The inode, or the directory.
    pub inode: InodeNo,
    /// The entry's cookie; 0 for a version.
    pub cookie: u64,
}

/// A row of the annals that was read, with the facts that it still has.
pub(crate) struct EndedRow {
    pub(super) shard: usize,
    pub(super) key: AnnalsKey,
    /// A state, and the inode that had it.
    pub version: Option<(InodeNo, Version)>,
    /// What a name meant.
    pub name: Option<PastEntry>,
}

/// A row of which something is given up.
pub(crate) struct LeavingRow {
    /// The row.
    pub row: EndedRow,
    /// Its version goes.
    pub version_goes: bool,
    /// Its name goes.
    pub name_goes: bool,
}
