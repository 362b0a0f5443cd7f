//! Metadata blocks: from memory or the device, verified. This is what everything above reads through.

use crate::base::gate::assert_no_op;
use crate::base::Base;
use crate::cache::{new_frame, Cache, News};
use crate::error::Result;
use crate::zones::zone::{count_free_inodes, Frame, Zone};
use crate::zones::Zones;
use std::sync::Arc;
use yore_format::{
    Block, BlockKind, BlockNo, Corruption, Expect, Generation, IntentHead, MetaAddr, NOT_INODES,
};

/// Changed blocks that the log does not have, at which it gets a record under an engine that must log them
/// anyway: a record keeps Ops waiting as long as it takes to copy what it has.
const UNLOGGED_MANY: usize = 1024;

/// Changes that wait for the next generation, under an engine that orders them, at which one begins: each is
/// kept with what it means, whatever blocks they lie in.
const CHANGES_MANY: usize = 1 << 17;

/// Where the medium has a block.
struct Copy {
    addr: MetaAddr,
    zone: Arc<Zone>,
    slot: u16,
    /// Its checksum.
    check: u32,
}

impl Copy {
    fn block(&self) -> BlockNo {
        BlockNo(self.zone.start.0 + u64::from(self.slot))
    }
}

/// The cache, the zones, and what they stand on.
pub(crate) struct Blocks {
    pub(crate) base: Base,
    pub(crate) cache: Cache<Zone>,
    pub(crate) zones: Zones,
}

impl Blocks {
    pub(crate) fn new(base: Base, cache_bytes: u64) -> Blocks {
        let zones = Zones::new(base.medium.found());
        Blocks { base, cache: Cache::new(cache_bytes), zones }
    }

    /// The block at `addr`, verified to be what `expect` says.
    #[inline]
    pub(crate) fn read(&self, addr: MetaAddr, expect: &Expect) -> Result<Frame> {
        let frame = self.read_any(addr)?;
        expect.check(&frame.read()).map_err(|c| c.at(addr))?;
        Ok(frame)
    }

    /// The block at `addr`, whatever it is.
    #[inline]
    pub(crate) fn read_any(&self, addr: MetaAddr) -> Result<Frame> {
        assert_no_op();
        loop {
            if let Some(frame) = self.cache.get(addr) {
                return Ok(frame);
            }
            if let Some(frame) = self.read_missing(addr)? {
                return Ok(frame);
            }
        }
    }

    /// `Ok(None)`: the block moved while it was read; look again.
    fn read_missing(&self, addr: MetaAddr) -> Result<Option<Frame>> {
        if !addr.is_plausible() || addr.zone().is_root() {
            return Err(missing(addr, "no possible address").into());
        }
        let Some(zone) = self.zones.get(&self.base, addr.zone())? else {
            return Err(missing(addr, "no such zone").into());
        };
        let Some((slot, check)) = zone.copy_of(addr.index()) else {
            return Err(missing(addr, "an index that does not exist").into());
        };
        if slot == 0 {
            // Exists and was never written, so it is in memory: made since we looked.
            return match self.cache.get(addr) {
                Some(frame) => Ok(Some(frame)),
                None if zone.slot_of(addr.index()) != 0 => Ok(None),
                None => Err(missing(addr, "a block that was never written").into()),
            };
        }
        let copy = Copy { addr, zone, slot, check };
        let block = self.base.medium.read_block(copy.block())?;
        self.enter_read(&copy, *block)
    }

    /// Enters a block that was read from where its zone had it. `Ok(None)`: it moved meanwhile.
    fn enter_read(&self, copy: &Copy, block: Block) -> Result<Option<Frame>> {
        let Copy { addr, zone, slot, check } = copy;
        let still_there = || zone.copy_of(addr.index()) == Some((*slot, *check));
        if let Err(c) = self.base.medium.verify_copy(&block, *check, *addr, copy.block()) {
            // An engine that writes in place may have overwritten the block meanwhile, and says so in the map
            // only afterwards; until then the frame that it wrote is in memory.
            let is_wrong = self.cache.lacks(*addr, still_there);
            return if is_wrong { Err(c.into()) } else { Ok(None) };
        }
        self.believe_block(zone, *addr, &block, still_there);
        let frame = new_frame(*addr, zone.clone(), block, Generation(0));
        Ok(self.cache.insert_read(frame, still_there))
    }

    /// Reads blocks that are not in memory, those that lie near each other with one request, for somebody who
    /// will want them soon. Errors are ignored here: a later read of the block by itself reports them.
    pub(crate) fn read_together(&self, addrs: impl IntoIterator<Item = MetaAddr>) {
        assert_no_op();
        let mut copies: Vec<Copy> = addrs.into_iter().filter_map(|addr| self.missing_copy(addr)).collect();
        copies.sort_unstable_by_key(Copy::block);
        let mut rest = &copies[..];
        while !rest.is_empty() {
            let (left, read) = self.base.medium.read_near(rest, Copy::block, |copy, block| {
                if let Err(error) = self.enter_read(copy, *block) {
                    tracing::debug!(%error, "reading metadata ahead");
                }
            });
            if let Err(error) = read {
                tracing::debug!(%error, "reading metadata ahead");
            }
            rest = left;
        }
    }

    /// Where the medium has a block that is not in memory, as far as that is known without an error.
    fn missing_copy(&self, addr: MetaAddr) -> Option<Copy> {
        if !addr.is_plausible() || addr.zone().is_root() || !self.cache.lacks(addr, || true) {
            return None;
        }
        let zone = self.zones.get(&self.base, addr.zone()).ok()??;
        let (slot, check) = zone.copy_of(addr.index()).filter(|(slot, _)| *slot != 0)?;
        Some(Copy { addr, zone, slot, check })
    }

    /// Corrects what the zone counts of a block that was read. Freeing the last inode by the header's count
    /// frees the block, so a count that contradicts the block is not believed: the block's own counts from
    /// now on, as in replay. The two change together, with the block in memory, so what nobody has in memory
    /// shows no half of a change.
    fn believe_block(&self, zone: &Zone, addr: MetaAddr, block: &Block, still_there: impl Fn() -> bool) {
        let counted = match block[4] == BlockKind::Inodes as u8 {
            true => count_free_inodes(block),
            false => NOT_INODES,
        };
        let is_wrong =
            self.cache.lacks(addr, || still_there() && zone.correct_free_inodes(addr.index(), counted));
        if is_wrong {
            tracing::warn!(
                "the header of zone {} counts free inodes of {addr} wrongly; run `yore check`",
                zone.no
            );
        }
    }

    /// Whether a block exists, in memory or on the medium.
    pub(crate) fn exists(&self, addr: MetaAddr) -> Result<bool> {
        let zone = self.zones.get(&self.base, addr.zone())?;
        Ok(zone.is_some_and(|zone| zone.has(addr.index())))
    }

    /// A frame is dirty, or to be logged, and was not before.
    #[inline]
    pub(crate) fn note_changed(&self, zone: &Arc<Zone>, generation: Generation, frame: &Frame, news: News) {
        if zone.note_changed(&self.zones.changes, generation, frame, news) {
            self.base.progress.note_first_change();
        }
    }

    /// Enters a block that was just made.
    pub(crate) fn insert_new(&self, zone: &Arc<Zone>, generation: Generation, frame: &Frame) {
        self.cache.insert_new(frame, || zone.appear(frame.addr().index()));
        self.note_changed(zone, generation, frame, News::Dirty);
    }

    /// Removes a block whose frame, if it has one, was killed.
    pub(crate) fn remove(&self, zone: &Arc<Zone>, generation: Generation, addr: MetaAddr) {
        self.cache.remove(addr, || zone.free_index(&self.zones.changes, generation, addr.index()));
        self.base.ledger.totals().metadata_blocks.add(-1);
    }

    /// Whether the running generation has changed anything.
    pub(crate) fn has_changes(&self) -> bool {
        self.base.ledger.has_changed() || self.zones.changes.any()
    }

    /// The state beside zones and blocks, for a record of the log. With no Op open.
    pub(crate) fn head(&self, generation: Generation) -> IntentHead {
        self.base.ledger.head(generation, self.zones.limit())
    }

    /// Slows callers gradually while one generation is being written and the next fills up; starts one when a
    /// quarter of the cache is dirty.
    #[inline]
    pub(crate) fn throttle(&self) {
        assert_no_op();
        let soft = self.cache.capacity() / 4;
        if self.zones.changes.dirty_frames() >= soft && self.base.progress.may_wait() {
            let running = self.base.gate.running();
            self.base.progress.slow_down(running, || self.zones.changes.dirty_frames(), soft, 2 * soft);
        }
        let pending = &self.base.order.pending;
        if pending.count() >= CHANGES_MANY && self.base.progress.may_wait() {
            let running = self.base.gate.running();
            let count = || pending.count();
            self.base.progress.slow_down(running, count, CHANGES_MANY, 2 * CHANGES_MANY);
        }
        if self.zones.changes.unlogged_frames() >= UNLOGGED_MANY && self.base.medium.strategy().logs_first() {
            self.base.progress.want_record();
        }
    }
}

fn missing(addr: MetaAddr, what: &'static str) -> Box<Corruption> {
    Corruption::new("metadata pointer", "target", "an existing block", what).at(addr)
}
