//! What follows a removal, inside an Op: empty nodes go, small ones are merged, the tree becomes lower. Also
//! the removal of a whole tree from its end.

use super::delta::{Links, TreeDelta};
use super::nodes::{first_child, trim, with_node};
use super::path::{Key, NodePosition, Path, Step, KEY_BYTES_MAX};
use super::tree::Tree;
use crate::retained;
use yore_format::{Block, MetaAddr, NodeMut, NodeRef, NODE_PAYLOAD_BYTES};
use yore_meta::{Change, EdgeKind, Frame, Op};

/// A node that uses fewer bytes than this looks for a sibling to merge with.
const MERGE_BELOW: usize = NODE_PAYLOAD_BYTES / 3;

/// Two nodes are merged if together they take no more than this: the next insert shall not split them again.
const MERGED_MOST: usize = NODE_PAYLOAD_BYTES / 8 * 7;

impl Tree {
    /// Frees up to `leaves` leaves from the end, whatever they hold, and the branches that become empty with
    /// them; `None` if the tree was empty. [`Tree::prepare_last`] kept them in memory. For trees that nobody
    /// reads any more. The tree lets go of nodes that the past holds, and does not free them.
    pub fn free_last(&mut self, op: &mut Op<'_>, leaves: usize) -> Option<TreeDelta> {
        let mut all: Option<TreeDelta> = None;
        for _ in 0..leaves {
            if self.is_empty() {
                break;
            }
            let mut links = Links::default();
            let (path, level) = self.last_own(op);
            self.let_go_below(op, &path.at(level).frame, level, &mut links);
            self.remove_node(op, &path, level, &mut links);
            all = Some(links.alone().after(all));
        }
        all
    }

    /// Frees the whole tree, behind the change by which its owner has it no longer; `None` if it was empty.
    /// Else as [`Tree::free_last`].
    pub fn free_all(&mut self, op: &mut Op<'_>) -> Option<TreeDelta> {
        if self.is_empty() {
            return None;
        }
        let mut links = Links::default();
        let root = self.cached(op, self.root);
        self.free_below(op, &root, self.level, &mut links);
        (self.root, self.level) = (MetaAddr::NONE, 0);
        Some(links.alone())
    }

    fn free_below(&self, op: &mut Op<'_>, frame: &Frame, level: u8, links: &mut Links) {
        self.let_go_below(op, frame, level, links);
        if level > 0 && !self.is_recorded(frame) {
            let children: Vec<MetaAddr> = with_node(frame, |node| {
                (0..node.count()).map(|i| node.child(i).expect("verified when it was read")).collect()
            });
            for child in children {
                let child = self.cached(op, child);
                self.free_below(op, &child, level - 1, links);
            }
        }
        self.free_with_root(op, frame, links);
    }

    /// Counts the nodes below a node of the past that the tree is about to lose. They all belong to the past,
    /// too.
    fn let_go_below(&self, op: &mut Op<'_>, frame: &Frame, level: u8, links: &mut Links) {
        if level > 0 && self.is_recorded(frame) {
            let below = self.nodes_below(op, frame, level);
            links.nodes -= below;
            retained::leave_unread_nodes(op, below);
        }
    }

    /// How many nodes there are below a branch. [`Tree::prepare_last`] kept the branches among them in
    /// memory.
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

    /// The way to the end of the tree, down to a leaf or to the first node that the past holds, and the level
    /// of that node.
    fn last_own(&self, op: &mut Op<'_>) -> (Box<Path>, u8) {
        let mut path = Path::of(self.level);
        let mut position = self.root_position(KEY_BYTES_MAX);
        loop {
            let frame = self.cached(op, position.addr);
            let level = position.level;
            let (index, next) = with_node(&frame, |node| {
                let last = node.count().saturating_sub(1);
                let goes_on = level > 0 && !self.is_recorded(&frame);
                (last, goes_on.then(|| position.child(node, last).expect("verified when it was read")))
            });
            path.set(Step { frame, position, index });
            match next {
                Some(next) => position = next,
                None => return (path, level),
            }
        }
    }

    /// After a removal from the leaf at the end of `path`: removes the leaf if it is empty, else merges small
    /// nodes.
    pub(super) fn shrink(&mut self, op: &mut Op<'_>, path: &Path, links: &mut Links) {
        if with_node(&path.at(0).frame, |n| n.count()) == 0 {
            self.remove_node(op, path, 0, links);
        } else {
            self.merge_upwards(op, path, 0, links);
        }
    }

    /// Removes the node of `level` on the path, and the nodes above that have no other child: first the
    /// topmost of them from its parent, and then all are free. If the tree has no other node, all are free
    /// when its owner has stored that.
    fn remove_node(&mut self, op: &mut Op<'_>, path: &Path, level: u8, links: &mut Links) {
        let mut top = level;
        while top < self.level && with_node(&path.at(top + 1).frame, |n| n.count()) == 1 {
            top += 1;
        }
        if top == self.level {
            (self.root, self.level) = (MetaAddr::NONE, 0);
            (level..=top).for_each(|level| self.free_with_root(op, &path.at(level).frame, links));
            return;
        }
        let Step { frame: parent, index, position } = path.at(top + 1);
        self.trim_left(op, parent, position, *index);
        let gone = self.remove_child(op, parent, *index, top, links);
        (level..=top).for_each(|level| self.free_node(op, &path.at(level).frame, gone, links));
        self.merge_upwards(op, path, top + 1, links);
    }

    /// The child of a branch before `index` is about to take over the keys of the child there. What an
    /// interrupted split has left in it, and at the right end below it, must not count then (T1).
    fn trim_left(&self, op: &mut Op<'_>, parent: &Frame, position: &NodePosition, index: usize) {
        let Some(left) = index.checked_sub(1) else { return };
        let at = with_node(parent, |node| position.child(node, left).ok());
        let Some(mut at) = at else { return };
        // What is not in memory has no change that waits. The leaf is, if the removal was prepared.
        while let Some(frame) = op.cached(at.addr) {
            let (count, sound) = with_node(&frame, |node| (node.count(), at.cells_that_count(node)));
            if sound < count && !self.is_recorded(&frame) {
                trim(op, &frame, sound);
            }
            let next = with_node(&frame, |node| match (at.level, sound.checked_sub(1)) {
                (1.., Some(last)) => at.child(node, last).ok(),
                _ => None,
            });
            match next {
                Some(next) => at = next,
                None => return,
            }
        }
    }

    /// A child of a branch takes over keys of the one behind it by the change `by`. All that waits in it, and
    /// at the right end below it, comes first: some of that may be what keeps cells from counting twice.
    fn left_takes_over(&self, op: &mut Op<'_>, parent: &Frame, index: usize, level: u8, by: Change) {
        let Some(left) = index.checked_sub(1) else { return };
        let mut at = with_node(parent, |node| node.child(left).ok());
        for _ in 0..=level {
            let Some(addr) = at else { return };
            op.all_before(EdgeKind::Trimmed, addr, by);
            let Some(frame) = op.cached(addr) else { return };
            at = with_node(&frame, |node| {
                let last = node.count().checked_sub(1).filter(|_| node.level() > 0)?;
                node.child(last).ok()
            });
        }
    }

    /// The node of `from` on the path lost a cell and still has others: merges it if it is small, and so on
    /// upwards.
    fn merge_upwards(&mut self, op: &mut Op<'_>, path: &Path, from: u8, links: &mut Links) {
        for level in from..self.level {
            let used = with_node(&path.at(level).frame, |n| n.used_bytes());
            if used >= MERGE_BELOW || !self.merge(op, path, level, links) {
                return;
            }
        }
        self.lower_root(op, path, links);
    }

    /// Removes the cell of child `index` from a branch, which has others; the child is of `level`. If it is
    /// the first child, the next one takes over its keys and its separator, and so do the first cells below
    /// (T2). Returns the change that did it.
    fn remove_child(
        &mut self,
        op: &mut Op<'_>,
        parent: &Frame,
        index: usize,
        level: u8,
        links: &mut Links,
    ) -> Change {
        let lower = with_node(parent, |node| Key::new(node.key(0)));
        let ((), gone) = op.change(parent, |page| {
            page.apply(|b| NodeMut::new(b).remove(index));
            if index == 0 {
                page.set_key(0, &lower);
            }
        });
        self.left_takes_over(op, parent, index, level, gone);
        if index == 0 && level > 0 {
            let mut earlier = gone;
            let mut above = parent.clone();
            for _ in 0..level {
                let branch = self.cached(op, with_node(&above, first_child));
                let branch = self.own(op, branch, Some((&above, 0)), links);
                let ((), lowered) = op.change(&branch, |page| page.set_key(0, &lower));
                op.edge(EdgeKind::Lowered, earlier, lowered);
                earlier = lowered;
                above = branch;
            }
        }
        gone
    }

    /// Merges the node of `level` on the path with a sibling under the same parent, if a sibling is in memory
    /// and fits.
    fn merge(&mut self, op: &mut Op<'_>, path: &Path, level: u8, links: &mut Links) -> bool {
        let Step { frame: parent, index, position } = path.at(level + 1);
        let node = &path.at(level).frame;
        let siblings = [index.checked_add(1), index.checked_sub(1)];
        for sibling in siblings.into_iter().flatten() {
            let Some(other) = self.sibling(op, parent, position, sibling) else { continue };
            let together = with_node(node, |n| n.used_bytes()) + with_node(&other, |n| n.used_bytes());
            if together > MERGED_MOST {
                continue;
            }
            let (left, right, gone) =
                if sibling > *index { (node, &other, sibling) } else { (&other, node, *index) };
            if self.is_recorded(left) {
                continue;
            }
            let moved: Block = *right.read();
            op.change(left, |page| {
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
            op.linked(left.addr(), unlinked);
            self.free_node(op, right, unlinked, links);
            return true;
        }
        false
    }

    /// Child `i` of a branch, if it is in memory, belongs there, and has only keys that count (T1).
    fn sibling(&self, op: &mut Op<'_>, parent: &Frame, position: &NodePosition, i: usize) -> Option<Frame> {
        let page = parent.read();
        let node = NodeRef::new(&page);
        if i >= node.count() {
            return None;
        }
        let position = position.child(node, i).ok()?;
        let frame = op.cached(position.addr)?;
        let sound = {
            let page = frame.read();
            let node = NodeRef::new(&page);
            self.expect(position.level).check(&page).is_ok()
                && self.check(node, &position, position.lower.len()).is_ok()
                && node.count() > 0
                && position.is_below_upper(node.key(node.count() - 1))
        };
        sound.then_some(frame)
    }

    /// Replaces a root that has a single child by that child.
    fn lower_root(&mut self, op: &mut Op<'_>, path: &Path, links: &mut Links) {
        let mut frame = path.at(self.level).frame.clone();
        while self.level > 0 && with_node(&frame, |n| n.count()) == 1 {
            (self.root, self.level) = (with_node(&frame, first_child), self.level - 1);
            self.free_with_root(op, &frame, links);
            match op.cached(self.root) {
                Some(next) if self.is_mine(&next, self.level) => frame = next,
                _ => return,
            }
        }
    }

    fn is_mine(&self, frame: &Frame, level: u8) -> bool {
        self.expect(level).check(&frame.read()).is_ok()
    }
}
