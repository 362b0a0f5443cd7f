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
    attr, directory_in_use, each_state, entries, entry_at, entry_in_use, entry_named, get_xattr, inode,
    list_xattrs, lookup, name_of, parent, read, read_from, readdir, readlink, seek, with, PastInode, PRESENT,
};
pub(crate) use when::{event_for, lookup_at};

use crate::file;
use crate::history::record::{Event, Taking, User};
use crate::store::Store;
use crate::{Error, InodeNo, Result};
use std::sync::Arc;
use yore_format::{Timestamp, WriteFeatures};

/// What a new snapshot is to be; see [`crate::View::take_snapshot`].
#[derive(Clone, Copy, Debug, Default)]
pub struct NewSnapshot<'a> {
    /// Its name; empty: it has none.
    pub name: &'a str,
    /// Its description, at most 512 bytes without control characters.
    pub description: &'a str,
    /// Whether it is held.
    pub held: bool,
    /// Why it is held, at most 255 bytes without control characters.
    pub hold_reason: &'a str,
    /// The user on whose behalf it is taken. The event records the user, who may have a limit.
    pub user: Option<&'a User>,
    /// The time at which it says it was taken, for the root directory only: for snapshots that are imported
    /// from elsewhere. `None`: now.
    pub time: Option<Timestamp>,
    /// Whether it is taken before, or after, something that can be undone ([`yore_format::EventKind::Undo`]).
    pub undo: bool,
    /// Whether it is durable when the call returns.
    pub wait: bool,
}

impl<'a> NewSnapshot<'a> {
    /// A snapshot with a name, and nothing else that is said of it.
    ///
    /// ```
    /// use yore_fs::{NewSnapshot, Volume};
    ///
    /// # fn main() -> yore_fs::Result<()> {
    /// let volume = Volume::memory(64 << 20)?;
    /// let view = volume.view();
    /// let new = NewSnapshot { description: "what went out", ..NewSnapshot::named("v1") };
    /// let event = view.take_snapshot(view.root(), &new)?;
    /// assert_eq!(event.row.more.description, "what went out");
    /// # Ok(())
    /// # }
    /// ```
    pub fn named(name: &'a str) -> NewSnapshot<'a> {
        NewSnapshot { name, ..NewSnapshot::default() }
    }
}

/// Takes an event of a directory with all that is below it: a snapshot, or a point to go back to. With `wait`
/// it is durable on return.
///
/// # Errors
/// `NotADirectory`; `Exists` if a kept snapshot of the directory has that name; `OutOfOrder`; `Invalid` for a
/// time if the directory is not the root; `LimitReached`; `NoSpace`; damage and device errors.
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
