//! Writing to memory: what the write needs is read and promised first; then nothing can fail.

use super::extents::settle_beyond;
use super::history::{History, Room};
use super::map::{check_alive, map_to_write, page_of, pages_for, Touch, PAGE};
use super::read::load_page;
use super::writeback::throttle;
use crate::{Error, Result};
use std::sync::Arc;
use yore_core::alloc::{Promise, LEAF_EXTENTS};
use yore_core::extent::{self, is_own, INLINE_MOST};
use yore_core::inode::{InodeCell, InodeState};
use yore_core::pages::{Bytes, Growth};
use yore_core::Core;
use yore_device::AlignedBuf;
use yore_format::layout::FILE_SIZE_MAX;
use yore_format::{ContentKind, EventNo, InodeNo};

/// How many bytes are written under one hold of the state lock, unless appending (which is atomic whatever
/// its length).
const CHUNK: usize = 4 << 20;

/// Writes all of `data`, at the file's end if `append`; returns the offset at which it was written. `touch`
/// runs under the state lock when a part has been written.
///
/// # Errors
/// `NoSpace`, `FileTooLarge`, `ReadOnly`, `Stale`; damage and device errors. Then a part of the data may have
/// been written, if it is longer than 4 MiB.
pub(crate) fn write(
    store: &impl History,
    cell: &Arc<InodeCell>,
    offset: u64,
    data: &[u8],
    append: bool,
    touch: Touch<'_>,
) -> Result<u64> {
    store.check_writable()?;
    if append || data.len() <= CHUNK {
        return write_chunk(store, cell, offset, data, append, touch);
    }
    let mut at = offset;
    for chunk in data.chunks(CHUNK) {
        write_chunk(store, cell, at, chunk, false, touch)?;
        at += chunk.len() as u64;
    }
    Ok(offset)
}

fn write_chunk(
    store: &impl History,
    cell: &Arc<InodeCell>,
    offset: u64,
    data: &[u8],
    append: bool,
    touch: Touch<'_>,
) -> Result<u64> {
    let room = data.len() / PAGE as usize + 3;
    loop {
        throttle(store)?;
        store.files.pages.make_room(room);
        let mut state = cell.state.write();
        check_alive(&state)?;
        if store.must_preserve(cell, &state)? {
            drop(state);
            store.preserve(cell, Room::Free)?;
            continue;
        }
        let offset = if append { state.inode.size } else { offset };
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_SIZE_MAX);
        let end = end.ok_or(Error::FileTooLarge)?;
        if data.is_empty() {
            return Ok(offset);
        }
        if state.data.unsure_beyond && end > state.inode.size {
            drop(state);
            let _io = cell.io.lock();
            settle_beyond(store, cell)?;
            continue;
        }
        let Some(plan) = prepare(store, cell, &state, offset, end, data)? else {
            // The promise needs a zone, and a zone needs an Op.
            drop(state);
            store.alloc.make_index_room(&store.meta, store.near(cell.no))?;
            continue;
        };
        let copied = plan.enter(store, &mut state);
        {
            let mut pages = state.data.pages(&store.files.pages);
            let mut at = offset;
            while at < end {
                let within = (at % PAGE) as usize;
                let n = (PAGE as usize - within).min((end - at) as usize);
                let from = (at - offset) as usize;
                if copied.binary_search(&page_of(at)).is_err() {
                    pages.dirty_bytes(page_of(at))[within..within + n].copy_from_slice(&data[from..from + n]);
                }
                at += n as u64;
            }
        }
        state.inode.size = state.inode.size.max(end);
        touch(&mut state);
        note(store, cell, &mut state);
        return Ok(offset);
    }
}

/// Notes that the file has something to be written back.
pub(super) fn note(store: &Core, cell: &Arc<InodeCell>, state: &mut InodeState) {
    state.dirty = true;
    if !std::mem::replace(&mut state.data.noted, true) {
        store.files.note_dirty(cell);
    }
}

/// What makes pages writable, gathered while it can still fail.
#[derive(Default)]
pub(super) struct Plan<'a> {
    /// The blocks that were promised, until the pages have them.
    blocks: Option<Promise<'a>>,
    /// Pages that are not cached, with their content.
    load: Vec<(u32, AlignedBuf)>,
    /// Which of these have the new content already, in ascending order.
    copied: Vec<u32>,
    /// Pages for which a block is promised now.
    promise: Vec<u32>,
    /// By how much the extents may grow beyond one for each of these.
    growth: Growth,
    /// The last page whose data goes to a block that was allocated for it before.
    unwritten: Option<u32>,
    /// Clean pages that become dirty. Their bytes are kept here: eviction needs no state lock.
    dirty: Vec<(u32, Bytes)>,
}

impl Plan<'_> {
    /// Keeps the page if it is cached. If it is not, nothing that is on its way comes there any more: what
    /// arrived before the plan is carried out would be taken for the page that the plan has.
    fn hold_cached(&mut self, state: &InodeState, index: u32) -> bool {
        let Some(mut pages) = state.data.cached() else { return false };
        if let Some(page) = pages.get(index) {
            self.dirty.push((index, page.bytes.clone()));
            return true;
        }
        pages.cancel_arriving(index, index + 1);
        false
    }

    /// A block is promised for the page. `replaces`: an extent has a block there, which it loses. The nodes
    /// that the change of extents copies first, because the past has them, count once for the file.
    fn promise(
        &mut self,
        store: &Core,
        (no, state): (InodeNo, &InodeState),
        index: u32,
        replaces: bool,
        recorded_until: EventNo,
    ) -> Result<()> {
        let before = index.checked_sub(1);
        let goes_on = before.is_some_and(|before| {
            self.promise.last() == Some(&before)
                || state.data.cached().is_some_and(|pages| pages.is_promised(before))
        });
        self.promise.push(index);
        if goes_on {
            return Ok(());
        }
        let growth = &mut self.growth;
        growth.extents += u64::from(replaces);
        let is_tree = state.inode.content_kind == ContentKind::Tree;
        // Read before the pages are locked.
        let past = match is_tree {
            true => {
                let tree = extent::tree(no, &state.inode, recorded_until);
                tree.past_nodes_to(&store.meta, &u64::from(index).to_be_bytes())?
            }
            false => Vec::new(),
        };
        let pages = state.data.cached();
        let known = pages.as_ref().map(|pages| pages.growth());
        if is_tree {
            for node in past {
                if !known.is_some_and(|known| known.nodes.contains(&node)) && growth.nodes.insert(node) {
                    growth.extents += LEAF_EXTENTS;
                }
            }
            return Ok(());
        }
        growth.stretches += 1 + u64::from(replaces);
        let extents = match state.inode.content_kind {
            ContentKind::Extents => u64::from(state.inode.content_count),
            _ => 0,
        };
        let all = extents + growth.stretches + known.map_or(0, |known| known.stretches);
        let is_new = !growth.makes_tree && !known.is_some_and(|known| known.makes_tree);
        if all > INLINE_MOST as u64 && is_new {
            growth.makes_tree = true;
            growth.extents += LEAF_EXTENTS;
        }
        Ok(())
    }

    /// The page's data goes to a block that was allocated for it before: the extent becomes three.
    fn split_unwritten(&mut self, state: &InodeState, index: u32) {
        let before = index.checked_sub(1);
        let goes_on = before.is_some_and(|before| {
            self.unwritten == Some(before)
                || state.data.cached().is_some_and(|pages| pages.is_unstable(before))
        });
        self.unwritten = Some(index);
        if !goes_on {
            self.growth.extents += 2;
        }
    }

    /// Enters pages and promises; returns which pages have the new content already.
    pub(super) fn enter(self, store: &impl History, state: &mut InodeState) -> Vec<u32> {
        let mut pages = state.data.pages(&store.files.pages);
        if let Some(mut blocks) = self.blocks {
            blocks.take_out(self.promise.len() as u64);
            blocks.take_out_extents();
            pages.add_growth(self.growth);
        }
        let loaded = self.load.into_iter().map(|(index, bytes)| (index, Bytes::new(bytes)));
        for (index, bytes) in loaded.chain(self.dirty) {
            pages.enter(index, bytes);
            // The page becomes dirty at once, so that it is not evicted before it is written to.
            pages.dirty_bytes(index);
        }
        for index in self.promise {
            pages.set_promised(index);
        }
        self.copied
    }
}

/// Prepares the pages of bytes `offset..end` for being overwritten, and those that the growth of the file
/// makes dirty. `data` is the new content; it may be empty if that is not known yet. `Ok(None)`: a zone is
/// needed first.
pub(super) fn prepare<'a>(
    store: &'a impl History,
    cell: &InodeCell,
    state: &InodeState,
    offset: u64,
    end: u64,
    data: &[u8],
) -> Result<Option<Plan<'a>>> {
    let mut plan = Plan::default();
    let stays_small = prepare_growth(store, cell, state, end, page_of(offset), &mut plan)?;
    let mut known = None;
    for index in page_of(offset)..pages_for(end) {
        let start = u64::from(index) * PAGE;
        let whole = (offset <= start && end >= (start + PAGE).min(state.inode.size)).then(|| {
            let from = (start - offset) as usize;
            data.get(from..data.len().min(from + PAGE as usize)).unwrap_or_default()
        });
        prepare_page(store, cell, state, index, whole, stays_small, &mut plan, &mut known)?;
    }
    promised(store, plan)
}

/// As [`prepare`] for a file that only grows, to `size`.
pub(super) fn prepare_extension<'a>(
    store: &'a impl History,
    cell: &InodeCell,
    state: &InodeState,
    size: u64,
) -> Result<Option<Plan<'a>>> {
    let mut plan = Plan::default();
    prepare_growth(store, cell, state, size, u32::MAX, &mut plan)?;
    promised(store, plan)
}

/// Prepares page 0 of a file that leaves its inode although it is small.
pub(super) fn prepare_in_blocks<'a>(
    store: &'a impl History,
    cell: &InodeCell,
    state: &InodeState,
) -> Result<Option<Plan<'a>>> {
    let mut plan = Plan::default();
    leave_inode(store, cell, state, &mut plan)?;
    promised(store, plan)
}

/// Gets the promise that the plan needs.
fn promised<'a>(store: &'a Core, plan: Plan<'a>) -> Result<Option<Plan<'a>>> {
    let blocks = plan.promise.len() as u64;
    match store.alloc.try_promise(&store.meta, blocks, plan.growth.extents) {
        Some(promise) => Ok(Some(Plan { blocks: Some(promise), ..plan })),
        None if store.alloc.is_short_of(blocks) => Err(Error::NoSpace),
        None => Ok(None),
    }
}

/// What growth to `end` makes dirty in addition to the pages that are written, of which `first` is the first:
/// the page at the old end, if the medium may have stale bytes there (F3), and page 0 of a file that leaves
/// its inode. Returns whether the file stays in its inode.
fn prepare_growth(
    store: &impl History,
    cell: &InodeCell,
    state: &InodeState,
    end: u64,
    first: u32,
    plan: &mut Plan<'_>,
) -> Result<bool> {
    let (kind, size) = (state.inode.content_kind, state.inode.size);
    if matches!(kind, ContentKind::Empty | ContentKind::Inline) {
        if state.data.fits_inode(kind, size.max(end)) {
            return Ok(true);
        }
        if first > 0 && state.data.fits_inode(kind, size) {
            leave_inode(store, cell, state, plan)?;
        }
        // If a file is already too large for its inode, its page 0 is in order; the code below looks at its
        // last page.
        if kind == ContentKind::Inline {
            return Ok(false);
        }
    }
    let last = page_of(size);
    if end > size && !size.is_multiple_of(PAGE) && last < first {
        let settled = state.data.cached().is_some_and(|p| p.is_unstable(last));
        if !settled {
            let mapping = map_to_write(store, cell.no, state, u64::from(last))?;
            if mapping.is_written() {
                make_dirty(store, cell, state, last, plan)?;
                let recorded_until = store.recorded_until(state, cell.no)?;
                if !mapping.extent.is_some_and(|e| is_own(recorded_until, &e)) {
                    plan.promise(store, (cell.no, state), last, true, recorded_until)?;
                }
            }
        }
    }
    Ok(false)
}

/// Gives page 0 a block from now on, if the page has anything.
fn leave_inode(
    store: &impl History,
    cell: &InodeCell,
    state: &InodeState,
    plan: &mut Plan<'_>,
) -> Result<()> {
    let (dirty, promised) = match state.data.cached() {
        Some(mut pages) => {
            let dirty = pages.is_unstable(0);
            (dirty, pages.get(0).is_some_and(|p| p.promised))
        }
        None => (false, false),
    };
    if !dirty && state.inode.content_kind == ContentKind::Empty {
        return Ok(());
    }
    make_dirty(store, cell, state, 0, plan)?;
    if !promised {
        plan.promise(store, (cell.no, state), 0, false, EventNo(0))?;
    }
    Ok(())
}

fn make_dirty(
    store: &Core,
    cell: &InodeCell,
    state: &InodeState,
    index: u32,
    plan: &mut Plan<'_>,
) -> Result<()> {
    if !plan.hold_cached(state, index) {
        let page = load_page(store, cell, state, index)?;
        plan.load.push((index, page.unwrap_or_else(|| AlignedBuf::zeroed(1))));
    }
    Ok(())
}

/// One page to be written to. `whole`: nothing of its old content stays, and this, if not empty, is the new
/// content. `known` is the mapping of the last look-up, with its first block.
#[allow(clippy::too_many_arguments)]
fn prepare_page(
    store: &impl History,
    cell: &InodeCell,
    state: &InodeState,
    index: u32,
    whole: Option<&[u8]>,
    stays_small: bool,
    plan: &mut Plan<'_>,
    known: &mut Option<(u64, yore_core::extent::Mapping)>,
) -> Result<()> {
    // Where data is never written over, each write-back of a page takes a block, and needs a promise.
    let moves = store.alloc.keeps_checksums(&store.meta);
    let (settled, writing) = match state.data.cached() {
        Some(mut pages) => {
            // Dirty pages are in order (F4), except a page 0 that leaves the inode without a promise.
            let unstable = pages.is_unstable(index);
            let page = pages.get(index);
            let writing = page.is_some_and(|p| p.writing);
            let promised = page.is_some_and(|p| p.promised) || (writing && !moves);
            (unstable && (promised || (index > 0 && !moves) || stays_small), writing)
        }
        None => (false, false),
    };
    if settled {
        return Ok(());
    }
    let block = u64::from(index);
    let mapping = match *known {
        Some((first, mapping)) if block - first < mapping.len => {
            let mut extent = mapping.extent;
            if let Some(extent) = &mut extent {
                extent.start.0 += block - first;
            }
            yore_core::extent::Mapping { len: mapping.len - (block - first), extent }
        }
        _ => {
            let mapping = map_to_write(store, cell.no, state, block)?;
            *known = Some((block, mapping));
            mapping
        }
    };
    let recorded_until = store.recorded_until(state, cell.no)?;
    // A block that is being written will not be there for the next bytes.
    let has_block = mapping.extent.is_some_and(|e| is_own(recorded_until, &e)) && !(moves && writing);
    // Pages that growth made dirty lie before the pages that are written, which come here in order: none is
    // in the plan yet.
    debug_assert!(!plan.promise.contains(&index) && !plan.load.iter().any(|(i, _)| *i == index));
    if stays_small {
        // The page goes to the inode.
    } else if !has_block {
        plan.promise(store, (cell.no, state), index, mapping.extent.is_some(), recorded_until)?;
    } else if mapping.extent.is_some_and(|e| e.unwritten) {
        plan.split_unwritten(state, index);
    }
    if !plan.hold_cached(state, index) {
        let page = match whole {
            Some([]) => None,
            Some(data) => {
                plan.copied.push(index);
                Some(AlignedBuf::from_slice(data))
            }
            None if mapping.is_written() || index == 0 => load_page(store, cell, state, index)?,
            None => None,
        };
        plan.load.push((index, page.unwrap_or_else(|| AlignedBuf::zeroed(1))));
    }
    Ok(())
}
