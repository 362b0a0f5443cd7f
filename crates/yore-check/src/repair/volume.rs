//! A volume that a repair changes: its blocks by their addresses, and the headers, the table and the
//! superblock that say where they are.
//!
//! # Where things are written
//!
//! A changed block goes to a slot of its zone that no header named before the repair, and the header to the
//! header slot that is not in use, as a generation does it. So the state before stays whole until the new
//! superblock is written, as far as it was whole. A slot that the repair itself wrote is written again.
//!
//! All rounds of a repair write one generation. Counts that follow from a zone's blocks (free indexes, free
//! inodes, free blocks) are made anew whenever its header is written.

use crate::overlay::Overlay;
use crate::superblock::{read_superblock, Found};
use crate::CheckError;
use std::collections::{BTreeMap, BTreeSet};
use yore_device::Device as _;
use yore_format::layout::{
    Geometry, HEADER_SLOTS, SUPERBLOCKS, ZONE_BLOCKS, ZONE_INDEXES, ZONE_TABLE_ENTRIES,
};
use yore_format::{
    seal, verify_header, verify_version, BitmapRef, Block, BlockHeader, BlockKind, BlockNo, EventNo,
    Generation, Incarnation, Inode, InodeNo, MetaAddr, Superblock, ZoneHeader, ZoneNo, ZoneTableEntry,
    ZoneTableMut, ZoneTableRef, BITS_PER_GROUP, BLOCK_SIZE, INODES_PER_BLOCK, NOT_INODES, ZERO_BLOCK,
};

/// A zone whose header can be used.
pub(super) struct Zone {
    pub(super) header: ZoneHeader,
    /// Not of root zones.
    pub(super) entry: ZoneTableEntry,
    /// The header slot in use.
    slot: u8,
    pub(super) is_dirty: bool,
}

/// What the table or the superblock says of a zone whose header cannot be used.
#[derive(Clone, Copy, Debug)]
pub(super) struct LostZone {
    pub(super) number: ZoneNo,
    pub(super) start: BlockNo,
    pub(super) generation: Generation,
    pub(super) crc: u32,
}

impl Zone {
    /// A zone whose header was found, and is written anew.
    pub(super) fn found(header: ZoneHeader, slot: u8) -> Zone {
        Zone { header, entry: ZoneTableEntry::ABSENT, slot, is_dirty: true }
    }
}

/// The addresses at which new blocks can be.
struct FreeAddresses {
    /// All zones that have one, and perhaps some that have none any more.
    zones: BTreeSet<ZoneNo>,
    count: usize,
}

impl FreeAddresses {
    fn of(zones: &BTreeMap<ZoneNo, Zone>) -> FreeAddresses {
        let mut free = FreeAddresses { zones: BTreeSet::new(), count: 0 };
        for (number, zone) in zones.iter().filter(|(number, _)| !number.is_root()) {
            let used: u32 = zone.header.exists.iter().map(|word| word.count_ones()).sum();
            // New blocks do not get the first index.
            let taken = used + u32::from(!zone.header.has(0));
            free.count += ZONE_INDEXES.saturating_sub(taken) as usize;
            free.zones.insert(*number);
        }
        free
    }
}

/// For each tree, by kind, owner and incarnation: its leaves, with their generations.
pub(super) type Leaves = BTreeMap<(u8, u64, u32), Vec<(u64, MetaAddr)>>;

/// A volume to change.
pub(crate) struct Volume<'a> {
    pub(super) disk: &'a Overlay<'a>,
    pub(super) sb: Superblock,
    before: Superblock,
    slot: u32,
    /// A superblock is written in any case.
    is_forced: bool,
    /// The generation that is written.
    pub(super) generation: Generation,
    pub(super) geometry: Geometry,
    /// Zones come by [`Volume::add_zone`].
    pub(super) zones: BTreeMap<ZoneNo, Zone>,
    /// Where they begin.
    pub(super) starts: BTreeSet<BlockNo>,
    /// Once it was asked for.
    free: Option<FreeAddresses>,
    /// The zones whose headers cannot be used.
    pub(super) lost_zones: Vec<LostZone>,
    /// Blocks of the zone table that cannot be used: root zone and index.
    pub(super) lost_tables: Vec<(u32, u16)>,
    /// The leaves of all trees, once they were looked for.
    pub(super) leaves: Option<Leaves>,
    /// Which indexes of each zone the last check came to.
    pub(super) reached: BTreeMap<ZoneNo, [u64; 8]>,
}

impl<'a> Volume<'a> {
    /// Whether all zones are known. Without that nothing is changed: a table or a header that is written must
    /// not forget what it could not read.
    pub(super) fn is_whole(&self) -> bool {
        let mut roots = (0..).zip(&self.sb.root_zones).filter(|(_, root)| root.is_some());
        roots.all(|(n, _)| self.zones.contains_key(&ZoneNo::root(n)))
            && self.lost_zones.is_empty()
            && self.lost_tables.is_empty()
            && self.zones.contains_key(&ZoneNo::root(0))
    }

    /// Reads superblock, zone table and headers, as far as they can be used.
    pub(super) fn open(disk: &'a Overlay<'a>) -> Result<Volume<'a>, CheckError> {
        let Found { superblock, slot, newest, .. } = read_superblock(disk)?;
        let is_ours = disk.is_changed(SUPERBLOCKS[slot as usize]);
        if newest.0 > u64::MAX / 2 {
            return Err(CheckError::GenerationsUsedUp { device: disk.describe(), generation: newest.0 });
        }
        let generation = if is_ours { superblock.generation } else { Generation(newest.0 + 1) };
        let mut volume = Volume {
            disk,
            before: superblock.clone(),
            geometry: superblock.geometry(),
            sb: superblock,
            slot: if is_ours { slot } else { 1 - slot },
            generation,
            is_forced: false,
            zones: BTreeMap::new(),
            starts: BTreeSet::new(),
            free: None,
            lost_zones: Vec::new(),
            lost_tables: Vec::new(),
            leaves: None,
            reached: BTreeMap::new(),
        };
        for n in 0..volume.sb.root_zones.len() as u32 {
            let Some(root) = volume.sb.root_zones[n as usize] else { continue };
            volume.load(ZoneNo::root(n), root.start, root.header_slot, ZoneTableEntry::ABSENT)?;
            volume.load_table(n)?;
        }
        Ok(volume)
    }

    pub(super) fn load_table(&mut self, n: u32) -> Result<(), CheckError> {
        let root = ZoneNo::root(n);
        for index in 0..ZONE_INDEXES as u16 {
            let addr = MetaAddr::new(root, index);
            if self.place(addr).is_none() {
                continue;
            }
            let Some(block) = self.read_kind(addr, BlockKind::ZoneTable)? else {
                self.lost_tables.push((n, index));
                continue;
            };
            let first = (n * ZONE_INDEXES + u32::from(index)) * ZONE_TABLE_ENTRIES as u32;
            for i in 0..ZONE_TABLE_ENTRIES {
                let entry = ZoneTableRef::new(&block).entry(i);
                if entry.is_present() {
                    self.load(
                        ZoneNo(first + i as u32),
                        BlockNo(entry.start.get()),
                        entry.header_slot,
                        entry,
                    )?;
                }
            }
        }
        Ok(())
    }

    fn load(
        &mut self,
        number: ZoneNo,
        start: BlockNo,
        slot: u8,
        entry: ZoneTableEntry,
    ) -> Result<(), CheckError> {
        match self.header_at(number, start, slot)? {
            Some(header) => {
                self.add_zone(number, Zone { header, entry, slot, is_dirty: false });
            }
            // A root zone that is lost is missing among the zones.
            None if number.is_root() => {}
            None => {
                let (generation, crc) = (Generation(entry.generation.get()), entry.crc.get());
                self.lost_zones.push(LostZone { number, start, generation, crc });
            }
        }
        Ok(())
    }

    /// Adds a zone whose header is known now.
    pub(super) fn add_zone(&mut self, number: ZoneNo, zone: Zone) {
        self.starts.insert(zone.header.start);
        self.zones.insert(number, zone);
        self.free = None;
    }

    /// Keeps only those zones of which this is true.
    pub(super) fn retain_zones(&mut self, is_kept: impl Fn(ZoneNo) -> bool) {
        self.zones.retain(|number, _| is_kept(*number));
        self.starts = self.zones.values().map(|zone| zone.header.start).collect();
        self.free = None;
    }

    /// Whether a block is one of a zone.
    pub(super) fn is_in_zone(&self, block: BlockNo) -> bool {
        let start = self.starts.range(..=block).next_back();
        start.is_some_and(|start| block.0 - start.0 < ZONE_BLOCKS)
    }

    /// The header of this zone in one of the header slots at this place.
    pub(super) fn header_at(
        &self,
        number: ZoneNo,
        start: BlockNo,
        slot: u8,
    ) -> Result<Option<ZoneHeader>, CheckError> {
        let is_start = number == ZoneNo::root(0) && start.0 == 0;
        if !is_start && !self.geometry.is_zone_start(start) {
            return Ok(None);
        }
        let at = BlockNo(start.0 + HEADER_SLOTS[usize::from(slot & 1)]);
        let Some(block) = self.bytes(at)? else { return Ok(None) };
        let addr = ZoneHeader::addr(number);
        if verify_header(&block, addr, self.sb.volume_tag(), at).is_err() {
            return Ok(None);
        }
        let is_it = |header: &ZoneHeader| header.start == start && header.zone == number;
        Ok(ZoneHeader::decode(&block).ok().filter(is_it))
    }

    /// Gives up a block of the zone table: the entries of the zones that are found make another one.
    pub(super) fn forget_table(&mut self, root: u32, index: u16) {
        let addr = MetaAddr::new(ZoneNo::root(root), index);
        self.remove(addr);
        let end = ZONE_TABLE_ENTRIES as u32;
        let table = root * ZONE_INDEXES + u32::from(index);
        for (number, zone) in self.zones.range_mut(ZoneNo(table * end)..ZoneNo((table + 1) * end)) {
            zone.is_dirty |= !number.is_root();
        }
    }

    /// Whether the last check came to a block; `None` if it does not know the zone.
    pub(super) fn was_reached(&self, addr: MetaAddr) -> Option<bool> {
        let index = usize::from(addr.index());
        self.reached.get(&addr.zone()).map(|reached| reached[index / 64] & 1 << (index % 64) != 0)
    }

    /// Any block; `None` beyond the device.
    pub(super) fn bytes(&self, block: BlockNo) -> Result<Option<Box<Block>>, CheckError> {
        if block.0 >= self.disk.size() / BLOCK_SIZE as u64 {
            return Ok(None);
        }
        Ok(Some(self.disk.read(block)?))
    }

    /// Where the block of this address is.
    pub(super) fn place(&self, addr: MetaAddr) -> Option<BlockNo> {
        let header = &self.zones.get(&addr.zone())?.header;
        let slot = *header.map.get(usize::from(addr.index()))?;
        (slot != 0).then(|| BlockNo(header.start.0 + u64::from(slot)))
    }

    /// The block, if it is sound and the one that its zone's header records.
    pub(super) fn read(&self, addr: MetaAddr) -> Result<Option<Box<Block>>, CheckError> {
        let Some(place) = self.place(addr) else { return Ok(None) };
        let Some(block) = self.bytes(place)? else { return Ok(None) };
        let check = self.zones[&addr.zone()].header.checks[usize::from(addr.index())];
        let is_sound = verify_header(&block, addr, self.sb.volume_tag(), place).is_ok()
            && verify_version(&block, check, addr, place).is_ok();
        Ok(is_sound.then_some(block))
    }

    /// The same, if it is of this kind.
    pub(super) fn read_kind(
        &self,
        addr: MetaAddr,
        kind: BlockKind,
    ) -> Result<Option<Box<Block>>, CheckError> {
        let block = self.read(addr)?;
        Ok(block.filter(|block| BlockHeader::of(block).kind == kind as u8))
    }

    /// A block of this kind without content, for [`Volume::put`].
    pub(super) fn empty(
        &self,
        kind: BlockKind,
        level: u8,
        addr: MetaAddr,
        (owner, incarnation): (InodeNo, Incarnation),
        birth: EventNo,
    ) -> Box<Block> {
        let mut block = Box::new(ZERO_BLOCK);
        BlockHeader::init(&mut block, kind, level, addr, owner, incarnation, self.sb.volume_tag(), birth);
        block
    }

    /// Makes this the contents of the block at an address, which may be new. False if its zone cannot be
    /// used or has no room.
    pub(super) fn put(&mut self, addr: MetaAddr, mut block: Box<Block>) -> bool {
        let crc = seal(&mut block, self.generation);
        let disk = self.disk;
        let Some(zone) = self.zones.get_mut(&addr.zone()) else { return false };
        let index = usize::from(addr.index());
        let Some(old) = zone.header.map.get(index).copied() else { return false };
        let start = zone.header.start;
        let is_ours = old != 0 && disk.is_changed(BlockNo(start.0 + u64::from(old)));
        let slot = match is_ours {
            true => Some(old),
            false => disk.free_slot(&zone.header),
        };
        let Some(slot) = slot else { return false };
        disk.write(BlockNo(start.0 + u64::from(slot)), &block);
        zone.header.map[index] = slot;
        zone.header.checks[index] = crc;
        zone.header.exists[index / 64] |= 1 << (index % 64);
        zone.header.inode_free[index] = match BlockHeader::of(&block).kind == BlockKind::Inodes as u8 {
            true => (0..INODES_PER_BLOCK).filter(|slot| Inode::slot_is_free(&block, *slot)).count() as u8,
            false => NOT_INODES,
        };
        zone.is_dirty = true;
        if let Some(free) = self.free.as_mut().filter(|_| old == 0 && index > 0 && !addr.zone().is_root()) {
            free.count = free.count.saturating_sub(1);
        }
        true
    }

    /// Frees an address.
    pub(super) fn remove(&mut self, addr: MetaAddr) {
        let Some(zone) = self.zones.get_mut(&addr.zone()) else { return };
        let index = usize::from(addr.index());
        if index >= ZONE_INDEXES as usize {
            return;
        }
        self.disk.keep(&zone.header);
        let is_given_back = zone.header.has(addr.index()) && index > 0 && !addr.zone().is_root();
        zone.header.exists[index / 64] &= !(1 << (index % 64));
        zone.header.map[index] = 0;
        zone.header.checks[index] = 0;
        zone.header.inode_free[index] = NOT_INODES;
        zone.is_dirty = true;
        if let Some(free) = self.free.as_mut().filter(|_| is_given_back) {
            free.count += 1;
            free.zones.insert(addr.zone());
        }
    }

    /// An address at which nothing is yet, in the zone of `near` if that has one.
    pub(super) fn free_address(&mut self, near: ZoneNo) -> Option<MetaAddr> {
        let free = self.free.get_or_insert_with(|| FreeAddresses::of(&self.zones));
        loop {
            let number = match free.zones.contains(&near) {
                true => near,
                false => *free.zones.first()?,
            };
            let header = self.zones.get(&number).map(|zone| &zone.header);
            let header = header.filter(|header| self.disk.free_slot(header).is_some());
            match header.and_then(|header| (1..ZONE_INDEXES as u16).find(|index| !header.has(*index))) {
                Some(index) => return Some(MetaAddr::new(number, index)),
                // Full zones are met once, and not for each block of a full volume.
                None => free.zones.remove(&number),
            };
        }
    }

    /// Whether so many blocks can be added, wherever that is.
    pub(super) fn has_room(&mut self, blocks: usize) -> bool {
        self.free.get_or_insert_with(|| FreeAddresses::of(&self.zones)).count >= blocks
    }

    /// Forgets the past: what it had is freed by the rules for blocks without an owner. False if there is
    /// none, or not all zones are known.
    pub(super) fn give_up_past(&mut self) -> bool {
        let has_past = self.is_whole() && !self.sb.history_root.is_none();
        if has_past {
            self.sb.history_root = MetaAddr::NONE;
        }
        has_past
    }

    /// Asks for a new superblock, whether anything else changes or not.
    pub(super) fn write_superblock(&mut self) -> bool {
        self.is_forced = true;
        true
    }

    /// The device, for people.
    pub(super) fn disk_name(&self) -> String {
        self.disk.describe()
    }

    /// Whether the superblock is another than before.
    pub(super) fn is_superblock_changed(&self) -> bool {
        self.sb != self.before
    }

    /// Whether the current copy of a block is one that the repair wrote.
    pub(super) fn is_written(&self, addr: MetaAddr) -> bool {
        self.place(addr).is_some_and(|place| self.disk.is_changed(place))
    }

    /// The generation of a zone's header, as the table or the superblock records it.
    pub(super) fn recorded_generation(&self, number: ZoneNo) -> Generation {
        if let (true, Some(zone)) = (!number.is_root(), self.zones.get(&number)) {
            return Generation(zone.entry.generation.get());
        }
        let n = (number.0 & !ZoneNo::ROOT_FLAG) as usize;
        self.sb.root_zones.get(n).copied().flatten().map_or(Generation(0), |root| root.generation)
    }

    /// Marks a zone's header, and with it its counts, as to be written anew.
    pub(super) fn touch(&mut self, zone: ZoneNo) {
        if let Some(zone) = self.zones.get_mut(&zone) {
            zone.is_dirty = true;
        }
    }

    /// An inode in use.
    pub(super) fn inode(&self, number: InodeNo) -> Result<Option<Inode>, CheckError> {
        let block = self.read_kind(number.addr(), BlockKind::Inodes)?;
        Ok(block
            .and_then(|block| Inode::decode(Inode::slot(&block, number.slot())).ok())
            .filter(|i| i.mode != 0))
    }

    /// Writes an inode, or frees it.
    pub(super) fn set_inode(&mut self, number: InodeNo, inode: Option<&Inode>) -> Result<bool, CheckError> {
        let Some(mut block) = self.read_kind(number.addr(), BlockKind::Inodes)? else { return Ok(false) };
        let incarnation = Inode::slot_incarnation(&block, number.slot());
        let (slot, _) = Inode::slot_mut(&mut block, number.slot());
        match inode {
            Some(inode) => inode.encode(slot),
            None => Inode::encode_free(incarnation, slot),
        }
        Ok(self.put(number.addr(), block))
    }

    /// Writes headers, table and superblock, if anything changed. False if nothing did.
    pub(super) fn flush(&mut self) -> Result<bool, CheckError> {
        let dirty: Vec<ZoneNo> = self
            .zones
            .iter()
            .filter(|(number, zone)| zone.is_dirty && !number.is_root())
            .map(|(n, _)| *n)
            .collect();
        if dirty.is_empty()
            && !self.zones.values().any(|zone| zone.is_dirty)
            && self.sb == self.before
            && !self.is_forced
        {
            return Ok(false);
        }
        for number in dirty {
            let entry = self.write_header(number)?;
            self.set_entry(number, entry)?;
        }
        let roots: Vec<ZoneNo> =
            self.zones.iter().filter(|(n, zone)| zone.is_dirty && n.is_root()).map(|(n, _)| *n).collect();
        for number in roots {
            let entry = self.write_header(number)?;
            let n = (number.0 & !ZoneNo::ROOT_FLAG) as usize;
            if let Some(root) = self.sb.root_zones.get_mut(n).and_then(Option::as_mut) {
                root.start = BlockNo(entry.start.get());
                root.generation = Generation(entry.generation.get());
                (root.crc, root.header_slot) = (entry.crc.get(), entry.header_slot);
            }
        }
        self.sb.generation = self.generation;
        self.disk.write(SUPERBLOCKS[self.slot as usize], &self.sb.encode(self.slot));
        Ok(true)
    }

    /// The slot that the superblock is written to.
    pub(super) fn superblock_slot(&self) -> u32 {
        self.slot
    }

    /// Writes a zone's header. Returns what its table entry must say.
    fn write_header(&mut self, number: ZoneNo) -> Result<ZoneTableEntry, CheckError> {
        let bitmap = match number.is_primary() {
            true => self.read_kind(MetaAddr::new(number, 0), BlockKind::Bitmap)?,
            false => None,
        };
        let (disk, generation) = (self.disk, self.generation);
        let Some(zone) = self.zones.get_mut(&number) else { return Ok(ZoneTableEntry::ABSENT) };
        let header = &zone.header;
        let current = BlockNo(header.start.0 + HEADER_SLOTS[usize::from(zone.slot & 1)]);
        if !disk.is_changed(current) {
            zone.slot = 1 - (zone.slot & 1);
        }
        let (block, crc) = header.encode(generation);
        disk.write(BlockNo(header.start.0 + HEADER_SLOTS[usize::from(zone.slot)]), &block);
        let used: u32 = header.exists.iter().map(|word| word.count_ones()).sum();
        let inodes = header.inode_free.iter().filter(|free| **free != NOT_INODES);
        let inodes: u32 = inodes.map(|free| u32::from(*free)).sum();
        let free = bitmap.map(|block| BITS_PER_GROUP - BitmapRef::new(&block).used());
        let free_blocks = match number.is_primary() {
            true => free.map_or(zone.entry.free_blocks.get(), |free| free as u16),
            false => 0,
        };
        zone.entry = ZoneTableEntry {
            start: header.start.0.into(),
            generation: generation.0.into(),
            crc: crc.into(),
            header_slot: zone.slot,
            present: 1,
            free_blocks: free_blocks.into(),
            free_indexes: ((ZONE_INDEXES - used) as u16).into(),
            free_inodes: (inodes as u16).into(),
        };
        zone.is_dirty = false;
        Ok(zone.entry)
    }

    /// Puts a zone's entry into the table.
    pub(super) fn set_entry(&mut self, number: ZoneNo, entry: ZoneTableEntry) -> Result<bool, CheckError> {
        let (table, position) = self.geometry.table_position(number);
        let (root, index) = self.geometry.table_home(table);
        let addr = MetaAddr::new(ZoneNo::root(root), index);
        let mut block = match self.read_kind(addr, BlockKind::ZoneTable)? {
            Some(block) => block,
            None => self.empty(BlockKind::ZoneTable, 0, addr, (InodeNo::NONE, Incarnation(0)), EventNo(0)),
        };
        ZoneTableMut::new(&mut block).set(position, entry);
        Ok(self.put(addr, block))
    }
}
