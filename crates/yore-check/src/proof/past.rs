//! What the workers of the fast pass must know of the past, and of shared blocks, before they take blocks
//! apart.
//!
//! An inode with versions shares nodes and blocks with them. So what it holds is compared with what they hold
//! ([`super::with_past`]), and not summed up: its nodes are passed over here, but for those with the entries
//! of a directory, which no version has. The past names of an entry's name and of its cookie must have ended
//! when it was born. A block that is counted as shared has several owners, so claims of it are kept, and
//! counted when all are in.
//!
//! Memory: 1 KiB for each zone, at most 1 MiB for the filter of names, and the tables, which the check has
//! anyhow.

use crate::deaths::Deaths;
use crate::key::COLLISIONS;
use crate::known::CountTables;
use crate::spill::Sorted;
use crate::versions::Versions;
use crate::CheckError;
use std::collections::BTreeMap;
use std::sync::Arc;
use yore_format::layout::ZONE_INDEXES;
use yore_format::{
    table_of, Block, CountTableRef, DirEntry, EventNo, GroupNo, InodeNo, MetaAddr, TableNo, ZoneNo,
    INODES_PER_BLOCK, TABLE_ENTRIES,
};

/// Words of the largest filter.
const FILTER_WORDS_MOST: usize = 1 << 17;

/// A bit for each inode number of a block.
pub(crate) type Slots = u16;
const _: () = assert!(INODES_PER_BLOCK <= Slots::BITS as usize);

/// Numbers of inodes, in the zones that exist.
struct Numbers {
    /// The numbers of the zones, ascending.
    zones: Vec<ZoneNo>,
    /// Of the zone with the number at the same place: a bit for each inode number, if one of them is set.
    bits: Vec<Option<Box<[Slots; ZONE_INDEXES as usize]>>>,
}

impl Numbers {
    fn none(zones: &[ZoneNo]) -> Numbers {
        Numbers { zones: zones.to_vec(), bits: zones.iter().map(|_| None).collect() }
    }

    /// The inodes whose numbers begin the keys of a list.
    fn of(zones: &[ZoneNo], list: &Sorted) -> Result<Numbers, CheckError> {
        let (mut numbers, mut cursor) = (Numbers::none(zones), list.all()?);
        while let Some((key, _)) = cursor.get() {
            if let Some(number) = key.first_chunk() {
                numbers.insert(InodeNo(u64::from_be_bytes(*number)));
            }
            cursor.advance()?;
        }
        Ok(numbers)
    }

    /// One of a zone that does not exist is left out.
    fn insert(&mut self, number: InodeNo) {
        let (addr, slot) = (number.addr(), number.slot());
        let Ok(zone) = self.zones.binary_search(&addr.zone()) else { return };
        let bits = self.bits[zone].get_or_insert_with(|| Box::new([0; ZONE_INDEXES as usize]));
        if let Some(slots) = bits.get_mut(usize::from(addr.index())) {
            *slots |= 1 << slot;
        }
    }

    /// Those of a block; `None` if its zone does not exist.
    fn in_block(&self, addr: MetaAddr) -> Option<Slots> {
        let zone = self.zones.binary_search(&addr.zone()).ok()?;
        let bits = self.bits[zone].as_ref().and_then(|bits| bits.get(usize::from(addr.index())));
        Some(bits.copied().unwrap_or_default())
    }
}

/// Which hashes of names in directories past names have: those, and now and then another one. Most entries
/// have no past name, and need not be searched for one.
struct Filter {
    words: Vec<u64>,
}

impl Filter {
    /// For about so many names: 16 bits for each, as far as that is not too much.
    fn of(names: usize) -> Filter {
        let words = (names / 4).next_power_of_two().min(FILTER_WORDS_MOST);
        Filter { words: vec![0; words] }
    }

    /// The bit of a hash in a directory.
    fn bit(&self, directory: InodeNo, base: u64) -> (usize, u64) {
        // Both are spread over all bits. Nobody gains by making some of them meet but a slower check.
        let mixed = (directory.0 ^ base.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bit = (mixed >> 32) as usize;
        (bit / 64 % self.words.len(), 1 << (bit % 64))
    }

    fn insert(&mut self, directory: InodeNo, base: u64) {
        let (word, bit) = self.bit(directory, base);
        self.words[word] |= bit;
    }

    fn may_have(&self, directory: InodeNo, base: u64) -> bool {
        let (word, bit) = self.bit(directory, base);
        self.words[word] & bit != 0
    }
}

/// What is known beforehand.
pub(crate) struct Past {
    with_versions: Numbers,
    /// By the hashes of past names.
    names: Filter,
    /// When past names ended last, of the old trees and of the annals.
    deaths: [Deaths; 2],
    /// The tables of shared blocks.
    tables: BTreeMap<TableNo, Arc<Block>>,
}

impl Past {
    /// Of a volume with these zones, whose numbers ascend.
    ///
    /// # Errors
    /// [`CheckError::TemporaryFile`].
    pub(crate) fn new(
        zones: &[ZoneNo],
        versions: &Versions,
        deaths: [Deaths; 2],
        tables: &CountTables,
    ) -> Result<Past, CheckError> {
        Ok(Past {
            with_versions: Numbers::of(zones, versions.all())?,
            names: filter(&deaths)?,
            deaths,
            tables: tables.iter().map(|(number, table)| (*number, table.block.clone())).collect(),
        })
    }

    /// Which inode numbers of a block have versions.
    pub(crate) fn with_versions(&self, addr: MetaAddr) -> Slots {
        self.with_versions.in_block(addr).unwrap_or_default()
    }

    /// Whether only versions, or an inode together with its versions, can have nodes of this owner. An owner
    /// in a zone that does not exist is no inode in use.
    pub(crate) fn has_nodes_of(&self, owner: InodeNo) -> bool {
        let slots = self.with_versions.in_block(owner.addr());
        slots.is_none_or(|slots| slots >> owner.slot() & 1 != 0)
    }

    /// When the last past name ended that an entry follows: one of the same name, or of the same cookie. Each
    /// cookie belongs to one hash of names ([`crate::Problem::EntryKey`]), so both have the entry's.
    pub(crate) fn ended_before(
        &self,
        directory: InodeNo,
        cookie: u64,
        entry: &DirEntry<'_>,
    ) -> Result<Option<EventNo>, CheckError> {
        if !self.names.may_have(directory, hash_of(cookie)) {
            return Ok(None);
        }
        let mut last = None;
        for deaths in &self.deaths {
            last = last.max(deaths.last(directory, entry.name, cookie)?);
        }
        Ok(last.map(|(death, _)| death))
    }

    /// Whether one of these bits of a group is counted as shared.
    pub(crate) fn is_shared(&self, group: GroupNo, bit: u32, len: u32) -> bool {
        let (mut at, end) = (bit, bit.saturating_add(len));
        while at < end && !self.tables.is_empty() {
            let (number, first) = table_of(group, at);
            let count = (end - at).min((TABLE_ENTRIES - first) as u32);
            if let Some(table) = self.tables.get(&number) {
                let table = CountTableRef::new(table);
                if (first..first + count as usize).any(|entry| table.get(entry).is_some()) {
                    return true;
                }
            }
            at += count;
        }
        false
    }
}

/// The hash of names to which a cookie belongs.
fn hash_of(cookie: u64) -> u64 {
    cookie & !(COLLISIONS - 1)
}

/// A filter of these past names.
fn filter(deaths: &[Deaths; 2]) -> Result<Filter, CheckError> {
    let mut filter = Filter::of(deaths.iter().map(Deaths::count).sum());
    for list in deaths {
        let mut cursor = list.by_cookie()?;
        while let Some((directory, cookie)) = cursor.next()? {
            filter.insert(directory, hash_of(cookie));
        }
    }
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that a filter never loses a name, whatever its size, and mostly knows what it has not.
    #[test]
    fn a_filter_loses_nothing() {
        let hash = |i: u64| (i + 1).wrapping_mul(0xd6e8_feb8_6659_fd93) & !(COLLISIONS - 1);
        for names in [0, 1, 1000, 100_000] {
            let mut filter = Filter::of(names);
            (0..names as u64).for_each(|i| filter.insert(InodeNo(i % 50 * 16), hash(i)));
            assert!((0..names as u64).all(|i| filter.may_have(InodeNo(i % 50 * 16), hash(i))), "{names}");
            let others = (0..1000).filter(|i| filter.may_have(InodeNo(i % 50 * 16), hash(1 << 40 | i)));
            assert!(others.count() < 200, "{names}");
        }
    }

    /// Promises that a number is found in its block and in no other, that one of a zone that does not exist
    /// takes no memory, and that the nodes of such a one belong to the past.
    #[test]
    fn numbers_are_those_of_zones_that_exist() {
        let zones = [2, 5, u32::MAX >> 1].map(ZoneNo);
        let mut numbers = Numbers::none(&zones);
        let number = |zone: u32, index: u16, slot: u8| InodeNo::new(MetaAddr::new(ZoneNo(zone), index), slot);
        for (zone, index, slot) in [(5, 7, 3), (5, 7, 15), (2, 509, 0), (4, 7, 3), (5, 511, 1)] {
            numbers.insert(number(zone, index, slot));
        }
        let in_block = |zone: u32, index: u16| numbers.in_block(MetaAddr::new(ZoneNo(zone), index));
        assert_eq!(in_block(5, 7), Some(1 << 3 | 1 << 15));
        assert_eq!(in_block(2, 509), Some(1));
        assert_eq!((in_block(5, 8), in_block(2, 7), in_block(4, 7)), (Some(0), Some(0), None));
        assert_eq!(numbers.bits.iter().filter(|bits| bits.is_some()).count(), 2);
    }
}
