//! Moving a file's blocks away from the end of a volume that gets shorter.
//!
//! A piece of an extent beyond the end gets other blocks. Its content is copied; then one Op enters the new
//! blocks and frees the old ones, as write-back does with data that it does not write in place. So the file
//! has the same content before and after each of these Ops, and the past loses nothing: only blocks of the
//! present alone move ([`is_own`]), and of one file alone. The copy has the birth that new data would have
//! now. A version that is made later finds the new blocks, because it is made of the inode as it is then.
//!
//! Bytes behind what the medium has of the file (F1) are copied, too, and are as stale as before. Blocks that
//! were never written stay so.

use super::extents::{self, apply, finish_doomed};
use super::flush::flush_locked;
use super::history::History;
use super::map::{map_block, PAGE};
use crate::{Error, Result};
use std::sync::Arc;
use yore_core::alloc::{Promise, Run};
use yore_core::extent::{self, check_run, is_own, Extent};
use yore_core::inode::InodeCell;
use yore_core::Core;
use yore_device::AlignedBuf;
use yore_format::{BlockNo, ContentKind};
use yore_meta::MetaError;

/// The most blocks that are copied at a time: 4 MiB.
const PIECE: u32 = 1024;

/// Calls `each` with the blocks of a file, and whether they belong to the present alone. O(extents).
///
/// # Errors
/// Damage and device errors.
pub(crate) fn blocks(store: &impl History, cell: &InodeCell, each: &mut dyn FnMut(Run, bool)) -> Result<()> {
    let state = cell.state.read();
    let has_extents = matches!(state.inode.content_kind, ContentKind::Extents | ContentKind::Tree);
    if state.gone || !state.inode.is_regular() || !has_extents {
        return Ok(());
    }
    let recorded_until = store.recorded_until(&state, cell.no)?;
    extent::each(&store.meta, cell.no, &state.inode, 0, &mut |(_, value)| {
        let mut run = Run { start: value.start, len: value.len };
        while run.len > 0 {
            let (is_sole, len) = match is_own(recorded_until, &value) {
                true if !value.unwritten => store.alloc.sole_part(&store.meta, run)?,
                is_own => (is_own, run.len),
            };
            each(Run { len, ..run }, is_sole);
            run = Run { start: BlockNo(run.start.0 + u64::from(len)), len: run.len - len };
        }
        Ok(true)
    })
}

/// Moves the file's own blocks at `end` of the volume and beyond; calls `moved` with the number of blocks of
/// each piece. The new blocks come from `promise`. Allocation is closed from `end` on.
///
/// # Errors
/// `NoSpace` if more lies there than was promised; damage and device errors. What has moved stays moved.
pub(crate) fn relocate(
    store: &impl History,
    cell: &Arc<InodeCell>,
    end: BlockNo,
    promise: &mut Promise<'_>,
    moved: &mut dyn FnMut(u64),
) -> Result<()> {
    let _io = cell.io.lock();
    finish_doomed(store, cell)?;
    flush_locked(store, cell)?;
    let mut at = 0;
    while let Some(piece) = next_beyond(store, cell, at, end)? {
        let (first, value) = piece;
        let want = u64::from(value.len.min(PIECE)).min(promise.left()) as u32;
        if want == 0 {
            return Err(Error::NoSpace);
        }
        let run = store.alloc.take(&store.meta, goal(store, cell, first, end)?, want)?;
        promise.take_out(u64::from(run.len));
        if let Err(e) = move_piece(store, cell, piece, run) {
            store.alloc.untake(run);
            store.alloc.release(u64::from(run.len));
            return Err(e);
        }
        moved(u64::from(run.len));
        at = first + u64::from(run.len);
    }
    Ok(())
}

/// The first piece of an extent at or after file block `at` that lies beyond the end and can move.
fn next_beyond(store: &impl History, cell: &InodeCell, at: u64, end: BlockNo) -> Result<Option<Extent>> {
    let state = cell.state.read();
    let recorded_until = store.recorded_until(&state, cell.no)?;
    let mut found = None;
    if state.gone || matches!(state.inode.content_kind, ContentKind::Empty | ContentKind::Inline) {
        return Ok(None);
    }
    extent::each(&store.meta, cell.no, &state.inode, at, &mut |(key, value)| {
        let skip = at.saturating_sub(key).max(end.0.saturating_sub(value.start.0));
        if skip >= u64::from(value.len) || !is_own(recorded_until, &value) {
            return Ok(true);
        }
        let (mut rest, start) = (value, BlockNo(value.start.0 + skip));
        (rest.start, rest.len) = (start, value.len - skip as u32);
        if !rest.unwritten {
            let (is_sole, len) = store.alloc.sole_part(&store.meta, Run { start, len: rest.len })?;
            if !is_sole {
                return Err(Error::Refused(format!("block {start} beyond the new end is shared by files")));
            }
            rest.len = len;
        }
        found = Some((key + skip, rest));
        Ok(false)
    })?;
    Ok(found)
}

/// The best place for the blocks: behind those that precede them in the file, if these do not lie beyond the
/// end; else near the inode.
fn goal(store: &Core, cell: &InodeCell, first: u64, end: BlockNo) -> Result<BlockNo> {
    if first > 0 {
        let before = map_block(store, cell.no, &cell.state.read(), first - 1)?;
        if let Some(extent) = before.extent.filter(|extent| extent.start.0 + 1 < end.0) {
            return Ok(BlockNo(extent.start.0 + 1));
        }
    }
    Ok(store.meta.geometry().data_start(store.near(cell.no)))
}

/// Copies as much of a piece as there are new blocks for, and enters them in place of the old ones.
fn move_piece(store: &impl History, cell: &InodeCell, (first, value): Extent, to: Run) -> Result<()> {
    let from = Run { start: value.start, len: to.len };
    check_run(&store.meta, &store.alloc, cell.no, from)?;
    if !value.unwritten {
        copy(store, from, to)?;
    }
    let range = first..first + u64::from(to.len);
    let mut edit = extents::load(store, cell, &cell.state.read(), range)?;
    edit.put(first, to, value.unwritten);
    apply(store, cell, edit, |_| store.meta.note_data_named())
}

/// Copies blocks. An error of writing stops all writing to the volume (R16).
fn copy(store: &Core, from: Run, to: Run) -> Result<()> {
    let device = store.meta.device();
    let mut bytes = AlignedBuf::zeroed(from.len as usize);
    device.read_at(from.start.0 * PAGE, &mut bytes)?;
    store.check_writable()?;
    // After a panic nobody knows what is on the medium.
    let _stop = store.meta.stop_at_panic("moving file data");
    device.write_at(to.start.0 * PAGE, &bytes).map_err(|e| {
        store.meta.stop(MetaError::Device(e.clone()));
        e.into()
    })
}
