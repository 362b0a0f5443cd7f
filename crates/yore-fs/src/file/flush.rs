//! Write-back: takes blocks, writes data, then enters in an Op what has been written (rule 4).
//!
//! One pass goes through a file's dirty pages in ascending order, in batches. The bytes of a batch's pages
//! are those of one instant (a snapshot under the state lock, kept by reference); the state lock is free
//! while the device works. The size that an Op may store afterwards ends before the first page that was dirty
//! at that instant and is not in the batch. If anything fails the batch is dirty again, and the blocks that
//! no Op entered go back.
//!
//! **The log lets go in the Op that makes the data at home count (F8).** The Op that stores the size of a
//! pass also takes back what the log has noted of the file. A record or a generation between the two would
//! leave both to a replay. The replay would enter the noted bytes, which end where the file ended then, over
//! those at home, and show zeros from there to the stored size. So `stored_size` is raised only under the
//! state lock under which the Op is opened. That is also true of an Op about something else, which stores
//! that size, too.
//!
//! Batches of several files may go to the device together ([`write_parts`]; [`super::group`] gathers them).
//! First all of them get their blocks, next to one another if there is room; then one request writes what
//! lies together; and then each file has Ops of its own.

use super::batch::{collect, Batch, Destination, Pass, Segment};
use super::extents::{self, finish_doomed};
use super::history::History;
use super::map::{map_block, pages_for, PAGE};
use super::noted;
use crate::{Error, Result};
use std::sync::Arc;
use yore_core::alloc::{Run, Spared};
use yore_core::btree::Pins;
use yore_core::extent::Edit;
use yore_core::inode::{store_inode, InodeCell, InodeState};
use yore_core::pages::Bytes;
use yore_core::Core;
use yore_device::{write_blocks, Device, DeviceError};
use yore_format::{BlockNo, ContentKind, Corruption, INLINE_BYTES};
use yore_meta::{MetaError, Reserved};

/// Extents that one Op may add.
const GROWTH: usize = 8;
/// Pieces that one Op enters.
const PIECES: usize = 16;
/// From how many pages on their checksums are computed by another thread while the device writes them: those
/// of fewer take hardly longer than to start one.
const BESIDE: usize = 256;

/// When the device gets what is written back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// Before the call goes on.
    Now,
    /// As late data, as far as there is room for that; else at once.
    Later,
}

/// Written data that one Op has to enter.
enum Piece {
    /// New blocks, from this file block on.
    Put(u64, Run),
    /// Blocks that the file has, and that were unwritten.
    Written(u64, Run),
}

impl Piece {
    fn parts(&self) -> (u64, Run) {
        match self {
            Piece::Put(first, run) | Piece::Written(first, run) => (*first, *run),
        }
    }

    fn first(&self) -> u64 {
        self.parts().0
    }

    fn end(&self) -> u64 {
        let (first, run) = self.parts();
        first + u64::from(run.len)
    }

    /// Splits off the part from file block `at` on, if both parts have something.
    fn split_off(&mut self, at: u64) -> Option<Piece> {
        if at <= self.first() || at >= self.end() {
            return None;
        }
        let split = |first: u64, run: &mut Run| {
            let len = (at - first) as u32;
            let rest = Run { start: BlockNo(run.start.0 + u64::from(len)), len: run.len - len };
            run.len = len;
            rest
        };
        Some(match self {
            Piece::Written(first, run) => Piece::Written(at, split(*first, run)),
            Piece::Put(first, run) => Piece::Put(at, split(*first, run)),
        })
    }
}

/// One file's batch on its way to the medium.
pub(super) struct Part<'a> {
    pub(super) cell: &'a Arc<InodeCell>,
    pub(super) batch: Batch,
    /// What is written, or will be, and no Op has entered.
    pieces: Vec<Piece>,
    /// File blocks that Ops have entered.
    entered: Vec<(u64, u64)>,
    /// The result of writing it.
    pub(super) result: Result<()>,
}

impl<'a> Part<'a> {
    pub(super) fn new(cell: &'a Arc<InodeCell>, batch: Batch) -> Part<'a> {
        Part { cell, batch, pieces: Vec::new(), entered: Vec::new(), result: Ok(()) }
    }
}

/// Pages, and the block where they go.
type Writes<'a> = Vec<(BlockNo, &'a [Bytes])>;

/// Where the batches of some files go, as far as that is decided.
#[derive(Default)]
struct Placement<'a> {
    /// What is to be written.
    writes: Writes<'a>,
    /// Where the new blocks of the last file end.
    last: Option<BlockNo>,
}

/// Writes back the pages that were dirty when it was called. The first half of fsync.
///
/// # Errors
/// The error that kept data from the medium, now or in the background since the last call.
pub(crate) fn flush_file(store: &impl History, cell: &Arc<InodeCell>) -> Result<()> {
    let _io = cell.io.lock();
    if is_settled(&cell.state.read()) {
        return Ok(());
    }
    let flushed = flush_locked(store, cell);
    let remembered = cell.state.write().data.error.take();
    flushed.and(remembered.map_or(Ok(()), Err))
}

/// Whether there is nothing to write back or to report.
pub(super) fn is_settled(state: &InodeState) -> bool {
    state.data.error.is_none() && is_written(state)
}

/// Whether there is nothing to write back. An earlier attempt may have failed without anybody knowing yet.
/// The metadata layer knows of data that was written in place and not flushed
/// ([`yore_meta::Meta::note_data_written`]).
pub(crate) fn is_written(state: &InodeState) -> bool {
    let data = &state.data;
    !state.dirty && data.doomed.is_none() && data.stored_size == state.inode.size && !data.is_busy()
}

/// Notes that a file could not be written back in the background.
pub(super) fn note_failed(store: &Core, cell: &InodeCell, error: &crate::Error) {
    cell.state.write().data.error.get_or_insert_with(|| error.clone());
    store.files.note_flushed(cell, false);
}

/// One pass over the file. The caller holds io.
pub(super) fn flush_locked(store: &impl History, cell: &Arc<InodeCell>) -> Result<()> {
    flush_to(store, cell, u64::MAX, When::Now)
}

/// As [`flush_locked`], for the bytes before `size`, as far as the file has them.
pub(super) fn flush_to(store: &impl History, cell: &Arc<InodeCell>, size: u64, when: When) -> Result<()> {
    finish_doomed(store, cell)?;
    if flush_small(store, cell)? {
        return Ok(());
    }
    let size = size.min(cell.state.read().inode.size);
    let pass = Pass { end: pages_for(size), size };
    let mut next = 0;
    loop {
        let batch = collect(store, cell, next, pass)?;
        if batch.segments.is_empty() {
            break;
        }
        next = batch.next;
        let mut parts = [Part::new(cell, batch)];
        write_parts(store, &mut parts, when);
        let [part] = parts;
        part.result?;
    }
    finish_pass(store, cell, pass)
}

/// Writes a file that fits its inode, in one Op. Returns false if it does not fit.
pub(super) fn flush_small(store: &Core, cell: &Arc<InodeCell>) -> Result<bool> {
    let reserved = store.reserve_freely(store.near(cell.no), 0)?;
    let mut guard = cell.state.write();
    let state = &mut *guard;
    if !state.data.fits_inode(state.inode.content_kind, state.inode.size) {
        return Ok(false);
    }
    let size = state.inode.size;
    let mut content_changed = false;
    if let Some(mut pages) = state.data.cached() {
        if pages.has_dirty() {
            content_changed = true;
            let mut content = [0; INLINE_BYTES];
            let (bytes, promised) = pages.start_writing(0);
            content.copy_from_slice(&bytes[..INLINE_BYTES]);
            pages.end_writing(0);
            let extents = pages.spare_extents();
            drop(pages);
            state.inode.set_inline(&content[..size as usize]);
            store.alloc.release_spared(Spared { blocks: u64::from(promised), extents });
        }
    }
    // New content of the same size is a change, too, also when another Op has stored the inode since the
    // write.
    let changed = content_changed || state.dirty || state.data.stored_size != size;
    state.data.medium_size = size;
    state.data.stored_size = size;
    state.data.noted = false;
    store_and_release(store, cell, state, changed, reserved);
    store.files.note_flushed(cell, true);
    Ok(true)
}

/// Writes batches of files and enters them; each part has its own result. The caller holds io of these files.
pub(super) fn write_parts(store: &impl History, parts: &mut [Part<'_>], when: When) {
    let (mut placement, mut renewed, mut batches) = (Placement::default(), 0, Vec::new());
    for Part { cell, batch, pieces, result, .. } in parts.iter_mut() {
        let batch: &Batch = batch;
        if batch.is_in_place() {
            renewed = renewed.max(cell.cover.excluded.renewed());
        }
        let before = placement.writes.len();
        *result = placement.allocate(store, cell, batch, pieces);
        if result.is_err() {
            placement.writes.truncate(before);
        }
        batches.push(batch);
    }
    let written = store.settle_renewed(renewed);
    let put_out = || written.and_then(|()| put_out(store, &placement.writes, when));
    let written = match store.alloc.keeps_checksums(&store.meta) {
        true => compute_beside(&batches, when, put_out),
        false => put_out(),
    };
    for part in parts {
        let Part { cell, batch, pieces, entered, result } = part;
        if result.is_ok() {
            *result = written.clone();
        }
        if result.is_ok() {
            note_in_place(store, batch);
            *result = enter(store, cell, pieces, entered, batch);
        }
        settle(store, part);
    }
    store.files.note_progress();
}

/// Computes the checksums of what is written. If that is so much that another thread is worth it, that is
/// done while `put_out` has the device write it. Nobody changes these bytes meanwhile: a writer that comes
/// gets a copy of its page.
fn compute_beside(batches: &[&Batch], when: When, put_out: impl FnOnce() -> Result<()>) -> Result<()> {
    let compute = || batches.iter().for_each(|batch| batch.compute_checksums());
    let pages: usize = batches.iter().map(|batch| batch.pages()).sum();
    if when == When::Later || pages < BESIDE {
        return put_out();
    }
    std::thread::scope(|scope| {
        let other = std::thread::Builder::new().name("yore-checksums".into()).spawn_scoped(scope, compute);
        let written = put_out();
        match other.map(std::thread::ScopedJoinHandle::join) {
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            // If no thread can be had, whoever enters what is written computes them.
            Ok(Ok(())) | Err(_) => written,
        }
    })
}

/// Ends a part: blocks that no Op entered go back, and their promises are valid again. After an error the
/// pages that no Op entered are as dirty as before. The others are at home: what they were promised is spent,
/// so nothing else could be done with them.
fn settle(store: &Core, part: &Part<'_>) {
    for piece in &part.pieces {
        if let Piece::Put(_, run) = piece {
            store.alloc.untake(*run);
        }
    }
    let is_entered = |block: u64| part.entered.iter().any(|(a, b)| (*a..*b).contains(&block));
    if let (Err(_), Some(next), false) = (&part.result, part.pieces.first(), part.entered.is_empty()) {
        // All pages of the batch before this one are on the medium.
        let size = part.batch.size.min(next.first() * PAGE);
        let mut state = part.cell.state.write();
        state.data.medium_size = state.data.medium_size.max(size);
    }
    let state = part.cell.state.read();
    let mut pages = state.data.pages(&store.files.pages);
    let mut spare = 0;
    for segment in &part.batch.segments {
        for (i, promised) in segment.promised.iter().enumerate() {
            let index = segment.first + i as u32;
            let is_entered = is_entered(u64::from(index));
            let unspent = *promised && !(segment.to == Destination::New && is_entered);
            if part.result.is_ok() || is_entered {
                pages.end_writing(index);
                spare += u64::from(unspent);
            } else {
                let keeps_it = pages.undo_writing(index, unspent);
                spare += u64::from(unspent && !keeps_it);
            }
        }
    }
    let extents = pages.spare_extents();
    drop(pages);
    store.alloc.release_spared(Spared { blocks: spare, extents });
}

impl<'a> Placement<'a> {
    /// Decides where the pages of a batch go, and takes blocks; adds to `pieces` what an Op is to enter.
    fn allocate(
        &mut self,
        store: &Core,
        cell: &InodeCell,
        batch: &'a Batch,
        pieces: &mut Vec<Piece>,
    ) -> Result<()> {
        for segment in &batch.segments {
            let (first, len) = (u64::from(segment.first), segment.bytes.len() as u64);
            match segment.to {
                Destination::InPlace(start) => self.writes.push((start, &segment.bytes)),
                Destination::Unwritten(start) => {
                    store.alloc.make_checksum_tables(&store.meta, Run { start, len: len as u32 })?;
                    pieces.push(Piece::Written(first, Run { start, len: len as u32 }));
                    self.writes.push((start, &segment.bytes));
                }
                Destination::New => self.allocate_new(store, cell, segment, pieces)?,
            }
        }
        Ok(())
    }

    fn allocate_new(
        &mut self,
        store: &Core,
        cell: &InodeCell,
        segment: &'a Segment,
        pieces: &mut Vec<Piece>,
    ) -> Result<()> {
        if let Some(i) = segment.promised.iter().position(|p| !p) {
            // When the page was written to, the file had a block there (F4), and now it has none. Extents
            // that overlap explain it: which of them a look-up finds depends on the block that it looks for.
            let (expected, found) = ("the block that its data was accepted for", "a hole");
            let field = format!("{found} at file block {}", u64::from(segment.first) + i as u64);
            return Err(Corruption::new("extent", "blocks", expected, field).of(cell.no).into());
        }
        let mut goal = goal(store, cell, segment, pieces, self.last)?;
        let mut done = 0;
        while done < segment.bytes.len() {
            let run = store.alloc.take(&store.meta, goal, (segment.bytes.len() - done) as u32)?;
            pieces.push(Piece::Put(u64::from(segment.first) + done as u64, run));
            self.writes.push((run.start, &segment.bytes[done..done + run.len as usize]));
            store.alloc.make_checksum_tables(&store.meta, run)?;
            done += run.len as usize;
            goal = BlockNo(run.end());
            self.last = Some(goal);
        }
        Ok(())
    }
}

/// The best place for new blocks: behind those that precede them in the file; else behind those of the file
/// before, if these are in the inode's group; else in that group.
fn goal(
    store: &Core,
    cell: &InodeCell,
    segment: &Segment,
    pieces: &[Piece],
    last: Option<BlockNo>,
) -> Result<BlockNo> {
    let first = u64::from(segment.first);
    if first > 0 {
        let before = map_block(store, cell.no, &cell.state.read(), first - 1)?;
        if let Some(extent) = before.extent {
            return Ok(BlockNo(extent.start.0 + 1));
        }
    }
    let own = pieces.iter().rev().find_map(|p| match p {
        Piece::Put(_, run) => Some(BlockNo(run.end())),
        Piece::Written(..) => None,
    });
    let (near, geometry) = (store.near(cell.no), store.meta.geometry());
    let last = last.filter(|last| last.0 < geometry.blocks && geometry.group_of(*last) == near);
    Ok(own.or(last).unwrap_or_else(|| geometry.data_start(near)))
}

/// Puts pages into their blocks: at once, or in a while if there is room for that.
fn put_out(store: &Core, writes: &Writes<'_>, when: When) -> Result<()> {
    if writes.is_empty() {
        return Ok(());
    }
    store.check_writable()?;
    let mut blocks: Vec<(u64, &Bytes)> = Vec::with_capacity(writes.len());
    for (start, pages) in writes {
        blocks.extend((start.0..).zip(pages.iter()));
    }
    if when == When::Later && store.meta.write_later(&blocks)? {
        return Ok(());
    }
    write_data(store, "writing file data", |device| write_blocks(device, &mut blocks))
}

/// Has `write` write file data to the device. A panic stops all writing to the volume, for nobody knows then
/// what is on the medium; so does an error (R16), since callers that write many files go on to the next when
/// one fails.
///
/// # Errors
/// Those of `write`.
pub(super) fn write_data(
    store: &Core,
    what: &'static str,
    write: impl FnOnce(&dyn Device) -> std::result::Result<(), DeviceError>,
) -> Result<()> {
    let _stop = store.meta.stop_at_panic(what);
    write(&**store.meta.device()).map_err(|e| {
        store.meta.stop(MetaError::Device(e.clone()));
        e.into()
    })
}

/// Notes that data was overwritten in place. The log keeps its bytes until the pass ends (F8).
fn note_in_place(store: &Core, batch: &Batch) {
    if batch.is_in_place() {
        store.meta.note_data_written();
    }
}

/// Enters what was written, with its checksums if the volume keeps them, in as many Ops as that takes; the
/// last Op stores the size.
fn enter(
    store: &impl History,
    cell: &InodeCell,
    pieces: &mut Vec<Piece>,
    entered: &mut Vec<(u64, u64)>,
    batch: &Batch,
) -> Result<()> {
    let mut most = PIECES;
    while !pieces.is_empty() {
        let (mut edit, count) = plan(store, cell, pieces, batch, most)?;
        let grows = edit.growth() > 0;
        let reserved = match store.reserve_freely(store.near(cell.no), edit.blocks()) {
            // There may be no room for so much at once.
            Err(Error::NoSpace) if count > 1 => {
                most = 1;
                continue;
            }
            reserved => reserved?,
        };
        let mut pins = Pins::new();
        edit.prepare(&store.meta, &store.alloc, &mut pins)?;
        let mut guard = cell.state.write();
        let state = &mut *guard;
        store.meta.note_data_named();
        let mut op = store.meta.begin(reserved);
        if count == pieces.len() {
            note_on_medium(state, batch);
            if let Some(stored) = batch.stored {
                state.data.stored_size = state.data.stored_size.max(stored);
                noted::release_in(&mut op, cell, state);
            }
        }
        let applied = edit.apply(&mut op, &store.alloc, &mut state.inode);
        let nodes_left = applied.nodes_left().to_vec();
        let stored = store_inode(&mut op, cell, state);
        applied.stored(&mut op, stored);
        drop(op);
        state.dirty = false;
        let has_tree = state.inode.content_kind == ContentKind::Tree;
        let spared = state.data.cached().map_or(0, |mut pages| pages.spare_nodes(&nodes_left, has_tree));
        store.alloc.release_extents(spared);
        if grows && has_tree {
            let blocks = pieces[0].first()..pieces[count - 1].end();
            store.files.scattered.note(cell.no, cell.incarnation, blocks);
        }
        entered.extend(pieces.drain(..count).map(|p| (p.first(), p.end())));
    }
    // If no Op was needed for the data, the pass ends with the Op that stores the size.
    note_on_medium(&mut cell.state.write(), batch);
    Ok(())
}

/// Notes that the batch is on the medium.
fn note_on_medium(state: &mut InodeState, batch: &Batch) {
    state.data.medium_size = state.data.medium_size.max(batch.size);
}

/// The change of extents that one Op can make for the first pieces, `most` at most, and how many pieces those
/// are.
fn plan(
    store: &impl History,
    cell: &InodeCell,
    pieces: &mut Vec<Piece>,
    batch: &Batch,
    most: usize,
) -> Result<(Edit, usize)> {
    let last = pieces[..pieces.len().min(most)].last().expect("there is one").end();
    let mut edit = extents::load(store, cell, pieces[0].first()..last)?;
    // One piece alone fills the window: it has many short extents that could be one, which nobody has merged.
    if let Some(rest) = pieces[0].split_off(edit.limit()) {
        pieces.insert(1, rest);
    }
    let mut count = 0;
    for piece in pieces.iter().take(most) {
        if count > 0 && (piece.end() > edit.limit() || edit.growth() + 2 > GROWTH) {
            break;
        }
        match piece {
            Piece::Put(first, run) => edit.put(*first, *run, false),
            Piece::Written(first, run) => edit.set_written(*first, first + u64::from(run.len)),
        }
        if store.alloc.keeps_checksums(&store.meta) {
            let (first, run) = piece.parts();
            edit.note_checksums(run, batch.checksums(first, run.len));
        }
        count += 1;
    }
    Ok((edit, count))
}

/// Stores the inode if it differs from its block.
pub(super) fn store_changed(store: &Core, cell: &InodeCell) -> Result<()> {
    let reserved = store.reserve_freely(store.near(cell.no), 0)?;
    let mut guard = cell.state.write();
    let state = &mut *guard;
    if state.dirty && !state.gone {
        let mut op = store.meta.begin(reserved);
        store_inode(&mut op, cell, state);
        state.dirty = false;
    }
    Ok(())
}

/// Ends a pass: stores its size. A file without dirty pages then has all of its size on the medium, and is no
/// longer noted.
pub(super) fn finish_pass(store: &Core, cell: &InodeCell, pass: Pass) -> Result<()> {
    let reserved = store.reserve_freely(store.near(cell.no), 0)?;
    let mut guard = cell.state.write();
    let state = &mut *guard;
    let clean = !state.data.cached().is_some_and(|p| p.has_dirty());
    let size = if clean { state.inode.size } else { pass.size };
    assert!(
        clean || state.data.logged_size.is_none_or(|logged| logged <= pass.size),
        "F8: a pass ends early"
    );
    state.data.medium_size = state.data.medium_size.max(size);
    if state.data.stored_size < size {
        // Data behind the old size in its last block was overwritten in place, and shows once the new size is
        // there.
        store.meta.note_data_written_first();
        state.data.stored_size = size;
        state.dirty = true;
    }
    if clean {
        state.data.noted = false;
    }
    let changed = state.dirty;
    store_and_release(store, cell, state, changed, reserved);
    store.files.note_flushed(cell, clean);
    Ok(())
}

/// The end of a pass: one Op stores a changed inode and lets the log go (F8). If there is nothing to store,
/// everything was overwritten in place, below the stored size.
fn store_and_release(
    store: &Core,
    cell: &InodeCell,
    state: &mut InodeState,
    changed: bool,
    reserved: Reserved,
) {
    if changed && !state.gone {
        let mut op = store.meta.begin(reserved);
        noted::release_in(&mut op, cell, state);
        store_inode(&mut op, cell, state);
        state.dirty = false;
    }
    noted::release(store, cell, state);
}
