//! Where a new cell goes: found where that may fail ([`Tree::insert_position`]), used inside an Op
//! ([`Tree::insert_into`]).

use super::change::{Cell, Fill};
use super::delta::TreeDelta;
use super::path::Path;
use super::tree::Tree;
use crate::Result;
use yore_format::EventNo;
use yore_meta::{Meta, Op};

/// Where a new cell goes: at the end of this way (`None`: the way is not known, or the tree is empty), and
/// how to split the leaf if it is full.
pub struct InsertPosition(Option<Box<Path>>, Fill);

impl InsertPosition {
    /// A position that is found only when the cell is inserted.
    pub fn unknown() -> InsertPosition {
        InsertPosition(None, Fill::Halves)
    }

    /// At the end of this way.
    pub(super) fn at(path: Option<Box<Path>>, fill: Fill) -> InsertPosition {
        InsertPosition(path, fill)
    }

    /// The way to it, if it is known.
    pub(super) fn into_path(self) -> Option<Box<Path>> {
        self.0
    }
}

impl Tree {
    /// Where a cell is to be inserted, for [`Tree::insert_into`]. Keeps in memory what the insert needs.
    ///
    /// # Errors
    /// `Corruption` if the key is there; damage and device errors.
    pub fn insert_position(&self, meta: &Meta, key: &[u8]) -> Result<InsertPosition> {
        Ok(InsertPosition(self.path_to_new(meta, key)?, Fill::Halves))
    }

    /// Inside an Op: adds a cell at its insert position. The tree has not changed since the position was
    /// found, or the position is unknown. A node that this needs is born at `birth`.
    pub fn insert_into(
        &mut self,
        op: &mut Op<'_>,
        InsertPosition(path, fill): InsertPosition,
        (key, value): (&[u8], &[u8]),
        birth: EventNo,
    ) -> TreeDelta {
        self.insert_cell(op, path, Cell { key, value, birth, fill }).0
    }
}
