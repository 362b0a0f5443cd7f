//! To which user an event belongs. Whoever asks whether an event is somebody else's asks here: the rules of
//! retention, a full volume, and expunging.
//!
//! An event belongs to the user who took it, as its row notes. The row notes nobody if a policy took the
//! event, or somebody before format 2.2. Then it belongs to the user who owns what it is of.

use crate::store::Store;
use crate::{InodeNo, Result};
use hashbrown::HashMap;
use std::cell::RefCell;
use yore_format::{EventRow, Incarnation};

/// Whether an event is a user's, given who owns what it is of (`None`: nobody, or nobody knows).
///
/// # Errors
/// Those of `owner`.
pub(crate) fn is_of(uid: u32, row: &EventRow, owner: impl FnOnce() -> Result<Option<u32>>) -> Result<bool> {
    match row.more.by {
        Some(by) => Ok(by == uid),
        None => Ok(owner()? == Some(uid)),
    }
}

/// The users who own what events are of, for one question about many events.
pub(crate) struct Owners<'s> {
    store: &'s Store,
    /// Each directory or file is looked at once, so damage of one is told once.
    known: RefCell<HashMap<(InodeNo, Incarnation), Option<u32>>>,
}

impl<'s> Owners<'s> {
    pub(crate) fn new(store: &'s Store) -> Owners<'s> {
        Owners { store, known: RefCell::default() }
    }

    /// The user who owns the directory or file that an event is of, if that still has a name. `None` also if
    /// it is damaged: then the event is no user's.
    ///
    /// # Errors
    /// Errors that are not about this inode.
    pub(crate) fn of(&self, row: &EventRow) -> Result<Option<u32>> {
        let of = (row.root, row.root_incarnation);
        let known = self.known.borrow().get(&of).copied();
        if let Some(owner) = known {
            return Ok(owner);
        }
        let cell = match self.store.cell_if_used(of.0) {
            Err(error) if error.is_damage() => {
                tracing::warn!("nobody knows who owns inode {}: {error}", of.0);
                None
            }
            found => found?,
        };
        let owner = cell.filter(|cell| cell.incarnation == of.1).and_then(|cell| {
            let state = cell.state.read();
            (!state.gone && state.inode.links > 0).then_some(state.inode.uid)
        });
        self.known.borrow_mut().insert(of, owner);
        Ok(owner)
    }

    /// Whether an event is a user's.
    ///
    /// # Errors
    /// As [`Owners::of`].
    pub(crate) fn is_of(&self, uid: u32, row: &EventRow) -> Result<bool> {
        is_of(uid, row, || self.of(row))
    }
}
