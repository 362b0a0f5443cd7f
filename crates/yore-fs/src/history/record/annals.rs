//! The annals: rows of what ended, in sixteen trees, in the order in which
//! they were appended; and two indexes of them, by inode and by name.
//!
//! A volume has annals when its block of roots says so (`annals_from`). Whatever ended before that number is
//! in the old trees, and whatever ended at it or later is here. A row says what an inode
//! was, what a name meant, or both, if one call ended both ([`yore_format::AnnalsRow`]). It is in the shard
//! of the inode that it is about.
//!
//! **A1 A row comes with what ends.** It is appended in the Op that ends what it says, and before that.
//!
//! **A2 Keys ascend, and none comes back.** The key of a row is its end and a sequence. A new key is greater
//! than any that the shard ever had: the last row's, the watermark, and that which memory has of the rows
//! appended since the volume was opened. A call that has an earlier number than the shard's last row begins
//! anew.
//!
//! **A3 Every row up to the watermark of its shard has its keys in the indexes, and no key is without its
//! row.** Rows above it have none: the call appends rows, and the indexer gives them their keys later.
//!
//! **A4 The keys of a batch and the watermark are one Op.**
//!
//! **A5 Whoever removes a row removes its keys in the same Op exactly if it is at or below the watermark**,
//! and holds *annals work* meanwhile, so the watermark does not move.
//!
//! **A6 Rows change in two ways**, and neither makes one longer: one of two facts is taken out, and expunging
//! lets a name begin later. The key follows in the same Op.
//!
//! **A7 A look-up asks the map of rows without keys first, and then the index**, and takes the
//! least end above the number of both. A row goes from one to the other in this order: it may be met twice,
//! and then it is the same.
//!
//! **A7b What the index says was there at a number was there.** States of an inode do not overlap, nor do the
//! lives of a name, so a key whose birth is at the number or before and whose end is behind it needs no look
//! at the map: no row without keys can say otherwise. So a look far back does not read the rows that have no
//! keys, to find out which these are. What the index does not have is looked for by A7, from the beginning.
//!
//! **Locks.** *Annals work* before all of an inode. Shards, in ascending order, then the index by inode, then
//! the index by name. Who looks for a state knows its shard, and holds it together with the index. Who looks
//! for a name learns the shard from the index, and lets go of that before. So the row may be gone by then;
//! then its key is gone, too, and if it is not, that is damage.

mod backlog;
mod ends;
mod index;
mod indexer;
mod names;
mod recording;
mod removal;
mod rows_removal;
mod states;
#[cfg(test)]
mod tests;
mod trees;
mod upgrade;

pub(super) use recording::{AnnalsRecording, PreparedRows};
pub(super) use removal::AnnalsRemoval;
pub(super) use rows_removal::RowsRemoval;
pub(super) use trees::Annals;
