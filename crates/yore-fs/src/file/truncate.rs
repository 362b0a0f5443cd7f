//! Changing the size, and freeing.
//!
//! Shrinking a file below extents removes them in steps of one window each. If one step is enough, it is one
//! Op with the new size. Otherwise the first Op stores the size and lists the inode as an orphan, the extents
//! that must go are `doomed` (F5), and the Op of the last step takes the inode off the list. A failure in
//! between leaves `doomed` in place; the next call on the file goes on.
//!
//! A change of content may take more from a file, which is kept outside of the inode
//! ([`GoesWithTruncation`]). It goes in the Op with the new size: a generation in between would show a file
//! as it was before the call, but without that. A file that grows may lose it before, because sizes may reach
//! the medium later than attributes.

use super::extents::{
    finish_doomed, remove_step, reserve_removal, settle_beyond, Beside, Removal, BLOCKS_END,
};
use super::flush::store_changed;
use super::history::{lock_preserved, History, Room};
use super::map::{check_alive, page_of, pages_for, Touch, PAGE};
use super::{noted, write};
use crate::{Error, Result};
use std::sync::Arc;
use yore_core::alloc::Spared;
use yore_core::btree::{Pins, Unstored};
use yore_core::inode::{store_inode, InodeCell, InodeState};
use yore_core::orphan;
use yore_core::Core;
use yore_format::layout::FILE_SIZE_MAX;
use yore_format::ContentKind;
use yore_meta::{EdgeKind, Op};

/// Something that a file loses in the Op that truncates it. The layer above knows what it is.
pub(crate) trait GoesWithTruncation {
    /// Whether the file has it.
    fn is_there(&self, state: &InodeState) -> bool;

    /// Prepares its removal, with the state locked from now until the Op; returns how many blocks that needs.
    ///
    /// # Errors
    /// Damage and device errors.
    fn prepare(&mut self, state: &InodeState) -> Result<u32>;

    /// Removes it, inside the Op. The caller stores the inode.
    fn apply(&mut self, op: &mut Op<'_>, state: &mut InodeState) -> Unstored;
}

/// Nothing goes with the truncation.
impl GoesWithTruncation for () {
    fn is_there(&self, _: &InodeState) -> bool {
        false
    }

    fn prepare(&mut self, _: &InodeState) -> Result<u32> {
        Ok(0)
    }

    fn apply(&mut self, _: &mut Op<'_>, _: &mut InodeState) -> Unstored {
        Unstored::Inside
    }
}

/// Sets the file's size. Bytes beyond it are gone, bytes that are added read as zeros. Returns false if
/// nothing was done, because the file would grow and still has what goes.
///
/// # Errors
/// `FileTooLarge`, `NoSpace` (a page at the old end may need a block), `ReadOnly`, `Stale`; damage and device
/// errors. After an error while freeing, the size is set nevertheless, and the rest is freed later.
pub(crate) fn truncate(
    store: &impl History,
    cell: &Arc<InodeCell>,
    size: u64,
    touch: Touch<'_>,
    goes: &mut dyn GoesWithTruncation,
) -> Result<bool> {
    store.check_writable()?;
    if size > FILE_SIZE_MAX {
        return Err(Error::FileTooLarge);
    }
    let _io = cell.io.lock();
    finish_doomed(store, cell)?;
    store.preserve_locked(cell, Room::Reserve)?;
    // A write may extend the file at any time; then growing has become shrinking.
    loop {
        {
            let state = cell.state.read();
            if size <= state.inode.size {
                break;
            }
            if goes.is_there(&state) {
                return Ok(false);
            }
        }
        if extend(store, cell, size, touch)? {
            return Ok(true);
        }
    }
    let mut more = 0;
    loop {
        match shrink(store, cell, size, touch, goes, more)? {
            Shrunk::Yes => break,
            Shrunk::HadEvent => store.preserve_locked(cell, Room::Reserve)?,
            Shrunk::NeedsRoom(blocks) => more = blocks,
            Shrunk::ListHasGrown => {}
        }
    }
    finish_doomed(store, cell)?;
    Ok(true)
}

/// Grows the file to `size`, with io held. Returns false if the file has grown beyond that meanwhile.
pub(super) fn extend(
    store: &impl History,
    cell: &Arc<InodeCell>,
    size: u64,
    touch: Touch<'_>,
) -> Result<bool> {
    settle_beyond(store, cell)?;
    let clean = loop {
        let mut state = lock_preserved(store, cell, Room::Free)?;
        if size < state.inode.size {
            return Ok(false);
        }
        let Some(plan) = write::prepare_extension(store, cell, &state, size)? else {
            drop(state);
            store.alloc.make_index_room(&store.meta, store.near(cell.no))?;
            continue;
        };
        plan.enter(store, &mut state);
        state.inode.size = size;
        touch(&mut state);
        state.dirty = true;
        let clean = !state.data.cached().is_some_and(|p| p.is_busy());
        if !clean {
            // The size reaches the medium with the data below it.
            write::note(store, cell, &mut state);
        }
        break clean;
    };
    match clean {
        true => store_grown(store, cell)?,
        // The times are exact, as with every call that is not a write.
        false => store_changed(store, cell)?,
    }
    Ok(true)
}

/// Stores size and times, unless something was written meanwhile that comes first.
fn store_grown(store: &Core, cell: &Arc<InodeCell>) -> Result<()> {
    let reserved = store.reserve_freely(store.near(cell.no), 0)?;
    let mut guard = cell.state.write();
    let state = &mut *guard;
    if state.data.cached().is_some_and(|p| p.is_busy()) {
        return Ok(()); // Noted by whoever wrote.
    }
    state.data.medium_size = state.inode.size;
    state.data.stored_size = state.inode.size;
    let mut op = store.meta.begin(reserved);
    store_inode(&mut op, cell, state);
    state.dirty = false;
    Ok(())
}

/// Whether the first Op of shrinking is done; if not, nothing is.
enum Shrunk {
    Yes,
    /// An event has come: the file must be preserved first.
    HadEvent,
    /// This many more blocks must be reserved.
    NeedsRoom(u32),
    /// The list of orphans has got a level since its blocks were reserved.
    ListHasGrown,
}

/// The first Op of shrinking, with `spare` blocks for what goes with it. The caller holds io.
fn shrink(
    store: &impl History,
    cell: &Arc<InodeCell>,
    size: u64,
    touch: Touch<'_>,
    goes: &mut dyn GoesWithTruncation,
    spare: u32,
) -> Result<Shrunk> {
    let from = u64::from(pages_for(size));
    check_alive(&cell.state.read())?;
    let beside = Beside { always: spare, for_rest: orphan::blocks_to_add(&store.meta) };
    let Removal { mut edit, limit, reserved } = reserve_removal(store, cell, &(from..BLOCKS_END), beside)?;
    let more = limit < BLOCKS_END;
    let orphans = more.then(|| store.orphans.lock());
    let mut pins = Pins::new();
    edit.prepare(&store.meta, &store.alloc, &mut pins)?;
    // Whoever removes the last name needs the orphans lock, or io.
    let must_be_listed = || {
        let state = cell.state.read();
        state.inode.links > 0 && !state.data.listed
    };
    let listing = orphans.as_ref().filter(|_| must_be_listed());
    let mut position = None;
    if let Some(orphans) = listing {
        let needed;
        (position, needed) = orphans.prepare_add(&store.meta, cell.no, &mut pins)?;
        if needed > beside.for_rest {
            return Ok(Shrunk::ListHasGrown);
        }
    }
    let mut guard = cell.state.write();
    let state = &mut *guard;
    if store.must_preserve(cell, state)? {
        return Ok(Shrunk::HadEvent);
    }
    let needed = goes.prepare(state)?;
    if needed > spare {
        return Ok(Shrunk::NeedsRoom(needed));
    }
    truncate_memory(store, state, size);
    touch(state);
    let mut op = store.meta.begin(reserved);
    noted::truncate(&mut op, cell, state, size);
    let listed = listing.map(|orphans| {
        state.data.listed = true;
        orphans.add(&mut op, &store.meta, position, cell.no, cell.incarnation).counts
    });
    // Extents in a tree go behind the size: else there would be zeros where data was.
    let is_tree = state.inode.content_kind == ContentKind::Tree;
    let sized = (is_tree && op.wants_order()).then(|| store_inode(&mut op, cell, state));
    let applied = edit.apply(&mut op, &store.alloc, &mut state.inode);
    if let Some(sized) = sized {
        applied.behind(&mut op, sized);
    }
    let gone = goes.apply(&mut op, state);
    let stored = store_inode(&mut op, cell, state);
    applied.stored(&mut op, stored);
    gone.stored(&mut op, stored);
    if let Some(listed) = listed {
        op.edge(EdgeKind::Listed, listed, sized.unwrap_or(stored));
    }
    drop(op);
    state.dirty = false;
    if more {
        state.data.doomed = Some(from..BLOCKS_END);
    }
    Ok(Shrunk::Yes)
}

/// Shrinks the file in memory.
fn truncate_memory(store: &Core, state: &mut InodeState, size: u64) {
    let mut spared = Spared::default();
    if let Some(mut pages) = state.data.cached() {
        spared = pages.discard(pages_for(size), u32::MAX);
        if !size.is_multiple_of(PAGE) {
            pages.zero_tail(page_of(size), (size % PAGE) as usize);
        }
    }
    store.alloc.release_spared(spared);
    state.inode.size = size;
    state.data.medium_size = state.data.medium_size.min(size);
    state.data.stored_size = state.data.stored_size.min(size);
    if state.inode.content_kind == ContentKind::Inline {
        let left = state.inode.inline().len().min(size as usize);
        let content = state.inode.inline()[..left].to_vec();
        state.inode.set_inline(&content);
    }
    if size == 0 {
        state.data.in_blocks = false;
    }
}

/// One step of freeing the blocks of an inode: all of them if it has no name, else those beyond its size.
/// Returns true when none are left. The inode stays in the list of orphans; the caller takes it off.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn free_step(store: &impl History, cell: &Arc<InodeCell>) -> Result<bool> {
    let _io = cell.io.lock();
    let size = {
        let mut guard = cell.state.write();
        let state = &mut *guard;
        if state.inode.links == 0 {
            truncate_memory(store, state, 0);
            noted::release(store, cell, state);
            state.data.doomed = None;
            state.data.noted = false;
            state.data.listed = false;
        }
        state.inode.size
    };
    if cell.state.read().inode.links == 0 {
        store.files.note_flushed(cell, true);
    }
    let range = u64::from(pages_for(size))..BLOCKS_END;
    let has_extents = {
        let state = cell.state.read();
        let mut any = false;
        yore_core::extent::each(&store.meta, cell.no, &state.inode, range.start, &mut |_| {
            any = true;
            Ok(false)
        })?;
        any
    };
    match has_extents {
        true => remove_step(store, cell, range),
        false => {
            store_changed(store, cell)?;
            Ok(true)
        }
    }
}

/// Drops what memory has of a file that this Op frees together with its extents. Io is held.
pub(crate) fn forget(store: &Core, cell: &InodeCell, state: &mut InodeState) {
    truncate_memory(store, state, 0);
    noted::release(store, cell, state);
    state.data.noted = false;
    store.files.note_flushed(cell, true);
}
