//! Reading ahead: what a sequential reader will want next is read by threads of its own, while the reader is
//! busy with what it has.
//!
//! How far ahead is learned from the accesses ([`crate::core::pages::ReadAhead`]). A small window is read
//! together with what is wanted, by the reader; from [`WINDOW_ASYNC`] on, the window is kept full by threads
//! ([`crate::core::datacache`]): whoever reads sequentially hands over what is missing in it before it goes
//! to its own pages.
//!
//! **Why a reader never sees what is stale.** A stretch that is being read is entered in the file's map of
//! pages ([`crate::core::pages::Arriving`]), under the state lock and with the mapping looked up under it.
//! The thread that reads it holds no lock of the file, so the file may change meanwhile. Whatever changes
//! what a page of the file holds, or which block it has, goes through the map: it makes the page dirty,
//! zeroes its tail or discards it. Each of these takes the stretch out of the map, and what arrives for a
//! stretch that is no longer there is dropped. Blocks change hands only after their pages were discarded (F5,
//! and truncation). Pages that were there when the stretch was entered are not part of it.
//!
//! **Why nobody waits for ever.** Who wants a page of the stretch waits for it, holding the state lock
//! shared, instead of reading it a second time. The stretch leaves the map when its
//! [`crate::core::pages::Arriving`] is dropped, whatever became of it: arrived, failed, in the queue when the
//! threads were stopped, or a panic. The threads take no lock that a reader may hold while it waits. An error
//! is not kept: the reader who gets there reads for itself, and has it.
//!
//! Threads are started when there is something to read for the first time, and end before the volume is
//! closed.

use super::map::{map_block, pages_for, TRANSFER};
use crate::core::datacache::Job;
use crate::core::inode::{InodeCell, InodeState};
use crate::core::Core;
use std::sync::atomic::Ordering;

/// The window, in pages, from which on other threads read it.
const WINDOW_ASYNC: u32 = 64;
/// The largest window: 4 MiB.
const WINDOW_MOST: u32 = 1024;

/// Before the pages `first..end` of a file are read: sees to those behind them. Returns how many of these the
/// caller is to read together with its own.
pub(super) fn look_ahead(store: &Core, cell: &InodeCell, state: &InodeState, first: u32, end: u32) -> u32 {
    let cache = &store.files.pages;
    let window = state.data.ahead.learn(first, end, cache.window_most(WINDOW_MOST));
    if window < WINDOW_ASYNC {
        return window;
    }
    let file_end = pages_for(state.inode.size);
    let to = end.saturating_add(window).min(file_end);
    let until = state.data.ahead.until.load(Ordering::Relaxed);
    let mut from = if (end..=to).contains(&until) { until } else { end };
    // Not for every page: in pieces that are worth a request.
    if from >= to || (to - from < window / 4 && to < file_end) {
        return 0;
    }
    state.data.ahead.until.store(to, Ordering::Relaxed);
    while from < to {
        let Some(gap) = state.data.pages(cache).gap(from, to.min(from + TRANSFER)) else {
            from = to.min(from + TRANSFER);
            continue;
        };
        // Damage is found again, and told, by who reads it.
        let Ok(mapping) = map_block(store, cell.no, state, u64::from(gap.start)) else { return 0 };
        let run = mapping.len.min(u64::from(gap.end - gap.start)) as u32;
        from = gap.start + run;
        let Some(extent) = mapping.extent.filter(|e| !e.unwritten) else { continue };
        let Some(to) = state.data.arriving(cache, gap.start..from) else { continue };
        let (cache, device) = (cache.clone(), store.meta.device().clone());
        let job = Job { to, start: extent.start, valid: state.data.medium_size, cache, device };
        if !store.files.readers.take(job) {
            return 0;
        }
    }
    0
}

#[cfg(test)]
mod tests;
