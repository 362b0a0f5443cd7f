//! The past on the medium: the roots of its trees, and the cells in them.
//!
//! | tree | key | value |
//! |---|---|---|
//! | events, forgotten | number (8) | [`EventRow`] |
//! | event index | root inode, number (8, 8); or name hash with its first bit set, number | nothing |
//! | versions | inode, born (8, 8) | [`Version`] |
//! | names | directory, cookie, birth (8, 8, 8) | [`PastName`] |
//! | changes | number, inode, 0; or number, directory, cookie (8, 8, 8) | nothing |
//! | policies | inode (8) | [`crate::PolicyRow`] |
//! | operations | class, sequence (8, 8) | [`crate::OperationRow`] |
//! | annals | end, sequence (6, 4) | [`AnnalsRow`] |
//! | index by inode | inode, end (5, 6) | [`InodeIndexCell`] |
//! | index by name | directory, cookie, death (5, 8, 6) | [`NameIndexCell`] |
//! | spans | class, first, last (5, 6, 6) | [`SpanCell`] |
//!
//! Keys are big-endian, so that they sort as bytes. Versions, names and changes are in [`HISTORY_SHARDS`]
//! trees each. An inode's versions and changes are in the trees of its [`version_shard`], a directory's names
//! in the tree of its [`name_shard`], so threads that work on different files seldom meet. One block
//! ([`HistoryRoots`]), made with the first event or policy, holds all roots. It also counts the blocks that
//! the past alone holds ([`HistorySpace`]).
//!
//! The last four are for volumes with [`crate::Features::ANNALS`]. No program makes one yet.

mod annals;
mod event;
mod keys;
mod more;
mod operations;
mod past_name;
mod rollback;
mod roots;
mod short_event;
mod span_hint;
mod trees;
mod version;

pub use annals::{
    AnnalsKey, AnnalsRow, IndexValue, InodeIndexCell, NameIndexCell, RowName, RowValue, SpanCell,
    ROW_BYTES_MAX,
};
pub use event::{EventKind, EventRow, EventState, EVENT_FIXED_BYTES, EVENT_NAME_MAX};
pub use keys::{
    event_index_by_name, event_index_by_root, key_parts, name_end_key, name_key, version_end_key, version_key,
};
pub use more::{EventMore, ForgottenFor, DESCRIPTION_MAX, HOLD_REASON_MAX};
pub use operations::{
    operation_key, OperationKind, OperationRow, RowClass, OPERATION_NOTE_MAX, OPERATION_PATH_MAX,
};
pub use past_name::PastName;
pub use rollback::RollbackIntent;
pub use roots::{AnnalsCounts, HistoryGrowth, HistoryRoots, HistorySpace};
pub use span_hint::{HintPlace, HintSpan, HintSum, SpanHint, HINT_BLOCKS_MOST};
pub use trees::{name_shard, version_shard, HistoryTree, HISTORY_ROOTS, HISTORY_SHARDS};
pub use version::{Version, VERSION_FIXED_BYTES};

/// The layouts of what has a fixed size.
pub(crate) fn layouts() -> Vec<crate::StructLayout> {
    let mut layouts = roots::layouts().to_vec();
    layouts.extend([operations::layout(), event::layout(), span_hint::layout()]);
    layouts
}

#[cfg(test)]
mod tests;
