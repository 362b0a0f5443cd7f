//! Laying scattered files together in the background: one stretch at a time, while nobody asks for anything,
//! and only as far as there is plenty of room.
//!
//! Write-back and reading ahead note which files are perhaps scattered
//! ([`yore_core::datacache::ScatteredFiles`]). The thread that does the housekeeping calls [`tidy`] for each
//! stretch, as fast as it may (`api/opened.rs`).
//!
//! **What it costs is room.** What a version has of a stretch stays where it is, so history grows by a copy.
//! Nobody asked for that, so there are two limits. An eighth of the volume stays free; blocks that an
//! incomplete generation has freed do not count. And in an hour history grows by no more than a 16th of what
//! was free when the hour began.
//!
//! **Nobody waits for it.** The io of the file is tried. A request ends the work before the next block is
//! read; while a stretch is being written and entered, it waits for that, if it needs the file's io at all.

use super::defrag::{lay_together, stretch, Laid, PIECES, STRETCH};
use super::history::History;
use crate::{Error, Result};
use std::time::{Duration, Instant};
use yore_core::datacache::Noted;
use yore_format::InodeNo;

/// This part of the volume stays free.
const FREE_SHARE: u64 = 8;
/// By this part of the free room history may grow in an hour.
const GROWTH_SHARE: u64 = 16;
const HOUR: Duration = Duration::from_secs(3600);

/// What remains between two stretches.
pub(crate) struct Tidying {
    /// When the hour began, and by how many blocks history may still grow in it.
    hour: Option<(Instant, u64)>,
    /// The file that was looked at last.
    last: InodeNo,
}

/// What became of a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tidied {
    /// No file is noted.
    Nothing,
    /// A stretch was laid together, or there was nothing to do for it.
    Step,
    /// A request came, or somebody has the file.
    Busy,
    /// There is not enough room now.
    NoRoom,
}

impl Default for Tidying {
    fn default() -> Tidying {
        Tidying { hour: None, last: InodeNo(0) }
    }
}

impl Tidying {
    /// By how many blocks history may grow now, of so many free ones.
    fn allowance(&mut self, free: u64) -> &mut u64 {
        let now = Instant::now();
        let is_over = |(began, _): &(Instant, u64)| now.duration_since(*began) >= HOUR;
        if self.hour.as_ref().is_none_or(is_over) {
            self.hour = Some((now, free / GROWTH_SHARE));
        }
        &mut self.hour.as_mut().expect("it was just set").1
    }
}

/// Lays the next scattered stretch of a noted file together. `stop`: whether somebody asks for something.
///
/// # Errors
/// Damage and device errors. The file is no longer noted then.
pub(crate) fn tidy(store: &impl History, tidying: &mut Tidying, stop: &dyn Fn() -> bool) -> Result<Tidied> {
    let Some(mut noted) = store.files.scattered.next(tidying.last) else { return Ok(Tidied::Nothing) };
    tidying.last = noted.no;
    let tidied = tidy_file(store, tidying, &mut noted, stop);
    match tidied {
        Err(Error::NoSpace) => Ok(Tidied::NoRoom),
        Err(e) => {
            store.files.scattered.done(&mut noted, u64::MAX);
            Err(e)
        }
        tidied => tidied,
    }
}

fn tidy_file(
    store: &impl History,
    tidying: &mut Tidying,
    noted: &mut Noted,
    stop: &dyn Fn() -> bool,
) -> Result<Tidied> {
    let Noted { no, incarnation, blocks } = noted.clone();
    let mut done = |until: u64| -> Result<Tidied> {
        store.files.scattered.done(noted, until);
        Ok(Tidied::Step)
    };
    let Some(cell) = store.cell_if_used(no)? else { return done(u64::MAX) };
    if cell.incarnation != incarnation {
        return done(u64::MAX);
    }
    let mut from = blocks.start - blocks.start % STRETCH;
    let found = loop {
        if stop() {
            done(from)?;
            return Ok(Tidied::Busy);
        }
        match stretch(store, &cell, from)? {
            Some(found) if found.first < blocks.end => {
                if found.is_scattered(PIECES) {
                    break found;
                }
                from = found.next;
            }
            _ => return done(u64::MAX),
        }
    };
    done(found.first)?;
    let free = store.alloc.free_now();
    let allowance = tidying.allowance(free);
    let is_room = free.saturating_sub(found.moves()) > store.meta.geometry().blocks / FREE_SHARE;
    if !is_room || found.history() > *allowance {
        return Ok(Tidied::NoRoom);
    }
    let Some(mut promise) = store.alloc.try_promise(&store.meta, found.moves(), 0) else {
        return Ok(Tidied::NoRoom);
    };
    let Some(_io) = cell.io.try_lock() else { return Ok(Tidied::Busy) };
    match lay_together(store, &cell, (found.first, PIECES), &mut promise, stop)? {
        Laid::Stopped => return Ok(Tidied::Busy),
        Laid::Moved(_) => *allowance = allowance.saturating_sub(found.history()),
        Laid::Left | Laid::NoRoom => {}
    }
    done(found.next)
}

#[cfg(test)]
mod tests;
