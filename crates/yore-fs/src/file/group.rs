//! Write-back of many files at once, so that small files cost the device as little as one large file.
//!
//! A group is gathered from files in the order of their age. Each file must give its io at once: nobody waits
//! for a file's io while holding another's. So groups cannot block each other, nor a caller that holds one io
//! and wants no other. ([`flush_among_others`], which gathers a group while its caller holds one io, waits
//! for none.) A file whose io is taken, that has more than fits a group, or that has a truncation to be
//! finished, is written back alone when the group is done and its locks are free ([`super::flush`]).

use super::batch::{collect, Pass, BATCH};
use super::flush::{finish_pass, flush_locked, flush_small, flush_to, note_failed, write_parts, Part, When};
use super::history::History;
use super::map::pages_for;
use crate::Result;
use std::sync::Arc;
use yore_core::datacache::FILES;
use yore_core::inode::InodeCell;
use yore_core::locks::Locked;

/// How many files are written back with one for which somebody waits.
const AMONG: usize = 64;
/// The most pages of one file that become late data together: 1 MiB.
const LATE_MOST: usize = 256;

/// What to do about files whose io somebody else has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Busy {
    /// Wait for it when nothing else is left to do.
    Wait,
    /// Leave them as they are.
    Skip,
    /// Leave them, and also those that are no members of a group: for a caller that holds a file's io.
    Leave,
}

/// Writes back all files.
///
/// # Errors
/// The first file's error, which its next fsync returns, too; the others are still tried.
pub(crate) fn flush_all(store: &impl History) -> Result<()> {
    write_back_many(store, &store.files.oldest_dirty(usize::MAX), Busy::Wait)
}

/// Writes back a file whose io the caller has, and with it the files that have been dirty longest. So a
/// caller that changes many files after a snapshot has seen them waits for a few large writes, and not for
/// one write for each file.
///
/// # Errors
/// Errors of this file. The next fsyncs of the others return theirs.
pub(crate) fn flush_among_others(store: &impl History, cell: &Arc<InodeCell>) -> Result<()> {
    let is_dirty = {
        let state = cell.state.read();
        let fits_inode = state.data.fits_inode(state.inode.content_kind, state.inode.size);
        !fits_inode && state.data.cached().is_some_and(|pages| pages.has_dirty())
    };
    if is_dirty {
        let mut others = store.files.oldest_dirty(AMONG);
        others.retain(|other| !Arc::ptr_eq(other, cell));
        drop(write_back_many(store, &others, Busy::Leave));
    }
    flush_locked(store, cell)
}

/// Writes back a file whose version is about to be kept, and whose io the caller has. The blocks become late
/// data ([`yore_meta::Meta::write_later`]), so the caller does not wait for the device. A file that has too
/// much for that, and one that finds too much late already, is written back among others.
///
/// # Errors
/// As [`flush_among_others`].
pub(crate) fn flush_late(store: &impl History, cell: &Arc<InodeCell>) -> Result<()> {
    let dirty = cell.state.read().data.cached().map_or(0, |pages| pages.dirty_count());
    if dirty > LATE_MOST || !store.meta.has_late_room(dirty) {
        return flush_among_others(store, cell);
    }
    flush_to(store, cell, u64::MAX, When::Later)?;
    if store.meta.late_presses() {
        store.files.wake_write_back();
    }
    Ok(())
}

/// Writes back some files in the background.
///
/// # Errors
/// As [`flush_all`].
pub(super) fn write_back_many(store: &impl History, cells: &[Arc<InodeCell>], busy: Busy) -> Result<()> {
    in_groups(store, cells, busy, &|_| Some(u64::MAX))
}

/// As [`write_back_many`], for the part of each file that lies before the size that `limit` gives with the
/// file's io held; nothing of the file if that is `None`.
pub(super) fn in_groups(
    store: &impl History,
    cells: &[Arc<InodeCell>],
    busy: Busy,
    limit: &dyn Fn(&InodeCell) -> Option<u64>,
) -> Result<()> {
    let (mut result, mut alone, mut at) = (Ok(()), Vec::new(), 0);
    while at < cells.len() {
        let mut group = Group::default();
        while at < cells.len() && group.has_room() {
            let cell = &cells[at];
            at += 1;
            let joined = match cell.io.try_lock() {
                Some(io) => group.join(store, cell, io, limit),
                None if busy != Busy::Wait => Ok(Joined::Done),
                None => Ok(Joined::Alone),
            };
            match joined {
                Ok(Joined::Done) => {}
                Ok(Joined::Alone) if busy == Busy::Leave => {}
                Ok(Joined::Alone) => alone.push(cell),
                Err(e) => result = result.and(Err(e)),
            }
        }
        result = result.and(group.write(store));
        for cell in alone.drain(..) {
            let _io = cell.io.lock();
            let Some(size) = limit(cell) else { continue };
            if let Err(e) = flush_to(store, cell, size, When::Now) {
                note_failed(store, cell, &e);
                result = result.and(Err(e));
            }
        }
    }
    result
}

#[cfg(test)]
thread_local! {
    /// What another thread does before the pages of the next file that joins a group are collected.
    pub(super) static BEFORE_COLLECTED: std::cell::Cell<Option<Box<dyn FnOnce()>>> = const { std::cell::Cell::new(None) };
}

/// The result for a file that was to join a group.
enum Joined {
    /// It joined, or nothing more is to be done for it.
    Done,
    /// It is to be written back by itself.
    Alone,
}

/// Files that are written back together.
#[derive(Default)]
struct Group<'a> {
    members: Vec<(Locked<'a>, Pass)>,
    parts: Vec<Part<'a>>,
    pages: usize,
}

impl<'a> Group<'a> {
    fn has_room(&self) -> bool {
        self.parts.len() < FILES && self.pages < BATCH
    }

    /// Takes a snapshot of the file's dirty pages; the file is a member from then on, unless it has none.
    fn join(
        &mut self,
        store: &impl History,
        cell: &'a Arc<InodeCell>,
        io: Locked<'a>,
        limit: &dyn Fn(&InodeCell) -> Option<u64>,
    ) -> Result<Joined> {
        let Some(size) = limit(cell) else { return Ok(Joined::Done) };
        match self.join_locked(store, cell, io, size) {
            Err(e) => {
                note_failed(store, cell, &e);
                Err(e)
            }
            joined => joined,
        }
    }

    fn join_locked(
        &mut self,
        store: &impl History,
        cell: &'a Arc<InodeCell>,
        io: Locked<'a>,
        size: u64,
    ) -> Result<Joined> {
        let (size, fits_inode) = {
            let state = cell.state.read();
            let dirty = state.data.cached().map_or(0, |p| p.dirty_count());
            if state.data.doomed.is_some() || dirty > BATCH {
                return Ok(Joined::Alone);
            }
            let fits_inode = state.data.fits_inode(state.inode.content_kind, state.inode.size);
            (size.min(state.inode.size), fits_inode)
        };
        if fits_inode && flush_small(store, cell)? {
            return Ok(Joined::Done);
        }
        #[cfg(test)]
        BEFORE_COLLECTED.take().into_iter().for_each(|write| write());
        let pass = Pass { end: pages_for(size), size };
        let batch = collect(store, cell, 0, pass)?;
        if batch.is_empty() {
            finish_pass(store, cell, pass)?;
            return Ok(Joined::Done);
        }
        self.pages += batch.pages();
        self.members.push((io, pass));
        self.parts.push(Part::new(cell, batch));
        Ok(Joined::Done)
    }

    fn write(mut self, store: &impl History) -> Result<()> {
        write_parts(store, &mut self.parts, When::Now);
        let mut result = Ok(());
        for (part, (_, pass)) in self.parts.iter().zip(&self.members) {
            let finished = part.result.clone().and_then(|()| match part.batch.stored {
                Some(_) => finish_pass(store, part.cell, *pass),
                // Somebody has written so much more meanwhile that the batch is not all of the pass.
                None => flush_to(store, part.cell, pass.size, When::Now),
            });
            if let Err(e) = finished {
                note_failed(store, part.cell, &e);
                result = result.and(Err(e));
            }
        }
        result
    }
}
