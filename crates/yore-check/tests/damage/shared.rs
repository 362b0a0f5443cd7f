//! Damages of what counts shared blocks.

use super::*;

/// Gives the group of a file's first block a table in which the block has these counts.
fn count_table(b: &mut Builder, references: u16, in_use: u16) -> MetaAddr {
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

/// Gives the same group a checksum table, in which all entries are set.
fn checksum_table(b: &mut Builder) -> MetaAddr {
    let start = ExtentValue::decode_inline(b.inode(EXTENTS)).unwrap()[0].1.start;
    let (group, bit) = b.sb.geometry().bit_of(start).unwrap();
    let (table, _) = table_of(group, bit);
    let zone = ZoneNo::primary(group);
    let addr = MetaAddr::new(zone, 301);
    let mut block = block(BlockKind::ChecksumTable, 0, addr, table.owner(), 0);
    let all = vec![Some(DataChecksum::of(b"data")); yore_format::table_entries(table.number())];
    ChecksumTableMut::init(&mut block).set(0, all);
    b.zones.get_mut(&zone.0).unwrap().blocks.insert(301, block);
    let position = TablePlace::position(BlockKind::ChecksumTable, table.number());
    let place = TablePlace { zone: 0, index: 301 }.encode();
    b.on_header.push((zone.0, Box::new(move |header| header.tables[position] = place)));
    b.sb.features |= WriteFeatures::CHECKSUMS;
    addr
}

pub(super) const SHARED_BLOCKS: &[Plant] = &[
    ("a block has fewer references than are counted", &[SharedCount], |b| {
        count_table(b, 2, 1);
    }),
    ("a count table, and the superblock does not say that there may be some", &[Feature, SharedCount], |b| {
        count_table(b, 2, 2);
        b.sb.features -= WriteFeatures::TABLES;
    }),
    ("a count table is that of another group", &[BlockWrong], |b| {
        let addr = count_table(b, 2, 2);
        let owner = TableNo::new(GroupNo(7), 0).owner().0;
        b.on_block.push((addr, Box::new(move |block| BlockHeader::of_mut(block).owner = owner.into())));
    }),
    ("a checksum table, and the superblock does not say that there may be some", &[Feature], |b| {
        checksum_table(b);
        b.sb.features -= WriteFeatures::CHECKSUMS;
    }),
    ("a checksum table is that of another group", &[BlockWrong], |b| {
        let addr = checksum_table(b);
        let owner = TableNo::new(GroupNo(7), 0).owner().0;
        b.on_block.push((addr, Box::new(move |block| BlockHeader::of_mut(block).owner = owner.into())));
    }),
    ("a checksum table cannot be read", &[BlockDamaged], |b| {
        let addr = checksum_table(b);
        b.on_block.push((addr, Box::new(|block| BlockHeader::of_mut(block).addr = 77.into())));
    }),
];
