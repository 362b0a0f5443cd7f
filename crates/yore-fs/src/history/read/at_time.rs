//! Looking at the past: what inodes and names were as of an event. `when.rs` finds which event a time means.
//!
//! All definitions are relative to an event number c. An inode as of c is the one in use if that was born at
//! c or before. Otherwise it is the inode's version with the greatest birth up to c, if that version had not
//! ended by then. A name as of c is the entry in use if that was born at c or before. Otherwise it is the
//! past name whose span contains c. Only what c covers is sure to be found so ([`crate::history::record`]),
//! so callers start at the directory that the event is of, and walk downwards.
//!
//! **The present as the past.** Most of what an event has seen has not changed since, and is read where it
//! is, from the same memory. A reader checks afterwards, or under the same lock, that the inode is still as
//! it was then. If not, it has become a version meanwhile, and the reader reads that. A version never
//! changes.
//!
//! Versions are kept in memory as cells of their own ([`crate::history::record::Versions`]), with their data
//! in the same cache as all data.

mod count;
mod events;
mod name;
mod named;
mod tree;
mod when;

pub(crate) use events::{covers, events, kept_from};
pub use name::{resolve_name, split_time, Resolved};
pub(crate) use tree::{
    attr, each_state, entries, entry_at, entry_named, get_xattr, inode, list_xattrs, lookup, name_of, parent,
    read, read_from, readdir, readlink, seek, with, PastInode, PRESENT,
};
pub(crate) use when::{event_for, lookup_at};

use crate::file;
use crate::history::record::{Event, Taking, User};
use crate::store::Store;
use crate::{Error, InodeNo, Result};
use std::sync::Arc;
use yore_format::{EventKind, EventMore, WriteFeatures};

/// Takes an event of a directory with all that is below it: a snapshot, or a point to go back to. With `wait`
/// it is durable on return.
///
/// # Errors
/// `NotADirectory`; `Exists` if a kept snapshot of the directory has that name; `LimitReached`; `NoSpace`;
/// damage and device errors.
pub(crate) fn snapshot(
    store: &Arc<Store>,
    directory: InodeNo,
    kind: EventKind,
    name: &str,
    (held, wait): (bool, bool),
    user: Option<&User>,
) -> Result<Event> {
    let taking = Taking { kind, name, held, more: EventMore::default(), time: None, user };
    take(store, directory, taking, wait)
}

/// As [`snapshot`], with all the details that an event may have.
///
/// # Errors
/// As [`snapshot`]; `OutOfOrder`; `Invalid` for a time if the directory is not the root.
pub(crate) fn take(store: &Arc<Store>, directory: InodeNo, taking: Taking<'_>, wait: bool) -> Result<Event> {
    store.check_writable()?;
    if taking.time.is_some() && directory != InodeNo::ROOT {
        return Err(Error::Invalid { what: "only a snapshot of the whole volume has a time that is given" });
    }
    if taking.user.is_some() {
        store.meta.extend(WriteFeatures::EXTENDED_PAST)?;
    }
    let cell = store.cell(directory)?;
    cell.state.read().check_directory()?;
    store.past.extend_for(store, taking.name, &taking.more)?;
    let event = store.past.take(store, &cell, taking)?;
    #[cfg(feature = "mutations")]
    let wait = wait && !crate::mutation::is(crate::mutation::Mutation::SnapshotNotForced);
    if wait {
        file::flush_all(&**store)?;
        store.force()?;
    }
    Ok(event)
}
