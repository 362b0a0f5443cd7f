//! Sharing: a file gets blocks that another one has, or that a state of the past has, instead of copies of
//! them.
//!
//! One Op raises the counts of the blocks ([`yore_core::alloc::shared`]'s S1) and enters extents that name
//! them. What was there is let go of. Bytes are neither read nor written, so a gigabyte takes milliseconds,
//! and no data block.
//!
//! **C1** The source cannot let go of its blocks meanwhile: the caller keeps a version from being given up,
//! and here the io of the inode in use is held, the source's or the one of the version's chain. The io of the
//! destination is held, too. This is the only place where a thread waits for one io with another in hand, so
//! both are taken in ascending order of inode numbers.
//!
//! **C2** In the Op both states are locked, and no page of either range is dirty or under way: a dirty page
//! counts on a block that is its own (F4), which a shared block is not.
//!
//! **C3** Whole blocks are shared. The block that the source ends in has stale bytes behind that (F1), so it
//! is shared only if the destination ends there, too.

use super::extents::{finish_doomed, settle_beyond};
use super::flush::flush_locked;
use super::history::{History, Room};
use super::hole::leave_inode;
use super::map::{check_alive, pages_for, Touch, PAGE};
use crate::Result;
use std::sync::Arc;
use yore_core::alloc::{PinnedGroups, Run};
use yore_core::btree::Pins;
use yore_core::extent::{self, Edit, Mapping};
use yore_core::inode::{store_inode, InodeCell, InodeState};
use yore_core::locks::Locked;
use yore_format::layout::FILE_SIZE_MAX;
use yore_format::{ContentKind, EventNo, TABLE_ENTRIES};

/// Pieces that one Op enters.
const PIECES: usize = 16;
/// Blocks that one Op enters: those of 32 tables.
const BLOCKS: u64 = 32 * TABLE_ENTRIES as u64;
/// After so many attempts that writers have spoiled, the bytes are copied.
const TRIES: u32 = 3;

/// Where the bytes come from.
pub(crate) struct Source {
    /// The inode in use, or a version, which the caller keeps from being given up.
    pub cell: Arc<InodeCell>,
    /// Of a version: the inode in use that has its number, if there is one.
    pub in_use: Option<Arc<InodeCell>>,
    /// The inode in use counts as long as it is as it was as of this event.
    pub as_of: Option<EventNo>,
}

/// What a step has done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cloned {
    /// So many bytes are shared now.
    Shared(u64),
    /// So many bytes have to be copied; those behind them may be shared again.
    Copy(u64),
    /// The inode in use is no longer as it was: the source is a version now.
    Changed,
}

/// A part of the range that has one answer.
enum Piece {
    /// Blocks to share; whether one with a single reference is in use.
    Blocks(u64, Run, bool),
    /// A hole, or blocks that were never written.
    Hole(u64, u64),
    /// What the destination has already.
    Same,
}

/// Whether the content of an inode lies in blocks, so that sharing is worth a thought.
pub(crate) fn is_in_blocks(cell: &InodeCell) -> bool {
    let state = cell.state.read();
    state.inode.is_regular() && matches!(state.inode.content_kind, ContentKind::Extents | ContentKind::Tree)
}

/// What a change of the target needs that waits for directories. Before the caller sees the past.
///
/// # Errors
/// As [`History::preserve`].
pub(crate) fn prepare_clone(store: &impl History, target: &Arc<InodeCell>) -> Result<()> {
    let must_preserve = store.must_preserve(target, &target.state.read())?;
    match must_preserve {
        true => store.preserve(target, Room::Free),
        false => Ok(()),
    }
}

/// Shares the first blocks of a range, as many as one Op takes. The volume has
/// [`yore_format::WriteFeatures::TABLES`]. O(extents of the Op).
///
/// # Errors
/// `NoSpace` for metadata; damage and device errors. Then nothing has changed.
pub(crate) fn clone_step(
    store: &impl History,
    source: &Source,
    (from, to, len): (u64, u64, u64),
    target: &Arc<InodeCell>,
    touch: Touch<'_>,
) -> Result<Cloned> {
    if from % PAGE != to % PAGE {
        return Ok(Cloned::Copy(len));
    }
    if from % PAGE != 0 {
        return Ok(Cloned::Copy(len.min(PAGE - from % PAGE)));
    }
    for _ in 0..TRIES {
        let _ios = lock_ios(source, target);
        settle_beyond(store, target)?;
        leave_inode(store, target)?;
        store.preserve_locked(target, Room::Free)?;
        flush_locked(store, target)?;
        if !source.cell.is_version() {
            flush_locked(store, &source.cell)?;
        }
        match attempt(store, source, (from, to, len), target, touch)? {
            Some(cloned) => return Ok(cloned),
            None => continue,
        }
    }
    Ok(Cloned::Copy(len.min(BLOCKS * PAGE)))
}

/// The inode in use of the source's chain.
fn chain(source: &Source) -> Option<&Arc<InodeCell>> {
    match source.cell.is_version() {
        true => source.in_use.as_ref().filter(|cell| cell.incarnation == source.cell.incarnation),
        false => Some(&source.cell),
    }
}

fn lock_ios<'a>(source: &'a Source, target: &'a Arc<InodeCell>) -> Vec<Locked<'a>> {
    let mut cells: Vec<&Arc<InodeCell>> = chain(source).into_iter().chain([target]).collect();
    cells.sort_unstable_by_key(|cell| cell.no);
    cells.dedup_by(|a, b| Arc::ptr_eq(a, b));
    cells.into_iter().map(|cell| cell.io.lock()).collect()
}

/// How many blocks of the range are whole, or the last of both files; and how many bytes they have. The sizes
/// are those of the source and of the target.
fn whole_blocks((from, to, len): (u64, u64, u64), (source, target): (u64, u64)) -> (u64, u64) {
    let bytes = len.min(source.saturating_sub(from));
    let reaches_both_ends = from + bytes == source && to + bytes >= target;
    let blocks = if reaches_both_ends { bytes.div_ceil(PAGE) } else { bytes / PAGE };
    let blocks = blocks.min(BLOCKS);
    (blocks, bytes.min(blocks * PAGE))
}

/// One attempt, with the ios held and the data of both written back. `None`: somebody wrote meanwhile.
fn attempt(
    store: &impl History,
    source: &Source,
    (from, to, len): (u64, u64, u64),
    target: &Arc<InodeCell>,
    touch: Touch<'_>,
) -> Result<Option<Cloned>> {
    let (first, at) = (from / PAGE, to / PAGE);
    // What a gap between the end and the range needs, and what does not lie in blocks, is copied.
    let apart = Ok(Some(Cloned::Copy(len.min(PAGE))));
    let fits = to.checked_add(len).is_some_and(|end| end <= FILE_SIZE_MAX);
    if !is_in_blocks(&source.cell) || !fits {
        return apart;
    }
    let source_size = source.cell.state.read().inode.size;
    let (blocks, bytes, edit) = {
        let state = target.state.read();
        check_alive(&state)?;
        let (blocks, bytes) = whole_blocks((from, to, len), (source_size, state.inode.size));
        if blocks == 0 || state.inode.size < to {
            return apart;
        }
        let recorded_until = store.recorded_until(&state, target.no)?;
        let edit = Edit::load(&store.meta, target.no, &state.inode, recorded_until, at, at + blocks)?;
        (blocks.min(edit.limit() - at), bytes, edit)
    };
    let mut pinned = PinnedGroups::default();
    let (pieces, done) = pieces(store, source, target, (first, at, blocks), &mut pinned)?;
    if done == 0 {
        return Ok(Some(Cloned::Copy(len.min(PAGE * TABLE_ENTRIES as u64))));
    }
    enter(store, source, target, (from, to, bytes.min(done * PAGE)), (edit, pieces, pinned), touch)
}

/// The pieces of a range, prepared, and how many blocks they have. They end where a block cannot be shared.
fn pieces(
    store: &impl History,
    source: &Source,
    target: &InodeCell,
    (first, at, blocks): (u64, u64, u64),
    pinned: &mut PinnedGroups,
) -> Result<(Vec<Piece>, u64)> {
    let map = |cell: &InodeCell, block| {
        let state = cell.state.read();
        extent::mapping(&store.meta, &store.alloc, cell.no, &state.inode, block)
    };
    let chain = chain(source).filter(|cell| source.cell.is_version() && !cell.state.read().gone);
    let (mut pieces, mut done) = (Vec::new(), 0);
    while done < blocks && pieces.len() < PIECES {
        let left = blocks - done;
        let found = map(&source.cell, first + done)?;
        let mut len = found.len.min(left);
        let Some(extent) = found.extent.filter(|extent| !extent.unwritten) else {
            pieces.push(Piece::Hole(at + done, len));
            done += len;
            continue;
        };
        // Whether a mapping names the same blocks, and for how long that holds.
        let same = |mapping: Mapping| {
            let same = mapping.extent.is_some_and(|e| !e.unwritten && e.start == extent.start);
            (same, mapping.len)
        };
        let (is_there, until) = same(map(target, at + done)?);
        len = len.min(until);
        if is_there {
            pieces.push(Piece::Same);
            done += len;
            continue;
        }
        let mut in_use = !source.cell.is_version();
        if let Some(cell) = chain {
            let (is_same, until) = same(map(cell, first + done)?);
            (in_use, len) = (is_same, len.min(until));
        }
        let run = Run { start: extent.start, len: len as u32 };
        let (meta, alloc) = (&store.meta, &store.alloc);
        if !alloc.make_tables(meta, run)? || !alloc.prepare_gain(meta, run, pinned)? {
            break;
        }
        pieces.push(Piece::Blocks(at + done, run, in_use));
        done += len;
    }
    Ok((pieces, done))
}

/// Enters the pieces in one Op. `None`: somebody wrote meanwhile.
fn enter(
    store: &impl History,
    source: &Source,
    target: &Arc<InodeCell>,
    (from, to, len): (u64, u64, u64),
    (mut edit, pieces, _gained): (Edit, Vec<Piece>, PinnedGroups),
    touch: Touch<'_>,
) -> Result<Option<Cloned>> {
    for piece in &pieces {
        match *piece {
            Piece::Blocks(at, run, in_use) => {
                edit.put_shared(at, run, (!in_use).then_some(source.cell.no));
            }
            Piece::Hole(at, len) => edit.remove(at, at + len),
            Piece::Same => {}
        }
    }
    let reserved = store.reserve(store.near(target.no), edit.blocks())?;
    let mut pins = Pins::new();
    edit.prepare(&store.meta, &store.alloc, &mut pins)?;
    // States are locked in ascending order of numbers. A version does not change, and is not locked.
    let other = (!source.cell.is_version() && !Arc::ptr_eq(&source.cell, target)).then_some(&source.cell);
    let version_size = source.cell.state.read().inode.size;
    let before = other.filter(|cell| cell.no < target.no).map(|cell| cell.state.read());
    let mut guard = target.state.write();
    let behind = other.filter(|cell| cell.no > target.no).map(|cell| cell.state.read());
    let state = &mut *guard;
    let mut source_size = version_size;
    if !source.cell.is_version() {
        let from_state = before.as_deref().or(behind.as_deref()).unwrap_or(state);
        if let Some(event) = source.as_of {
            if from_state.gone || from_state.inode.links == 0 || from_state.inode.born > event {
                return Ok(Some(Cloned::Changed));
            }
        }
        source_size = from_state.inode.size;
        let end = from + len;
        if !is_quiet(from_state, (from, end)) || from_state.data.medium_size < end.min(source_size) {
            return Ok(None);
        }
    }
    let (blocks, bytes) = whole_blocks((from, to, len), (source_size, state.inode.size));
    if (blocks, bytes) != (len.div_ceil(PAGE), len)
        || !is_quiet(state, (to, to + len))
        || state.data.stored_size != state.inode.size
        || state.inode.size < to
        || store.must_preserve(target, state)?
    {
        return Ok(None);
    }
    if let Some(mut pages) = state.data.cached() {
        let spared = pages.discard((to / PAGE) as u32, (to / PAGE + blocks) as u32);
        drop(pages);
        store.alloc.release_spared(spared);
    }
    let size = state.inode.size.max(to + bytes);
    state.inode.size = size;
    (state.data.medium_size, state.data.stored_size) = (size, size);
    touch(state);
    store.meta.note_data_named();
    let mut op = store.meta.begin(reserved);
    let applied = edit.apply(&mut op, &store.alloc, &mut state.inode);
    let stored = store_inode(&mut op, target, state);
    applied.stored(&mut op, stored);
    if source.cell.is_version() {
        // What only versions have is shared from here on.
        store.meta.left().note_sharing(source.cell.no, source.cell.incarnation);
    }
    state.dirty = false;
    Ok(Some(Cloned::Shared(bytes)))
}

/// Whether what the medium has of a range of bytes is all there is of it (C2).
fn is_quiet(state: &InodeState, (from, end): (u64, u64)) -> bool {
    let data = &state.data;
    let unstable = data.cached().and_then(|pages| pages.next_unstable((from / PAGE) as u32));
    !state.gone
        && data.doomed.is_none()
        && data.logged_size.is_none()
        && unstable.is_none_or(|page| u64::from(page) * PAGE >= end)
}

/// Makes the tables that sharing all of a file needs. False: some are missing, and there is no room for them.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn make_tables(store: &impl History, cell: &Arc<InodeCell>) -> Result<bool> {
    let _io = (!cell.is_version()).then(|| cell.io.lock());
    if !cell.is_version() {
        finish_doomed(store, cell)?;
    }
    let (mut runs, end) = (Vec::new(), {
        let state = cell.state.read();
        u64::from(pages_for(state.inode.size))
    });
    extent::each(&store.meta, cell.no, &cell.state.read().inode, 0, &mut |(first, value)| {
        if !value.unwritten && first < end {
            runs.push(Run { start: value.start, len: value.len });
        }
        Ok(first < end)
    })?;
    for run in runs {
        extent::check_run(&store.meta, &store.alloc, cell.no, run)?;
        if !store.alloc.make_tables(&store.meta, run)? {
            return Ok(false);
        }
    }
    Ok(true)
}
