//! What queries of history answer.

use crate::history::record::Event;
use crate::{FileKind, InodeNo};
use std::ops::ControlFlow;
use yore_format::{Incarnation, Inode, Timestamp};

/// What a file was at one time, as far as lists show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
        /// The content: of files told by where it lies, not by reading; of directories, that names came or
        /// went.
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

/// The kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Change {
    /// The name is there now, and what it means was nowhere below before, or has its other names still.
    Added = 1,
    /// The name is gone, and with it what it meant, but for its other names.
    Removed = 2,
    /// What the name means has changed.
    Modified = 3,
    /// It has this name instead of another one, and may have changed, too.
    Renamed = 4,
}

impl Change {
    /// The kind with this number.
    pub fn from_u8(number: u8) -> Option<Change> {
        use Change::*;
        [Added, Removed, Modified, Renamed].into_iter().find(|c| *c as u8 == number)
    }
}

/// A name below a directory that differs between two times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// How.
    pub change: Change,
    /// The type of file.
    pub kind: FileKind,
    /// The inode.
    pub inode: InodeNo,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The path from the directory, as of the second time; of what was removed as of the first. Empty: the
    /// directory itself.
    pub path: Vec<u8>,
    /// The path as of the first time of what was renamed.
    pub old_path: Option<Vec<u8>>,
    /// What of the inode has changed.
    pub what: What,
    /// What it was; `None` for what was added.
    pub before: Option<Facts>,
    /// What it is; `None` for what was removed.
    pub after: Option<Facts>,
}

/// A kept event that has seen something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenBy {
    /// The event.
    pub event: Event,
    /// When the next event was taken, of whatever directory, kept or forgotten since: a text that names this
    /// one must end before.
    pub next: Option<Timestamp>,
}

/// A state that a file was in, seen by kept events or in the present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// The first kept event that has seen it; `None`: only the present has.
    pub first: Option<SeenBy>,
    /// The last one.
    pub last: Option<SeenBy>,
    /// It is so still; for a log that begins in the past: it was so then.
    pub current: bool,
    /// The name that it had.
    pub name: Vec<u8>,
    /// The path of that name on the volume: as of the last event that has seen it, but of the directory that
    /// the event is of where it is now, so that it can be looked at there. `None` if that is gone.
    pub path: Option<Vec<u8>>,
    /// The type of file.
    pub kind: FileKind,
    /// The inode.
    pub inode: InodeNo,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// What it was.
    pub facts: Facts,
    /// In what it differs from the state before, the next one of the log.
    pub what: What,
    /// It has another name, or is in another directory, than in the state before.
    pub renamed: bool,
    /// It is another file than the one before, whose name it took.
    pub replaced: bool,
    /// There is no state before.
    pub oldest: bool,
    /// Of the first state of a log, if the name means nothing any more: what is known of that.
    pub gone: Option<Gone>,
}

/// A name that means nothing any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// The first kept event that has seen the directory without the name, or notes that the file was removed.
    /// `None`: only the present tells.
    pub by: Option<SeenBy>,
    /// The file had another name when this one went: it was renamed, whatever has become of it since.
    pub moved: bool,
    /// The path on the volume that it has now, if it was moved.
    pub path: Option<Vec<u8>>,
}

/// A name that kept events have seen in a directory, and that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// The path from the directory that was asked.
    pub path: Vec<u8>,
    /// The last kept event that has it.
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
