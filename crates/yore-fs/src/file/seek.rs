//! Finding data.

use super::map::{check_alive, map_block, page_of, pages_for, PAGE};
use crate::{Error, Result, SeekTo};
use yore_core::inode::{InodeCell, InodeState};
use yore_core::Core;
use yore_format::ContentKind;

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
