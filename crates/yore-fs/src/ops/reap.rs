//! Frees the inodes without a name, and the blocks beyond a file's size, that are in the list of orphans.
//! Freeing a large file is a chain of Ops.
//!
//! Under a mount nearly every file goes this way: the kernel still remembers it when its last name goes, and
//! forgets it right after. So small files are *set aside* when they are let go of: they lose what they have
//! in memory, and are stale at once, but many inodes are freed together. That is done by whoever sets the
//! last one of a batch aside, by housekeeping, and before anybody counts or syncs ([`free_set_aside`]). So
//! the tree of orphans does not grow its root and lose it again with each file.

use crate::store::Store;
use crate::{file, xattr, Error, Result};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use yore_core::btree::Pins;
use yore_core::inode::{self, InodeCell};
use yore_format::{ContentKind, Corruption, Incarnation, InodeNo};
use yore_meta::EdgeKind;

/// How many inodes that were set aside are freed together.
const BATCH: usize = 64;

/// Sets an inode without a name aside, to be freed with others, and returns how many there are; `None` if
/// freeing it takes more than one Op.
fn set_aside(store: &Arc<Store>, cell: &Arc<InodeCell>) -> Option<usize> {
    let _io = cell.io.lock();
    let mut state = cell.state.write();
    if state.gone || state.inode.links > 0 {
        return Some(0);
    }
    // As for a file that goes with its name: io is held, so no write-back is under way. A truncation that is
    // under way has listed the inode.
    if state.data.listed || !goes_in_one_op(&state) {
        return None;
    }
    if !state.inode.is_directory() {
        file::forget(store, cell, &mut state);
    }
    state.gone = true;
    state.dirty = false;
    Some(store.orphans.set_aside(cell.clone()))
}

/// Whether freeing the inode is one small Op: no blocks of data, no trees.
fn goes_in_one_op(state: &inode::InodeState) -> bool {
    let small = match state.inode.content_kind {
        ContentKind::Empty | ContentKind::Inline => true,
        ContentKind::Extents | ContentKind::Tree => false,
    };
    small && state.inode.xattr_root.is_none()
}

/// Frees an inode that has no name and is not in use, now or in a batch.
///
/// # Errors
/// Damage and device errors. Inodes that were not freed are still listed.
pub(crate) fn let_go(store: &Arc<Store>, cell: &Arc<InodeCell>) -> Result<()> {
    match set_aside(store, cell) {
        None => reclaim(store, cell),
        Some(many) if many >= BATCH => free_set_aside(store),
        Some(_) => Ok(()),
    }
}

/// Frees all inodes set aside.
///
/// # Errors
/// Damage and device errors. Inodes that were not freed are still listed.
pub(crate) fn free_set_aside(store: &Arc<Store>) -> Result<()> {
    let aside = store.orphans.take_aside();
    if aside.is_empty() {
        return Ok(());
    }
    let orphans = store.orphans.lock();
    for cell in aside {
        let reserved = store.reserve_freely(store.near(cell.no), 0)?;
        let mut state = cell.state.write();
        let mut pins = Pins::new();
        let position = orphans.prepare_remove(&store.meta, cell.no, &mut pins)?;
        let mut op = store.meta.begin(reserved);
        let cleared = inode::free_inode(&mut op, &cell, &mut state);
        let unlisted = orphans.remove(&mut op, &store.meta, position, cell.no);
        op.edge(EdgeKind::Unlisted, cleared, unlisted.counts);
        store.inodes.remove(&cell);
    }
    Ok(())
}

/// Frees an inode that has no name: its data, in bounded steps, then the inode itself.
pub(crate) fn reclaim(store: &Arc<Store>, cell: &Arc<InodeCell>) -> Result<()> {
    loop {
        {
            let state = cell.state.read();
            if state.gone || state.inode.links > 0 {
                return Ok(());
            }
        }
        if cell.state.read().inode.is_regular() {
            while !file::free_step(&**store, cell)? {}
        }
        while !xattr::free_step(store, cell)? {}
        if free_if_empty(store, cell)? {
            return Ok(());
        }
    }
}

/// The last step: frees the trees that are left (attributes, a long symbolic link) and the inode. Returns
/// false if data came back.
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
    let position = orphans.prepare_remove(&store.meta, cell.no, &mut pins)?;
    let trees = xattr::prepare_free_trees(store, &state, cell.no, &mut pins)?;
    let mut op = store.meta.begin(reserved);
    let freed = xattr::free_trees(&mut op, store, &mut state, cell.no, trees);
    let cleared = inode::free_inode(&mut op, cell, &mut state);
    freed.stored(&mut op, cleared);
    let unlisted = orphans.remove(&mut op, &store.meta, position, cell.no);
    op.edge(EdgeKind::Unlisted, cleared, unlisted.counts);
    store.inodes.remove(cell);
    Ok(true)
}

fn has_extents(state: &inode::InodeState) -> bool {
    matches!(state.inode.content_kind, ContentKind::Extents | ContentKind::Tree)
}

/// At mount: finishes what a crash interrupted.
pub(crate) fn reclaim_all(store: &Arc<Store>) -> Result<()> {
    for (no, incarnation) in store.orphans.listed(&store.meta)? {
        match reclaim_listed(store, no, incarnation) {
            // An inode that contradicts itself stays as it is, and stays listed; everything else can be used.
            Err(Error::Corruption(c)) => {
                tracing::warn!("the orphan {no} is damaged and stays: {c}; run `yore check` on the volume");
                if let Ok(cell) = store.cell(no) {
                    // Closing need not try again.
                    cell.unlinked.store(false, Ordering::Release);
                }
                note_listed(store, no, incarnation);
            }
            // A full volume can be opened, and emptied. Closing tries again.
            Err(Error::NoSpace) => {
                tracing::warn!("there is no room to free the orphan {no}: it stays listed");
                note_listed(store, no, incarnation);
            }
            other => other?,
        }
    }
    Ok(())
}

/// Notes in memory that an inode which still has its name stays in the list, so that nobody lists it again.
/// An inode without names is known to be there.
fn note_listed(store: &Arc<Store>, no: InodeNo, incarnation: Incarnation) {
    let Ok(cell) = store.cell(no) else { return };
    let mut state = cell.state.write();
    if cell.incarnation == incarnation && !state.gone && state.inode.links > 0 {
        state.data.listed = true;
    }
}

fn reclaim_listed(store: &Arc<Store>, no: InodeNo, incarnation: Incarnation) -> Result<()> {
    // An engine that orders changes frees an inode before it goes off the list. If a crash came between,
    // another inode may have its number by now.
    let may_be_gone = store.meta.may_have_leaks();
    let cell = match store.cell(no) {
        Err(Error::Stale) if may_be_gone => return unlist(store, no),
        Err(Error::Stale) => {
            return Err(Corruption::new("orphan", "inode", "one in use", "a free one").of(no).into());
        }
        other => other?,
    };
    if cell.incarnation != incarnation {
        if may_be_gone {
            return unlist(store, no);
        }
        let found = format!("incarnation {}", cell.incarnation);
        return Err(Corruption::new("orphan", "incarnation", incarnation, found).of(no).into());
    }
    let links = cell.state.read().inode.links;
    if links == 0 {
        return reclaim(store, &cell);
    }
    // Its name is still there: a crash under such an engine came behind the listing. Only files have more.
    if cell.state.read().inode.is_regular() {
        while !file::free_step(&**store, &cell)? {}
    }
    unlist(store, no)
}

/// Takes an inode off the list that need not be there.
fn unlist(store: &Arc<Store>, no: InodeNo) -> Result<()> {
    let reserved = store.reserve_freely(store.near(no), 0)?;
    let orphans = store.orphans.lock();
    let mut pins = Pins::new();
    let position = orphans.prepare_remove(&store.meta, no, &mut pins)?;
    let mut op = store.meta.begin(reserved);
    let unlisted = orphans.remove(&mut op, &store.meta, position, no);
    op.all_before(EdgeKind::Unlisted, no.addr(), unlisted.counts);
    Ok(())
}

impl Store {
    /// Frees an inode without names that nobody uses any more. Errors are left to the next mount, which finds
    /// the inode among the orphans.
    pub(crate) fn let_go(self: &Arc<Self>, cell: &Arc<InodeCell>) {
        if cell.unlinked.load(Ordering::Acquire) && !self.read_only && !self.inodes.in_use(cell) {
            if let Err(e) = let_go(self, cell) {
                tracing::warn!("inode {} and others are freed at the next mount: {e}", cell.no);
            }
        }
    }

    /// Frees what is set aside, so that the counts of inodes and blocks are those that users expect. No
    /// caller needs it to succeed: the next mount frees what cannot be freed now.
    pub(crate) fn settle_set_aside(self: &Arc<Self>) {
        if self.read_only {
            return;
        }
        if let Err(e) = free_set_aside(self) {
            tracing::warn!("some inodes are freed at the next mount: {e}");
        }
    }

    /// Puts everything that was done before on the medium before it returns.
    pub(crate) fn sync(self: &Arc<Self>) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.write_back()?;
        Ok(self.meta.make_durable()?)
    }

    /// Hands everything that memory has of files to the device and to the metadata, and frees what is set
    /// aside.
    pub(crate) fn write_back(self: &Arc<Self>) -> Result<()> {
        file::flush_all(&**self)?;
        self.flush_aged()?;
        free_set_aside(self)
    }
}
