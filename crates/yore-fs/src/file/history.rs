//! What the data of files needs of history. This folder knows no more of it: who implements [`History`] lies
//! above, and a function that asks nothing of history takes a [`Core`].

use super::map::check_alive;
use crate::core::inode::{InodeCell, InodeState};
use crate::core::locks::Writing;
use crate::core::Core;
use crate::Result;
use std::ops::Deref;
use std::sync::Arc;
use yore_format::{EventNo, InodeNo};

/// What a change may draw on for the version that it must leave behind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// What is free.
    Free,
    /// Also what is set aside for deleting.
    Reserve,
}

/// An open volume with its history.
pub(crate) trait History: Deref<Target = Core> {
    /// What of an inode's content was born at this number or before belongs to the past, too, and is neither
    /// overwritten nor freed.
    ///
    /// # Errors
    /// Damage and device errors.
    fn kept(&self, state: &InodeState, no: InodeNo) -> Result<EventNo>;

    /// Whether the inode must be preserved before it changes.
    ///
    /// # Errors
    /// Damage and device errors.
    fn must_keep(&self, cell: &InodeCell, state: &InodeState) -> Result<bool>;

    /// Keeps the inode as it is, if an event has seen it so. The caller holds no lock of it.
    ///
    /// # Errors
    /// Writing back its data may fail; `NoSpace`; damage and device errors. Nothing has changed then.
    fn preserve(&self, cell: &Arc<InodeCell>, room: Room) -> Result<()>;

    /// As [`History::preserve`], for who holds io.
    ///
    /// # Errors
    /// As [`History::preserve`].
    fn preserve_locked(&self, cell: &Arc<InodeCell>, room: Room) -> Result<()>;

    /// Before blocks of inodes are overwritten that were born anew without a version, this one the newest:
    /// that they were is durable.
    ///
    /// # Errors
    /// Those of making it durable.
    fn settle_renewed(&self, newest: u64) -> Result<()>;
}

/// The file's state, to be changed: what an event has seen of it is kept. The caller holds io.
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
        if !store.must_keep(cell, &state)? {
            return Ok(state);
        }
        drop(state);
        store.preserve_locked(cell, room)?;
    }
}
