//! The part of a volume that one of several threads changes: its operations there, and what is seen of it.

use crate::op::{EntryPath, Name, Op, Target};
use crate::tree::{Inside, Tree};
use std::collections::HashMap;
use std::sync::Arc;
use yore_fs::{FileKind, Timestamp};

/// All times of directories that several threads change, in models and in projected trees.
pub(super) const NO_TIME: Timestamp = Timestamp { seconds: 0, nanos: 0 };

/// Projects a tree onto the part of one thread.
#[derive(Clone, Debug)]
pub struct Lens {
    pub(super) own: Name,
    pub(super) shared: Name,
    pub(super) prefix: Vec<u8>,
    pub(super) shared_number: u64,
}

impl Lens {
    pub(super) fn new(thread: usize, shared_number: u64) -> Lens {
        Lens {
            own: Arc::from(format!("t{thread}").into_bytes()),
            shared: Arc::from(&b"s"[..]),
            prefix: format!("{thread}-").into_bytes(),
            shared_number,
        }
    }

    /// The part, in which the root and the shared directory look as if nobody else had names there.
    pub fn project(&self, tree: &Tree) -> Tree {
        let mut part =
            Tree { root: tree.root, nodes: HashMap::new(), contradictions: tree.contradictions.clone() };
        let mut waiting = vec![tree.root];
        while let Some(number) = waiting.pop() {
            let Some(node) = tree.nodes.get(&number) else { continue };
            if part.nodes.contains_key(&number) {
                continue;
            }
            let mut node = node.clone();
            let is_common = number == tree.root || number == self.shared_number;
            if let Inside::Directory { entries, .. } = &mut node.inside {
                if number == tree.root {
                    entries.retain(|name, _| *name == self.own || *name == self.shared);
                } else if number == self.shared_number {
                    entries.retain(|name, _| name.starts_with(&self.prefix));
                }
                if is_common {
                    let below = entries.values().filter(|(_, kind)| *kind == FileKind::Directory).count();
                    node.facts.links = 2 + below as u32;
                    let facts = &mut node.facts;
                    (facts.atime, facts.mtime, facts.ctime, facts.btime) =
                        (NO_TIME, NO_TIME, NO_TIME, NO_TIME);
                }
                waiting.extend(entries.values().map(|(child, _)| *child));
            }
            part.nodes.insert(number, node);
        }
        part
    }

    fn path(&self, names: &[Name]) -> Vec<Name> {
        let mut mapped = match names.first() {
            Some(first) if is_shared(first) => vec![self.shared.clone(), self.name(first)],
            Some(first) => vec![self.own.clone(), first.clone()],
            None => vec![self.own.clone()],
        };
        mapped.extend(names.iter().skip(1).cloned());
        mapped
    }

    fn name(&self, name: &[u8]) -> Name {
        Arc::from([&self.prefix[..], name].concat())
    }

    fn target(&self, target: Target) -> Target {
        match target {
            Target::Path(names) => Target::Path(self.path(&names)),
            slot => slot,
        }
    }

    fn entry_path(&self, entry_path: EntryPath) -> EntryPath {
        match &entry_path.directory {
            Target::Path(names) if names.is_empty() && is_shared(&entry_path.name) => EntryPath {
                directory: Target::Path(vec![self.shared.clone()]),
                name: self.name(&entry_path.name),
            },
            _ => EntryPath { directory: self.target(entry_path.directory), name: entry_path.name },
        }
    }

    /// An operation of a sequence for a whole volume, on this part.
    pub(super) fn map(&self, op: Op) -> Op {
        match op {
            Op::Create { at, kind, permissions, rdev, caller } => {
                Op::Create { at: self.entry_path(at), kind, permissions, rdev, caller }
            }
            Op::Mkdir { at, permissions, caller } => {
                Op::Mkdir { at: self.entry_path(at), permissions, caller }
            }
            Op::Symlink { at, to, caller } => Op::Symlink { at: self.entry_path(at), to, caller },
            Op::Link { target, at } => Op::Link { target: self.target(target), at: self.entry_path(at) },
            Op::Unlink { at } => Op::Unlink { at: self.entry_path(at) },
            Op::Rmdir { at } => Op::Rmdir { at: self.entry_path(at) },
            Op::Rename { from, to, mode } => {
                Op::Rename { from: self.entry_path(from), to: self.entry_path(to), mode }
            }
            Op::Lookup { at } => Op::Lookup { at: self.entry_path(at) },
            Op::Readlink { target } => Op::Readlink { target: self.target(target) },
            Op::Readdir { target, batch } => Op::Readdir { target: self.target(target), batch },
            Op::Read { target, offset, len } => Op::Read { target: self.target(target), offset, len },
            Op::Write { target, offset, len, tag, append, kill_set_id } => {
                Op::Write { target: self.target(target), offset, len, tag, append, kill_set_id }
            }
            Op::Fallocate { target, offset, len, mode } => {
                Op::Fallocate { target: self.target(target), offset, len, mode }
            }
            Op::Seek { target, offset, to } => Op::Seek { target: self.target(target), offset, to },
            Op::Copy { from, from_offset, to, to_offset, len } => {
                let (from, to) = (self.target(from), self.target(to));
                Op::Copy { from, from_offset, to, to_offset, len }
            }
            Op::SetAttr { target, set, caller } => Op::SetAttr { target: self.target(target), set, caller },
            Op::GetXattr { target, name } => Op::GetXattr { target: self.target(target), name },
            Op::SetXattr { target, name, len, tag, mode } => {
                Op::SetXattr { target: self.target(target), name, len, tag, mode }
            }
            Op::ListXattr { target } => Op::ListXattr { target: self.target(target) },
            Op::RemoveXattr { target, name } => Op::RemoveXattr { target: self.target(target), name },
            Op::Fsync { target, data_only } => Op::Fsync { target: self.target(target), data_only },
            Op::Defragment { target } => Op::Defragment { target: self.target(target) },
            Op::Hold { target, slot } => Op::Hold { target: self.target(target), slot },
            Op::Sync
            | Op::Snapshot { .. }
            | Op::Index { .. }
            | Op::Forget { .. }
            | Op::Expunge { .. }
            | Op::Drop { .. } => op,
        }
    }
}

/// Whether a name at the top is one of those that are kept in the shared directory.
fn is_shared(name: &[u8]) -> bool {
    matches!(name, b"a" | b"b" | b"c" | b"d")
}
