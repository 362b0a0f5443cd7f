//! How much room a call on a file's content needs in all. A full volume needs to know before it gives up
//! history for the call.

use super::history::History;
use super::map::{pages_for, PAGE};
use crate::Result;
use yore_core::alloc::Run;
use yore_core::extent::{self, is_own};
use yore_core::inode::{InodeCell, InodeState};
use yore_core::Core;
use yore_format::layout::FILE_SIZE_MAX;
use yore_format::{BlockNo, ContentKind, ExtentValue, Inode};

/// How many data blocks a write of `len` bytes needs; `append`: at the end. Pages for which a block is
/// promised, or whose block the present alone uses, need none. O(extents).
///
/// # Errors
/// Damage and device errors.
pub(crate) fn missing(
    store: &impl History,
    cell: &InodeCell,
    offset: u64,
    len: u64,
    append: bool,
) -> Result<u64> {
    let state = cell.state.read();
    let offset = if append { state.inode.size } else { offset };
    let range = span(offset, len);
    // Once the version is kept, it has all blocks that exist.
    let none_is_own = store.must_preserve(cell, &state)?;
    let recorded_until = store.recorded_until(&state, cell.no)?;
    let never_over = store.alloc.keeps_checksums(&store.meta);
    let has = |run: Run, value: &ExtentValue| match value.unwritten {
        true => Ok(u64::from(run.len)),
        false if never_over => Ok(0),
        false if none_is_own || !is_own(recorded_until, value) => Ok(0),
        false => store.alloc.count_sole(&store.meta, run),
    };
    let without = pages_without(store, cell, &state.inode, range, &has)?;
    Ok(without.saturating_sub(promised(&state, range)))
}

/// How many data blocks the allocation of a range needs. O(extents).
///
/// # Errors
/// Damage and device errors.
pub(crate) fn holes(store: &Core, cell: &InodeCell, offset: u64, len: u64) -> Result<u64> {
    let state = cell.state.read();
    let range = span(offset, len);
    let without = pages_without(store, cell, &state.inode, range, &|run, _| Ok(run.len.into()))?;
    Ok(without.saturating_sub(promised(&state, range)))
}

/// The pages of a range, the last one excluded.
fn span(offset: u64, len: u64) -> (u64, u64) {
    let end = offset.saturating_add(len).min(FILE_SIZE_MAX);
    (offset.min(end) / PAGE, u64::from(pages_for(end)))
}

/// For how many of the pages a block is promised.
fn promised(state: &InodeState, (first, end): (u64, u64)) -> u64 {
    state.data.cached().map_or(0, |pages| pages.promised_in(first as u32, end as u32))
}

/// How many of the pages are left, given how many each part of an extent spares.
fn pages_without(
    store: &Core,
    cell: &InodeCell,
    inode: &Inode,
    (first, end): (u64, u64),
    spares: &dyn Fn(Run, &ExtentValue) -> Result<u64>,
) -> Result<u64> {
    let mut without = end.saturating_sub(first);
    if !matches!(inode.content_kind, ContentKind::Empty | ContentKind::Inline) {
        extent::each(&store.meta, cell.no, inode, first, &mut |(key, value)| {
            let (from, to) = (key.max(first), (key + u64::from(value.len)).min(end));
            if from < to {
                let start = BlockNo(value.start.0 + (from - key));
                let spared = spares(Run { start, len: (to - from) as u32 }, &value)?;
                without = without.saturating_sub(spared);
            }
            Ok(key < end)
        })?;
    }
    Ok(without)
}
