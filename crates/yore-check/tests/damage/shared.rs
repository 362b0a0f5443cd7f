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
];
