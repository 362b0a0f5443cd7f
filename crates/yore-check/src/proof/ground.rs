//! What all workers of the fast pass know and share: what the superblock says, who owns data blocks, where
//! names are ([`super::places`]), and what belongs to the past ([`super::past`]).
//!
//! Blocks are claimed with atomic operations on words, and their order does not matter. Whoever sees a doubt
//! says it; the others then stop.

use super::claim::{Claim, Part, Twice};
use super::doubt::{ensure, Certain, Doubt, TWO_OWNERS};
use super::keyed::Keys;
use super::past::{Past, Slots};
use super::places::Places;
use crate::words::for_words;
use crate::CheckError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use yore_format::layout::Geometry;
use yore_format::{
    BlockNo, DirEntry, EventNo, GroupNo, Incarnation, InodeNo, MetaAddr, Superblock, ZoneNo, BITS_PER_GROUP,
};

/// Words of a bit set over a group's data area.
const GROUP_WORDS: usize = BITS_PER_GROUP as usize / 64;

type Owned = [AtomicU64; GROUP_WORDS];

/// What the workers share.
pub(crate) struct Ground {
    pub(crate) sb: Superblock,
    pub(crate) keys: Keys,
    geometry: Geometry,
    /// For each group with a first zone: which data blocks have an owner.
    owned: Vec<Option<Box<Owned>>>,
    /// Where names are.
    pub(crate) places: Places,
    /// What belongs to the past, or is shared; `None` for a volume without that.
    past: Option<Past>,
    /// What somebody had already when another one claimed it.
    twice: Mutex<Twice>,
    is_doubted: AtomicBool,
    doubt: OnceLock<Doubt>,
    failed: OnceLock<CheckError>,
    /// How much memory each list of each worker may use.
    pub(crate) share: usize,
}

impl Ground {
    /// For a volume with these zones. Each list of each worker may use `share` bytes.
    pub(crate) fn new(
        sb: &Superblock,
        zones: impl Iterator<Item = ZoneNo> + Clone,
        past: Option<Past>,
        share: usize,
    ) -> Ground {
        let geometry = sb.geometry();
        let mut owned: Vec<Option<Box<Owned>>> = Vec::new();
        owned.resize_with(geometry.groups() as usize, || None);
        for zone in zones.clone().filter(|zone| zone.is_primary()) {
            if let Some(group) = owned.get_mut(zone.0 as usize / 2) {
                *group = Some(Box::new([const { AtomicU64::new(0) }; GROUP_WORDS]));
            }
        }
        Ground {
            sb: sb.clone(),
            keys: Keys::draw(),
            geometry,
            owned,
            places: Places::new(zones),
            past,
            twice: Mutex::default(),
            is_doubted: AtomicBool::new(false),
            doubt: OnceLock::new(),
            failed: OnceLock::new(),
            share,
        }
    }

    /// Says that something is not certain. The first one to say so counts.
    pub(crate) fn say(&self, doubt: Doubt) {
        let _ = self.doubt.set(doubt);
        self.is_doubted.store(true, Ordering::Relaxed);
    }

    /// A doubt if something could not be kept, or found among what was kept. Then the check fails.
    pub(crate) fn kept(&self, kept: Result<(), CheckError>) -> Certain {
        kept.map_err(|error| {
            let _ = self.failed.set(error);
            Doubt("what could not be kept")
        })
    }

    /// Why something could not be kept.
    pub(crate) fn failed(&self) -> Result<(), CheckError> {
        self.failed.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Whether nothing can be proved any more.
    pub(crate) fn is_doubted(&self) -> bool {
        self.is_doubted.load(Ordering::Relaxed)
    }

    /// What was said.
    pub(crate) fn doubt(&self) -> Certain {
        self.doubt.get().map_or(Ok(()), |doubt| Err(*doubt))
    }

    /// A number that was given.
    pub(crate) fn number(&self, number: EventNo) -> Certain {
        ensure(number <= self.sb.next_number, "a number not given yet")
    }

    /// An incarnation that was given.
    pub(crate) fn incarnation(&self, incarnation: Incarnation) -> Certain {
        let is_given = u64::from(incarnation.0) < self.sb.next_incarnation || incarnation.0 == 0;
        ensure(is_given, "an incarnation not given yet")
    }

    /// Whether the volume may have a past.
    pub(crate) fn may_have_past(&self) -> bool {
        self.past.is_some()
    }

    /// Which inode numbers of a block have versions.
    pub(crate) fn with_versions(&self, addr: MetaAddr) -> Slots {
        self.past.as_ref().map_or(0, |past| past.with_versions(addr))
    }

    /// Whether nodes of this owner are compared with versions.
    pub(crate) fn is_past(&self, owner: InodeNo) -> bool {
        self.past.as_ref().is_some_and(|past| past.has_nodes_of(owner))
    }

    /// The past names that an entry follows ended before it was born.
    pub(crate) fn follows(&self, directory: InodeNo, cookie: u64, entry: &DirEntry<'_>) -> Certain {
        let Some(past) = &self.past else { return Ok(()) };
        let mut ended = None;
        self.kept(past.ended_before(directory, cookie, entry).map(|last| ended = last))?;
        ensure(ended.is_none_or(|ended| ended <= entry.birth), "a name that a past name overlaps with")
    }

    /// Whether one of these blocks is counted as shared.
    pub(crate) fn is_shared(&self, start: BlockNo, len: u64) -> bool {
        let Some(past) = &self.past else { return false };
        self.area(start, len).is_some_and(|(group, bit)| past.is_shared(group, bit, len as u32))
    }

    /// Group and first bit of blocks that lie within one data area.
    fn area(&self, start: BlockNo, len: u64) -> Option<(GroupNo, u32)> {
        let area = self.geometry.bit_of(start);
        area.filter(|(group, bit)| u64::from(*bit) + len <= self.geometry.data_blocks(*group))
    }

    /// Gives blocks an owner. Returns where they lie, unless some had one: then the claim is kept.
    pub(crate) fn claim(&self, claim: &Claim) -> Certain<Option<Part>> {
        let Claim { start, len, .. } = *claim;
        let (group, bit) = self.area(start, len).ok_or(Doubt("blocks that cannot be data"))?;
        let owned = self.owned.get(group.0 as usize).and_then(Option::as_ref);
        let owned = owned.ok_or(Doubt("blocks of a group not in use"))?;
        let mut both = Vec::new();
        for_words(bit, bit + len as u32, |word, mask| {
            let had = owned[word].fetch_or(mask, Ordering::Relaxed) & mask;
            if had != 0 {
                both.push((word, had));
            }
        });
        if both.is_empty() {
            return Ok(Some(Part::of(group, bit, len as u32)));
        }
        // Whoever finds out who they are must know the past, too.
        ensure(self.past.is_none(), TWO_OWNERS.0)?;
        let mut twice = self.twice.lock().unwrap_or_else(PoisonError::into_inner);
        twice.claims.insert(*claim);
        twice.met += both.iter().map(|(_, had)| had.count_ones() as usize).sum::<usize>();
        twice.is_few()?;
        for (word, had) in both {
            let bits = (0..u64::BITS).filter(|bit| had >> bit & 1 != 0);
            twice.blocks.extend(bits.map(|bit| self.geometry.block_of(group, word as u32 * 64 + bit).0));
        }
        twice.is_few()?;
        Ok(None)
    }

    /// Takes blocks from their owner.
    pub(crate) fn release(&self, start: BlockNo, len: u64) {
        let Some((group, bit)) = self.geometry.bit_of(start) else { return };
        if let Some(Some(owned)) = self.owned.get(group.0 as usize) {
            for_words(bit, bit + len as u32, |word, mask| {
                owned[word].fetch_and(!mask, Ordering::Relaxed);
            });
        }
    }

    /// What was claimed twice.
    pub(crate) fn twice(&self) -> Twice {
        std::mem::take(&mut *self.twice.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The owners of a group's blocks, if it has a first zone.
    pub(crate) fn owners(&self, group: usize) -> Option<impl Iterator<Item = u64> + '_> {
        let owned = self.owned.get(group)?.as_ref()?;
        Some(owned.iter().map(|word| word.load(Ordering::Relaxed)))
    }
}
