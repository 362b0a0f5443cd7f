//! The list of orphans: inodes without a name that are still in use, and files whose blocks beyond their size
//! are being freed.
//!
//! A tree of the volume lists them from the Op that removes the last name to the Op that frees the inode, so
//! a crash between the two loses nothing: the next mount finds and frees them. `reap.rs` frees them.

use crate::btree::{CellChange, Path, Pins, Tree};
use crate::inode::InodeCell;
use crate::locks::{Locked, OrderedMutex, Rank};
use crate::{Error, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use yore_format::{orphan_value, BlockKind, Corruption, Incarnation, InodeNo};
use yore_meta::{Meta, Op};

/// The orphans of an open volume.
pub struct Orphans {
    /// Guards the tree. Lock order: before any inode's state.
    tree: OrderedMutex,
    /// The inodes that were set aside. This lock is a leaf.
    aside: Mutex<Vec<Arc<InodeCell>>>,
}

impl Default for Orphans {
    fn default() -> Orphans {
        Orphans { tree: OrderedMutex::new(Rank::Orphans), aside: Mutex::default() }
    }
}

impl Orphans {
    /// Waits for the lock on the list.
    pub fn lock(&self) -> OrphansGuard<'_> {
        OrphansGuard { _guard: self.tree.lock() }
    }

    /// Sets an inode aside, to be freed together with others. Returns how many are set aside.
    pub fn set_aside(&self, cell: Arc<InodeCell>) -> usize {
        let mut aside = self.aside.lock();
        aside.push(cell);
        aside.len()
    }

    /// Takes the inodes that were set aside.
    pub fn take_aside(&self) -> Vec<Arc<InodeCell>> {
        std::mem::take(&mut *self.aside.lock())
    }

    /// All inodes in the list, with their incarnations. O(orphans).
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn listed(&self, meta: &Meta) -> Result<Vec<(InodeNo, Incarnation)>> {
        let mut listed = Vec::new();
        tree(meta).scan(meta, &[0; 8], &mut |key, value| {
            let no = key.try_into().map(u64::from_be_bytes).map(InodeNo);
            let incarnation = value.try_into().map(u32::from_le_bytes).map(Incarnation);
            match (no, incarnation) {
                (Ok(no), Ok(incarnation)) => listed.push((no, incarnation)),
                _ => {
                    let found = format!("{key:?} {value:?}");
                    return Err(Corruption::new("orphan", "lengths", "8 and 4", found).into());
                }
            }
            Ok(true)
        })?;
        Ok(listed)
    }
}

/// The right to change the tree of orphans.
pub struct OrphansGuard<'a> {
    _guard: Locked<'a>,
}

/// How many blocks listing one more inode may need, as long as the list does not become a level higher.
pub fn blocks_to_add(meta: &Meta) -> u32 {
    tree(meta).blocks_for_inserts(1)
}

fn tree(meta: &Meta) -> Tree {
    let (root, level) = meta.orphan_root();
    Tree { root, level, ..Tree::empty(BlockKind::Orphans, InodeNo::ORPHANS, Incarnation(0)) }
}

impl OrphansGuard<'_> {
    /// Keeps in memory what adding `no` needs; returns the way to its place, and the blocks to reserve.
    ///
    /// # Errors
    /// `Corruption` if the inode is listed already; damage and device errors.
    pub fn prepare_add(&self, meta: &Meta, no: InodeNo, pins: &mut Pins) -> Result<(Option<Box<Path>>, u32)> {
        let tree = tree(meta);
        let key = no.0.to_be_bytes();
        let path = tree.path_to(meta, &key, pins, |leaf| {
            Ok(Some((key, leaf.cells().next().is_some_and(|(found, _)| *found == key))))
        })?;
        let (path, listed) = path.map_or((None, false), |(path, listed)| (Some(path), listed));
        if listed {
            return Err(not_as_expected("not listed", "listed", no));
        }
        Ok((path, tree.blocks_for_inserts(1)))
    }

    /// Keeps in memory what removing `no` needs; returns the way to its place.
    ///
    /// # Errors
    /// `Corruption` if the inode is not listed; damage and device errors.
    pub fn prepare_remove(&self, meta: &Meta, no: InodeNo, pins: &mut Pins) -> Result<Box<Path>> {
        let key = no.0.to_be_bytes();
        let path = tree(meta).path_to(meta, &key, pins, |leaf| {
            let listed = leaf.cells().next().is_some_and(|(found, _)| *found == key);
            Ok(listed.then_some((key, ())))
        })?;
        path.map(|(path, ())| path).ok_or_else(|| not_as_expected("listed", "not listed", no))
    }

    /// Inside an Op: lists an inode.
    pub fn add(
        &self,
        op: &mut Op<'_>,
        meta: &Meta,
        path: Option<Box<Path>>,
        no: InodeNo,
        incarnation: Incarnation,
    ) -> CellChange {
        let mut tree = tree(meta);
        let (key, value) = (no.0.to_be_bytes(), orphan_value(incarnation));
        let delta = tree.insert_at(op, path, &key, &value, meta.number());
        let root = op.set_orphan_root(tree.root, tree.level);
        delta.stored(op, root)
    }

    /// Inside an Op: takes an inode off the list.
    pub fn remove(&self, op: &mut Op<'_>, meta: &Meta, path: Box<Path>, no: InodeNo) -> CellChange {
        let mut tree = tree(meta);
        let delta = tree.remove_at(op, Some(path), &no.0.to_be_bytes());
        let root = op.set_orphan_root(tree.root, tree.level);
        delta.stored(op, root)
    }
}

fn not_as_expected(expected: &'static str, found: &'static str, no: InodeNo) -> Error {
    Corruption::new("list of orphans", "inode", expected, found).of(no).into()
}
