//! Leaves into which cells went lately: what comes next often goes beside them, and then finds its leaf
//! without a walk from the root.
//!
//! A leaf's address and bounds stay what they are until it is split, merged or removed itself; whatever else
//! is *inserted* changes neither. So whoever keeps [`LeafHints`] beside a tree inserts with
//! [`Tree::insert_into`], which drops a leaf that it splits; and drops all of them before anything is
//! removed. A leaf remembered was sound (T1) when it was walked to, and stays so.
//!
//! They also tell where cells come in ascending order amid the keys that are there, as the names of one
//! directory do among those of others: if the last one went right before, a full leaf is split behind it and
//! stays full.

use super::change::{Cell, Fill};
use super::delta::{Links, TreeDelta};
use super::path::{Path, Step};
use super::tree::Tree;
use crate::Result;
use yore_format::{Corruption, EventNo, NodeMut, NodeRef};
use yore_meta::{Meta, Op};

/// Leaves that are remembered of one tree: so many runs that take turns are followed.
const HINTS: usize = 24;

/// The leaves of one tree into which cells went lately, with the index of the last, the latest at the end.
/// Keeps them in memory.
#[derive(Default)]
pub struct LeafHints(Vec<Step>);

impl LeafHints {
    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Takes the leaf in whose bounds a key is.
    fn take(&mut self, key: &[u8]) -> Option<Step> {
        let at = self.0.iter().rposition(|step| {
            let place = &step.place;
            *place.lower <= *key && place.is_below_upper(key)
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
    /// Where the way leads; `None`: that is not known, or the tree is empty. How to split the leaf if it is
    /// full.
    Way(Option<Path>, Fill),
}

impl InsertPosition {
    /// Somewhere: that is found when the cell is inserted.
    pub fn unknown() -> InsertPosition {
        InsertPosition(Home::Way(None, Fill::Halves))
    }
}

impl Tree {
    /// Where a cell is to be inserted, for [`Tree::insert_into`], with what that takes kept in memory.
    ///
    /// # Errors
    /// `Corruption` if the key is there; damage and device errors.
    pub fn insert_position(&self, meta: &Meta, key: &[u8]) -> Result<InsertPosition> {
        Ok(InsertPosition(Home::Way(self.way_to_new(meta, key)?, Fill::Halves)))
    }

    /// As [`Tree::insert_position`], for a cell with a value of so many bytes, where others may have gone
    /// lately.
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
                // Right behind the one that came last.
                fill = Fill::Run;
            }
            if NodeRef::cell_bytes(key.len(), value_bytes) <= room {
                step.index = index;
                return Ok(InsertPosition(Home::Leaf(step)));
            }
        }
        Ok(InsertPosition(Home::Way(self.way_to_new(meta, key)?, fill)))
    }

    /// Inside an Op: adds a cell where it is to go. The tree is as it was when the position was found, or the
    /// position is unknown. A node that this needs is born at `birth`. If there are hints, they are those of
    /// all its inserts.
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
            Home::Way(path, fill) => {
                let (delta, path) = self.insert_cell(op, path, Cell { key, value, birth, fill });
                if let Some(hints) = hints {
                    // One that was split has other bounds now.
                    drop(hints.take(key));
                    if let Some(step) = path.filter(|_| delta.nodes == 0).and_then(Path::into_leaf) {
                        hints.put(step);
                    }
                }
                delta
            }
        }
    }

    /// Whether a walk leads to where a cell is about to go, as far as the nodes on it are in memory.
    fn leads_to(&self, op: &mut Op<'_>, key: &[u8], to: &Step) -> bool {
        let mut place = self.root_place(key.len());
        loop {
            let Some(frame) = op.cached(place.addr) else { return true };
            let page = frame.read();
            let node = NodeRef::new(&page);
            if place.level == 0 {
                let same = place.lower[..] == to.place.lower[..]
                    && place.upper.as_deref() == to.place.upper.as_deref();
                return same && frame.addr() == to.frame.addr() && node.search(key) == Err(to.index);
            }
            match place.child(node, node.child_for(key)) {
                Ok(next) => place = next,
                Err(_) => return false,
            }
        }
    }
}
