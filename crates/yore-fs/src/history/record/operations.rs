//! The tree of operations: who did what to the past, and what a full volume gave up. It is for people;
//! nothing else depends on it.
//!
//! **O1 Bounded.** Each class keeps its last [`ROWS_MAX`] rows. So nobody can fill a volume with them, and a
//! user who does much cannot push out the record that history was given up. The oldest row goes first, in an
//! Op of its own: a crash between the two Ops leaves one row less.

use super::past::{Past, CELL_BLOCKS};
use crate::Result;
use yore_core::btree::Pins;
use yore_core::Core;
use yore_format::{
    key_parts, operation_key, Corruption, EventNo, GroupNo, HistoryTree, OperationRow, RowClass,
    WriteFeatures,
};
use yore_meta::Meta;

/// How many rows of each class a volume keeps.
pub(crate) const ROWS_MAX: u64 = 4096;
/// Blocks that a row may need: a cell, and the first time the block of roots.
const ROW_BLOCKS: u32 = CELL_BLOCKS + 1;

impl Past {
    /// Adds a row to the list of a class. Not durable by itself. It uses the space that deleting may use, so
    /// it works on a full volume. The caller holds no lock. O(log rows).
    ///
    /// # Errors
    /// `ReadOnly`, `NoSpace`; damage and device errors.
    pub(crate) fn note_operation(&self, store: &Core, class: RowClass, row: &OperationRow) -> Result<()> {
        let meta = &store.meta;
        meta.extend(WriteFeatures::EXTENDED_PAST)?;
        self.extend_for_annals(meta)?;
        let _events = self.events.write();
        let _operations = self.operations.write();
        let next = self.last_operation(meta, class)? + 1;
        self.drop_oldest_operation(store, class, next)?;
        let reserved = store.reserve_freely(GroupNo(0), ROW_BLOCKS)?;
        let key = operation_key(class, next);
        let mut tree = self.tree(HistoryTree::Operations);
        if tree.blocks_for_inserts(1) > CELL_BLOCKS {
            let expected = format!("at most {}", CELL_BLOCKS - 2);
            return Err(Corruption::new("operations", "level", expected, tree.level).into());
        }
        let mut pins = Pins::new();
        tree.prepare(meta, &key, &key, &mut pins)?;
        let mut op = meta.begin(reserved);
        self.make_roots(&mut op, meta.has_features(WriteFeatures::ANNALS));
        let delta = tree.insert(&mut op, &key, &row.encode(), EventNo(0));
        self.store(&mut op, HistoryTree::Operations, &tree, delta);
        Ok(())
    }

    /// The sequence of the last row of a class, or 0.
    fn last_operation(&self, meta: &Meta, class: RowClass) -> Result<u64> {
        let tree = self.tree(HistoryTree::Operations);
        let most = operation_key(class, u64::MAX);
        let found =
            tree.floor(meta, &most, |cell| cell.map(|(key, _)| key_parts::<2>(key)).transpose())??;
        match found {
            Some([of, u64::MAX]) if of == class as u64 => {
                Err(Corruption::new("operation", "sequence", "one that others can follow", u64::MAX).into())
            }
            Some([of, sequence]) if of == class as u64 => Ok(sequence),
            _ => Ok(0),
        }
    }

    /// Removes the first row of a class if a row with the sequence `next` would be one too many.
    fn drop_oldest_operation(&self, store: &Core, class: RowClass, next: u64) -> Result<()> {
        let meta = &store.meta;
        let mut first = None;
        self.scan_operations(meta, class, &mut |sequence, _| {
            first = Some(sequence);
            Ok(false)
        })?;
        let Some(first) = first.filter(|first| next - first >= ROWS_MAX) else { return Ok(()) };
        let reserved = store.reserve_freely(GroupNo(0), 0)?;
        let key = operation_key(class, first);
        let mut tree = self.tree(HistoryTree::Operations);
        let mut pins = Pins::new();
        tree.prepare(meta, &key, &key, &mut pins)?;
        let mut op = meta.begin(reserved);
        let delta = tree.remove(&mut op, &key);
        self.store(&mut op, HistoryTree::Operations, &tree, delta);
        Ok(())
    }

    /// The rows of a class with their sequences, the oldest first. O(rows).
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn operations(&self, meta: &Meta, class: RowClass) -> Result<Vec<(u64, OperationRow)>> {
        let _operations = self.operations.read();
        let mut rows = Vec::new();
        self.scan_operations(meta, class, &mut |sequence, value| {
            rows.push((sequence, OperationRow::decode(value)?));
            Ok(true)
        })?;
        Ok(rows)
    }

    fn scan_operations(
        &self,
        meta: &Meta,
        class: RowClass,
        each: &mut dyn FnMut(u64, &[u8]) -> Result<bool>,
    ) -> Result<()> {
        let from = operation_key(class, 0);
        self.tree(HistoryTree::Operations).scan(meta, &from, &mut |key, value| {
            let [of, sequence] = key_parts::<2>(key)?;
            match of == class as u64 {
                true => each(sequence, value),
                false => Ok(false),
            }
        })
    }
}
