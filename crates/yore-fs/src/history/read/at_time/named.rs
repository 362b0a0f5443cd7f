//! Which event a name means: the nearest, of those that were taken under it, of what is named itself or of
//! the directories above.
//!
//! Above are the directories that a directory is in, and if none of these was cut under the name, those that
//! it was in when something was: a snapshot of a directory shows what was below it also if that was moved out
//! since.

use super::events::{above, covers, live};
use super::tree::entry;
use crate::history::record::Event;
use crate::store::Store;
use crate::{Error, InodeNo, Result};
use std::sync::Arc;
use yore_format::EventNo;

/// The event that a name means in a directory, which is seen as of `from` itself (`None`: the present).
/// O(depth · log events), if one of the directories above was cut so; otherwise as much for each event of
/// that name.
///
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

/// The event with this name of the very directory that a name of a directory means, or meant when it was
/// taken; `None` if there is none. O(log history), and as much again for each meaning between the first and
/// the last event of that name.
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
    // What has the name now, or had it as of `from`, may have been cut under another one.
    let inode_of_name = match from {
        Some(from) => entry(store, directory, entry_name, from)?,
        None => live.map(|found| (found.inode, found.incarnation)),
    };
    let Some((inode, incarnation)) = inode_of_name else { return Ok(None) };
    let found = store.past.named_of(store, inode, name)?;
    Ok(found.into_iter().rev().find(|event| event.row.root_incarnation == incarnation))
}

/// How far a directory was below the one that the event is of.
fn depth(store: &Arc<Store>, event: &Event, directory: InodeNo) -> Result<usize> {
    let all = above(store, directory, Some(event.number))?;
    Ok(all.iter().position(|at| *at == event.row.root).unwrap_or(usize::MAX))
}
