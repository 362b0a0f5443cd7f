//! What the model expects of an operation.

use super::{FileData, Ino};
use crate::op::Name;
use crate::outcome::Kinds;
use yore_fs::FileKind;

/// What the model expects of an operation.
#[derive(Clone, Debug)]
pub enum Expect {
    /// Not carried out: the effect is not specified, or a slot that it needs is empty.
    Skip,
    /// To fail in one of these ways, without effect.
    Fails(Kinds),
    /// To succeed; nothing comes back.
    Done,
    /// To give this inode, which is new.
    Created(Ino),
    /// To give this inode.
    Found(Ino),
    /// To give these bytes.
    Bytes(Vec<u8>),
    /// To give this offset or count.
    Number(u64),
    /// To give these names, in any order.
    Names(Vec<Name>),
    /// To list these entries, in any order, besides `.` and `..`.
    Entries(Vec<(Name, Ino, FileKind)>),
    /// To give a place at or after `offset`, before which there are only zeros. Holes may count as data.
    Data {
        /// Where the search began.
        offset: u64,
        /// What is searched.
        data: FileData,
    },
    /// To give a place at or after `offset` that reads as zero, or the end.
    Hole {
        /// Where the search began.
        offset: u64,
        /// What is searched.
        data: FileData,
    },
}
