//! Nodes inside an Op: the way to a key, on which each node becomes the present's own; new nodes, and nodes
//! that go. Nothing here fails or reads the device.

use super::delta::Links;
use super::path::{Path, Step};
use super::tree::Tree;
use crate::retained::{self, Leaves};
use std::ops::Range;
use yore_format::{Block, BlockHeader, EventNo, MetaAddr, NodeMut, NodeRef, BLOCK_SIZE, HEADER_BYTES};
use yore_meta::{Change, EdgeKind, Frame, NewBlock, Op};

const WHOLE_BODY: Range<usize> = HEADER_BYTES..BLOCK_SIZE;

impl Tree {
    /// A new node, whose cells `fill` puts in.
    pub(super) fn new_node(
        &self,
        op: &mut Op<'_>,
        level: u8,
        birth: EventNo,
        key_width: usize,
        links: &mut Links,
        fill: impl FnOnce(&mut NodeMut<'_>),
    ) -> (MetaAddr, Change) {
        let (frame, image) = self.new_block(op, level, birth, |b| fill(&mut NodeMut::init(b, key_width)));
        links.nodes += 1;
        (frame.addr(), image)
    }

    /// A new block whose body `write` makes, and the change that is its image.
    fn new_block(
        &self,
        op: &mut Op<'_>,
        level: u8,
        birth: EventNo,
        write: impl FnOnce(&mut Block),
    ) -> (Frame, Change) {
        let new =
            NewBlock { kind: self.kind, level, owner: self.owner, incarnation: self.incarnation, birth };
        let (frame, made) = op.allocate(new);
        let ((), image) = op.change(&frame, |page| {
            page.apply(|b| {
                write(b);
                WHOLE_BODY
            });
        });
        op.edge(EdgeKind::Made, made, image);
        (frame, image)
    }

    /// Frees a node that the tree has no longer because of the change `gone`, unless the past holds it.
    pub(super) fn free_node(&self, op: &mut Op<'_>, frame: &Frame, gone: Change, links: &mut Links) {
        links.nodes -= 1;
        op.moved(frame.addr(), gone);
        if self.is_recorded(frame) {
            self.leave(op, frame, links);
            return;
        }
        let freed = op.free(frame.clone());
        op.edge(EdgeKind::Freed, gone, freed);
    }

    /// As [`Tree::free_node`], for a node that the tree has no longer when its owner has stored another root.
    pub(super) fn free_with_root(&self, op: &mut Op<'_>, frame: &Frame, links: &mut Links) {
        links.nodes -= 1;
        let is_recorded = self.is_recorded(frame);
        if is_recorded {
            self.leave(op, frame, links);
        }
        links.add_moved(frame.addr(), (!is_recorded).then(|| frame.clone()));
    }

    /// Leaves a node to the past, which holds it, too.
    fn leave(&self, op: &mut Op<'_>, frame: &Frame, links: &mut Links) {
        retained::leave_node(op, &self.leaves(), birth_of(frame));
        links.left.push(frame.addr());
    }

    /// The state that leaves the nodes of this tree to the past.
    fn leaves(&self) -> Leaves {
        Leaves { inode: self.owner, incarnation: self.incarnation, recorded_until: self.recorded_until }
    }

    /// Whether the past holds a node, too.
    pub(super) fn is_recorded(&self, frame: &Frame) -> bool {
        self.recorded_until.0 > 0 && birth_of(frame) <= self.recorded_until
    }

    /// The node as the present's own: the node itself, or a copy. The parent (or, without a parent, whoever
    /// keeps the root) points to the copy instead.
    pub(super) fn own(
        &mut self,
        op: &mut Op<'_>,
        frame: Frame,
        parent: Option<(&Frame, usize)>,
        links: &mut Links,
    ) -> Frame {
        if !self.is_recorded(&frame) {
            return frame;
        }
        self.leave(op, &frame, links);
        let old: Block = *frame.read();
        let level = NodeRef::new(&old).level();
        let birth = EventNo(self.recorded_until.0 + 1);
        let (copy, _) = self.new_block(op, level, birth, |b| b[WHOLE_BODY].copy_from_slice(&old[WHOLE_BODY]));
        match parent {
            Some((parent, index)) => {
                let to = copy.addr().0.to_le_bytes();
                let ((), linked) =
                    op.change(parent, |page| page.apply(|b| NodeMut::new(b).replace(index, &to)));
                op.linked(copy.addr(), linked);
                op.moved(frame.addr(), linked);
            }
            None => {
                self.root = copy.addr();
                links.add_root(copy.addr());
                links.add_moved(frame.addr(), None);
            }
        }
        copy
    }

    /// The way to `key`: the known one if it still leads there, else a new one.
    pub(super) fn follow(
        &mut self,
        op: &mut Op<'_>,
        path: Option<Box<Path>>,
        key: &[u8],
        links: &mut Links,
    ) -> Box<Path> {
        if let Some(mut path) = path.filter(|path| path.sound) {
            if self.still_leads(&mut path, key) {
                return path;
            }
        }
        self.walk_to(op, key, links)
    }

    /// Whether a way found earlier still leads to `key`: an earlier change in the same Op may have moved
    /// cells and nodes. Corrects the last step of the way.
    fn still_leads(&self, path: &mut Path, key: &[u8]) -> bool {
        if path.level() != self.level || path.at(self.level).frame.addr() != self.root {
            return false;
        }
        if self.recorded_until.0 > 0 && (0..=self.level).any(|level| self.is_recorded(&path.at(level).frame))
        {
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

    /// The way to the leaf of `key`, all of it the present's own. Repairs on the way what an interrupted
    /// split, merge or removal left: keys beyond the bounds (T1), and a first key above the lower bound (T2).
    fn walk_to(&mut self, op: &mut Op<'_>, key: &[u8], links: &mut Links) -> Box<Path> {
        let mut path = Path::of(self.level);
        let mut position = self.root_position(key.len());
        loop {
            let frame = self.cached(op, position.addr);
            let frame = match position.level < self.level {
                true => {
                    let above = path.at(position.level + 1);
                    self.own(op, frame, Some((&above.frame, above.index)), links)
                }
                false => self.own(op, frame, None, links),
            };
            position.addr = frame.addr();
            let (count, sound, low) = with_node(&frame, |node| {
                let high_first = position.level > 0 && *key < *node.key(0);
                (node.count(), position.cells_that_count(node), high_first)
            });
            if sound < count {
                trim(op, &frame, sound);
            }
            if low {
                op.change(&frame, |page| page.set_key(0, &position.lower));
            }
            let (index, next) = {
                let page = frame.read();
                let node = NodeRef::new(&page);
                if position.level == 0 {
                    let at = node.search(key);
                    path.found = at.is_ok();
                    let (Ok(index) | Err(index)) = at;
                    (index, None)
                } else {
                    let index = node.child_for(key);
                    (index, Some(position.child(node, index).expect("verified when it was read")))
                }
            };
            path.set(Step { frame, position, index });
            match next {
                Some(next) => position = next,
                None => return path,
            }
        }
    }

    pub(super) fn cached(&self, op: &mut Op<'_>, addr: MetaAddr) -> Frame {
        op.cached(addr)
            .unwrap_or_else(|| panic!("{} {addr} of inode {} was not prepared", self.kind.name(), self.owner))
    }
}

/// Removes the cells `from..`.
pub(super) fn trim(op: &mut Op<'_>, frame: &Frame, from: usize) -> Change {
    op.change(frame, |page| {
        for i in (from..NodeRef::new(page.block()).count()).rev() {
            page.apply(|b| NodeMut::new(b).remove(i));
        }
    })
    .1
}

/// When a node was born.
pub(super) fn birth_of(frame: &Frame) -> EventNo {
    EventNo(BlockHeader::of(&frame.read()).birth.get())
}

pub(super) fn with_node<R>(frame: &Frame, f: impl FnOnce(NodeRef<'_>) -> R) -> R {
    let page = frame.read();
    f(NodeRef::new(&page))
}

pub(super) fn first_child(node: NodeRef<'_>) -> MetaAddr {
    node.child(0).expect("verified when it was read")
}
