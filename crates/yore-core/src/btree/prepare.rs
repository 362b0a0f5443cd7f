//! The half of a change that can fail: it reads, checks and keeps in memory what the change can touch, and
//! computes how many blocks the change can need.

use super::path::{Key, NodePosition, Path, Pins, Step, KEY_BYTES_MAX};
use super::read::{CellRef, Side};
use super::tree::Tree;
use crate::Result;
use yore_format::{Corruption, EventNo, MetaAddr, NodeRef, NODE_PAYLOAD_BYTES};
use yore_meta::{Frame, Meta};

/// What [`Tree::path_to`] shows of the leaf that it has come to.
pub struct Leaf<'a> {
    node: NodeRef<'a>,
    position: &'a NodePosition,
    key: &'a [u8; 8],
}

/// The nodes of a tree that the past has, too, and that have keys in some stretch.
#[derive(Default)]
pub struct PastNodes {
    /// The bounds of each.
    nodes: Vec<(Key, Option<Key>)>,
    /// How many nodes beside a range of keys the changes there can concern.
    beside: u32,
}

impl PastNodes {
    /// How many blocks changes of keys in `first..=last`, which lie in that stretch, can need for copies,
    /// however many changes these are. They copy the nodes that have such keys. Where one of these goes, a
    /// neighbour takes over its keys, and is copied, too: on each level below the root one on either side, as
    /// cells beside the range keep these nodes from going.
    pub fn blocks_for_copies(&self, first: &[u8], last: &[u8]) -> u32 {
        let has_keys = |(lower, upper): &&(Key, Option<Key>)| {
            **lower <= *last && upper.is_none_or(|upper| *upper > *first)
        };
        self.nodes.iter().filter(has_keys).count() as u32 + self.beside
    }
}

impl<'a> Leaf<'a> {
    /// The cells from the key on, as far as this leaf goes.
    pub fn cells(&self) -> impl Iterator<Item = CellRef<'a>> {
        let (node, end) = (self.node, self.position.cells_that_count(self.node));
        let (Ok(start) | Err(start)) = node.search(self.key);
        (start..end).map(move |i| (node.key(i), node.value(i)))
    }

    /// Whether keys up to `last` belong to this leaf.
    pub fn holds(&self, last: &[u8; 8]) -> bool {
        self.position.is_below_upper(last)
    }
}

impl Tree {
    /// Reads, checks and keeps in memory whatever inserts, replaces and removes of keys in `first..=last` can
    /// touch: the leaves in the range and the branches above. Where all cells of the outermost leaf could go,
    /// a neighbour would take over its keys, so that neighbour too. The range must be small.
    pub fn prepare(&self, meta: &Meta, first: &[u8], last: &[u8], pins: &mut Pins) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let mut from = Key::new(first);
        loop {
            let (frame, position) = self.leaf(meta, &from, Side::Holding, Some(pins))?;
            let may_empty = !position.has_beside(NodeRef::new(&frame.read()), first, last);
            if may_empty && *position.lower <= *first && !position.lower.is_zero() {
                self.leaf(meta, &position.lower, Side::Before, Some(pins))?;
            }
            match position.upper {
                Some(upper) if *upper <= *last => from = upper,
                Some(upper) if may_empty => {
                    self.leaf(meta, &upper, Side::Holding, Some(pins))?;
                    return Ok(());
                }
                _ => return Ok(()),
            }
        }
    }

    /// As [`Tree::prepare`], for replacing and removing cells with these keys only, which ascend and may lie
    /// anywhere.
    pub fn prepare_removals<K: AsRef<[u8]>>(&self, meta: &Meta, keys: &[K], pins: &mut Pins) -> Result<()> {
        let mut keys = keys.iter().map(AsRef::as_ref).peekable();
        while let Some(first) = keys.next().filter(|_| !self.is_empty()) {
            let (frame, position) = self.leaf(meta, first, Side::Holding, Some(pins))?;
            let mut here = 1;
            while keys.next_if(|key| position.is_below_upper(key)).is_some() {
                here += 1;
            }
            if here >= position.cells_that_count(NodeRef::new(&frame.read())) {
                self.pin_neighbours(meta, &position, pins)?;
            }
        }
        Ok(())
    }

    /// Keeps in memory the last `leaves` leaves and all above them, for [`Tree::free_last`].
    pub fn prepare_last(&self, meta: &Meta, leaves: usize, pins: &mut Pins) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let width = self.key_width(meta)?;
        let (mut key, mut side) = (Key::new(&[0xff; KEY_BYTES_MAX][..width]), Side::Holding);
        for _ in 0..leaves {
            let (_, position) = self.leaf(meta, &key, side, Some(pins))?;
            if position.lower.is_zero() {
                break;
            }
            (key, side) = (position.lower, Side::Before);
        }
        if self.recorded_until.0 > 0 && self.level > 1 {
            // What the past holds goes with everything below it, and those nodes are counted then.
            self.visit(meta, &mut |node| {
                pins.add(node.frame);
                Ok(node.position.level > 1)
            })?;
        }
        Ok(())
    }

    /// How many blocks `n` inserts (or replaces by longer values) can need: each may split a node on every
    /// level, and all of them together make the tree higher once; then both halves of each node are new.
    pub fn blocks_for_inserts(&self, n: u32) -> u32 {
        self.blocks_for_splits(n) + self.blocks_for_copies(n)
    }

    /// As [`Tree::blocks_for_inserts`], without what nodes that belong to the past need.
    pub fn blocks_for_splits(&self, n: u32) -> u32 {
        (n + 1) * (u32::from(self.level) + 1) + 1
    }

    /// How many blocks `n` changes can need because nodes on the way belong to the past: for copies of these
    /// nodes, and of the left spine beside a first child that goes. If the root is a leaf, there is no other
    /// node to copy. Changes of keys that lie together need fewer: [`Tree::past_nodes`].
    pub fn blocks_for_copies(&self, n: u32) -> u32 {
        match self.recorded_until {
            EventNo(0) => 0,
            _ if self.is_empty() => 0,
            _ if self.level == 0 => n.min(1),
            _ => n * (2 * u32::from(self.level) + 1),
        }
    }

    /// The nodes on the way to a key that the past has, too, the leaf among them. O(log cells).
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn past_nodes_to(&self, meta: &Meta, key: &[u8]) -> Result<Vec<MetaAddr>> {
        let (mut past, mut pins) = (Vec::new(), Pins::new());
        if self.is_empty() || self.recorded_until == EventNo(0) {
            return Ok(past);
        }
        self.leaf(meta, key, Side::Holding, Some(&mut pins))?;
        past.extend(pins.frames().iter().filter(|frame| self.is_recorded(frame)).map(Frame::addr));
        Ok(past)
    }

    /// The nodes with keys in `first..=last` that the past has, too. O(nodes with such keys).
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn past_nodes(&self, meta: &Meta, first: &[u8], last: &[u8]) -> Result<PastNodes> {
        let mut past = PastNodes::default();
        if self.is_empty() || self.recorded_until == EventNo(0) {
            return Ok(past);
        }
        self.check_level()?;
        past.beside = 2 * u32::from(self.level);
        let mut left = vec![self.root_position(first.len())];
        while let Some(position) = left.pop() {
            let frame = meta.read_any(position.addr)?;
            {
                let page = frame.read();
                let node = self.checked(&page, &position, first.len())?;
                if position.level > 0 {
                    let end = position.cells_that_count(node).min(node.child_for(last) + 1);
                    for i in node.child_for(first)..end {
                        left.push(position.child(node, i)?);
                    }
                }
            }
            if self.is_recorded(&frame) {
                past.nodes.push((position.lower, position.upper));
            }
        }
        Ok(past)
    }

    /// How many blocks [`Tree::insert_run`] of `n` cells of at most `cell_bytes` can need: new leaves as full
    /// as cells of that size make them, one more at each end of the run, and one split of a branch on every
    /// level, of which both halves may be new.
    pub fn blocks_for_run(&self, n: usize, cell_bytes: usize) -> u32 {
        let per_leaf = NODE_PAYLOAD_BYTES / cell_bytes;
        let leaves = n.div_ceil(per_leaf) + 2;
        // Half a branch has room for fifty separators of the longest keys.
        debug_assert!(leaves <= 50, "a run that could split a branch twice");
        leaves as u32 + 2 * (u32::from(self.level) + 1) + self.blocks_for_copies(2)
    }

    /// The way to `key`, for a change that [`Tree::insert_at`] or one of its sisters makes once an Op is
    /// open. It also keeps in memory what [`Tree::prepare`] would keep beside it. `inspect` sees the leaf
    /// once, with the index at which `key` is or would be, and the number of cells that count. It may return
    /// another key of the same leaf; then the way leads to that key. `None`: the tree is empty, or `inspect`
    /// returned `None`.
    #[inline]
    pub fn path_to<R>(
        &self,
        meta: &Meta,
        key: &[u8; 8],
        pins: &mut Pins,
        inspect: impl FnOnce(&Leaf<'_>) -> Result<Option<([u8; 8], R)>>,
    ) -> Result<Option<(Box<Path>, R)>> {
        if self.is_empty() {
            return Ok(None);
        }
        let mut path = Path::of(self.level);
        let (frame, position) = self.descend(meta, key, &mut path)?;
        let page = frame.read();
        let node = NodeRef::new(&page);
        let Some((key, seen)) = inspect(&Leaf { node, position: &position, key })? else { return Ok(None) };
        let at = node.search(&key);
        path.found = at.is_ok();
        let (Ok(index) | Err(index)) = at;
        let may_empty = !position.has_beside(node, &key, &key);
        drop(page);
        path.set(Step { frame, position, index });
        if may_empty {
            self.pin_neighbours(meta, &position, pins)?;
        }
        Ok(Some((path, seen)))
    }

    /// The way to where a key is to be inserted, for [`Tree::insert_into`]. `None`: the tree is empty. One
    /// walk checks that the key is not there, keeps in memory what changes, and serves the insert.
    ///
    /// # Errors
    /// `Corruption` if the key is there; damage and device errors.
    pub(super) fn path_to_new(&self, meta: &Meta, key: &[u8]) -> Result<Option<Box<Path>>> {
        if self.is_empty() {
            return Ok(None);
        }
        let mut path = Path::of(self.level);
        let (frame, position) = self.descend(meta, key, &mut path)?;
        let at = NodeRef::new(&frame.read()).search(key);
        let Err(index) = at else {
            let found = format!("{key:02x?}");
            return Err(Corruption::new(self.kind.name(), "key", "not there yet", found).into());
        };
        path.set(Step { frame, position, index });
        Ok(Some(path))
    }

    /// Walks to the leaf that holds a key, and enters the branches into the path.
    fn descend(&self, meta: &Meta, key: &[u8], path: &mut Path) -> Result<(Frame, NodePosition)> {
        self.check_level()?;
        let mut position = self.root_position(key.len());
        loop {
            let frame = meta.read_any(position.addr)?;
            let page = frame.read();
            let node = self.checked(&page, &position, key.len())?;
            path.sound &= position.cells_that_count(node) == node.count();
            if position.level == 0 {
                drop(page);
                return Ok((frame, position));
            }
            path.sound &= *key >= *node.key(0);
            let index = node.child_for(key);
            let next = position.child(node, index)?;
            drop(page);
            path.set(Step { frame, position, index });
            position = next;
        }
    }

    /// Keeps in memory the leaves beside the one at `position`: if all its cells go, one of them takes over
    /// its keys.
    fn pin_neighbours(&self, meta: &Meta, position: &NodePosition, pins: &mut Pins) -> Result<()> {
        if !position.lower.is_zero() {
            self.leaf(meta, &position.lower, Side::Before, Some(pins))?;
        }
        if let Some(upper) = position.upper {
            self.leaf(meta, &upper, Side::Holding, Some(pins))?;
        }
        Ok(())
    }
}
