//! The last event that shows a directory or a name in it, the one before it, and so on.
//!
//! The count includes the events that people take and that policies make. It does not include undo points,
//! which nobody asked for, or tombstones, which show nothing. A name is shown by the events that cover its
//! directory, and by events of the very file or directory that it meant at that time.

use super::events::{above_then_and_now, covers, last_kept, live};
use super::tree::PRESENT;
use crate::history::record::Event;
use crate::store::Store;
use crate::{dir, Error, InodeNo, Result};
use std::num::NonZeroU32;
use std::sync::Arc;
use yore_format::{EventKind, EventNo};

/// An event that shows the directory or the name.
pub(super) struct Shown {
    pub event: Event,
    /// The event is of what the name meant itself, and does not cover the directory.
    pub own: bool,
}

fn is_counted(kind: EventKind) -> bool {
    match kind {
        EventKind::Snapshot | EventKind::Close | EventKind::Interval => true,
        EventKind::Undo | EventKind::Removed | EventKind::Expunge | EventKind::Rollback => false,
    }
}

/// The `count`-th event from the last, of those up to `from` that show a directory, or a name in it. O(count
/// · depth · log history), and as much again for each meaning of the name that no event has seen.
///
/// # Errors
/// `NotFound` if there are fewer such events; damage and device errors.
pub(super) fn counted(
    store: &Arc<Store>,
    directory: InodeNo,
    from: Option<EventNo>,
    name: Option<&[u8]>,
    count: NonZeroU32,
) -> Result<Shown> {
    let live = match name {
        Some(name) => live(store, directory, from, name)?,
        None => None,
    };
    let mut most = from.unwrap_or(PRESENT);
    let mut left = count.get();
    loop {
        let covering = covering(store, directory, most)?;
        let least = covering.as_ref().map_or(EventNo(0), |event| event.number);
        let own = match name {
            Some(name) => own(store, directory, (name, live.as_ref()), least, most)?,
            None => None,
        };
        let shown = match (own, covering) {
            (Some(event), _) => Shown { event, own: true },
            (None, Some(event)) => Shown { event, own: false },
            (None, None) => return Err(Error::NotFound),
        };
        left -= 1;
        if left == 0 {
            return Ok(shown);
        }
        most = EventNo(shown.event.number.0 - 1);
    }
}

/// The last event up to `most` that covers a directory.
fn covering(store: &Arc<Store>, directory: InodeNo, most: EventNo) -> Result<Option<Event>> {
    let mut last: Option<Event> = None;
    for root in above_then_and_now(store, directory, most)? {
        let found = last_kept(store, root, most, &mut |event| {
            Ok(is_counted(event.row.kind) && covers(store, event, directory)?)
        })?;
        last = match (last, found) {
            (Some(last), Some(found)) if found.number <= last.number => Some(last),
            (last, None) => last,
            (_, found) => found,
        };
    }
    Ok(last)
}

/// The last event after `least` and up to `most` of the very file or directory that the name meant at that
/// time.
fn own(
    store: &Arc<Store>,
    directory: InodeNo,
    (name, live): (&[u8], Option<&dir::Found>),
    least: EventNo,
    mut most: EventNo,
) -> Result<Option<Event>> {
    loop {
        let (inode, incarnation, birth, last) = match live {
            Some(found) if found.birth <= most => (found.inode, found.incarnation, found.birth, most),
            _ => match store.past.last_meaning(store, directory, name, most)? {
                Some(e) => (e.inode, e.incarnation, e.birth, EventNo(e.death.0.saturating_sub(1)).min(most)),
                None => return Ok(None),
            },
        };
        let found = last_kept(store, inode, last, &mut |event| {
            Ok(event.row.root_incarnation == incarnation && is_counted(event.row.kind))
        })?;
        if let Some(event) = found.filter(|event| event.number >= birth && event.number > least) {
            return Ok(Some(event));
        }
        match birth.0.checked_sub(1) {
            Some(before) if before > least.0 => most = EventNo(before),
            _ => return Ok(None),
        }
    }
}
