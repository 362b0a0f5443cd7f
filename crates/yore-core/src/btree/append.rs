//! Appending: cells with keys greater than all that the tree has. Memory keeps the last leaf, so that a cell
//! that has room there needs neither a walk nor a search.
//!
//! The last leaf stays the last one, whatever is inserted: an append that splits it makes another one, and
//! that is the last leaf from then on. Who removes something drops it first, for then it may be merged. As
//! long as it is known, nobody but [`LastLeaf::append`] and [`Tree::append`] inserts into the tree.
//!
//! A leaf that is full is done: the call that fills the next one does not need it, and who reads it later
//! reads it once. So it is the first to leave memory when it has been written. Otherwise the rows of a busy
//! hour would take the room of what the present needs.

use super::change::{Cell, Fill};
use super::delta::TreeDelta;
use super::position::InsertPosition;
use super::tree::Tree;
use crate::Result;
use yore_format::{EventNo, NodeMut, NodeRef};
use yore_meta::{Change, Frame, Meta, Op};

/// The last leaf of a tree to which cells are appended, if it is known. Keeps it in memory.
#[derive(Default)]
pub struct LastLeaf(Option<Frame>);

impl LastLeaf {
    /// Drops it.
    pub fn clear(&mut self) {
        self.0 = None;
    }

    /// Whether it is known and has room for cells with values of so many bytes, with keys of this width.
    pub fn has_room(&self, key_width: usize, values: impl Iterator<Item = usize>) -> bool {
        let bytes: usize = values.map(|value| NodeRef::cell_bytes(key_width, value)).sum();
        self.0.as_ref().is_some_and(|leaf| bytes <= NodeRef::new(&leaf.read()).free_bytes())
    }

    /// Inside an Op: appends a cell for which there is room.
    ///
    /// # Panics
    /// If there is none, or the leaf is not known.
    pub fn append(&self, op: &mut Op<'_>, key: &[u8], value: &[u8]) -> Change {
        let leaf = self.0.as_ref().expect("known, since it had room");
        let insert = |b: &mut _| {
            let mut node = NodeMut::new(b);
            let count = node.as_ref().count();
            debug_assert!(count == 0 || node.as_ref().key(count - 1) < key, "{key:02x?} is not the last key");
            node.insert(count, key, value)
        };
        op.change(leaf, |page| page.apply(insert)).1
    }
}

impl Tree {
    /// Where a cell goes that is to be appended, for [`Tree::append`]. Keeps in memory what that needs.
    ///
    /// # Errors
    /// `Corruption` if the key is there; damage and device errors.
    pub fn append_position(&self, meta: &Meta, key: &[u8]) -> Result<InsertPosition> {
        Ok(InsertPosition::at(self.path_to_new(meta, key)?, Fill::Run))
    }

    /// Inside an Op: appends a cell at its position. The tree has not changed since the position was found,
    /// or the position is unknown, and the key prepared. A node that this needs is born at `birth`.
    pub fn append(
        &mut self,
        op: &mut Op<'_>,
        last: &mut LastLeaf,
        position: InsertPosition,
        (key, value): (&[u8], &[u8]),
        birth: EventNo,
    ) -> TreeDelta {
        let cell = Cell { key, value, birth, fill: Fill::Run };
        let (delta, _, home) = self.insert_cell(op, position.into_path(), cell);
        let before = std::mem::replace(&mut last.0, op.cached(home));
        if let Some(full) = before.filter(|leaf| leaf.addr() != home) {
            full.evict_soon();
        }
        delta
    }
}
