//! What is about to end: an inode as it is, and a name.

use super::past::Past;
use crate::InodeNo;
use yore_core::inode::InodeCell;
use yore_format::{DirEntry, EventNo, Inode, Version};

/// The value of a version of the first edition. Of directories it stores no entries: these say themselves
/// when they existed.
fn encode(inode: &Inode, end: EventNo) -> Vec<u8> {
    let mut inode = inode.clone();
    if inode.is_directory() {
        inode.set_inline(&[]);
    }
    Version { end, inode }.encode()
}

/// A version of an inode as it is before it changes.
pub(crate) struct OldVersion {
    pub(super) no: InodeNo,
    pub(super) born: EventNo,
    pub(super) was: Was,
}

/// What the inode is.
pub(super) enum Was {
    /// As the value of a cell of the first edition.
    Encoded(Vec<u8>),
    /// For a row of the annals.
    Inode(Box<Inode>),
}

impl Was {
    /// The value of a cell of the first edition, of what ends at `number`.
    pub(super) fn into_value(self, number: EventNo) -> Vec<u8> {
        match self {
            Was::Encoded(value) => value,
            Was::Inode(inode) => encode(&inode, number),
        }
    }
}

impl Past {
    /// The version that ends at `number`.
    pub(crate) fn old_version(&self, no: InodeNo, inode: &Inode, number: EventNo) -> OldVersion {
        let was = match self.annals().is_some() {
            true => Was::Inode(Box::new(inode.clone())),
            false => Was::Encoded(encode(inode, number)),
        };
        OldVersion { no, born: inode.born, was }
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
