//! Reading a tree.

use super::path::{Key, NodePosition, Pins};
use super::tree::Tree;
use crate::Result;
use yore_format::{Block, BlockHeader, EventNo, NodeRef};
use yore_meta::{Frame, Meta};

/// A cell's key and value.
pub(crate) type CellRef<'a> = (&'a [u8], &'a [u8]);

/// What [`Tree::scan`] calls with each key and value; `Ok(false)` ends the scan.
pub(crate) type Visitor<'v> = dyn FnMut(&[u8], &[u8]) -> Result<bool> + 'v;

/// Which leaf a walk looks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The one whose bounds hold the key.
    Holding,
    /// The one that holds the keys just below the key. The key is not all zero.
    Before,
}

/// A node to which [`Tree::visit`] has come.
pub struct Visited<'a> {
    /// The node.
    pub frame: &'a Frame,
    /// Its birth.
    pub birth: EventNo,
    node: NodeRef<'a>,
    pub(super) position: &'a NodePosition,
}

impl<'a> Visited<'a> {
    /// The cells of a leaf; nothing for a branch.
    pub fn cells(&self) -> impl Iterator<Item = CellRef<'a>> {
        let node = self.node;
        let count = if self.position.level == 0 { self.position.cells_that_count(node) } else { 0 };
        (0..count).map(move |i| (node.key(i), node.value(i)))
    }
}

impl Tree {
    /// Calls `f` with the value of `key`. O(log n), no heap memory. `f` must be short: it runs with a block's
    /// lock held.
    pub fn get<R>(&self, meta: &Meta, key: &[u8], f: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        if self.is_empty() {
            return Ok(f(None));
        }
        let (frame, _) = self.leaf(meta, key, Side::Holding, None)?;
        let page = frame.read();
        let node = NodeRef::new(&page);
        Ok(f(node.search(key).ok().map(|i| node.value(i))))
    }

    /// The first result that `f` makes of the cells with keys in `first..=last`, in order. No heap memory.
    /// `f` must be short: it runs with a block's lock held.
    #[inline]
    pub fn find<R>(
        &self,
        meta: &Meta,
        first: &[u8],
        last: &[u8],
        mut f: impl FnMut(&[u8], &[u8]) -> Option<R>,
    ) -> Result<Option<R>> {
        if self.is_empty() {
            return Ok(None);
        }
        let mut from = Key::new(first);
        loop {
            let (frame, position) = self.leaf(meta, &from, Side::Holding, None)?;
            let page = frame.read();
            let node = NodeRef::new(&page);
            let (Ok(start) | Err(start)) = node.search(&from);
            for i in start..node.count() {
                let key = node.key(i);
                if key > last || !position.is_below_upper(key) {
                    break;
                }
                if let Some(found) = f(key, node.value(i)) {
                    return Ok(Some(found));
                }
            }
            match position.upper {
                Some(upper) if *upper <= *last => from = upper,
                _ => return Ok(None),
            }
        }
    }

    /// Calls `f` with the last cell whose key is `key` or less. O(log n), no heap memory.
    pub fn floor<R>(&self, meta: &Meta, key: &[u8], f: impl FnOnce(Option<CellRef<'_>>) -> R) -> Result<R> {
        if self.is_empty() {
            return Ok(f(None));
        }
        let (mut key, mut side) = (Key::new(key), Side::Holding);
        loop {
            let (frame, position) = self.leaf(meta, &key, side, None)?;
            let page = frame.read();
            let node = NodeRef::new(&page);
            let end = match node.search(&key) {
                Ok(i) if side == Side::Holding => i + 1,
                Ok(i) | Err(i) => i,
            };
            if end > 0 {
                return Ok(f(Some((node.key(end - 1), node.value(end - 1)))));
            }
            // Lower bounds get strictly smaller, so this ends; in a sound tree the next leaf has a cell (T4).
            if position.lower.is_zero() {
                return Ok(f(None));
            }
            (key, side) = (position.lower, Side::Before);
        }
    }

    /// Calls `each` with the cells whose keys are `from` or more, in order, until it returns `Ok(false)`.
    /// `each` may read other blocks (no lock is held), but must not change the tree.
    pub fn scan(&self, meta: &Meta, from: &[u8], each: &mut Visitor<'_>) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let mut from = Key::new(from);
        loop {
            let (frame, position) = self.leaf(meta, &from, Side::Holding, None)?;
            let page: Block = *frame.read();
            drop(frame);
            let node = NodeRef::new(&page);
            let (Ok(start) | Err(start)) = node.search(&from);
            for i in start..node.count() {
                if !position.is_below_upper(node.key(i)) {
                    break;
                }
                if !each(node.key(i), node.value(i))? {
                    return Ok(());
                }
            }
            match position.upper {
                Some(upper) => from = upper,
                None => return Ok(()),
            }
        }
    }

    /// Calls `each` with the nodes from the root down, parents before their children, in the order of keys.
    /// It visits the nodes below a node if `each` returns true. Memory: one node for each level, and the
    /// addresses of their children.
    pub fn visit(&self, meta: &Meta, each: &mut dyn FnMut(&Visited<'_>) -> Result<bool>) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        self.check_level()?;
        let mut left = vec![self.root_position(self.key_width(meta)?)];
        while let Some(position) = left.pop() {
            let frame = meta.read_any(position.addr)?;
            let page: Block = *frame.read();
            let node = self.checked(&page, &position, position.lower.len())?;
            let birth = EventNo(BlockHeader::of(&page).birth.get());
            if each(&Visited { frame: &frame, birth, node, position: &position })? && position.level > 0 {
                for i in (0..position.cells_that_count(node)).rev() {
                    left.push(position.child(node, i)?);
                }
            }
        }
        Ok(())
    }

    /// Walks down to a leaf; keeps the nodes on the way in `pins`, if the caller gives it.
    pub(super) fn leaf(
        &self,
        meta: &Meta,
        key: &[u8],
        side: Side,
        mut pins: Option<&mut Pins>,
    ) -> Result<(Frame, NodePosition)> {
        self.check_level()?;
        let mut position = self.root_position(key.len());
        loop {
            let frame = meta.read_any(position.addr)?;
            let next = {
                let page = frame.read();
                let node = self.checked(&page, &position, key.len())?;
                match (position.level, side) {
                    (0, _) => None,
                    (_, Side::Holding) => Some(position.child(node, node.child_for(key))?),
                    (_, Side::Before) => {
                        let (Ok(i) | Err(i)) = node.search(key);
                        Some(position.child(node, i.saturating_sub(1))?)
                    }
                }
            };
            if let Some(pins) = pins.as_deref_mut() {
                pins.add(&frame);
            }
            match next {
                Some(next) => position = next,
                None => return Ok((frame, position)),
            }
        }
    }
}
