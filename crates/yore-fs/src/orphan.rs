//! Orphans: inodes without a name that are still in use, and files whose blocks beyond their size are being freed.
//!
//! They are listed in a tree of the volume from the Op that takes the last name to the one that frees the inode, so a
//! crash between the two loses nothing: the next mount finds and frees them. Freeing a large file is a chain of Ops.
//!
//! Under a mount nearly every file takes this way: the kernel still remembers it when its last name goes, and forgets it
//! right after. So small ones are *set aside* when they are let go of: what they have in memory is forgotten and they
//! answer as stale at once, but the inodes are freed many together, by whoever sets the last of a batch aside, by
//! housekeeping, and before anybody counts or syncs ([`free_set_aside`]). The tree of orphans then does not grow its root
//! and lose it again with each file.

use crate::btree::{Path, Pins, Tree};
use crate::inode::{self, InodeCell};
use crate::locks::{Locked, OrderedMutex, Rank};
use crate::store::Store;
use crate::{file, xattr, Error, Result};
use parking_lot::Mutex;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use yore_format::{orphan_value, BlockKind, ContentKind, Corruption, Incarnation, InodeNo};
use yore_meta::{Change, Op};

/// Inodes set aside that are freed together.
const BATCH: usize = 64;

/// The orphans of an open volume.
pub(crate) struct Orphans {
    /// Guards the tree. Lock order: before any inode's state.
    tree: OrderedMutex,
    /// Those set aside. A leaf.
    aside: Mutex<Vec<Arc<InodeCell>>>,
}

impl Default for Orphans {
    fn default() -> Orphans {
        Orphans { tree: OrderedMutex::new(Rank::Orphans), aside: Mutex::default() }
    }
}

impl Orphans {
    pub(crate) fn lock(&self) -> OrphansGuard<'_> {
        OrphansGuard { _guard: self.tree.lock() }
    }
}

/// The right to change the tree of orphans.
pub(crate) struct OrphansGuard<'a> {
    _guard: Locked<'a>,
}

fn tree(store: &Store) -> Tree {
    let (root, level) = store.meta.orphan_root();
    Tree { root, level, ..Tree::empty(BlockKind::Orphans, InodeNo::ORPHANS, Incarnation(0)) }
}

impl OrphansGuard<'_> {
    /// Keeps in memory what adding `no` needs; returns the way to its place, and the blocks to reserve.
    ///
    /// # Errors
    /// `Corruption` if it is listed already; damage and device errors.
    pub(crate) fn prepare_add(
        &self,
        store: &Store,
        no: InodeNo,
        pins: &mut Pins,
    ) -> Result<(Option<Path>, u32)> {
        let tree = tree(store);
        let key = no.0.to_be_bytes();
        let way = tree.way(&store.meta, &key, pins, |leaf| {
            Ok(Some((key, leaf.cells().next().is_some_and(|(found, _)| *found == key))))
        })?;
        let (way, listed) = way.map_or((None, false), |(way, listed)| (Some(way), listed));
        if listed {
            return Err(not_as_expected("not listed", "listed", no));
        }
        Ok((way, tree.blocks_for_inserts(1)))
    }

    /// Keeps in memory what removing `no` needs; returns the way to it.
    ///
    /// # Errors
    /// `Corruption` if it is not listed; damage and device errors.
    pub(crate) fn prepare_remove(&self, store: &Store, no: InodeNo, pins: &mut Pins) -> Result<Path> {
        let key = no.0.to_be_bytes();
        let way = tree(store).way(&store.meta, &key, pins, |leaf| {
            let listed = leaf.cells().next().is_some_and(|(found, _)| *found == key);
            Ok(listed.then_some((key, ())))
        })?;
        way.map(|(way, ())| way).ok_or_else(|| not_as_expected("listed", "not listed", no))
    }

    /// Inside an Op: lists an inode.
    pub(crate) fn add(
        &self,
        op: &mut Op<'_>,
        store: &Store,
        way: Option<Path>,
        no: InodeNo,
        incarnation: Incarnation,
    ) -> Change {
        let mut tree = tree(store);
        let (key, value) = (no.0.to_be_bytes(), orphan_value(incarnation));
        let delta = tree.insert_at(op, way, &key, &value, store.number());
        let root = op.set_orphan_root(tree.root, tree.level);
        delta.stored(op, root);
        delta.change
    }

    /// Inside an Op: takes an inode off the list.
    pub(crate) fn remove(&self, op: &mut Op<'_>, store: &Store, way: Path, no: InodeNo) -> Change {
        let mut tree = tree(store);
        let delta = tree.remove_at(op, Some(way), &no.0.to_be_bytes());
        let root = op.set_orphan_root(tree.root, tree.level);
        delta.stored(op, root);
        delta.change
    }
}

fn not_as_expected(expected: &'static str, found: &'static str, no: InodeNo) -> Error {
    Corruption::new("list of orphans", "inode", expected, found).of(no).into()
}

/// Sets an inode without a name aside, to be freed with others; false if it takes more than one Op to free.
fn set_aside(store: &Arc<Store>, cell: &Arc<InodeCell>) -> bool {
    let _io = cell.io.lock();
    let mut state = cell.state.write();
    if state.gone || state.inode.links > 0 {
        return true;
    }
    // As for a file that goes with its name: io is held, so no write-back is under way. A truncation under way has listed it.
    if state.data.listed || !goes_in_one_op(&state) {
        return false;
    }
    if !state.inode.is_directory() {
        file::forget(store, cell, &mut state);
    }
    state.gone = true;
    state.dirty = false;
    store.orphans.aside.lock().push(cell.clone());
    true
}

/// Whether freeing the inode is one small Op: no blocks of data, no trees.
fn goes_in_one_op(state: &inode::InodeState) -> bool {
    let small = match state.inode.content_kind {
        ContentKind::Empty | ContentKind::Inline => true,
        ContentKind::Extents | ContentKind::Tree => false,
    };
    small && state.inode.xattr_root.is_none()
}

/// Frees an inode that has no name and is in no use, now or in a batch.
///
/// # Errors
/// Damage and device errors. What was not freed is still listed.
pub(crate) fn let_go(store: &Arc<Store>, cell: &Arc<InodeCell>) -> Result<()> {
    if !set_aside(store, cell) {
        return reclaim(store, cell);
    }
    if store.orphans.aside.lock().len() >= BATCH {
        return free_set_aside(store);
    }
    Ok(())
}

/// Frees all inodes set aside.
///
/// # Errors
/// Damage and device errors. What was not freed is still listed.
pub(crate) fn free_set_aside(store: &Arc<Store>) -> Result<()> {
    let aside = std::mem::take(&mut *store.orphans.aside.lock());
    if aside.is_empty() {
        return Ok(());
    }
    let orphans = store.orphans.lock();
    for cell in aside {
        let reserved = store.reserve_freely(store.near(cell.no), 0)?;
        let mut state = cell.state.write();
        let mut pins = Pins::new();
        let way = orphans.prepare_remove(store, cell.no, &mut pins)?;
        let mut op = store.meta.begin(reserved);
        let cleared = inode::free_inode(&mut op, &cell, &mut state);
        let unlisted = orphans.remove(&mut op, store, way, cell.no);
        op.before(cleared, unlisted);
        store.inodes.remove(&cell);
    }
    Ok(())
}

/// Frees an inode that has no name: its data, in bounded steps, then itself.
pub(crate) fn reclaim(store: &Arc<Store>, cell: &Arc<InodeCell>) -> Result<()> {
    loop {
        {
            let state = cell.state.read();
            if state.gone || state.inode.links > 0 {
                return Ok(());
            }
        }
        if cell.state.read().inode.is_regular() {
            while !file::free_step(store, cell)? {}
        }
        while !xattr::free_step(store, cell)? {}
        if free_if_empty(store, cell)? {
            return Ok(());
        }
    }
}

/// The last step: whatever trees are left (attributes, a long symbolic link) and the inode. False if data came back.
fn free_if_empty(store: &Arc<Store>, cell: &Arc<InodeCell>) -> Result<bool> {
    let reserved = store.reserve_freely(store.near(cell.no), 0)?;
    let _io = cell.io.lock();
    let orphans = store.orphans.lock();
    let mut state = cell.state.write();
    if state.gone || state.inode.links > 0 {
        return Ok(true);
    }
    if state.data.is_busy() || (state.inode.is_regular() && has_extents(&state)) {
        return Ok(false);
    }
    let mut pins = Pins::new();
    let way = orphans.prepare_remove(store, cell.no, &mut pins)?;
    let trees = xattr::prepare_free_trees(store, &state, cell.no, &mut pins)?;
    let mut op = store.meta.begin(reserved);
    let freed = xattr::free_trees(&mut op, store, &mut state, cell.no, trees);
    let cleared = inode::free_inode(&mut op, cell, &mut state);
    freed.stored(&mut op, cleared);
    let unlisted = orphans.remove(&mut op, store, way, cell.no);
    op.before(cleared, unlisted);
    store.inodes.remove(cell);
    Ok(true)
}

fn has_extents(state: &inode::InodeState) -> bool {
    matches!(state.inode.content_kind, ContentKind::Extents | ContentKind::Tree)
}

/// At mount: finishes what a crash interrupted.
pub(crate) fn reclaim_all(store: &Arc<Store>) -> Result<()> {
    let mut listed = Vec::new();
    tree(store).scan(&store.meta, &[0; 8], &mut |key, value| {
        let no = key.try_into().map(u64::from_be_bytes).map(InodeNo);
        let incarnation = value.try_into().map(u32::from_le_bytes).map(Incarnation);
        match (no, incarnation) {
            (Ok(no), Ok(incarnation)) => listed.push((no, incarnation)),
            _ => {
                return Err(
                    Corruption::new("orphan", "lengths", "8 and 4", format!("{key:?} {value:?}")).into()
                )
            }
        }
        Ok(true)
    })?;
    for (no, incarnation) in listed {
        match reclaim_listed(store, no, incarnation) {
            // What contradicts itself stays as it is and listed; everything else can be used.
            Err(Error::Corruption(c)) => {
                tracing::warn!("the orphan {no} is damaged and stays: {c}; run `yore check` on the volume");
                if let Ok(cell) = store.cell(no) {
                    // Closing need not try again.
                    cell.unlinked.store(false, Ordering::Release);
                }
            }
            other => other?,
        }
    }
    Ok(())
}

fn reclaim_listed(store: &Arc<Store>, no: InodeNo, incarnation: Incarnation) -> Result<()> {
    let cell = match store.cell(no) {
        Err(Error::Stale) => {
            return Err(Corruption::new("orphan", "inode", "one in use", "a free one").of(no).into());
        }
        other => other?,
    };
    if cell.incarnation != incarnation {
        let found = format!("incarnation {}", cell.incarnation);
        return Err(Corruption::new("orphan", "incarnation", incarnation, found).of(no).into());
    }
    let links = cell.state.read().inode.links;
    if links == 0 {
        return reclaim(store, &cell);
    }
    while !file::free_step(store, &cell)? {}
    let reserved = store.reserve_freely(store.near(no), 0)?;
    let orphans = store.orphans.lock();
    let mut pins = Pins::new();
    let way = orphans.prepare_remove(store, no, &mut pins)?;
    let mut op = store.meta.begin(reserved);
    orphans.remove(&mut op, store, way, no);
    Ok(())
}
