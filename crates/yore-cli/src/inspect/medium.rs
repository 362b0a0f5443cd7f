//! Finding metadata on the medium: superblock → root zone → zone table → zone header → slot.
//!
//! On a sound volume each step names the next one, with its generation and checksum. If one does not verify,
//! this module uses what can still be found, and notes it. Nothing here refuses to go on because of damage
//! elsewhere.

use super::superblock;
use anyhow::Context as _;
use std::path::Path;
use yore_device::Device;
use yore_format::layout::{Geometry, HEADER_SLOTS, ZONE_BLOCKS, ZONE_TABLE_ENTRIES};
use yore_format::{
    decode_slots, verify_header, verify_version, Block, BlockHeader, BlockNo, Corruption, GroupNo, MetaAddr,
    SlotState, Superblock, ZoneHeader, ZoneNo, ZoneTableEntry, ZoneTableRef, BLOCK_SIZE, ZERO_BLOCK,
};

/// A volume as it lies on its device.
pub struct Medium<'a> {
    device: &'a dyn Device,
    pub superblock: Superblock,
    pub geometry: Geometry,
    /// What was found to be wrong on the way here.
    pub notes: Vec<String>,
}

/// A zone's header, and which of its two copies it is.
pub struct FoundZone {
    pub header: ZoneHeader,
    pub start: BlockNo,
    pub slot: u8,
    /// What contradicts it, if anything.
    pub notes: Vec<String>,
}

/// A metadata block, verified or not.
pub struct FoundBlock {
    pub bytes: Box<Block>,
    pub at: BlockNo,
    /// The checksum that its zone's header gives for it.
    check: u32,
}

/// The zones in the table, and notes about table blocks that do not verify.
pub type Listed = (Vec<(ZoneNo, ZoneTableEntry)>, Vec<String>);

/// A block of the zone table, and what is wrong with it.
type TableBlock = (Box<Block>, Option<Box<Corruption>>);

/// Reads a block.
pub fn read(device: &dyn Device, block: BlockNo) -> anyhow::Result<Box<Block>> {
    let mut bytes = Box::new(ZERO_BLOCK);
    let offset = block.0.checked_mul(BLOCK_SIZE as u64).context("there is no such block")?;
    device.read_at(offset, &mut bytes[..])?;
    Ok(bytes)
}

impl<'a> Medium<'a> {
    /// Finds the superblock to start from: the one that counts, or else one that can be read.
    pub fn open(name: &Path, device: &'a dyn Device) -> anyhow::Result<Medium<'a>> {
        anyhow::ensure!(device.size() >= 2 * BLOCK_SIZE as u64, "{} is no Yore volume", name.display());
        let slots = superblock::slots(device)?;
        let mut notes = Vec::new();
        let found = match decode_slots([&slots[0], &slots[1]]) {
            Ok((found, _, _)) => found,
            Err(reason) => {
                notes.push(format!("the superblock that counts cannot be used: {reason}"));
                let states = [Superblock::decode(&slots[0], 0), Superblock::decode(&slots[1], 1)];
                let other = states.into_iter().enumerate().find_map(|(slot, state)| match state {
                    SlotState::Valid(found) => Some((slot, *found)),
                    _ => None,
                });
                let (slot, found) = other.with_context(|| {
                    format!(
                        "{}: neither superblock can be used ({reason}); single blocks can still be printed (block N)",
                        name.display()
                    )
                })?;
                notes.push(format!("using the other one, slot {slot} of generation {}", found.generation));
                found
            }
        };
        Ok(Medium { device, geometry: found.geometry(), superblock: found, notes })
    }

    pub fn read(&self, block: BlockNo) -> anyhow::Result<Box<Block>> {
        read(self.device, block)
    }

    /// What is wrong with a metadata block.
    pub fn verify(&self, block: &Block, addr: MetaAddr, at: BlockNo) -> Result<(), Box<Corruption>> {
        verify_header(block, addr, self.superblock.volume_tag(), at)
    }

    /// What is wrong with a block that its zone's header leads to. This also verifies that the block is the
    /// copy that the header means.
    pub fn verify_copy(&self, found: &FoundBlock, addr: MetaAddr) -> Result<(), Box<Corruption>> {
        self.verify(&found.bytes, addr, found.at)?;
        verify_version(&found.bytes, found.check, addr, found.at)
    }

    /// The zone table's entry for a zone.
    pub fn entry(&self, zone: ZoneNo) -> anyhow::Result<ZoneTableEntry> {
        let (table, index) = self.geometry.table_position(zone);
        match self.table(table)? {
            Some((block, _)) => Ok(ZoneTableRef::new(&block).entry(index)),
            None => Ok(ZoneTableEntry::ABSENT),
        }
    }

    /// A block of the zone table, with what is wrong with it; `None` if there is no such block.
    fn table(&self, table: u32) -> anyhow::Result<Option<TableBlock>> {
        let (root, index) = self.geometry.table_home(table);
        if self.superblock.root_zones.get(root as usize).copied().flatten().is_none() {
            return Ok(None);
        }
        let addr = MetaAddr::new(ZoneNo::root(root), index);
        let Some(found) = self.block(addr)? else { return Ok(None) };
        let wrong = self.verify_copy(&found, addr).err();
        Ok(Some((found.bytes, wrong)))
    }

    /// All zones in the table, with notes about table blocks that do not verify.
    pub fn zones(&self) -> anyhow::Result<Listed> {
        let mut found = Vec::new();
        let mut notes = Vec::new();
        // The limit comes from the medium, so it is bounded by what the volume can have.
        let most = self
            .geometry
            .groups()
            .saturating_mul(2)
            .max(self.geometry.blocks.div_ceil(ZONE_BLOCKS) as u32 * 2);
        let limit = self.superblock.zone_number_limit.min(most);
        for table in 0..limit.div_ceil(ZONE_TABLE_ENTRIES as u32) {
            match self.table(table) {
                Err(error) => notes.push(format!("zone table block {table}: {error:#}")),
                Ok(None) => {}
                Ok(Some((block, wrong))) => {
                    notes.extend(wrong.map(|wrong| wrong.to_string()));
                    let entries = (0..ZONE_TABLE_ENTRIES).map(|i| ZoneTableRef::new(&block).entry(i));
                    let first = table * ZONE_TABLE_ENTRIES as u32;
                    let numbered = (first..).map(ZoneNo).zip(entries);
                    found.extend(numbered.filter(|(_, entry)| entry.is_present()));
                }
            }
        }
        Ok((found, notes))
    }

    /// The current header of a zone; `None` if there is no such zone.
    pub fn zone(&self, zone: ZoneNo) -> anyhow::Result<Option<FoundZone>> {
        let (start, slot, generation, crc) = if zone.is_root() {
            let number = (zone.0 & !ZoneNo::ROOT_FLAG) as usize;
            let Some(root) = self.superblock.root_zones.get(number).copied().flatten() else {
                return Ok(None);
            };
            (root.start, root.header_slot, root.generation.0, root.crc)
        } else {
            let entry = self.entry(zone)?;
            if !entry.is_present() {
                return Ok(None);
            }
            (BlockNo(entry.start.get()), entry.header_slot, entry.generation.get(), entry.crc.get())
        };
        let mut notes = Vec::new();
        let slot = slot & 1;
        // If the current copy is bad, the other one is better than nothing.
        for slot in [slot, 1 - slot] {
            let at = BlockNo(start.0.saturating_add(HEADER_SLOTS[usize::from(slot)]));
            let block = match self.read(at) {
                Ok(block) => block,
                Err(error) => {
                    notes.push(format!("header slot {slot} at block {at}: {error:#}"));
                    continue;
                }
            };
            let stored = BlockHeader::of(&block);
            if (stored.generation.get(), stored.crc.get()) != (generation, crc) {
                notes.push(format!(
                    "header slot {slot} has generation {} and checksum {:#010x}; expected {generation} and {crc:#010x}",
                    stored.generation,
                    stored.crc.get()
                ));
            }
            let decoded =
                self.verify(&block, ZoneHeader::addr(zone), at).and_then(|()| ZoneHeader::decode(&block));
            match decoded {
                Ok(header) => return Ok(Some(FoundZone { header, start, slot, notes })),
                Err(wrong) => notes.push(format!("header slot {slot}: {wrong}")),
            }
        }
        anyhow::bail!("neither header of zone {} can be used: {}", zone_name(zone), notes.join("; "))
    }

    /// The block with a metadata address. `None` if it does not exist.
    pub fn block(&self, addr: MetaAddr) -> anyhow::Result<Option<FoundBlock>> {
        let Some(zone) = self.zone(addr.zone())? else { return Ok(None) };
        let slot = zone.header.map.get(usize::from(addr.index())).copied().unwrap_or(0);
        if slot == 0 {
            return Ok(None);
        }
        let at = BlockNo(zone.start.0 + u64::from(slot));
        let check = zone.header.checks[usize::from(addr.index())];
        Ok(Some(FoundBlock { bytes: self.read(at)?, at, check }))
    }

    /// The metadata address of a group's bitmap.
    pub fn bitmap_addr(group: GroupNo) -> MetaAddr {
        MetaAddr::new(ZoneNo::primary(group), 0)
    }
}

/// `3`, or `root 0`.
pub fn zone_name(zone: ZoneNo) -> String {
    match zone.is_root() {
        true => format!("root {}", zone.0 & !ZoneNo::ROOT_FLAG),
        false => zone.to_string(),
    }
}
