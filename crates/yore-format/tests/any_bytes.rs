//! Promises: no bytes make a decoder or verifier panic, and bytes without a meaning must be zero. Blocks of
//! every kind are filled with noise, wholly or in places. Then they are resealed, so that the checksum does
//! not stop the verifier.

use proptest::collection::vec;
use proptest::prelude::*;
use yore_format::layout::*;
use yore_format::*;

const ADDR: MetaAddr = MetaAddr(5 << 9 | 7);
const VOLUME: u32 = 9;

/// A block of the kind, which is sound if empty content is.
fn sound(kind: BlockKind, level: u8) -> Box<Block> {
    if kind == BlockKind::ZoneHeader {
        let mut uuid = [0; 16];
        uuid[..4].copy_from_slice(&VOLUME.to_le_bytes());
        return ZoneHeader::empty(uuid, 4096, BlockNo(1024), ZoneNo(5), GroupNo(0)).encode(Generation(3)).0;
    }
    let mut block = Box::new(ZERO_BLOCK);
    BlockHeader::init(&mut block, kind, level, ADDR, InodeNo(16), Incarnation(1), VOLUME, EventNo(0));
    if kind.is_tree() {
        let width = kind.key_width().unwrap_or(8);
        let mut node = NodeMut::init(&mut block, width);
        for i in 0..20u64 {
            let mut key = vec![0; width];
            key[..8].copy_from_slice(&(i * 3).to_be_bytes());
            node.insert(i as usize, &key, &(i + 1).to_le_bytes());
        }
    }
    if kind.is_table() {
        BlockHeader::of_mut(&mut block).owner = TableNo::new(GroupNo(3), 31).owner().0.into();
        BlockHeader::of_mut(&mut block).owner_incarnation = 0.into();
    }
    block
}

fn kinds() -> Vec<BlockKind> {
    (0..=255).filter_map(BlockKind::from_repr).collect()
}

/// Verifies a block, and reads whatever passes, as readers do: first for a volume with the features that have
/// code, then for one with all features that have a name.
fn read_all(block: &Block) {
    for (addr, features) in [ADDR, ZoneHeader::addr(ZoneNo(5))]
        .into_iter()
        .flat_map(|addr| [Features::SUPPORTED, Features::all()].map(|features| (addr, features)))
    {
        let verified = verify_header_with(block, addr, VOLUME, BlockNo(8), features);
        if features == Features::SUPPORTED {
            assert_eq!(verify_header(block, addr, VOLUME, BlockNo(8)), verified);
        }
        if verified.is_err() {
            continue;
        }
        let kind = BlockKind::from_repr(BlockHeader::of(block).kind).expect("verified");
        let expect = Expect { kind, owner: InodeNo(16), incarnation: Incarnation(1), level: None };
        let _ = expect.check(block);
        match kind {
            BlockKind::ZoneHeader => {
                let h = ZoneHeader::decode_with(block, features).expect("verified");
                let tables = (0..TABLES_PER_GROUP as u8).map(|n| h.table(BlockKind::CountTable, n));
                assert!(tables.flatten().all(|_| features.contains(Features::TABLES)));
                assert!((0..510).all(|i| h.has(i) == (h.map[usize::from(i)] != 0)));
                assert!((0..510).all(|i| h.has(i) || h.checks[usize::from(i)] == 0));
            }
            BlockKind::ZoneTable => {
                let table = ZoneTableRef::new(block);
                assert!((0..ZONE_TABLE_ENTRIES)
                    .all(|i| table.entry(i).is_present() == (table.entry(i).present == 1)));
            }
            BlockKind::Bitmap => {
                let map = BitmapRef::new(block);
                let used = (0..BITS_PER_GROUP).filter(|b| map.get(*b)).count();
                assert_eq!(used, map.used() as usize);
            }
            BlockKind::Inodes => {
                for slot in 0..INODES_PER_BLOCK {
                    let inode = Inode::decode(Inode::slot(block, slot)).expect("verified");
                    let _ = (inode.inline(), inode.tree_root(), Inode::slot_incarnation(block, slot));
                    if inode.content_kind == ContentKind::Extents {
                        let _ = ExtentValue::decode_inline(&inode);
                    }
                }
            }
            BlockKind::HistoryRoots => {
                for tree in HistoryTree::all() {
                    let _ = HistoryRoots::get(block, tree);
                }
                let _ = (0..HISTORY_SHARDS).map(|s| HistoryRoots::watermark(block, s).encode()).max();
                let _ = HistoryRoots::annals_counts(block);
            }
            BlockKind::CountTable => {
                let table = CountTableRef::new(block);
                let counts = (0..TABLE_ENTRIES).filter_map(|i| table.get(i));
                assert!(counts.into_iter().all(|count| count.references > 1));
            }
            BlockKind::ChecksumTable => {
                let table = ChecksumTableRef::new(block);
                let _ = (0..TABLE_ENTRIES).filter_map(|i| table.get(i)).count();
            }
            _ => read_node(block),
        }
    }
}

fn read_node(block: &Block) {
    let node = NodeRef::new(block);
    assert_eq!(node.free_bytes() + node.used_bytes(), NODE_PAYLOAD_BYTES);
    let mut live = 0;
    for i in 0..node.count() {
        assert_eq!(node.search(node.key(i)), Ok(i));
        live += node.cell_size(i);
        let value = node.value(i);
        let _ = (DirEntry::decode(value), ExtentValue::decode(value), XattrCell::decode(value));
        let _ = (decode_symlink_chunk(value), node.child(i), node.child_for(node.key(i)));
        let _ = (AnnalsKey::decode(node.key(i)), InodeIndexCell::decode(node.key(i), value));
        let _ = (NameIndexCell::decode(node.key(i), value), SpanCell::decode(node.key(i), value));
        let _ = AnnalsRow::decode(EventNo(9), value, &[7; 16]);
    }
    // Cells do not overlap: one that seems to lie within another was refused.
    assert_eq!(live, node.used_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn noise_in_places_never_panics(
        kind in prop::sample::select(kinds()),
        level in 0u8..3,
        noise in vec((0usize..4090, vec(any::<u8>(), 1..6)), 0..8),
        near in vec((0usize..200, prop::sample::select(vec![0u8, 1, 2, 4, 8, 16, 80, 255])), 0..8),
    ) {
        let mut block = sound(kind, if kind.is_tree() { level } else { 0 });
        for (at, bytes) in noise {
            let end = (at + bytes.len()).min(4096);
            block[at..end].copy_from_slice(&bytes[..end - at]);
        }
        for (at, byte) in near {
            block[64 + at] = byte;
        }
        seal(&mut block, Generation(3));
        read_all(&block);
    }

    #[test]
    fn nothing_but_noise_never_panics(
        kind in prop::sample::select(kinds()),
        bytes in vec(any::<u8>(), 4096 - 64),
        whole in any::<bool>(),
    ) {
        let mut block = sound(kind, 0);
        block[64..].copy_from_slice(&bytes);
        if whole {
            block[..64].copy_from_slice(&bytes[..64]);
        }
        let _ = verify_header(&block, ADDR, VOLUME, BlockNo(8));
        seal(&mut block, Generation(3));
        read_all(&block);
    }

    #[test]
    fn cells_of_noise_never_panic(bytes in vec(any::<u8>(), 0..1100), first in 0u8..4) {
        for first in [None, Some(first)] {
            let mut bytes = bytes.clone();
            if let (Some(first), Some(byte)) = (first, bytes.first_mut()) {
                *byte = first;
            }
            let _ = (DirEntry::decode(&bytes), DirEntry::decode_prefix(&bytes), ExtentValue::decode(&bytes));
            let _ = (XattrCell::decode(&bytes), decode_symlink_chunk(&bytes));
        }
    }

    #[test]
    fn superblocks_of_noise_never_panic(
        noise in vec((0usize..4096, any::<u8>()), 0..6),
        all in prop::option::of(vec(any::<u8>(), 4096)),
        slot in 0u32..2,
    ) {
        let sb = superblock();
        let mut block = sb.encode(slot);
        if let Some(all) = &all {
            block[8..].copy_from_slice(&all[8..]);
        }
        for (at, byte) in noise {
            block[at] = byte;
        }
        for sector in 0..8 {
            block[sector * 512 + 504..(sector + 1) * 512].copy_from_slice(&3u64.to_le_bytes());
        }
        let crc = checksum_except(&block[..], 16);
        block[16..20].copy_from_slice(&crc.to_le_bytes());
        let decoded = Superblock::decode(&block, slot);
        if let SlotState::Valid(sb) = decoded {
            prop_assert_eq!(&sb.encode(slot)[20..], &block[20..], "something that is not decoded is not zero");
        }
        let _ = decode_slots([&block, &sb.encode(1)]);
    }

    #[test]
    fn addresses_of_noise_never_panic(n in any::<u64>(), blocks in 0u64..1 << 40) {
        let (addr, inode) = (MetaAddr(n), InodeNo(n));
        let _ = (addr.is_plausible(), addr.zone().is_primary(), addr.index(), addr.to_string());
        let _ = (inode.is_file(), inode.slot(), inode.addr().to_string());
        let g = Geometry::new(blocks);
        let _ = (g.bit_of(BlockNo(n)), g.groups());
        for start in [n, n & !1023, !1023] {
            prop_assert!(!g.is_zone_start(BlockNo(start)) || start < blocks);
        }
    }
}

fn superblock() -> Superblock {
    Superblock {
        uuid: [7; 16],
        volume_blocks: VOLUME_BLOCKS_MIN,
        generation: Generation(3),
        mount_id: 1,
        engine: Engine::Snapshot,
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
        log_blocks: 0,
        log_id: 0,
        log_position: 0,
        log_number: 7,
        log_sequence: 8,
        log_chain: 9,
        log_generation: Generation(10),
        external_log: None,
        label: "x".into(),
        features: WriteFeatures::empty(),
        space_rules: None,
        in_place_since: Generation(0),
        step: 0,
        findings_root: MetaAddr::NONE,
        findings_level: 0,
        scrub: Scrub::default(),
        root_zones: vec![
            Some(RootZone { start: BlockNo(0), generation: Generation(3), crc: 1, header_slot: 0 }),
            None,
        ],
    }
}

/// Promises that bytes of a superblock without a meaning are refused unless they are zero: after the label,
/// in the entry of an absent root zone, beyond the last entry, in the sectors that have no fields.
#[test]
fn reserved_bytes_of_a_superblock_are_verified() {
    for at in [
        322,
        329,
        337,
        345,
        353,
        360,
        369,
        370,
        503,
        224 + 1,
        224 + 63,
        512 + 28,
        512 + 28 + 21 - 1,
        512 + 2 * 28,
        1024,
        2000,
        4000,
    ] {
        let mut block = superblock().encode(0);
        assert!(matches!(Superblock::decode(&block, 0), SlotState::Valid(_)));
        let label_goes_on = at == 225;
        block[at] = if label_goes_on { 0 } else { 1 };
        if label_goes_on {
            block[226] = b'y';
        }
        let crc = checksum_except(&block[..], 16);
        block[16..20].copy_from_slice(&crc.to_le_bytes());
        let SlotState::Corrupt(_, c) = Superblock::decode(&block, 0) else { panic!("byte {at}") };
        assert_eq!(c.field, "reserved bytes", "byte {at}");
    }
}

/// Promises that another minor version is accepted.
#[test]
fn a_newer_minor_version_is_accepted() {
    let mut block = superblock().encode(0);
    block[12] = 9;
    let crc = checksum_except(&block[..], 16);
    block[16..20].copy_from_slice(&crc.to_le_bytes());
    assert!(matches!(Superblock::decode(&block, 0), SlotState::Valid(_)));
}

/// Promises that an index entry that points into the middle of a cell is refused, even if the bytes there
/// look like a cell.
#[test]
fn a_cell_within_a_cell_is_refused() {
    let mut block = sound(BlockKind::Directory, 0);
    let mut node = NodeMut::init(&mut block, 8);
    let hidden = [&[13, 0, 1, 0][..], &1u64.to_be_bytes(), b"x"].concat();
    let at = node.insert(0, &0u64.to_be_bytes(), &hidden);
    node.as_ref().verify().unwrap();
    let within = (at.meaning.end - hidden.len()) as u16;
    block[80..82].copy_from_slice(&within.to_le_bytes());
    let c = NodeRef::new(&block).verify().unwrap_err();
    assert_eq!(c.field, "index entry");
}

/// Promises that reserved bytes of cells are verified.
#[test]
fn reserved_bytes_of_cells_are_verified() {
    let mut block = sound(BlockKind::Directory, 0);
    let at = NodeMut::init(&mut block, 8).insert(0, &[0; 8], b"value");
    block[at.meaning.start + 3] = 1;
    assert!(NodeRef::new(&block).verify().is_err());
    let first = XattrCell::First { namespace: XattrNamespace::User, name: b"n", value_len: 0, chunk: b"" };
    let mut bytes = first.encode();
    bytes[3] = 1;
    assert!(XattrCell::decode(&bytes).is_err());
}
