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
//! the parent, and so on up to the root. Of a node that can take them, which most can, the plan has the new
//! cells alone.

use super::delta::{Links, TreeDelta};
use super::nodes::with_node;
use super::path::{Key, NodePosition};
use super::tree::Tree;
use crate::Result;
use std::collections::VecDeque;
use std::ops::{Deref, Range};
use yore_format::{Corruption, EventNo, MetaAddr, NodeMut, NodeRef, NODE_PAYLOAD_BYTES};
use yore_meta::{Change, EdgeKind, Frame, Meta, Op};

/// How full a new node is at most.
const FILL: usize = NODE_PAYLOAD_BYTES / 10 * 9;

/// What a planned cell has.
#[derive(Clone)]
enum Value {
    /// These of the plan's values.
    Bytes(Range<usize>),
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
}

/// Inserts that are planned.
pub struct BatchInsert {
    tree: Tree,
    key_width: usize,
    /// The values of cells, one behind the other.
    values: Vec<u8>,
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
    pub fn plan_inserts<K, V>(&self, meta: &Meta, cells: &[(K, V)]) -> Result<BatchInsert>
    where
        K: AsRef<[u8]>,
        V: Deref<Target = [u8]>,
    {
        assert!(self.recorded_until == EventNo(0), "the past has nodes of this tree");
        let ascend = cells.windows(2).all(|pair| pair[0].0.as_ref() < pair[1].0.as_ref());
        assert!(ascend, "cells in ascending order");
        let key_width = cells.first().map_or(0, |(key, _)| key.as_ref().len());
        let mut plan = BatchInsert {
            tree: *self,
            key_width,
            values: Vec::with_capacity(cells.iter().map(|(_, value)| value.len()).sum()),
            new: Vec::new(),
            changed: Vec::with_capacity(cells.len()),
            root: None,
        };
        let mut cells: VecDeque<Planned> = cells
            .iter()
            .map(|(key, value)| Planned {
                key: Key::new(key.as_ref()),
                value: plan.value(value),
                is_new: true,
            })
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
            let mut all = vec![(Key::zero(key_width), plan.value(&self.root.0.to_le_bytes()))];
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
        let BatchInsert { tree, key_width, values, new, changed, root } = plan;
        assert!(tree.root == self.root, "the plan is of another tree");
        if new.is_empty() && changed.is_empty() {
            return None;
        }
        let mut links = Links::default();
        let mut made: Vec<(MetaAddr, Change)> = Vec::with_capacity(new.len());
        for node in &new {
            let (addr, image) = self.new_node(op, node.level, birth, key_width, &mut links, |to| {
                for (i, cell) in node.cells.iter().enumerate() {
                    to.insert(i, &cell.key, cell.value.resolve(&values, &made).bytes());
                }
            });
            for below in node.cells.iter().filter_map(|cell| cell.value.resolve(&values, &made).addr()) {
                op.linked(below, image);
            }
            made.push((addr, image));
        }
        let of_new = new.into_iter().map(|node| node.cells).collect();
        let rest = Rest { values, made, of_new, changed };
        if let Some(root) = root {
            let had_nodes = !self.is_empty();
            self.root = rest.made[root].0;
            links.add_root(self.root);
            if had_nodes {
                // The old root is one of its children, and loses cells: behind the pointer.
                links.add_rest(Box::new(move |op, pointer| rest.carry_out(op, Some((root, pointer)))));
            }
        } else {
            rest.carry_out(op, None);
        }
        self.level = tree.level;
        Some(links.alone())
    }
}

/// What is done with nodes that are there, once the new ones are made.
struct Rest {
    values: Vec<u8>,
    made: Vec<(MetaAddr, Change)>,
    /// The cells of the new nodes.
    of_new: Vec<Vec<Planned>>,
    changed: Vec<Changed>,
}

impl Rest {
    /// Puts the new cells into nodes that are there, from above: a node is trimmed when the nodes to its
    /// right count. `root`: which new node is the root, and the change that has made it count.
    fn carry_out(self, op: &mut Op<'_>, root: Option<(usize, Change)>) {
        let Rest { values, made, of_new, changed } = self;
        // From which change on each new node counts.
        let mut counts: Vec<Option<Change>> = vec![None; made.len()];
        let count = |counts: &mut Vec<Option<Change>>, node: usize, by: Change| {
            let mut left = vec![node];
            while let Some(node) = left.pop() {
                counts[node] = Some(by);
                left.extend(of_new[node].iter().filter_map(|cell| cell.value.node()));
            }
        };
        if let Some((root, pointer)) = root {
            count(&mut counts, root, pointer);
        }
        for node in changed.into_iter().rev() {
            let by = node.right.iter().filter_map(|right| counts[*right]).max();
            if let Some(by) = by {
                op.moved(node.frame.addr(), by);
            }
            let had = with_node(&node.frame, |n| n.count());
            let ((), change) = op.change(&node.frame, |page| {
                if let Some(lower) = &node.lower {
                    page.set_key(0, lower);
                }
                for i in (node.stay..had).rev() {
                    page.apply(|b| NodeMut::new(b).remove(i));
                }
                for (i, cell) in &node.cells {
                    let value = cell.value.resolve(&values, &made);
                    page.apply(|b| NodeMut::new(b).insert(*i, &cell.key, value.bytes()));
                }
            });
            if let Some(by) = by {
                op.edge(EdgeKind::Trimmed, by, change);
            }
            for below in node.cells.iter().filter_map(|(_, cell)| cell.value.node()) {
                op.linked(made[below].0, change);
                count(&mut counts, below, change);
            }
        }
    }
}

/// The bytes of a cell in an Op.
enum Resolved<'p> {
    Bytes(&'p [u8]),
    /// The address of a new node.
    New([u8; size_of::<u64>()]),
}

impl Resolved<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Resolved::Bytes(bytes) => bytes,
            Resolved::New(addr) => addr,
        }
    }

    fn addr(&self) -> Option<MetaAddr> {
        match self {
            Resolved::Bytes(_) => None,
            Resolved::New(addr) => Some(MetaAddr(u64::from_le_bytes(*addr))),
        }
    }
}

impl Value {
    fn resolve<'p>(&self, values: &'p [u8], made: &[(MetaAddr, Change)]) -> Resolved<'p> {
        match self {
            Value::Bytes(range) => Resolved::Bytes(&values[range.clone()]),
            Value::New(node) => Resolved::New(made[*node].0 .0.to_le_bytes()),
        }
    }

    /// The new node that it points to.
    fn node(&self) -> Option<usize> {
        match self {
            Value::Bytes(_) => None,
            Value::New(node) => Some(*node),
        }
    }
}

impl BatchInsert {
    /// Keeps a value.
    fn value(&mut self, bytes: &[u8]) -> Value {
        let from = self.values.len();
        self.values.extend_from_slice(bytes);
        Value::Bytes(from..self.values.len())
    }

    /// A cell of a node as it is.
    fn old(&mut self, node: NodeRef<'_>, i: usize) -> Planned {
        Planned { key: Key::new(node.key(i)), value: self.value(node.value(i)), is_new: false }
    }

    /// The same of a leaf, whose cells must be as small as those that are inserted.
    fn old_of_leaf(&mut self, node: NodeRef<'_>, i: usize, position: &NodePosition) -> Result<Planned> {
        let (old, most) = (self.old(node, i), NODE_PAYLOAD_BYTES - FILL);
        if old.bytes() > most {
            let (expected, found) = (format!("at most {most} bytes"), old.bytes());
            return Err(Corruption::new(self.tree.kind.name(), "cell", expected, found)
                .at(position.addr)
                .into());
        }
        Ok(old)
    }

    /// Plans what the node at `position`, and those below it, get of the cells, and takes these out. Returns
    /// the new nodes to its right, each with its first key.
    fn node(
        &mut self,
        meta: &Meta,
        position: NodePosition,
        cells: &mut VecDeque<Planned>,
    ) -> Result<Vec<(Key, usize)>> {
        let frame = meta.read_any(position.addr)?;
        if position.level == 0 {
            return self.leaf(frame, &position, cells);
        }
        let page = *frame.read();
        let node = self.tree.checked(&page, &position, self.key_width)?;
        // The new nodes, each group with the index of the child to whose right they are.
        let mut new: Vec<(usize, Vec<(Key, usize)>)> = Vec::new();
        while let Some(first) = cells.front().filter(|cell| position.is_below_upper(&cell.key)) {
            let i = node.child_for(&first.key);
            let right = self.node(meta, position.child(node, i)?, cells)?;
            if !right.is_empty() {
                new.push((i, right));
            }
        }
        if new.is_empty() {
            return Ok(Vec::new());
        }
        let sound = position.cells_that_count(node);
        let (mut merged, mut new) = (Vec::with_capacity(sound + 8), new.into_iter().peekable());
        for i in 0..sound {
            merged.push(self.old(node, i));
            let right = new.next_if(|(of, _)| *of == i).map_or(Vec::new(), |(_, right)| right);
            merged.extend(right.into_iter().map(|(key, node)| Planned {
                key,
                value: Value::New(node),
                is_new: true,
            }));
        }
        let is_low = node.count() > 0 && *node.key(0) != *position.lower;
        let lower = is_low.then_some(position.lower);
        Ok(self.change(frame, position.level, sound, (merged, lower)))
    }

    /// The same of a leaf.
    fn leaf(
        &mut self,
        frame: Frame,
        position: &NodePosition,
        cells: &mut VecDeque<Planned>,
    ) -> Result<Vec<(Key, usize)>> {
        let page = frame.read();
        let node = self.tree.checked(&page, position, self.key_width)?;
        let sound = position.cells_that_count(node);
        let (mut count, mut bytes) = (0, 0);
        for cell in cells.iter().take_while(|cell| position.is_below_upper(&cell.key)) {
            (count, bytes) = (count + 1, bytes + cell.bytes());
        }
        let mut new = Vec::with_capacity(count);
        for (before, cell) in cells.drain(..count).enumerate() {
            let at = match node.search(&cell.key) {
                Err(at) => at,
                // A cell that does not count is one that an interrupted split left here (T1).
                Ok(at) if at >= sound => at,
                Ok(_) => {
                    let found = format!("{:02x?}", &*cell.key);
                    let error = Corruption::new(self.tree.kind.name(), "key", "not there yet", found);
                    return Err(error.at(position.addr).into());
                }
            };
            new.push((at.min(sound) + before, cell));
        }
        if sound == node.count() && bytes <= node.free_bytes() {
            drop(page);
            self.changed.push(Changed { frame, stay: sound, cells: new, lower: None, right: Vec::new() });
            return Ok(Vec::new());
        }
        let (mut merged, mut new) = (Vec::with_capacity(sound + count), new.into_iter().peekable());
        for i in 0..sound + count {
            let cell = match new.next_if(|(at, _)| *at == i) {
                Some((_, cell)) => cell,
                None => self.old_of_leaf(node, i - (count - new.len()), position)?,
            };
            merged.push(cell);
        }
        drop(page);
        Ok(self.change(frame, 0, sound, (merged, None)))
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
        let cells = cells.into_iter().enumerate().filter(|(_, cell)| cell.is_new).collect();
        let of_right = right.iter().map(|(_, node)| *node).collect();
        debug_assert!(stay <= sound, "cells that the node does not have");
        self.changed.push(Changed { frame, stay, cells, lower, right: of_right });
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
