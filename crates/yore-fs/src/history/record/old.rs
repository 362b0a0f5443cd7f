//! What is about to end: an inode as it is, and a name.

use crate::InodeNo;
use yore_core::inode::InodeCell;
use yore_format::{DirEntry, EventNo, Inode};

/// A version of an inode as it is before it changes.
#[derive(Clone, Copy)]
pub(crate) struct OldVersion<'a> {
    pub(crate) no: InodeNo,
    pub(crate) inode: &'a Inode,
}

/// A name that a directory is about to lose.
pub(crate) struct OldName<'a> {
    /// The directory.
    pub directory: &'a InodeCell,
    /// Its inode.
    pub inode: &'a Inode,
    /// The entry's cookie.
    pub cookie: u64,
    /// The entry.
    pub entry: DirEntry<'a>,
    /// What covers the inode that it means ([`Past::hold_cover`]).
    pub cover: EventNo,
    /// Policies exclude the inode.
    pub excluded: bool,
}
