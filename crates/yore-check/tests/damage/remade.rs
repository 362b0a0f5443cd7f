//! Promises about what is kept and what is named when blocks are given up.

use super::repaired::*;
use super::*;
use std::path::Path;
use yore_check::{plan_repair, undo_repair};

/// Repairs a volume, which must succeed, and returns what was lost.
fn lost_by_repair(device: &MemoryDevice, name: &str) -> Vec<(String, String)> {
    let undo_file = UndoFile::new(name);
    let plan = plan(device);
    assert!(plan.is_complete(), "{}", plan.after);
    let lost = plan.lost.iter().map(|loss| (loss.path.clone(), loss.what.clone())).collect();
    plan.apply(Path::new(&undo_file.0)).expect("the repair is written");
    assert!(checked(device).is_clean());
    lost
}

/// The extents of a file by way of the tree's leaves.
fn extents_of(device: &MemoryDevice, number: u64) -> Vec<(u64, ExtentValue)> {
    let inode = inode_of(device, InodeNo(number)).expect("the inode is there");
    ExtentValue::decode_inline(&inode).expect("extents in the inode")
}

/// Promises that a file keeps what its sound leaf names, and that the bytes of the damaged one are named.
#[test]
fn a_leaf_that_is_lost_takes_its_bytes_alone() {
    let mut b = sound();
    let leaf = child_of(&b, tree_of(&b, BIG), 1);
    on_block(&mut b, leaf, |n| BlockHeader::of_mut(n).addr = 77.into());
    let device = b.finish();
    let lost = lost_by_repair(&device, "leaf");
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!(lost[0].0, "/big");
    assert!(lost[0].1.contains(&format!("bytes {} to {}", 210 * 4096, 420 * 4096)), "{lost:?}");
    let keys: Vec<u64> = extents_of(&device, BIG).iter().map(|(key, _)| *key).collect();
    assert_eq!(keys, [0, 70, 140]);
    assert_eq!(inode_of(&device, InodeNo(BIG)).unwrap().size, 420 * 4096);
}

/// Promises that a file whose branch is lost loses nothing: its leaves say whose they are.
#[test]
fn a_branch_that_is_lost_takes_nothing() {
    let mut b = sound();
    let branch = tree_of(&b, BIG);
    on_block(&mut b, branch, |n| BlockHeader::of_mut(n).addr = 77.into());
    let device = b.finish();
    let lost = lost_by_repair(&device, "branch");
    assert!(lost.iter().all(|(path, _)| path == "/big"), "{lost:?}");
    let report = checked(&device);
    assert!(report.is_clean() && inode_of(&device, InodeNo(BIG)).unwrap().blocks >= 6 * 65, "{report}");
}

/// Promises that inodes of a damaged block that can be decoded are kept with their blocks, and are named.
#[test]
fn inodes_of_a_damaged_block_are_kept_and_named() {
    let mut b = sound();
    raw(&mut b, GROUP_BLOCKS + 6, |block| block[500] ^= 1);
    let device = b.finish();
    let before = extents_of(&device, FAR);
    let lost = lost_by_repair(&device, "inodes");
    assert_eq!(extents_of(&device, FAR), before);
    assert!(lost.iter().any(|(path, what)| path == "/far" && what.contains("may be wrong")), "{lost:?}");
}

/// Promises that, where no inode of a block can be decoded, a file is made of its tree, keeps its name, and
/// names go whose files have nothing else.
#[test]
fn a_file_is_made_of_its_tree() {
    let mut b = sound();
    raw(&mut b, ZONE_BLOCKS + 6, |block| block[..64].fill(0xff));
    let device = b.finish();
    let lost = lost_by_repair(&device, "made");
    let big = inode_of(&device, InodeNo(BIG)).expect("the file is there");
    assert_eq!((big.size, big.links), (415 * 4096, 1));
    assert_eq!(big.parent, InodeNo::ROOT);
    assert!(lost.iter().any(|(path, _)| path == "/big"), "{lost:?}");
    let is_named = |name: &str| lost.iter().any(|(_, what)| what.contains(name));
    assert!(is_named("inline") || is_named("extents"), "{lost:?}");
}

/// Promises that a zone whose header was lost has the same header again, and that nothing is named: the
/// checksum of what was made is the recorded one.
#[test]
fn a_header_is_made_of_its_blocks() {
    for zone in [GROUP_BLOCKS, ZONE_BLOCKS, 3 * ZONE_BLOCKS, 0] {
        let mut b = sound();
        b.after.push(Box::new(move |device| {
            // The first zone of a group lists further zones, which its blocks do not say.
            for slot in HEADER_SLOTS {
                write(device, zone + slot, &Box::new(ZERO_BLOCK));
            }
        }));
        let lost = lost_by_repair(&b.finish(), &format!("header-{zone}"));
        assert!(lost.len() <= usize::from(zone == ZONE_BLOCKS), "zone at {zone}: {lost:?}");
    }
}

/// Promises that copies of a block that are older than the one in use, and one that is newer than what is
/// recorded of its zone, do not come back with a header.
#[test]
fn a_header_names_the_last_copies() {
    let mut b = sound();
    b.after.push(Box::new(|device| {
        let inodes = read(device, GROUP_BLOCKS + 6);
        for (slot, generation) in [(700, 6), (701, 8)] {
            let mut other = inodes.clone();
            Inode::slot_mut(&mut other, 0).0[8] ^= 1;
            seal(&mut other, Generation(generation));
            write(device, GROUP_BLOCKS + slot, &other);
        }
        write(device, GROUP_BLOCKS + 3, &Box::new(ZERO_BLOCK));
    }));
    let device = b.finish();
    let before = sound().finish();
    assert_eq!(lost_by_repair(&device, "copies"), []);
    assert_eq!(inode_of(&device, InodeNo(FAR)), inode_of(&before, InodeNo(FAR)));
}

/// Promises that both files have the data of a block that two had, each in blocks of its own, and that the
/// second one is named.
#[test]
fn two_owners_of_a_block_both_have_it() {
    let mut b = sound();
    let (_, first) = ExtentValue::decode_inline(b.inode(EXTENTS)).unwrap()[0];
    ExtentValue::encode_inline(b.inode(FAR), &[(0, ExtentValue { len: 5, ..first })]);
    (b.inode(FAR).size, b.inode(FAR).blocks) = (5 * 4096, 5);
    b.after.push(Box::new(move |device| {
        for n in 0..5u8 {
            write(device, first.start.0 + u64::from(n), &Box::new([n + 1; 4096]));
        }
    }));
    let device = b.finish();
    let report = checked(&device);
    let twice = report.findings.iter().find(|f| f.problem == SpaceOwnedTwice).expect("it is found");
    let first_owner = twice.first.as_ref().expect("the first owner is named");
    assert_eq!((twice.path.as_deref(), first_owner.path.as_deref()), (Some("/far"), Some("/extents")));
    assert!(twice.to_string().ends_with("; the first owner is inode 18 (\"/extents\")"), "{twice}");
    let lost = lost_by_repair(&device, "owners");
    assert!(lost.iter().any(|(path, what)| path == "/far" && what.contains("bytes 0 to 20480")), "{lost:?}");
    assert_eq!(extents_of(&device, EXTENTS)[0].1, first);
    let blocks = |number| {
        extents_of(&device, number)
            .into_iter()
            .filter(|(_, extent)| !extent.unwritten)
            .flat_map(|(_, extent)| extent.start.0..extent.start.0 + u64::from(extent.len))
            .collect::<Vec<u64>>()
    };
    let (one, other) = (blocks(EXTENTS), blocks(FAR));
    assert!(other.len() == 5 && one.iter().all(|block| !other.contains(block)));
    for n in 0..5 {
        assert_eq!(read(&device, one[n])[..], [n as u8 + 1; 4096]);
        assert_eq!(read(&device, other[n])[..], [n as u8 + 1; 4096]);
    }
}

/// Promises that each damage of the past can be repaired by giving up the past, that this is said, that files
/// in use keep what they are, and that it is taken back byte for byte.
#[test]
fn the_past_is_given_up_before_the_present() {
    let undo_file = UndoFile::new("past");
    let (mut refused, mut given_up) = (Vec::new(), 0);
    for (volume, plants) in volumes().into_iter().skip(1) {
        for (story, problems, plant) in plants {
            let mut b = volume();
            plant(&mut b);
            let device = b.finish();
            let before = device.snapshot();
            let _ = std::fs::remove_file(&undo_file.0);
            let options = CheckOptions { give_up_past: true, ..CheckOptions::default() };
            let plan = plan_repair(&device, &options).expect("the volume can be checked");
            if !plan.is_complete() {
                refused.push(format!("{story} ({problems:?}): {}", plan.after));
                continue;
            }
            if plan.lost.iter().any(|loss| loss.path == "the past") {
                given_up += 1;
                // Whoever has not asked for that must be told that it would help.
                let without = plan_repair(&before, &CheckOptions::default()).expect("the same volume");
                assert!(
                    without.remaining().any(|finding| finding.is_of_past()),
                    "{story}: {}",
                    without.after
                );
            }
            plan.apply(&undo_file.0).expect("the repair is written");
            assert!(checked(&device).is_clean(), "{story}");
            let harmed: BTreeSet<InodeNo> = plan.done.iter().filter_map(|done| done.finding.inode).collect();
            for number in (16..48).map(InodeNo).filter(|number| !harmed.contains(number)) {
                assert_eq!(inode_of(&device, number), inode_of(&before, number), "{story}: inode {number}");
            }
            if !plan.is_empty() {
                undo_repair(&device, &undo_file.0).expect("the repair is taken back");
            }
            assert_eq!(device.first_difference(&before), None, "{story}");
        }
    }
    println!("the past was given up {given_up} times");
    assert!(refused.is_empty(), "{} are refused:\n{}", refused.len(), refused.join("\n"));
}

/// Promises that rows of the past that cannot be read are given up alone, and named, and that the roots of a
/// tree of the past are not: that takes the option.
#[test]
fn rows_of_the_past_are_given_up_alone() {
    let of = |story: &str| {
        let all = volumes().into_iter().flat_map(|(of, plants)| plants.into_iter().map(move |p| (of, p)));
        let (volume, (_, _, plant)) = all.into_iter().find(|(_, p)| p.0 == story).expect("a story");
        let mut b = volume();
        plant(&mut b);
        b.finish()
    };
    let device = of("a version is short");
    let before = checked(&device).counts;
    let lost = lost_by_repair(&device, "row");
    let after = checked(&device).counts;
    assert!(
        lost.iter().any(|(path, what)| path.contains("Versions") && what.starts_with("7 rows")),
        "{lost:?}"
    );
    assert_eq!(after.versions + 7, before.versions);
    assert_eq!(after.events, before.events);
    let device = of("a root of the past does not exist");
    let plan = plan(&device);
    assert!(plan.lost.iter().all(|loss| !loss.path.contains("the past, Ver")), "{:?}", plan.lost);
}

/// The attribute of an access ACL, as a cell begins with it.
fn is_acl(value: &[u8]) -> bool {
    matches!(XattrCell::decode(value), Ok(XattrCell::First { name: b"posix_acl_access", .. }))
}

/// With an access ACL the mode's bits of the group are a mask. They stayed when the ACL was lost, and gave
/// the owning group what others had been given. Promises that they go with the ACL, that this is said, and
/// that they stay as long as the ACL does.
#[test]
fn a_lost_acl_opens_a_file_to_nobody() {
    type Damage = (&'static str, bool, fn(&mut Builder));
    let damages: [Damage; 4] = [
        ("gone", true, |b| new_attributes(b, |cells| cells.retain(|cell| !is_acl(&cell.1)))),
        ("unreadable", true, |b| {
            let leaf = b.inodes[&InodeNo(ATTRS)].xattr_root;
            on_block(b, leaf, |node| BlockHeader::of_mut(node).addr = 77.into());
        }),
        ("beside-a-short-one", true, |b| {
            let is_rest = |value: &[u8]| matches!(XattrCell::decode(value), Ok(XattrCell::Rest(_)));
            new_attributes(b, |cells| cells.retain(|cell| !is_acl(&cell.1) && !is_rest(&cell.1)));
        }),
        ("of-another", false, |b| {
            new_attributes(b, |cells| {
                let empty = attribute(XattrNamespace::User, "empty", b"");
                cells.iter_mut().filter(|cell| cell.1 == empty[0].1).for_each(|cell| cell.0 += 1 << 30);
            });
        }),
    ];
    for (story, is_closed, damage) in damages {
        let mut b = sound();
        b.inode(ATTRS).mode = 0o100_674;
        damage(&mut b);
        let device = b.finish();
        let lost = lost_by_repair(&device, &format!("acl-{story}"));
        let mode = inode_of(&device, InodeNo(ATTRS)).expect("the file is there").mode;
        assert_eq!(mode, if is_closed { 0o100_604 } else { 0o100_674 }, "{story}: {mode:o}");
        let is_said = lost.iter().any(|(path, what)| path == "/attrs" && what.contains("its access ACL"));
        assert_eq!(is_said, is_closed, "{story}: {lost:?}");
    }
}

/// Whatever had lost its attributes lost the rights of its group, too, also if it never had an ACL. Promises
/// that these stay where the inode says that there was none.
#[test]
fn a_file_that_had_no_acl_keeps_the_rights_of_its_group() {
    let mut b = sound();
    new_attributes(&mut b, |cells| cells.retain(|cell| !is_acl(&cell.1)));
    (b.inode(ATTRS).mode, b.inode(ATTRS).flags) = (0o100_674, InodeFlags::CAPABILITY);
    let whole = checked(&b.finish());
    assert!(whole.is_clean(), "{whole}");
    let mut b = sound();
    new_attributes(&mut b, |cells| cells.retain(|cell| !is_acl(&cell.1)));
    (b.inode(ATTRS).mode, b.inode(ATTRS).flags) = (0o100_674, InodeFlags::CAPABILITY);
    let leaf = b.inodes[&InodeNo(ATTRS)].xattr_root;
    on_block(&mut b, leaf, |node| BlockHeader::of_mut(node).addr = 77.into());
    let device = b.finish();
    let lost = lost_by_repair(&device, "no-acl");
    let inode = inode_of(&device, InodeNo(ATTRS)).expect("the file is there");
    assert_eq!((inode.mode, inode.flags), (0o100_674, InodeFlags::empty()), "{:o}", inode.mode);
    let says = |what: &str| lost.iter().any(|(path, said)| path == "/attrs" && said.contains(what));
    assert!(says("attributes of this file could not be read") && !says("its access ACL"), "{lost:?}");
}

/// A header of which several fields were lost had the nodes of its files freed in the same round in which its
/// inodes came back. Promises that nodes stay as long as inodes that may lead to them are not known.
#[test]
fn nodes_of_inodes_that_come_back_are_not_freed() {
    let mut b = sound();
    let chunks: Vec<(u64, Vec<u8>)> = (0..3).map(|n| (n, vec![b'y'; [1024, 1024, 50][n as usize]])).collect();
    let owner = (InodeNo(FAR), b.inodes[&InodeNo(FAR)].incarnation.0);
    let (root, level, nodes) = b.tree(0, BlockKind::Symlink, owner, &[chunks]);
    b.used.retain(|(start, _)| start.0 != GROUP_BLOCKS + 5 * ZONE_BLOCKS);
    let inode = b.inode(FAR);
    inode.mode = LINK;
    inode.set_tree_root(root, level);
    (inode.size, inode.blocks) = (2098, nodes);
    b.forget(ROOT);
    let cells = root_cells(&b);
    set_root(&mut b, &[cells[..6].to_vec(), cells[6..].to_vec()]);
    header(&mut b, 2, |h| h.inode_free[1] = NOT_INODES);
    let device = b.finish();
    let report = checked(&device);
    assert!(report.has(InodeFree) && !report.has(BlockUnreachable), "{report}");
    let lost = lost_by_repair(&device, "come-back");
    assert_eq!(lost, []);
    let inode = inode_of(&device, InodeNo(FAR)).expect("the link is there");
    assert_eq!((inode.mode, inode.size, inode.tree_root()), (LINK, 2098, root));
}

/// A further zone of which the header was damaged, and which its group did not list, was given up, with all
/// that was in it. Promises that it is found where the table says that it is.
#[test]
fn a_zone_that_is_not_listed_is_found_by_its_blocks() {
    let mut b = sound();
    header(&mut b, 0, |h| h.extras = [0; EXTRA_ZONES_PER_GROUP]);
    raw(&mut b, 3 * ZONE_BLOCKS + HEADER_SLOTS[1], |h| h[900] ^= 4);
    let whole = sound().finish();
    let device = b.finish();
    let lost = lost_by_repair(&device, "unlisted");
    assert!(lost.iter().all(|(path, _)| path.starts_with("zone ")), "{lost:?}");
    assert_eq!(inode_of(&device, InodeNo(BIG)), inode_of(&whole, InodeNo(BIG)));
}

/// The lists of all groups were made anew in ascending order, and tables were sought in other zones than they
/// are in. Promises that a zone keeps its place in the list.
#[test]
fn tables_are_found_where_lists_are_made_anew() {
    let device = listed(5);
    let report = checked(&device);
    assert!(report.has(ZoneExtras) && report.findings_count == 1, "{report}");
    let plan = plan(&device);
    assert!(plan.is_complete() && plan.lost.is_empty(), "{:?} {}", plan.lost, plan.after);
    let rounds = plan.done.iter().map(|done| done.round).max();
    assert_eq!((plan.done.len(), rounds), (1, Some(1)), "{:?}", plan.done);
}

/// A list that named another zone lost the tables of the one that it had, although they say at which place
/// that was. Promises that a zone that is in no list comes to a place that a table names.
#[test]
fn a_zone_comes_back_where_a_table_names_it() {
    let device = listed(9);
    let plan = plan(&device);
    assert!(plan.is_complete() && plan.lost.is_empty(), "{:?} {}", plan.lost, plan.after);
    let unreachable = plan.done.iter().filter(|done| done.finding.problem == BlockUnreachable);
    assert_eq!(unreachable.count(), 0, "{:?}", plan.done);
}

/// A volume of which group 0 has a table in its first further zone, 5, of which its list says this; and the
/// list of another group is wrong.
fn listed(first: u32) -> MemoryDevice {
    let mut b = sound();
    b.add_zone(5, 6 * ZONE_BLOCKS, 0);
    let (start, len) = b.used[b.used.len() - 1];
    assert_eq!((start, len), (BlockNo(6 * ZONE_BLOCKS), ZONE_BLOCKS));
    let table = TableNo::new(GroupNo(0), 2);
    let addr = MetaAddr::new(ZoneNo(5), 77);
    let mut node = block(BlockKind::ChecksumTable, 0, addr, table.owner(), 0);
    ChecksumTableMut::init(&mut node);
    b.zones.get_mut(&5).unwrap().blocks.insert(77, node);
    b.sb.features |= WriteFeatures::CHECKSUMS;
    let place = TablePlace { zone: 1, index: 77 }.encode();
    let position = TablePlace::position(BlockKind::ChecksumTable, table.number());
    b.on_header.push((
        0,
        Box::new(move |h| {
            h.extras = [0; EXTRA_ZONES_PER_GROUP];
            (h.extras[0], h.extras[2], h.tables[position]) = (first, 1, place);
        }),
    ));
    // Another group has a list that is wrong.
    header(&mut b, 2, |h| h.extras[0] = 1);
    b.finish()
}

/// Has a zone say that something is at each of its indexes.
fn fill(header: &mut ZoneHeader) {
    let slots = (FIRST_SLOT as u16..ZONE_BLOCKS as u16).filter(|slot| !header.map.contains(slot));
    let mut slots = slots.collect::<Vec<_>>().into_iter();
    for index in 0..ZONE_INDEXES as usize {
        if header.map[index] == 0 {
            header.exists[index / 64] |= 1 << (index % 64);
            header.map[index] = slots.next().expect("there are more slots than indexes");
            header.checks[index] = 1;
        }
    }
}

/// The old nodes of a tree were freed before there was room for the new ones, and what did not find room was
/// lost. Promises that they stay until there is: here the blocks that take all room are given up first.
#[test]
fn a_tree_that_finds_no_room_waits_for_it() {
    let volume = || {
        let mut b = sound();
        b.forget_tree(b.inodes[&InodeNo(ATTRS)].xattr_root);
        let mut cells: Vec<(u64, Vec<u8>)> =
            (10..22).flat_map(|n| attribute(XattrNamespace::User, &format!("name {n}"), &[n; 950])).collect();
        cells.sort();
        let owner = (InodeNo(ATTRS), b.inodes[&InodeNo(ATTRS)].incarnation.0);
        // A new leaf is left less full than these are.
        let leaves: Vec<Vec<(u64, Vec<u8>)>> = cells.chunks(4).map(<[_]>::to_vec).collect();
        let (root, _, nodes) = b.tree(0, BlockKind::Xattrs, owner, &leaves);
        let inode = b.inode(ATTRS);
        (inode.xattr_root, inode.blocks, inode.flags) = (root, nodes, InodeFlags::empty());
        b
    };
    let whole = checked(&volume().finish());
    assert!(whole.is_clean() && whole.counts.xattrs == 12, "{whole}");
    let mut b = volume();
    let branch = b.inodes[&InodeNo(ATTRS)].xattr_root;
    on_block(&mut b, branch, |node| BlockHeader::of_mut(node).addr = 77.into());
    for zone in b.zones.keys().copied().collect::<Vec<_>>() {
        header(&mut b, zone, fill);
    }
    let device = b.finish();
    let plan = plan_repair(&device, &CheckOptions::default()).unwrap();
    assert!(plan.is_complete() && plan.after.counts.xattrs == 12, "{}", plan.after);
}

/// What had no name went to lost+found, whoever had made that, and whoever could read and write there.
/// Promises that only one of root's is used, into which nobody else comes, and else another one is made.
#[test]
fn a_lost_and_found_of_somebody_else_gets_nothing() {
    for (uid, mode, is_used) in [(0, 0o040_700, true), (0, 0o040_755, false), (1000, 0o040_700, false)] {
        let mut b = sound();
        (b.inode(DIRECTORY).uid, b.inode(DIRECTORY).mode) = (uid, mode);
        let place = b.entry("lost+found", DIRECTORY);
        b.set_parents(ROOT, std::slice::from_ref(&place));
        new_root(&mut b, |cells| {
            cells.retain(|c| !c.1.ends_with(b"far") && !c.1.ends_with(b"directory"));
            cells.push(place.clone());
            cells.sort();
        });
        let device = b.finish();
        lost_by_repair(&device, &format!("found-{uid}-{mode:o}"));
        let parent = inode_of(&device, InodeNo(FAR)).unwrap().parent;
        assert_eq!(parent == InodeNo(DIRECTORY), is_used, "{uid}, {mode:o}");
        let place = inode_of(&device, parent).unwrap();
        assert_eq!((place.uid, place.mode, place.parent), (0, 0o040_700, InodeNo::ROOT), "{uid}, {mode:o}");
    }
}

/// Where the table was lost, a further zone was taken for where the first block of its group looked like its
/// header, and that may be a file's. Promises that the repair is refused if there is more than one place.
#[test]
fn a_zone_that_could_be_in_two_places_is_not_found() {
    for is_forged in [false, true] {
        let mut b = sound();
        raw(&mut b, 10, |table| table.fill(0));
        b.after.push(Box::new(move |device| {
            let header = ZoneHeader::decode(&read(device, 3 * ZONE_BLOCKS + HEADER_SLOTS[1])).unwrap();
            let other = ZoneHeader { start: BlockNo(2 * ZONE_BLOCKS), ..header };
            if is_forged {
                write(device, 2 * ZONE_BLOCKS + HEADER_SLOTS[1], &other.encode(GENERATION).0);
            }
        }));
        let device = b.finish();
        let plan = plan_repair(&device, &CheckOptions::default()).unwrap();
        assert_eq!(plan.is_complete(), !is_forged, "{}", plan.after);
    }
}
