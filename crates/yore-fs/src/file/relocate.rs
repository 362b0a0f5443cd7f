//! Moving a file's blocks away from the end of a volume that gets shorter.
//!
//! A piece of an extent beyond the end gets other blocks. Its content is copied; then one Op enters the new
//! blocks and lets go of the old ones, as write-back does with data that it does not write in place. So the
//! file has the same content before and after each of these Ops, and the past loses nothing: only blocks of
//! the present alone move ([`is_own`]). The copy has the birth that new data would have now. A version that
//! is made later finds the new blocks, because it is made of the inode as it is then.
//!
//! **Blocks that several files have** move file by file. The first file gets a copy of its own, and its
//! reference to the old blocks ends. The others share the copy with it ([`super::clone`]), so each Op leaves
//! all files whole, and the content is there once. Where that cannot be (no room for a table, or a file that
//! would be recorded first), a file gets a copy of its own, too.
//!
//! Bytes behind what the medium has of the file (F1) are copied, too, and are as stale as before. Blocks that
//! were never written stay so.

use super::clone::{clone_step, Cloned, Source};
use super::extents::{self, apply, finish_doomed};
use super::flush::{flush_locked, write_data};
use super::history::History;
use super::map::{map_block, PAGE};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use yore_core::alloc::{Promise, Run};
use yore_core::extent::{self, check_run, is_own, Extent};
use yore_core::inode::InodeCell;
use yore_core::Core;
use yore_device::AlignedBuf;
use yore_format::{BlockNo, ContentKind, DataChecksum, InodeNo};

/// The most blocks that are copied at a time: 4 MiB.
const PIECE: u32 = 1024;

/// The owners of blocks that a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The file alone, as it is.
    Alone,
    /// The file as it is, and other files, or other places of it.
    Several,
    /// The file's past, too.
    Past,
}

/// Where the content of shared blocks is that have moved: by the first old block, how many, and which file
/// has them now, at which of its blocks.
#[derive(Default)]
pub(crate) struct Copies(BTreeMap<u64, (u32, InodeNo, u64)>);

impl Copies {
    /// The file that has the content of the first of these blocks now, the block of it that does, and for how
    /// many blocks that holds.
    fn find(&self, run: Run) -> Option<(InodeNo, u64, u32)> {
        let (start, (len, no, first)) = self.0.range(..=run.start.0).next_back()?;
        let skip = run.start.0 - start;
        let left = u64::from(*len).checked_sub(skip).filter(|left| *left > 0)?;
        Some((*no, first + skip, run.len.min(left as u32)))
    }
}

/// Calls `each` with the blocks of a file, and who has them. O(extents).
///
/// # Errors
/// Damage and device errors.
pub(crate) fn blocks(store: &impl History, cell: &InodeCell, each: &mut dyn FnMut(Run, Owner)) -> Result<()> {
    let state = cell.state.read();
    let has_extents = matches!(state.inode.content_kind, ContentKind::Extents | ContentKind::Tree);
    if state.gone || !state.inode.is_regular() || !has_extents {
        return Ok(());
    }
    let recorded_until = store.recorded_until(&state, cell.no)?;
    extent::each(&store.meta, cell.no, &state.inode, 0, &mut |(_, value)| {
        let mut run = Run { start: value.start, len: value.len };
        while run.len > 0 {
            let (owner, len) = match is_own(recorded_until, &value) {
                true if !value.unwritten => match store.alloc.sole_part(&store.meta, run)? {
                    (true, len) => (Owner::Alone, len),
                    (false, len) => (Owner::Several, len),
                },
                true => (Owner::Alone, run.len),
                false => (Owner::Past, run.len),
            };
            each(Run { len, ..run }, owner);
            run = Run { start: BlockNo(run.start.0 + u64::from(len)), len: run.len - len };
        }
        Ok(true)
    })
}

/// Moves the file's blocks at `end` of the volume and beyond that the past does not have; calls `moved` with
/// the number of blocks of each piece. The new blocks come from `promise`. Allocation is closed from `end`
/// on.
///
/// # Errors
/// `NoSpace` if more lies there than was promised; damage and device errors. What has moved stays moved.
pub(crate) fn relocate<'a>(
    store: &'a impl History,
    cell: &Arc<InodeCell>,
    end: BlockNo,
    (promise, copies): (&mut Promise<'a>, &mut Copies),
    moved: &mut dyn FnMut(u64),
) -> Result<()> {
    let (mut at, mut copied_until) = (0, 0);
    loop {
        let io = cell.io.lock();
        finish_doomed(store, cell)?;
        flush_locked(store, cell)?;
        let Some((piece, is_sole)) = next_beyond(store, cell, at, end)? else { return Ok(()) };
        let (first, value) = piece;
        let copy = copies.find(Run { start: value.start, len: value.len });
        if let Some((source, from, len)) = copy.filter(|_| !is_sole && first >= copied_until) {
            drop(io);
            match share(store, cell, first, (source, from, len))? {
                0 => copied_until = first + u64::from(len),
                shared => {
                    moved(shared);
                    at = first + shared;
                }
            }
            continue;
        }
        let mut want = u64::from(value.len.min(PIECE));
        if promise.left() == 0 && !is_sole {
            // It was to be shared.
            *promise = store.alloc.promise(&store.meta, store.near(cell.no), want)?;
        }
        want = want.min(promise.left());
        if want == 0 {
            return Err(Error::NoSpace);
        }
        let run = store.alloc.take(&store.meta, goal(store, cell, first, end)?, want as u32)?;
        promise.take_out(u64::from(run.len));
        if let Err(e) = move_piece(store, cell, piece, run) {
            store.alloc.untake(run);
            store.alloc.release(u64::from(run.len));
            return Err(e);
        }
        if !is_sole {
            copies.0.insert(value.start.0, (run.len, cell.no, first));
        }
        moved(u64::from(run.len));
        at = first + u64::from(run.len);
    }
}

/// Has the file share blocks that another one has with the content of its own; returns how many, 0 if that
/// cannot be. A file that would have to be recorded is left alone: its past would get the old blocks.
fn share(
    store: &impl History,
    cell: &Arc<InodeCell>,
    first: u64,
    (source, from, len): (InodeNo, u64, u32),
) -> Result<u64> {
    if store.must_preserve(cell, &cell.state.read())? {
        return Ok(0);
    }
    let source = Source { cell: store.cell(source)?, in_use: None, as_of: None };
    let range = (from * PAGE, first * PAGE, u64::from(len) * PAGE);
    match clone_step(store, &source, range, cell, &mut |_| {})? {
        Cloned::Shared(bytes) => Ok(bytes.div_ceil(PAGE)),
        Cloned::Copy(_) | Cloned::Changed => Ok(0),
    }
}

/// The first piece of an extent at or after file block `at` that lies beyond the end and can move, and
/// whether the file alone has it.
fn next_beyond(
    store: &impl History,
    cell: &InodeCell,
    at: u64,
    end: BlockNo,
) -> Result<Option<(Extent, bool)>> {
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
        let mut is_sole = true;
        if !rest.unwritten {
            (is_sole, rest.len) = store.alloc.sole_part(&store.meta, Run { start, len: rest.len })?;
        }
        found = Some(((key + skip, rest), is_sole));
        Ok(false)
    })?;
    Ok(found)
}

/// The best place for the blocks: behind those that precede them in the file, if these do not lie beyond
/// `end`; else near the inode.
pub(super) fn goal(store: &Core, cell: &InodeCell, first: u64, end: BlockNo) -> Result<BlockNo> {
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
    let checksums = match value.unwritten {
        true => None,
        false => copy(store, from, to)?,
    };
    let range = first..first + u64::from(to.len);
    let mut edit = extents::load(store, cell, range.clone())?;
    edit.put(first, to, value.unwritten);
    if let Some(checksums) = checksums {
        edit.note_checksums(to, checksums);
    }
    apply(store, cell, edit, |state| {
        if let Some(mut pages) = state.data.cached() {
            pages.cancel_arriving(range.start as u32, range.end as u32);
        }
        store.meta.note_data_named();
    })
}

/// Copies blocks; returns the checksums that they have there. An error of writing stops all writing to the
/// volume (R16).
fn copy(store: &Core, from: Run, to: Run) -> Result<Option<Vec<Option<DataChecksum>>>> {
    store.alloc.make_checksum_tables(&store.meta, to)?;
    let device = store.meta.device();
    let mut bytes = AlignedBuf::zeroed(from.len as usize);
    device.read_at(from.start.0 * PAGE, &mut bytes)?;
    let checksums = moved_checksums(store, from, &bytes)?;
    store.check_writable()?;
    write_data(store, "moving file data", |device| device.write_at(to.start.0 * PAGE, &bytes))?;
    Ok(checksums)
}

/// The checksums of blocks that move, with these bytes: those that they have, whatever the bytes are. `None`:
/// the volume keeps none.
pub(super) fn moved_checksums(
    store: &Core,
    from: Run,
    bytes: &[u8],
) -> Result<Option<Vec<Option<DataChecksum>>>> {
    if !store.alloc.keeps_checksums(&store.meta) {
        return Ok(None);
    }
    let known = store.alloc.checksums(&store.meta, from)?;
    let each = bytes.chunks(PAGE as usize).enumerate();
    Ok(Some(each.map(|(i, block)| known.get(i).or_else(|| Some(DataChecksum::of(block)))).collect()))
}
