//! The position of a walk: keys, the bounds of nodes, and the way from the root to a leaf.

use yore_format::{Corruption, MetaAddr, NodeRef};
use yore_meta::Frame;

pub(super) const KEY_BYTES_MAX: usize = 24;
/// A copy of a key.
#[derive(Clone, Copy)]
pub(super) struct Key {
    bytes: [u8; KEY_BYTES_MAX],
    len: u8,
}

impl Key {
    pub(super) fn new(key: &[u8]) -> Key {
        let mut bytes = [0; KEY_BYTES_MAX];
        match <&[u8; 8]>::try_from(key) {
            Ok(key) => bytes[..8].copy_from_slice(key), // Nearly always, and then one move.
            Err(_) => bytes[..key.len()].copy_from_slice(key),
        }
        Key { bytes, len: key.len() as u8 }
    }

    pub(super) fn zero(len: usize) -> Key {
        Key { bytes: [0; KEY_BYTES_MAX], len: len as u8 }
    }

    pub(super) fn is_zero(&self) -> bool {
        self.bytes == [0; KEY_BYTES_MAX]
    }
}

impl std::ops::Deref for Key {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The position of a walk: a node's address, and what its parent says of the node.
#[derive(Clone, Copy)]
pub(super) struct NodePosition {
    pub(super) addr: MetaAddr,
    pub(super) level: u8,
    pub(super) lower: Key,
    pub(super) upper: Option<Key>,
}

impl NodePosition {
    /// Child `i` of the branch `node`, which is at this place.
    pub(super) fn child(
        &self,
        node: NodeRef<'_>,
        i: usize,
    ) -> std::result::Result<NodePosition, Box<Corruption>> {
        let lower = if i == 0 { self.lower } else { Key::new(node.key(i)) };
        let mut upper = self.upper;
        if i + 1 < node.count() && upper.is_none_or(|u| *node.key(i + 1) < *u) {
            upper = Some(Key::new(node.key(i + 1)));
        }
        Ok(NodePosition { addr: node.child(i)?, level: self.level - 1, lower, upper })
    }

    pub(super) fn is_below_upper(&self, key: &[u8]) -> bool {
        self.upper.is_none_or(|u| *key < *u)
    }

    /// Whether cells with keys below `first` or above `last` stay in the leaf `node`, which is at this place,
    /// whatever happens to the keys between.
    pub(super) fn has_beside(&self, node: NodeRef<'_>, first: &[u8], last: &[u8]) -> bool {
        let end = self.cells_that_count(node);
        node.count() > 0 && *node.key(0) < *first || end > 0 && *node.key(end - 1) > *last
    }

    /// How many cells of the node have keys that count, which are those below the upper bound (T1). They are
    /// the first cells.
    pub(super) fn cells_that_count(&self, node: NodeRef<'_>) -> usize {
        let count = node.count();
        match self.upper {
            None => count,
            Some(_) => (0..count).rfind(|i| self.is_below_upper(node.key(*i))).map_or(0, |i| i + 1),
        }
    }
}

/// A node on the way to a key, with the index of the child taken, or of the key's place in the leaf.
pub(super) struct Step {
    pub(super) frame: Frame,
    pub(super) position: NodePosition,
    pub(super) index: usize,
}

/// Levels of a path that take no more heap memory than the path itself: more than the trees of nearly all
/// directories and files have.
const NEAR: usize = 3;

/// The way from the root to a leaf, by level. Keeps its nodes in memory.
pub struct Path {
    near: [Option<Step>; NEAR],
    far: Vec<Option<Step>>,
    /// Whether the leaf has the key.
    pub(super) found: bool,
    /// Whether the way needs no repair before it is changed (T1, T2).
    pub(super) sound: bool,
}

impl Path {
    /// An empty path of a tree with this root level. Boxed: it is half a kilobyte, and calls hand it from
    /// step to step.
    pub(super) fn of(level: u8) -> Box<Path> {
        let far = (NEAR..usize::from(level) + 1).map(|_| None).collect();
        Box::new(Path { near: [const { None }; NEAR], far, found: false, sound: true })
    }

    /// The root's level.
    pub(super) fn level(&self) -> u8 {
        match self.far.len() {
            0 => self.near.iter().rposition(Option::is_some).map_or(0, |level| level as u8),
            far => (NEAR + far) as u8 - 1,
        }
    }

    pub(super) fn at(&self, level: u8) -> &Step {
        let level = usize::from(level);
        let step = if level < NEAR { &self.near[level] } else { &self.far[level - NEAR] };
        step.as_ref().expect("a walk passes every level")
    }

    pub(super) fn set(&mut self, step: Step) {
        let level = usize::from(step.position.level);
        *if level < NEAR { &mut self.near[level] } else { &mut self.far[level - NEAR] } = Some(step);
    }

    pub(super) fn set_index(&mut self, index: usize) {
        self.near[0].as_mut().expect("a walk ends at a leaf").index = index;
    }
}

/// Keeps blocks in memory.
#[derive(Default)]
pub struct Pins(Vec<Frame>);

impl Pins {
    /// Nothing yet.
    pub fn new() -> Pins {
        Pins::default()
    }

    /// The blocks.
    pub(super) fn frames(&self) -> &[Frame] {
        &self.0
    }

    /// Keeps this block, too.
    pub(crate) fn add(&mut self, frame: &Frame) {
        if !self.0.iter().rev().any(|f| f.addr() == frame.addr()) {
            self.0.push(frame.clone());
        }
    }
}
