//! Many inserts in one Op, planned beforehand: the plan says which leaf gets which cells, which nodes are
//! split, and what each new node has. So it knows exactly how many blocks they need, and the Op only carries
//! it out: there is one piece of code, and nothing that could come to another count.
//!
//! The plan is valid as long as nobody inserts or removes cells of the tree. It keeps in memory all nodes
//! that change. Cells that are dead may be wiped meanwhile: the plan does not count on where cells lie in a
//! node.
//!
//! A node that cannot take its new cells keeps the first of all of them, and new nodes to its right get the
//! others, about as many each and none fuller than nine tenths. Their cells in the parent are new cells of
//! the parent, and so on up to the root.

use super::delta::{Links, TreeDelta};
use super::nodes::{trim, with_node};
use super::path::{Key, NodePosition};
use super::tree::Tree;
use crate::Result;
use std::collections::VecDeque;
use yore_format::{Corruption, EventNo, MetaAddr, NodeMut, NodeRef, NODE_PAYLOAD_BYTES};
use yore_meta::{Change, Frame, Meta, Op};

/// How full a new node is at most.
const FILL: usize = NODE_PAYLOAD_BYTES / 10 * 9;

/// What a planned cell has.
#[derive(Clone)]
enum Value {
    Bytes(Vec<u8>),
    /// The address of this new node of the plan.
    New(usize),
}

/// A cell of a node as it will be.
#[derive(Clone)]
struct Planned {
    key: Key,
    value: Value,
    /// Whether the node gets it.
    is_new: bool,
}

impl Planned {
    fn bytes(&self) -> usize {
        let value = match &self.value {
            Value::Bytes(bytes) => bytes.len(),
            Value::New(_) => size_of::<u64>(),
        };
        NodeRef::cell_bytes(self.key.len(), value)
    }
}

/// A new node.
struct NewNode {
    level: u8,
    cells: Vec<Planned>,
}

/// A node that is there and gets cells.
struct Changed {
    frame: Frame,
    /// How many of its cells stay: the first ones.
    stay: usize,
    /// Its new cells, each with its index at the end, in ascending order.
    cells: Vec<(usize, Planned)>,
    /// The first key of a branch is to become this (T2).
    lower: Option<Key>,
    /// The new nodes to its right that take over cells.
    right: Vec<usize>,
    is_root: bool,
}

/// Inserts that are planned.
pub struct BatchInsert {
    tree: Tree,
    key_width: usize,
    new: Vec<NewNode>,
    /// Children before their parents.
    changed: Vec<Changed>,
    /// The new root, if there is one.
    root: Option<usize>,
}

impl BatchInsert {
    /// How many blocks the inserts need.
    pub fn blocks(&self) -> u32 {
        self.new.len() as u32
    }
}

impl Tree {
    /// Plans inserting cells, which are at least one, in ascending order of their keys. A cell has at most a
    /// tenth of a node, and the past has no node of the tree.
    ///
    /// # Errors
    /// `Corruption` if a key is there; damage and device errors.
    ///
    /// # Panics
    /// If two cells have one key.
    pub fn plan_inserts(&self, meta: &Meta, cells: Vec<(Vec<u8>, Vec<u8>)>) -> Result<BatchInsert> {
        assert!(self.recorded_until == EventNo(0), "the past has nodes of this tree");
        assert!(cells.windows(2).all(|pair| pair[0].0 < pair[1].0), "cells in ascending order");
        let key_width = cells.first().map_or(0, |(key, _)| key.len());
        let mut plan =
            BatchInsert { tree: *self, key_width, new: Vec::new(), changed: Vec::new(), root: None };
        let mut cells: VecDeque<Planned> = cells
            .into_iter()
            .map(|(key, value)| Planned { key: Key::new(&key), value: Value::Bytes(value), is_new: true })
            .collect();
        if cells.is_empty() {
            return Ok(plan);
        }
        let mut level = self.level;
        let mut of_root = if self.is_empty() {
            let parts = parts(cells.into(), FILL);
            let separators = plan.add_nodes(0, parts);
            separators.into_iter().map(|(key, node)| (key, Value::New(node))).collect()
        } else {
            self.check_level()?;
            let right = plan.node(meta, self.root_position(key_width), &mut cells)?;
            let mut all = vec![(Key::zero(key_width), Value::Bytes(self.root.0.to_le_bytes().to_vec()))];
            all.extend(right.into_iter().map(|(key, node)| (key, Value::New(node))));
            all
        };
        // New roots, until one node has it all.
        while of_root.len() > 1 {
            level += 1;
            of_root[0].0 = Key::zero(key_width);
            let cells: Vec<Planned> =
                of_root.into_iter().map(|(key, value)| Planned { key, value, is_new: true }).collect();
            let separators = plan.add_nodes(level, parts(cells, FILL));
            of_root = separators.into_iter().map(|(key, node)| (key, Value::New(node))).collect();
        }
        plan.tree.level = level;
        plan.root = match of_root.pop() {
            Some((_, Value::New(node))) => Some(node),
            _ => None,
        };
        Ok(plan)
    }

    /// Inside an Op: inserts what was planned. New nodes are born at `birth`.
    ///
    /// # Panics
    /// If the tree has another root than it was planned for.
    pub fn insert_planned(
        &mut self,
        op: &mut Op<'_>,
        plan: BatchInsert,
        birth: EventNo,
    ) -> Option<TreeDelta> {
        let BatchInsert { tree, key_width, new, changed, root } = plan;
        assert!(tree.root == self.root, "the plan is of another tree");
        let mut links = Links::default();
        let mut made: Vec<(MetaAddr, Change)> = Vec::with_capacity(new.len());
        for node in &new {
            let cells: Vec<_> = node.cells.iter().map(|cell| (cell.key, cell.value.resolve(&made))).collect();
            let (addr, image) = self.new_node(op, node.level, birth, key_width, &mut links, |to| {
                for (i, (key, (value, _))) in cells.iter().enumerate() {
                    to.insert(i, key, value);
                }
            });
            for below in cells.iter().filter_map(|(_, (_, image))| *image) {
                op.before(below, image);
            }
            made.push((addr, image));
        }
        let mut last = made.last().map(|(_, image)| *image);
        // The changes that made parents point to new nodes. Parents come first: then a node is trimmed.
        let mut linked: Vec<Option<Change>> = vec![None; new.len()];
        for node in changed.into_iter().rev() {
            if let Some(lower) = node.lower {
                op.change(&node.frame, |page| page.apply(|b| NodeMut::new(b).set_key(0, &lower)));
            }
            if with_node(&node.frame, |n| n.count()) > node.stay {
                let trimmed = trim(op, &node.frame, node.stay);
                for parent in node.right.iter().filter_map(|right| linked[*right]) {
                    op.before(parent, trimmed);
                }
                if node.is_root && !node.right.is_empty() {
                    links.add_after(op, trimmed);
                }
                last = Some(trimmed);
            }
            for (i, cell) in node.cells {
                let (value, image) = cell.value.resolve(&made);
                let ((), change) = op
                    .change(&node.frame, |page| page.apply(|b| NodeMut::new(b).insert(i, &cell.key, &value)));
                if let (Value::New(below), Some(image)) = (&cell.value, image) {
                    op.before(image, change);
                    linked[*below] = Some(change);
                }
                last = Some(change);
            }
        }
        if let Some(root) = root {
            self.root = made[root].0;
            links.add_image(op, made[root].1);
        }
        self.level = tree.level;
        last.map(|change| links.around(change))
    }
}

impl Value {
    /// The bytes, and the image of the node to which they point, if that is new.
    fn resolve(&self, made: &[(MetaAddr, Change)]) -> (Vec<u8>, Option<Change>) {
        match self {
            Value::Bytes(bytes) => (bytes.clone(), None),
            Value::New(node) => {
                let (addr, image) = made[*node];
                (addr.0.to_le_bytes().to_vec(), Some(image))
            }
        }
    }
}

impl BatchInsert {
    /// Plans what the node at `position`, and those below it, get of the cells, and takes these out. Returns
    /// the new nodes to its right, each with its first key.
    fn node(
        &mut self,
        meta: &Meta,
        position: NodePosition,
        cells: &mut VecDeque<Planned>,
    ) -> Result<Vec<(Key, usize)>> {
        let frame = meta.read_any(position.addr)?;
        let page = *frame.read();
        let node = self.tree.checked(&page, &position, self.key_width)?;
        let sound = position.cells_that_count(node);
        let old = |i: usize| Planned {
            key: Key::new(node.key(i)),
            value: Value::Bytes(node.value(i).to_vec()),
            is_new: false,
        };
        let mut merged: Vec<Planned> = Vec::with_capacity(sound + 8);
        let belongs = |cell: Option<&Planned>, position: &NodePosition| {
            cell.is_some_and(|cell| position.is_below_upper(&cell.key))
        };
        if position.level == 0 {
            for i in 0..sound {
                while cells.front().is_some_and(|cell| *cell.key < *node.key(i)) {
                    merged.extend(cells.pop_front());
                }
                if cells.front().is_some_and(|cell| *cell.key == *node.key(i)) {
                    let found = format!("{:02x?}", node.key(i));
                    let error = Corruption::new(self.tree.kind.name(), "key", "not there yet", found);
                    return Err(error.at(position.addr).into());
                }
                merged.push(old(i));
            }
            while belongs(cells.front(), &position) {
                merged.extend(cells.pop_front());
            }
        } else {
            for i in 0..sound {
                merged.push(old(i));
                let child = position.child(node, i)?;
                if belongs(cells.front(), &child) {
                    let right = self.node(meta, child, cells)?;
                    merged.extend(right.into_iter().map(|(key, node)| Planned {
                        key,
                        value: Value::New(node),
                        is_new: true,
                    }));
                }
            }
        }
        let is_low = position.level > 0 && node.count() > 0 && *node.key(0) != *position.lower;
        let lower = is_low.then_some(position.lower);
        Ok(self.change(frame, position.level, sound, (merged, lower)))
    }

    /// Plans that a node has these cells, with new nodes to its right if they are too many.
    fn change(
        &mut self,
        frame: Frame,
        level: u8,
        sound: usize,
        (mut cells, lower): (Vec<Planned>, Option<Key>),
    ) -> Vec<(Key, usize)> {
        if cells.iter().all(|cell| !cell.is_new) {
            return Vec::new();
        }
        let mut right = Vec::new();
        if cells.iter().map(Planned::bytes).sum::<usize>() > NODE_PAYLOAD_BYTES {
            let mut parts = parts(cells, FILL).into_iter();
            cells = parts.next().unwrap_or_default();
            right = self.add_nodes(level, parts.collect());
        }
        let stay = cells.iter().filter(|cell| !cell.is_new).count();
        let is_root = frame.addr() == self.tree.root;
        let cells = cells.into_iter().enumerate().filter(|(_, cell)| cell.is_new).collect();
        let of_right = right.iter().map(|(_, node)| *node).collect();
        debug_assert!(stay <= sound, "cells that the node does not have");
        self.changed.push(Changed { frame, stay, cells, lower, right: of_right, is_root });
        right
    }

    /// Adds new nodes, and returns each with its first key.
    fn add_nodes(&mut self, level: u8, parts: Vec<Vec<Planned>>) -> Vec<(Key, usize)> {
        let first = self.new.len();
        let keys: Vec<Key> = parts.iter().map(|cells| cells[0].key).collect();
        self.new.extend(parts.into_iter().map(|cells| NewNode { level, cells }));
        keys.into_iter().zip(first..).collect()
    }
}

/// Cells in as few parts as can be with at most `fill` bytes on the average, about equally large.
fn parts(cells: Vec<Planned>, fill: usize) -> Vec<Vec<Planned>> {
    let total: usize = cells.iter().map(Planned::bytes).sum();
    let target = total.div_ceil(total.div_ceil(fill).max(1));
    let (mut parts, mut bytes) = (Vec::<Vec<Planned>>::new(), target);
    for cell in cells {
        assert!(cell.bytes() <= NODE_PAYLOAD_BYTES - FILL, "a cell of {} bytes in a batch", cell.bytes());
        if bytes >= target {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += cell.bytes();
        parts.last_mut().expect("pushed above").push(cell);
    }
    parts
}
