//! What says that something ended.

use crate::InodeNo;
use yore_format::EventNo;

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
