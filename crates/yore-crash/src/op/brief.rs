//! Operations written briefly: by paths such as `/d/a`, as the superuser.

use super::{EntryPath, Name, Op, Target};
use std::sync::Arc;
use yore_fs::{Caller, FileKind};

fn names(text: &str) -> Vec<Name> {
    text.split('/').filter(|name| !name.is_empty()).map(|name| Arc::from(name.as_bytes())).collect()
}

/// What a path leads to.
pub fn path(text: &str) -> Target {
    Target::Path(names(text))
}

/// The name that a path ends with, in its directory.
pub fn entry_path(text: &str) -> EntryPath {
    let mut names = names(text);
    let name = names.pop().unwrap_or_else(|| Arc::from(&b""[..]));
    EntryPath { directory: Target::Path(names), name }
}

/// Makes a regular file.
pub fn create(at: &str) -> Op {
    let caller = Caller::superuser();
    Op::Create { at: entry_path(at), kind: FileKind::Regular, permissions: 0o644, rdev: 0, caller }
}

/// Makes a directory.
pub fn mkdir(at: &str) -> Op {
    Op::Mkdir { at: entry_path(at), permissions: 0o755, caller: Caller::superuser() }
}

/// Writes `len` bytes that `tag` distinguishes from others.
pub fn write(target: &str, offset: u64, len: usize, tag: u64) -> Op {
    Op::Write { target: path(target), offset, len, tag, append: false, kill_set_id: false }
}
