//! Space for data: which writer may write which block, and the promise that a writer that was told "yes"
//! finds room.
//!
//! **Three states of a free block.** The bitmap on the medium knows *used* and *clear*. In memory a clear
//! block is *available*, *taken* (handed to a writer that has not yet entered it in the bitmap) or *pending*
//! (freed by a generation that is not complete). Only available blocks are handed out. Rule 3 follows:
//! `Alloc::free` clears bits in its Op, but the blocks become available in
//! [`yore_meta::Reclaimer::reclaim`], when the superblock that no longer names them is durable; or a little
//! later, when they were discarded.
//!
//! **Promises.** `unpromised` counts the free blocks (pending ones too: they come with the next generation)
//! that nobody was promised. Delayed allocation takes from it before the data is accepted
//! ([`Alloc::promise`]); taking blocks later spends a promise. A2: available + pending ≥ promised, so
//! [`Alloc::take`] finds a block, if need be after one generation. The metadata that the promised data will
//! need is promised with it: one tree node for every `EXTENTS_PER_NODE` extents must fit the zones that exist
//! (`Alloc::admit` keeps other metadata off that room).
//!
//! **Withheld room.** In each group one aligned, wholly available run of 1,024 blocks is left alone while
//! data finds room elsewhere, so that metadata can grow in a fragmented volume. Data gets this run when
//! nothing else is left.
//!
//! **Where.** After the goal if there is room, else the first run in the goal's group that is long enough,
//! else in the groups after it. A search skips groups in which nothing is available 64 at a time: it does not
//! search a region again that an earlier search found empty, until something was reclaimed there.
//!
//! `space.rs` has what is in memory; `promise.rs` the promises; `groups.rs` the groups in memory and how
//! their bitmaps are made ready for Ops; `claims.rs` what is about to be freed; `runs.rs` the runs of one
//! group; `zones.rs` the room for metadata; `blocks.rs` taking and freeing; `shared.rs` the blocks that
//! several files have; `checksums.rs` the checksums of data, `scrub.rs` reads it all; `beside.rs` room for
//! what is written beside a generation; `in_use.rs` how many blocks have data; `lay.rs` what laying files
//! together needs; `discard.rs` what the device is told of freed blocks; `log.rs` moves the log; `leaked.rs`
//! frees what nobody has.
//!
//! Locks, in this order: `grow` → meta's (reserve, begin) → shard → group, or a group's claims → block. A
//! thread holds a group's mutex for moments only, and never while it waits for the device.

mod beside;
mod blocks;
mod checksums;
mod claims;
mod counts;
mod discard;
mod groups;
mod in_use;
mod lay;
mod leaked;
mod log;
mod promise;
mod resize;
mod runs;
mod scrub;
mod segments;
mod shared;
mod shred;
mod space;
mod spending;
mod waiting;
mod zones;

#[cfg(test)]
mod tests;

pub use checksums::{Checksums, Mismatch};
pub use counts::{Gone, LetGo};
pub use groups::PinnedGroups;
pub use lay::Others;
pub use log::MoveLog;
pub use promise::{Promise, PromisesAgain, Spared, LEAF_EXTENTS};
pub use resize::{Beyond, ClosedEnd};
pub use space::{Alloc, Run};
pub use spending::Spent;
