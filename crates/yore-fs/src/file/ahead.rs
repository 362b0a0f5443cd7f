//! Reading ahead: threads read what a sequential reader will want next, while the reader is busy with what it
//! has.
//!
//! The accesses show how far ahead to read ([`yore_core::pages::ReadAhead`]). The reader itself reads a
//! small window together with what it wants. From [`WINDOW_ASYNC`] on, threads keep the window full
//! ([`yore_core::datacache`]): a sequential reader hands over what is missing in the window before it goes
//! to its own pages.
//!
//! **Why a reader never sees stale data.** A stretch that is being read is entered in the file's map of pages
//! ([`yore_core::pages::Arriving`]), under the state lock, together with the look-up of its mapping. The
//! thread that reads it holds no lock of the file, so the file may change meanwhile. Every change of what a
//! page of the file holds, or of its block, goes through the map: it prepares a page that is not there, makes
//! the page dirty, zeroes its tail or discards it. Each of these takes the stretch out of the map, and data
//! that arrives for a stretch that is no longer there is dropped. Blocks change hands only after their pages
//! were discarded (F5, and truncation), or, where a file gets other blocks for the same data, after the
//! stretch was taken out of the map. Pages that were there when the stretch was entered are not part of it.
//!
//! **Why nobody waits for ever.** A caller that wants a page of the stretch waits for it, with the state lock
//! held shared, and does not read it a second time. The stretch leaves the map when its
//! [`yore_core::pages::Arriving`] is dropped, however that happens: the data arrived, the read failed, the
//! stretch was in the queue when the threads were stopped, or a thread panicked. The threads take no lock
//! that a waiting reader may hold. Nobody keeps an error: the reader that gets there reads for itself, and
//! gets the error.
//!
//! Threads start when there is something to read for the first time, and end before the volume is closed.

use super::map::{map_block, pages_for, TRANSFER};
use std::sync::atomic::Ordering;
use yore_core::alloc::Run;
use yore_core::datacache::Job;
use yore_core::inode::{InodeCell, InodeState};
use yore_core::Core;

/// From a window of this many pages on, other threads read it.
const WINDOW_ASYNC: u32 = 64;
/// The largest window: 4 MiB.
const WINDOW_MOST: u32 = 1024;

/// Called before the pages `first..end` of a file are read: has the pages behind them read ahead. Returns how
/// many of these the caller must read together with its own.
pub(super) fn read_ahead_end(
    store: &Core,
    cell: &InodeCell,
    state: &InodeState,
    first: u32,
    end: u32,
) -> u32 {
    let cache = &store.files.pages;
    let window = state.data.ahead.learn(first, end, cache.window_most(WINDOW_MOST));
    if window < WINDOW_ASYNC {
        return window;
    }
    let file_end = pages_for(state.inode.size);
    let to = end.saturating_add(window).min(file_end);
    let until = state.data.ahead.until.load(Ordering::Relaxed);
    let mut from = if (end..=to).contains(&until) { until } else { end };
    // Not for every page, but in pieces that are worth a request.
    if from >= to || (to - from < window / 4 && to < file_end) {
        return 0;
    }
    state.data.ahead.until.store(to, Ordering::Relaxed);
    let (first, mut breaks) = (from, 0);
    while from < to {
        let stop = to.min(from.saturating_add(TRANSFER));
        let Some(gap) = state.data.pages(cache).gap(from, stop) else {
            from = stop;
            continue;
        };
        // A caller that reads these pages finds the damage again, and reports it.
        let Ok(mapping) = map_block(store, cell.no, state, u64::from(gap.start)) else { break };
        let run = mapping.len.min(u64::from(gap.end - gap.start)) as u32;
        from = gap.start + run;
        let Some(extent) = mapping.extent.filter(|e| !e.unwritten) else { continue };
        breaks += u32::from(from < gap.end);
        let blocks = Run { start: extent.start, len: run };
        store.alloc.read_checksums_ahead(&store.meta, blocks);
        let Ok(checksums) = store.alloc.checksums(&store.meta, blocks) else { break };
        let Some(to) = state.data.arriving(cache, gap.start..from) else { continue };
        let (cache, device) = (cache.clone(), store.meta.device().clone());
        let job = Job { to, start: extent.start, valid: state.data.medium_size, checksums, cache, device };
        if !store.files.readers.take(job) {
            break;
        }
    }
    // Extents shorter than half a megabyte: somebody should lay them together when nobody reads.
    if breaks > 3 && breaks * (TRANSFER / 2) > from - first && !store.read_only && !cell.is_version() {
        store.files.scattered.note(cell.no, cell.incarnation, first.into()..to.into());
    }
    0
}

#[cfg(test)]
mod tests;
