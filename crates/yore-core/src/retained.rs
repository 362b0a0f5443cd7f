//! How many blocks only the past holds, counted in the block of its roots ([`yore_format::HistorySpace`]).
//!
//! The inode in use names what it has; its versions name what it had. So a block comes to be the past's alone
//! in one way: the inode in use lets go of it and does not free it, since a version has it (P3). That happens
//! in two places, whatever the call is: an edit of extents ([`crate::extent::Edit::apply`]), and a node of a
//! tree that is copied or let go of ([`crate::btree`]). It ceases to be in one way, too: forgetting frees it
//! (`yore-fs`'s `history/reclaim/forget.rs`). The nodes of the trees of the past are counted where their
//! roots are stored. Each counts in the Op that does it, so the count is as old as what it counts, after a
//! crash and a replay, too; the checker counts the same from what is there.

use yore_format::{HistoryGrowth, HistoryRoots};
use yore_meta::Op;

/// Inside an Op: counts what has come to be, or ceased to be, the past's alone.
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
