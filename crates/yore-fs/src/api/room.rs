//! Making room and trying again: what every call does that changes the present of a full volume. The
//! operations fail with [`Error::NoSpace`] and know nothing of history; what may be given up, and how much,
//! says [`crate::history::reclaim::room`].

use crate::history::reclaim::room::{make_room, Want};
use crate::store::Store;
use crate::{Error, Result};
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// Carries out what changes the present; again when there was no room for it, as long as giving up history
/// makes some. A call that fails for want of room has changed nothing, or would do the same once more. The
/// caller holds no lock.
///
/// # Errors
/// Those of `change`, and of forgetting. [`Error::NeverFits`] in place of [`Error::NoSpace`] if more is
/// wanted than could be had.
pub(crate) fn with_room<R>(
    store: &Arc<Store>,
    want: &Want<'_>,
    change: impl Fn(&Arc<Store>) -> Result<R>,
) -> Result<R> {
    loop {
        let made = store.past.rooms_made.load(Ordering::Acquire);
        match change(store) {
            Err(Error::NoSpace) => make_room(store, want, made)?,
            result => return result,
        }
    }
}
