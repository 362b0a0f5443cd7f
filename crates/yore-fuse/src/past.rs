//! Nodes of the past on a mount of the present: the numbers under which the kernel knows files as of some
//! event.
//!
//! The kernel has one dentry for a directory node, so two names of one directory must be two nodes. A
//! directory of the past is therefore identified by the name with a time that led to it: (parent node, the
//! name as it was spelled, event). A directory below it is (parent node, inode). Its number is a hash of that
//! with the first bit set, which no inode's number has, and with the third one set exactly if a name with a
//! time led to it. The number is the same in every mount by this program, unless two hashes are equal, and
//! `st_ino` shows it. Such nodes are remembered until the kernel forgets them.
//!
//! Anything but a directory may have many names, so its node is (event, inode), and its number encodes both.
//! Nothing has to be remembered, all hard links of that time share one number, and a handle
//! (open_by_handle_at(2), NFS) is good as long as the event is kept. If inode and event have more bits than
//! there is room for, the node is treated like a directory. Handles of directories of the past are good only
//! as long as the kernel remembers the nodes: 64 bits cannot tell what led there, and the kernel wants to be
//! led upwards to a name that is listed.
//!
//! A mount of one snapshot needs none of this: there a node is its inode's number.

use parking_lot::RwLock;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use yore_fs::{EventNo, FileKind, InodeNo};

/// Set in the numbers of all nodes of the past.
const PAST: u64 = 1 << 63;
/// Set in the numbers that encode event and inode.
const PLAIN: u64 = 1 << 62;
/// Bits of the inode's number in those; the remaining bits are the event's.
const INODE_BITS: u32 = 35;
const EVENT_BITS: u32 = 62 - INODE_BITS;
/// Set in the number of a node to which a name with a time led, unless the number encodes event and inode.
/// Commands read it, and call it by the same name (`yore-cli/src/timed_path.rs`).
const NAMED: u64 = 1 << 61;
/// The bits of a number that are not the hash's.
const FLAGS: u64 = PAST | PLAIN | NAMED;

/// What distinguishes a node from all others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A name with a time, in a node.
    Named {
        /// The node.
        parent: u64,
        /// The name as it was spelled.
        name: Vec<u8>,
        /// The event that it meant.
        event: EventNo,
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
    /// The number of the node, unless another node already has it.
    fn hashed(&self) -> u64 {
        // The hasher has no key, so that numbers are the same in every mount.
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        let named = match self {
            Key::Named { .. } => NAMED,
            Key::Below { .. } => 0,
        };
        hasher.finish() & !FLAGS | PAST | named
    }

    /// The number of the node with this key that is this inode as of this event, unless another node already
    /// has it.
    pub(crate) fn number(&self, kind: FileKind, event: EventNo, inode: InodeNo) -> u64 {
        match kind {
            FileKind::Directory => self.hashed(),
            _ => plain(event, inode).unwrap_or_else(|| self.hashed()),
        }
    }
}

/// The hashed number to try where another node has this one.
fn number_after(number: u64) -> u64 {
    number & FLAGS | number.wrapping_add(1) & !FLAGS
}

/// The number that encodes event and inode, if there is room for that.
fn plain(event: EventNo, inode: InodeNo) -> Option<u64> {
    let fits = event.0 >> EVENT_BITS == 0 && inode.0 >> INODE_BITS == 0;
    fits.then_some(PAST | PLAIN | event.0 << INODE_BITS | inode.0)
}

/// The event and inode that a number encodes, if it does.
fn of_plain(node: u64) -> Option<(EventNo, InodeNo)> {
    let (event, inode) = (node & !(PAST | PLAIN), InodeNo(node & ((1 << INODE_BITS) - 1)));
    (node & (PAST | PLAIN) == PAST | PLAIN).then_some((EventNo(event >> INODE_BITS), inode))
}

struct Known {
    key: Key,
    event: EventNo,
    inode: InodeNo,
    lookups: u64,
}

/// The nodes of the past that the kernel knows and whose numbers do not encode event and inode.
#[derive(Default)]
pub(crate) struct PastNodes(RwLock<HashMap<u64, Known>>);

impl PastNodes {
    /// Whether this is the number of a node of the past.
    pub(crate) fn is_past(node: u64) -> bool {
        node & PAST != 0
    }

    /// Whether this number is one that no directory has.
    pub(crate) fn is_plain(node: u64) -> bool {
        of_plain(node).is_some()
    }

    /// The event and the inode of a node.
    pub(crate) fn get(&self, node: u64) -> Option<(EventNo, InodeNo)> {
        of_plain(node).or_else(|| self.0.read().get(&node).map(|known| (known.event, known.inode)))
    }

    /// The nodes that may show something of these files as of one of these events: the files' own nodes, and
    /// all remembered directories, whose listings may be cached.
    pub(crate) fn showing(&self, files: &HashSet<InodeNo>, events: &[EventNo]) -> Vec<u64> {
        let known = self.0.read();
        let remembered = known.iter().filter(|(_, known)| events.binary_search(&known.event).is_ok());
        let mut nodes: Vec<u64> = remembered.map(|(node, _)| *node).collect();
        for file in files {
            nodes.extend(events.iter().filter_map(|event| plain(*event, *file)));
        }
        nodes
    }

    /// The number of a node; adds one lookup, because the kernel gets the node once more.
    pub(crate) fn count_lookup(&self, key: Key, kind: FileKind, event: EventNo, inode: InodeNo) -> u64 {
        let mut number = key.number(kind, event, inode);
        if PastNodes::is_plain(number) {
            return number;
        }
        let mut nodes = self.0.write();
        loop {
            match nodes.get_mut(&number) {
                Some(known) if known.key == key => {
                    known.lookups += 1;
                    return number;
                }
                Some(_) => number = number_after(number),
                None => {
                    nodes.insert(number, Known { key, event, inode, lookups: 1 });
                    return number;
                }
            }
        }
    }

    /// Adds one lookup for a number that the kernel has; false if no known node has that number.
    pub(crate) fn count_lookup_again(&self, node: u64) -> bool {
        let count = |known: &mut Known| known.lookups += 1;
        PastNodes::is_plain(node) || self.0.write().get_mut(&node).map(count).is_some()
    }

    /// The kernel gives back this many of its lookups.
    pub(crate) fn forget_lookups(&self, node: u64, count: u64) {
        if PastNodes::is_plain(node) {
            return;
        }
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

    const DIR: FileKind = FileKind::Directory;

    #[test]
    fn a_directory_is_known_as_long_as_it_is_held() {
        let nodes = PastNodes::default();
        let key = |name: &str| Key::Named { parent: 1, name: name.into(), event: EventNo(3) };
        let first = nodes.count_lookup(key("a@1"), DIR, EventNo(3), InodeNo(40));
        assert_eq!(nodes.count_lookup(key("a@1"), DIR, EventNo(3), InodeNo(40)), first);
        let other = nodes.count_lookup(key("a@2"), DIR, EventNo(3), InodeNo(40));
        assert!(other != first && PastNodes::is_past(first) && PastNodes::is_past(other));
        assert!(!PastNodes::is_plain(first));
        assert_eq!(nodes.get(first), Some((EventNo(3), InodeNo(40))));
        nodes.forget_lookups(first, 1);
        assert!(nodes.get(first).is_some());
        nodes.forget_lookups(first, 1);
        assert!(nodes.get(first).is_none());
        assert!(nodes.get(other).is_some());
    }

    /// Numbers of files encode event and inode, whatever name led there, up to the greatest for which there
    /// is room.
    #[test]
    fn files_need_not_be_remembered() {
        let nodes = PastNodes::default();
        let key = |parent, inode| Key::Below { parent, inode };
        let (most_event, most_inode) = (EventNo((1 << EVENT_BITS) - 1), InodeNo((1 << INODE_BITS) - 1));
        for (event, inode) in [(EventNo(1), InodeNo(16)), (most_event, most_inode)] {
            let first = nodes.count_lookup(key(7, inode), FileKind::Regular, event, inode);
            assert_eq!(nodes.count_lookup(key(8, inode), FileKind::Regular, event, inode), first);
            assert!(PastNodes::is_past(first) && PastNodes::is_plain(first));
            nodes.forget_lookups(first, 2);
            assert_eq!(nodes.get(first), Some((event, inode)));
        }
        for (event, inode) in
            [(EventNo(1 << EVENT_BITS), InodeNo(16)), (EventNo(1), InodeNo(1 << INODE_BITS))]
        {
            let number = nodes.count_lookup(key(7, inode), FileKind::Regular, event, inode);
            assert!(!PastNodes::is_plain(number));
            assert_eq!(nodes.get(number), Some((event, inode)));
            nodes.forget_lookups(number, 1);
            assert_eq!(nodes.get(number), None);
        }
    }

    /// Two nodes whose hashes are equal have two numbers.
    #[test]
    fn numbers_are_unique() {
        let nodes = PastNodes::default();
        let key = Key::Below { parent: 1, inode: InodeNo(16) };
        let taken = key.hashed();
        let squatter = Key::Below { parent: 9, inode: InodeNo(9) };
        nodes
            .0
            .write()
            .insert(taken, Known { key: squatter, event: EventNo(1), inode: InodeNo(9), lookups: 1 });
        let next = number_after(taken);
        assert_ne!(next, taken);
        assert_eq!(nodes.count_lookup(key.clone(), DIR, EventNo(1), InodeNo(16)), next);
        assert_eq!(nodes.count_lookup(key, DIR, EventNo(1), InodeNo(16)), next);
    }

    /// The number of a directory says whether a name with a time led to it, also where another node had the
    /// number.
    #[test]
    fn numbers_say_what_led_there() {
        let named = Key::Named { parent: 1, name: b"a@1".to_vec(), event: EventNo(3) };
        let below = Key::Below { parent: 1, inode: InodeNo(16) };
        for (key, flags) in [(named, PAST | NAMED), (below, PAST)] {
            let number = key.number(DIR, EventNo(3), InodeNo(16));
            assert_eq!([number & FLAGS, number_after(number) & FLAGS], [flags; 2]);
        }
        assert_eq!(number_after(PAST | !FLAGS), PAST, "nothing is carried into the flags");
    }
}
