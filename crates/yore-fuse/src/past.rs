//! Nodes of the past: what the kernel knows files as of some cut by.
//!
//! The kernel has one dentry for a directory node, so two names of one directory must be two nodes. A node of the past is
//! therefore what a name with a time meant: (parent node, the name as it was spelled, cut); and below it (parent node,
//! inode). Its number is a hash of that with the first bit set, which no inode's number has: the same in every mount by this
//! program, unless two hashes are equal, and shown as `st_ino`.
//!
//! Nodes are remembered as long as the kernel holds them. What they show needs no such thing: it is as of its cut, and does
//! not change.

use parking_lot::RwLock;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use yore_fs::{InodeNo, Number};

/// Set in the numbers of all nodes of the past.
const PAST: u64 = 1 << 63;

/// What makes a node another than all others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A name with a time, in a node.
    Named {
        /// The node.
        parent: u64,
        /// As it was spelled.
        name: Vec<u8>,
        /// The cut that it meant.
        cut: Number,
    },
    /// An inode found in a node of the past.
    Below {
        /// The node.
        parent: u64,
        /// The inode.
        inode: InodeNo,
    },
}

impl Key {
    /// The number that the node has unless another one has it.
    pub(crate) fn number(&self) -> u64 {
        // Not keyed: the same in every mount.
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish() | PAST
    }
}

struct Known {
    key: Key,
    cut: Number,
    inode: InodeNo,
    lookups: u64,
}

/// The nodes of the past that the kernel holds.
#[derive(Default)]
pub(crate) struct PastNodes(RwLock<HashMap<u64, Known>>);

impl PastNodes {
    /// Whether this is the number of a node of the past.
    pub(crate) fn is_past(node: u64) -> bool {
        node & PAST != 0
    }

    /// The cut and the inode of a node.
    pub(crate) fn get(&self, node: u64) -> Option<(Number, InodeNo)> {
        self.0.read().get(&node).map(|known| (known.cut, known.inode))
    }

    /// The number of a node, which the kernel is told once more.
    pub(crate) fn hold(&self, key: Key, cut: Number, inode: InodeNo) -> u64 {
        let mut nodes = self.0.write();
        let mut number = key.number();
        loop {
            match nodes.get_mut(&number) {
                Some(known) if known.key == key => {
                    known.lookups += 1;
                    return number;
                }
                Some(_) => number = number.wrapping_add(1) | PAST,
                None => {
                    nodes.insert(number, Known { key, cut, inode, lookups: 1 });
                    return number;
                }
            }
        }
    }

    /// The kernel forgets so many of its lookups.
    pub(crate) fn release(&self, node: u64, count: u64) {
        let mut nodes = self.0.write();
        if let Some(known) = nodes.get_mut(&node) {
            known.lookups = known.lookups.saturating_sub(count);
            if known.lookups == 0 {
                nodes.remove(&node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_known_as_long_as_it_is_held() {
        let nodes = PastNodes::default();
        let key = |name: &str| Key::Named { parent: 1, name: name.into(), cut: Number(3) };
        let first = nodes.hold(key("a@1"), Number(3), InodeNo(40));
        assert_eq!(nodes.hold(key("a@1"), Number(3), InodeNo(40)), first);
        let other = nodes.hold(key("a@2"), Number(3), InodeNo(40));
        assert!(other != first && PastNodes::is_past(first) && PastNodes::is_past(other));
        assert_eq!(nodes.get(first), Some((Number(3), InodeNo(40))));
        nodes.release(first, 1);
        assert!(nodes.get(first).is_some());
        nodes.release(first, 1);
        assert!(nodes.get(first).is_none());
        assert!(nodes.get(other).is_some());
    }

    /// Two nodes whose hashes are equal have two numbers.
    #[test]
    fn numbers_are_unique() {
        let nodes = PastNodes::default();
        let key = Key::Below { parent: 1, inode: InodeNo(16) };
        let taken = key.number();
        let squatter = Key::Below { parent: 9, inode: InodeNo(9) };
        nodes.0.write().insert(taken, Known { key: squatter, cut: Number(1), inode: InodeNo(9), lookups: 1 });
        assert_eq!(nodes.hold(key.clone(), Number(1), InodeNo(16)), taken.wrapping_add(1) | PAST);
        assert_eq!(nodes.hold(key, Number(1), InodeNo(16)), taken.wrapping_add(1) | PAST);
    }
}
