//! fallocate: blocks without data, and holes where data was.
//!
//! Both change extents with io held, in bounded Ops, while writes go on in memory. Allocating promises all
//! blocks first, so that it fails before anything has changed; so does zeroing, which needs blocks for holes,
//! and for data that the past or others have. Punching and zeroing also get room for tree nodes first: a hole
//! in an extent makes two of it, and nodes that the past has are copied. They write zeros to the pages at the
//! edges, discard the pages between, and hide the extents there (F5) until these have been removed or become
//! unwritten.

use super::extents::{self, apply, finish_doomed, make_unwritten};
use super::flush::{flush_locked, store_changed};
use super::history::{lock_preserved, History, Room};
use super::map::{check_alive, map_block, page_of, pages_for, Touch, PAGE};
use super::truncate::extend;
use super::write;
use crate::{Error, FallocateMode, Result};
use std::ops::Range;
use std::sync::Arc;
use yore_core::alloc::{Promise, Run, LEAF_EXTENTS};
use yore_core::extent;
use yore_core::inode::{InodeCell, InodeState};
use yore_format::layout::FILE_SIZE_MAX;
use yore_format::{BlockNo, ContentKind, BITS_PER_GROUP};
use yore_meta::Reserved;

/// Allocates, punches or zeroes a range of bytes.
///
/// # Errors
/// `Invalid` for an empty range, `FileTooLarge`, `NoSpace`, `NeverFits`, `ReadOnly`, `Stale`; damage and
/// device errors.
pub(crate) fn fallocate(
    store: &impl History,
    cell: &Arc<InodeCell>,
    offset: u64,
    len: u64,
    mode: FallocateMode,
    touch: Touch<'_>,
) -> Result<()> {
    store.check_writable()?;
    if len == 0 {
        return Err(Error::Invalid { what: "a range of no bytes to allocate or free" });
    }
    let end = offset.checked_add(len).filter(|end| *end <= FILE_SIZE_MAX).ok_or(Error::FileTooLarge)?;
    let _io = cell.io.lock();
    finish_doomed(store, cell)?;
    store.preserve_locked(cell, Room::Free)?;
    if cell.state.read().data.logged_size.is_some() {
        // What is to be zeroed must be at home: the log cannot say "zeros" at the same instant as the
        // extents.
        flush_locked(store, cell)?;
    }
    match mode {
        FallocateMode::Allocate { keep_size } => {
            allocate(store, cell, offset, end, None)?;
            grow(store, cell, end, keep_size, touch)
        }
        FallocateMode::PunchHole => {
            let room = room_for(store, cell, extents_of_hole(store, cell, offset, end)?)?;
            zero_memory(store, cell, offset, end, touch)?;
            let _promise = room.spend();
            finish_doomed(store, cell)
        }
        FallocateMode::ZeroRange { keep_size } => {
            leave_inode(store, cell)?;
            let (promise, room) = promise_zeros(store, cell, offset, end)?;
            zero_memory(store, cell, offset, end, &mut |_| {})?;
            let _promise = room.spend();
            make_unwritten(store, cell)?;
            allocate(store, cell, offset, end, Some(promise))?;
            grow(store, cell, end, keep_size, touch)
        }
    }
}

/// Sets the size that the call asks for, and the times.
fn grow(
    store: &impl History,
    cell: &Arc<InodeCell>,
    end: u64,
    keep_size: bool,
    touch: Touch<'_>,
) -> Result<()> {
    if !keep_size && end > cell.state.read().inode.size && extend(store, cell, end, touch)? {
        return Ok(());
    }
    {
        let mut state = lock_preserved(store, cell, Room::Free)?;
        touch(&mut state);
        state.dirty = true;
    }
    store_changed(store, cell)
}

/// Room for the tree nodes of a change, had before the change begins: once memory reads as zeros there is no
/// way back.
enum NodeRoom<'s> {
    Promised(Promise<'s>),
    /// On a full volume: the room that is set aside for deleting.
    SetAside(Reserved),
}

impl<'s> NodeRoom<'s> {
    /// The Ops of the change reserve what they need from now on. Returns what is to be kept until they are
    /// done.
    fn spend(self) -> Option<Promise<'s>> {
        match self {
            NodeRoom::Promised(promise) => Some(promise),
            NodeRoom::SetAside(reserved) => {
                drop(reserved);
                None
            }
        }
    }
}

/// Gets room for so many more extents. Nothing has changed if it cannot be had.
fn room_for<'s>(store: &'s impl History, cell: &InodeCell, extents: u64) -> Result<NodeRoom<'s>> {
    let near = store.near(cell.no);
    loop {
        if let Some(promise) = store.alloc.try_promise(&store.meta, 0, extents) {
            return Ok(NodeRoom::Promised(promise));
        }
        match store.alloc.make_index_room(&store.meta, near) {
            Err(Error::NoSpace) => break,
            made => made?,
        }
    }
    let nodes = u32::try_from(extents.div_ceil(LEAF_EXTENTS)).map_err(|_| Error::NoSpace)?;
    Ok(NodeRoom::SetAside(store.reserve_freely(near, nodes)?))
}

/// How many extents' room a hole takes: that of the nodes that it copies, and of the one that is split if it
/// lies in the midst of an extent.
fn extents_of_hole(store: &impl History, cell: &InodeCell, offset: u64, end: u64) -> Result<u64> {
    let full = full_pages(cell.state.read().inode.size, offset, end);
    if full.is_empty() {
        return Ok(0);
    }
    let edit = extents::load(store, cell, full.clone())?;
    let nodes = edit.blocks_to_remove(&store.meta, full.start, full.end)?;
    Ok(u64::from(nodes) * LEAF_EXTENTS)
}

/// Promises the blocks that a range needs which is to be zeroed, and gets room for the nodes: nothing has
/// changed if they cannot be had.
fn promise_zeros<'s>(
    store: &'s impl History,
    cell: &Arc<InodeCell>,
    offset: u64,
    end: u64,
) -> Result<(Promise<'s>, NodeRoom<'s>)> {
    let promise = || -> Result<(Promise<'s>, NodeRoom<'s>)> {
        let (blocks, extents) = needs_of_zeros(store, cell, offset, end)?;
        let promise = store.alloc.promise(&store.meta, store.near(cell.no), blocks)?;
        Ok((promise, room_for(store, cell, extents)?))
    };
    match promise() {
        // Dirty pages over holes have promises of their own.
        Err(Error::NoSpace) => {
            flush_locked(store, cell)?;
            promise()
        }
        other => other,
    }
}

/// How many blocks a range lacks when it has been zeroed: those of holes, and of data that cannot become
/// unwritten where it is. And how many extents' room that takes beyond one for each of these blocks: that of
/// extents that are split, and of the nodes that are copied.
fn needs_of_zeros(store: &impl History, cell: &Arc<InodeCell>, offset: u64, end: u64) -> Result<(u64, u64)> {
    let full = full_pages(cell.state.read().inode.size, offset, end);
    let (first, last) = (offset / PAGE, u64::from(pages_for(end)));
    let (mut at, mut has, mut extents) = (first, 0, 0);
    while at < last {
        let mut edit = extents::load(store, cell, at..last)?;
        if at == first {
            let copies = edit.blocks_for_all_copies(&store.meta, first, last)?;
            extents += u64::from(copies) * LEAF_EXTENTS;
        }
        let mut limit = edit.limit().min(last);
        let (from, to) = (at.max(full.start), limit.min(full.end));
        if from < to {
            let rest = edit.set_unwritten(from, to, |run| store.alloc.in_place_part(&store.meta, run))?;
            if rest < to {
                limit = rest;
            }
            if edit.blocks() > 0 {
                extents += edit.growth() as u64;
            }
        }
        has += edit.blocks_in(at, limit);
        at = limit;
    }
    Ok((last - first - has, extents))
}

/// The pages that a range covers wholly. What is behind the end of the file counts as covered.
fn full_pages(size: u64, offset: u64, end: u64) -> Range<u64> {
    let first = offset.div_ceil(PAGE);
    let last = if end >= size { (end / PAGE).max(u64::from(pages_for(size))) } else { end / PAGE };
    first..last.max(first)
}

/// Fills the holes in a range with unwritten extents, of blocks that were promised or are now.
fn allocate<'s>(
    store: &'s impl History,
    cell: &Arc<InodeCell>,
    offset: u64,
    end: u64,
    promised: Option<Promise<'s>>,
) -> Result<()> {
    leave_inode(store, cell)?;
    // Dirty pages get their blocks as data; only real holes are left.
    flush_locked(store, cell)?;
    let (first, end) = (offset / PAGE, u64::from(pages_for(end)));
    let mut holes = end - first;
    // As in `extents::load`: io keeps the extents as they are.
    let inode = cell.state.read().inode.clone();
    extent::each(&store.meta, cell.no, &inode, first, &mut |(key, value)| {
        let overlap = (key + u64::from(value.len)).min(end).saturating_sub(key.max(first));
        holes = holes.saturating_sub(overlap);
        Ok(key < end)
    })?;
    let near = store.near(cell.no);
    let mut promise = match promised {
        Some(promise) if promise.left() >= holes => promise,
        // A snapshot may have come meanwhile, which has what was the file's alone.
        promised => {
            drop(promised);
            store.alloc.promise(&store.meta, near, holes)?
        }
    };
    let mut goal = store.meta.geometry().data_start(near);
    let mut at = first;
    while at < end {
        let mapping = map_block(store, cell.no, &cell.state.read(), at)?;
        let len = mapping.len.min(end - at);
        if let Some(extent) = mapping.extent {
            at += len;
            goal = BlockNo(extent.start.0 + len);
            continue;
        }
        let want = len.min(u64::from(BITS_PER_GROUP)).min(promise.left()) as u32;
        if want == 0 {
            return Err(Error::NoSpace); // Cannot be: all holes were counted, and io is held.
        }
        let run = store.alloc.take(&store.meta, goal, want)?;
        promise.take_out(u64::from(run.len));
        if let Err(e) = enter_unwritten(store, cell, at, run) {
            store.alloc.untake(run);
            store.alloc.release(u64::from(run.len));
            return Err(e);
        }
        at += u64::from(run.len);
        goal = BlockNo(run.end());
    }
    Ok(())
}

fn enter_unwritten(store: &impl History, cell: &InodeCell, at: u64, run: Run) -> Result<()> {
    let range = at..at + u64::from(run.len);
    let mut edit = extents::load(store, cell, range)?;
    edit.put(at, run, true);
    apply(store, cell, edit, |_| {})
}

/// Makes the content go to blocks from now on, even if it would fit the inode.
pub(super) fn leave_inode(store: &impl History, cell: &Arc<InodeCell>) -> Result<()> {
    loop {
        let mut state = cell.state.write();
        check_alive(&state)?;
        if !state.data.fits_inode(state.inode.content_kind, state.inode.size) {
            state.data.in_blocks = true;
            return Ok(());
        }
        if let Some(plan) = write::prepare_in_blocks(store, cell, &state)? {
            plan.enter(store, &mut state);
            state.data.in_blocks = true;
            write::note(store, cell, &mut state);
            return Ok(());
        }
        drop(state);
        store.alloc.make_index_room(&store.meta, store.near(cell.no))?;
    }
}

/// Makes a range read as zeros: its pages at once, its extents because they are doomed.
fn zero_memory(
    store: &impl History,
    cell: &Arc<InodeCell>,
    offset: u64,
    end: u64,
    touch: Touch<'_>,
) -> Result<()> {
    loop {
        let mut guard = lock_preserved(store, cell, Room::Free)?;
        let state = &mut *guard;
        let size = state.inode.size;
        let full = full_pages(size, offset, end);
        let Some(plans) = edges(store, cell, state, offset, end.min(size), &full)? else {
            drop(guard);
            store.alloc.make_index_room(&store.meta, store.near(cell.no))?;
            continue;
        };
        for (part, plan) in plans {
            plan.enter(store, state);
            let within = (part.start % PAGE) as usize..((part.end - 1) % PAGE) as usize + 1;
            state.data.pages(&store.files.pages).dirty_bytes(page_of(part.start))[within].fill(0);
        }
        if !full.is_empty() {
            if let Some(mut pages) = state.data.cached() {
                let spared = pages.discard(full.start as u32, full.end as u32);
                drop(pages);
                store.alloc.release_spared(spared);
            }
            if full.start == 0 && state.inode.content_kind == ContentKind::Inline {
                state.inode.set_inline(&[]);
            }
            state.data.doomed = Some(full);
        }
        touch(state);
        write::note(store, cell, state);
        return Ok(());
    }
}

/// The bytes at the edges of `offset..end`, outside of `full` pages, that hold something, and the plan to
/// zero them.
#[allow(clippy::type_complexity)]
fn edges<'a>(
    store: &'a impl History,
    cell: &InodeCell,
    state: &InodeState,
    offset: u64,
    end: u64,
    full: &Range<u64>,
) -> Result<Option<Vec<(Range<u64>, write::Plan<'a>)>>> {
    let head = offset..end.min(full.start * PAGE);
    let tail = (full.end * PAGE).max(offset)..end;
    let mut plans = Vec::new();
    for part in [head, tail].into_iter().filter(|p| !p.is_empty()) {
        let index = page_of(part.start);
        let cached = state.data.cached().is_some_and(|mut p| p.get(index).is_some());
        let inline = index == 0 && state.inode.content_kind == ContentKind::Inline;
        if !cached && !inline && !map_block(store, cell.no, state, u64::from(index))?.is_written() {
            continue;
        }
        match write::prepare(store, cell, state, part.start, part.end, &[])? {
            Some(plan) => plans.push((part, plan)),
            None => return Ok(None),
        }
    }
    Ok(Some(plans))
}
