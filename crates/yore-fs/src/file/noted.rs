//! Takes back what the intent log has of a file ([`super::logged`] says when that is allowed, F8).

use yore_core::inode::{InodeCell, InodeState};
use yore_core::Core;
use yore_format::IntentNote;
use yore_meta::Op;

/// Inside an Op: removes from the log what it has beyond `size`, because the file is truncated, or (with 0,
/// everything) because the content goes into the inode.
pub(super) fn truncate(op: &mut Op<'_>, cell: &InodeCell, state: &mut InodeState, size: u64) {
    if let Some(logged) = state.data.logged_size {
        op.note(&IntentNote::Truncated { inode: cell.no, incarnation: cell.incarnation, size });
        state.data.logged_size = (size > 0).then_some(logged.min(size));
    }
}

/// Everything of the file that the log may have is at home, and this Op makes it count: the Op enters the
/// last extents, or stores the size.
pub(super) fn release_in(op: &mut Op<'_>, cell: &InodeCell, state: &mut InodeState) {
    truncate(op, cell, state, 0);
}

/// Everything of the file that the log may have is at home and counts already, or is gone.
pub(super) fn release(store: &Core, cell: &InodeCell, state: &mut InodeState) {
    if state.data.logged_size.take().is_some() {
        store.meta.note(&IntentNote::Truncated { inode: cell.no, incarnation: cell.incarnation, size: 0 });
    }
}
