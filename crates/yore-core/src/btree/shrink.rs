//! What follows a removal, inside an Op: empty nodes go, small ones are merged, the tree becomes lower. Also
//! the removal of a whole tree from its end.

use super::delta::{Links, TreeDelta};
use super::nodes::{first_child, with_node};
use super::path::{Key, NodePosition, Path, Step, KEY_BYTES_MAX};
use super::tree::Tree;
use crate::retained;
use yore_format::{Block, MetaAddr, NodeMut, NodeRef, NODE_PAYLOAD_BYTES};
use yore_meta::{Change, Frame, Op};

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
            let change = self.remove_node(op, &path, level, &mut links);
            all = Some(links.around(change).after(op, all));
        }
        all
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

    /// Removes the node of `level` on the path from its parent, and the nodes above that become empty.
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

    /// Removes the cell of child `index` from a branch; the child is of `level`. If it is the first child,
    /// the next one takes over its keys and its separator, and so do the first cells below (T2). Returns
    /// whether the branch is empty now.
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
}
