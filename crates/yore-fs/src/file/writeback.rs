//! Writing back: what the write-back thread does in a round, and what writers do that are too fast
//! ([`yore_core::datacache`]).

use super::group::{self, in_groups, Busy};
use super::history::History;
use crate::Result;
use std::time::{Duration, Instant};
use yore_core::datacache::FILES;
use yore_core::inode::InodeCell;
use yore_core::Core;

/// How long data may stay dirty.
const DIRTY_AGE: Duration = Duration::from_secs(5);

/// Slows a writer down while too much is dirty. The caller holds no lock.
///
/// # Errors
/// Errors of writing back, if it makes no room.
pub(super) fn throttle(store: &impl History) -> Result<()> {
    let files = &store.files;
    if !files.pages.wants_write_back() {
        return Ok(());
    }
    files.wake_write_back();
    while files.pages.is_over() {
        match files.wait_for_room() {
            None => return make_room(store),
            Some(Err(e)) if files.pages.is_over() => return Err(e),
            Some(_) => {}
        }
    }
    Ok(())
}

/// Writes back the oldest files until there is room, as long as that succeeds.
fn make_room(store: &impl History) -> Result<()> {
    let files = &store.files;
    while files.pages.is_over() {
        let cells = files.oldest_dirty(FILES);
        if cells.is_empty() {
            break;
        }
        // That file's fsync returns an error from here later. The writer gets it only if nothing helps.
        let result = group::write_back_many(store, &cells, Busy::Wait);
        if files.pages.is_over() {
            result?;
        }
    }
    Ok(())
}

/// Writes home what only the log has, of all files.
///
/// # Errors
/// The first file's error, which its next fsync returns, too; the others are still tried.
fn bring_home(store: &impl History) -> Result<()> {
    let cells = store.files.take_logged();
    let logged = |cell: &InodeCell| {
        let state = cell.state.read();
        state.data.logged_size.filter(|_| !state.gone)
    };
    let result = in_groups(store, &cells, Busy::Wait, &logged);
    for cell in cells.iter().filter(|cell| logged(cell).is_some()) {
        store.files.note_logged(cell);
    }
    result
}

/// A round of the write-back thread: looks once at each file that is dirty now, and writes back those that
/// are old, or as many as there is too much of. Files that stay dirty come again next time.
///
/// # Errors
/// The first file's error, which its next fsync returns, too; the others are still tried.
pub(crate) fn round(store: &impl History, stop: &dyn Fn() -> bool) -> Result<()> {
    let mut result = write_late(store, stop);
    if store.meta.notes_press() {
        result = result.and(bring_home(store));
    }
    let (mut turn, end) = (0, store.files.next_turn());
    loop {
        let now = Instant::now();
        let before = match store.files.pages.wants_write_back() {
            true => now,
            false => now.checked_sub(DIRTY_AGE).unwrap_or(now),
        };
        let files = store.files.dirty_since(before, turn, end);
        let Some((last, _)) = files.last() else { return result };
        if stop() {
            return result;
        }
        turn = *last;
        let cells: Vec<_> = files.into_iter().map(|(_, cell)| cell).collect();
        // Somebody else works on the busy files; the round waits for them only if writers wait.
        let busy = if store.files.pages.is_over() { Busy::Wait } else { Busy::Skip };
        result = result.and(group::write_back_many(store, &cells, busy));
        // Callers whose data is to be late write for themselves if too much is.
        result = result.and(write_late(store, stop));
    }
}

/// Writes what is late, unless writing has stopped: then nothing is written any more.
fn write_late(store: &Core, stop: &dyn Fn() -> bool) -> Result<()> {
    while store.check_writable().is_ok() && !stop() && store.meta.write_late()? {}
    Ok(())
}
