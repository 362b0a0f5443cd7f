//! The insert position of a cell in a tree of the past: found where that may fail ([`Past::slot`]), used
//! inside an Op ([`Slot::insert`]).

use super::past::Past;
use crate::Result;
use yore_core::btree::{InsertPosition, Tree};
use yore_format::{Corruption, EventNo, HistoryTree};
use yore_meta::{Change, Meta, Op};

impl Past {
    /// Keeps in memory what inserting `key` touches. Fails if the insert may take more than `most` blocks.
    pub(super) fn slot(&self, meta: &Meta, which: HistoryTree, key: &[u8], most: u32) -> Result<Slot> {
        let tree = self.tree_with_room(which, most)?;
        Ok(Slot { which, position: tree.insert_position(meta, key)?, tree })
    }

    /// A tree into which an insert takes at most this many blocks.
    pub(super) fn tree_with_room(&self, which: HistoryTree, most: u32) -> Result<Tree> {
        let tree = self.tree(which);
        if tree.blocks_for_inserts(1) > most {
            let expected = format!("at most {}", most - 2);
            return Err(Corruption::new(which.kind().name(), "level", expected, tree.level).into());
        }
        Ok(tree)
    }
}

/// The insert position of a cell. The key must not exist in the tree yet; only damage can have put it there.
pub(super) struct Slot {
    which: HistoryTree,
    pub(super) tree: Tree,
    position: InsertPosition,
}

impl Slot {
    /// A slot that searches for its position when the cell is inserted.
    pub(super) fn unknown(past: &Past, which: HistoryTree) -> Slot {
        Slot { which, tree: past.tree(which), position: InsertPosition::unknown() }
    }

    /// Enters the cell, inside an Op, with the tree unchanged since.
    pub(super) fn insert(
        mut self,
        past: &Past,
        op: &mut Op<'_>,
        key: &[u8],
        value: &[u8],
        birth: EventNo,
    ) -> Change {
        let delta = self.tree.insert_into(op, self.position, (key, value), birth);
        past.store_cell(op, self.which, &self.tree, delta)
    }
}

/// Fails if what is to be given up is not there, which only damage can cause.
pub(super) fn check_there(meta: &Meta, tree: &Tree, key: &[u8]) -> Result<()> {
    match tree.get(meta, key, |found| found.is_some())? {
        true => Ok(()),
        false => Err(Corruption::new(tree.kind.name(), "key", format!("{key:02x?}"), "not there").into()),
    }
}
