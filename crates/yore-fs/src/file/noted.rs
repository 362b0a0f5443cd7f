//! What the intent log has of a file, taken back ([`super::logged`] says when that may be, F8).

use crate::core::inode::{InodeCell, InodeState};
use crate::core::Core;
use yore_format::IntentNote;
use yore_meta::Op;

/// What the log has beyond `size` goes in this Op: event off, or (all of it, 0) with the content into the
/// inode.
pub(super) fn truncate(op: &mut Op<'_>, cell: &InodeCell, state: &mut InodeState, size: u64) {
    if let Some(logged) = state.data.logged_size {
        op.note(&IntentNote::Truncated { inode: cell.no, incarnation: cell.incarnation, size });
        state.data.logged_size = (size > 0).then_some(logged.min(size));
    }
}

/// Everything of the file that the log may have is at home, and this Op makes it count: it enters the last
/// extents, or stores the size.
pub(super) fn release_in(op: &mut Op<'_>, cell: &InodeCell, state: &mut InodeState) {
    truncate(op, cell, state, 0);
}

/// Everything of the file that the log may have is at home and counts already, or is gone.
pub(super) fn release(store: &Core, cell: &InodeCell, state: &mut InodeState) {
    if state.data.logged_size.take().is_some() {
        store.meta.note(&IntentNote::Truncated { inode: cell.no, incarnation: cell.incarnation, size: 0 });
    }
}
