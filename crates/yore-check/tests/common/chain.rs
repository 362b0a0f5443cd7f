//! Makes the chain of checksums right, from the superblock down to every metadata block, after a test has
//! changed blocks. Then the damage is in what the blocks say, and not in checksums that no longer match.
//!
//! If the chain cannot be followed because a test has damaged that, too, the rest of it is left as it is.

use yore_device::Device;
use yore_format::layout::{HEADER_SLOTS, ZONE_INDEXES, ZONE_TABLE_ENTRIES};
use yore_format::{
    decode_slots, seal, Block, BlockHeader, BlockNo, Generation, ZoneHeader, ZoneTableMut, ZoneTableRef,
    BLOCK_SIZE, ZERO_BLOCK,
};

/// Records the present checksums in zone headers, zone table, root headers and superblock.
pub fn mend(device: &dyn Device) {
    let slots = [0, 1].map(|slot| read(device, BlockNo(slot)).expect("a volume has superblocks"));
    let Ok((mut superblock, slot, _)) = decode_slots([&slots[0], &slots[1]]) else { return };
    for root in superblock.root_zones.iter_mut().flatten() {
        if let Some((crc, generation)) = mend_zone(device, root.start, root.header_slot, true) {
            (root.crc, root.generation) = (crc, generation);
        }
    }
    device.write_at(u64::from(slot) * BLOCK_SIZE as u64, &superblock.encode(slot)[..]).unwrap();
}

/// Mends a zone; for a root zone, it first mends the zones below. Returns the header's generation and
/// checksum.
fn mend_zone(
    device: &dyn Device,
    start: BlockNo,
    header_slot: u8,
    is_root: bool,
) -> Option<(u32, Generation)> {
    let at = BlockNo(start.0.checked_add(HEADER_SLOTS[usize::from(header_slot & 1)])?);
    let mut block = read(device, at)?;
    if let Ok(mut header) = ZoneHeader::decode(&block) {
        for index in (0..ZONE_INDEXES as usize).filter(|i| header.map[*i] != 0) {
            let slot = BlockNo(start.0 + u64::from(header.map[index]));
            if is_root {
                mend_table(device, slot);
            }
            if let Some(block) = read(device, slot) {
                header.checks[index] = BlockHeader::of(&block).crc.get();
            }
        }
        // The block's own header stays as the test has made it.
        let own = *BlockHeader::of(&block);
        block = header.encode(header.generation).0;
        *BlockHeader::of_mut(&mut block) = own;
        seal(&mut block, header.generation);
        device.write_at(at.0 * BLOCK_SIZE as u64, &block[..]).unwrap();
    }
    let own = BlockHeader::of(&block);
    Some((own.crc.get(), Generation(own.generation.get())))
}

fn mend_table(device: &dyn Device, at: BlockNo) {
    let Some(mut table) = read(device, at) else { return };
    for i in 0..ZONE_TABLE_ENTRIES {
        let mut entry = ZoneTableRef::new(&table).entry(i);
        if !entry.is_present() {
            continue;
        }
        if let Some((crc, generation)) =
            mend_zone(device, BlockNo(entry.start.get()), entry.header_slot, false)
        {
            (entry.crc, entry.generation) = (crc.into(), generation.0.into());
            ZoneTableMut::new(&mut table).set(i, entry);
        }
    }
    let generation = Generation(BlockHeader::of(&table).generation.get());
    seal(&mut table, generation);
    device.write_at(at.0 * BLOCK_SIZE as u64, &table[..]).unwrap();
}

fn read(device: &dyn Device, block: BlockNo) -> Option<Box<Block>> {
    let offset = block.0.checked_mul(BLOCK_SIZE as u64)?;
    let mut bytes = Box::new(ZERO_BLOCK);
    device.read_at(offset, &mut bytes[..]).ok()?;
    Some(bytes)
}
