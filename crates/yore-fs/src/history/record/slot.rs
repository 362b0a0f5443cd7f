//! The insert position of a cell in a tree of the past: found where that may fail ([`Past::slot`]), used
//! inside an Op ([`Slot::insert`]).

use super::past::{Past, CELL_BLOCKS};
use crate::Result;
use yore_core::btree::{InsertPosition, LeafHints, Tree};
use yore_format::{Corruption, EventNo, HistoryTree};
use yore_meta::{Change, Meta, Op};

impl Past {
    /// Keeps in memory what inserting `key` touches. Fails if the insert may take more than `most` blocks.
    pub(super) fn slot(&self, meta: &Meta, which: HistoryTree, key: &[u8], most: u32) -> Result<Slot> {
        let tree = self.tree_with_room(which, most)?;
        Ok(Slot { which, position: tree.insert_position(meta, key)?, tree })
    }

    /// As [`Past::slot`], in a tree of a shard, for a cell with a value of this many bytes.
    pub(super) fn slot_near(
        &self,
        meta: &Meta,
        which: HistoryTree,
        hints: &mut LeafHints,
        (key, value_bytes): (&[u8], usize),
    ) -> Result<Slot> {
        let tree = self.tree_with_room(which, CELL_BLOCKS)?;
        Ok(Slot { which, position: tree.insert_position_near(meta, hints, key, value_bytes)?, tree })
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

    /// Enters the cell, inside an Op, with the tree unchanged since. For a tree of a shard, the caller has
    /// called [`Shard::clear_hints`] before.
    pub(super) fn insert(
        self,
        past: &Past,
        op: &mut Op<'_>,
        key: &[u8],
        value: &[u8],
        birth: EventNo,
    ) -> Change {
        self.insert_near(past, op, None, (key, value), birth)
    }

    pub(super) fn insert_near(
        mut self,
        past: &Past,
        op: &mut Op<'_>,
        hints: Option<&mut LeafHints>,
        cell: (&[u8], &[u8]),
        birth: EventNo,
    ) -> Change {
        let was = self.tree;
        let delta = self.tree.insert_into(op, hints, self.position, cell, birth);
        if self.tree != was || delta.nodes != 0 {
            past.store(op, self.which, &self.tree, &delta);
        }
        delta.change
    }
}

/// Fails if what is to be given up is not there, which only damage can cause.
pub(super) fn check_there(meta: &Meta, tree: &Tree, key: &[u8]) -> Result<()> {
    match tree.get(meta, key, |found| found.is_some())? {
        true => Ok(()),
        false => Err(Corruption::new(tree.kind.name(), "key", format!("{key:02x?}"), "not there").into()),
    }
}
