//! What the data of files needs of history. This folder knows no more of it: the layer above implements
//! [`History`]. A function that needs nothing of history takes a [`Core`].

use super::map::check_alive;
use crate::Result;
use std::ops::Deref;
use std::sync::Arc;
use yore_core::inode::{InodeCell, InodeState};
use yore_core::locks::Writing;
use yore_core::Core;
use yore_format::{EventNo, InodeNo};

/// Which room a change may use for the version that it must leave behind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// Free room.
    Free,
    /// Also the room that is set aside for deleting.
    Reserve,
}

/// An open volume with its history.
pub(crate) trait History: Deref<Target = Core> {
    /// The number up to which an inode's content belongs to the past, too: content that was born at it or
    /// before is neither overwritten nor freed.
    ///
    /// # Errors
    /// Damage and device errors.
    fn recorded_until(&self, state: &InodeState, no: InodeNo) -> Result<EventNo>;

    /// Whether the inode must be preserved before it changes.
    ///
    /// # Errors
    /// Damage and device errors.
    fn must_preserve(&self, cell: &InodeCell, state: &InodeState) -> Result<bool>;

    /// Keeps the inode as it is, if an event has seen it so. The caller holds none of its locks.
    ///
    /// # Errors
    /// Writing back its data may fail; `NoSpace`; damage and device errors. Then nothing has changed.
    fn preserve(&self, cell: &Arc<InodeCell>, room: Room) -> Result<()>;

    /// As [`History::preserve`], for a caller that holds io.
    ///
    /// # Errors
    /// As [`History::preserve`].
    fn preserve_locked(&self, cell: &Arc<InodeCell>, room: Room) -> Result<()>;

    /// Called before blocks of inodes are overwritten that were born anew without a version; `newest` is the
    /// last of these inodes in their order. Makes it durable that they were born anew.
    ///
    /// # Errors
    /// Those of making it durable.
    fn settle_renewed(&self, newest: u64) -> Result<()>;
}

/// Locks the file's state for a change, and keeps what an event has seen of the file. The caller holds io.
///
/// # Errors
/// As [`History::preserve`]; `Stale` for a file that is gone.
pub(super) fn lock_preserved<'c>(
    store: &impl History,
    cell: &'c Arc<InodeCell>,
    room: Room,
) -> Result<Writing<'c, InodeState>> {
    loop {
        let state = cell.state.write();
        check_alive(&state)?;
        if !store.must_preserve(cell, &state)? {
            return Ok(state);
        }
        drop(state);
        store.preserve_locked(cell, room)?;
    }
}
