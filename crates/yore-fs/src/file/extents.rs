//! Ops that change which extents a file has, in steps. Each step is one Op of bounded size. The caller holds
//! io.

use super::history::History;
use super::map::pages_for;
use crate::{Error, Result};
use std::ops::Range;
use std::sync::Arc;
use yore_core::btree::Pins;
use yore_core::extent::{self, Edit};
use yore_core::inode::{store_inode, InodeCell, InodeState};
use yore_core::Core;
use yore_format::ContentKind;
use yore_meta::{EdgeKind, Reserved};

/// Beyond every block of a file.
pub(super) const BLOCKS_END: u64 = u64::MAX;

/// How many extents a removal takes at once at most, which is more than a window has. If there is no room for
/// the nodes that it copies, it goes down from there. It is a power of 4.
const EXTENTS_AT_ONCE: usize = 256;

/// Enters an edit in one Op. `then` changes the locked state before the Op opens.
pub(super) fn apply(
    store: &Core,
    cell: &InodeCell,
    edit: Edit,
    then: impl FnOnce(&mut InodeState),
) -> Result<()> {
    let reserved = store.reserve_freely(store.near(cell.no), edit.blocks())?;
    apply_reserved(store, cell, edit, reserved, then)
}

/// As [`apply`], with the blocks that the caller has reserved.
pub(super) fn apply_reserved(
    store: &Core,
    cell: &InodeCell,
    mut edit: Edit,
    reserved: Reserved,
    then: impl FnOnce(&mut InodeState),
) -> Result<()> {
    let mut pins = Pins::new();
    edit.prepare(&store.meta, &store.alloc, &mut pins)?;
    let mut guard = cell.state.write();
    let state = &mut *guard;
    then(state);
    let mut op = store.meta.begin(reserved);
    let applied = edit.apply(&mut op, &store.alloc, &mut state.inode);
    let stored = store_inode(&mut op, cell, state);
    applied.stored(&mut op, stored);
    state.dirty = false;
    Ok(())
}

/// Goes on freeing what is doomed, to the end. The caller holds io.
pub(super) fn finish_doomed(store: &impl History, cell: &Arc<InodeCell>) -> Result<()> {
    loop {
        let Some(doomed) = cell.state.read().data.doomed.clone() else { return Ok(()) };
        if remove_step(store, cell, doomed)? {
            return Ok(());
        }
    }
}

/// The extents of a range, to change them: the first ones, as many as fit a window. The caller holds io, with
/// which alone they change. So they are read without the state, for which writers and readers wait.
pub(super) fn load(store: &impl History, cell: &InodeCell, range: Range<u64>) -> Result<Edit> {
    let (inode, recorded_until) = {
        let state = cell.state.read();
        (state.inode.clone(), store.recorded_until(&state, cell.no)?)
    };
    Edit::load(&store.meta, cell.no, &inode, recorded_until, range.start, range.end)
}

/// The removal of the first extents of a range.
pub(super) struct Removal {
    /// It removes the extents up to `limit`.
    pub(super) edit: Edit,
    pub(super) limit: u64,
    pub(super) reserved: Reserved,
}

/// What the Op of a removal needs beside it, in metadata blocks.
#[derive(Clone, Copy, Default)]
pub(super) struct Beside {
    /// In any case.
    pub(super) always: u32,
    /// If extents of the range are left.
    pub(super) for_rest: u32,
}

/// The removal of the first extents of a range, with the metadata blocks that it takes: on a volume with
/// hardly any it removes fewer, so that a full volume can be emptied.
pub(super) fn reserve_removal(
    store: &impl History,
    cell: &InodeCell,
    range: &Range<u64>,
    beside: Beside,
) -> Result<Removal> {
    let mut most = EXTENTS_AT_ONCE;
    loop {
        let mut edit = load(store, cell, range.clone())?;
        let limit = edit.limit_of(range.start, most);
        edit.remove(range.start, limit);
        let for_rest = if limit < range.end { beside.for_rest } else { 0 };
        match store.reserve_freely(store.near(cell.no), edit.blocks() + beside.always + for_rest) {
            Err(Error::NoSpace) if most > 1 => most /= 4,
            reserved => return Ok(Removal { edit, limit, reserved: reserved? }),
        }
    }
}

/// One Op that frees the first extents of a range. Returns true if none are left; then the range is no longer
/// doomed.
pub(super) fn remove_step(store: &impl History, cell: &InodeCell, range: Range<u64>) -> Result<bool> {
    let Removal { mut edit, limit, reserved } = reserve_removal(store, cell, &range, Beside::default())?;
    let done = limit >= range.end;
    // A hole says nothing of what is beyond the size.
    let unlist = done && range.end == BLOCKS_END && cell.state.read().data.listed;
    let orphans = unlist.then(|| store.orphans.lock());
    let mut pins = Pins::new();
    edit.prepare(&store.meta, &store.alloc, &mut pins)?;
    let position = orphans
        .as_ref()
        .map(|orphans| orphans.prepare_remove(&store.meta, cell.no, &mut pins))
        .transpose()?;
    let mut guard = cell.state.write();
    let state = &mut *guard;
    let mut op = store.meta.begin(reserved);
    // The size that an earlier step has stored comes before the extents beyond it go.
    let is_tree = state.inode.content_kind == ContentKind::Tree;
    let sized = (is_tree && op.wants_order()).then(|| store_inode(&mut op, cell, state));
    let applied = edit.apply(&mut op, &store.alloc, &mut state.inode);
    if let Some(sized) = sized {
        applied.behind(&mut op, sized);
    }
    let stored = store_inode(&mut op, cell, state);
    applied.stored(&mut op, stored);
    if let Some((orphans, position)) = orphans.as_ref().zip(position) {
        // Whoever removed the last name meanwhile relies on the list.
        if state.inode.links > 0 {
            let unlisted = orphans.remove(&mut op, &store.meta, position, cell.no);
            op.edge(EdgeKind::Unlisted, stored, unlisted.counts);
        }
        state.data.listed = false;
    }
    drop(op);
    state.dirty = false;
    if done {
        state.data.doomed = None;
    }
    Ok(done)
}

/// Makes sure that a file which is about to grow has no written extents beyond its size (F9). The caller
/// holds io. Nobody else makes the file grow meanwhile, because callers that find `unsure_beyond` wait for
/// io.
///
/// # Errors
/// Damage and device errors. Extents that were not made unwritten stay doomed.
pub(super) fn settle_beyond(store: &impl History, cell: &Arc<InodeCell>) -> Result<()> {
    if !cell.state.read().data.unsure_beyond {
        return Ok(());
    }
    if !store.read_only {
        finish_doomed(store, cell)?;
    }
    let mut guard = cell.state.write();
    let from = u64::from(pages_for(guard.inode.size));
    let mut is_written = false;
    extent::each(&store.meta, cell.no, &guard.inode, from, &mut |(_, value)| {
        is_written |= !value.unwritten;
        Ok(!is_written)
    })?;
    if is_written {
        // On a read-only volume the extents stay doomed.
        guard.data.doomed = Some(from..u64::MAX);
    }
    drop(guard);
    if is_written && !store.read_only {
        make_unwritten(store, cell)?;
    }
    cell.state.write().data.unsure_beyond = false;
    Ok(())
}

/// Turns the doomed extents into unwritten ones.
pub(super) fn make_unwritten(store: &impl History, cell: &Arc<InodeCell>) -> Result<()> {
    let Some(range) = cell.state.read().data.doomed.clone() else { return Ok(()) };
    let mut at = range.start;
    while at < range.end {
        let mut edit = load(store, cell, at..range.end)?;
        let limit = edit.limit();
        let rest = edit.set_unwritten(at, limit, |run| store.alloc.in_place_part(&store.meta, run))?;
        let done = rest >= range.end;
        apply(store, cell, edit, |state| {
            if done {
                state.data.doomed = None;
            }
        })?;
        at = rest;
    }
    Ok(())
}
