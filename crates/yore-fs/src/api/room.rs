//! Makes room and tries again: every call that changes the present of a full volume does this. The operations
//! fail with [`Error::NoSpace`] and know nothing of history; [`crate::history::reclaim::room`] says what may
//! be given up, and how much.

use crate::history::reclaim::room::{make_room, wait_for_recount, Want};
use crate::store::Store;
use crate::{Error, Result};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use yore_core::alloc::Spent;

/// Carries out a change of the present. If there was no room for it, carries it out again, as long as a
/// recount behind a crash, writing back, or giving up history, makes room. A call that fails because there is
/// no room has changed nothing, or does the same once more. Calls write back once for what was promised, and
/// not each of them that fails. The caller holds no lock.
///
/// # Errors
/// Errors of `change`, and of forgetting. [`Error::NeverFits`] in place of [`Error::NoSpace`] if the change
/// needs more than could be freed.
#[inline]
pub(crate) fn with_room<R>(
    store: &Arc<Store>,
    want: &Want<'_>,
    change: impl Fn(&Arc<Store>) -> Result<R>,
) -> Result<R> {
    let (mut until, mut may_write_back) = (None, true);
    loop {
        let made = store.past.rooms_made.load(Ordering::Acquire);
        let freed = store.recounts.times_freed();
        let spent = store.alloc.times_spent();
        match store.past.bound_backlog(store).and_then(|()| change(store)) {
            Err(Error::NoSpace) if wait_for_recount(store, want.behalf, freed, &mut until) => {}
            Err(Error::NoSpace) if may_write_back => {
                // What somebody else has written back lacks what was promised since that began.
                may_write_back = write_back(store, spent)? == Spent::Meanwhile;
            }
            Err(Error::NoSpace) => make_room(store, want, made)?,
            result => return result,
        }
    }
}

/// Writes back what was promised, unless nothing was promised since that was last done, or somebody has since
/// promises had been spent so many times.
fn write_back(store: &Arc<Store>, spent: u64) -> Result<Spent> {
    store.alloc.spend_promises(spent, || {
        // If a page cannot be written back, its own fsync says so.
        drop(store.write_back());
        Ok(store.meta.sync()?)
    })
}
