//! Superblock, headers and the zone table: what they repeat of each other, and the numbers that are given
//! next.
//!
//! A zone's counts (free indexes, inodes, blocks) are made anew whenever its header is written, so most rules
//! only say that it must be.

use super::round::{number, numbers, Loss, Once, Round};
use crate::{CheckError, Finding, Problem};
use std::collections::{BTreeMap, BTreeSet};
use yore_format::layout::EXTRA_ZONES_PER_GROUP;
use yore_format::{
    BlockHeader, BlockKind, EventNo, Generation, GroupNo, Incarnation, Inode, MetaAddr, TableNo, TablePlace,
    WriteFeatures, ZoneHeader, ZoneNo, INODES_PER_BLOCK, NOT_INODES, TABLES_PER_GROUP,
};

/// Numbers of this size have no story but damage.
const NUMBER_MAX: u64 = 1 << 48;

impl Round<'_> {
    /// The repair writes the slot that did not count.
    pub(super) fn new_superblock(&mut self, _: &Finding) -> Result<bool, CheckError> {
        Ok(self.volume.write_superblock())
    }

    pub(super) fn clear_reserved(&mut self, _: &Finding) -> Result<bool, CheckError> {
        let sb = &mut self.volume.sb;
        sb.events_root = MetaAddr::NONE;
        if sb.orphan_root.is_none() {
            sb.orphan_level = 0;
        }
        Ok(self.volume.is_superblock_changed())
    }

    /// The volume is shortened before all rules, if that was asked for ([`super::shorten`]).
    pub(super) fn wait_for_shorten(&mut self, _: &Finding) -> Result<bool, CheckError> {
        Ok(false)
    }

    /// Zones are found before all other rules ([`super::found`]): if the volume is whole, nothing is left to
    /// do.
    pub(super) fn wait_for_zones(&mut self, _: &Finding) -> Result<bool, CheckError> {
        Ok(false)
    }

    /// Records a header as it is, unless it is older than what is recorded: then newer changes were lost.
    pub(super) fn record_header(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let Some(number) = finding.addr.map(MetaAddr::zone) else { return Ok(false) };
        let Some(zone) = self.volume.zones.get(&number) else { return Ok(false) };
        if zone.header.generation < self.volume.recorded_generation(number) {
            return Ok(false);
        }
        self.volume.touch(number);
        Ok(true)
    }

    pub(super) fn mend_header(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let Some(number) = finding.addr.map(MetaAddr::zone) else { return Ok(false) };
        let (uuid, blocks, geometry) =
            (self.volume.sb.uuid, self.volume.sb.volume_blocks, self.volume.geometry);
        let Some(zone) = self.volume.zones.get_mut(&number) else { return Ok(false) };
        let header = &mut zone.header;
        (header.uuid, header.volume_blocks) = (uuid, blocks);
        if number.is_primary() {
            header.group = GroupNo(number.0 / 2);
        } else if !number.is_root() {
            header.group = geometry.group_of(header.start);
        }
        self.volume.touch(number);
        Ok(true)
    }

    /// Makes the lists of further zones from the groups that the zones' headers name.
    pub(super) fn mend_zone_lists(&mut self, _: &Finding) -> Result<bool, CheckError> {
        if !self.is_first(Once::ZoneLists) {
            return Ok(true);
        }
        let mut further: BTreeMap<GroupNo, BTreeSet<u32>> = BTreeMap::new();
        for (number, zone) in &self.volume.zones {
            if !number.is_primary() && !number.is_root() {
                further.entry(zone.header.group).or_default().insert(number.0);
            }
        }
        let mut changed = false;
        for (number, zone) in &mut self.volume.zones {
            let is_first = number.is_primary() && !number.is_root();
            let own = further.get(&zone.header.group).filter(|_| is_first).cloned().unwrap_or_default();
            if own.len() <= EXTRA_ZONES_PER_GROUP && set_list(&mut zone.header, own) {
                zone.is_dirty = true;
                changed = true;
            }
        }
        Ok(changed)
    }

    pub(super) fn recount_zone(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let Some(number) = finding.addr.map(MetaAddr::zone) else { return Ok(false) };
        self.volume.touch(number);
        Ok(self.volume.zones.contains_key(&number))
    }

    /// Sets a header's count of free inodes to what its block holds.
    pub(super) fn recount_inodes(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let Some(addr) = finding.addr else { return Ok(false) };
        let (number, index) = (addr.zone(), usize::from(addr.index()));
        let exists = self.volume.place(addr).is_some();
        let block = self.volume.read(addr)?;
        let is_never = number.is_root() || (number.is_primary() && index == 0);
        let free = match block {
            _ if is_never || !exists => NOT_INODES,
            Some(block) if BlockHeader::of(&block).kind == BlockKind::Inodes as u8 => {
                (0..INODES_PER_BLOCK).filter(|slot| Inode::slot_is_free(&block, *slot)).count() as u8
            }
            Some(_) => NOT_INODES,
            None => return Ok(false),
        };
        let Some(zone) = self.volume.zones.get_mut(&number) else { return Ok(false) };
        let Some(count) = zone.header.inode_free.get_mut(index) else { return Ok(false) };
        let changed = *count != free;
        *count = free;
        zone.is_dirty |= changed;
        Ok(changed)
    }

    /// A block that cannot be used: bitmaps can be made anew, for they say nothing of their own; and so can
    /// checksum tables, for nobody has to know a checksum.
    pub(super) fn mend_block(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let Some(addr) = finding.addr else { return Ok(false) };
        if addr.zone().is_primary() && !addr.zone().is_root() && addr.index() == 0 {
            return self.new_bitmap(finding);
        }
        if let Some(table) = self.checksum_table(addr) {
            return Ok(self.new_checksum_table(addr, table));
        }
        if finding.problem == Problem::BlockWrong && self.is_taken_for_inodes(addr)? {
            return self.recount_inodes(finding);
        }
        let is_read = self.volume.read(addr)?.is_some();
        let is_inodes =
            self.seen.locate(addr).is_some_and(|(zone, _)| self.seen.is_inode_block(zone, addr.index()));
        if is_inodes && !is_read {
            return self.remake_inodes(addr);
        }
        if !is_read && self.volume.was_reached(addr) == Some(false) {
            // Nothing names it, and nobody can read it.
            self.volume.remove(addr);
            return Ok(true);
        }
        self.mend_content(finding)
    }

    /// Which checksum table the header of the group's first zone has at an address.
    fn checksum_table(&self, addr: MetaAddr) -> Option<TableNo> {
        let group = self.volume.zones.get(&addr.zone())?.header.group;
        let header = &self.volume.zones.get(&ZoneNo::primary(group))?.header;
        let is_there = |n: &u8| header.table(BlockKind::ChecksumTable, *n) == Some(addr);
        (0..TABLES_PER_GROUP as u8).find(is_there).map(|n| TableNo::new(group, n))
    }

    /// A table in which no checksum is known. The data itself stays.
    fn new_checksum_table(&mut self, addr: MetaAddr, table: TableNo) -> bool {
        let owner = (table.owner(), Incarnation(0));
        let block = self.volume.empty(BlockKind::ChecksumTable, 0, addr, owner, EventNo(0));
        let is_made = self.volume.put(addr, block);
        if is_made {
            let path = format!("table {} of group {}", table.number(), table.group().0);
            let what = "checksums of file data: what is read there is not verified until yore checksums --enable has \
                        computed them again";
            self.lost.push(Loss { path, what: what.into(), unnamed: None });
        }
        is_made
    }

    /// Whether a sound block that is no inode block is said to be one.
    fn is_taken_for_inodes(&self, addr: MetaAddr) -> Result<bool, CheckError> {
        let Some(zone) = self.volume.zones.get(&addr.zone()) else { return Ok(false) };
        let is_said =
            zone.header.inode_free.get(usize::from(addr.index())).is_some_and(|free| *free != NOT_INODES);
        let block = self.volume.read(addr)?;
        Ok(is_said && block.is_some_and(|block| BlockHeader::of(&block).kind != BlockKind::Inodes as u8))
    }

    pub(super) fn raise_generation(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let Some(found) = number(&finding.found).filter(|found| *found < NUMBER_MAX) else {
            return Ok(false);
        };
        self.volume.generation = Generation(self.volume.generation.0.max(found));
        Ok(self.volume.write_superblock())
    }

    pub(super) fn raise_number(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let Some(found) = number(&finding.found).filter(|found| *found < NUMBER_MAX) else {
            return Ok(false);
        };
        let next = &mut self.volume.sb.next_number;
        let is_raised = found > next.0;
        *next = EventNo(next.0.max(found));
        // Another finding may have raised it as far.
        Ok(is_raised || self.volume.is_superblock_changed())
    }

    pub(super) fn raise_incarnation(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let most = u64::from(u32::MAX / 2);
        let Some(found) = number(&finding.found).filter(|found| *found < most) else { return Ok(false) };
        let next = &mut self.volume.sb.next_incarnation;
        *next = (*next).max(found + 1);
        Ok(self.volume.is_superblock_changed())
    }

    /// Names a feature that something on the volume needs.
    pub(super) fn mend_feature(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let bits = numbers(&finding.expected).next();
        let needed = bits.and_then(WriteFeatures::from_bits).unwrap_or_default();
        self.volume.sb.features |= needed;
        Ok(!needed.is_empty())
    }

    pub(super) fn mend_total(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let Some(counted) = number(&finding.expected).or_else(|| number(&finding.found)) else {
            return Ok(false);
        };
        let sb = &mut self.volume.sb;
        match finding.problem {
            Problem::TotalFreeBlocks => sb.free_blocks = counted,
            Problem::TotalInodes => sb.inodes = counted,
            Problem::TotalMetadataBlocks => sb.metadata_blocks = counted,
            Problem::TotalZones => sb.zones = counted as u32,
            Problem::ZoneNumberLimit => {
                let numbers = self.volume.zones.keys().filter(|number| !number.is_root());
                sb.zone_number_limit = numbers.max().map_or(0, |last: &ZoneNo| last.0 + 1);
            }
            _ => return Ok(false),
        }
        Ok(self.volume.is_superblock_changed())
    }
}

/// Has a header list these further zones. Tables say by its place in the list in which zone they are, so a
/// zone keeps its place: of two places the one that a table names. Returns whether anything changed.
fn set_list(header: &mut ZoneHeader, mut own: BTreeSet<u32>) -> bool {
    let (before, tables) = (header.extras, header.tables);
    let zone_of = |place: u16| TablePlace::decode(place).map(|place| usize::from(place.zone));
    let is_named = |i: usize| tables.iter().any(|place| zone_of(*place) == Some(i + 1));
    let mut extras = [0; EXTRA_ZONES_PER_GROUP];
    for named in [true, false] {
        for (i, extra) in before.into_iter().enumerate() {
            if is_named(i) == named && own.remove(&extra) {
                extras[i] = extra;
            }
        }
    }
    // What was lost of the list may be what a table names there.
    let mut others = own.into_iter();
    for named in [true, false] {
        let empty = extras.iter_mut().enumerate().filter(|(i, extra)| **extra == 0 && is_named(*i) == named);
        empty.zip(&mut others).for_each(|((_, extra), number)| *extra = number);
    }
    // What a table names there is none of the group's.
    let is_lost = |place: u16| zone_of(place).is_some_and(|zone| zone > 0 && extras[zone - 1] == 0);
    header.tables.iter_mut().filter(|place| is_lost(**place)).for_each(|place| *place = 0);
    header.extras = extras;
    (before, tables) != (header.extras, header.tables)
}
