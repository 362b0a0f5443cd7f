//! Damages of what counts shared blocks.

use super::*;
use common::shared::count_table;

/// Gives two files the same block, and nothing else, and has the group's table count both references.
fn share(b: &mut Builder, block: BlockNo) {
    for number in [EXTENTS, FAR] {
        let inode = b.inode(number);
        ExtentValue::encode_inline(inode, &[(0, extent(block, 1, false))]);
        (inode.size, inode.blocks) = (4096, 1);
    }
    count_table(b, 2, 2);
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
    ("a block of a zone is counted as one that two files share", &[SpaceOwnedTwice, SpaceLeaked], |b| {
        share(b, BlockNo(3 * ZONE_BLOCKS + 20));
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

/// A block of a zone or of the log that files have, too, was found sound if a table counted these references.
/// Promises that it is found, with the zone or the log as the first owner, and that a repair takes it from
/// all files.
#[test]
fn what_a_table_counts_may_not_be_of_the_volume() {
    let log = BlockNo(2 * ZONE_BLOCKS);
    for (block, whose) in [(BlockNo(3 * ZONE_BLOCKS + 20), "a further zone"), (BlockNo(log.0 + 3), "the log")]
    {
        let mut b = sound();
        share(&mut b, block);
        if whose == "the log" {
            b.used.push((log, 8));
            superblock(&mut b, |sb| (sb.log_start, sb.log_blocks) = (BlockNo(2 * ZONE_BLOCKS), 8));
        }
        let device = b.finish();
        let report = checked(&device);
        let twice: Vec<_> = report.findings.iter().filter(|f| f.problem == SpaceOwnedTwice).collect();
        let [finding] = &twice[..] else { panic!("{whose}: {report}") };
        assert_eq!((finding.block, finding.inode), (Some(block), Some(InodeNo(EXTENTS))), "{whose}");
        let first = finding.first.as_ref().expect("the first owner is known");
        assert_eq!((&*first.what, first.inode), (whose, None));
        let plan = yore_check::plan_repair(&device, &CheckOptions::default()).unwrap();
        assert!(plan.is_complete(), "{whose}: {}", plan.after);
        let named = plan.lost.iter().filter(|lost| lost.what.contains(whose)).map(|lost| &*lost.path);
        let named: BTreeSet<&str> = named.collect();
        assert_eq!(named, BTreeSet::from(["/extents", "/far"]), "{whose}: {:?}", plan.lost);
    }
}
