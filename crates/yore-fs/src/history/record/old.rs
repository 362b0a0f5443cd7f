//! What is about to end: an inode as it is, and a name.

use crate::InodeNo;
use yore_core::inode::InodeCell;
use yore_format::{DirEntry, EventNo, Inode, Version};

/// What a version stores of an inode. Of directories it stores no entries: these say themselves when they
/// existed.
fn as_version(inode: &Inode) -> Inode {
    let mut recorded = inode.clone();
    if inode.is_directory() {
        recorded.set_inline(&[]);
    }
    recorded
}

/// A version of an inode as it is before it changes.
pub(crate) struct OldVersion {
    pub(super) no: InodeNo,
    pub(super) born: EventNo,
    pub(super) value: Vec<u8>,
}

impl OldVersion {
    /// The version that ends at `number`.
    pub(crate) fn new(no: InodeNo, inode: &Inode, number: EventNo) -> OldVersion {
        let value = Version { end: number, inode: as_version(inode) }.encode();
        OldVersion { no, born: inode.born, value }
    }
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
