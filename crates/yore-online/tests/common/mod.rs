//! Plants damage in a volume that nobody uses: changes one block, and puts everything right that has a
//! checksum of it, up to the superblock.

// Each test program uses some of this.
#![allow(dead_code)]

use yore_device::{Device, MemoryDevice};
use yore_format::layout::{HEADER_SLOTS, ZONE_INDEXES, ZONE_TABLE_ENTRIES};
use yore_format::*;

pub fn read(device: &MemoryDevice, block: u64) -> Box<Block> {
    let mut bytes = Box::new(ZERO_BLOCK);
    device.read_at(block * BLOCK_SIZE as u64, &mut bytes[..]).unwrap();
    bytes
}

fn write(device: &MemoryDevice, block: u64, bytes: &Block) {
    device.write_at(block * BLOCK_SIZE as u64, bytes).unwrap();
}

/// Where a sound volume has its superblock, and what that says.
fn superblock(device: &MemoryDevice) -> (u32, Superblock) {
    let (superblock, slot, _) = decode_slots([&read(device, 0), &read(device, 1)]).unwrap();
    (slot, superblock)
}

/// Changes the block at `addr`. `free` is what that adds to the free blocks of a group, if it is a bitmap.
pub fn plant(device: &MemoryDevice, addr: MetaAddr, free: i64, change: impl FnOnce(&mut Block)) {
    let (slot, mut sb) = superblock(device);
    let mut root = sb.root_zones[0].unwrap();
    let root_header_at = root.start.0 + HEADER_SLOTS[usize::from(root.header_slot)];
    let mut root_header = ZoneHeader::decode(&read(device, root_header_at)).unwrap();
    let table_at = root.start.0 + u64::from(root_header.map[0]);
    let mut table = read(device, table_at);
    let i = addr.zone().0 as usize;
    let mut entry = ZoneTableRef::new(&table).entry(i);
    let header_at = entry.start.get() + HEADER_SLOTS[usize::from(entry.header_slot)];
    let mut header = ZoneHeader::decode(&read(device, header_at)).unwrap();
    let at = entry.start.get() + u64::from(header.map[usize::from(addr.index())]);
    let mut block = read(device, at);
    change(&mut block);
    let generation = Generation(BlockHeader::of(&block).generation.get());
    header.checks[usize::from(addr.index())] = seal(&mut block, generation);
    write(device, at, &block);
    let (bytes, crc) = header.encode(header.generation);
    write(device, header_at, &bytes);
    entry.crc = crc.into();
    entry.free_blocks = ((i64::from(entry.free_blocks.get()) + free) as u16).into();
    ZoneTableMut::new(&mut table).set(i, entry);
    let generation = Generation(BlockHeader::of(&table).generation.get());
    root_header.checks[0] = seal(&mut table, generation);
    write(device, table_at, &table);
    let (bytes, crc) = root_header.encode(root_header.generation);
    write(device, root_header_at, &bytes);
    root.crc = crc;
    sb.root_zones[0] = Some(root);
    sb.free_blocks = sb.free_blocks.checked_add_signed(free).unwrap();
    write(device, u64::from(slot), &sb.encode(slot));
}

/// The addresses of all blocks of zones.
pub fn addresses(device: &MemoryDevice) -> Vec<MetaAddr> {
    let root = superblock(device).1.root_zones[0].unwrap();
    let header_of = |start: BlockNo, slot: u8| {
        ZoneHeader::decode(&read(device, start.0 + HEADER_SLOTS[usize::from(slot)])).unwrap()
    };
    let table = read(device, root.start.0 + u64::from(header_of(root.start, root.header_slot).map[0]));
    let table = ZoneTableRef::new(&table);
    let entries =
        (0..ZONE_TABLE_ENTRIES).map(|i| (i, table.entry(i))).filter(|(_, entry)| entry.is_present());
    let in_zone = |(i, entry): (usize, ZoneTableEntry)| {
        let header = header_of(BlockNo(entry.start.get()), entry.header_slot);
        let indexes = (0..ZONE_INDEXES as u16).filter(move |index| header.has(*index));
        indexes.map(move |index| MetaAddr::new(ZoneNo(i as u32), index))
    };
    entries.flat_map(in_zone).collect()
}

/// Marks `len` free blocks of group 0 as used, in two runs if they do not follow one another. Returns the
/// first of them.
pub fn plant_leak(device: &MemoryDevice, len: u32) -> BlockNo {
    let mut first = None;
    plant(device, MetaAddr::new(ZoneNo::primary(GroupNo(0)), 0), -i64::from(len), |block| {
        let mut left = len;
        for bit in 3000..BITS_PER_GROUP {
            let is_free = !BitmapRef::new(block).get(bit);
            if is_free && left > 0 {
                BitmapMut::new(block).set(bit, 1, true);
                first.get_or_insert(bit);
                left -= 1;
            }
        }
        assert_eq!(left, 0, "there are so many free blocks");
    });
    let geometry = superblock(device).1.geometry();
    geometry.block_of(GroupNo(0), first.unwrap())
}

/// Changes an inode.
pub fn plant_inode(device: &MemoryDevice, no: InodeNo, change: impl FnOnce(&mut Inode)) {
    plant(device, no.addr(), 0, |block| {
        let mut inode = Inode::decode(Inode::slot(block, no.slot())).unwrap();
        change(&mut inode);
        inode.encode(Inode::slot_mut(block, no.slot()).0);
    });
}
