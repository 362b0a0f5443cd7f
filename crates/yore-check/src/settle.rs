//! A volume that was in use under an engine that orders changes, as it would be if that had closed it.
//!
//! Such an engine overwrites blocks where they are, and writes headers that no table entry names. What counts
//! then is in docs/FORMAT.md ("Under an engine that orders changes"); here it is carried out by the format's
//! definitions, and not by the code that mounts. The headers, table blocks and the superblock that closing
//! would write are put in front of the device. So all other parts of the check and of a repair see a volume
//! whose chain of checksums is whole, and know nothing of this.
//!
//! They are written where closing would write them: a header into the header slot that does not count, a
//! table block into a slot of its zone that nothing names, the superblock into the other slot. None of them
//! has a round, and all are of a later generation than the superblock on the device, so beside that one they
//! mean nothing. So a repair, which writes them, may break off between any two of them.
//!
//! A block that does not verify is read once more, by itself. One that does not verify then keeps the
//! checksum that the header has, so whoever reads it reports it. A zone of which no header counts is left as
//! it is, and is reported, too. The repair finds it later, and then settles it by the same rules
//! (`repair/found.rs`): blocks that were overwritten since are newer than any header says.
//!
//! Costs a second reading of all metadata, zone by zone, in large requests; only volumes that were not closed
//! need it. Whoever watches the check is told before each zone, and can have it end.

use crate::overlay::{InUse, Overlay};
use crate::superblock::Found;
use crate::CheckError;
use yore_device::{near, AlignedBuf, Device as _};
use yore_format::layout::{
    Geometry, HEADER_SLOTS, SUPERBLOCKS, ZONE_BLOCKS, ZONE_INDEXES, ZONE_TABLE_ENTRIES,
};
use yore_format::{
    seal, verify_header, verify_version, BitmapRef, Block, BlockHeader, BlockKind, BlockNo, Expect,
    Generation, GroupNo, Inode, MetaAddr, RootZone, Superblock, ZoneHeader, ZoneNo, ZoneTableEntry,
    ZoneTableMut, ZoneTableRef, BITS_PER_GROUP, BLOCK_SIZE, INODES_PER_BLOCK, NOT_INODES,
};

/// Blocks between two that are read together, which are read with them rather than with another request.
const GAP: u64 = 16;
/// The most blocks of such a request: 1 MiB.
const REQUEST: u64 = 256;

/// Settles the zones of a volume.
pub(crate) struct Settling<'o, 'd> {
    disk: &'o Overlay<'d>,
    uuid: [u8; 16],
    volume_tag: u32,
    geometry: Geometry,
    /// The superblock's `in_place_since`.
    since: Generation,
    /// The generation that is written.
    generation: Generation,
    /// Called before each zone. Whoever wants this to end has the device fail then.
    each_zone: &'o dyn Fn(),
}

/// Puts in front of the device what closing the volume would write. False if it has been closed.
pub(crate) fn settle(disk: &Overlay<'_>, found: &Found) -> Result<bool, CheckError> {
    settle_watched(disk, found, &|| {})
}

/// As [`settle`], and calls `each_zone` before it reads a zone.
pub(crate) fn settle_watched(
    disk: &Overlay<'_>,
    found: &Found,
    each_zone: &dyn Fn(),
) -> Result<bool, CheckError> {
    let mut sb = found.superblock.clone();
    let since = sb.in_place_since;
    if since.0 == 0 {
        return Ok(false);
    }
    disk.set_in_use(InUse { since, generation: sb.generation });
    // The other slot may be of the same generation.
    let generation = Generation(found.newest.0.saturating_add(1));
    let settling = Settling { each_zone, ..Settling::new(disk, &sb, since, generation) };
    for n in 0..sb.root_zones.len() {
        let Some(root) = sb.root_zones[n] else { continue };
        if let Some(settled) = settling.root_zone(n as u32, root)? {
            sb.root_zones[n] = Some(settled);
        }
    }
    sb.generation = generation;
    sb.set_in_place_since(Generation(0));
    // The slot of a superblock that was made just now is written in any case.
    let slot = match disk.is_changed(SUPERBLOCKS[found.slot as usize]) {
        true => found.slot,
        false => 1 - found.slot,
    };
    disk.write(SUPERBLOCKS[slot as usize], &sb.encode(slot));
    Ok(true)
}

impl<'o, 'd> Settling<'o, 'd> {
    /// By the rules for a volume that was in use from generation `since` on.
    pub(crate) fn new(
        disk: &'o Overlay<'d>,
        sb: &Superblock,
        since: Generation,
        generation: Generation,
    ) -> Settling<'o, 'd> {
        let (uuid, volume_tag) = (sb.uuid, sb.volume_tag());
        let geometry = sb.geometry();
        Settling { disk, uuid, volume_tag, geometry, since, generation, each_zone: &|| {} }
    }

    fn read(&self, at: BlockNo) -> Result<Box<Block>, CheckError> {
        Ok(self.disk.read(at)?)
    }

    fn is_within(&self, start: BlockNo) -> bool {
        let end = start.0.saturating_add(ZONE_BLOCKS);
        end <= self.geometry.blocks && end <= self.disk.size() / BLOCK_SIZE as u64
    }

    /// The header in one slot of a zone, if it verifies as one of this zone.
    fn header(&self, no: ZoneNo, start: BlockNo, slot: u8) -> Result<Option<(ZoneHeader, u32)>, CheckError> {
        let at = BlockNo(start.0 + HEADER_SLOTS[usize::from(slot & 1)]);
        let block = self.read(at)?;
        let decoded = verify_header(&block, ZoneHeader::addr(no), self.volume_tag, at)
            .and_then(|()| ZoneHeader::decode(&block));
        let is_own =
            |header: &ZoneHeader| header.start == start && header.zone == no && header.uuid == self.uuid;
        let crc = BlockHeader::of(&block).crc.get();
        Ok(decoded.ok().filter(is_own).map(|header| (header, crc)))
    }

    /// A root zone, whose header must be the recorded one, with the zones that its table names. `None`: it
    /// cannot be used.
    fn root_zone(&self, n: u32, root: RootZone) -> Result<Option<RootZone>, CheckError> {
        let no = ZoneNo::root(n);
        if !self.is_within(root.start) {
            return Ok(None);
        }
        let named = self.header(no, root.start, root.header_slot)?;
        let Some((mut header, _)) = named.filter(|(_, crc)| *crc == root.crc) else { return Ok(None) };
        for index in (0..ZONE_INDEXES as u16).filter(|index| header.has(*index)).collect::<Vec<_>>() {
            let i = usize::from(index);
            let at = BlockNo(root.start.0 + u64::from(header.map[i]));
            let mut table = self.read(at)?;
            let addr = MetaAddr::new(no, index);
            let is_sound = verify_header(&table, addr, self.volume_tag, at)
                .and_then(|()| verify_version(&table, header.checks[i], addr, at))
                .and_then(|()| Expect::volume(BlockKind::ZoneTable).check(&table))
                .is_ok();
            let Some(slot) = self.disk.free_slot(&header).filter(|_| is_sound) else { continue };
            self.table(n, index, &mut table)?;
            header.checks[i] = seal(&mut table, self.generation);
            header.map[i] = slot;
            self.disk.write(BlockNo(root.start.0 + u64::from(slot)), &table);
        }
        let header_slot = 1 - (root.header_slot & 1);
        let (block, crc) = header.encode(self.generation);
        self.disk.write(BlockNo(root.start.0 + HEADER_SLOTS[usize::from(header_slot)]), &block);
        Ok(Some(RootZone { generation: self.generation, crc, header_slot, ..root }))
    }

    /// Settles the zones that a block of the zone table names, and enters their headers there.
    pub(crate) fn table(&self, root: u32, index: u16, table: &mut Block) -> Result<(), CheckError> {
        let first = (root * ZONE_INDEXES + u32::from(index)) * ZONE_TABLE_ENTRIES as u32;
        for i in 0..ZONE_TABLE_ENTRIES {
            let entry = ZoneTableRef::new(table).entry(i);
            if !entry.is_present() {
                continue;
            }
            if let Some(entry) = self.zone(ZoneNo(first + i as u32), entry)? {
                ZoneTableMut::new(table).set(i, entry);
            }
        }
        Ok(())
    }

    /// A zone with what its blocks say; returns its entry in the table.
    fn zone(&self, no: ZoneNo, mut entry: ZoneTableEntry) -> Result<Option<ZoneTableEntry>, CheckError> {
        (self.each_zone)();
        let start = BlockNo(entry.start.get());
        if !self.is_within(start) {
            return Ok(None);
        }
        let mut rank = (Generation(entry.generation.get()), 0);
        let named = self.header(no, start, entry.header_slot)?;
        let mut latest = named
            .filter(|(header, crc)| header.generation == rank.0 && *crc == entry.crc.get())
            .map(|(header, _)| (header, entry.header_slot & 1));
        for slot in 0..2 {
            if let Some((header, _)) = self.header(no, start, slot)? {
                if header.replaces(rank, self.since) {
                    rank = (header.generation, header.round);
                    latest = Some((header, slot));
                }
            }
        }
        let Some((mut header, slot)) = latest else { return Ok(None) };
        self.blocks(&mut header, &mut entry)?;
        let used = header.exists.iter().map(|word| word.count_ones()).sum::<u32>();
        let inodes = header.inode_free.iter().filter(|free| **free != NOT_INODES);
        entry.free_inodes = (inodes.map(|free| u32::from(*free)).sum::<u32>() as u16).into();
        entry.free_indexes = (ZONE_INDEXES.saturating_sub(used) as u16).into();
        entry.header_slot = 1 - slot;
        let (block, crc) = header.encode(self.generation);
        self.disk.write(BlockNo(start.0 + HEADER_SLOTS[usize::from(entry.header_slot)]), &block);
        entry.generation = self.generation.0.into();
        entry.crc = crc.into();
        Ok(Some(entry))
    }

    /// Takes over what the blocks say that a header names, in ascending order of their slots. It has no round
    /// then.
    pub(crate) fn blocks(
        &self,
        header: &mut ZoneHeader,
        entry: &mut ZoneTableEntry,
    ) -> Result<(), CheckError> {
        if self.is_within(header.start) {
            let mut places: Vec<(u64, u16)> = (0..ZONE_INDEXES as u16)
                .filter(|index| header.has(*index))
                .map(|index| (u64::from(header.map[usize::from(index)]), index))
                .collect();
            places.sort_unstable();
            let mut rest = &places[..];
            while !rest.is_empty() {
                let (count, len) = near(rest.iter().map(|(slot, _)| *slot), GAP, REQUEST);
                let (together, left) = rest.split_at(count);
                self.blocks_near(header, entry, together, len)?;
                rest = left;
            }
        }
        header.round = 0;
        Ok(())
    }

    /// Takes over what blocks say that lie within `len` slots. They are read together; and one by one if that
    /// fails, perhaps because of a block between them, which nobody needs.
    fn blocks_near(
        &self,
        header: &mut ZoneHeader,
        entry: &mut ZoneTableEntry,
        places: &[(u64, u16)],
        len: u64,
    ) -> Result<(), CheckError> {
        let Some(first) = places.first().map(|(slot, _)| *slot) else { return Ok(()) };
        let mut bytes = AlignedBuf::zeroed(len as usize);
        let is_read = self.disk.read_at((header.start.0 + first) * BLOCK_SIZE as u64, &mut bytes).is_ok();
        for (slot, index) in places {
            let from = (slot - first) as usize * BLOCK_SIZE;
            match is_read {
                true => {
                    let block = bytes[from..from + BLOCK_SIZE].try_into().expect("a whole block");
                    self.block(header, entry, *index, block)?;
                }
                false => {
                    let block = self.read(BlockNo(header.start.0 + slot))?;
                    self.block(header, entry, *index, &block)?;
                }
            }
        }
        Ok(())
    }

    /// Takes over what a block says of itself.
    fn block(
        &self,
        header: &mut ZoneHeader,
        entry: &mut ZoneTableEntry,
        index: u16,
        block: &Block,
    ) -> Result<(), CheckError> {
        let i = usize::from(index);
        let at = BlockNo(header.start.0 + u64::from(header.map[i]));
        let addr = MetaAddr::new(header.zone, index);
        let is_sound = |block: &Block| verify_header(block, addr, self.volume_tag, at).is_ok();
        // A block that was only read wrong, and was written over since, would seem to be another version than
        // the header records to whoever reads it later.
        let again = if is_sound(block) { None } else { Some(self.read(at)?) };
        let block = again.as_deref().unwrap_or(block);
        if !is_sound(block) || !header.means(index, block, self.since) {
            return Ok(());
        }
        header.checks[i] = BlockHeader::of(block).crc.get();
        header.inode_free[i] = NOT_INODES;
        match BlockKind::from_repr(BlockHeader::of(block).kind) {
            Some(BlockKind::Inodes) => {
                let free = (0..INODES_PER_BLOCK).filter(|slot| Inode::slot_is_free(block, *slot)).count();
                header.inode_free[i] = free as u8;
            }
            Some(BlockKind::Bitmap) if index == 0 && header.zone.is_primary() => {
                let usable = self.geometry.data_blocks(GroupNo(header.zone.0 / 2)) as u32;
                let used = BitmapRef::new(block).used().saturating_sub(BITS_PER_GROUP - usable);
                entry.free_blocks = (usable.saturating_sub(used) as u16).into();
            }
            _ => {}
        }
        Ok(())
    }
}
