//! Promises of data blocks, and how many more can be made.

use super::space::Alloc;
use super::spending::Spent;
use crate::Result;
use std::sync::atomic::Ordering;
use yore_format::layout::{ZONE_BLOCKS, ZONE_INDEXES};
use yore_meta::Meta;

/// For this many extents one node of an extent tree is promised: leaves hold 118 extents and are half full at
/// worst.
const EXTENTS_PER_NODE: i64 = 50;

/// What the copy of a leaf takes that the past has, in extents.
pub const LEAF_EXTENTS: u64 = EXTENTS_PER_NODE as u64;

/// Metadata blocks that promises and ordinary Ops leave free.
pub(super) const NODES_SPARE: i64 = 64;

/// Data blocks promised to a writer, each with room for an extent of its own, and room for more extents.
/// Dropping it gives back what was not spent.
pub struct Promise<'a> {
    pub(super) alloc: &'a Alloc,
    pub(super) left: u64,
    extents: u64,
}

/// While it lives, what was promised before a crash is promised again. One caller at a time has it.
pub struct PromisesAgain<'a>(&'a Alloc);

impl Drop for PromisesAgain<'_> {
    fn drop(&mut self) {
        self.0.promises_again.store(false, Ordering::Relaxed);
    }
}

/// What was promised to pages, and is not needed any more.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spared {
    /// Data blocks.
    pub blocks: u64,
    /// Room for extents beyond one for each block.
    pub extents: u64,
}

impl Promise<'_> {
    /// The blocks that are still promised.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Takes `blocks` of the promise out of this value: from now on the caller keeps count of them, and calls
    /// [`Alloc::release`] or spends them.
    pub fn take_out(&mut self, blocks: u64) {
        self.left = self.left.checked_sub(blocks).expect("no more is kept than was promised");
    }

    /// Takes the room for more extents out of this value: the caller calls [`Alloc::release_extents`].
    pub fn take_out_extents(&mut self) {
        self.extents = 0;
    }
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        if self.left > 0 {
            self.alloc.release(self.left);
        }
        self.alloc.release_extents(self.extents);
    }
}

/// Nodes of extent trees that so many extents may need.
pub(super) fn nodes_for(extents: i64) -> i64 {
    (extents + EXTENTS_PER_NODE - 1) / EXTENTS_PER_NODE
}

/// Metadata blocks for which the existing zones have room. Root zones hold none of them.
pub(super) fn index_room(meta: &Meta) -> i64 {
    let zones = meta.totals.zones.get() as i64 - i64::from(meta.root_zone_count());
    zones * i64::from(ZONE_INDEXES) - meta.totals.metadata_blocks.get() as i64
}

impl Alloc {
    /// As [`Alloc::promise`], but makes no zones, so callers may hold locks. `None`: there are not enough
    /// blocks, or not enough zones. `extents`: for how many extents there must be room beyond one for each
    /// block. A block in the midst of an extent makes two of that; where a leaf must be copied first, it
    /// takes [`LEAF_EXTENTS`].
    pub fn try_promise(&self, meta: &Meta, blocks: u64, extents: u64) -> Option<Promise<'_>> {
        if (blocks, extents) == (0, 0) {
            return Some(Promise { alloc: self, left: 0, extents: 0 });
        }
        let wanted = i64::try_from(blocks).ok()?;
        self.unpromised
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
                free.checked_sub(wanted).filter(|left| *left >= 0)
            })
            .ok()?;
        self.promised.fetch_add(wanted, Ordering::Relaxed);
        self.promised_extents.fetch_add(extents as i64, Ordering::Relaxed);
        let promise = Promise { alloc: self, left: blocks, extents };
        let has_room = index_room(meta) >= self.promised_nodes(0) + NODES_SPARE;
        let is_granted = has_room || self.promises_again.load(Ordering::Relaxed);
        if is_granted && extents > 0 {
            self.spending.note_promised();
        }
        is_granted.then_some(promise)
    }

    /// While a mount puts into the cache what the log has of files: that was promised before the crash, and
    /// is promised again. Metadata that needs no promise may have taken some of the spare room since, as it
    /// may at any time. Until the value is dropped.
    #[must_use]
    pub fn promise_again(&self) -> PromisesAgain<'_> {
        self.promises_again.store(true, Ordering::Relaxed);
        PromisesAgain(self)
    }

    /// Whether fewer than `blocks` blocks are left to be promised.
    pub fn is_short_of(&self, blocks: u64) -> bool {
        self.unpromised.load(Ordering::Relaxed) < blocks as i64
    }

    /// Gives back promised blocks that were not needed.
    pub fn release(&self, blocks: u64) {
        self.promised.fetch_sub(blocks as i64, Ordering::Relaxed);
        self.unpromised.fetch_add(blocks as i64, Ordering::Relaxed);
    }

    /// Gives back room for extents beyond one for each block.
    pub fn release_extents(&self, extents: u64) {
        if extents > 0 {
            self.promised_extents.fetch_sub(extents as i64, Ordering::Relaxed);
        }
    }

    /// Gives back what was promised to pages.
    pub fn release_spared(&self, spared: Spared) {
        self.release(spared.blocks);
        self.release_extents(spared.extents);
    }

    /// Whether room is promised for nodes that must be copied, or for extents that may be split.
    fn promises_nodes(&self) -> bool {
        self.promised_extents.load(Ordering::Relaxed) > 0
    }

    /// How often [`Alloc::spend_promises`] has written back.
    pub fn times_spent(&self) -> u64 {
        self.spending.times()
    }

    /// For a caller that has found no room: has what is promised written back by `write_back`, for dirty
    /// pages need less than they may need. Where nothing more was promised since that was last done, it would
    /// only cost time, and is left out. So it is if somebody did since [`Alloc::times_spent`] was `times`.
    /// The caller holds no lock.
    ///
    /// # Errors
    /// Those of `write_back`.
    pub fn spend_promises(&self, times: u64, write_back: impl FnOnce() -> Result<()>) -> Result<Spent> {
        self.spending.spend(times, || self.promises_nodes(), write_back)
    }

    /// Nodes of extent trees that what is promised may need, and `more` blocks.
    pub(super) fn promised_nodes(&self, more: i64) -> i64 {
        let extents = self.promised.load(Ordering::Relaxed) + self.promised_extents.load(Ordering::Relaxed);
        nodes_for(extents + more)
    }

    /// Data blocks that can still be written: what [`Alloc::promise`] would grant if `more` blocks more were
    /// free.
    pub fn available(&self, meta: &Meta, more: u64) -> u64 {
        let more = i64::try_from(more).unwrap_or(i64::MAX);
        let blocks = self.unpromised.load(Ordering::Relaxed).max(0).saturating_add(more);
        let nodes = self.promised_nodes(blocks) + NODES_SPARE;
        // The first zones of groups never used cost no data blocks.
        let indexes = i64::from(ZONE_INDEXES);
        let short = (nodes - index_room(meta) - self.unused_groups(meta) * indexes).max(0);
        let zones = (short + indexes - 1) / indexes;
        (blocks - zones * ZONE_BLOCKS as i64).max(0) as u64
    }

    /// Blocks promised and not yet taken.
    #[cfg(any(test, feature = "testing"))]
    pub fn promised(&self) -> i64 {
        self.promised.load(Ordering::Relaxed)
    }

    /// Room for extents that is promised beyond one for each block.
    #[cfg(any(test, feature = "testing"))]
    pub fn promised_extents(&self) -> i64 {
        self.promised_extents.load(Ordering::Relaxed)
    }

    /// Free blocks, promised or not.
    pub fn free_blocks(&self) -> u64 {
        (self.unpromised.load(Ordering::Relaxed) + self.promised.load(Ordering::Relaxed)).max(0) as u64
    }

    /// How many groups were never used, at least: every existing zone may be the first of its group.
    pub(super) fn unused_groups(&self, meta: &Meta) -> i64 {
        let zones = meta.totals.zones.get() as i64 - i64::from(meta.root_zone_count());
        (i64::from(self.geometry().groups()) - zones).max(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::tests::open;

    /// Room for extents that no block's promise counts is kept for them, and comes back: by the promise, or
    /// by whoever took it out.
    #[test]
    fn room_for_more_extents_is_promised() {
        let (meta, alloc) = open(64 << 20);
        let nodes = (index_room(&meta) - NODES_SPARE) as u64;
        let all = nodes * LEAF_EXTENTS;
        assert!(alloc.try_promise(&meta, 1, all).is_none());
        assert_eq!((alloc.promised(), alloc.promised_extents()), (0, 0), "given back");
        let mut promise = alloc.try_promise(&meta, 1, all - LEAF_EXTENTS).unwrap();
        assert!(alloc.try_promise(&meta, 0, LEAF_EXTENTS).is_none(), "all is promised");
        promise.take_out_extents();
        drop(promise);
        assert!(alloc.try_promise(&meta, LEAF_EXTENTS + 1, 0).is_none());
        alloc.release_extents(all - LEAF_EXTENTS);
        assert_eq!((alloc.promised(), alloc.promised_extents()), (0, 0));
        assert!(alloc.try_promise(&meta, LEAF_EXTENTS + 1, 0).is_some());
    }

    /// On a full volume each call that failed wrote everything back and completed a generation, as long as
    /// pages were dirty that could not be written back. It is done once, and again when more is promised; who
    /// has found no room before somebody else did it tries again.
    #[test]
    fn what_is_promised_is_written_back_once() {
        let (meta, alloc) = open(64 << 20);
        let written = std::cell::Cell::new(0);
        let spend = |times| {
            alloc.spend_promises(times, || {
                written.set(written.get() + 1);
                Ok(())
            })
        };
        assert_eq!(spend(0).unwrap(), Spent::Nothing, "nothing is promised");
        let first = alloc.try_promise(&meta, 0, LEAF_EXTENTS).unwrap();
        assert_eq!(spend(0).unwrap(), Spent::Here);
        assert_eq!(spend(0).unwrap(), Spent::Meanwhile, "it was done since this caller looked");
        assert_eq!(spend(1).unwrap(), Spent::Nothing, "that would change nothing");
        let second = alloc.try_promise(&meta, 0, 1).unwrap();
        assert_eq!(spend(1).unwrap(), Spent::Here);
        assert_eq!(spend(2).unwrap(), Spent::Nothing);
        drop((first, second));
        assert_eq!((written.get(), alloc.times_spent()), (2, 2));
        let third = alloc.try_promise(&meta, 0, 1).unwrap();
        drop(third);
        assert_eq!(spend(2).unwrap(), Spent::Nothing, "nothing is promised any more");
        assert_eq!(written.get(), 2);
    }
}
