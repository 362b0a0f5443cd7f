//! Zones whose blocks lie apart are laid together, while nobody asks for anything: one generation for a few
//! of them, which changes nothing else. Why that is right is said in `writer/along.rs` (N4), what it is for
//! in `zones/slots.rs` and docs/CHECK.md.
//!
//! A step is bounded: it looks at [`HEADERS`] headers, or writes [`ZONES`] zones. It ends for good: a zone
//! that was laid together does not lie apart any more, and one of which a block cannot be read is tried again
//! only when it is written again. So a volume in which nothing changes is left alone.

use super::Meta;
use crate::error::Result;
use crate::zones::slots::Slots;
use crate::zones::zone::{Frame, Zone};
use std::sync::Arc;
use yore_format::{MetaAddr, ZoneNo};

/// The most zones of a step.
const ZONES: usize = 8;
/// So many blocks that move are enough for a step: 2 MiB.
const BLOCKS: usize = 512;
/// The most headers that a step reads to find zones that lie apart.
const HEADERS: usize = 16;

/// What a step has done for zones that lie apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZonesLaid {
    /// There are none, as far as anybody knows.
    Nothing,
    /// Zones were looked at, and there may be more.
    Examined,
    /// Some were laid together, in one generation.
    Zones {
        /// How many.
        zones: usize,
        /// Blocks of them that moved.
        blocks: usize,
    },
    /// Somebody asks for something, or reads metadata as it was: nothing was written.
    Busy,
}

/// A zone that is to be laid together, and its blocks that move. They are in memory until it is.
struct Moving {
    zone: Arc<Zone>,
    frames: Vec<Frame>,
    /// Those that were read for this.
    read: Vec<Frame>,
}

impl Meta {
    /// Whether [`Meta::lay_zones_together`] may find something to do, of a volume that was written to since
    /// it was opened. O(1).
    pub fn zones_may_lie_apart(&self) -> bool {
        let zones = &self.rooms.blocks.zones;
        self.lays_zones_together() && zones.apart.may_have_any(zones.limit())
    }

    /// Engines that write in place leave blocks where they are (N3).
    fn lays_zones_together(&self) -> bool {
        !self.read_only() && !self.base().medium.strategy().in_place()
    }

    /// Whether the running generation has something to write, or one is being written.
    pub fn has_unwritten_changes(&self) -> bool {
        self.rooms.blocks.has_changes() || self.base().progress.is_writing()
    }

    /// Lays a few zones together whose blocks lie apart, or looks for some; durable when it returns. To be
    /// called by one thread at a time, as long as there is something to do. `stop`: whether somebody asks for
    /// something. Once a generation has begun it is written.
    ///
    /// # Errors
    /// The error that stopped writing, if one did. What cannot be read of a zone is no error here: the zone
    /// stays as it is.
    ///
    /// # Panics
    /// In debug builds, if an Op is open on this thread (R7).
    pub fn lay_zones_together(&self, stop: &dyn Fn() -> bool) -> Result<ZonesLaid> {
        let (blocks, base) = (&self.rooms.blocks, self.base());
        if !self.lays_zones_together() {
            return Ok(ZonesLaid::Nothing);
        }
        self.check_writable()?;
        // What a shadow needs of a zone is saved before it is written over.
        let is_busy = || stop() || base.medium.shadows().is_on();
        let (mut all, mut count) = (Vec::new(), 0);
        while all.len() < ZONES && count < BLOCKS {
            if is_busy() {
                return Ok(self.put_back(all));
            }
            let Some(no) = blocks.zones.apart.take() else { break };
            if let Some(moving) = self.read_what_moves(no) {
                count += moving.frames.len() + moving.read.len();
                all.push(moving);
            }
        }
        if all.is_empty() {
            let more = blocks.zones.examine_more(base, HEADERS, &is_busy);
            let any = more || blocks.zones.apart.any();
            return Ok(if any { ZonesLaid::Examined } else { ZonesLaid::Nothing });
        }
        if is_busy() {
            return Ok(self.put_back(all));
        }
        let generation = {
            let (_gate, generation) = base.gate.share();
            all.retain(|moving| moving.zone.lay_together(&blocks.zones.changes, generation));
            generation
        };
        if all.is_empty() {
            // They were removed meanwhile.
            return Ok(ZonesLaid::Examined);
        }
        base.progress.await_background(generation)?;
        let laid = ZonesLaid::Zones { zones: all.len(), blocks: count };
        for Moving { frames, read, .. } in all {
            drop(frames);
            read.into_iter().for_each(|frame| blocks.cache.let_go(frame));
        }
        Ok(laid)
    }

    /// The zones were taken, and nothing was done for them.
    fn put_back(&self, all: Vec<Moving>) -> ZonesLaid {
        for Moving { zone, read, .. } in all {
            self.rooms.blocks.zones.apart.put_back(zone.no);
            read.into_iter().for_each(|frame| self.rooms.blocks.cache.let_go(frame));
        }
        ZonesLaid::Busy
    }

    /// Reads what of a zone has to move, those that lie near each other with one request. `None` if the zone
    /// does not lie apart, or something of it cannot be read.
    fn read_what_moves(&self, no: ZoneNo) -> Option<Moving> {
        let blocks = &self.rooms.blocks;
        let stays = |error| tracing::warn!("zone {no} stays as it is: {error}");
        let zone = blocks.zones.get(self.base(), no).map_err(stays).ok()??;
        // If it was read just now, that was noted again.
        blocks.zones.apart.forget(no);
        let map = zone.copies().map;
        let lie = Slots::of(&map[..]);
        if !lie.is_apart() {
            return None;
        }
        let among = lie.together(0, &lie).among;
        let goes = |index: &u16| {
            let slot = map[usize::from(*index)];
            slot != 0 && !among.contains(&slot.into()) && zone.has(*index)
        };
        let addrs: Vec<MetaAddr> =
            (0..map.len() as u16).filter(goes).map(|index| MetaAddr::new(no, index)).collect();
        let missing: Vec<MetaAddr> =
            addrs.iter().copied().filter(|addr| blocks.cache.lacks(*addr, || true)).collect();
        blocks.read_together(missing.iter().copied());
        let (mut frames, mut read) = (Vec::with_capacity(addrs.len()), Vec::with_capacity(missing.len()));
        let mut missing = missing.into_iter().peekable();
        for addr in addrs {
            let was_missing = missing.next_if_eq(&addr).is_some();
            match blocks.read_any(addr) {
                Ok(frame) if was_missing => read.push(frame),
                Ok(frame) => frames.push(frame),
                // It was freed meanwhile.
                Err(_) if !zone.has(addr.index()) => {}
                Err(error) => {
                    stays(error);
                    return None;
                }
            }
        }
        Some(Moving { zone, frames, read })
    }
}
