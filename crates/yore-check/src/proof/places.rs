//! Names: what entries say, against what inodes say.
//!
//! An entry says that an inode (with its incarnation and type) has a name at a place: in a directory, under a
//! cookie. An inode with one link says at which place that is. Both say so by a keyed hash of all of it. What
//! entries say is added up, and what the inodes say is subtracted. All sums must be zero. So each inode that
//! tells has exactly the name that it tells of, and what has no links, or does not exist, has none.
//!
//! An inode with several links does not say where its names are (it *does not tell*). Then the places mean
//! nothing, and the sum of hashes of its number, incarnation and type must be as many times that of its own
//! as it has links.
//!
//! Of a block that was read and whose inodes all tell, one sum is enough, for no number has to be left out of
//! it. A block has sums for each of its numbers ([`Single`]) only before it is read, and afterwards if some
//! of its inodes do not tell. Most inodes lie in the zones of the directories that name them, so at any time
//! few blocks have been named and not been read.
//!
//! Each zone has a lock of its own. A worker keeps it while what it says is about one zone ([`Teller`]).

use super::doubt::{ensure, Certain, Doubt};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use yore_format::layout::ZONE_INDEXES;
use yore_format::{InodeNo, MetaAddr, ZoneNo, INODES_PER_BLOCK};

/// The sums of each zone that exists; those come to be that have inodes, or that a name needs.
pub(crate) struct Places {
    /// The numbers of the zones, ascending, which may be any.
    numbers: Vec<ZoneNo>,
    /// Of the zone with the number at the same place.
    zones: Vec<Mutex<Option<Box<OfZone>>>>,
}

/// The sums of a zone.
struct OfZone {
    /// Bit i: the inodes at index i were read.
    read: [u64; ZONE_INDEXES.div_ceil(64) as usize],
    /// For each index that was read, and whose inodes all tell: the sum of all of its numbers.
    all: [u64; ZONE_INDEXES as usize],
    /// For all other indexes of which something was said.
    single: BTreeMap<u16, Box<Single>>,
}

/// The sums of the numbers of one block.
#[derive(Default)]
struct Single {
    /// Of names at their places.
    places: [u64; INODES_PER_BLOCK],
    /// Of names wherever they are.
    names: [u64; INODES_PER_BLOCK],
    /// Bit i: number i does not tell, so the sum of places means nothing, and otherwise that of names.
    untold: u16,
}

/// What the inodes of a block say.
#[derive(Default)]
pub(crate) struct Told {
    /// Of each the hash of its name at its place, if it tells, and otherwise that of its names wherever they
    /// are.
    sums: [u64; INODES_PER_BLOCK],
    /// Bit i: inode i does not tell.
    untold: u16,
}

const _: () = assert!(INODES_PER_BLOCK <= u16::BITS as usize);

impl Told {
    /// The inode says that its only name is at this place.
    pub(crate) fn tells(&mut self, inode: InodeNo, place: u64) {
        self.sums[inode.slot()] = place;
    }

    /// The inode has so many names, each with this hash, and does not say where they are.
    pub(crate) fn does_not_tell(&mut self, inode: InodeNo, name: u64, names: u32) {
        self.sums[inode.slot()] = name.wrapping_mul(names.into());
        self.untold |= 1 << inode.slot();
    }
}

impl OfZone {
    fn empty() -> Box<OfZone> {
        Box::new(OfZone {
            read: [0; ZONE_INDEXES.div_ceil(64) as usize],
            all: [0; ZONE_INDEXES as usize],
            single: BTreeMap::new(),
        })
    }

    fn is_read(&self, index: u16) -> bool {
        self.read[usize::from(index) / 64] >> (index % 64) & 1 != 0
    }

    /// An entry says that there is a name at this place.
    fn name_is_at(&mut self, index: u16, slot: usize, place: u64, name: impl FnOnce() -> u64) {
        if self.is_read(index) && (self.single.is_empty() || !self.single.contains_key(&index)) {
            let sum = &mut self.all[usize::from(index)];
            *sum = sum.wrapping_add(place);
            return;
        }
        let single = self.single.entry(index).or_default();
        single.places[slot] = single.places[slot].wrapping_add(place);
        single.names[slot] = single.names[slot].wrapping_add(name());
    }

    /// A block's inodes say which names they have.
    fn inodes_tell(&mut self, index: u16, told: &Told) -> Certain {
        ensure(!self.is_read(index), "inodes that were read twice")?;
        self.read[usize::from(index) / 64] |= 1 << (index % 64);
        let mut single = self.single.remove(&index).unwrap_or_default();
        for (slot, sum) in told.sums.iter().enumerate() {
            let own = match told.untold >> slot & 1 {
                0 => &mut single.places[slot],
                _ => &mut single.names[slot],
            };
            *own = own.wrapping_sub(*sum);
        }
        match told.untold {
            0 => {
                let all = single.places.iter().fold(0u64, |all, sum| all.wrapping_add(*sum));
                self.all[usize::from(index)] = all;
            }
            untold => {
                single.untold = untold;
                self.single.insert(index, single);
            }
        }
        Ok(())
    }

    fn are_right(&self) -> bool {
        let is_right = |single: &Single| {
            (0..INODES_PER_BLOCK).all(|slot| match single.untold >> slot & 1 {
                0 => single.places[slot] == 0,
                _ => single.names[slot] == 0,
            })
        };
        self.all.iter().all(|sum| *sum == 0) && self.single.values().all(|single| is_right(single))
    }
}

impl Places {
    /// For a volume with these zones.
    pub(crate) fn new(zones: impl Iterator<Item = ZoneNo>) -> Places {
        let mut numbers: Vec<ZoneNo> = zones.collect();
        numbers.sort_unstable();
        numbers.dedup();
        let zones = numbers.iter().map(|_| Mutex::new(None)).collect();
        Places { numbers, zones }
    }

    /// The sums of a zone, if that exists.
    fn zone(&self, number: ZoneNo) -> Option<&Mutex<Option<Box<OfZone>>>> {
        self.numbers.binary_search(&number).ok().map(|at| &self.zones[at])
    }

    /// Whether entries and inodes agree.
    pub(crate) fn are_right(&self) -> Certain {
        for zone in &self.zones {
            let zone = zone.lock().unwrap_or_else(PoisonError::into_inner);
            let is_right = zone.as_ref().is_none_or(|zone| zone.are_right());
            ensure(is_right, "names that no inode has, or the other way round")?;
        }
        Ok(())
    }
}

/// What one worker says.
pub(crate) struct Teller<'p> {
    places: &'p Places,
    /// The zone of which it spoke last.
    at: Option<(ZoneNo, MutexGuard<'p, Option<Box<OfZone>>>)>,
}

impl<'p> Teller<'p> {
    pub(crate) fn new(places: &'p Places) -> Teller<'p> {
        Teller { places, at: None }
    }

    fn zone(&mut self, addr: MetaAddr) -> Certain<&mut OfZone> {
        ensure(u32::from(addr.index()) < ZONE_INDEXES, "an inode of no block")?;
        let number = addr.zone();
        if self.at.as_ref().is_none_or(|(zone, _)| *zone != number) {
            // Whoever waits for one zone has no other.
            self.at = None;
            let zone = self.places.zone(number).ok_or(Doubt("an inode of no zone"))?;
            // A worker that panicked ends the check.
            self.at = Some((number, zone.lock().unwrap_or_else(PoisonError::into_inner)));
        }
        match &mut self.at {
            Some((_, zone)) => Ok(zone.get_or_insert_with(OfZone::empty)),
            None => Err(Doubt("an inode of no zone")),
        }
    }

    /// An entry says that the inode has a name: the hash of it at its place, and wherever it is.
    pub(crate) fn name_is_at(&mut self, inode: InodeNo, place: u64, name: impl FnOnce() -> u64) -> Certain {
        let addr = inode.addr();
        self.zone(addr)?.name_is_at(addr.index(), inode.slot(), place, name);
        Ok(())
    }

    /// The inodes of a block say which names they have.
    pub(crate) fn inodes_tell(&mut self, addr: MetaAddr, told: &Told) -> Certain {
        self.zone(addr)?.inodes_tell(addr.index(), told)
    }

    /// Says nothing for now, so that others can.
    pub(crate) fn pause(&mut self) {
        self.at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> MetaAddr {
        MetaAddr::new(ZoneNo(3), 100)
    }

    fn inode(slot: u8) -> InodeNo {
        InodeNo::new(block(), slot)
    }

    /// Says what entries and inodes say, in one order or the other, and returns whether that agrees.
    fn agrees(names: &[(u8, u64)], told: impl Fn(&mut Told), inodes_come_at: usize) -> bool {
        let places = Places::new([ZoneNo(3)].into_iter());
        let mut teller = Teller::new(&places);
        let mut all = Told::default();
        told(&mut all);
        for (i, (slot, place)) in names.iter().enumerate() {
            if i == inodes_come_at {
                teller.inodes_tell(block(), &all).unwrap();
            }
            teller.name_is_at(inode(*slot), *place, || 1000).unwrap();
        }
        if inodes_come_at >= names.len() {
            teller.inodes_tell(block(), &all).unwrap();
        }
        teller.pause();
        places.are_right().is_ok()
    }

    /// Promises that it does not matter whether inodes or their names are read first, that a place of an
    /// inode that does not tell means nothing, and that every other place counts.
    #[test]
    fn places_agree_in_any_order() {
        let names = [(0, 10), (1, 11), (15, 12), (1, 13)];
        for at in 0..=names.len() {
            let rest = |told: &mut Told| {
                told.tells(inode(0), 10);
                told.tells(inode(15), 12);
            };
            let untold = |told: &mut Told| {
                rest(told);
                told.does_not_tell(inode(1), 1000, 2);
            };
            assert!(agrees(&names, untold, at), "inodes at {at}");
            assert!(!agrees(&names, rest, at), "two names too many, inodes at {at}");
            let one = |told: &mut Told| {
                untold(told);
                told.tells(inode(0), 9);
            };
            assert!(!agrees(&names, one, at), "another place, inodes at {at}");
            let links = |told: &mut Told| {
                rest(told);
                told.does_not_tell(inode(1), 1000, 3);
            };
            assert!(!agrees(&names, links, at), "more links than names, inodes at {at}");
            let told = |told: &mut Told| {
                rest(told);
                told.tells(inode(1), 24);
            };
            assert!(agrees(&names, told, at), "sums, inodes at {at}");
        }
    }

    /// There were sums for all numbers up to the greatest one, so a small image with a zone of a great number
    /// took gigabytes. Promises that zones take memory by how many they are, whatever their numbers.
    #[test]
    fn a_great_number_takes_no_memory() {
        let zones = [u32::MAX >> 1, 3, 1 << 30, 3].map(ZoneNo);
        let places = Places::new(zones.into_iter());
        assert_eq!(places.zones.len(), 3);
        let mut teller = Teller::new(&places);
        for zone in zones {
            let named = InodeNo::new(MetaAddr::new(zone, 5), 1);
            assert!(teller.name_is_at(named, 1, || 1).is_ok(), "zone {zone}");
        }
    }

    /// Promises that a name of an inode that nobody has read is seen, and one of no zone and of no block.
    #[test]
    fn a_name_of_nothing_is_seen() {
        let places = Places::new([ZoneNo(3)].into_iter());
        let mut teller = Teller::new(&places);
        for other in [2, 4].map(ZoneNo) {
            assert!(teller.name_is_at(InodeNo::new(MetaAddr::new(other, 1), 0), 1, || 1).is_err());
        }
        assert!(teller
            .name_is_at(InodeNo::new(MetaAddr::new(ZoneNo(3), ZONE_INDEXES as u16), 0), 1, || 1)
            .is_err());
        teller.name_is_at(inode(2), 1, || 1).unwrap();
        teller.pause();
        assert!(places.are_right().is_err());
    }
}
