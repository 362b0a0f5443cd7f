//! Blocks that several files share.

use super::*;

/// Gives the group of a file's first block a table in which the block has these counts.
pub fn count_table(b: &mut Builder, references: u16, in_use: u16) -> MetaAddr {
    let start = ExtentValue::decode_inline(b.inode(EXTENTS)).unwrap()[0].1.start;
    let (group, bit) = b.sb.geometry().bit_of(start).unwrap();
    let (table, entry) = table_of(group, bit);
    let zone = ZoneNo::primary(group);
    let addr = MetaAddr::new(zone, 300);
    let mut block = block(BlockKind::CountTable, 0, addr, table.owner(), 0);
    CountTableMut::init(&mut block).set(entry, Some(BlockCount { references, in_use }));
    b.zones.get_mut(&zone.0).unwrap().blocks.insert(300, block);
    let position = TablePlace::position(BlockKind::CountTable, table.number());
    let place = TablePlace { zone: 0, index: 300 }.encode();
    b.on_header.push((zone.0, Box::new(move |header| header.tables[position] = place)));
    b.sb.features |= WriteFeatures::TABLES;
    addr
}

/// The sound volume, in which two files share a block, as its group's table says.
pub fn shared() -> Builder {
    let mut b = sound();
    let of_far = ExtentValue::decode_inline(b.inode(FAR)).unwrap();
    b.used.retain(|(start, _)| of_far.iter().all(|(_, extent)| extent.start != *start));
    let first = ExtentValue::decode_inline(b.inode(EXTENTS)).unwrap()[0].1.start;
    let far = b.inode(FAR);
    ExtentValue::encode_inline(far, &[(0, extent(first, 1, false))]);
    (far.size, far.blocks) = (4096, 1);
    count_table(&mut b, 2, 2);
    b
}
