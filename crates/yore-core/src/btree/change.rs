//! Changes of a tree inside an Op. Nothing here fails or reads the device: [`Tree::prepare`] has kept all
//! nodes in memory.
//!
//! The order in which changes may reach the medium is that of docs/EDGES.md, "Structures", and changes are
//! made in that order:
//! - a split: the right node's image → its cell in the parent → the left node trimmed, which gets the new
//!   cell in the same change. Until that step the moved cells are in both, and readers ignore those of the
//!   left one (T1).
//! - a split up to the root: all halves and the new root are new nodes, which count from the pointer that the
//!   tree's owner stores. Then the nodes that were split are free. (Were the left halves to stay where they
//!   are, they would have to be trimmed behind the owner's change, which comes later.)
//! - a merge: the left node with the right one's cells → the right one's cell gone from the parent → the
//!   right node free.
//! - a node that became empty: its cell gone from the parent → the node free.

use super::delta::{Links, TreeDelta};
use super::nodes::{birth_of, with_node};
use super::path::{Key, Path, Step};
use super::tree::{Tree, CELL_BYTES_MAX};
use yore_format::{Block, EventNo, MetaAddr, NodeMut, NodeRef, NODE_PAYLOAD_BYTES};
use yore_meta::{Change, EdgeKind, Op};

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
        let put = self.put(op, &path, 0, (*index, true), cell, &mut links);
        links.around_cell(put.change, put.counts)
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
            links.add_root(addr);
            return (links.around(change), None, addr);
        }
        let path = self.follow(op, path, cell.key, &mut links);
        assert!(!path.found, "inserting a key that is in the tree: {:02x?}", cell.key);
        let put = self.put(op, &path, 0, (path.at(0).index, false), cell, &mut links);
        (links.around_cell(put.change, put.counts), Some(path), put.home)
    }

    /// Puts a cell into the node of `level` on the path, and splits that node if need be. `replaces`: the
    /// cell at `index` gives way to it.
    fn put(
        &mut self,
        op: &mut Op<'_>,
        path: &Path,
        level: u8,
        (index, replaces): (usize, bool),
        cell: Cell<'_>,
        links: &mut Links,
    ) -> Put {
        let Step { frame: left, position, .. } = path.at(level);
        let spare = if replaces { with_node(left, |node| node.cell_size(index)) } else { 0 };
        if cell.bytes() <= with_node(left, |node| node.free_bytes()) + spare {
            let ((), change) = op.change(left, |page| {
                if replaces {
                    page.apply(|b| NodeMut::new(b).remove(index));
                }
                page.apply(|b| NodeMut::new(b).insert(index, cell.key, cell.value));
            });
            return Put { home: left.addr(), change, counts: Some(change) };
        }
        let above = NodeRef::cell_bytes(cell.key.len(), size_of::<MetaAddr>());
        let is_full = |level: u8| with_node(&path.at(level).frame, |node| node.free_bytes()) < above;
        if (level + 1..=self.level).all(is_full) {
            return self.split_root(op, path, (index, replaces), cell, links);
        }
        if cell.fill == Fill::Run && !replaces && index == with_node(left, |node| node.count()) {
            return self.put_behind(op, path, level, cell, links);
        }
        let mut old: Block = *left.read();
        if replaces {
            NodeMut::new(&mut old).remove(index);
        }
        let node = NodeRef::new(&old);
        let split = Split::choose(node, index, &cell, position.upper.is_none());
        let (right, image) = self.new_node(op, level, cell.birth, node.key_width(), links, |right| {
            split.fill_right(node, right, &cell);
        });
        let linked = self.link_right(op, path, level, (right, &split.separator), cell, links);
        if split.from == node.count() && !split.goes_left && !replaces {
            return Put { home: right, change: image, counts: linked.counts };
        }
        let ((), trimmed) = op.change(left, |page| {
            if replaces {
                page.apply(|b| NodeMut::new(b).remove(index));
            }
            for i in (split.from..node.count()).rev() {
                page.apply(|b| NodeMut::new(b).remove(i));
            }
            if split.goes_left {
                page.apply(|b| NodeMut::new(b).insert(index, cell.key, cell.value));
            }
        });
        op.edge(EdgeKind::Trimmed, linked.counts.unwrap_or(linked.change), trimmed);
        match split.goes_left {
            true => Put { home: left.addr(), change: trimmed, counts: Some(trimmed) },
            false => Put { home: right, change: image, counts: linked.counts },
        }
    }

    /// Puts a cell behind all that the full node of `level` on the path has, in a new node that has it alone.
    /// What the full node has stays as it is.
    fn put_behind(
        &mut self,
        op: &mut Op<'_>,
        path: &Path,
        level: u8,
        cell: Cell<'_>,
        links: &mut Links,
    ) -> Put {
        let (right, image) = self.new_node(op, level, cell.birth, cell.key.len(), links, |node| {
            node.insert(0, cell.key, cell.value);
        });
        let linked = self.link_right(op, path, level, (right, cell.key), cell, links);
        Put { home: right, change: image, counts: linked.counts }
    }

    /// Enters a new node, whose keys begin with `separator`, behind the node of `level` on the path.
    fn link_right(
        &mut self,
        op: &mut Op<'_>,
        path: &Path,
        level: u8,
        (right, separator): (MetaAddr, &[u8]),
        cell: Cell<'_>,
        links: &mut Links,
    ) -> Put {
        // Computed before anything moves in the parent.
        let at = path.at(level + 1).index + 1;
        let value = right.0.to_le_bytes();
        let pointer = Cell { key: separator, value: &value, fill: Fill::Halves, ..cell };
        let linked = self.put(op, path, level + 1, (at, false), pointer, links);
        op.linked(right, linked.change);
        op.moved(path.at(level).frame.addr(), linked.change);
        linked
    }

    /// Puts a cell into the leaf on the path, where it and all nodes above are full: both halves of each of
    /// them, and the new root, are new nodes. Nothing of that counts before the owner has stored the root.
    fn split_root(
        &mut self,
        op: &mut Op<'_>,
        path: &Path,
        (index, replaces): (usize, bool),
        cell: Cell<'_>,
        links: &mut Links,
    ) -> Put {
        let leaf: Block = *path.at(0).frame.read();
        let (mut halves, goes_left) = self.halve(op, path, 0, (leaf, index, replaces), &cell, links);
        let (home, change) = if goes_left { halves.left } else { halves.right };
        for level in 1..=self.level {
            let Step { frame, index, .. } = path.at(level);
            let mut branch: Block = *frame.read();
            let Halves { left: (left, _), right: (right, _), separator } = halves;
            NodeMut::new(&mut branch).replace(*index, &left.0.to_le_bytes());
            let value = right.0.to_le_bytes();
            let above = Cell { key: &separator, value: &value, fill: Fill::Halves, ..cell };
            let goes_left;
            (halves, goes_left) = self.halve(op, path, level, (branch, index + 1, false), &above, links);
            // The new cell is in one half, and the one before it in the same or at the end of the left one.
            let new_half = if goes_left { halves.left } else { halves.right };
            let at = with_node(&self.cached(op, halves.left.0), |node| node.count());
            let old_half = if *index < at { halves.left } else { halves.right };
            op.linked(left, old_half.1);
            op.linked(right, new_half.1);
        }
        let Halves { left: (left, _), right: (right, _), separator } = halves;
        let (root, above) = self.new_node(op, self.level + 1, cell.birth, separator.len(), links, |node| {
            node.insert(0, &Key::zero(separator.len()), &left.0.to_le_bytes());
            node.insert(1, &separator, &right.0.to_le_bytes());
        });
        op.linked(left, above);
        op.linked(right, above);
        (self.root, self.level) = (root, self.level + 1);
        links.add_root(root);
        Put { home, change, counts: None }
    }

    /// Makes two nodes of what the node of `level` on the path is to hold and a cell for it. That node goes
    /// with the root. Also returns whether the cell is in the left one.
    fn halve(
        &self,
        op: &mut Op<'_>,
        path: &Path,
        level: u8,
        (mut all, index, replaces): (Block, usize, bool),
        cell: &Cell<'_>,
        links: &mut Links,
    ) -> (Halves, bool) {
        let Step { frame, position, .. } = path.at(level);
        if replaces {
            NodeMut::new(&mut all).remove(index);
        }
        let node = NodeRef::new(&all);
        let split = Split::choose(node, index, cell, position.upper.is_none());
        let width = node.key_width();
        let right = self.new_node(op, level, cell.birth, width, links, |to| split.fill_right(node, to, cell));
        let left = self.new_node(op, level, cell.birth, width, links, |to| split.fill_left(node, to, cell));
        self.free_with_root(op, frame, links);
        (Halves { left, right, separator: split.separator }, split.goes_left)
    }
}

/// The two nodes that take the place of one, with the changes that are their images.
struct Halves {
    left: (MetaAddr, Change),
    right: (MetaAddr, Change),
    /// The first key of the right one.
    separator: Key,
}

/// Where a cell was put.
struct Put {
    /// The node that has it.
    home: MetaAddr,
    /// The change that put it there.
    change: Change,
    /// The change from which on it counts; `None`: that of the tree's owner.
    counts: Option<Change>,
}

/// Where a node is split into which a cell is to go.
struct Split {
    /// The first cell of the node that the right half gets; the new cell does not count.
    from: usize,
    /// Where the new cell is put in the node as it was.
    index: usize,
    /// Whether it goes to the left half.
    goes_left: bool,
    /// The first key of the right half.
    separator: Key,
}

impl Split {
    fn choose(node: NodeRef<'_>, index: usize, cell: &Cell<'_>, at_right_end: bool) -> Split {
        let split = choose_split(node, index, cell, at_right_end);
        // The place of the split counts the new cell; `from` does not.
        let goes_left = index < split;
        let from = if goes_left { split - 1 } else { split };
        let is_first = !goes_left && index == from;
        let separator = Key::new(if is_first { cell.key } else { node.key(from) });
        Split { from, index, goes_left, separator }
    }

    fn fill_right(&self, node: NodeRef<'_>, right: &mut NodeMut<'_>, cell: &Cell<'_>) {
        for i in self.from..node.count() {
            right.insert(i - self.from, node.key(i), node.value(i));
        }
        if !self.goes_left {
            right.insert(self.index - self.from, cell.key, cell.value);
        }
    }

    fn fill_left(&self, node: NodeRef<'_>, left: &mut NodeMut<'_>, cell: &Cell<'_>) {
        for i in 0..self.from {
            left.insert(i, node.key(i), node.value(i));
        }
        if self.goes_left {
            left.insert(self.index, cell.key, cell.value);
        }
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
