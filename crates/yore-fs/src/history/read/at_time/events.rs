//! Which events a directory and those above it have, and what these events show.

use super::tree::{directory_in_use, name_of, parent, with};
use crate::history::record::Event;
use crate::store::Store;
use crate::{dir, Error, InodeNo, Result};
use hashbrown::HashSet;
use std::sync::Arc;
use yore_core::inode::DEPTH_MAX;
use yore_format::{EventNo, EventState};

/// All kept events, in ascending order.
pub(crate) fn events(store: &Arc<Store>) -> Result<Vec<Event>> {
    kept_from(store, EventNo(0), usize::MAX)
}

/// The kept events from this number on in ascending order, at most `most`.
pub(crate) fn kept_from(store: &Arc<Store>, from: EventNo, most: usize) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    store.past.each_event(&store.meta, from, &mut |event| {
        if event.row.state == EventState::Kept {
            events.push(event);
        }
        Ok(events.len() < most)
    })?;
    Ok(events)
}

/// A directory and those above it, the nearest first: as of an event, or as they are now.
pub(super) fn above(store: &Arc<Store>, directory: InodeNo, from: Option<EventNo>) -> Result<Vec<InodeNo>> {
    let (mut all, mut at) = (vec![directory], directory);
    while all.len() <= DEPTH_MAX {
        let up = match from {
            Some(number) => parent(store, at, number),
            None => store.cell(at).map(|cell| cell.state.read().inode.parent),
        };
        match up {
            Ok(up) if up != at && up != InodeNo::NONE => at = up,
            Ok(_) | Err(Error::NotFound | Error::Stale | Error::NotADirectory) => break,
            Err(e) => return Err(e),
        }
        all.push(at);
    }
    Ok(all)
}

/// A directory and those above it as of an event number, as far as they are known, and those above it now.
pub(super) fn above_then_and_now(
    store: &Arc<Store>,
    directory: InodeNo,
    number: EventNo,
) -> Result<HashSet<InodeNo>> {
    let mut all: HashSet<InodeNo> = above(store, directory, Some(number))?.into_iter().collect();
    all.extend(above(store, directory, None)?);
    Ok(all)
}

/// The last kept event of `root` itself up to `most` that satisfies `wanted`.
pub(super) fn last_kept(
    store: &Arc<Store>,
    root: InodeNo,
    mut most: EventNo,
    wanted: &mut dyn FnMut(&Event) -> Result<bool>,
) -> Result<Option<Event>> {
    while let Some(event) = store.past.last_of(&store.meta, root, most)? {
        if event.row.state == EventState::Kept && wanted(&event)? {
            return Ok(Some(event));
        }
        most = EventNo(event.number.0 - 1);
    }
    Ok(None)
}

/// Whether a directory was the root of an event, or below it, as of that event. O(depth · log).
pub(crate) fn covers(store: &Arc<Store>, event: &Event, directory: InodeNo) -> Result<bool> {
    if matches!(parent(store, directory, event.number), Err(Error::NotFound | Error::NotADirectory)) {
        return Ok(false);
    }
    let mut at = directory;
    for _ in 0..DEPTH_MAX {
        if at == event.row.root {
            return Ok(true);
        }
        match name_of(store, at, event.number)? {
            Some(name) => at = name.directory,
            None => return Ok(false),
        }
    }
    Ok(false)
}

/// What a name means now in a directory that is seen as of `from`. `None` if that directory is gone, even if
/// another one has its number now.
pub(super) fn live(
    store: &Arc<Store>,
    directory: InodeNo,
    from: Option<EventNo>,
    name: &[u8],
) -> Result<Option<dir::Found>> {
    match from {
        Some(from) if !is_alive(store, directory, from)? => Ok(None),
        _ => in_use(store, directory, name),
    }
}

/// Whether the directory that had this number as of an event still has it.
fn is_alive(store: &Arc<Store>, directory: InodeNo, event: EventNo) -> Result<bool> {
    let then = with(store, directory, event, |_, state| Ok(state.inode.incarnation));
    match (directory_in_use(store, directory)?, then) {
        (Some(cell), Ok(then)) => Ok(cell.incarnation == then),
        (None, _) | (_, Err(Error::NotFound)) => Ok(false),
        (_, Err(e)) => Err(e),
    }
}

/// What a name means now.
fn in_use(store: &Arc<Store>, directory: InodeNo, name: &[u8]) -> Result<Option<dir::Found>> {
    let Some(cell) = directory_in_use(store, directory)? else { return Ok(None) };
    let state = cell.state.read();
    if state.check_directory().is_err() {
        return Ok(None);
    }
    dir::find(store, &state, directory, name)
}
