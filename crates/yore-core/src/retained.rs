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
//!
//! Whoever wants to know which events hold the blocks gets notes of the same: whose they were, when they were
//! born, and when the version ended that has them ([`yore_meta::LeftNotes`]). What is left to the past cannot
//! be counted without saying that. The count comes first: what is noted never exceeds it.

use yore_format::{EventNo, HistoryGrowth, HistoryRoots, Incarnation, InodeNo};
use yore_meta::{Left, LeftBlocks, Op};

/// The inode in use that leaves blocks to its versions.
#[derive(Clone, Copy, Debug)]
pub struct Leaves {
    /// The inode.
    pub inode: InodeNo,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// What was born at this number or before belongs to its versions, too.
    pub recorded_until: EventNo,
}

impl Leaves {
    /// Some of the data that it leaves has further references. Called when these are counted.
    pub(crate) fn note_sharing(&self, op: &Op<'_>) {
        op.left().note_sharing(self.inode, self.incarnation);
    }

    fn note(&self, op: &Op<'_>, birth: EventNo, blocks: LeftBlocks) {
        let Leaves { inode, incarnation, recorded_until } = *self;
        op.left().note(Left { inode, incarnation, end: EventNo(recorded_until.0 + 1), birth }, blocks);
    }
}

/// Inside an Op that changes extents: an inode in use leaves runs to its versions, each with its birth and
/// length. `data`: by how many blocks this and what the inode gains make what only the past holds grow.
pub(crate) fn leave_data(
    op: &mut Op<'_>,
    leaves: &Leaves,
    runs: impl Iterator<Item = (EventNo, u32)> + Clone,
    data: i64,
) {
    let references = runs.clone().map(|(_, len)| i64::from(len)).sum();
    count(op, HistoryGrowth { data, references, ..HistoryGrowth::default() });
    for (birth, len) in runs {
        leaves.note(op, birth, LeftBlocks { data: u64::from(len), nodes: 0 });
    }
}

/// Inside an Op: an inode in use leaves a node of one of its trees to its versions.
pub(crate) fn leave_node(op: &mut Op<'_>, leaves: &Leaves, birth: EventNo) {
    count(op, HistoryGrowth { nodes: 1, ..HistoryGrowth::default() });
    leaves.note(op, birth, LeftBlocks { data: 0, nodes: 1 });
}

/// As [`leave_node`], for so many nodes that were not read: nobody can tell which events hold them without
/// reading the versions.
pub(crate) fn leave_unread_nodes(op: &mut Op<'_>, nodes: i32) {
    op.left().lose();
    count(op, HistoryGrowth { nodes: nodes.into(), ..HistoryGrowth::default() });
}

/// Inside an Op: forgetting lets go of what versions had alone. `data` and `references` are 0 or less.
pub fn give_up(op: &mut Op<'_>, data: i64, references: i64, nodes: u64) {
    debug_assert!(data <= 0 && references <= 0);
    count(op, HistoryGrowth { data, references, nodes: -(nodes as i64), trees: 0 });
}

/// Inside an Op: adds what the counts lack, as a check has found.
pub fn correct(op: &mut Op<'_>, growth: HistoryGrowth) {
    count(op, growth);
}

/// Inside an Op: the trees of the past have so many nodes more.
pub fn count_trees(op: &mut Op<'_>, nodes: i64) {
    count(op, HistoryGrowth { trees: nodes, ..HistoryGrowth::default() });
}

/// Inside an Op: counts blocks that have become the past's alone, or are no longer.
///
/// # Panics
/// If the block of roots is not in memory, where `yore-fs`'s `history/record.rs` keeps it.
fn count(op: &mut Op<'_>, growth: HistoryGrowth) {
    #[cfg(feature = "mutations")]
    if growth.data > 0 && yore_meta::mutation::is(yore_meta::mutation::Mutation::HistoryUncounted) {
        return;
    }
    let Some(roots) = op.history_root().filter(|_| !growth.is_none()) else { return };
    let frame = op.cached(roots).expect("the roots of the past stay in memory");
    op.change(&frame, |page| page.apply(|b| HistoryRoots::count(b, growth)));
}
