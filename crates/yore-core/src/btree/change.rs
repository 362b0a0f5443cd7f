//! Changes of a tree inside an Op. Nothing here fails or reads the device: [`Tree::prepare`] has kept all
//! nodes in memory.
//!
//! The order in which changes reach the medium (ARCHITECTURE §4), given by `Op::before` for the engines that
//! write in place:
//! - a split: the right node's image → its cell in the parent → the left node trimmed. Until the last step
//!   the moved cells are in both, and readers ignore those of the left one (T1).
//! - a merge: the left node with the right one's cells → the right one's cell gone from the parent → the
//!   right node free.
//! - a node that became empty: its cell gone from the parent → the node free.
//! - a new root: its image → the pointer that the tree's owner stores → the old root trimmed or free. The
//!   owner's change is known only later, so both ends wait in the [`TreeDelta`].

use super::delta::{Links, TreeDelta};
use super::nodes::{birth_of, trim, with_node};
use super::path::{Key, Path, Step};
use super::tree::{Tree, CELL_BYTES_MAX};
use yore_format::{Block, EventNo, MetaAddr, NodeMut, NodeRef, NODE_PAYLOAD_BYTES};
use yore_meta::{Change, Op};

/// How full a split at the right end leaves the left node.
const APPEND_FILL: usize = NODE_PAYLOAD_BYTES / 10 * 9;

/// How a full node is split.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    /// Into halves; at the right end of the tree, nine to one.
    Halves,
    /// Where the new cell is, because more cells follow it.
    Run,
}

/// A cell to be put into a node.
#[derive(Clone, Copy)]
pub(super) struct Cell<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    pub(super) birth: EventNo,
    pub(super) fill: Fill,
}

impl Cell<'_> {
    fn bytes(&self) -> usize {
        NodeRef::cell_bytes(self.key.len(), self.value.len())
    }
}

impl Tree {
    /// Adds a cell. A node that this needs is born at `birth`.
    ///
    /// # Panics
    /// If the key exists, or was not prepared.
    pub fn insert(&mut self, op: &mut Op<'_>, key: &[u8], value: &[u8], birth: EventNo) -> TreeDelta {
        self.insert_cell(op, None, Cell { key, value, birth, fill: Fill::Halves }).0
    }

    /// As [`Tree::insert`]; the caller may already know the way to the key from [`Tree::path_to`].
    pub fn insert_at(
        &mut self,
        op: &mut Op<'_>,
        path: Option<Box<Path>>,
        key: &[u8],
        value: &[u8],
        birth: EventNo,
    ) -> TreeDelta {
        self.insert_cell(op, path, Cell { key, value, birth, fill: Fill::Halves }).0
    }

    /// As [`Tree::insert`], for one of many cells inserted in ascending order with no others between them:
    /// packs them as closely as [`Tree::blocks_for_run`] says.
    pub fn insert_run(&mut self, op: &mut Op<'_>, key: &[u8], value: &[u8], birth: EventNo) -> TreeDelta {
        self.insert_cell(op, None, Cell { key, value, birth, fill: Fill::Run }).0
    }

    /// Gives a key another value. A longer one may need as many blocks as an insert.
    ///
    /// # Panics
    /// If there is no such key, or it was not prepared.
    pub fn replace(&mut self, op: &mut Op<'_>, key: &[u8], value: &[u8]) -> TreeDelta {
        self.replace_at(op, None, key, value)
    }

    /// As [`Tree::replace`]; the caller may already know the way to the key from [`Tree::path_to`].
    pub fn replace_at(
        &mut self,
        op: &mut Op<'_>,
        path: Option<Box<Path>>,
        key: &[u8],
        value: &[u8],
    ) -> TreeDelta {
        let mut links = Links::default();
        let path = self.follow(op, path, key, &mut links);
        assert!(path.found, "replacing a key that is not in the tree: {key:02x?}");
        let Step { frame, index, .. } = path.at(0);
        // Only a node that the present owns alone is changed in place, so what is split off may be as old as
        // the node.
        let birth = birth_of(frame);
        let cell = Cell { key, value, birth, fill: Fill::Halves };
        assert!(cell.bytes() <= CELL_BYTES_MAX, "a cell of {} bytes", cell.bytes());
        if cell.bytes() <= with_node(frame, |node| node.free_bytes() + node.cell_size(*index)) {
            let ((), change) =
                op.change(frame, |page| page.apply(|b| NodeMut::new(b).replace(*index, value)));
            return links.around(change);
        }
        let ((), gone) = op.change(frame, |page| page.apply(|b| NodeMut::new(b).remove(*index)));
        let (home, change) = self.put(op, &path, 0, *index, cell, &mut links);
        if home != frame.addr() {
            op.before(change, gone);
        }
        links.around(change)
    }

    /// Removes a cell.
    ///
    /// # Panics
    /// If there is no such key, or it was not prepared.
    pub fn remove(&mut self, op: &mut Op<'_>, key: &[u8]) -> TreeDelta {
        self.remove_at(op, None, key)
    }

    /// As [`Tree::remove`]; the caller may already know the way to the key from [`Tree::path_to`].
    pub fn remove_at(&mut self, op: &mut Op<'_>, path: Option<Box<Path>>, key: &[u8]) -> TreeDelta {
        let mut links = Links::default();
        let path = self.follow(op, path, key, &mut links);
        assert!(path.found, "removing a key that is not in the tree: {key:02x?}");
        let Step { frame, index, .. } = path.at(0);
        let ((), change) = op.change(frame, |page| page.apply(|b| NodeMut::new(b).remove(*index)));
        self.shrink(op, &path, &mut links);
        links.around(change)
    }

    /// Also returns the way that led there, as it was before the insert, unless the tree was empty; and the
    /// leaf that has the cell.
    pub(super) fn insert_cell(
        &mut self,
        op: &mut Op<'_>,
        path: Option<Box<Path>>,
        cell: Cell<'_>,
    ) -> (TreeDelta, Option<Box<Path>>, MetaAddr) {
        assert!(cell.bytes() <= CELL_BYTES_MAX, "a cell of {} bytes", cell.bytes());
        let mut links = Links::default();
        if self.is_empty() {
            let (addr, change) = self.new_node(op, 0, cell.birth, cell.key.len(), &mut links, |node| {
                node.insert(0, cell.key, cell.value);
            });
            (self.root, self.level) = (addr, 0);
            links.add_image(op, change);
            return (links.around(change), None, addr);
        }
        let path = self.follow(op, path, cell.key, &mut links);
        assert!(!path.found, "inserting a key that is in the tree: {:02x?}", cell.key);
        let (home, change) = self.put(op, &path, 0, path.at(0).index, cell, &mut links);
        (links.around(change), Some(path), home)
    }

    /// Puts a cell into the node of `level` on the path, and splits that node if need be. Returns where the
    /// cell is now.
    fn put(
        &mut self,
        op: &mut Op<'_>,
        path: &Path,
        level: u8,
        index: usize,
        cell: Cell<'_>,
        links: &mut Links,
    ) -> (MetaAddr, Change) {
        let Step { frame: left, position, .. } = path.at(level);
        let insert = |op: &mut Op<'_>, index| {
            op.change(left, |page| page.apply(|b| NodeMut::new(b).insert(index, cell.key, cell.value))).1
        };
        if cell.bytes() <= with_node(left, |node| node.free_bytes()) {
            return (left.addr(), insert(op, index));
        }
        let old: Block = *left.read();
        let node = NodeRef::new(&old);
        let split = choose_split(node, index, &cell, position.upper.is_none());
        // The place of the split counts the new cell; `from` does not.
        let goes_left = index < split;
        let from = if goes_left { split - 1 } else { split };
        let (right, image) = self.new_node(op, level, cell.birth, node.key_width(), links, |right| {
            for i in from..node.count() {
                right.insert(i - from, node.key(i), node.value(i));
            }
            if !goes_left {
                right.insert(index - from, cell.key, cell.value);
            }
        });
        let separator =
            if !goes_left && index == from { Key::new(cell.key) } else { Key::new(node.key(from)) };
        let linked = self.link_right(op, path, level, (&separator, right), image, cell, links);
        if from < node.count() {
            let trimmed = trim(op, left, from);
            match linked {
                Some(parent) => op.before(parent, trimmed),
                None => links.add_after(op, trimmed),
            }
        }
        if goes_left {
            (left.addr(), insert(op, index))
        } else {
            (right, image)
        }
    }

    /// Makes the parent point to a node that was split off on `level`. Returns the change that does it, or
    /// `None` if the new root does it, whose pointer is not stored yet.
    #[allow(clippy::too_many_arguments)]
    fn link_right(
        &mut self,
        op: &mut Op<'_>,
        path: &Path,
        level: u8,
        (separator, right): (&Key, MetaAddr),
        image: Change,
        cell: Cell<'_>,
        links: &mut Links,
    ) -> Option<Change> {
        if level < self.level {
            let value = right.0.to_le_bytes();
            let cell = Cell { key: separator, value: &value, fill: Fill::Halves, ..cell };
            // Computed before anything moves in the parent.
            let index = path.at(level + 1).index + 1;
            let (_, parent) = self.put(op, path, level + 1, index, cell, links);
            op.before(image, parent);
            return Some(parent);
        }
        let left = self.root;
        let (root, above) = self.new_node(op, level + 1, cell.birth, separator.len(), links, |node| {
            node.insert(0, &Key::zero(separator.len()), &left.0.to_le_bytes());
            node.insert(1, separator, &right.0.to_le_bytes());
        });
        op.before(image, above);
        (self.root, self.level) = (root, level + 1);
        links.add_image(op, above);
        None
    }
}

/// Where to split a node into which `cell` is to go at `index`: how many cells stay left, the new cell
/// included.
fn choose_split(node: NodeRef<'_>, index: usize, cell: &Cell<'_>, at_right_end: bool) -> usize {
    let count = node.count();
    let size = |i: usize| match i.cmp(&index) {
        std::cmp::Ordering::Less => node.cell_size(i),
        std::cmp::Ordering::Equal => cell.bytes(),
        std::cmp::Ordering::Greater => node.cell_size(i - 1),
    };
    let total = node.used_bytes() + cell.bytes();
    let fits = |left: usize| left <= NODE_PAYLOAD_BYTES && total - left <= NODE_PAYLOAD_BYTES;
    let append = at_right_end && index == count;
    let (mut left, mut best) = (0, None);
    for split in 1..=count {
        left += size(split - 1);
        if !fits(left) {
            continue;
        }
        if cell.fill == Fill::Run {
            // Behind the new cell if the left node has room left; else in front of it.
            if split == index + 1 || (split == index && best.is_none()) {
                best = Some((0, split));
            }
        } else if append {
            if best.is_none() || left - size(split - 1) < APPEND_FILL {
                best = Some((0, split));
            }
        } else if best.is_none_or(|(gap, _)| left.abs_diff(total - left) < gap) {
            best = Some((left.abs_diff(total - left), split));
        }
    }
    best.expect("of two halves, one has room for the largest cell").1
}
