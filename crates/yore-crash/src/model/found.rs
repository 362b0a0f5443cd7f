//! The state of a volume that was found: a model that goes on with what a walk has seen.

use super::{Body, FileData, Ino, Inode, State, Time, ROOT};
use crate::op::SLOTS;
use crate::tree::{Inside, Node, Tree};
use std::collections::BTreeMap;
use std::sync::Arc;

impl State {
    /// The state that a tree shows; its root is taken to be the root of the file system.
    pub fn of(tree: &Tree) -> State {
        let mut order: Vec<u64> = tree.nodes.keys().copied().filter(|number| *number != tree.root).collect();
        order.sort_unstable();
        order.insert(ROOT, tree.root);
        let numbers: BTreeMap<u64, Ino> =
            order.iter().enumerate().map(|(ino, number)| (*number, ino)).collect();
        let inode = |number: &u64| {
            let node = tree.nodes.get(number)?;
            Some(Arc::new(inode_of(*number, node, &numbers)))
        };
        State { inodes: order.iter().map(inode).collect(), slots: [None; SLOTS] }
    }
}

/// The inode of a node of a tree, whose children are known by number.
fn inode_of(number: u64, node: &Node, numbers: &BTreeMap<u64, Ino>) -> Inode {
    let ino = |number: &u64| numbers.get(number).copied().unwrap_or(ROOT);
    let (facts, known) = (&node.facts, Time::Known);
    let body = match &node.inside {
        Inside::Directory { entries, parent } => {
            let entries = entries.iter().map(|(name, (child, _))| (name.clone(), ino(child))).collect();
            Body::Directory { entries: Arc::new(entries), parent: ino(parent) }
        }
        Inside::File { size, blocks } => Body::File(FileData::new(*size, blocks.clone())),
        Inside::Symlink(target) => Body::Symlink(target.clone()),
        Inside::Special => Body::Special,
    };
    Inode {
        identity: Some((number, facts.incarnation)),
        kind: facts.kind,
        permissions: facts.permissions,
        uid: facts.uid,
        gid: facts.gid,
        links: facts.links,
        rdev: facts.rdev,
        atime: known(facts.atime),
        mtime: known(facts.mtime),
        ctime: known(facts.ctime),
        btime: known(facts.btime),
        xattrs: node.xattrs.clone(),
        body,
    }
}
