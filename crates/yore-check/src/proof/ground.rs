//! What all workers of the fast pass know and share: what the superblock says, who owns data blocks, and for
//! each inode number a sum of where its names are.
//!
//! Nothing here has a lock: blocks are claimed and sums are added to with atomic operations on words, and
//! their order does not matter. Whoever sees a doubt says it; the others then stop.

use super::doubt::{ensure, Certain, Doubt};
use super::keyed::Keys;
use crate::words::for_words;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;
use yore_format::layout::{Geometry, ZONE_INDEXES};
use yore_format::{
    BlockNo, EventNo, Incarnation, InodeNo, Superblock, ZoneNo, BITS_PER_GROUP, INODES_PER_BLOCK,
};

/// Words of a bit set over a group's data area.
const GROUP_WORDS: usize = BITS_PER_GROUP as usize / 64;

type Owned = [AtomicU64; GROUP_WORDS];

/// The sums of the inode numbers of one block.
struct OfBlock {
    sums: [AtomicU64; INODES_PER_BLOCK],
    /// Bit i: nobody says where the names of number i are, so the sum says nothing.
    untold: AtomicU32,
}

/// The blocks of a zone; those come to be that have inodes, or that a name needs.
type OfZone = [OnceLock<Box<OfBlock>>];

/// What the workers share.
pub(crate) struct Ground {
    pub(crate) sb: Superblock,
    pub(crate) keys: Keys,
    geometry: Geometry,
    /// For each group with a first zone: which data blocks have an owner.
    owned: Vec<Option<Box<Owned>>>,
    /// For each zone number: the sums.
    places: Vec<OnceLock<Box<OfZone>>>,
    is_doubted: AtomicBool,
    doubt: OnceLock<Doubt>,
}

impl Ground {
    /// For a volume with these zones.
    pub(crate) fn new(sb: &Superblock, zones: impl Iterator<Item = ZoneNo> + Clone) -> Ground {
        let geometry = sb.geometry();
        let mut owned: Vec<Option<Box<Owned>>> = Vec::new();
        owned.resize_with(geometry.groups() as usize, || None);
        for zone in zones.clone().filter(|zone| zone.is_primary()) {
            if let Some(group) = owned.get_mut(zone.0 as usize / 2) {
                *group = Some(Box::new([const { AtomicU64::new(0) }; GROUP_WORDS]));
            }
        }
        let mut places = Vec::new();
        places.resize_with(zones.map(|zone| zone.0 as usize + 1).max().unwrap_or(0), OnceLock::new);
        Ground {
            sb: sb.clone(),
            keys: Keys::draw(),
            geometry,
            owned,
            places,
            is_doubted: AtomicBool::new(false),
            doubt: OnceLock::new(),
        }
    }

    /// Says that something is not certain. The first one to say so counts.
    pub(crate) fn say(&self, doubt: Doubt) {
        let _ = self.doubt.set(doubt);
        self.is_doubted.store(true, Ordering::Relaxed);
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

    /// Gives blocks their only owner.
    pub(crate) fn claim(&self, start: BlockNo, len: u64) -> Certain {
        let area = self.geometry.bit_of(start);
        let area = area.filter(|(group, bit)| u64::from(*bit) + len <= self.geometry.data_blocks(*group));
        let (group, bit) = area.ok_or(Doubt("blocks that cannot be data"))?;
        let owned = self.owned.get(group.0 as usize).and_then(Option::as_ref);
        let owned = owned.ok_or(Doubt("blocks of a group not in use"))?;
        let mut is_sole = true;
        for_words(bit, bit + len as u32, |word, mask| {
            is_sole &= owned[word].fetch_or(mask, Ordering::Relaxed) & mask == 0;
        });
        ensure(is_sole, "a block with two owners")
    }

    /// The owners of a group's blocks, if it has a first zone.
    pub(crate) fn owners(&self, group: usize) -> Option<impl Iterator<Item = u64> + '_> {
        let owned = self.owned.get(group)?.as_ref()?;
        Some(owned.iter().map(|word| word.load(Ordering::Relaxed)))
    }

    fn of_block(&self, inode: InodeNo) -> Certain<&OfBlock> {
        let addr = inode.addr();
        let zone = self.places.get(addr.zone().0 as usize).ok_or(Doubt("an inode of no zone"))?;
        let blocks = zone.get_or_init(|| (0..ZONE_INDEXES).map(|_| OnceLock::new()).collect());
        let block = blocks.get(usize::from(addr.index())).ok_or(Doubt("an inode of no block"))?;
        Ok(block.get_or_init(|| {
            let sums = [const { AtomicU64::new(0) }; INODES_PER_BLOCK];
            Box::new(OfBlock { sums, untold: AtomicU32::new(0) })
        }))
    }

    /// An entry says that a name of the inode is at this place (the hash of it).
    pub(crate) fn name_is_at(&self, inode: InodeNo, place: u64) -> Certain {
        self.of_block(inode)?.sums[inode.slot()].fetch_add(place, Ordering::Relaxed);
        Ok(())
    }

    /// The inode says that its only name is at this place.
    pub(crate) fn expects_name_at(&self, inode: InodeNo, place: u64) -> Certain {
        self.of_block(inode)?.sums[inode.slot()].fetch_sub(place, Ordering::Relaxed);
        Ok(())
    }

    /// The inode does not say where its names are.
    pub(crate) fn does_not_tell(&self, inode: InodeNo) -> Certain {
        self.of_block(inode)?.untold.fetch_or(1 << inode.slot(), Ordering::Relaxed);
        Ok(())
    }

    /// Whether names are where the inodes say.
    pub(crate) fn names_are_in_place(&self) -> Certain {
        let zones = self.places.iter().filter_map(OnceLock::get);
        for block in zones.flat_map(|zone| zone.iter()).filter_map(OnceLock::get) {
            let untold = block.untold.load(Ordering::Relaxed);
            for (slot, sum) in block.sums.iter().enumerate() {
                let is_told = untold & (1 << slot) == 0;
                ensure(!is_told || sum.load(Ordering::Relaxed) == 0, "a name not where its inode says")?;
            }
        }
        Ok(())
    }
}
