//! File data in the intent log: an fsync of a small write costs one write and one flush.
//!
//! A dirty page that has no blocks yet would need some, a write to them, a flush, and a record that names
//! them. Instead the record carries the page's bytes. The page stays dirty, is *fresh* while the log has it
//! as it is, and goes home with the next write-back. The metadata layer carries over from one generation to
//! the next what is not at home ([`yore_meta::Meta`]). When that becomes much, the write-back thread brings
//! it home (`writeback.rs`). At a mount after a crash [`restore`] puts into the cache what was only in the
//! log.
//!
//! Pages that have blocks go into the log as well. Without that an fsync of a few of them would be two
//! writes: to the blocks, where the arm of a disk has to go, and to the log, where it has to come back to.
//!
//! Two things are not logged: more pages at once than [`yore_meta::Meta::noted_most`] says; and
//! small files, whose content goes into the inode and so is in the record anyway.
//!
//! **In step with the log (F8).** A page's bytes are noted under io and the state lock, so no Op about them
//! is half done. A record or a generation, and so a replay, must never see either of two things:
//!
//! - *The note is gone, and what replaces it does not count.* Data that a pass of write-back has written
//!   counts when its extents and a size that covers it are stored. Before that a replay needs the bytes, or
//!   it would take those at home for stale (F1) and show zeros. So a pass takes nothing back before its last
//!   Op. And a flush of what was overwritten in place comes before the record that takes back
//!   ([`yore_meta::Meta::note`] makes sure of that).
//! - *The note is there, and something newer counts.* A replay enters noted bytes as they were, with zeros
//!   behind them up to the file's size at the time of the note. Over a size that was stored later, it would
//!   make a hole of what lies between the two.
//!
//! So the Op that makes the newer data count also takes the note back: the Op that stores the size of a pass
//! ([`super::noted::release_in`]), that takes the content into the inode, or that truncates the file
//! ([`super::noted::truncate`]). Where everything lies in blocks below the stored size, no Op makes it count,
//! and so none takes the note back ([`super::noted::release`]). A replay may then find the note and the newer
//! bytes, and leaves the block as it was fsynced: old, as a crash without a log may leave it.

use super::extents::settle_beyond;
use super::flush::{flush_file, is_settled};
use super::history::History;
use super::map::PAGE;
use super::write;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use yore_core::inode::{store_inode, InodeCell, InodeState};
use yore_core::pages::Bytes;
use yore_core::Core;
use yore_format::{Incarnation, InodeNo};
use yore_meta::NotedFile;

/// Prepares a file for [`yore_meta::Meta::force`]: its data is at home, or noted in the log. The first half
/// of fsync.
///
/// # Errors
/// The error that kept data from the medium, now or in the background since the last call.
pub(crate) fn make_ready(store: &impl History, cell: &Arc<InodeCell>) -> Result<()> {
    if store.meta.has_log() {
        let _io = cell.io.lock();
        if is_settled(&cell.state.read()) || log_pages(store, cell)? {
            return Ok(());
        }
    }
    flush_file(store, cell)
}

/// As [`make_ready`], unless that would write data to its blocks, or wait for somebody who does: then it does
/// nothing and returns false.
///
/// # Errors
/// As [`make_ready`].
pub(crate) fn try_make_ready(store: &impl History, cell: &Arc<InodeCell>) -> Result<bool> {
    if !store.meta.has_log() {
        return Ok(false);
    }
    let Some(_io) = cell.io.try_lock() else { return Ok(false) };
    Ok(is_settled(&cell.state.read()) || log_pages(store, cell)?)
}

/// Notes the file's dirty pages in the log and stores its attributes. Returns false if the pages must not go
/// to the log.
fn log_pages(store: &impl History, cell: &Arc<InodeCell>) -> Result<bool> {
    let reserved = store.reserve_freely(store.near(cell.no), 0)?;
    let mut guard = cell.state.write();
    let state = &mut *guard;
    let (size, kind) = (state.inode.size, state.inode.content_kind);
    let data = &state.data;
    if state.gone || data.doomed.is_some() || data.error.is_some() || data.fits_inode(kind, size) {
        return Ok(false);
    }
    let Some(pages) = data.cached() else { return Ok(false) };
    let most = store.meta.noted_most();
    let unlogged = pages.unlogged(most + 1);
    // A pass that wrote the file home up to a smaller size wrote the whole last page of that size. A replay
    // takes the bytes behind the size there for stale, so it must not be the one to extend the file over that
    // page.
    let edge = (data.stored_size / PAGE) as u32;
    let is_behind = data.stored_size < size && !data.stored_size.is_multiple_of(PAGE);
    let is_torn = is_behind && !unlogged.contains(&edge) && !pages.is_logged(edge);
    drop(pages);
    if is_torn {
        return Ok(false);
    }
    if unlogged.len() > most || (unlogged.is_empty() && data.logged_size != Some(size)) {
        return Ok(false);
    }
    if !unlogged.is_empty() && !note_pages(store, cell, state, &unlogged) {
        return Ok(false);
    }
    if state.dirty {
        let mut op = store.meta.begin(reserved);
        store_inode(&mut op, cell, state);
        state.dirty = false;
    }
    Ok(true)
}

fn note_pages(store: &Core, cell: &Arc<InodeCell>, state: &mut InodeState, unlogged: &[u32]) -> bool {
    let size = state.inode.size;
    let mut pages = state.data.pages(&store.files.pages);
    let bytes: Vec<(u32, Bytes)> =
        unlogged.iter().map(|i| (*i, pages.get(*i).expect("dirty pages are cached").bytes.clone())).collect();
    if !store.meta.note_data((cell.no, cell.incarnation), size, &bytes) {
        drop(pages);
        store.files.wake_write_back();
        return false;
    }
    unlogged.iter().for_each(|i| pages.set_fresh(*i));
    drop(pages);
    if state.data.logged_size.replace(size).is_none() {
        store.files.note_logged(cell);
    }
    if store.meta.notes_press() {
        store.files.wake_write_back();
    }
    true
}

/// Puts into the cache what a crash left in the log, as if it had just been written; times stay as they are.
/// Skips files that are gone.
///
/// # Errors
/// Damage and device errors; `NoSpace` is impossible, because the room was promised.
pub(crate) fn restore(
    store: &impl History,
    files: &BTreeMap<(InodeNo, Incarnation), NotedFile<Vec<u8>>>,
) -> Result<()> {
    let _again = store.alloc.promise_again();
    for ((no, incarnation), file) in files {
        let cell = store.cell_if_used(*no)?.filter(|cell| cell.incarnation == *incarnation);
        let Some(cell) = cell else { continue };
        if !cell.state.read().inode.is_regular() {
            continue;
        }
        {
            let _io = cell.io.lock();
            settle_beyond(store, &cell)?;
        }
        for (page, bytes) in &file.pages {
            restore_page(store, &cell, *page, bytes, file.size)?;
        }
        let mut state = cell.state.write();
        if state.inode.size < file.size {
            extend(store, &cell, &mut state, file.size)?;
        }
    }
    Ok(())
}

fn restore_page(
    store: &impl History,
    cell: &Arc<InodeCell>,
    page: u32,
    bytes: &[u8],
    size: u64,
) -> Result<()> {
    let mut state = cell.state.write();
    let offset = u64::from(page) * PAGE;
    // Behind its bytes the page was zero, up to the file's size.
    let end = (offset + PAGE).min(size.max(state.inode.size)).max(offset + bytes.len() as u64);
    if end == offset {
        return Ok(());
    }
    let plan = write::prepare(store, cell, &state, offset, end, &[])?.ok_or(Error::NoSpace)?;
    plan.enter(store, &mut state);
    {
        let mut pages = state.data.pages(&store.files.pages);
        let to = pages.dirty_bytes(page);
        to[..bytes.len()].copy_from_slice(bytes);
        to[bytes.len()..(end - offset) as usize].fill(0);
    }
    state.inode.size = state.inode.size.max(end);
    write::note(store, cell, &mut state);
    Ok(())
}

fn extend(store: &impl History, cell: &Arc<InodeCell>, state: &mut InodeState, size: u64) -> Result<()> {
    let plan = write::prepare_extension(store, cell, state, size)?.ok_or(Error::NoSpace)?;
    plan.enter(store, state);
    state.inode.size = size;
    write::note(store, cell, state);
    Ok(())
}
