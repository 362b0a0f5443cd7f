//! What memory knows of a volume's space.

use super::claims::Claims;
use super::counts::Shared;
use super::runs::Availability;
use super::segments::Segments;
use super::spending::Spending;
use super::waiting::Discards;
pub use super::waiting::Run;
use crate::Result;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use yore_format::layout::{Geometry, GROUP_BLOCKS, VOLUME_BLOCKS_MAX};
use yore_format::{BlockNo, Corruption, GroupNo};
use yore_meta::Meta;

/// Groups that one region hint covers.
pub(super) const REGION: u32 = 64;

pub(super) const SHARDS: usize = 16;
/// Groups of the largest volume.
pub(super) const GROUPS_MAX: u32 = (VOLUME_BLOCKS_MAX / GROUP_BLOCKS) as u32;

/// A search looks at this many groups for a good run before it takes the longest run it has found.
pub(super) const GROUPS_TRIED: u32 = 8;

/// A group in memory.
pub(super) struct Group {
    pub(super) state: Mutex<Availability>,
    /// On what callers are about to free.
    pub(super) claims: Mutex<Claims>,
}

#[derive(Default)]
pub(super) struct Region {
    /// Counts how often blocks were reclaimed here.
    pub(super) reclaimed: AtomicU32,
    /// The count (plus one) at which a search found nothing available: without and with the withheld room.
    pub(super) empty_at: [AtomicU32; 2],
}

const UNKNOWN: u64 = u64::MAX;

/// How many groups have their first zone, once somebody has counted (`in_use.rs`).
pub(super) struct UsedGroups(AtomicU64);

impl UsedGroups {
    pub(super) fn known(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|count| *count != UNKNOWN)
    }

    pub(super) fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// A group has got its first zone. The caller has the lock under which zones are made.
    pub(super) fn note_first_zone(&self) {
        if let Some(known) = self.known() {
            self.set(known + 1);
        }
    }

    /// Groups have gone.
    pub(super) fn forget(&self) {
        self.set(UNKNOWN);
    }
}

/// The space for data of an open volume.
pub struct Alloc {
    /// The length of the volume.
    pub(super) volume_blocks: AtomicU64,
    pub(super) unpromised: AtomicI64,
    pub(super) promised: AtomicI64,
    /// Extents for which there is room promised beyond one for each promised block.
    pub(super) promised_extents: AtomicI64,
    /// Writing back what is promised.
    pub(super) spending: Spending,
    /// What was promised before a crash is promised again, whatever metadata has taken since.
    pub(super) promises_again: AtomicBool,
    pub(super) pending: AtomicI64,
    pub(super) shards: [Mutex<HashMap<u32, Arc<Group>>>; SHARDS],
    /// Available blocks of each group plus one; 0: unknown.
    pub(super) known: Segments<AtomicU16>,
    pub(super) regions: Segments<Region>,
    /// Counts how often groups were dropped from memory.
    pub(super) drops: AtomicU64,
    /// Where the next search starts whose goal is in a full group.
    pub(super) spill: AtomicU32,
    /// Where the last zone was made that was not near its goal. The search for the next one goes on there, so
    /// that a volume that fills up is not searched from the start for each zone.
    pub(super) grown: AtomicU32,
    /// Held while zones are made or given back. It is the first lock taken.
    pub(super) grow: Mutex<()>,
    /// Changes with `grow` held.
    pub(super) used_groups: UsedGroups,
    /// No block from this one on is handed out, because the volume is about to end there. Otherwise it is the
    /// largest number ([`resize`]).
    pub(super) closed_from: AtomicU64,
    /// The free blocks beyond that, taken so that nobody else gets them. This lock is a leaf.
    pub(super) beyond: Mutex<Vec<Run>>,
    pub(super) shared: Shared,
    pub(super) discards: Discards,
}

impl Alloc {
    /// The space of a volume that was just opened.
    pub(crate) fn new(meta: &Meta) -> Alloc {
        Alloc {
            volume_blocks: AtomicU64::new(meta.geometry().blocks),
            unpromised: AtomicI64::new(meta.totals.free_blocks.get() as i64),
            promised: AtomicI64::new(0),
            promised_extents: AtomicI64::new(0),
            spending: Spending::default(),
            promises_again: AtomicBool::new(false),
            pending: AtomicI64::new(0),
            shards: std::array::from_fn(|_| Mutex::default()),
            known: Segments::new(GROUPS_MAX),
            regions: Segments::new(GROUPS_MAX / REGION),
            drops: AtomicU64::new(0),
            spill: AtomicU32::new(0),
            grown: AtomicU32::new(0),
            grow: Mutex::new(()),
            used_groups: UsedGroups(AtomicU64::new(UNKNOWN)),
            closed_from: AtomicU64::new(u64::MAX),
            beyond: Mutex::default(),
            shared: Shared::default(),
            discards: Discards::default(),
        }
    }

    pub(super) fn geometry(&self) -> Geometry {
        Geometry { blocks: self.volume_blocks.load(Ordering::Acquire) }
    }

    /// The group and bit of a run that came from the medium.
    ///
    /// # Errors
    /// `Corruption` if the run does not lie wholly in the data area of one group.
    pub(crate) fn group_and_bit(&self, run: Run) -> Result<(GroupNo, u32)> {
        match (self.geometry().bit_of(run.start), self.geometry().bit_of(BlockNo(run.end() - 1))) {
            (Some((first, bit)), Some((last, _))) if first == last => Ok((first, bit)),
            _ => Err(Corruption::new(
                "extent",
                "blocks",
                "a run within one group's data area",
                format!("{} blocks from {}", run.len, run.start),
            )
            .into()),
        }
    }
}
