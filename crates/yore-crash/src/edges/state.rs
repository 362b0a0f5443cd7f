//! Puts a set of changes on a medium, as the checker and a mount read it.

use super::sets::Set;
use super::units::{self, Units};
use crate::volume::Wrong;
use std::collections::BTreeMap;
use yore_device::{Device, MemoryDevice, BLOCK_SIZE};
use yore_format::layout::{
    FIRST_SLOT, HEADER_SLOTS, SUPERBLOCKS, ZONE_BLOCKS, ZONE_INDEXES, ZONE_TABLE_ENTRIES,
};
use yore_format::{
    decode_slots, seal, BitmapRef, Block, BlockHeader, BlockKind, Engine, Generation, Inode, InodeNo,
    MetaAddr, Superblock, VolumeState, ZoneHeader, ZoneNo, ZoneTableEntry, ZoneTableMut, ZoneTableRef,
    INODES_PER_BLOCK, NOT_INODES, ZERO_BLOCK,
};
use yore_fs::{Place, Recording};

/// The volume before the recording, and how the data lay behind it.
pub(super) struct Ground {
    superblock: Superblock,
    zones: BTreeMap<ZoneNo, (ZoneTableEntry, ZoneHeader)>,
    root: ZoneHeader,
    base: MemoryDevice,
    with_data: MemoryDevice,
}

/// Why a set of changes makes no medium.
pub(super) enum NoMedium {
    /// The cells of this node do not fit.
    Full(MetaAddr),
    Wrong(Wrong),
}

fn read(device: &MemoryDevice, block: u64) -> Box<Block> {
    let mut bytes = Box::new(ZERO_BLOCK);
    match device.read_at(block * BLOCK_SIZE as u64, &mut bytes[..]) {
        Ok(()) => bytes,
        Err(error) => unreachable!("memory can be read: {error}"),
    }
}

fn write(device: &MemoryDevice, block: u64, bytes: &Block) {
    match device.write_at(block * BLOCK_SIZE as u64, &bytes[..]) {
        Ok(()) => {}
        Err(error) => unreachable!("memory can be written: {error}"),
    }
}

fn wrong(error: impl ToString) -> Wrong {
    Wrong::new("state", error)
}

impl Ground {
    /// `base` is the volume as it was closed before the recording; `with_data` the same device behind it, to
    /// which data was written, and no metadata.
    pub(super) fn load(base: MemoryDevice, with_data: MemoryDevice) -> Result<Ground, Wrong> {
        let slots = SUPERBLOCKS.map(|at| read(&base, at.0));
        let (superblock, _, _) = decode_slots([&slots[0], &slots[1]]).map_err(wrong)?;
        let Some(Some(root)) = superblock.root_zones.first().copied() else {
            return Err(wrong("no root zone"));
        };
        let header = |start: u64, slot: u8| {
            let block = read(&base, start + HEADER_SLOTS[usize::from(slot)]);
            ZoneHeader::decode(&block).map_err(wrong)
        };
        let root_header = header(root.start.0, root.header_slot)?;
        let mut zones = BTreeMap::new();
        for index in (0..ZONE_INDEXES as u16).filter(|index| root_header.has(*index)) {
            let table = read(&base, root.start.0 + u64::from(root_header.map[usize::from(index)]));
            for i in 0..ZONE_TABLE_ENTRIES {
                let entry = ZoneTableRef::new(&table).entry(i);
                if entry.is_present() {
                    let zone = ZoneNo(u32::from(index) * ZONE_TABLE_ENTRIES as u32 + i as u32);
                    zones.insert(zone, (entry, header(entry.start.get(), entry.header_slot)?));
                }
            }
        }
        Ok(Ground { superblock, zones, root: root_header, base, with_data })
    }

    /// An inode as it was before.
    pub(super) fn inode(&self, no: InodeNo) -> Result<Inode, Wrong> {
        let block = self.block(no.addr()).ok_or_else(|| wrong(format!("inode {no} has no block")))?;
        Inode::decode(Inode::slot(&block, no.slot())).map_err(wrong)
    }

    /// A block as it was before.
    fn block(&self, addr: MetaAddr) -> Option<Box<Block>> {
        let (entry, header) = self.zones.get(&addr.zone())?;
        let slot = u64::from(header.map[usize::from(addr.index())]);
        header.has(addr.index()).then(|| read(&self.base, entry.start.get() + slot))
    }

    /// The medium with the changes of a set.
    pub(super) fn medium(&self, recording: &Recording, set: &Set) -> Result<MemoryDevice, NoMedium> {
        let mut superblock = self.superblock.clone();
        let mut blocks: BTreeMap<MetaAddr, Made> = BTreeMap::new();
        for (number, (_, place)) in recording.changes.iter().enumerate() {
            let is_in = set[number];
            match place {
                Place::Block { addr, after, pieces } => {
                    let made = blocks.entry(*addr).or_insert_with(|| Made::of(self.block(*addr)));
                    if units::has_form(after) {
                        // A new block is an empty one until something is put into it.
                        made.form = Some(after.clone());
                    }
                    if is_in {
                        made.units.extend(units::changed(pieces));
                    }
                }
                Place::Made { block, .. } if units::is_table(block) => {
                    let came = "a table of counts came while changes were recorded";
                    return Err(NoMedium::Wrong(wrong(came)));
                }
                Place::Made { addr, block } if is_in => {
                    blocks.insert(*addr, Made::of(Some(block.clone())));
                }
                Place::Freed { addr } if is_in => drop(blocks.insert(*addr, Made::of(None))),
                Place::Orphans { root, level } if is_in => {
                    (superblock.orphan_root, superblock.orphan_level) = (*root, *level);
                }
                _ => {}
            }
        }
        let medium = self.with_data.snapshot();
        let generation = Generation(self.superblock.generation.0 + 100);
        let mut by_zone: BTreeMap<ZoneNo, Vec<Indexed>> = BTreeMap::new();
        for (addr, made) in &blocks {
            let block = match &made.base {
                Some(base) => {
                    let form = made.form.as_ref().unwrap_or(base);
                    let block = units::compose(base, form, &made.units).ok_or(NoMedium::Full(*addr))?;
                    // A branch is not written before it has children.
                    Some(block).filter(|block| !units::is_bare(block))
                }
                None => None,
            };
            by_zone.entry(addr.zone()).or_default().push((addr.index(), block));
        }
        let mut entries = Vec::new();
        for (zone, blocks) in by_zone {
            let Some((entry, header)) = self.zones.get(&zone) else {
                let came = format!("zone {zone} came while changes were recorded");
                return Err(NoMedium::Wrong(wrong(came)));
            };
            entries.push((zone, write_zone(&medium, generation, *entry, header.clone(), blocks)));
        }
        self.write_table(&medium, generation, &entries, &mut superblock);
        superblock.generation = generation;
        superblock.state = VolumeState::Clean;
        superblock.engine = Engine::Snapshot;
        // Ceilings that were taken ahead.
        superblock.next_incarnation += 1 << 20;
        superblock.next_number.0 += 1 << 10;
        for (slot, at) in SUPERBLOCKS.iter().enumerate() {
            superblock.generation = Generation(generation.0 + slot as u64);
            write(&medium, at.0, &superblock.encode(slot as u32));
        }
        Ok(medium)
    }

    fn write_table(
        &self,
        medium: &MemoryDevice,
        generation: Generation,
        entries: &[(ZoneNo, ZoneTableEntry)],
        superblock: &mut Superblock,
    ) {
        let Some(Some(root)) = superblock.root_zones.first_mut() else { return };
        let mut header = self.root.clone();
        for (zone, entry) in entries {
            let table = (zone.0 / ZONE_TABLE_ENTRIES as u32) as usize;
            let at = root.start.0 + u64::from(header.map[table]);
            let mut block = read(medium, at);
            ZoneTableMut::new(&mut block).set(zone.0 as usize % ZONE_TABLE_ENTRIES, *entry);
            header.checks[table] = seal(&mut block, generation);
            write(medium, at, &block);
        }
        header.generation = generation;
        let (block, crc) = header.encode(generation);
        write(medium, root.start.0 + HEADER_SLOTS[usize::from(root.header_slot)], &block);
        (root.generation, root.crc) = (generation, crc);
    }
}

/// An index of a zone, and its block in a state; `None`: it is free.
type Indexed = (u16, Option<Box<Block>>);

/// A block of a state.
struct Made {
    /// `None`: it does not exist.
    base: Option<Box<Block>>,
    form: Option<Box<Block>>,
    units: Units,
}

impl Made {
    fn of(base: Option<Box<Block>>) -> Made {
        Made { base, form: None, units: Units::new() }
    }
}

fn write_zone(
    medium: &MemoryDevice,
    generation: Generation,
    mut entry: ZoneTableEntry,
    mut header: ZoneHeader,
    blocks: Vec<Indexed>,
) -> ZoneTableEntry {
    let mut used: Vec<u16> = header.map.to_vec();
    for (index, block) in blocks {
        let i = usize::from(index);
        header.exists[i / 64] &= !(1 << (i % 64));
        header.inode_free[i] = NOT_INODES;
        let Some(mut block) = block else {
            (header.map[i], header.checks[i]) = (0, 0);
            continue;
        };
        header.exists[i / 64] |= 1 << (i % 64);
        if header.map[i] == 0 {
            let free = (FIRST_SLOT as u16..ZONE_BLOCKS as u16).find(|slot| !used.contains(slot));
            header.map[i] = free.unwrap_or_default();
            used.push(header.map[i]);
        }
        match BlockKind::from_repr(BlockHeader::of(&block).kind) {
            Some(BlockKind::Inodes) => {
                let free = (0..INODES_PER_BLOCK).filter(|slot| Inode::slot_is_free(&block, *slot)).count();
                header.inode_free[i] = free as u8;
            }
            Some(BlockKind::Bitmap) => {
                let free = yore_format::BITS_PER_GROUP - BitmapRef::new(&block).used();
                entry.free_blocks = (free as u16).into();
            }
            _ => {}
        }
        header.checks[i] = seal(&mut block, generation);
        write(medium, header.start.0 + u64::from(header.map[i]), &block);
    }
    header.generation = generation;
    let exists: u32 = header.exists.iter().map(|word| word.count_ones()).sum();
    let free_inodes = header.inode_free.iter().filter(|free| **free != NOT_INODES);
    let free_inodes: u16 = free_inodes.map(|free| u16::from(*free)).sum();
    let (block, crc) = header.encode(generation);
    write(medium, header.start.0 + HEADER_SLOTS[usize::from(entry.header_slot)], &block);
    entry.generation = generation.0.into();
    entry.crc = crc.into();
    entry.free_indexes = ((ZONE_INDEXES - exists) as u16).into();
    entry.free_inodes = free_inodes.into();
    entry
}

/// What a change changed, in words.
pub(super) fn show(place: &Place) -> String {
    match place {
        Place::Block { addr, after, pieces } => {
            let kind = BlockKind::from_repr(BlockHeader::of(after).kind).map_or("block", BlockKind::name);
            let changed = units::changed(pieces);
            let units: Vec<String> = changed
                .iter()
                .take(4)
                .map(|(unit, value)| {
                    let unit: String = unit.iter().map(|byte| format!("{byte:02x}")).collect();
                    format!("{}{unit}", if value.is_some() { "+" } else { "-" })
                })
                .collect();
            format!("{kind} {addr}: {} units, {}", changed.len(), units.join(" "))
        }
        Place::Made { addr, .. } => format!("{addr} made"),
        Place::Freed { addr } => format!("{addr} freed"),
        Place::Orphans { root, level } => format!("root of the orphans: {root}, level {level}"),
    }
}
