//! Operations as values: what a sequence consists of, how it is printed, and what data it writes.
//!
//! Operations name files by path or by *slot* (a held inode), never by inode number. So a sequence means
//! something on any volume, and still does when some of its operations are left out: whatever is missing then
//! fails alike in the model and in the file system. The data of a write is a function of its tag, so that a
//! block on the medium tells which write it came from.

pub mod brief;

use std::fmt;
use std::sync::Arc;
use yore_fs::{Caller, FallocateMode, FileKind, RenameMode, SeekTo, SetAttr, SetXattrMode};

/// A name in a directory, or of an extended attribute.
pub type Name = Arc<[u8]>;

/// How many inodes a sequence can hold at a time.
pub const SLOTS: usize = 4;

/// Which inode an operation is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The one with this path from the root; symbolic links are not followed.
    Path(Vec<Name>),
    /// The one held in this slot, with or without a name.
    Slot(usize),
}

/// A name in a directory, there or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryPath {
    /// The directory.
    pub directory: Target,
    /// The name.
    pub name: Name,
}

/// One operation of a sequence; each is one call of `View`, after the lookups that its targets need.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are the arguments of the calls, under their names.
pub enum Op {
    /// `View::create`.
    Create { at: EntryPath, kind: FileKind, permissions: u32, rdev: u32, caller: Caller },
    /// `View::mkdir`.
    Mkdir { at: EntryPath, permissions: u32, caller: Caller },
    /// `View::symlink`.
    Symlink { at: EntryPath, to: Name, caller: Caller },
    /// `View::link`.
    Link { target: Target, at: EntryPath },
    /// `View::unlink`.
    Unlink { at: EntryPath },
    /// `View::rmdir`.
    Rmdir { at: EntryPath },
    /// `View::rename`.
    Rename { from: EntryPath, to: EntryPath, mode: RenameMode },
    /// `View::lookup`.
    Lookup { at: EntryPath },
    /// `View::readlink`.
    Readlink { target: Target },
    /// `View::readdir`, `batch` entries at a time.
    Readdir { target: Target, batch: usize },
    /// `View::read`.
    Read { target: Target, offset: u64, len: usize },
    /// `View::write` of [`payload`]`(tag, len)`.
    Write { target: Target, offset: u64, len: usize, tag: u64, append: bool, kill_set_id: bool },
    /// `View::fallocate`.
    Fallocate { target: Target, offset: u64, len: u64, mode: FallocateMode },
    /// `View::seek`.
    Seek { target: Target, offset: u64, to: SeekTo },
    /// `View::copy_file_range`.
    Copy { from: Target, from_offset: u64, to: Target, to_offset: u64, len: u64 },
    /// `View::setattr`.
    SetAttr { target: Target, set: SetAttr, caller: Caller },
    /// `View::getxattr`.
    GetXattr { target: Target, name: Name },
    /// `View::setxattr` of [`payload`]`(tag, len)`.
    SetXattr { target: Target, name: Name, len: usize, tag: u64, mode: SetXattrMode },
    /// `View::listxattr`.
    ListXattr { target: Target },
    /// `View::removexattr`.
    RemoveXattr { target: Target, name: Name },
    /// `View::fsync`.
    Fsync { target: Target, data_only: bool },
    /// `View::sync`.
    Sync,
    /// `View::take_snapshot` of the root directory, under this name unless it is empty.
    Snapshot { name: Name, wait: bool },
    /// `View::forget` of one of the snapshots that this sequence has taken and not forgotten: the first is 0,
    /// and so on in a circle. Then `View::finish_forgetting`, unless that is to be `left`. Does nothing if
    /// there is no such snapshot.
    Forget { which: usize, left: bool },
    /// `View::index_history`: at most so many rows of history get their keys, if there are any without.
    Index { rows: u64 },
    /// `View::defragment`: whatever lies in two pieces or more is laid together.
    Defragment { target: Target },
    /// `View::expunge` of the file or directory to which a path from the root leads now, or as of the
    /// snapshot that `which` selects as in a `Forget`, with everything that was ever named below it. Then
    /// `View::finish_forgetting`, unless that is to be `left`. Does nothing if there is nothing, and nothing
    /// for the root directory.
    Expunge { path: Vec<Name>, which: Option<usize>, left: bool },
    /// Keeps the inode in a slot, and drops the one that was there.
    Hold { target: Target, slot: usize },
    /// Empties a slot.
    Drop { slot: usize },
}

impl Op {
    /// Whether it changes names or attributes in the call itself: under `durability=sync` and `group` they
    /// are durable when it has returned. What writes change is entered later.
    pub fn settles(&self) -> bool {
        matches!(
            self,
            Op::Create { .. }
                | Op::Mkdir { .. }
                | Op::Symlink { .. }
                | Op::Link { .. }
                | Op::Unlink { .. }
                | Op::Rmdir { .. }
                | Op::Rename { .. }
                | Op::SetAttr { .. }
                | Op::SetXattr { .. }
                | Op::RemoveXattr { .. }
        )
    }
}

/// The bytes that a write with this tag writes: no zeros among them, and no two tags or places alike.
pub fn payload(tag: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    let mut word = tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while bytes.len() < len {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        bytes.extend_from_slice(&(word | 0x0101_0101_0101_0101).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A name for people: escaped, and long ones by their length.
pub fn show_name(name: &[u8]) -> String {
    match name.len() {
        0..=24 => name.escape_ascii().to_string(),
        len => format!("{}..{len}", name[..8].escape_ascii()),
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Path(names) if names.is_empty() => write!(f, "/"),
            Target::Path(names) => names.iter().try_for_each(|name| write!(f, "/{}", show_name(name))),
            Target::Slot(slot) => write!(f, "slot{slot}"),
        }
    }
}

impl fmt::Display for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.directory {
            Target::Path(names) if names.is_empty() => write!(f, "/{}", show_name(&self.name)),
            directory => write!(f, "{directory}/{}", show_name(&self.name)),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = |caller: &Caller| {
            let keeps = if caller.keeps_set_id { "" } else { " ordinary" };
            format!("by {}:{} umask {:o}{keeps}", caller.uid, caller.gid, caller.umask)
        };
        match self {
            Op::Create { at, kind, permissions, rdev, caller } => {
                write!(f, "create {at} {kind:?} {permissions:o} rdev={rdev} {}", by(caller))
            }
            Op::Mkdir { at, permissions, caller } => write!(f, "mkdir {at} {permissions:o} {}", by(caller)),
            Op::Symlink { at, to, caller } => write!(f, "symlink {at} -> {} {}", show_name(to), by(caller)),
            Op::Link { target, at } => write!(f, "link {target} as {at}"),
            Op::Unlink { at } => write!(f, "unlink {at}"),
            Op::Rmdir { at } => write!(f, "rmdir {at}"),
            Op::Rename { from, to, mode } => write!(f, "rename {from} to {to} {mode:?}"),
            Op::Lookup { at } => write!(f, "lookup {at}"),
            Op::Readlink { target } => write!(f, "readlink {target}"),
            Op::Readdir { target, batch } => write!(f, "readdir {target} by {batch}"),
            Op::Read { target, offset, len } => write!(f, "read {target} {offset}+{len}"),
            Op::Write { target, offset, len, append, kill_set_id, .. } => {
                let append = if *append { " append" } else { "" };
                let kill = if *kill_set_id { " kill-set-id" } else { "" };
                write!(f, "write {target} {offset}+{len}{append}{kill}")
            }
            Op::Fallocate { target, offset, len, mode } => {
                write!(f, "fallocate {target} {offset}+{len} {mode:?}")
            }
            Op::Seek { target, offset, to } => write!(f, "seek {target} {offset} {to:?}"),
            Op::Copy { from, from_offset, to, to_offset, len } => {
                write!(f, "copy {from} {from_offset}+{len} to {to} {to_offset}")
            }
            Op::SetAttr { target, set, caller } => {
                write!(f, "setattr {target}{} {}", show_set(set), by(caller))
            }
            Op::GetXattr { target, name } => write!(f, "getxattr {target} {}", show_name(name)),
            Op::SetXattr { target, name, len, mode, .. } => {
                write!(f, "setxattr {target} {} of {len} {mode:?}", show_name(name))
            }
            Op::ListXattr { target } => write!(f, "listxattr {target}"),
            Op::RemoveXattr { target, name } => write!(f, "removexattr {target} {}", show_name(name)),
            Op::Fsync { target, data_only: false } => write!(f, "fsync {target}"),
            Op::Fsync { target, data_only: true } => write!(f, "fdatasync {target}"),
            Op::Sync => write!(f, "sync"),
            Op::Snapshot { name, wait } => {
                let wait = if *wait { "" } else { " without waiting" };
                let name = if name.is_empty() { String::new() } else { format!(" {}", show_name(name)) };
                write!(f, "snapshot{name}{wait}")
            }
            Op::Forget { which, left } => {
                write!(f, "forget snapshot {which}{}", if *left { " and give nothing up" } else { "" })
            }
            Op::Defragment { target } => write!(f, "defragment {target}"),
            Op::Index { rows } => write!(f, "index {rows} rows"),
            Op::Expunge { path, which, left } => {
                write!(f, "expunge {}", Target::Path(path.clone()))?;
                if let Some(which) = which {
                    write!(f, " as of snapshot {which}")?;
                }
                write!(f, "{}", if *left { " and give nothing up" } else { "" })
            }
            Op::Hold { target, slot } => write!(f, "hold {target} in slot{slot}"),
            Op::Drop { slot } => write!(f, "drop slot{slot}"),
        }
    }
}

fn show_set(set: &SetAttr) -> String {
    let mut text = String::new();
    let mut add = |part: String| {
        text.push(' ');
        text.push_str(&part);
    };
    if let Some(permissions) = set.permissions {
        add(format!("permissions={permissions:o}"));
    }
    if let Some(uid) = set.uid {
        add(format!("uid={uid}"));
    }
    if let Some(gid) = set.gid {
        add(format!("gid={gid}"));
    }
    if let Some(size) = set.size {
        add(format!("size={size}"));
    }
    for (name, time) in [("atime", set.atime), ("mtime", set.mtime), ("ctime", set.ctime)] {
        if let Some(time) = time {
            add(format!("{name}={time:?}"));
        }
    }
    if set.kill_set_id {
        add("kill-set-id".into());
    }
    text
}

/// Selects one of the kept snapshots, and removes it from them. The file system and the model of its past
/// follow the same rule.
pub(crate) fn forgotten(kept: &mut Vec<usize>, which: usize) -> Option<usize> {
    (!kept.is_empty()).then(|| kept.remove(which % kept.len()))
}
