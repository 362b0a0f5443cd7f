//! Which event a name means: the nearest of the events that have this name, and are of the named file or
//! directory itself or of a directory above it.
//!
//! The directories above are those that the directory is in. If none of them has an event of that name, they
//! are those that it was in when an event of that name was taken: a snapshot of a directory shows what was
//! below it even if that has been moved out since.

use super::events::{above, covers, live};
use super::tree::entry;
use crate::history::record::Event;
use crate::store::Store;
use crate::{Error, InodeNo, Result};
use std::sync::Arc;
use yore_format::EventNo;

/// The event that a name means in a directory, which is itself seen as of `from` (`None`: the present).
/// O(depth · log events) if one of the directories above has such an event; otherwise as much for each event
/// of that name.
/// # Errors
/// `NotFound` if there is none; damage and device errors.
pub(super) fn covering(
    store: &Arc<Store>,
    directory: InodeNo,
    from: Option<EventNo>,
    name: &str,
) -> Result<Event> {
    if store.past.span_of_name(store, name)?.is_none() {
        return Err(Error::NotFound);
    }
    for root in above(store, directory, from)? {
        for event in store.past.named_of(store, root, name)?.into_iter().rev() {
            if covers(store, &event, directory)? {
                return Ok(event);
            }
        }
    }
    let mut nearest: Option<(usize, Event)> = None;
    for event in store.past.named(store, name)?.into_iter().rev() {
        if !covers(store, &event, directory)? {
            continue;
        }
        let depth = depth(store, &event, directory)?;
        if nearest.as_ref().is_none_or(|(least, _)| depth < *least) {
            nearest = Some((depth, event));
        }
    }
    nearest.map(|(_, event)| event).ok_or(Error::NotFound)
}

/// The event with this name of the file or directory itself that `entry_name` means in a directory, or meant
/// when the event was taken. `None` if there is none. O(log history), and as much again for each meaning
/// between the first and the last event of that name.
///
/// # Errors
/// Damage and device errors.
pub(super) fn own(
    store: &Arc<Store>,
    (directory, entry_name): (InodeNo, &[u8]),
    from: Option<EventNo>,
    name: &str,
) -> Result<Option<Event>> {
    let Some((first, last)) = store.past.span_of_name(store, name)? else { return Ok(None) };
    let live = live(store, directory, from, entry_name)?;
    let mut most = last;
    loop {
        let (inode, incarnation, birth, death) = match &live {
            Some(found) if found.birth <= most => {
                (found.inode, found.incarnation, found.birth, EventNo(u64::MAX))
            }
            _ => match store.past.last_meaning(store, directory, entry_name, most)? {
                Some(e) => (e.inode, e.incarnation, e.birth, e.death),
                None => break,
            },
        };
        let found = store.past.named_of(store, inode, name)?.into_iter().rev().find(|event| {
            event.row.root_incarnation == incarnation && event.number >= birth && event.number < death
        });
        if found.is_some() {
            return Ok(found);
        }
        match birth.0.checked_sub(1) {
            Some(before) if before >= first.0 => most = EventNo(before),
            _ => break,
        }
    }
    // The event may have been taken while its file or directory, which has the name now, or had it as of
    // `from`, had another name.
    let inode_of_name = match from {
        Some(from) => entry(store, directory, entry_name, from)?,
        None => live.map(|found| (found.inode, found.incarnation)),
    };
    let Some((inode, incarnation)) = inode_of_name else { return Ok(None) };
    let found = store.past.named_of(store, inode, name)?;
    Ok(found.into_iter().rev().find(|event| event.row.root_incarnation == incarnation))
}

/// How far a directory was below the root of the event.
fn depth(store: &Arc<Store>, event: &Event, directory: InodeNo) -> Result<usize> {
    let all = above(store, directory, Some(event.number))?;
    Ok(all.iter().position(|at| *at == event.row.root).unwrap_or(usize::MAX))
}
