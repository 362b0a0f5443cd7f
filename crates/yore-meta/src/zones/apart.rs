//! Zones whose blocks lie apart, as far as that is known, for whoever lays them together
//! (`meta/together.rs`).
//!
//! A zone is looked at when it is read, and when a generation has written it: then its map is at hand. So
//! what is known of zones in memory is right without asking them. Of the others nobody knows; their headers
//! are read, a few at a time, by whoever has the time for it, and each of them once.

use super::slots::Slots;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use yore_format::layout::ZONE_INDEXES;
use yore_format::ZoneNo;

/// Zones that lie apart.
#[derive(Default)]
pub(crate) struct Apart {
    known: Mutex<BTreeSet<ZoneNo>>,
    /// Zones with numbers below this have been looked at.
    examined: AtomicU32,
    /// Whether a generation was written since the volume was opened.
    has_written: AtomicBool,
}

impl Apart {
    /// A zone has its blocks in the slots that `map` names.
    pub(crate) fn note(&self, no: ZoneNo, map: &[u16; ZONE_INDEXES as usize]) {
        let is_apart = Slots::of(map).is_apart();
        let mut known = self.known.lock();
        match is_apart {
            true => known.insert(no),
            false => known.remove(&no),
        };
    }

    /// The same of a zone that a generation writes.
    pub(crate) fn note_written(&self, no: ZoneNo, map: &[u16; ZONE_INDEXES as usize]) {
        self.note(no, map);
        self.has_written.store(true, Ordering::Relaxed);
    }

    /// A zone has gone, or cannot be laid together as it is.
    pub(crate) fn forget(&self, no: ZoneNo) {
        self.known.lock().remove(&no);
    }

    /// One that is known to lie apart. Nobody knows that any more until somebody notes it again.
    pub(crate) fn take(&self) -> Option<ZoneNo> {
        self.known.lock().pop_first()
    }

    /// Whether any are known.
    pub(crate) fn any(&self) -> bool {
        !self.known.lock().is_empty()
    }

    /// One that was taken, and lies as it did.
    pub(crate) fn put_back(&self, no: ZoneNo) {
        self.known.lock().insert(no);
    }

    /// Whether some are known, or some were never looked at, of numbers below `limit`, and the volume was
    /// written to. A volume that was only read stays as it is.
    pub(crate) fn may_have_any(&self, limit: u32) -> bool {
        self.has_written.load(Ordering::Relaxed)
            && (self.examined.load(Ordering::Relaxed) < limit || self.any())
    }

    /// The next number that was not looked at. One thread at a time goes on from there.
    pub(crate) fn next(&self) -> u32 {
        self.examined.load(Ordering::Relaxed)
    }

    /// All below this have been looked at.
    pub(crate) fn has_examined(&self, until: u32) {
        self.examined.fetch_max(until, Ordering::Relaxed);
    }
}
