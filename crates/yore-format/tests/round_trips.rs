//! Promises: any values, encoded and decoded, come back the same; nodes of trees behave like sorted maps.
//! proptest prints the smallest failing values and how to replay them.

mod common;

use common::{address, extent, file, inode, kind};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use std::collections::BTreeMap;
use yore_format::*;

prop_compose! {
    fn superblock()(
        uuid in any::<[u8; 16]>(),
        groups in 1u64..200,
        (generation, mount_id, next_number) in (any::<u64>(), any::<u64>(), any::<u64>()),
        engine in prop::sample::select(vec![Engine::None, Engine::Sync, Engine::Journal, Engine::SoftUpdates,
            Engine::Snapshot]),
        state in prop::sample::select(vec![VolumeState::Clean, VolumeState::InUse, VolumeState::MustBeChecked,
            VolumeState::LeaksPending]),
        hash_seed in any::<[u8; 16]>(),
        roots in (address(), any::<u8>(), address(), address()),
        totals in (any::<(u64, u64, u64, u32, u32)>(), 0u64..1 << 48),
        (created_seconds, written_seconds) in any::<(u64, u64)>(),
        log in any::<(u64, u64, u64, u64)>(),
        label in "[a-zäß ]{0,30}",
        root_zones in vec(prop::option::of((1u64..32, any::<u64>(), any::<u32>(), 0u8..2)), 1..=ROOT_ZONES_MAX),
    ) -> Superblock {
        Superblock {
            uuid,
            volume_blocks: groups * layout::GROUP_BLOCKS,
            generation: Generation(generation),
            mount_id,
            engine,
            state,
            next_incarnation: totals.1,
            next_number: EventNo(next_number),
            hash_seed,
            created_seconds,
            written_seconds,
            root_directory: InodeNo::ROOT,
            orphan_root: roots.0,
            orphan_level: roots.1,
            events_root: roots.2,
            history_root: roots.3,
            free_blocks: totals.0.0,
            inodes: totals.0.1,
            metadata_blocks: totals.0.2,
            zones: totals.0.3,
            zone_number_limit: totals.0.4,
            log_start: BlockNo(log.0),
            log_blocks: log.1,
            log_id: log.2,
            log_position: log.3,
            log_number: 7,
            log_sequence: 8,
            log_chain: 9,
            log_generation: Generation(10),
            external_log: None,
            label,
            features: WriteFeatures::EXTENDED_PAST,
            space_rules: Some(SpaceRules { floor_seconds: 86_400, share_percent: 50 }),
            in_place_since: Generation(0),
            step: 0,
            findings_root: MetaAddr::NONE,
            findings_level: 0,
            scrub: Scrub::default(),
            root_zones: root_zones
                .into_iter()
                .map(|root| {
                    root.map(|(start, generation, crc, header_slot)| RootZone {
                        start: BlockNo(start * layout::ZONE_BLOCKS),
                        generation: Generation(generation),
                        crc,
                        header_slot,
                    })
                })
                .collect(),
        }
    }
}

proptest! {
    #[test]
    fn inodes_come_back(inode in inode()) {
        let mut bytes = [0; INODE_BYTES];
        inode.encode(&mut bytes);
        prop_assert_eq!(Inode::decode(&bytes).unwrap(), inode.clone());
        if inode.content_kind == ContentKind::Extents {
            let extents = ExtentValue::decode_inline(&inode).unwrap();
            let mut again = inode.clone();
            ExtentValue::encode_inline(&mut again, &extents);
            prop_assert_eq!(again, inode);
        }
    }

    #[test]
    fn superblocks_come_back(sb in superblock(), slot in 0u32..2) {
        let block = sb.encode(slot);
        prop_assert_eq!(Superblock::decode(&block, slot), SlotState::Valid(Box::new(sb.clone())));
        // In the other slot it counts as a copy that was written to the wrong place.
        prop_assert!(matches!(Superblock::decode(&block, 1 - slot), SlotState::Corrupt(..)));
    }

    /// Promises the rule of torn superblocks for any prefix and any subset of sectors of the newer one.
    #[test]
    fn the_older_superblock_counts_if_the_newer_is_torn(
        older in superblock(),
        sectors in 1u8..255,
    ) {
        let older = Superblock { generation: Generation(older.generation.0 >> 1), ..older };
        let newer = Superblock { generation: Generation(older.generation.0 + 1), mount_id: 7, ..older.clone() };
        let oldest = Superblock { generation: Generation(older.generation.0.wrapping_sub(1)), ..older.clone() };
        let mut torn = oldest.encode(0);
        for sector in (0..8).filter(|s| sectors >> s & 1 != 0) {
            let range = sector * 512..(sector + 1) * 512;
            torn[range.clone()].copy_from_slice(&newer.encode(0)[range]);
        }
        if older.generation.0 > 0 {
            let (found, slot, newest) = decode_slots([&torn, &older.encode(1)]).unwrap();
            prop_assert_eq!((found, slot), (older.clone(), 1));
            prop_assert_eq!(newest, newer.generation);
            // One that is complete and wrong is not torn.
            let mut corrupt = newer.encode(0);
            corrupt[60] ^= 1;
            prop_assert!(decode_slots([&corrupt, &older.encode(1)]).is_err());
        }
        let (found, slot, _) = decode_slots([&newer.encode(0), &older.encode(1)]).unwrap();
        prop_assert_eq!((found, slot), (newer, 0));
    }

    /// Promises that of two superblocks of one generation the second step counts, that nobody goes back to
    /// the first one where the second is complete and wrong, and that a wrong first one is of no matter.
    #[test]
    fn the_second_step_of_a_generation_counts(sb in superblock(), slot in 0u32..2) {
        let generation = Generation(sb.generation.0.max(1));
        let mut first = Superblock { generation, engine: Engine::SoftUpdates, ..sb };
        first.set_in_place_since(Generation(1));
        let second = Superblock { step: 1, ..first.clone() };
        let in_slots = |first: Block, second: Block| {
            decode_slots(if slot == 0 { [&second, &first] } else { [&first, &second] }).map(|found| found.0)
        };
        let wrong = |mut block: Block| {
            block[60] ^= 1;
            block
        };
        let (one, two) = (*first.encode(1 - slot), *second.encode(slot));
        prop_assert_eq!(in_slots(one, two).unwrap(), second.clone());
        prop_assert!(in_slots(one, wrong(two)).is_err());
        prop_assert_eq!(in_slots(wrong(one), two).unwrap(), second);
        // Where there are no steps both slots may have the same, as on a new volume: a wrong slot 1 is of no
        // matter.
        let mut same = first;
        same.set_in_place_since(Generation(0));
        let (one, two) = (*same.encode(0), *same.encode(1));
        prop_assert_eq!(decode_slots([&one, &wrong(two)]).unwrap().0, same.clone());
    }

    #[test]
    fn zone_headers_come_back(
        (uuid, volume_blocks, start) in any::<([u8; 16], u64, u64)>(),
        (zone, group, generation) in (0u32..1 << 31, any::<u32>(), any::<u64>()),
        slots in btree_map(0usize..510, (4u16..1024, 0u8..18, any::<u32>()), 0..200),
        extras in any::<[u32; 31]>(),
    ) {
        let mut h = ZoneHeader::empty(uuid, volume_blocks, BlockNo(start), ZoneNo(zone), GroupNo(group));
        h.generation = Generation(generation);
        h.extras = extras;
        let mut taken = std::collections::BTreeSet::new();
        for (index, (slot, free, check)) in slots {
            if taken.insert(slot) {
                h.exists[index / 64] |= 1 << (index % 64);
                h.map[index] = slot;
                h.checks[index] = check;
                h.inode_free[index] = if free > 16 { NOT_INODES } else { free };
            }
        }
        let (block, crc) = h.encode(h.generation);
        prop_assert_eq!(crc, BlockHeader::of(&block).crc.get());
        let volume = u32::from_le_bytes(uuid[..4].try_into().unwrap());
        verify_header(&block, ZoneHeader::addr(ZoneNo(zone)), volume, BlockNo(0)).unwrap();
        prop_assert_eq!(ZoneHeader::decode(&block).unwrap(), h);
    }

    #[test]
    fn table_entries_come_back(entries in btree_map(0usize..144, any::<(u32, u64, u32, bool, [u16; 3])>(), 0..144)) {
        let mut block = ZERO_BLOCK;
        let mut expected = BTreeMap::new();
        for (i, (start, generation, crc, slot, [blocks, indexes, inodes])) in entries {
            let entry = ZoneTableEntry {
                start: (u64::from(start) * 1024).into(),
                generation: generation.into(),
                crc: crc.into(),
                header_slot: slot.into(),
                present: 1,
                free_blocks: blocks.into(),
                free_indexes: (indexes % 511).into(),
                free_inodes: inodes.into(),
            };
            ZoneTableMut::new(&mut block).set(i, entry);
            expected.insert(i, entry);
        }
        let table = ZoneTableRef::new(&block);
        table.verify().unwrap();
        for i in 0..144 {
            prop_assert_eq!(table.entry(i), expected.get(&i).copied().unwrap_or(ZoneTableEntry::ABSENT));
        }
    }

    #[test]
    fn directory_entries_come_back(
        (inode, kind) in (file(), kind()),
        (incarnation, birth) in any::<(u32, u64)>(),
        name in vec(any::<u8>().prop_filter("allowed", |b| !matches!(b, 0 | b'/')), 1..=255),
        rest in vec(any::<u8>(), 0..20),
    ) {
        prop_assume!(name != b"." && name != b"..");
        let entry = DirEntry { inode, incarnation: Incarnation(incarnation), birth: EventNo(birth), kind, name: &name };
        let mut bytes = vec![];
        entry.encode(&mut bytes);
        prop_assert_eq!(bytes.len(), entry.encoded_len());
        prop_assert_eq!(DirEntry::decode(&bytes).unwrap(), entry);
        let len = bytes.len();
        bytes.extend(&rest);
        prop_assert_eq!(DirEntry::decode_prefix(&bytes).unwrap(), (entry, len));
        prop_assert_eq!(DirEntry::decode(&bytes).is_ok(), rest.is_empty());
    }

    #[test]
    fn extents_come_back(extent in extent()) {
        prop_assert_eq!(ExtentValue::decode(&extent.encode()).unwrap(), extent);
    }

    #[test]
    fn attributes_come_back(
        namespace in (1u8..5).prop_filter_map("one", XattrNamespace::from_repr),
        name in vec(any::<u8>(), 1..=255),
        value in vec(any::<u8>(), 0..3000),
    ) {
        let (chunk, rest) = value.split_at(value.len().min(XATTR_CHUNK_BYTES));
        let first = XattrCell::First { namespace, name: &name, value_len: value.len() as u32, chunk };
        let cell = first.encode();
        prop_assert_eq!(XattrCell::decode(&cell).unwrap(), first);
        for bytes in rest.chunks(XATTR_CHUNK_BYTES) {
            let cell = XattrCell::Rest(bytes).encode();
            prop_assert_eq!(XattrCell::decode(&cell).unwrap(), XattrCell::Rest(bytes));
        }
        let key = xattr_key(&[3; 16], namespace, &name);
        prop_assert_eq!(key & 0xff_ffff, 0);
    }

    #[test]
    fn cookies_leave_room_for_collisions(seed in any::<[u8; 16]>(), name in vec(any::<u8>(), 1..=255)) {
        let cookie = name_cookie(&seed, &name);
        prop_assert!((256..1 << 63).contains(&cookie) && cookie.is_multiple_of(256));
    }

    #[test]
    fn bitmaps_count(runs in vec((0u32..BITS_PER_GROUP, 1u32..500), 0..40), usable in 1u32..=BITS_PER_GROUP) {
        let mut block = ZERO_BLOCK;
        let mut map = BitmapMut::init(&mut block, usable);
        let mut expected: Vec<bool> = (0..BITS_PER_GROUP).map(|b| b >= usable).collect();
        for (bit, len) in runs {
            let end = (bit + len).min(BITS_PER_GROUP);
            let used = !expected[bit as usize];
            let same = (bit..end).take_while(|b| expected[*b as usize] != used).count() as u32;
            map.set(bit, same, used);
            expected[bit as usize..(bit + same) as usize].fill(used);
        }
        let map = BitmapRef::new(&block);
        map.verify().unwrap();
        prop_assert_eq!(map.used() as usize, expected.iter().filter(|b| **b).count());
        for (bit, used) in expected.iter().enumerate() {
            prop_assert_eq!(map.get(bit as u32), *used);
        }
    }

    /// Promises that a node behaves like a sorted map with values of any length, whatever the order of
    /// changes.
    #[test]
    fn nodes_are_sorted_maps(changes in vec((0u64..60, prop::option::of(vec(any::<u8>(), 0..200))), 0..200)) {
        let mut block = ZERO_BLOCK;
        let kind = BlockKind::Directory;
        BlockHeader::init(&mut block, kind, 0, MetaAddr(5), InodeNo(16), Incarnation(1), 9, EventNo(1));
        let mut node = NodeMut::init(&mut block, 8);
        let mut model = BTreeMap::new();
        for (key, value) in changes {
            let at = node.as_ref().search(&key.to_be_bytes());
            let room = node.as_ref().free_bytes();
            match (at, value) {
                (Ok(i), None) => {
                    node.remove(i);
                    model.remove(&key);
                }
                (Err(_), None) => {}
                (Ok(i), Some(value)) => {
                    let old = node.as_ref().cell_size(i);
                    if room + old >= NodeRef::cell_bytes(8, value.len()) {
                        node.replace(i, &value);
                        model.insert(key, value);
                    }
                }
                (Err(i), Some(value)) => {
                    if room >= NodeRef::cell_bytes(8, value.len()) {
                        node.insert(i, &key.to_be_bytes(), &value);
                        model.insert(key, value);
                    }
                }
            }
            prop_assert!(node.as_ref().verify().is_ok());
        }
        let node = node.as_ref();
        let found: Vec<(u64, Vec<u8>)> = (0..node.count())
            .map(|i| (u64::from_be_bytes(node.key(i).try_into().unwrap()), node.value(i).to_vec()))
            .collect();
        prop_assert_eq!(found, model.into_iter().collect::<Vec<_>>());
    }
}
