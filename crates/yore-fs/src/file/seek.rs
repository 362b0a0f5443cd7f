//! Finding data, and copying it.

use super::history::History;
use super::map::{check_alive, map_block, page_of, pages_for, Touch, PAGE};
use super::read::read;
use super::write::write;
use crate::{Error, Result, SeekTo};
use std::sync::Arc;
use yore_core::inode::{InodeCell, InodeState};
use yore_core::Core;
use yore_format::ContentKind;

/// Bytes copied at a time.
const COPY: u64 = 1 << 20;

/// The next data or hole at or after `offset`; the end of the file is a hole. Dirty pages and written extents
/// are data.
///
/// # Errors
/// `NoDataThere` at or beyond the end, or if no data follows; damage and device errors.
pub(crate) fn seek(store: &Core, cell: &InodeCell, offset: u64, to: SeekTo) -> Result<u64> {
    let state = cell.state.read();
    check_alive(&state)?;
    let size = state.inode.size;
    if offset >= size {
        return Err(Error::NoDataThere);
    }
    let mut page = page_of(offset);
    let end = pages_for(size);
    while page < end {
        let (is_data, len) = stretch(store, cell, &state, page, end)?;
        if is_data == (to == SeekTo::Data) {
            return Ok((u64::from(page) * PAGE).max(offset));
        }
        page += len;
    }
    match to {
        SeekTo::Data => Err(Error::NoDataThere),
        SeekTo::Hole => Ok(size),
    }
}

/// Whether there is data at `page`, and for how many pages at least that holds.
fn stretch(store: &Core, cell: &InodeCell, state: &InodeState, page: u32, end: u32) -> Result<(bool, u32)> {
    let unstable = match state.data.cached() {
        Some(pages) if pages.is_unstable(page) => return Ok((true, 1)),
        Some(pages) => pages.next_unstable(page).unwrap_or(end),
        None => end,
    };
    if page == 0 && state.inode.content_kind == ContentKind::Inline {
        return Ok((true, 1));
    }
    let mapping = map_block(store, cell.no, state, u64::from(page))?;
    let len = mapping.len.min(u64::from(unstable.min(end) - page)) as u32;
    Ok((mapping.is_written(), len.max(1)))
}

/// Copies up to `len` bytes between files (or within one); returns the count, which is smaller at the
/// source's end.
///
/// # Errors
/// Those of reading and writing, if nothing was copied; `Invalid` if the ranges overlap within one file.
pub(crate) fn copy_range(
    store: &impl History,
    from: &Arc<InodeCell>,
    from_offset: u64,
    to: &Arc<InodeCell>,
    to_offset: u64,
    len: u64,
    touch: Touch<'_>,
) -> Result<u64> {
    let apart = from_offset.abs_diff(to_offset) >= len;
    if Arc::ptr_eq(from, to) && !apart {
        return Err(Error::Invalid { what: "source and target of a copy overlap" });
    }
    // Up to the end as it is now: what the copy itself appends is not copied again.
    let len = len.min(from.state.read().inode.size.saturating_sub(from_offset));
    let mut buf = vec![0; len.min(COPY) as usize];
    let mut done = 0;
    while done < len {
        let part = &mut buf[..(len - done).min(COPY) as usize];
        let copied = read(store, from, from_offset.saturating_add(done), part).and_then(|n| {
            if n > 0 {
                let at = to_offset.checked_add(done).ok_or(Error::FileTooLarge)?;
                write(store, to, at, &part[..n], false, touch)?;
            }
            Ok(n)
        });
        match copied {
            Ok(0) => break,
            Ok(n) => done += n as u64,
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
    }
    Ok(done)
}
