//! A volume that was in use under an engine that orders changes, as it would be if that had closed it.
//!
//! Such an engine overwrites blocks where they are, and writes headers that no table entry names. What counts
//! then is in docs/FORMAT.md ("Under an engine that orders changes"); here it is carried out by the format's
//! definitions, and not by the code that mounts. The headers, table blocks and the superblock that closing
//! would write are put in front of the device. So all other parts of the check and of a repair see a volume
//! whose chain of checksums is whole, and know nothing of this.
//!
//! A block that does not verify keeps the checksum that the header has, so whoever reads it reports it. A
//! zone of which no header counts is left as it is, and is reported, too.
//!
//! Costs a second reading of all metadata; only volumes that were not closed need it.

use crate::overlay::Overlay;
use crate::superblock::Found;
use crate::CheckError;
use yore_device::Device as _;
use yore_format::layout::{
    Geometry, HEADER_SLOTS, SUPERBLOCKS, ZONE_BLOCKS, ZONE_INDEXES, ZONE_TABLE_ENTRIES,
};
use yore_format::{
    seal, verify_header, BitmapRef, Block, BlockHeader, BlockKind, BlockNo, Expect, Generation, GroupNo,
    Inode, MetaAddr, RootZone, Superblock, ZoneHeader, ZoneNo, ZoneTableEntry, ZoneTableMut, ZoneTableRef,
    BITS_PER_GROUP, BLOCK_SIZE, INODES_PER_BLOCK, NOT_INODES,
};

struct Settling<'o, 'd> {
    disk: &'o Overlay<'d>,
    sb: Superblock,
    geometry: Geometry,
}

/// Puts in front of the device what closing the volume would write. False if it has been closed.
pub(crate) fn settle(disk: &Overlay<'_>, found: &Found) -> Result<bool, CheckError> {
    let sb = found.superblock.clone();
    if sb.in_place_since.0 == 0 {
        return Ok(false);
    }
    let geometry = Geometry { blocks: sb.volume_blocks };
    let mut settling = Settling { disk, sb, geometry };
    for n in 0..settling.sb.root_zones.len() {
        if let Some(root) = settling.sb.root_zones[n] {
            settling.root_zone(n, root)?;
        }
    }
    let mut sb = settling.sb;
    // The other slot may be of the same generation.
    sb.generation = Generation(found.newest.0.saturating_add(1));
    sb.set_in_place_since(Generation(0));
    disk.write(SUPERBLOCKS[found.slot as usize], &sb.encode(found.slot));
    Ok(true)
}

impl Settling<'_, '_> {
    fn read(&self, at: BlockNo) -> Result<Box<Block>, CheckError> {
        Ok(self.disk.read(at)?)
    }

    fn is_within(&self, start: BlockNo) -> bool {
        let end = start.0.saturating_add(ZONE_BLOCKS);
        end <= self.sb.volume_blocks && end <= self.disk.size() / BLOCK_SIZE as u64
    }

    /// The header in one slot of a zone, if it verifies as one of this zone.
    fn header(&self, no: ZoneNo, start: BlockNo, slot: u8) -> Result<Option<(ZoneHeader, u32)>, CheckError> {
        let at = BlockNo(start.0 + HEADER_SLOTS[usize::from(slot & 1)]);
        let block = self.read(at)?;
        let decoded = verify_header(&block, ZoneHeader::addr(no), self.sb.volume_tag(), at)
            .and_then(|()| ZoneHeader::decode(&block));
        let is_own =
            |header: &ZoneHeader| header.start == start && header.zone == no && header.uuid == self.sb.uuid;
        let crc = BlockHeader::of(&block).crc.get();
        Ok(decoded.ok().filter(is_own).map(|header| (header, crc)))
    }

    fn root_zone(&mut self, n: usize, root: RootZone) -> Result<(), CheckError> {
        let no = ZoneNo::root(n as u32);
        if !self.is_within(root.start) {
            return Ok(());
        }
        let named = self.header(no, root.start, root.header_slot)?;
        let Some((mut header, _)) = named.filter(|(_, crc)| *crc == root.crc) else { return Ok(()) };
        for index in (0..ZONE_INDEXES as u16).filter(|index| header.has(*index)).collect::<Vec<_>>() {
            let at = BlockNo(root.start.0 + u64::from(header.map[usize::from(index)]));
            let mut table = self.read(at)?;
            let addr = MetaAddr::new(no, index);
            let is_sound = verify_header(&table, addr, self.sb.volume_tag(), at)
                .and_then(|()| Expect::volume(BlockKind::ZoneTable).check(&table))
                .is_ok();
            if !is_sound {
                continue;
            }
            let first = (n as u32 * ZONE_INDEXES + u32::from(index)) * ZONE_TABLE_ENTRIES as u32;
            for i in 0..ZONE_TABLE_ENTRIES {
                let entry = ZoneTableRef::new(&table).entry(i);
                if !entry.is_present() {
                    continue;
                }
                if let Some(entry) = self.zone(ZoneNo(first + i as u32), entry)? {
                    ZoneTableMut::new(&mut table).set(i, entry);
                }
            }
            header.checks[usize::from(index)] = seal(&mut table, self.sb.generation);
            self.disk.write(at, &table);
        }
        let generation = self.sb.generation;
        let (block, crc) = header.encode(generation);
        self.disk.write(BlockNo(root.start.0 + HEADER_SLOTS[usize::from(root.header_slot & 1)]), &block);
        self.sb.root_zones[n] = Some(RootZone { generation, crc, ..root });
        Ok(())
    }

    /// A zone with what its blocks say; returns its entry in the table.
    fn zone(&self, no: ZoneNo, mut entry: ZoneTableEntry) -> Result<Option<ZoneTableEntry>, CheckError> {
        let start = BlockNo(entry.start.get());
        if !self.is_within(start) {
            return Ok(None);
        }
        let mut rank = (Generation(entry.generation.get()), 0);
        let named = self.header(no, start, entry.header_slot)?;
        let mut latest = named
            .filter(|(header, crc)| header.generation == rank.0 && *crc == entry.crc.get())
            .map(|(header, _)| header);
        for slot in 0..2 {
            if let Some((header, _)) = self.header(no, start, slot)? {
                if header.replaces(rank, self.sb.in_place_since) {
                    rank = (header.generation, header.round);
                    latest = Some(header);
                }
            }
        }
        let Some(mut header) = latest else { return Ok(None) };
        for index in (0..ZONE_INDEXES as u16).filter(|index| header.has(*index)).collect::<Vec<_>>() {
            self.block(&mut header, &mut entry, index)?;
        }
        let used = header.exists.iter().map(|word| word.count_ones()).sum::<u32>();
        let inodes = header.inode_free.iter().filter(|free| **free != NOT_INODES);
        entry.free_inodes = (inodes.map(|free| u32::from(*free)).sum::<u32>() as u16).into();
        entry.free_indexes = (ZONE_INDEXES.saturating_sub(used) as u16).into();
        header.round = 0;
        let generation = self.sb.generation;
        let (block, crc) = header.encode(generation);
        self.disk.write(BlockNo(start.0 + HEADER_SLOTS[usize::from(entry.header_slot & 1)]), &block);
        entry.generation = generation.0.into();
        entry.crc = crc.into();
        Ok(Some(entry))
    }

    /// Takes over what a block says of itself.
    fn block(
        &self,
        header: &mut ZoneHeader,
        entry: &mut ZoneTableEntry,
        index: u16,
    ) -> Result<(), CheckError> {
        let i = usize::from(index);
        let at = BlockNo(header.start.0 + u64::from(header.map[i]));
        let block = self.read(at)?;
        let addr = MetaAddr::new(header.zone, index);
        let is_sound = verify_header(&block, addr, self.sb.volume_tag(), at).is_ok();
        if !is_sound || !header.means(index, &block, self.sb.in_place_since) {
            return Ok(());
        }
        header.checks[i] = BlockHeader::of(&block).crc.get();
        header.inode_free[i] = NOT_INODES;
        match BlockKind::from_repr(BlockHeader::of(&block).kind) {
            Some(BlockKind::Inodes) => {
                let free = (0..INODES_PER_BLOCK).filter(|slot| Inode::slot_is_free(&block, *slot)).count();
                header.inode_free[i] = free as u8;
            }
            Some(BlockKind::Bitmap) if index == 0 && header.zone.is_primary() => {
                let usable = self.geometry.data_blocks(GroupNo(header.zone.0 / 2)) as u32;
                let used = BitmapRef::new(&block).used().saturating_sub(BITS_PER_GROUP - usable);
                entry.free_blocks = (usable.saturating_sub(used) as u16).into();
            }
            _ => {}
        }
        Ok(())
    }
}
