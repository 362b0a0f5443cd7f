//! Promises: what later features add to the superblock, zone headers, tables of groups, roots of the history
//! and rows of events comes back and is verified. Without its feature it is refused. This version of the
//! program refuses every volume with such a feature, and names the feature.

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use yore_format::*;

/// Each feature that has a name but no code yet.
fn later() -> impl Iterator<Item = Features> {
    (Features::all() - Features::SUPPORTED).iter()
}

fn superblock(features: Features) -> Superblock {
    let external_log = ExternalLog { session: 300, begins: true, path: b"/dev/disk/by-id/a log".to_vec() };
    let external_log = Some(external_log).filter(|_| features.contains(Features::EXTERNAL_LOG));
    Superblock {
        uuid: [7; 16],
        volume_blocks: 1 << 20,
        generation: Generation(30),
        mount_id: 1,
        engine: Engine::Sync,
        state: VolumeState::Clean,
        next_incarnation: 2,
        next_number: EventNo(1),
        hash_seed: [1; 16],
        created_seconds: 1,
        written_seconds: 1,
        root_directory: InodeNo::ROOT,
        orphan_root: MetaAddr::NONE,
        orphan_level: 0,
        events_root: MetaAddr::NONE,
        history_root: MetaAddr::NONE,
        free_blocks: 1,
        inodes: 1,
        metadata_blocks: 2,
        zones: 2,
        zone_number_limit: 1,
        log_start: BlockNo(0),
        log_blocks: if external_log.is_some() { 1000 } else { 0 },
        log_id: 0,
        log_position: 0,
        log_number: 7,
        log_sequence: 8,
        log_chain: 9,
        log_generation: Generation(10),
        external_log,
        label: "x".into(),
        features: WriteFeatures::of(features).stored(),
        space_rules: None,
        in_place_since: Generation(0),
        step: 0,
        findings_root: MetaAddr::NONE,
        findings_level: 0,
        scrub: Scrub::default(),
        root_zones: vec![Some(RootZone {
            start: BlockNo(0),
            generation: Generation(3),
            crc: 1,
            header_slot: 0,
        })],
    }
}

fn corruption(state: SlotState) -> Box<Corruption> {
    match state {
        SlotState::Corrupt(_, c) => c,
        other => panic!("{other:?}"),
    }
}

/// Promises that no volume with a feature is used before there is code for the feature, and that the message
/// names it.
#[test]
fn volumes_with_later_features_are_refused_by_name() {
    let supported = [
        Features::RESIZED,
        Features::ANNALS,
        Features::TABLES,
        Features::IN_PLACE,
        Features::CHECKSUMS,
        Features::EXTERNAL_LOG,
        Features::LOG_GAPS,
    ];
    assert_eq!(Features::SUPPORTED, supported.into_iter().collect());
    for feature in later() {
        let sb = superblock(feature);
        let block = sb.encode(0);
        let c = corruption(Superblock::decode(&block, 0));
        assert_eq!(c.field, "features");
        assert!(c.found.contains(&feature.to_string()), "{c}");
        let read = Superblock::decode_with(&block, 0, Features::all());
        assert_eq!(read, SlotState::Valid(Box::new(sb)), "{feature}");
    }
    let mut unknown = superblock(Features::FINDINGS).encode(0);
    unknown[46] = 1;
    let crc = checksum_except(&unknown[..], 16);
    unknown[16..20].copy_from_slice(&crc.to_le_bytes());
    for known in [Features::SUPPORTED, Features::FINDINGS, Features::all()] {
        let c = corruption(Superblock::decode_with(&unknown, 0, known));
        assert!(c.found.contains("unknown feature bits 0x1000000000000"), "{c}");
        assert_eq!(c.found.contains("recorded findings"), known == Features::SUPPORTED, "{c}");
    }
    for feature in Features::SUPPORTED.iter() {
        let sb = superblock(feature);
        assert_eq!(Superblock::decode(&sb.encode(0), 0), SlotState::Valid(Box::new(sb)));
    }
    assert_eq!(superblock(Features::all()).encode(0)[40..48], 0xffu64.to_le_bytes());
}

/// Promises that fields of a superblock are zero without their feature, and possible with it.
#[test]
fn fields_of_a_superblock_need_their_feature() {
    let decode = |sb: &Superblock| Superblock::decode_with(&sb.encode(0), 0, Features::all());
    let in_place = |features| Superblock { in_place_since: Generation(29), ..superblock(features) };
    let found =
        |features| Superblock { findings_root: MetaAddr(9), findings_level: 2, ..superblock(features) };
    let scrub = Scrub { position: BlockNo(77), began: -1, ended: i64::MAX };
    let scrubbed = |features| Superblock { scrub, ..superblock(features) };
    for (sb, feature) in
        [(in_place as fn(Features) -> Superblock, Features::IN_PLACE), (found, Features::FINDINGS)]
    {
        assert_eq!(decode(&sb(feature)), SlotState::Valid(Box::new(sb(feature))));
        assert_eq!(corruption(decode(&sb(Features::all() - feature))).field, "reserved bytes");
    }
    let all = scrubbed(Features::all());
    assert_eq!(decode(&all), SlotState::Valid(Box::new(all)));
    assert_eq!(corruption(decode(&scrubbed(Features::all() - Features::FINDINGS))).field, "reserved bytes");
    for engine in [Engine::Snapshot, Engine::Journal] {
        let sb = Superblock { engine, ..in_place(Features::IN_PLACE) };
        assert_eq!(corruption(decode(&sb)).field, "first generation in place");
    }
    let beyond = Scrub { position: BlockNo(1 << 20), ..Scrub::default() };
    let sb = Superblock { scrub: beyond, ..superblock(Features::FINDINGS) };
    assert_eq!(corruption(decode(&sb)).field, "position of the scrub");
    let sb = Superblock { findings_level: 1, ..superblock(Features::FINDINGS) };
    assert_eq!(corruption(decode(&sb)).field, "level of the findings");
    let elsewhere = |change: fn(&mut Superblock)| {
        let mut sb = superblock(Features::EXTERNAL_LOG);
        change(&mut sb);
        corruption(decode(&sb)).field
    };
    let log = |sb: &mut Superblock| sb.external_log.clone().unwrap();
    assert_eq!(elsewhere(|sb| sb.log_start = BlockNo(5000)), "log");
    assert_eq!(elsewhere(|sb| sb.log_blocks = 0), "log");
    assert_eq!(elsewhere(|sb| sb.external_log.as_mut().unwrap().session = 0), "session of the log");
    let mut sb = superblock(Features::EXTERNAL_LOG);
    let path = vec![b'/'; LOG_PATH_MAX];
    sb.external_log = Some(ExternalLog { path, begins: false, ..log(&mut sb) });
    assert_eq!(decode(&sb), SlotState::Valid(Box::new(sb.clone())));
    let mut block = sb.encode(0);
    block[378] = 2;
    let crc = checksum_except(&block[..], 16);
    block[16..20].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(corruption(Superblock::decode(&block, 0)).field, "whether a session begins");
    let sb = Superblock { next_number: EventNo(EVENT_LIMIT), ..superblock(Features::ANNALS) };
    assert_eq!(corruption(decode(&sb)).field, "next event number");
    let sb = Superblock { features: WriteFeatures::empty(), ..sb };
    assert_eq!(decode(&sb), SlotState::Valid(Box::new(sb)));
}

/// A block of this kind, without content.
fn block_of(kind: BlockKind, owner: InodeNo) -> Box<Block> {
    let mut block = Box::new(ZERO_BLOCK);
    BlockHeader::init(&mut block, kind, 0, MetaAddr(5), owner, Incarnation(0), 9, EventNo(0));
    if kind.is_tree() {
        NodeMut::init(&mut block, kind.key_width().unwrap_or(8));
    }
    seal(&mut block, Generation(3));
    block
}

/// Promises that blocks of later kinds verify with their feature, and are of an unknown kind without it.
#[test]
fn kinds_need_their_feature() {
    let table = TableNo::new(GroupNo(7), 3).owner();
    for kind in (18..=24).map(|kind| BlockKind::from_repr(kind).unwrap()) {
        let block = block_of(kind, if kind.is_table() { table } else { InodeNo::HISTORY });
        let verify = |features| verify_header_with(&block, MetaAddr(5), 9, BlockNo(8), features);
        assert_eq!(verify(kind.feature()), Ok(()), "{}", kind.name());
        for features in [Features::all() - kind.feature(), Features::RESIZED] {
            let c = verify(features).unwrap_err();
            assert_eq!((c.field, &c.found[..]), ("kind", &(kind as u8).to_string()[..]));
        }
        assert!(kind.is_tree() != kind.is_table());
        assert_eq!(BlockHeader::of(&block).owner_inode().is_none(), kind.is_table());
    }
    let mut wide = block_of(BlockKind::Annals, InodeNo::HISTORY);
    NodeMut::init(&mut wide, 16);
    assert_eq!(NodeRef::new(&wide).verify().unwrap_err().field, "key width");
}

fn header() -> ZoneHeader {
    let mut header = ZoneHeader::empty([9; 16], 1 << 20, BlockNo(1 << 15), ZoneNo(2), GroupNo(1));
    for index in 0..4usize {
        header.exists[0] |= 1 << index;
        header.map[index] = 10 + index as u16;
    }
    header.inode_free[1] = 7;
    header.extras[4] = 11;
    header
}

/// Promises that a header says where tables are: in the zones of its group, each table once. Only headers of
/// first zones say so.
#[test]
fn tables_are_in_zones_of_the_group() {
    let decode = |header: &ZoneHeader, features| {
        let block = header.encode(Generation(3)).0;
        ZoneHeader::decode_with(&block, features).map(|h| h.tables).map_err(|c| c.field)
    };
    let with = |tables: &[(usize, u8, u16)]| {
        let mut header = header();
        for (at, zone, index) in tables {
            header.tables[*at] = TablePlace { zone: *zone, index: *index }.encode();
        }
        header
    };
    let sound = with(&[(0, 0, 3), (31, 5, 0), (32, 5, 509)]);
    assert_eq!(decode(&sound, Features::all()), Ok(sound.tables));
    assert_eq!(decode(&sound, Features::TABLES), Err("reserved bytes"), "checksum tables");
    assert_eq!(decode(&sound, Features::CHECKSUMS), Err("reserved bytes"), "count tables");
    assert_eq!(sound.table(BlockKind::CountTable, 0), Some(MetaAddr::new(ZoneNo(2), 3)));
    assert_eq!(sound.table(BlockKind::CountTable, 31), Some(MetaAddr::new(ZoneNo(11), 0)));
    assert_eq!(sound.table(BlockKind::ChecksumTable, 0), Some(MetaAddr::new(ZoneNo(11), 509)));
    assert_eq!(sound.table(BlockKind::ChecksumTable, 1), None);
    for wrong in [
        with(&[(0, 0, 1)]),             // inodes
        with(&[(0, 0, 4)]),             // does not exist
        with(&[(0, 1, 4)]),             // no such zone
        with(&[(0, 5, 510)]),           // no such index
        with(&[(0, 5, 7), (40, 5, 7)]), // twice
    ] {
        assert_eq!(decode(&wrong, Features::all()), Err("tables"), "{:?}", wrong.tables);
    }
    let further = ZoneHeader { zone: ZoneNo(11), extras: [0; 31], ..with(&[(0, 0, 3)]) };
    assert_eq!(decode(&further, Features::all()), Err("tables"));
    assert_eq!(
        (TABLE_ENTRIES, TABLES_PER_GROUP, table_entries(30), table_entries(31)),
        (1008, 32, 1008, 496)
    );
}

/// Promises that reserved bytes of a header are still verified, as before some of them got a meaning.
#[test]
fn reserved_bytes_of_a_zone_header_are_verified() {
    for at in [678, 3864, 3865, 3991, 3992, 4095] {
        let mut block = header().encode(Generation(3)).0;
        block[at] = 1;
        let decoded = ZoneHeader::decode_with(&block, Features::RESIZED);
        assert_eq!(decoded.unwrap_err().field, "reserved bytes", "byte {at}");
        if at == 678 {
            assert_eq!(ZoneHeader::decode(&block).unwrap().round, 1);
            continue;
        }
        let is_place = (3864..3992).contains(&at);
        let field = if is_place { "tables" } else { "reserved bytes" };
        assert_eq!(ZoneHeader::decode(&block).unwrap_err().field, field, "byte {at}");
    }
}

proptest! {
    #[test]
    fn count_tables_come_back(
        entries in vec((0usize..TABLE_ENTRIES, 0u16..=u16::MAX, any::<u16>()), 0..100),
        (group, number) in (0u32..1 << 20, 0u8..32),
    ) {
        let table = TableNo::new(GroupNo(group), number);
        let mut block = block_of(BlockKind::CountTable, table.owner());
        let mut expected = vec![None; TABLE_ENTRIES];
        for (i, references, in_use) in entries {
            let count = BlockCount { references, in_use: in_use.min(references) };
            CountTableMut::new(&mut block).set(i, Some(count));
            expected[i] = (references > 1).then_some(count);
        }
        let read = CountTableRef::new(&block);
        prop_assert_eq!((0..TABLE_ENTRIES).map(|i| read.get(i)).collect::<Vec<_>>(), expected.clone());
        prop_assert_eq!(read.is_empty(), expected.iter().all(Option::is_none));
        let beyond = expected[table_entries(number)..].iter().any(Option::is_some);
        prop_assert_eq!(read.verify().is_ok(), !beyond);
        prop_assert_eq!(TableNo::from_owner(table.owner()), Some(table));
        prop_assert!(!table.owner().is_file());
    }

    #[test]
    fn owners_are_of_one_table(owner in prop_oneof![any::<u64>(), (1u64 << 63..).prop_map(|n| n & !0 << 20)]) {
        if let Some(table) = TableNo::from_owner(InodeNo(owner)) {
            prop_assert_eq!(table.owner().0, owner);
        }
    }

    #[test]
    fn blocks_are_described_once(bits in btree_set(0u32..BITS_PER_GROUP, 0..50)) {
        for bit in bits {
            let (table, entry) = table_of(GroupNo(7), bit);
            prop_assert!(entry < table_entries(table.number()));
            prop_assert_eq!(u32::from(table.number()) * 1008 + entry as u32, bit);
        }
    }

    #[test]
    fn short_events_come_back(
        (kind, state, held) in (1u8..8, 1u8..4, any::<bool>()),
        (seconds, nanos) in (any::<i64>(), 0u32..1_000_000_000),
        (index, incarnation) in (1u64..1 << 30, any::<u32>()),
        name in "[a-z]{0,3}",
    ) {
        let states = [EventState::Kept, EventState::Dying, EventState::Forgotten];
        let row = EventRow {
            time: Timestamp { seconds, nanos },
            kind: EventKind::from_repr(kind).unwrap(),
            state: states[usize::from(state) - 1],
            held,
            root: InodeNo(index << 13),
            root_incarnation: Incarnation(incarnation),
            name,
            more: EventMore::default(),
        };
        prop_assert_eq!(row.encode_with(Features::RESIZED), row.encode());
        let bytes = row.encode_with(Features::ANNALS);
        prop_assert_eq!(bytes.len() < EVENT_FIXED_BYTES, row.name.is_empty());
        prop_assert_eq!(&EventRow::decode_with(&bytes, Features::ANNALS).unwrap(), &row);
        prop_assert_eq!(&EventRow::decode_with(&row.encode(), Features::ANNALS).unwrap(), &row);
        prop_assert_eq!(EventRow::decode(&bytes).is_err(), row.name.is_empty());
    }

    #[test]
    fn any_bytes_are_an_event_or_refused(bytes in vec(any::<u8>(), 0..40)) {
        if let Ok(row) = EventRow::decode_with(&bytes, Features::ANNALS) {
            let again = if bytes.len() < EVENT_FIXED_BYTES { row.encode_with(Features::ANNALS) } else { row.encode() };
            prop_assert_eq!(again, bytes);
        }
    }
}

/// Promises that a checksum of 0 is told from an unknown checksum.
#[test]
fn checksums_are_known_or_not() {
    let mut block = block_of(BlockKind::ChecksumTable, TableNo::new(GroupNo(0), 0).owner());
    assert!(ChecksumTableRef::new(&block).is_empty());
    // The crc32c of these four bytes is 0.
    let bytes = [0xab, 0x9b, 0xe0, 0x9b];
    let (zero, other) = (DataChecksum::of(&bytes), DataChecksum::of(b"other"));
    assert_eq!((checksum(&bytes), zero.get()), (0, u32::MAX));
    for (i, checksum) in [(0, zero), (1, other), (1007, other)] {
        ChecksumTableMut::new(&mut block).set(i, [Some(checksum)]);
        let table = ChecksumTableRef::new(&block);
        assert_eq!(table.get(i), Some(checksum));
        table.verify().unwrap();
    }
    ChecksumTableMut::new(&mut block).set(1, [None]);
    assert_eq!(ChecksumTableRef::new(&block).get(1), None);
    for (at, field) in [(16, "owner"), (23, "owner"), (24, "incarnation of its owner")] {
        let mut block = block.clone();
        block[at] ^= 0xa0;
        assert_eq!(ChecksumTableRef::new(&block).verify().unwrap_err().field, field, "byte {at}");
    }
}

/// Promises that a count that no change can leave is refused.
#[test]
fn impossible_counts_are_refused() {
    for entry in [1u32, 1 << 16, 1 << 16 | 1, 3 << 16 | 2, 0xffff_0000] {
        let mut block = block_of(BlockKind::CountTable, TableNo::new(GroupNo(0), 0).owner());
        block[64 + 400..64 + 404].copy_from_slice(&entry.to_le_bytes());
        assert_eq!(CountTableRef::new(&block).verify().unwrap_err().field, "entry", "{entry:#x}");
    }
}

fn roots() -> Box<Block> {
    block_of(BlockKind::HistoryRoots, InodeNo::HISTORY)
}

/// Promises where the fields of the annals are, and that they are verified.
#[test]
fn roots_of_the_annals_come_back() {
    let mut block = roots();
    let counts = AnnalsCounts {
        annals_from: EventNo(5),
        hint: Some(HintPlace { start: BlockNo(6), blocks: 2, generation: Generation(7) }),
        moved: EventNo(8),
        references: u64::MAX,
    };
    HistoryRoots::set_annals_counts(&mut block, counts);
    for shard in 0..HISTORY_SHARDS {
        let mark = AnnalsKey { end: EventNo(4 + shard as u64), sequence: u32::MAX - shard as u32 };
        HistoryRoots::set_watermark(&mut block, shard, mark);
        HistoryRoots::set(&mut block, HistoryTree::Annals(shard), MetaAddr(600 + shard as u64), 1);
        assert_eq!(HistoryRoots::watermark(&block, shard), mark);
    }
    HistoryRoots::set(&mut block, HistoryTree::Spans, MetaAddr(700), 0);
    assert_eq!(HistoryRoots::annals_counts(&block), counts);
    assert_eq!(block[936..944], 600u64.to_le_bytes());
    assert_eq!(block[1224..1232], 700u64.to_le_bytes());
    assert_eq!(block[1288..1296], 4u64.to_le_bytes());
    assert_eq!(block[1544..1552], 5u64.to_le_bytes());
    assert_eq!(block[1552..1560], (6u64 | 2 << 48).to_le_bytes());
    assert_eq!(block[1560..1568], 7u64.to_le_bytes());
    HistoryRoots::verify_with(&block, Features::ANNALS).unwrap();
    HistoryRoots::verify_with(&block, Features::RESIZED).unwrap_err();
    for at in [1240, 1287, 1300, 1303, 1550, 1574, 1584, 4095] {
        let mut block = block.clone();
        block[at] = 1;
        assert!(HistoryRoots::verify_with(&block, Features::ANNALS).is_err(), "byte {at}");
    }
    // Data blocks that the past alone has are references, too.
    HistoryRoots::set_annals_counts(&mut block, AnnalsCounts { references: 20, ..counts });
    let touched =
        HistoryRoots::count(&mut block, HistoryGrowth { data: -3, references: -3, nodes: 5, trees: 1 });
    assert_eq!(HistoryRoots::annals_counts(&block), AnnalsCounts { references: 17, ..counts });
    // What counts is recounted, so nobody undoes it: these bytes changed, and no unit did.
    assert_eq!(touched, Touched::derived(896..920).and(1544..1584));
    // Before the first row there is nothing.
    let none = AnnalsCounts { annals_from: EventNo(0), ..counts };
    HistoryRoots::set_annals_counts(&mut block, none);
    assert_eq!(HistoryRoots::verify_with(&block, Features::ANNALS).unwrap_err().field, "rest");
}

/// Promises that the bytes after the roots of format 2.2 must be zeros, as before.
#[test]
fn the_rest_of_the_roots_is_zeros() {
    let verify = |block: &Block| HistoryRoots::verify_with(block, Features::RESIZED);
    verify(&roots()).unwrap();
    for at in [936, 950, 1224, 1288, 1544, 1583, 1584, 4095] {
        let mut block = roots();
        block[at] = 1;
        assert!(verify(&block).is_err(), "byte {at}");
    }
}
