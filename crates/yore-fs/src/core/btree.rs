//! B+trees of slotted pages: directories, extents, attributes, long symbolic links, orphans.
//!
//! Keys are byte strings of one width per tree, compared as bytes. Leaves hold cells (key, value); a branch's
//! cell i holds the address of child i and a lower bound of its keys. What a reader may rely on:
//!
//! - **T1** A node's *bounds* come from its parent: child i of a branch with bounds [lower, upper) has the bounds
//!   [key i, key i+1), where the first child's lower is the branch's own and the last child's upper likewise. The
//!   root's bounds are everything. All keys that count lie in the bounds of their node; a reader ignores keys at
//!   or above the upper bound. (They are what a split or a merge leaves behind in the left node when an in-place
//!   engine stops half-way; the next change of the node removes them.)
//! - **T2** The first cell of a branch carries the branch's own lower bound, so on the left spine of the tree it is all
//!   zero bytes, and no key is ever below the first separator. While an in-place engine is half-way through
//!   the removal of a first child, the key may be higher, never lower; searching takes the first child then.
//! - **T3** Levels descend by one, and every node names its tree's kind and owner. With T2 (a branch's first key lies
//!   in one parent's bounds only) no damage can make a walk endless, or visit a branch twice.
//! - **T4** The empty tree has no node: its root is [`MetaAddr::NONE`]. A leaf that loses its last cell goes, and so does
//!   a branch that loses its last child. A branch at the root with one child gives way to it.
//!
//! Nodes under a third full are merged with a sibling under the same parent if that one is in memory and both fit
//! together; two neighbours that do not fit together are half full on average, so space stays bounded without
//! reading siblings for it. Inserting at the right end of the tree leaves the left node of a split nine tenths full.
//!
//! **The past.** Versions of the owner may hold nodes of its tree (V8): all that were born before the newest of them ended,
//! [`Tree::kept`]. These are never changed nor freed here. A change first copies those on its way ([`Tree::own`]): a new node
//! with a new address, born with the inode's present version, and its parent, which is the present's own by then, points to the
//! copy. A node that is kept has only such below it, so what a walk has not copied it need not look into.
//!
//! Changing has two halves (R7). [`Tree::prepare`] reads, checks and keeps in memory whatever changes of a range of
//! keys can touch; it is the half that can fail. [`Tree::insert`], [`Tree::replace`] and [`Tree::remove`] run inside an Op
//! and cannot. A tree is a value: who keeps its root (an inode, the superblock) stores it back, and tells
//! [`TreeDelta::stored`] which change that was.

mod change;
mod delta;
mod finger;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use delta::{Placed, TreeDelta};
pub(crate) use finger::{Fingers, Opening};

use crate::Result;
use yore_format::{
    Block, BlockHeader, BlockKind, Corruption, Expect, Incarnation, InodeNo, MetaAddr, NodeRef, Number,
    NODE_PAYLOAD_BYTES,
};
use yore_meta::{Frame, Meta};

/// The greatest level of a root that is believed. Nodes are filled to a third or have neighbours that make up for
/// it, so that even the largest volume has no tree half as high.
const LEVEL_MAX: u8 = 12;
/// The largest cell, with its index entry: any two halves of a split node have room for one in one of them.
const CELL_BYTES_MAX: usize = NODE_PAYLOAD_BYTES / 2;
const KEY_BYTES_MAX: usize = 24;

/// A cell's key and value.
pub(crate) type CellRef<'a> = (&'a [u8], &'a [u8]);

/// What [`Tree::scan`] calls with each key and value; `Ok(false)` ends the scan.
pub(crate) type Visitor<'v> = dyn FnMut(&[u8], &[u8]) -> Result<bool> + 'v;

/// A key, copied.
#[derive(Clone, Copy)]
struct Key {
    bytes: [u8; KEY_BYTES_MAX],
    len: u8,
}

impl Key {
    fn new(key: &[u8]) -> Key {
        let mut bytes = [0; KEY_BYTES_MAX];
        match <&[u8; 8]>::try_from(key) {
            Ok(key) => bytes[..8].copy_from_slice(key), // Nearly always, and then one move.
            Err(_) => bytes[..key.len()].copy_from_slice(key),
        }
        Key { bytes, len: key.len() as u8 }
    }

    fn zero(len: usize) -> Key {
        Key { bytes: [0; KEY_BYTES_MAX], len: len as u8 }
    }

    fn is_zero(&self) -> bool {
        self.bytes == [0; KEY_BYTES_MAX]
    }
}

impl std::ops::Deref for Key {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Where a walk is: a node's address, and what its parent says of it.
#[derive(Clone, Copy)]
struct Place {
    addr: MetaAddr,
    level: u8,
    lower: Key,
    upper: Option<Key>,
}

impl Place {
    /// Child `i` of the branch `node`, which is here.
    fn child(&self, node: NodeRef<'_>, i: usize) -> std::result::Result<Place, Box<Corruption>> {
        let lower = if i == 0 { self.lower } else { Key::new(node.key(i)) };
        let mut upper = self.upper;
        if i + 1 < node.count() && upper.is_none_or(|u| *node.key(i + 1) < *u) {
            upper = Some(Key::new(node.key(i + 1)));
        }
        Ok(Place { addr: node.child(i)?, level: self.level - 1, lower, upper })
    }

    fn is_below_upper(&self, key: &[u8]) -> bool {
        self.upper.is_none_or(|u| *key < *u)
    }

    /// Whether cells with keys below `first` or above `last` stay in the leaf `node`, which is here, whatever becomes of
    /// those between.
    fn has_beside(&self, node: NodeRef<'_>, first: &[u8], last: &[u8]) -> bool {
        let end = self.cells_that_count(node);
        node.count() > 0 && *node.key(0) < *first || end > 0 && *node.key(end - 1) > *last
    }

    /// How many of the node's cells have keys that count, that is below the upper bound (T1): the first so many.
    fn cells_that_count(&self, node: NodeRef<'_>) -> usize {
        let count = node.count();
        match self.upper {
            None => count,
            Some(_) => (0..count).rfind(|i| self.is_below_upper(node.key(*i))).map_or(0, |i| i + 1),
        }
    }
}

/// A node on the way to a key, with the index of the child taken, or of the key's place in the leaf.
struct Step {
    frame: Frame,
    place: Place,
    index: usize,
}

/// Levels of a path that take no heap memory: more than the trees of nearly all directories and files have.
const NEAR: usize = 3;

/// The way from the root to a leaf, by level. Keeps its nodes in memory.
pub(crate) struct Path {
    near: [Option<Step>; NEAR],
    far: Vec<Option<Step>>,
    /// Whether the leaf has the key.
    found: bool,
    /// Whether nothing on the way has to be put right before it is changed (T1, T2).
    sound: bool,
}

impl Path {
    fn of(tree: &Tree) -> Path {
        let far = (NEAR..usize::from(tree.level) + 1).map(|_| None).collect();
        Path { near: [const { None }; NEAR], far, found: false, sound: true }
    }

    /// The root's level.
    fn level(&self) -> u8 {
        match self.far.len() {
            0 => self.near.iter().rposition(Option::is_some).map_or(0, |level| level as u8),
            far => (NEAR + far) as u8 - 1,
        }
    }

    fn at(&self, level: u8) -> &Step {
        let level = usize::from(level);
        let step = if level < NEAR { &self.near[level] } else { &self.far[level - NEAR] };
        step.as_ref().expect("a walk passes every level")
    }

    fn set(&mut self, step: Step) {
        let level = usize::from(step.place.level);
        *if level < NEAR { &mut self.near[level] } else { &mut self.far[level - NEAR] } = Some(step);
    }

    /// Its last step.
    fn into_leaf(self) -> Option<Step> {
        let [leaf, ..] = self.near;
        leaf
    }

    fn set_index(&mut self, index: usize) {
        self.near[0].as_mut().expect("a walk ends at a leaf").index = index;
    }
}

/// Which leaf a walk looks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// The one whose bounds hold the key.
    Holding,
    /// The one that holds the keys just below it. The key is not all zero.
    Before,
}

/// What [`Tree::way`] shows of the leaf it has come to.
pub(crate) struct Leaf<'a> {
    node: NodeRef<'a>,
    place: &'a Place,
    key: &'a [u8; 8],
}

impl<'a> Leaf<'a> {
    /// The cells from the key on, as far as this leaf goes.
    pub(crate) fn cells(&self) -> impl Iterator<Item = CellRef<'a>> {
        let (node, end) = (self.node, self.place.cells_that_count(self.node));
        let (Ok(start) | Err(start)) = node.search(self.key);
        (start..end).map(move |i| (node.key(i), node.value(i)))
    }

    /// Whether keys up to `last` belong to this leaf.
    pub(crate) fn holds(&self, last: &[u8; 8]) -> bool {
        self.place.is_below_upper(last)
    }
}

/// A node that [`Tree::visit`] has come to.
pub(crate) struct Visited<'a> {
    /// The node.
    pub frame: &'a Frame,
    /// Its birth.
    pub birth: Number,
    node: NodeRef<'a>,
    place: &'a Place,
}

impl<'a> Visited<'a> {
    /// The cells of a leaf; none of a branch.
    pub(crate) fn cells(&self) -> impl Iterator<Item = CellRef<'a>> {
        let node = self.node;
        let count = if self.place.level == 0 { self.place.cells_that_count(node) } else { 0 };
        (0..count).map(move |i| (node.key(i), node.value(i)))
    }
}

/// A tree by its root. Whoever keeps root and level (an inode's content, `xattr_root`, the superblock) stores them
/// back after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    /// The root's address; NONE: no cells.
    pub root: MetaAddr,
    /// The root's level; 0 for the empty tree.
    pub level: u8,
    /// What its nodes are.
    pub kind: BlockKind,
    /// Whom they belong to.
    pub owner: InodeNo,
    /// The owner's incarnation.
    pub incarnation: Incarnation,
    /// Nodes born at this number or before are held by the past, too.
    pub kept: Number,
}

/// Keeps blocks in memory.
#[derive(Default)]
pub(crate) struct Pins(Vec<Frame>);

impl Pins {
    /// Nothing yet.
    pub(crate) fn new() -> Pins {
        Pins::default()
    }

    /// Keeps this block, too.
    pub(crate) fn keep(&mut self, frame: &Frame) {
        if !self.0.iter().rev().any(|f| f.addr() == frame.addr()) {
            self.0.push(frame.clone());
        }
    }
}

impl Tree {
    /// A tree without cells.
    pub(crate) fn empty(kind: BlockKind, owner: InodeNo, incarnation: Incarnation) -> Tree {
        Tree { root: MetaAddr::NONE, level: 0, kind, owner, incarnation, kept: Number(0) }
    }

    /// The tree, of whose nodes those born at `kept` or before belong to versions of its owner, too.
    pub(crate) fn keeping(self, kept: Number) -> Tree {
        Tree { kept, ..self }
    }

    /// The tree with this root, where its level is not kept beside the root's address.
    pub(crate) fn at_root(
        meta: &Meta,
        root: MetaAddr,
        kind: BlockKind,
        owner: InodeNo,
        incarnation: Incarnation,
    ) -> Result<Tree> {
        let mut tree = Tree { root, ..Tree::empty(kind, owner, incarnation) };
        if !root.is_none() {
            let frame = meta.read(root, &Expect { kind, owner, incarnation, level: None })?;
            tree.level = NodeRef::new(&frame.read()).level();
        }
        Ok(tree)
    }

    /// How many blocks a new tree of `n` cells of `cell_bytes`, inserted in order, has.
    pub(crate) fn blocks_of_new(n: usize, cell_bytes: usize) -> u32 {
        let leaves = n.div_ceil(NODE_PAYLOAD_BYTES / cell_bytes) as u32;
        leaves + u32::from(leaves > 1)
    }

    /// Whether it has no cells.
    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Calls `f` with the value of `key`. O(log n), no heap memory. `f` is short: a block's lock is held meanwhile.
    pub(crate) fn get<R>(&self, meta: &Meta, key: &[u8], f: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        if self.is_empty() {
            return Ok(f(None));
        }
        let (frame, _) = self.leaf(meta, key, Side::Holding, None)?;
        let page = frame.read();
        let node = NodeRef::new(&page);
        Ok(f(node.search(key).ok().map(|i| node.value(i))))
    }

    /// The first thing that `f` makes of the cells with keys in `first..=last`, in order. No heap memory; `f` is short:
    /// a block's lock is held meanwhile.
    pub(crate) fn find<R>(
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
            let (frame, place) = self.leaf(meta, &from, Side::Holding, None)?;
            let page = frame.read();
            let node = NodeRef::new(&page);
            let (Ok(start) | Err(start)) = node.search(&from);
            for i in start..node.count() {
                let key = node.key(i);
                if key > last || !place.is_below_upper(key) {
                    break;
                }
                if let Some(found) = f(key, node.value(i)) {
                    return Ok(Some(found));
                }
            }
            match place.upper {
                Some(upper) if *upper <= *last => from = upper,
                _ => return Ok(None),
            }
        }
    }

    /// Calls `f` with the last cell whose key is `key` or less. O(log n), no heap memory.
    pub(crate) fn floor<R>(
        &self,
        meta: &Meta,
        key: &[u8],
        f: impl FnOnce(Option<CellRef<'_>>) -> R,
    ) -> Result<R> {
        if self.is_empty() {
            return Ok(f(None));
        }
        let (mut key, mut side) = (Key::new(key), Side::Holding);
        loop {
            let (frame, place) = self.leaf(meta, &key, side, None)?;
            let page = frame.read();
            let node = NodeRef::new(&page);
            let end = match node.search(&key) {
                Ok(i) if side == Side::Holding => i + 1,
                Ok(i) | Err(i) => i,
            };
            if end > 0 {
                return Ok(f(Some((node.key(end - 1), node.value(end - 1)))));
            }
            // Lower bounds fall strictly, so this ends; in a sound tree the next leaf has a cell (T4).
            if place.lower.is_zero() {
                return Ok(f(None));
            }
            (key, side) = (place.lower, Side::Before);
        }
    }

    /// Calls `each` with the cells whose keys are `from` or more, in order, until it returns `Ok(false)`. `each` may
    /// read other blocks (no lock is held), but must not change the tree.
    pub(crate) fn scan(&self, meta: &Meta, from: &[u8], each: &mut Visitor<'_>) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let mut from = Key::new(from);
        loop {
            let (frame, place) = self.leaf(meta, &from, Side::Holding, None)?;
            let page: Block = *frame.read();
            drop(frame);
            let node = NodeRef::new(&page);
            let (Ok(start) | Err(start)) = node.search(&from);
            for i in start..node.count() {
                if !place.is_below_upper(node.key(i)) {
                    break;
                }
                if !each(node.key(i), node.value(i))? {
                    return Ok(());
                }
            }
            match place.upper {
                Some(upper) => from = upper,
                None => return Ok(()),
            }
        }
    }

    /// Calls `each` with the nodes from the root down, parents before what is below them, in the order of keys; what is below a
    /// node is visited if it returns true. Memory: one node for each level, and the addresses of their children.
    pub(crate) fn visit(
        &self,
        meta: &Meta,
        each: &mut dyn FnMut(&Visited<'_>) -> Result<bool>,
    ) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        self.check_level()?;
        let mut left = vec![self.root_place(self.key_width(meta)?)];
        while let Some(place) = left.pop() {
            let frame = meta.read_any(place.addr)?;
            let page: Block = *frame.read();
            let node = self.checked(&page, &place, place.lower.len())?;
            let birth = Number(BlockHeader::of(&page).birth.get());
            if each(&Visited { frame: &frame, birth, node, place: &place })? && place.level > 0 {
                for i in (0..place.cells_that_count(node)).rev() {
                    left.push(place.child(node, i)?);
                }
            }
        }
        Ok(())
    }

    /// Reads, checks and keeps in memory whatever inserts, replaces and removes of keys in `first..=last` can touch:
    /// the leaves in the range and the branches above; and, where all cells of the outermost leaf could go (its keys would
    /// fall to a neighbour then), that neighbour. The range must be small.
    pub(crate) fn prepare(&self, meta: &Meta, first: &[u8], last: &[u8], pins: &mut Pins) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let mut from = Key::new(first);
        loop {
            let (frame, place) = self.leaf(meta, &from, Side::Holding, Some(pins))?;
            let alone = !place.has_beside(NodeRef::new(&frame.read()), first, last);
            if alone && *place.lower <= *first && !place.lower.is_zero() {
                self.leaf(meta, &place.lower, Side::Before, Some(pins))?;
            }
            match place.upper {
                Some(upper) if *upper <= *last => from = upper,
                Some(upper) if alone => {
                    self.leaf(meta, &upper, Side::Holding, Some(pins))?;
                    return Ok(());
                }
                _ => return Ok(()),
            }
        }
    }

    /// Keeps in memory the last `leaves` leaves and all above them, for [`Tree::free_last`].
    pub(crate) fn prepare_last(&self, meta: &Meta, leaves: usize, pins: &mut Pins) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let width = self.key_width(meta)?;
        let (mut key, mut side) = (Key::new(&[0xff; KEY_BYTES_MAX][..width]), Side::Holding);
        for _ in 0..leaves {
            let (_, place) = self.leaf(meta, &key, side, Some(pins))?;
            if place.lower.is_zero() {
                break;
            }
            (key, side) = (place.lower, Side::Before);
        }
        if self.kept.0 > 0 && self.level > 1 {
            // What the past holds goes with all below it, which is counted then.
            self.visit(meta, &mut |node| {
                pins.keep(node.frame);
                Ok(node.place.level > 1)
            })?;
        }
        Ok(())
    }

    /// How many blocks `n` inserts (or replaces by longer values) can need: each may split a node on every level, and
    /// all of them together make the tree higher once.
    pub(crate) fn blocks_for_inserts(&self, n: u32) -> u32 {
        n * (u32::from(self.level) + 1) + 1 + self.blocks_for_copies(n)
    }

    /// How many blocks `n` changes can need because nodes on the way belong to the past: copies of them, and of the left
    /// spine beside a first child that goes.
    pub(crate) fn blocks_for_copies(&self, n: u32) -> u32 {
        match self.kept {
            Number(0) => 0,
            _ if self.is_empty() => 0,
            _ => n * (2 * u32::from(self.level) + 1),
        }
    }

    /// How many blocks [`Tree::insert_run`] of `n` cells of at most `cell_bytes` can need: new leaves as full as cells of
    /// that size make them, one more at each end of the run, and one branch split on every level.
    pub(crate) fn blocks_for_run(&self, n: usize, cell_bytes: usize) -> u32 {
        let per_leaf = NODE_PAYLOAD_BYTES / cell_bytes;
        let leaves = n.div_ceil(per_leaf) + 2;
        // Half a branch has room for fifty separators of the longest keys.
        debug_assert!(leaves <= 50, "a run that could split a branch twice");
        leaves as u32 + u32::from(self.level) + 1 + self.blocks_for_copies(2)
    }

    fn key_width(&self, meta: &Meta) -> Result<usize> {
        let frame = meta.read(self.root, &self.expect(self.level))?;
        let page = frame.read();
        Ok(NodeRef::new(&page).key_width())
    }

    fn expect(&self, level: u8) -> Expect {
        Expect { kind: self.kind, owner: self.owner, incarnation: self.incarnation, level: Some(level) }
    }

    fn root_place(&self, key_width: usize) -> Place {
        Place { addr: self.root, level: self.level, lower: Key::zero(key_width), upper: None }
    }

    /// Walks down to a leaf; keeps the nodes on the way in `pins` if there are any.
    fn leaf(
        &self,
        meta: &Meta,
        key: &[u8],
        side: Side,
        mut pins: Option<&mut Pins>,
    ) -> Result<(Frame, Place)> {
        self.check_level()?;
        let mut place = self.root_place(key.len());
        loop {
            let frame = meta.read_any(place.addr)?;
            let next = {
                let page = frame.read();
                let node = self.checked(&page, &place, key.len())?;
                match (place.level, side) {
                    (0, _) => None,
                    (_, Side::Holding) => Some(place.child(node, node.child_for(key))?),
                    (_, Side::Before) => {
                        let (Ok(i) | Err(i)) = node.search(key);
                        Some(place.child(node, i.saturating_sub(1))?)
                    }
                }
            };
            if let Some(pins) = pins.as_deref_mut() {
                pins.keep(&frame);
            }
            match next {
                Some(next) => place = next,
                None => return Ok((frame, place)),
            }
        }
    }

    /// The way to `key`, for a change that [`Tree::insert_at`] or one of its sisters makes once an Op is open; also
    /// what [`Tree::prepare`] would keep in memory beside it. `look` sees the leaf once, with the index at which `key` is or
    /// would be, and the number of cells that count; it may return another key of the same leaf, which is then what the
    /// way leads to. `None`: the tree is empty, or `look` returned `None`.
    pub(crate) fn way<R>(
        &self,
        meta: &Meta,
        key: &[u8; 8],
        pins: &mut Pins,
        look: impl FnOnce(&Leaf<'_>) -> Result<Option<([u8; 8], R)>>,
    ) -> Result<Option<(Path, R)>> {
        if self.is_empty() {
            return Ok(None);
        }
        let mut path = Path::of(self);
        let (frame, place) = self.descend(meta, key, &mut path)?;
        let page = frame.read();
        let node = NodeRef::new(&page);
        let Some((key, seen)) = look(&Leaf { node, place: &place, key })? else { return Ok(None) };
        let at = node.search(&key);
        path.found = at.is_ok();
        let (Ok(index) | Err(index)) = at;
        let alone = !place.has_beside(node, &key, &key);
        drop(page);
        path.set(Step { frame, place, index });
        if alone {
            self.keep_neighbours(meta, &place, pins)?;
        }
        Ok(Some((path, seen)))
    }

    /// The way to where a key is to be inserted, for [`Tree::insert_into`]. `None`: the tree is empty. One walk does for looking whether
    /// it is there, for keeping in memory what changes, and for inserting.
    ///
    /// # Errors
    /// `Corruption` if the key is there; damage and device errors.
    fn way_to_new(&self, meta: &Meta, key: &[u8]) -> Result<Option<Path>> {
        if self.is_empty() {
            return Ok(None);
        }
        let mut path = Path::of(self);
        let (frame, place) = self.descend(meta, key, &mut path)?;
        let at = NodeRef::new(&frame.read()).search(key);
        let Err(index) = at else {
            let found = format!("{key:02x?}");
            return Err(Corruption::new(self.kind.name(), "key", "not there yet", found).into());
        };
        path.set(Step { frame, place, index });
        Ok(Some(path))
    }

    /// Walks to the leaf that holds a key, entering the branches into the path.
    fn descend(&self, meta: &Meta, key: &[u8], path: &mut Path) -> Result<(Frame, Place)> {
        self.check_level()?;
        let mut place = self.root_place(key.len());
        loop {
            let frame = meta.read_any(place.addr)?;
            let page = frame.read();
            let node = self.checked(&page, &place, key.len())?;
            path.sound &= place.cells_that_count(node) == node.count();
            if place.level == 0 {
                drop(page);
                return Ok((frame, place));
            }
            path.sound &= *key >= *node.key(0);
            let index = node.child_for(key);
            let next = place.child(node, index)?;
            drop(page);
            path.set(Step { frame, place, index });
            place = next;
        }
    }

    /// Keeps in memory the leaves beside the one at `place`: one takes over its keys, should all its cells go.
    fn keep_neighbours(&self, meta: &Meta, place: &Place, pins: &mut Pins) -> Result<()> {
        if !place.lower.is_zero() {
            self.leaf(meta, &place.lower, Side::Before, Some(pins))?;
        }
        if let Some(upper) = place.upper {
            self.leaf(meta, &upper, Side::Holding, Some(pins))?;
        }
        Ok(())
    }

    fn check_level(&self) -> Result<()> {
        if self.level > LEVEL_MAX {
            return Err(self.corrupt(self.root, "level", format!("at most {LEVEL_MAX}"), self.level).into());
        }
        Ok(())
    }

    /// The node in `page`, with all checked that a walk relies on.
    fn checked<'p>(
        &self,
        page: &'p Block,
        place: &Place,
        key_width: usize,
    ) -> std::result::Result<NodeRef<'p>, Box<Corruption>> {
        self.expect(place.level).check(page).map_err(|c| c.at(place.addr))?;
        let node = NodeRef::new(page);
        self.check(node, place, key_width)?;
        Ok(node)
    }

    fn check(
        &self,
        node: NodeRef<'_>,
        place: &Place,
        key_width: usize,
    ) -> std::result::Result<(), Box<Corruption>> {
        if node.key_width() != key_width {
            return Err(self.corrupt(place.addr, "key width", key_width, node.key_width()));
        }
        if node.count() == 0 {
            return Ok(());
        }
        let first = node.key(0);
        if *first < *place.lower || (place.level > 0 && !place.is_below_upper(first)) {
            let upper = place.upper.map_or("no bound".into(), |u| format!("{:02x?}", &*u));
            let bounds = format!("from {:02x?} to {upper}, as the parent says", &*place.lower);
            return Err(self.corrupt(place.addr, "first key", bounds, format!("{first:02x?}")));
        }
        Ok(())
    }

    fn corrupt(
        &self,
        addr: MetaAddr,
        field: &'static str,
        expected: impl ToString,
        found: impl ToString,
    ) -> Box<Corruption> {
        Corruption::new(self.kind.name(), field, expected, found).at(addr).of(self.owner)
    }
}
