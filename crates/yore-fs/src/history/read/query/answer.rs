//! What queries of history answer.

use crate::history::record::Event;
use crate::{FileKind, InodeNo};
use std::ops::ControlFlow;
use yore_format::{Incarnation, Inode, Timestamp};

/// The state of a file at one time, as far as lists show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Facts {
    /// Type and permissions as in `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names.
    pub links: u32,
    /// Bytes; of directories the number of entries.
    pub size: u64,
    /// Last change of content.
    pub mtime: Timestamp,
}

impl Facts {
    pub(super) fn of(inode: &Inode) -> Facts {
        let Inode { mode, uid, gid, links, size, mtime, .. } = *inode;
        Facts { mode, uid, gid, links, size, mtime }
    }
}

bitflags::bitflags! {
    /// In what two states of one inode differ.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct What: u32 {
        /// The content. For files it is compared by where it lies, without reading it; for directories it
        /// means that names came or went.
        const CONTENT = 1;
        /// Permissions, owner, group or device number.
        const METADATA = 2;
        /// Extended attributes.
        const XATTRS = 4;
        /// The time of the last change of content.
        const TIME = 8;
        /// The number of names.
        const LINKS = 16;
    }
}

impl serde::Serialize for What {
    fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        self.bits().serialize(to)
    }
}

/// Bits that mean nothing are refused.
impl<'de> serde::Deserialize<'de> for What {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> std::result::Result<What, D::Error> {
        let bits = u32::deserialize(from)?;
        What::from_bits(bits).ok_or_else(|| serde::de::Error::custom("a change of nothing that there is"))
    }
}

/// The kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Change {
    /// The name is there now. Its inode was nowhere below before, or still has its other names.
    Added,
    /// The name is gone, and its inode with it, unless that has other names.
    Removed,
    /// What the name means has changed.
    Modified,
    /// The inode has this name instead of another one. It may have changed as well.
    Renamed,
}

/// A name below a directory that differs between two times.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Difference {
    /// How it differs.
    pub change: Change,
    /// The type of file.
    pub kind: FileKind,
    /// The inode.
    pub inode: InodeNo,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The path from the directory as of the second time; for a removed name, as of the first. Empty: the
    /// directory itself.
    pub path: Vec<u8>,
    /// For a renamed name, the path as of the first time.
    pub old_path: Option<Vec<u8>>,
    /// What of the inode has changed.
    pub what: What,
    /// What it was; `None` for what was added.
    pub before: Option<Facts>,
    /// What it is; `None` for what was removed.
    pub after: Option<Facts>,
}

/// A kept event that has seen a state.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SeenBy {
    /// The event.
    pub event: Event,
    /// When the next event of any directory was taken, whether it is kept or has been forgotten. A text that
    /// names this event must end before that.
    pub next: Option<Timestamp>,
}

/// A state that a file was in, seen by kept events or in the present.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Logged {
    /// The first kept event that has seen it; `None`: only the present has.
    pub first: Option<SeenBy>,
    /// The last one.
    pub last: Option<SeenBy>,
    /// The file is still so. In a log that begins in the past: it was so at that time.
    pub current: bool,
    /// The name that it had.
    pub name: Vec<u8>,
    /// The path of that name on the volume, as of the last event that has seen it. The part above the event's
    /// root is as it is now, so that the path can be looked at there. `None` if the root is gone.
    pub path: Option<Vec<u8>>,
    /// The type of file.
    pub kind: FileKind,
    /// The inode.
    pub inode: InodeNo,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// What it was.
    pub facts: Facts,
    /// In what it differs from the older state, which is the next one of the log.
    pub what: What,
    /// It has another name, or is in another directory, than in the older state.
    pub renamed: bool,
    /// It is another file than the older one, whose name it took.
    pub replaced: bool,
    /// There is no older state.
    pub oldest: bool,
    /// For the first state of a log, if the name means nothing any more: what is known about how it went.
    pub gone: Option<Gone>,
    /// Whether its data is what was written, if somebody has verified that ([`crate::View::verify_states`]).
    pub data: Option<DataState>,
}

/// Whether the data of a file in one state is what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum DataState {
    /// All of it was read and verified.
    Whole,
    /// Some of it is damaged; this is the first damaged block that was met.
    Damaged {
        /// Where in the file it begins, in bytes.
        offset: u64,
        /// The block on the device.
        block: u64,
    },
    /// Nothing is damaged as far as there are checksums.
    Unknown {
        /// So many blocks have none.
        blocks: u64,
    },
}

/// A name that means nothing any more.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Gone {
    /// The first kept event that has seen the directory without the name, or that is a tombstone of the file.
    /// `None`: only the present shows it.
    pub by: Option<SeenBy>,
    /// The file had another name when this one went: it was renamed, whatever happened to it later.
    pub moved: bool,
    /// The present path of the file on the volume, if it was moved.
    pub path: Option<Vec<u8>>,
}

/// A name in a directory that kept events have seen, and that is gone.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Deleted {
    /// The path from the directory of the query.
    pub path: Vec<u8>,
    /// The last kept event that has the name.
    pub last: SeenBy,
    /// The type of file.
    pub kind: FileKind,
    /// The inode.
    pub inode: InodeNo,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// What it was.
    pub facts: Facts,
}

/// Called with one result after another until it breaks.
pub(crate) type Each<'e, T> = &'e mut dyn FnMut(T) -> ControlFlow<()>;
