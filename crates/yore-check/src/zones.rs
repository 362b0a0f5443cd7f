//! Superblock → root zones → zone table → zone headers: everything that says where metadata is.
//!
//! Each step is believed only as far as the step before it vouches: a header must be the one whose generation
//! and checksum its table entry (or the superblock) records, at the place recorded there, for the zone that
//! it is read for; a table block must be the version whose checksum the root zone's header records.

use crate::checker::{Checker, GROUP_WORDS};
use crate::known::{CurrentCopy, Zone};
use crate::{CheckError, Finding, Problem};
use yore_format::layout::{
    GROUP_BLOCKS, HEADER_SLOTS, VOLUME_BLOCKS_MAX, VOLUME_BLOCKS_MIN, ZONE_BLOCKS, ZONE_INDEXES,
    ZONE_TABLE_ENTRIES,
};
use yore_format::{
    BlockHeader, BlockKind, BlockNo, Expect, Generation, GroupNo, InodeNo, MetaAddr, WriteFeatures,
    ZoneHeader, ZoneNo, ZoneTableEntry, ZoneTableRef, NOT_INODES,
};
use yore_meta::{LogPlace, MetaError};

/// What the superblock or the table records of a zone's current header.
struct Recorded {
    start: BlockNo,
    generation: Generation,
    crc: u32,
    slot: u8,
}

impl Checker<'_> {
    /// Loads every zone's header.
    pub(crate) fn load_zones(&mut self) -> Result<(), CheckError> {
        if self.sb.root_zones.first().is_none_or(|r| r.is_none_or(|r| r.start != BlockNo(0))) {
            let found = match self.sb.root_zones.first() {
                Some(Some(root)) => format!("block {}", root.start),
                _ => "none".to_string(),
            };
            self.add_incomplete(Finding::new(Problem::RootZoneZero, "block 0", found));
        }
        for n in 0..self.sb.root_zones.len() {
            let Some(root) = self.sb.root_zones[n] else { continue };
            self.counts.zones += 1;
            let (start, generation) = (root.start, root.generation);
            let recorded = Recorded { start, generation, crc: root.crc, slot: root.header_slot };
            if let Some(header) = self.load_header(ZoneNo::root(n as u32), &recorded)? {
                self.load_root(n as u32, &header)?;
            }
        }
        self.zones_lost = self.incomplete;
        self.begin_owners();
        self.counts.groups_used = self.owned.iter().flatten().count() as u64;
        self.check_extras();
        Ok(())
    }

    /// Says of the data blocks of each group with a first zone that they have no owner.
    pub(crate) fn begin_owners(&mut self) {
        for zone in &self.zones {
            if zone.number.is_primary() {
                // The group of a first zone was compared with its number, which is within the volume.
                self.owned[zone.number.0 as usize / 2] = Some(Box::new([0; GROUP_WORDS]));
            }
        }
    }

    /// Reads the table blocks in root zone `n` and the headers of the zones that they name.
    fn load_root(&mut self, n: u32, header: &ZoneHeader) -> Result<(), CheckError> {
        let root = ZoneNo::root(n);
        if header.extras.iter().any(|e| *e != 0) {
            let finding = Finding::new(Problem::ZoneExtras, "no list in a root zone", "further zones");
            self.add(finding.at(ZoneHeader::addr(root)));
        }
        for index in 0..ZONE_INDEXES as u16 {
            let addr = MetaAddr::new(root, index);
            if header.inode_free[usize::from(index)] != NOT_INODES {
                let found = u32::from(header.inode_free[usize::from(index)]);
                let expected = "no inodes in a root zone";
                self.add(Finding::new(Problem::InodeFree, expected, found).at(addr));
            }
            let Some(copy) = CurrentCopy::of(header, index) else { continue };
            let Some(block) = self.read_at(addr, copy, Problem::ZoneTableDamaged, InodeNo::NONE)? else {
                continue;
            };
            if let Err(c) = Expect::volume(BlockKind::ZoneTable).check(&block) {
                self.add_incomplete(Finding::corruption(
                    Problem::ZoneTableDamaged,
                    &c.at(addr).on(copy.block),
                ));
                continue;
            }
            let table = ZoneTableRef::new(&block);
            let first = (n * ZONE_INDEXES + u32::from(index)) * ZONE_TABLE_ENTRIES as u32;
            for i in 0..ZONE_TABLE_ENTRIES {
                let entry = table.entry(i);
                if entry.is_present() {
                    self.load_zone(ZoneNo(first + i as u32), entry)?;
                }
            }
        }
        Ok(())
    }

    /// Loads the zone that a table entry names.
    fn load_zone(&mut self, number: ZoneNo, entry: ZoneTableEntry) -> Result<(), CheckError> {
        self.counts.zones += 1;
        let addr = ZoneHeader::addr(number);
        if number.0 >= self.sb.zone_number_limit {
            let expected = format!("zone numbers below {}", self.sb.zone_number_limit);
            self.add(Finding::new(Problem::ZoneNumberLimit, expected, number.0).at(addr));
        }
        let start = BlockNo(entry.start.get());
        if number.is_primary() {
            let group = GroupNo(number.0 / 2);
            if group.0 >= self.geometry.groups() {
                let expected = format!("first zones of {} groups", self.geometry.groups());
                let finding = Finding::new(Problem::ZonePlace, expected, format!("one of group {group}"));
                self.add_incomplete(finding.at(addr));
                return Ok(());
            }
            let expected = self.geometry.primary_zone_start(group);
            if start != expected {
                self.add_incomplete(Finding::new(Problem::ZonePlace, expected.0, start.0).at(addr).on(start));
                return Ok(());
            }
        }
        let (generation, crc) = (Generation(entry.generation.get()), entry.crc.get());
        let recorded = Recorded { start, generation, crc, slot: entry.header_slot };
        let Some(header) = self.load_header(number, &recorded)? else { return Ok(()) };
        let zone = Zone { number, entry, header, reached: [0; 8], listed: 0 };
        self.check_zone(&zone);
        self.counts.metadata_blocks += zone.indexes().len() as u64;
        self.zones.push(zone);
        Ok(())
    }

    /// Reads and verifies the current header of a zone; `None`, reported, if it cannot be used.
    fn load_header(&mut self, number: ZoneNo, recorded: &Recorded) -> Result<Option<ZoneHeader>, CheckError> {
        let addr = ZoneHeader::addr(number);
        let start = recorded.start;
        let is_start = number == ZoneNo::root(0) && start.0 == 0;
        // A zone never reaches into the next group, since places are aligned; it may lie outside the volume.
        if !is_start && !self.geometry.is_zone_start(start) {
            let expected = "a multiple of 1024 within the volume";
            self.add_incomplete(Finding::new(Problem::ZonePlace, expected, start.0).at(addr).on(start));
            return Ok(None);
        }
        let block_no = BlockNo(start.0 + HEADER_SLOTS[usize::from(recorded.slot & 1)]);
        let here = CurrentCopy { block: block_no, check: None };
        let Some(block) = self.read_at(addr, here, Problem::ZoneHeaderDamaged, InodeNo::NONE)? else {
            return Ok(None);
        };
        let decoded =
            Expect::volume(BlockKind::ZoneHeader).check(&block).and_then(|()| ZoneHeader::decode(&block));
        let header = match decoded {
            Ok(header) => header,
            Err(c) => {
                let c = c.at(addr).on(block_no);
                self.add_incomplete(Finding::corruption(Problem::ZoneHeaderDamaged, &c));
                return Ok(None);
            }
        };
        let crc = BlockHeader::of(&block).crc.get();
        if crc != recorded.crc || header.generation != recorded.generation {
            let expected = format!("generation {}, checksum {:#010x}", recorded.generation, recorded.crc);
            let found = format!("generation {}, checksum {crc:#010x}", header.generation);
            self.add(Finding::new(Problem::ZoneHeaderStale, expected, found).at(addr).on(block_no));
        }
        if !self.check_identity(number, start, &header, block_no) {
            // Its map leads from a place that is not its own.
            self.incomplete = true;
            return Ok(None);
        }
        Ok(Some(header))
    }

    /// Compares what a header repeats of the volume and of itself. False if it is a header of another place
    /// or zone.
    fn check_identity(
        &mut self,
        number: ZoneNo,
        start: BlockNo,
        header: &ZoneHeader,
        block: BlockNo,
    ) -> bool {
        let addr = ZoneHeader::addr(number);
        let mut wrong = |field: &str, expected: String, found: String| {
            let (expected, found) = (format!("{field} {expected}"), found);
            self.findings.add(Finding::new(Problem::ZoneHeaderField, expected, found).at(addr).on(block));
        };
        if header.uuid != self.sb.uuid {
            wrong("volume", format!("{:02x?}", self.sb.uuid), format!("{:02x?}", header.uuid));
        }
        let resized = self.sb.features.contains(WriteFeatures::RESIZED);
        let lengths = VOLUME_BLOCKS_MIN..=VOLUME_BLOCKS_MAX;
        if header.volume_blocks != self.sb.volume_blocks
            && !(resized && lengths.contains(&header.volume_blocks))
        {
            wrong("volume size", self.sb.volume_blocks.to_string(), header.volume_blocks.to_string());
        }
        if header.start != start {
            wrong("place", start.to_string(), header.start.to_string());
        }
        if header.zone != number {
            wrong("zone number", number.to_string(), header.zone.to_string());
        }
        let (groups, here) = (self.geometry.groups(), self.geometry.group_of(start));
        if number.is_primary() {
            if header.group.0 != number.0 / 2 {
                wrong("group", (number.0 / 2).to_string(), header.group.to_string());
            }
        } else if header.group.0 >= groups {
            wrong("group", format!("below {groups}"), header.group.to_string());
        } else if !number.is_root() && header.group != here {
            wrong("group", format!("{here}, where it lies,"), header.group.to_string());
        }
        header.start == start && header.zone == number
    }

    /// What a zone's header and table entry say without reading its blocks.
    fn check_zone(&mut self, zone: &Zone) {
        let addr = ZoneHeader::addr(zone.number);
        let header = &zone.header;
        let mut free_inodes = 0u64;
        for index in 0..ZONE_INDEXES as u16 {
            let free = header.inode_free[usize::from(index)];
            let bitmap = index == 0 && zone.number.is_primary();
            if free != NOT_INODES && (bitmap || !header.has(index)) {
                let finding = Finding::new(Problem::InodeFree, "no inodes there", u32::from(free));
                self.add(finding.at(MetaAddr::new(zone.number, index)));
            } else if free != NOT_INODES {
                free_inodes += u64::from(free);
            }
        }
        let free_indexes = u64::from(ZONE_INDEXES) - zone.indexes().len() as u64;
        for (what, expected, found) in [
            ("free indexes", free_indexes, zone.entry.free_indexes.get()),
            ("free inodes", free_inodes, zone.entry.free_inodes.get()),
        ] {
            if expected != u64::from(found) {
                let found = format!("{found} {what}");
                self.add(Finding::new(Problem::ZoneCounts, expected, found).at(addr));
            }
        }
        if !zone.number.is_primary() {
            let found = zone.entry.free_blocks.get();
            if found != 0 {
                let found = format!("{found} free blocks in a further zone");
                self.add(Finding::new(Problem::ZoneCounts, 0u64, found).at(addr));
            }
            if header.extras.iter().any(|e| *e != 0) {
                let finding = Finding::new(Problem::ZoneExtras, "no list in a further zone", "further zones");
                self.add(finding.at(addr));
            }
        }
    }

    /// Further zones and the lists of their groups' first zones name each other.
    fn check_extras(&mut self) {
        for i in 0..self.zones.len() {
            let (number, group) = (self.zones[i].number, self.zones[i].header.group);
            if !number.is_primary() {
                continue;
            }
            for extra in self.zones[i].header.extras.into_iter().filter(|e| *e != 0) {
                let target = self.zones.binary_search_by_key(&ZoneNo(extra), |z| z.number);
                let found = match target {
                    _ if extra & 1 == 0 => format!("zone {extra}, which is no further zone"),
                    Ok(t) if self.zones[t].header.group == group => {
                        self.zones[t].listed += 1;
                        continue;
                    }
                    Ok(t) => format!("zone {extra} of group {}", self.zones[t].header.group),
                    Err(_) if self.incomplete => continue,
                    Err(_) => format!("zone {extra}, which does not exist"),
                };
                let expected = format!("further zones of group {group}");
                self.add(Finding::new(Problem::ZoneExtras, expected, found).at(ZoneHeader::addr(number)));
            }
        }
        for i in 0..self.zones.len() {
            let (number, listed) = (self.zones[i].number, self.zones[i].listed);
            if !number.is_primary() && listed != 1 && !(self.incomplete && listed == 0) {
                let expected = format!("listed once by group {}", self.zones[i].header.group);
                let found = format!("listed {listed} times");
                self.add(Finding::new(Problem::ZoneListing, expected, found).at(ZoneHeader::addr(number)));
            }
        }
    }

    /// Reads the log through, as far as replay would, and keeps its records.
    pub(crate) fn log(&mut self, place: &LogPlace) -> Result<(), CheckError> {
        let is_read = match self.sb.external_log {
            // Engines that have no use for a log leave it alone.
            Some(_) => matches!(self.sb.engine, yore_format::Engine::Snapshot | yore_format::Engine::Journal),
            // Reported where its blocks are given an owner.
            None => self.log_is_inside(),
        };
        if !is_read {
            return Ok(());
        }
        match yore_meta::log_records(self.device, &self.sb, place) {
            Ok(records) => {
                self.counts.log_records = records.len() as u64;
                self.records = records;
            }
            Err(MetaError::Device(e)) => return Err(e.into()),
            Err(MetaError::Refused(why)) => return Err(CheckError::Log(why)),
            Err(MetaError::Corruption(c)) => {
                self.log_is_damaged = true;
                self.add(Finding::corruption(Problem::LogDamaged, &c));
            }
            Err(e) => {
                self.log_is_damaged = true;
                let finding = Finding::new(Problem::LogDamaged, "a log that replay can read", e.to_string());
                self.add(finding.on(self.sb.log_start));
            }
        }
        Ok(())
    }

    /// Gives owners to the blocks in data areas that are zones or log.
    pub(crate) fn claim_fixed(&mut self) {
        if self.owned.first().is_some_and(Option::is_some) {
            let start = self.geometry.primary_zone_start(GroupNo(0));
            self.claim(start, ZONE_BLOCKS, "the first zone of group 0", None, None);
        }
        for n in 1..self.sb.root_zones.len() {
            if let Some(root) = self.sb.root_zones[n] {
                let addr = ZoneHeader::addr(ZoneNo::root(n as u32));
                self.claim(root.start, ZONE_BLOCKS, "a root zone", Some(addr), None);
            }
        }
        for i in 0..self.zones.len() {
            let (number, start) = (self.zones[i].number, self.zones[i].header.start);
            if !number.is_primary() {
                let addr = ZoneHeader::addr(number);
                self.claim(start, ZONE_BLOCKS, "a further zone", Some(addr), None);
            }
        }
        self.claim_log();
    }

    pub(crate) fn log_is_inside(&self) -> bool {
        let (start, len) = (self.sb.log_start.0, self.sb.log_blocks);
        len > 0 && start.checked_add(len).is_some_and(|end| end <= self.sb.volume_blocks)
    }

    /// The log's blocks, which may span groups.
    fn claim_log(&mut self) {
        let (start, len) = (self.sb.log_start.0, self.sb.log_blocks);
        if start == 0 {
            // None, or on a device of its own.
            return;
        }
        if !self.log_is_inside() {
            let found = format!("{len} blocks from {start}");
            self.add(Finding::new(Problem::LogRange, "none, or blocks within the volume", found));
            return;
        }
        let mut at = start;
        while at < start + len {
            let end = ((at / GROUP_BLOCKS + 1) * GROUP_BLOCKS).min(start + len);
            self.claim(BlockNo(at), end - at, "the log", None, None);
            at = end;
        }
    }
}
