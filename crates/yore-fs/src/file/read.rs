//! Reading: from cached pages; runs that are missing come from the device.

use super::ahead::read_ahead_end;
use super::map::{check_alive, map_block, page_of, pages_for, read_blocks, PAGE, TRANSFER};
use crate::Result;
use yore_core::inode::{InodeCell, InodeState};
use yore_core::pages::Bytes;
use yore_core::Core;
use yore_device::AlignedBuf;
use yore_format::ContentKind;

/// Bytes read under one hold of the state lock.
const CHUNK: usize = 1 << 20;
/// How many cached pages are copied from at a time.
const BATCH: usize = 16;

/// Fills `buf` from `offset`; fewer bytes only at the end of the file. Returns the count.
///
/// # Errors
/// Damage and device errors; `Stale` if the inode is gone.
pub(crate) fn read(store: &Core, cell: &InodeCell, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    for chunk in buf.chunks_mut(CHUNK) {
        let wanted = chunk.len();
        let n = read_chunk(store, cell, offset.saturating_add(done as u64), chunk)?;
        done += n;
        if n < wanted {
            break;
        }
    }
    Ok(done)
}

fn read_chunk(store: &Core, cell: &InodeCell, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let state = cell.state.read();
    check_alive(&state)?;
    let size = state.inode.size;
    if offset >= size {
        return Ok(0);
    }
    let len = (buf.len() as u64).min(size - offset) as usize;
    let buf = &mut buf[..len];
    if read_inline(&state, offset, buf) {
        return Ok(len);
    }
    let (mut at, end) = (offset, offset + len as u64);
    let ahead = read_ahead_end(store, cell, &state, page_of(offset), pages_for(end));
    while at < end {
        let rest = &mut buf[(at - offset) as usize..];
        let copied = match copy_cached(&state, at, rest) {
            0 => copy_missing(store, cell, &state, at, rest, ahead)?,
            n => n,
        };
        at += copied as u64;
    }
    Ok(len)
}

/// Reads a small file that has no page yet from its inode.
fn read_inline(state: &InodeState, offset: u64, buf: &mut [u8]) -> bool {
    let inode = &state.inode;
    let small = matches!(inode.content_kind, ContentKind::Empty | ContentKind::Inline);
    if !small || state.data.cached().is_some_and(|p| !p.is_empty()) {
        return false;
    }
    let content = inode.inline();
    let from = content.get(offset.min(content.len() as u64) as usize..).unwrap_or(&[]);
    let n = from.len().min(buf.len());
    buf[..n].copy_from_slice(&from[..n]);
    buf[n..].fill(0);
    true
}

/// Copies from the cached pages that begin at `at`; returns the bytes copied, 0 if the first is not cached.
fn copy_cached(state: &InodeState, at: u64, buf: &mut [u8]) -> usize {
    let first = page_of(at);
    let mut found: [Option<Bytes>; BATCH] = Default::default();
    let Some(mut pages) = state.data.cached() else { return 0 };
    let wanted = ((at % PAGE) as usize + buf.len()).div_ceil(PAGE as usize).min(BATCH);
    let mut count = 0;
    while count < wanted {
        let Some(page) = pages.get(first + count as u32) else { break };
        found[count] = Some(page.bytes.clone());
        count += 1;
    }
    drop(pages);
    let mut done = 0;
    for bytes in found.iter().flatten() {
        done += copy_page(bytes, (at + done as u64) % PAGE, &mut buf[done..]);
    }
    done
}

fn copy_page(page: &[u8], from: u64, buf: &mut [u8]) -> usize {
    let from = &page[from as usize..];
    let n = from.len().min(buf.len());
    buf[..n].copy_from_slice(&from[..n]);
    n
}

/// Copies the bytes at `at`, whose page is not cached: zeros of a hole, or a run read from the device.
fn copy_missing(
    store: &Core,
    cell: &InodeCell,
    state: &InodeState,
    at: u64,
    buf: &mut [u8],
    ahead: u32,
) -> Result<usize> {
    let first = page_of(at);
    let end = pages_for(at + buf.len() as u64);
    let file_end = pages_for(state.inode.size);
    let most = (end - first).saturating_add(ahead).min(TRANSFER).min(file_end - first);
    if state.data.await_arrival(first) {
        return Ok(0); // It is here now, or was dropped.
    }
    let missing = match state.data.cached() {
        Some(pages) => {
            pages.gap(first, first + most).filter(|gap| gap.start == first).map_or(0, |gap| gap.end - first)
        }
        None => most,
    };
    if missing == 0 {
        return Ok(0); // Somebody else has just read it, or is reading it.
    }
    if let Some(page) = inline_page(state, first) {
        return Ok(copy_page(&page, at % PAGE, buf));
    }
    let mapping = map_block(store, cell.no, state, u64::from(first))?;
    let run = mapping.len.min(u64::from(missing)) as u32;
    let Some(extent) = mapping.extent.filter(|e| !e.unwritten) else {
        // Zeros up to the end of the hole, or of the row of pages that are not cached.
        let n = (u64::from(first + run) * PAGE - at).min(buf.len() as u64) as usize;
        buf[..n].fill(0);
        return Ok(n);
    };
    store.files.pages.make_room(run as usize);
    let bytes = read_blocks(store, cell.no, state, extent.start, (first, run))?;
    let mut done = 0;
    let mut pages = state.data.pages(&store.files.pages);
    let entered: Vec<Bytes> =
        bytes.into_iter().enumerate().map(|(i, b)| pages.enter(first + i as u32, Bytes::new(b))).collect();
    drop(pages);
    for page in &entered {
        if done == buf.len() {
            break;
        }
        done += copy_page(page, (at + done as u64) % PAGE, &mut buf[done..]);
    }
    Ok(done)
}

/// Page 0 of a file whose content is in its inode.
pub(super) fn inline_page(state: &InodeState, index: u32) -> Option<AlignedBuf> {
    if index > 0 || state.inode.content_kind != ContentKind::Inline {
        return None;
    }
    let mut page = AlignedBuf::zeroed(1);
    let content = state.inode.inline();
    page[..content.len()].copy_from_slice(content);
    Some(page)
}

/// A page's present content, read if it is not cached; `None` if the medium has nothing for it, and so all of
/// it is zero.
pub(super) fn load_page(
    store: &Core,
    cell: &InodeCell,
    state: &InodeState,
    index: u32,
) -> Result<Option<AlignedBuf>> {
    if let Some(page) = inline_page(state, index) {
        return Ok(Some(page));
    }
    let mapping = map_block(store, cell.no, state, u64::from(index))?;
    match mapping.extent.filter(|e| !e.unwritten) {
        None => Ok(None),
        Some(extent) => Ok(read_blocks(store, cell.no, state, extent.start, (index, 1))?.pop()),
    }
}
