//! Zones that table or headers no longer lead to, found by what their blocks say of themselves.
//!
//! A zone's header can be made again: every block in a slot says its address and its generation, so the
//! newest copy of each index, up to the generation that is recorded of the zone, is the one that counts. The
//! other header slot, if it is whole, says which indexes there were before, so that what had been freed by
//! then stays freed. If the checksum of what is made is the recorded one, it is the lost header itself.
//! Otherwise it is the most likely one, and this is said: a generation that was never complete may have left
//! a newer copy of a block, and what was freed last may be there again.
//!
//! A table block can be made again: first zones lie where their groups begin, further zones are listed by
//! them and lie in their group, and each has a header that says its number. File data may look like such a
//! header, so a zone that could be at several places is not found.
//!
//! # Volumes that were in use under an engine that orders changes
//!
//! There a header of a later round counts over the one that is recorded, and a block that was overwritten in
//! place counts whatever its generation is (docs/FORMAT.md). [`Settling`] has carried that out for the zones
//! that it could find. For those that are found here it is done here, by the same rules, before anything
//! believes them. Blocks may be as new as the superblock was before it was settled. Root zones are written as
//! under all engines.

use super::volume::{LostZone, Volume, Zone};
use crate::settle::Settling;
use crate::CheckError;
use std::collections::{BTreeMap, BTreeSet};
use yore_format::layout::{
    FIRST_SLOT, GROUP_BLOCKS, HEADER_SLOTS, ZONE_BLOCKS, ZONE_INDEXES, ZONE_TABLE_ENTRIES,
};
use yore_format::{
    verify_header, Block, BlockHeader, BlockKind, BlockNo, Generation, GroupNo, Inode, MetaAddr, RootZone,
    ZoneHeader, ZoneNo, ZoneTableEntry, INODES_PER_BLOCK, NOT_INODES,
};

/// Zones that came back, or whose entry is removed, each with what must be said of it.
type FoundZones = Vec<(ZoneNo, &'static str)>;

/// A header that was found or made.
struct FoundHeader {
    header: ZoneHeader,
    /// The header slot not to write to first.
    slot: u8,
    /// It is the recorded one, or the newest that there is.
    is_sure: bool,
}

/// What was found of a further zone in its group.
enum InGroup {
    Nothing,
    Header(Box<FoundHeader>),
    /// Several places that could be its own.
    Several,
}

impl<'a> Volume<'a> {
    /// What settles zones, if the volume was in use under an engine that orders changes.
    fn settling(&self) -> Option<Settling<'a, 'a>> {
        let in_use = self.disk.in_use()?;
        Some(Settling::new(self.disk, &self.sb, in_use.since, self.generation))
    }
}

impl Volume<'_> {
    /// Finds the zones that table and headers do not lead to. Returns for each that came back, or whose entry
    /// is removed, what was done; empty if nothing can be.
    pub(super) fn find_zones(&mut self) -> Result<FoundZones, CheckError> {
        let mut done = FoundZones::new();
        self.find_root_zones(&mut done)?;
        let lost = std::mem::take(&mut self.lost_zones);
        let (first, further): (Vec<_>, Vec<_>) = lost.into_iter().partition(|lost| lost.number.is_primary());
        for lost in first {
            self.find_first_zone(lost, &mut done)?;
        }
        let tables = std::mem::take(&mut self.lost_tables);
        for (root, index) in &tables {
            if !self.zones.contains_key(&ZoneNo::root(*root)) {
                self.lost_tables.push((*root, *index));
                continue;
            }
            let table = *root * ZONE_INDEXES + u32::from(*index);
            let first = table * ZONE_TABLE_ENTRIES as u32;
            self.forget_table(*root, *index);
            for number in (first..first + ZONE_TABLE_ENTRIES as u32).map(ZoneNo) {
                let group = GroupNo(number.0 / 2);
                if !number.is_primary()
                    || group.0 >= self.geometry.groups()
                    || self.zones.contains_key(&number)
                {
                    continue;
                }
                let start = self.geometry.primary_zone_start(group);
                let found = self.header_of(number, start, None)?;
                self.enter(number, found, &mut done)?;
            }
        }
        // Each by the group that lists it first.
        let mut listed: BTreeMap<ZoneNo, GroupNo> = BTreeMap::new();
        for zone in self.zones.values() {
            for extra in zone.header.extras {
                listed.entry(ZoneNo(extra)).or_insert(zone.header.group);
            }
        }
        let are_lists_known = !self.lost_zones.iter().any(|lost| lost.number.is_primary());
        for lost in further {
            let group = listed.get(&lost.number).copied();
            self.find_further_zone(lost, group, are_lists_known, &mut done)?;
        }
        if !tables.is_empty() {
            self.find_listed(&mut done)?;
        }
        Ok(done)
    }

    /// Enters a zone if its header was found. Returns whether it was.
    fn enter(
        &mut self,
        number: ZoneNo,
        found: Option<FoundHeader>,
        done: &mut FoundZones,
    ) -> Result<bool, CheckError> {
        let Some(FoundHeader { mut header, slot, is_sure }) = found else { return Ok(false) };
        if let Some(settling) = self.settling().filter(|_| !number.is_root()) {
            let mut counts = ZoneTableEntry::ABSENT;
            settling.blocks(&mut header, &mut counts)?;
        }
        self.add_zone(number, Zone::found(header, slot));
        done.push(match is_sure {
            true => (number, ""),
            false => {
                (number, "its header is the most likely one, and not surely the last: look at what is in it")
            }
        });
        Ok(true)
    }

    /// As [`Volume::enter`]; a zone that was not found stays lost.
    fn enter_lost(
        &mut self,
        lost: LostZone,
        found: Option<FoundHeader>,
        done: &mut FoundZones,
    ) -> Result<(), CheckError> {
        if !self.enter(lost.number, found, done)? {
            self.lost_zones.push(lost);
        }
        Ok(())
    }

    /// Removes the entry of a zone that cannot be.
    fn remove_entry(
        &mut self,
        number: ZoneNo,
        why: &'static str,
        done: &mut FoundZones,
    ) -> Result<(), CheckError> {
        self.set_entry(number, ZoneTableEntry::ABSENT)?;
        done.push((number, why));
        Ok(())
    }

    fn find_root_zones(&mut self, done: &mut FoundZones) -> Result<(), CheckError> {
        let is_zero_right = self.sb.root_zones.first().copied().flatten().is_some_and(|r| r.start.0 == 0);
        if !is_zero_right {
            let root = RootZone { start: BlockNo(0), generation: Generation(0), crc: 0, header_slot: 0 };
            match self.sb.root_zones.first_mut() {
                Some(first) => *first = Some(root),
                None => self.sb.root_zones.push(Some(root)),
            }
        }
        for n in 0..self.sb.root_zones.len() as u32 {
            let number = ZoneNo::root(n);
            let Some(root) = self.sb.root_zones[n as usize].filter(|_| !self.zones.contains_key(&number))
            else {
                continue;
            };
            let RootZone { start, generation, crc, .. } = root;
            let lost = LostZone { number, start, generation, crc };
            let is_place = n == 0 || self.geometry.is_zone_start(start);
            let found = if is_place { self.header_of(number, start, Some(&lost))? } else { None };
            let empty = || {
                let header =
                    ZoneHeader::empty(self.sb.uuid, self.sb.volume_blocks, start, number, GroupNo(0));
                FoundHeader { header, slot: 0, is_sure: false }
            };
            // The table can be made of the zones, so the first root zone is never lost.
            let found = found.or_else(|| (n == 0).then(empty));
            let is_sure = found.as_ref().is_some_and(|found| found.is_sure);
            if self.enter(number, found, done)? {
                self.settle_table(n)?;
                self.load_table(n)?;
                if !is_sure {
                    self.miss_tables(n);
                }
            }
        }
        Ok(())
    }

    /// Settles the zones that the table in a root zone names: before the root zone was found, nobody could.
    fn settle_table(&mut self, n: u32) -> Result<(), CheckError> {
        let Some(settling) = self.settling() else { return Ok(()) };
        for index in 0..ZONE_INDEXES as u16 {
            let addr = MetaAddr::new(ZoneNo::root(n), index);
            if let Some(mut table) = self.read_kind(addr, BlockKind::ZoneTable)? {
                settling.table(n, index, &mut table)?;
                self.put(addr, table);
            }
        }
        Ok(())
    }

    /// Has the zones looked for that blocks of the table would name which a root zone does not have.
    fn miss_tables(&mut self, n: u32) {
        for index in 0..ZONE_INDEXES {
            let first = ZoneNo((n * ZONE_INDEXES + index) * ZONE_TABLE_ENTRIES as u32);
            let exists = self.place(MetaAddr::new(ZoneNo::root(n), index as u16)).is_some();
            if !exists && first.0 / 2 < self.geometry.groups() {
                self.lost_tables.push((n, index as u16));
            }
        }
    }

    fn find_first_zone(&mut self, lost: LostZone, done: &mut FoundZones) -> Result<(), CheckError> {
        let group = GroupNo(lost.number.0 / 2);
        if group.0 >= self.geometry.groups() {
            return self.remove_entry(lost.number, "the table named a zone beyond the volume", done);
        }
        let start = self.geometry.primary_zone_start(group);
        let found = self.header_of(lost.number, start, Some(&lost))?;
        self.enter_lost(lost, found, done)
    }

    /// Finds a zone in the group that lists it.
    fn find_further_zone(
        &mut self,
        lost: LostZone,
        listed: Option<GroupNo>,
        are_lists_known: bool,
        done: &mut FoundZones,
    ) -> Result<(), CheckError> {
        let number = lost.number;
        let is_taken = self.starts.contains(&lost.start);
        let is_of_group = |here: GroupNo| match listed {
            Some(group) => here == group,
            None => self.zones.contains_key(&ZoneNo::primary(here)),
        };
        let is_place = self.geometry.is_zone_start(lost.start)
            && is_of_group(self.geometry.group_of(lost.start))
            && !is_taken;
        let mut found = match is_place {
            true => self.header_of(number, lost.start, Some(&lost))?,
            false => None,
        };
        if found.is_none() && listed.is_none() {
            // The list alone says too little: it may be in a header that was made, and older than the table.
            if are_lists_known {
                let why = "the table named a zone that no group lists, and nothing of it is there";
                return self.remove_entry(number, why, done);
            }
        }
        if let (None, Some(group)) = (&found, listed) {
            found = match self.header_in_group(number, group)? {
                InGroup::Header(header) => Some(*header),
                InGroup::Nothing | InGroup::Several => None,
            };
        }
        self.enter_lost(lost, found, done)
    }

    /// The further zones that are listed and not known.
    fn find_listed(&mut self, done: &mut FoundZones) -> Result<(), CheckError> {
        let listed: BTreeMap<ZoneNo, GroupNo> = self
            .zones
            .iter()
            .filter(|(number, _)| number.is_primary() && !number.is_root())
            .flat_map(|(_, zone)| {
                let group = zone.header.group;
                zone.header.extras.iter().filter(|n| **n & 1 != 0).map(move |n| (ZoneNo(*n), group))
            })
            .collect();
        let lost: BTreeSet<ZoneNo> = self.lost_zones.iter().map(|lost| lost.number).collect();
        for (number, group) in listed {
            if self.zones.contains_key(&number) || lost.contains(&number) {
                continue;
            }
            match self.header_in_group(number, group)? {
                InGroup::Header(header) => {
                    self.enter(number, Some(*header), done)?;
                }
                InGroup::Nothing => {}
                InGroup::Several => {
                    let (start, generation) = (BlockNo(0), Generation(0));
                    self.lost_zones.push(LostZone { number, start, generation, crc: 0 });
                }
            }
        }
        Ok(())
    }

    /// A further zone's header at the one place of a group where it can be.
    fn header_in_group(&self, number: ZoneNo, group: GroupNo) -> Result<InGroup, CheckError> {
        let begin = u64::from(group.0) * GROUP_BLOCKS;
        let mut place = None;
        for start in (begin..begin + GROUP_BLOCKS).step_by(ZONE_BLOCKS as usize).map(BlockNo) {
            if !self.geometry.is_zone_start(start) || self.starts.contains(&start) {
                continue;
            }
            let is_here = self.whole_header(number, start, 0)?.is_some()
                || self.whole_header(number, start, 1)?.is_some();
            if is_here && place.replace(start).is_some() {
                return Ok(InGroup::Several);
            }
        }
        let found = place.map_or(Ok(None), |start| self.header_of(number, start, None))?;
        Ok(found.map_or(InGroup::Nothing, |found| InGroup::Header(Box::new(found))))
    }

    /// A header of this zone in one of its header slots. Its place may be said wrong, but only if there is
    /// one place where the zone can be.
    fn whole_header(
        &self,
        number: ZoneNo,
        start: BlockNo,
        slot: u8,
    ) -> Result<Option<ZoneHeader>, CheckError> {
        let at = BlockNo(start.0 + HEADER_SLOTS[usize::from(slot)]);
        let Some(block) = self.bytes(at)? else { return Ok(None) };
        if verify_header(&block, ZoneHeader::addr(number), self.sb.volume_tag(), at).is_err() {
            return Ok(None);
        }
        let is_known_place = number == ZoneNo::root(0) || (number.is_primary() && !number.is_root());
        let is_it = |header: &ZoneHeader| {
            (header.start == start || is_known_place)
                && header.zone == number
                && header.generation <= self.sb.generation
        };
        let header = ZoneHeader::decode(&block).ok().filter(is_it);
        Ok(header.map(|header| ZoneHeader { start, ..header }))
    }

    /// The header of a zone at a place: one that is whole and the recorded one, or one made of its blocks.
    fn header_of(
        &self,
        number: ZoneNo,
        start: BlockNo,
        recorded: Option<&LostZone>,
    ) -> Result<Option<FoundHeader>, CheckError> {
        // What is newer than recorded was written by a generation that was never complete, or, under an
        // engine that orders changes, has a round.
        let recorded = recorded.filter(|recorded| recorded.generation.0 > 0);
        let in_use = self.disk.in_use().filter(|_| !number.is_root());
        let since = in_use.map_or(Generation(0), |in_use| in_use.since);
        let of_blocks = in_use.map(|in_use| in_use.generation);
        let last = recorded.map(|recorded| recorded.generation).or(of_blocks).unwrap_or(self.sb.generation);
        let is_later = |header: &ZoneHeader| {
            header.replaces((recorded.map_or(Generation(0), |recorded| recorded.generation), 0), since)
        };
        let mut whole = Vec::new();
        for slot in [0, 1] {
            let header = self.whole_header(number, start, slot)?;
            let may_count = |header: &ZoneHeader| header.generation <= last || is_later(header);
            whole.extend(header.filter(may_count).map(|header| (header, slot)));
        }
        whole.sort_by_key(|(header, _)| (header.generation, header.round));
        let is_alone = whole.len() < 2;
        let before = whole.pop();
        if let Some((header, slot)) = &before {
            let is_recorded = recorded.is_some_and(|recorded| recorded.generation == header.generation);
            if recorded.is_none() || is_recorded || is_later(header) {
                let is_sure = is_recorded || is_later(header) || is_alone;
                return Ok(Some(FoundHeader { header: header.clone(), slot: *slot, is_sure }));
            }
        }
        let older = before.as_ref().map(|(header, _)| header);
        let last = of_blocks.unwrap_or(last);
        let Some(header) = self.header_of_blocks(number, start, older, last)? else { return Ok(None) };
        let is_sure = recorded.is_some_and(|recorded| header.encode(recorded.generation).1 == recorded.crc);
        let slot = before.map_or(0, |(_, slot)| slot);
        Ok(Some(FoundHeader { header, slot, is_sure }))
    }

    /// A header made of the blocks in a zone's slots, and of an older header. `None` if there is nothing.
    fn header_of_blocks(
        &self,
        number: ZoneNo,
        start: BlockNo,
        before: Option<&ZoneHeader>,
        last: Generation,
    ) -> Result<Option<ZoneHeader>, CheckError> {
        let mut newest: BTreeMap<u16, (Generation, u16, Box<Block>)> = BTreeMap::new();
        for slot in FIRST_SLOT..ZONE_BLOCKS {
            let at = BlockNo(start.0 + slot);
            let Some(block) = self.bytes(at)? else { continue };
            let addr = MetaAddr(BlockHeader::of(&block).addr.get());
            let generation = Generation(BlockHeader::of(&block).generation.get());
            let is_it = addr.zone() == number
                && u32::from(addr.index()) < ZONE_INDEXES
                && generation <= last
                && verify_header(&block, addr, self.sb.volume_tag(), at).is_ok();
            let named = before.and_then(|before| before.map.get(usize::from(addr.index())));
            let is_named = named.is_some_and(|named| u64::from(*named) == slot);
            let is_newer = newest
                .get(&addr.index())
                .is_none_or(|(than, ..)| generation > *than || (generation == *than && is_named));
            if is_it && is_newer {
                newest.insert(addr.index(), (generation, slot as u16, block));
            }
        }
        if newest.is_empty() && before.is_none() {
            return Ok(None);
        }
        let group = if number.is_primary() && !number.is_root() {
            GroupNo(number.0 / 2)
        } else {
            self.geometry.group_of(start)
        };
        let mut header = match before {
            Some(before) => before.clone(),
            None => ZoneHeader::empty(self.sb.uuid, self.sb.volume_blocks, start, number, group),
        };
        header.round = 0;
        // What the older header says holds until there is a newer copy: where an index is, and that it is
        // free. Rounds of one generation follow each other, so behind one of them there may be more of it.
        let is_of_then = |generation: Generation| {
            before.is_some_and(|before| {
                generation < before.generation || (generation == before.generation && before.round == 0)
            })
        };
        for (index, (generation, slot, block)) in newest {
            let at = usize::from(index);
            if is_of_then(generation) {
                continue;
            }
            header.exists[at / 64] |= 1 << (at % 64);
            header.map[at] = slot;
            header.checks[at] = BlockHeader::of(&block).crc.get();
            header.inode_free[at] = match BlockHeader::of(&block).kind == BlockKind::Inodes as u8 {
                true => (0..INODES_PER_BLOCK).filter(|slot| Inode::slot_is_free(&block, *slot)).count() as u8,
                false => NOT_INODES,
            };
        }
        // A slot that now has a newer block is no longer that of an index that the older header put there.
        let mut taken: BTreeMap<u16, usize> = BTreeMap::new();
        for at in 0..ZONE_INDEXES as usize {
            let slot = header.map[at];
            if slot == 0 {
                continue;
            }
            if let Some(other) = taken.insert(slot, at) {
                let is_old = |at: usize| before.is_some_and(|before| before.map[at] == slot);
                let gone = if is_old(other) { other } else { at };
                header.exists[gone / 64] &= !(1 << (gone % 64));
                (header.map[gone], header.checks[gone], header.inode_free[gone]) = (0, 0, NOT_INODES);
                taken.insert(slot, if gone == at { other } else { at });
            }
        }
        Ok(Some(header))
    }
}
