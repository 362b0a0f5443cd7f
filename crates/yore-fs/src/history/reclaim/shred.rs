//! Shredding: what was given up is also erased from the medium.
//!
//! What is gone is spread over the volume: older copies of metadata blocks, cells that were removed, blocks
//! that were freed long before what is being given up now, records of the log. Nobody keeps a list of where
//! parts of one file once were. So everything that nothing names any more is erased, whatever it was of.

use crate::history::reclaim::forget;
use crate::store::Store;
use crate::Result;
use std::ops::ControlFlow;
use std::sync::Arc;

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shredded {
    /// Free blocks that could not be erased, because writers were promised all that is free.
    pub blocks_left_out: u64,
    /// It was told to stop, or somebody held up what is being given up.
    pub broken_off: bool,
}

/// Gives up what is dying, and erases all that nothing names; durable when this returns.
pub(crate) fn shred(store: &Arc<Store>, ask: yore_meta::AskZone<'_>) -> Result<Shredded> {
    let broken = Shredded { blocks_left_out: 0, broken_off: true };
    store.check_writable()?;
    let left = forget::finish(store, &mut |_| ask())?;
    if (left.dying, left.expunging) != (0, 0) {
        return Ok(broken);
    }
    // All dirty data gets its blocks, so that little is promised.
    store.sync()?;
    store.alloc.give_back_zones(&store.meta)?;
    if store.meta.wipe_dead_cells(ask)?.is_break() {
        return Ok(broken);
    }
    // Two generations: what the first one freed is free, and its older copies are stale under both
    // superblocks.
    store.meta.sync_always()?;
    store.meta.sync_always()?;
    let ControlFlow::Continue(blocks_left_out) = store.alloc.erase_free(&store.meta, ask)? else {
        return Ok(broken);
    };
    match store.meta.erase_stale(ask)? {
        ControlFlow::Break(()) => Ok(broken),
        ControlFlow::Continue(()) => Ok(Shredded { blocks_left_out, broken_off: false }),
    }
}
