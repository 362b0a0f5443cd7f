//! Changing a tree inside an Op. Nothing here fails or reads the device: [`Tree::prepare`] has kept all nodes in memory.
//!
//! What reaches the medium when (ARCHITECTURE §4), said with `Op::before` for the engines that write in place:
//! - a split: the right node's image → its cell in the parent → the left node trimmed. Until the last step the moved cells
//!   are in both, and readers ignore those of the left one (T1).
//! - a merge: the left node with the right one's cells → the right one's cell gone from the parent → the right node free.
//! - a node that became empty: its cell gone from the parent → the node free.
//! - a new root: its image → the pointer that the tree's keeper stores → the old root trimmed or free. The keeper's change
//!   is known only later, so both ends wait in the [`TreeDelta`].

use super::delta::{Links, TreeDelta};
use super::{Key, Path, Place, Step, Tree, CELL_BYTES_MAX, KEY_BYTES_MAX};
use crate::core::held;
use std::ops::Range;
use yore_format::{
    Block, BlockHeader, HistoryGrowth, MetaAddr, NodeMut, NodeRef, Number, BLOCK_SIZE, HEADER_BYTES,
    NODE_PAYLOAD_BYTES,
};
use yore_meta::{Change, Frame, NewBlock, Op};

/// A node with less than this in use looks for a sibling to merge with.
const MERGE_BELOW: usize = NODE_PAYLOAD_BYTES / 3;
/// Two nodes are merged if they take no more than this together: the next insert shall not split them again.
const MERGED_MOST: usize = NODE_PAYLOAD_BYTES / 8 * 7;
/// How full splitting at the right end leaves the left node.
const APPEND_FILL: usize = NODE_PAYLOAD_BYTES / 10 * 9;
const WHOLE_BODY: Range<usize> = HEADER_BYTES..BLOCK_SIZE;

/// How a full node is split.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    /// Into halves; at the right end of the tree, nine to one.
    Halves,
    /// Where the new cell is: more follow it.
    Run,
}

/// A cell to be put into a node.
#[derive(Clone, Copy)]
pub(super) struct Cell<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    pub(super) birth: Number,
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
    pub(crate) fn insert(&mut self, op: &mut Op<'_>, key: &[u8], value: &[u8], birth: Number) -> TreeDelta {
        self.insert_cell(op, None, Cell { key, value, birth, fill: Fill::Halves }).0
    }

    /// As [`Tree::insert`], where the way to the key may be known from [`Tree::way`].
    pub(crate) fn insert_at(
        &mut self,
        op: &mut Op<'_>,
        path: Option<Path>,
        key: &[u8],
        value: &[u8],
        birth: Number,
    ) -> TreeDelta {
        self.insert_cell(op, path, Cell { key, value, birth, fill: Fill::Halves }).0
    }

    /// As [`Tree::insert`], for one of many cells inserted in ascending order with no others between them: packs them
    /// as closely as [`Tree::blocks_for_run`] says.
    pub(crate) fn insert_run(
        &mut self,
        op: &mut Op<'_>,
        key: &[u8],
        value: &[u8],
        birth: Number,
    ) -> TreeDelta {
        self.insert_cell(op, None, Cell { key, value, birth, fill: Fill::Run }).0
    }

    /// Gives a key another value. A longer one may need as many blocks as an insert.
    ///
    /// # Panics
    /// If there is no such key, or it was not prepared.
    pub(crate) fn replace(&mut self, op: &mut Op<'_>, key: &[u8], value: &[u8]) -> TreeDelta {
        self.replace_at(op, None, key, value)
    }

    /// As [`Tree::replace`]; the way to the key may be known from [`Tree::way`].
    pub(crate) fn replace_at(
        &mut self,
        op: &mut Op<'_>,
        path: Option<Path>,
        key: &[u8],
        value: &[u8],
    ) -> TreeDelta {
        let mut links = Links::default();
        let path = self.follow(op, path, key, &mut links);
        assert!(path.found, "replacing a key that is not in the tree: {key:02x?}");
        let Step { frame, index, .. } = path.at(0);
        // Who changes a node in place owns it alone, so what is split off may be as old as the node.
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
    pub(crate) fn remove(&mut self, op: &mut Op<'_>, key: &[u8]) -> TreeDelta {
        self.remove_at(op, None, key)
    }

    /// As [`Tree::remove`]; the way to the key may be known from [`Tree::way`].
    pub(crate) fn remove_at(&mut self, op: &mut Op<'_>, path: Option<Path>, key: &[u8]) -> TreeDelta {
        let mut links = Links::default();
        let path = self.follow(op, path, key, &mut links);
        assert!(path.found, "removing a key that is not in the tree: {key:02x?}");
        let Step { frame, index, .. } = path.at(0);
        let ((), change) = op.change(frame, |page| page.apply(|b| NodeMut::new(b).remove(*index)));
        self.shrink(op, &path, &mut links);
        links.around(change)
    }

    /// Frees up to `leaves` leaves from the end, whatever they hold, and the branches that this empties; `None` if the tree
    /// was empty. [`Tree::prepare_last`] kept them in memory. For trees that nobody reads any more. What the past holds is
    /// let go of, not freed.
    pub(crate) fn free_last(&mut self, op: &mut Op<'_>, leaves: usize) -> Option<TreeDelta> {
        let mut all: Option<TreeDelta> = None;
        for _ in 0..leaves {
            if self.is_empty() {
                break;
            }
            let mut links = Links::default();
            let (path, level) = self.last_own(op);
            self.let_go_below(op, &path.at(level).frame, level, &mut links);
            let change = self.remove_node(op, &path, level, &mut links);
            all = Some(links.around(change).after(op, all));
        }
        all
    }

    /// The tree is about to lose a node of the past with all below it, which is the past's, too.
    fn let_go_below(&self, op: &mut Op<'_>, frame: &Frame, level: u8, links: &mut Links) {
        if level > 0 && self.is_kept(frame) {
            let below = self.nodes_below(op, frame, level);
            links.nodes -= below;
            let_go(op, below);
        }
    }

    /// How many nodes there are below a branch. [`Tree::prepare_last`] kept the branches among them in memory.
    fn nodes_below(&self, op: &mut Op<'_>, frame: &Frame, level: u8) -> i32 {
        let page = frame.read();
        let node = NodeRef::new(&page);
        let mut nodes = node.count() as i32;
        for i in (0..node.count()).filter(|_| level > 1) {
            let child = self.cached(op, node.child(i).expect("verified when it was read"));
            nodes += self.nodes_below(op, &child, level - 1);
        }
        nodes
    }

    /// The way to the end of the tree, down to a leaf or to the first node that the past holds, and the level of that.
    fn last_own(&self, op: &mut Op<'_>) -> (Path, u8) {
        let mut path = Path::of(self);
        let mut place = self.root_place(KEY_BYTES_MAX);
        loop {
            let frame = self.cached(op, place.addr);
            let level = place.level;
            let (index, next) = with_node(&frame, |node| {
                let last = node.count().saturating_sub(1);
                let goes_on = level > 0 && !self.is_kept(&frame);
                (last, goes_on.then(|| place.child(node, last).expect("verified when it was read")))
            });
            path.set(Step { frame, place, index });
            match next {
                Some(next) => place = next,
                None => return (path, level),
            }
        }
    }

    /// Also returns the way that led there, as it was before, unless the tree was empty.
    pub(super) fn insert_cell(
        &mut self,
        op: &mut Op<'_>,
        path: Option<Path>,
        cell: Cell<'_>,
    ) -> (TreeDelta, Option<Path>) {
        assert!(cell.bytes() <= CELL_BYTES_MAX, "a cell of {} bytes", cell.bytes());
        let mut links = Links::default();
        if self.is_empty() {
            let (addr, change) = self.new_node(op, 0, cell.birth, cell.key.len(), &mut links, |node| {
                node.insert(0, cell.key, cell.value);
            });
            (self.root, self.level) = (addr, 0);
            links.add_image(op, change);
            return (links.around(change), None);
        }
        let path = self.follow(op, path, cell.key, &mut links);
        assert!(!path.found, "inserting a key that is in the tree: {:02x?}", cell.key);
        let (_, change) = self.put(op, &path, 0, path.at(0).index, cell, &mut links);
        (links.around(change), Some(path))
    }

    /// Puts a cell into the node of `level` on the path, splitting it if need be. Returns where the cell is now.
    fn put(
        &mut self,
        op: &mut Op<'_>,
        path: &Path,
        level: u8,
        index: usize,
        cell: Cell<'_>,
        links: &mut Links,
    ) -> (MetaAddr, Change) {
        let Step { frame: left, place, .. } = path.at(level);
        let insert = |op: &mut Op<'_>, index| {
            op.change(left, |page| page.apply(|b| NodeMut::new(b).insert(index, cell.key, cell.value))).1
        };
        if cell.bytes() <= with_node(left, |node| node.free_bytes()) {
            return (left.addr(), insert(op, index));
        }
        let old: Block = *left.read();
        let node = NodeRef::new(&old);
        let cut = choose_cut(node, index, &cell, place.upper.is_none());
        // The cut counts the new cell; `from` does not.
        let goes_left = index < cut;
        let from = if goes_left { cut - 1 } else { cut };
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

    /// Makes the parent point to a node split off on `level`; the change that does it, or `None` if it is the new root that
    /// does, whose pointer is not stored yet.
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

    /// A new node with what `fill` puts into it.
    fn new_node(
        &self,
        op: &mut Op<'_>,
        level: u8,
        birth: Number,
        key_width: usize,
        links: &mut Links,
        fill: impl FnOnce(&mut NodeMut<'_>),
    ) -> (MetaAddr, Change) {
        let (frame, image) = self.new_block(op, level, birth, |b| fill(&mut NodeMut::init(b, key_width)));
        links.nodes += 1;
        (frame.addr(), image)
    }

    /// A new block with the body that `write` makes, and the change that is its image.
    fn new_block(
        &self,
        op: &mut Op<'_>,
        level: u8,
        birth: Number,
        write: impl FnOnce(&mut Block),
    ) -> (Frame, Change) {
        let new =
            NewBlock { kind: self.kind, level, owner: self.owner, incarnation: self.incarnation, birth };
        let (frame, allocated) = op.allocate(new);
        let ((), image) = op.change(&frame, |page| {
            page.apply(|b| {
                write(b);
                WHOLE_BODY
            });
        });
        op.before(allocated, image);
        (frame, image)
    }

    /// After a removal from the leaf at the end of `path`: removes it if it is empty, else merges small nodes.
    fn shrink(&mut self, op: &mut Op<'_>, path: &Path, links: &mut Links) {
        if with_node(&path.at(0).frame, |n| n.count()) == 0 {
            self.remove_node(op, path, 0, links);
        } else {
            self.merge_upwards(op, path, 0, links);
        }
    }

    /// Removes the node of `level` on the path from its parent, and what this empties above.
    fn remove_node(&mut self, op: &mut Op<'_>, path: &Path, mut level: u8, links: &mut Links) -> Change {
        let mut first = None;
        while level < self.level {
            let Step { frame: parent, index, .. } = path.at(level + 1);
            let (change, empty) = self.remove_child(op, parent, *index, level, links);
            if let Some(freed) = self.free_node(op, &path.at(level).frame, links) {
                op.before(change, freed);
            }
            first.get_or_insert(change);
            level += 1;
            if !empty {
                self.merge_upwards(op, path, level, links);
                return first.unwrap_or(change);
            }
        }
        (self.root, self.level) = (MetaAddr::NONE, 0);
        let gone = match self.free_node(op, &path.at(level).frame, links) {
            Some(freed) => {
                links.add_after(op, freed);
                freed
            }
            None => op.nothing(),
        };
        first.unwrap_or(gone)
    }

    /// The tree has this node no longer. Frees it, unless the past holds it.
    fn free_node(&self, op: &mut Op<'_>, frame: &Frame, links: &mut Links) -> Option<Change> {
        links.nodes -= 1;
        if self.is_kept(frame) {
            let_go(op, 1);
            return None;
        }
        Some(op.free(frame.clone()))
    }

    /// Whether the past holds a node, too.
    fn is_kept(&self, frame: &Frame) -> bool {
        self.kept.0 > 0 && birth_of(frame) <= self.kept
    }

    /// The node as the present's own: itself, or a copy that its parent (none: whoever keeps the root) points to instead.
    fn own(
        &mut self,
        op: &mut Op<'_>,
        frame: Frame,
        parent: Option<(&Frame, usize)>,
        links: &mut Links,
    ) -> Frame {
        if !self.is_kept(&frame) {
            return frame;
        }
        let_go(op, 1);
        let old: Block = *frame.read();
        let level = NodeRef::new(&old).level();
        let birth = Number(self.kept.0 + 1);
        let (copy, image) =
            self.new_block(op, level, birth, |b| b[WHOLE_BODY].copy_from_slice(&old[WHOLE_BODY]));
        match parent {
            Some((parent, index)) => {
                let to = copy.addr().0.to_le_bytes();
                let ((), linked) =
                    op.change(parent, |page| page.apply(|b| NodeMut::new(b).replace(index, &to)));
                op.before(image, linked);
            }
            None => {
                self.root = copy.addr();
                links.add_image(op, image);
            }
        }
        copy
    }

    /// The node of `from` on the path lost a cell and has others: merges it if it is small, and so on above.
    fn merge_upwards(&mut self, op: &mut Op<'_>, path: &Path, from: u8, links: &mut Links) {
        for level in from..self.level {
            let used = with_node(&path.at(level).frame, |n| n.used_bytes());
            if used >= MERGE_BELOW || !self.merge(op, path, level, links) {
                return;
            }
        }
        self.lower_root(op, path, links);
    }

    /// Removes the cell of child `index` from a branch; the child is of `level`. If it is the first, the next one takes over
    /// its keys and its separator, and so do the first cells below (T2). Says whether the branch is empty now.
    fn remove_child(
        &mut self,
        op: &mut Op<'_>,
        parent: &Frame,
        index: usize,
        level: u8,
        links: &mut Links,
    ) -> (Change, bool) {
        let (lower, count) = with_node(parent, |node| (Key::new(node.key(0)), node.count()));
        let ((), change) = op.change(parent, |page| {
            page.apply(|b| NodeMut::new(b).remove(index));
            if index == 0 && count > 1 {
                page.apply(|b| NodeMut::new(b).set_key(0, &lower));
            }
        });
        if index == 0 && count > 1 && level > 0 {
            let mut earlier = change;
            let mut above = parent.clone();
            for _ in 0..level {
                let branch = self.cached(op, with_node(&above, first_child));
                let branch = self.own(op, branch, Some((&above, 0)), links);
                let ((), lowered) =
                    op.change(&branch, |page| page.apply(|b| NodeMut::new(b).set_key(0, &lower)));
                op.before(earlier, lowered);
                earlier = lowered;
                above = branch;
            }
        }
        (change, count == 1)
    }

    /// Merges the node of `level` on the path with a sibling under the same parent, if one is in memory and fits.
    fn merge(&mut self, op: &mut Op<'_>, path: &Path, level: u8, links: &mut Links) -> bool {
        let Step { frame: parent, index, place } = path.at(level + 1);
        let node = &path.at(level).frame;
        let siblings = [index.checked_add(1), index.checked_sub(1)];
        for sibling in siblings.into_iter().flatten() {
            let Some(other) = self.sibling(op, parent, place, sibling) else { continue };
            let together = with_node(node, |n| n.used_bytes()) + with_node(&other, |n| n.used_bytes());
            if together > MERGED_MOST {
                continue;
            }
            let (left, right, gone) =
                if sibling > *index { (node, &other, sibling) } else { (&other, node, *index) };
            if self.is_kept(left) {
                continue;
            }
            let moved: Block = *right.read();
            let ((), merged) = op.change(left, |page| {
                let from = NodeRef::new(&moved);
                for i in 0..from.count() {
                    page.apply(|b| {
                        let mut to = NodeMut::new(b);
                        let at = to.as_ref().count();
                        to.insert(at, from.key(i), from.value(i))
                    });
                }
            });
            let ((), unlinked) = op.change(parent, |page| page.apply(|b| NodeMut::new(b).remove(gone)));
            op.before(merged, unlinked);
            if let Some(freed) = self.free_node(op, right, links) {
                op.before(unlinked, freed);
            }
            return true;
        }
        false
    }

    /// Child `i` of a branch if it is in memory, belongs there, and has no keys that do not count (T1).
    fn sibling(&self, op: &mut Op<'_>, parent: &Frame, place: &Place, i: usize) -> Option<Frame> {
        let page = parent.read();
        let node = NodeRef::new(&page);
        if i >= node.count() {
            return None;
        }
        let place = place.child(node, i).ok()?;
        let frame = op.cached(place.addr)?;
        let sound = {
            let page = frame.read();
            let node = NodeRef::new(&page);
            self.expect(place.level).check(&page).is_ok()
                && self.check(node, &place, place.lower.len()).is_ok()
                && node.count() > 0
                && place.is_below_upper(node.key(node.count() - 1))
        };
        sound.then_some(frame)
    }

    /// A root with a single child gives way to it.
    fn lower_root(&mut self, op: &mut Op<'_>, path: &Path, links: &mut Links) {
        let mut frame = path.at(self.level).frame.clone();
        while self.level > 0 && with_node(&frame, |n| n.count()) == 1 {
            (self.root, self.level) = (with_node(&frame, first_child), self.level - 1);
            if let Some(freed) = self.free_node(op, &frame, links) {
                links.add_after(op, freed);
            }
            match op.cached(self.root) {
                Some(next) if self.is_mine(&next, self.level) => frame = next,
                _ => return,
            }
        }
    }

    fn is_mine(&self, frame: &Frame, level: u8) -> bool {
        self.expect(level).check(&frame.read()).is_ok()
    }

    /// The way to `key`: the one known, if it still leads there, else found anew.
    fn follow(&mut self, op: &mut Op<'_>, path: Option<Path>, key: &[u8], links: &mut Links) -> Path {
        if let Some(mut path) = path.filter(|path| path.sound) {
            if self.still_leads(&mut path, key) {
                return path;
            }
        }
        self.walk_to(op, key, links)
    }

    /// Whether a way found earlier still leads to `key`: an earlier change in the same Op may have moved cells and
    /// nodes. Sees to its last step.
    fn still_leads(&self, path: &mut Path, key: &[u8]) -> bool {
        if path.level() != self.level || path.at(self.level).frame.addr() != self.root {
            return false;
        }
        if self.kept.0 > 0 && (0..=self.level).any(|level| self.is_kept(&path.at(level).frame)) {
            return false;
        }
        for level in (1..=self.level).rev() {
            let (step, next) = (path.at(level), path.at(level - 1).frame.addr());
            let leads = with_node(&step.frame, |node| {
                node.child_for(key) == step.index && node.child(step.index).is_ok_and(|child| child == next)
            });
            if !leads {
                return false;
            }
        }
        let at = with_node(&path.at(0).frame, |node| node.search(key));
        let (Ok(index) | Err(index)) = at;
        path.set_index(index);
        path.found = at.is_ok();
        true
    }

    /// The way to the leaf of `key`, all of it the present's own. Puts right on the way what an interrupted split, merge or
    /// removal left: keys beyond the bounds (T1), and a first key above the lower bound (T2).
    fn walk_to(&mut self, op: &mut Op<'_>, key: &[u8], links: &mut Links) -> Path {
        let mut path = Path::of(self);
        let mut place = self.root_place(key.len());
        loop {
            let frame = self.cached(op, place.addr);
            let frame = match place.level < self.level {
                true => {
                    let above = path.at(place.level + 1);
                    self.own(op, frame, Some((&above.frame, above.index)), links)
                }
                false => self.own(op, frame, None, links),
            };
            place.addr = frame.addr();
            let (count, sound, low) = with_node(&frame, |node| {
                let high_first = place.level > 0 && *key < *node.key(0);
                (node.count(), place.cells_that_count(node), high_first)
            });
            if sound < count {
                trim(op, &frame, sound);
            }
            if low {
                op.change(&frame, |page| page.apply(|b| NodeMut::new(b).set_key(0, &place.lower)));
            }
            let (index, next) = {
                let page = frame.read();
                let node = NodeRef::new(&page);
                if place.level == 0 {
                    let at = node.search(key);
                    path.found = at.is_ok();
                    let (Ok(index) | Err(index)) = at;
                    (index, None)
                } else {
                    let index = node.child_for(key);
                    (index, Some(place.child(node, index).expect("verified when it was read")))
                }
            };
            path.set(Step { frame, place, index });
            match next {
                Some(next) => place = next,
                None => return path,
            }
        }
    }

    fn cached(&self, op: &mut Op<'_>, addr: MetaAddr) -> Frame {
        op.cached(addr)
            .unwrap_or_else(|| panic!("{} {addr} of inode {} was not prepared", self.kind.name(), self.owner))
    }
}

/// The present has let go of so many nodes that the past holds.
fn let_go(op: &mut Op<'_>, nodes: i32) {
    held::count(op, HistoryGrowth { nodes: nodes.into(), ..HistoryGrowth::default() });
}

/// Removes the cells `from..`.
fn trim(op: &mut Op<'_>, frame: &Frame, from: usize) -> Change {
    op.change(frame, |page| {
        for i in (from..NodeRef::new(page.block()).count()).rev() {
            page.apply(|b| NodeMut::new(b).remove(i));
        }
    })
    .1
}

/// When a node was born.
fn birth_of(frame: &Frame) -> Number {
    Number(BlockHeader::of(&frame.read()).birth.get())
}

fn with_node<R>(frame: &Frame, f: impl FnOnce(NodeRef<'_>) -> R) -> R {
    let page = frame.read();
    f(NodeRef::new(&page))
}

fn first_child(node: NodeRef<'_>) -> MetaAddr {
    node.child(0).expect("verified when it was read")
}

/// Where to split a node into which `cell` is to go at `index`: how many cells, the new one counted, stay left.
fn choose_cut(node: NodeRef<'_>, index: usize, cell: &Cell<'_>, at_right_end: bool) -> usize {
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
    for cut in 1..=count {
        left += size(cut - 1);
        if !fits(left) {
            continue;
        }
        if cell.fill == Fill::Run {
            // Behind the new cell if it has room left; else in front of it.
            if cut == index + 1 || (cut == index && best.is_none()) {
                best = Some((0, cut));
            }
        } else if append {
            if best.is_none() || left - size(cut - 1) < APPEND_FILL {
                best = Some((0, cut));
            }
        } else if best.is_none_or(|(gap, _)| left.abs_diff(total - left) < gap) {
            best = Some((left.abs_diff(total - left), cut));
        }
    }
    best.expect("of two halves, one has room for the largest cell").1
}
