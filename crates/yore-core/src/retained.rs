//! How many blocks only the past holds. The block of its roots has the count ([`yore_format::HistorySpace`]).
//!
//! The inode in use names the blocks that it has; its versions name the blocks that it had. So a block
//! becomes the past's alone in one way: the inode in use lets go of it and does not free it, because a
//! version has it (P3). That happens in two places, whatever the call is: an edit of extents
//! ([`crate::extent::Edit::apply`]), and a node of a tree that is copied or let go of ([`crate::btree`]). A
//! block also stops being the past's alone in one way: forgetting frees it (`yore-fs`'s
//! `history/reclaim/forget.rs`). The nodes of the trees of the past are counted where their roots are stored.
//! Each change counts in its own Op, so the count is as old as what it counts, also after a crash and a
//! replay. The checker counts the same from what is there.

use yore_format::{HistoryGrowth, HistoryRoots};
use yore_meta::Op;

/// Inside an Op: counts blocks that have become the past's alone, or are no longer.
///
/// # Panics
/// If the block of roots is not in memory, where `yore-fs`'s `history/record.rs` keeps it.
pub fn count(op: &mut Op<'_>, growth: HistoryGrowth) {
    #[cfg(feature = "mutations")]
    if growth.data > 0 && yore_meta::mutation::is(yore_meta::mutation::Mutation::HistoryUncounted) {
        return;
    }
    let Some(roots) = op.history_root().filter(|_| !growth.is_none()) else { return };
    let frame = op.cached(roots).expect("the roots of the past stay in memory");
    op.change(&frame, |page| page.apply(|b| HistoryRoots::count(b, growth)));
}
