//! Space for data: who may write a block where, and the promise that whoever was told "yes" finds room.
//!
//! **Three states of a free block.** The bitmap on the medium knows *used* and *clear*. In memory a clear
//! block is *available*, *taken* (handed to a writer that has not yet entered it in the bitmap) or *pending*
//! (freed by a generation that is not complete). Only available blocks are handed out. Rule 3 follows:
//! [`Alloc::free`] clears bits in its Op, but the blocks become available in
//! [`yore_meta::Reclaimer::reclaim`], when the superblock that no longer names them is durable.
//!
//! **Promises.** `unpromised` counts the free blocks (pending ones too: they come with the next generation)
//! that nobody was promised. Delayed allocation takes from it before the data is accepted
//! ([`Alloc::promise`]); taking blocks later spends a promise. A2: available + pending ≥ promised, so
//! [`Alloc::take`] finds a block, if need be after one generation. Metadata that the promised data will need
//! is promised with it: one tree node for [`BLOCKS_PER_NODE`] blocks must fit the zones that exist
//! ([`Alloc::admit`] keeps other metadata off that room).
//!
//! **Withheld room.** In each group one aligned, wholly available run of 1,024 blocks is left alone while
//! data finds room elsewhere, so that metadata can grow in a fragmented volume. Data gets it when nothing
//! else is left.
//!
//! **Where.** After the goal if there is room, else the first run in the goal's group that is long enough,
//! else in the groups after it. Groups in which nothing is available are skipped 64 at a time: a region that
//! a search found empty is not searched again until something was reclaimed there.
//!
//! What there is in memory is in `space.rs`; promises in `promise.rs`; groups in memory, and how their
//! bitmaps are made ready for Ops, in `groups.rs`, the runs of one in `runs.rs`; room for metadata in
//! `zones.rs`; taking and freeing in `blocks.rs`.
//!
//! Locks, in this order: `grow` → meta's (reserve, begin) → shard → group, or a group's claims → block. A
//! group's mutex is held for moments, never across the device.

mod blocks;
mod groups;
mod promise;
mod resize;
mod runs;
mod segments;
mod shred;
mod space;
mod zones;

#[cfg(test)]
mod tests;

pub use groups::KeptGroups;
pub use promise::Promise;
pub use resize::{Beyond, ClosedEnd};
pub use space::{Alloc, Run};
