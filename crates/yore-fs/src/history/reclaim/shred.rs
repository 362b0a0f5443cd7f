//! Shredding: what was given up is also erased from the medium.
//!
//! What is gone is spread over the volume: older copies of metadata blocks, cells that were removed, blocks
//! that were freed long before the present operation, records of the log. Nothing lists where parts of one
//! file once were. So shredding erases everything that nothing refers to any more, whatever it belonged to.

use crate::history::reclaim::forget;
use crate::store::Store;
use crate::Result;
use std::ops::ControlFlow;
use std::sync::Arc;

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shredded {
    /// Free blocks that could not be erased, because they are promised to writers.
    pub blocks_left_out: u64,
    /// The caller stopped it, or somebody kept dying events from being given up.
    pub broken_off: bool,
}

/// Gives up what is dying, and erases everything that nothing refers to. Durable on return.
pub(crate) fn shred(store: &Arc<Store>, ask: yore_meta::AskZone<'_>) -> Result<Shredded> {
    let broken = Shredded { blocks_left_out: 0, broken_off: true };
    store.check_writable()?;
    let left = forget::finish(store, &mut |_| ask())?;
    if (left.dying, left.expunging) != (0, 0) {
        return Ok(broken);
    }
    // All dirty data gets its blocks, so that few blocks are promised.
    store.sync()?;
    store.alloc.give_back_zones(&store.meta)?;
    if store.meta.wipe_dead_cells(ask)?.is_break() {
        return Ok(broken);
    }
    // Two generations: after the first, the blocks that it freed are free, and their older copies are stale
    // under both superblocks.
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
