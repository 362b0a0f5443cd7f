//! Hints of leaves into which cells went lately: what comes next often goes beside them, and then finds its
//! leaf without a walk from the root.
//!
//! A leaf keeps its address and bounds until it is split, merged or removed itself; *inserts* elsewhere
//! change neither. So whoever keeps [`LeafHints`] beside a tree inserts with [`Tree::insert_into`], which
//! drops a leaf that it splits, and drops all hints before it removes anything. A remembered leaf was sound
//! (T1) when a walk came to it, and stays so.
//!
//! Hints also show where cells come in ascending order amid existing keys, as the names of one directory do
//! among those of others: if the last cell went right before, a full leaf is split behind it and stays full.

use super::change::{Cell, Fill};
use super::delta::{Links, TreeDelta};
use super::path::{Path, Step};
use super::tree::Tree;
use crate::Result;
use yore_format::{Corruption, EventNo, NodeMut, NodeRef};
use yore_meta::{Meta, Op};

/// How many leaves of one tree are remembered, and so how many runs can take turns.
const HINTS: usize = 24;

/// The leaves of one tree into which cells went lately, each with the index of its last cell, the latest leaf
/// at the end. Keeps the leaves in memory.
#[derive(Default)]
pub struct LeafHints(Vec<Step>);

impl LeafHints {
    /// Drops all hints.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Takes out the leaf whose bounds hold a key.
    fn take(&mut self, key: &[u8]) -> Option<Step> {
        let at = self.0.iter().rposition(|step| {
            let position = &step.position;
            *position.lower <= *key && position.is_below_upper(key)
        })?;
        Some(self.0.remove(at))
    }

    fn put(&mut self, step: Step) {
        if self.0.len() == HINTS {
            self.0.remove(0);
        }
        self.0.push(step);
    }
}

/// Where a new cell goes.
pub struct InsertPosition(Home);

enum Home {
    /// Into this leaf, which has room for it.
    Leaf(Step),
    /// At the end of this way (`None`: the way is not known, or the tree is empty), and how to split the leaf
    /// if it is full.
    Path(Option<Box<Path>>, Fill),
}

impl InsertPosition {
    /// A position that is found only when the cell is inserted.
    pub fn unknown() -> InsertPosition {
        InsertPosition(Home::Path(None, Fill::Halves))
    }

    /// At the end of this way.
    pub(super) fn at(path: Option<Box<Path>>, fill: Fill) -> InsertPosition {
        InsertPosition(Home::Path(path, fill))
    }

    /// The way to it, if it is known.
    pub(super) fn into_path(self) -> Option<Box<Path>> {
        match self.0 {
            Home::Leaf(_) => None,
            Home::Path(path, _) => path,
        }
    }
}

impl Tree {
    /// Where a cell is to be inserted, for [`Tree::insert_into`]. Keeps in memory what the insert needs.
    ///
    /// # Errors
    /// `Corruption` if the key is there; damage and device errors.
    pub fn insert_position(&self, meta: &Meta, key: &[u8]) -> Result<InsertPosition> {
        Ok(InsertPosition(Home::Path(self.path_to_new(meta, key)?, Fill::Halves)))
    }

    /// As [`Tree::insert_position`], for a cell with a value of `bytes` bytes, near which other cells may
    /// have gone lately.
    pub fn insert_position_near(
        &self,
        meta: &Meta,
        hints: &mut LeafHints,
        key: &[u8],
        value_bytes: usize,
    ) -> Result<InsertPosition> {
        let mut fill = Fill::Halves;
        if let Some(mut step) = hints.take(key) {
            let (at, room) = {
                let page = step.frame.read();
                let node = NodeRef::new(&page);
                (node.search(key), node.free_bytes())
            };
            let Err(index) = at else {
                let found = format!("{key:02x?}");
                return Err(Corruption::new(self.kind.name(), "key", "not there yet", found).into());
            };
            if index == step.index + 1 {
                // Right behind the cell that came last.
                fill = Fill::Run;
            }
            if NodeRef::cell_bytes(key.len(), value_bytes) <= room {
                step.index = index;
                return Ok(InsertPosition(Home::Leaf(step)));
            }
        }
        Ok(InsertPosition(Home::Path(self.path_to_new(meta, key)?, fill)))
    }

    /// Inside an Op: adds a cell at its insert position. The tree has not changed since the position was
    /// found, or the position is unknown. A node that this needs is born at `birth`. If there are hints,
    /// every insert into the tree uses the same ones.
    pub fn insert_into(
        &mut self,
        op: &mut Op<'_>,
        hints: Option<&mut LeafHints>,
        InsertPosition(home): InsertPosition,
        (key, value): (&[u8], &[u8]),
        birth: EventNo,
    ) -> TreeDelta {
        match home {
            Home::Leaf(step) => {
                debug_assert!(self.leads_to(op, key, &step), "{key:02x?} belongs to another leaf");
                let ((), change) = op.change(&step.frame, |page| {
                    page.apply(|b| NodeMut::new(b).insert(step.index, key, value));
                });
                if let Some(hints) = hints {
                    hints.put(step);
                }
                Links::default().around(change)
            }
            Home::Path(path, fill) => {
                let (delta, path, _) = self.insert_cell(op, path, Cell { key, value, birth, fill });
                if let Some(hints) = hints {
                    // A leaf that was split has other bounds now.
                    drop(hints.take(key));
                    if let Some(step) = path.filter(|_| delta.nodes == 0).and_then(|path| path.into_leaf()) {
                        hints.put(step);
                    }
                }
                delta
            }
        }
    }

    /// Whether a walk leads to the leaf where a cell is about to go, as far as the nodes on it are in memory.
    fn leads_to(&self, op: &mut Op<'_>, key: &[u8], to: &Step) -> bool {
        let mut position = self.root_position(key.len());
        loop {
            let Some(frame) = op.cached(position.addr) else { return true };
            let page = frame.read();
            let node = NodeRef::new(&page);
            if position.level == 0 {
                let same = position.lower[..] == to.position.lower[..]
                    && position.upper.as_deref() == to.position.upper.as_deref();
                return same && frame.addr() == to.frame.addr() && node.search(key) == Err(to.index);
            }
            match position.child(node, node.child_for(key)) {
                Ok(next) => position = next,
                Err(_) => return false,
            }
        }
    }
}
