//! What a volume of somebody with bad intentions may cost: time and memory stay in proportion to what exists,
//! however deep it is and however often it is named.

use super::*;

/// Directories in one another, of 16 to a block, in three zones.
fn nested(n: usize) -> InodeNo {
    let (block, slot) = (n / 16, (n % 16) as u8);
    let addr = MetaAddr::new(ZoneNo([0, 1, 3][block / 500]), 1 + (block % 500) as u16);
    InodeNo::new(addr, slot)
}

/// A volume of so many directories, each in the one before.
fn deep(depth: usize) -> Builder {
    let mut b = Builder::empty(BLOCKS);
    b.add_zone(0, ZONE_BLOCKS, 0);
    b.add_zone(1, 3 * ZONE_BLOCKS, 0);
    b.add_zone(3, 4 * ZONE_BLOCKS, 0);
    for n in 0..=depth {
        let links = if n < depth { 3 } else { 2 };
        b.inodes.insert(nested(n), empty_inode(DIR, links, 1));
    }
    let root = b.inode(ROOT);
    (root.parent, root.parent_incarnation) = (InodeNo::ROOT, Incarnation(1));
    for n in 0..depth {
        let (cookie, value) = b.entry("d", nested(n + 1).0);
        let inode = b.inode(nested(n).0);
        inode.set_inline(&[&cookie.to_be_bytes()[..], &value].concat());
        inode.size = 1;
        b.set_parents(nested(n).0, &[(cookie, value)]);
    }
    b
}

/// The path of a finding had no limit, and was copied once for each directory in it: with directories deep in
/// one another it took time as the square of the depth, and memory for each finding as the depth. Promises
/// that a path up to 4 KiB is told whole, and of a longer one the end.
#[test]
fn a_path_is_as_long_as_it_may_be() {
    let mut b = deep(20_000);
    for n in [100, 20_000] {
        b.inode(nested(n).0).blocks += 1;
    }
    let report = checked(&b.finish());
    let paths: Vec<&str> = report.findings.iter().map(|f| f.path.as_deref().expect("a path")).collect();
    assert_eq!(paths, ["/d".repeat(100), "/d".repeat(2048)], "{report}");
}

/// Each block to which nothing leads took 40 bytes of memory, beyond what a check may use. Promises that they
/// are told with kind and owner as before if there is no memory for them.
#[test]
fn blocks_to_which_nothing_leads_take_no_memory() {
    const MANY: usize = 960;
    let mut b = sound();
    for n in 0..MANY {
        let addr = b.address(1 + (n % 2) as u32);
        b.node(addr, block(BlockKind::Directory, 0, addr, InodeNo(ROOT), 17), &[]);
    }
    let device = b.finish();
    let with = |memory| {
        let options = CheckOptions { memory, ..CheckOptions::default() };
        check(&device, &options).expect("the volume can be checked").findings
    };
    let (little, much) = (with(0), with(1 << 30));
    assert_eq!(little, much);
    assert_eq!(little.len(), MANY);
    for finding in little {
        assert_eq!((finding.problem, finding.inode), (BlockUnreachable, Some(InodeNo(ROOT))), "{finding}");
        assert!(finding.to_string().contains("directory node"), "{finding}");
    }
}

/// A file that has so many blocks of another one was written anew for each of them, and where no block was
/// free for the copies, all groups were searched for each. Promises that the file gets copies of all of them,
/// each of which is said, in one round; and in the next one if leaks take the room.
#[test]
fn a_file_with_many_blocks_of_another_is_written_once() {
    const MANY: u64 = 12_000;
    for is_full in [false, true] {
        let mut b = sound();
        let start = b.data(MANY);
        b.forget(BIG);
        // The file that comes first has them, too.
        for number in [EXTENTS, BIG] {
            let cells: Vec<(u64, Vec<u8>)> =
                (0..MANY).map(|n| (2 * n, extent(BlockNo(start.0 + n), 1, true).encode().to_vec())).collect();
            let leaves: Vec<Vec<(u64, Vec<u8>)>> = cells.chunks(80).map(<[_]>::to_vec).collect();
            let owner = (InodeNo(number), b.inodes[&InodeNo(number)].incarnation.0);
            let (root, level, nodes) = b.tree(1, BlockKind::Extents, owner, &leaves);
            let inode = b.inode(number);
            inode.set_tree_root(root, level);
            (inode.size, inode.blocks) = (2 * MANY * 4096, MANY + nodes);
        }
        if is_full {
            // All other blocks are marked used, and nobody has them.
            let mut used = b.used.clone();
            used.sort();
            let mut end = ZONE_BLOCKS;
            for (start, len) in used.into_iter().chain([(BlockNo(BLOCKS), 0)]) {
                b.used.extend((start.0 > end).then(|| (BlockNo(end), start.0 - end)));
                end = end.max(start.0 + len);
            }
        }
        let device = b.finish();
        let plan = yore_check::plan_repair(&device, &CheckOptions::default()).expect("a plan");
        assert!(plan.is_complete(), "{}", plan.after);
        let of_twice = |done: &&yore_check::Done| done.finding.problem == SpaceOwnedTwice;
        let done: Vec<_> = plan.done.iter().filter(of_twice).collect();
        assert_eq!(done.len() as u64, MANY);
        let is_right = |done: &&yore_check::Done| {
            done.round == 1 + u32::from(is_full) && done.lost.len() == 1 && done.lost[0].path == "/big"
        };
        assert!(done.iter().all(is_right), "{:?}", done.iter().find(|done| !is_right(done)));
        assert!(done.iter().all(|done| done.lost[0].what.contains("those of /extents")), "{:?}", done[0]);
        assert_eq!(plan.lost.len() as u64, MANY);
    }
}

/// A branch of a tree above leaves with these keys.
fn branch(b: &mut Builder, addr: MetaAddr, birth: u64, kind: BlockKind, leaves: &[(u64, MetaAddr)]) {
    let owner = (InodeNo(common::past::GONE), 60);
    let cells: Vec<(u64, Vec<u8>)> =
        leaves.iter().map(|(key, leaf)| (*key, leaf.0.to_le_bytes().to_vec())).collect();
    b.node(addr, born(EventNo(birth), kind, 1, addr, owner), &cells);
}

/// The volume with a past, and so many more versions of a file or symbolic link that is gone. Each has a root
/// of its own, and all have the same leaves, with these cells.
fn many_versions(versions: u64, kind: BlockKind, cells: &[(u64, Vec<u8>)]) -> MemoryDevice {
    const FIRST: u64 = 11;
    let mut b = common::past::past();
    b.add_zone(3, 6 * ZONE_BLOCKS, 0);
    b.add_zone(5, 7 * ZONE_BLOCKS, 0);
    let owner = (InodeNo(common::past::GONE), 60);
    let mut leaves = Vec::new();
    for cell in cells {
        let addr = b.address(5);
        b.node(addr, born(EventNo(FIRST), kind, 0, addr, owner), std::slice::from_ref(cell));
        leaves.push((cell.0, addr));
    }
    for birth in FIRST..FIRST + versions {
        let zone = if birth < FIRST + 300 { 3 } else { 5 };
        let root = b.address(zone);
        branch(&mut b, root, birth, kind, &leaves);
        let mut inode = empty_inode(FILE, 1, 60);
        inode.born = EventNo(birth);
        inode.blocks = 1 + leaves.len() as u64;
        match kind {
            BlockKind::Symlink => {
                inode.mode = LINK;
                inode.set_tree_root(root, 1);
                inode.size = cells.len() as u64;
            }
            _ => inode.xattr_root = root,
        }
        b.version(common::past::GONE, birth + 1, inode);
    }
    b.past.held.1 += (versions + leaves.len() as u64) as i64;
    b.sb.next_number = EventNo(2000);
    b.finish()
}

/// What a check finds that holds no blocks, and how many it reads.
fn read_one_by_one(device: &MemoryDevice) -> (Report, u64) {
    let options = CheckOptions { memory: 0, scan_from: u64::MAX, ..CheckOptions::default() };
    let report = check(device, &options).expect("the volume can be checked");
    let blocks = report.reading.requests;
    (report, blocks)
}

/// Attributes were read once more for each version with another root, so versions and leaves took time as
/// their product. Promises that this is done for so many nodes of a file and no more, and that nothing is
/// found then which is not so.
#[test]
fn attributes_are_not_read_again_without_end() {
    let names = (0..150).map(|n| attribute(XattrNamespace::User, &format!("name {n}"), b"value").remove(0));
    let mut cells: Vec<(u64, Vec<u8>)> = names.collect();
    cells.sort();
    let (report, few) = read_one_by_one(&many_versions(2, BlockKind::Xattrs, &cells));
    assert!(report.is_clean(), "{report}");
    let (report, many) = read_one_by_one(&many_versions(500, BlockKind::Xattrs, &cells));
    assert!(report.is_clean(), "{report}");
    // Each version has a row of its own, an end, and a root, which are read a few times.
    let most = few + (1 << 16) + 150 + 500 * 4;
    assert!(many < most, "{many} blocks, and not {most}");
}

/// The same of a symbolic link that has more chunks than any can have. Promises that it is found, and not
/// read to its end for each version.
#[test]
fn a_symlink_that_is_too_long_is_not_read_to_its_end() {
    let cells: Vec<(u64, Vec<u8>)> = (0..150).map(|n| (n, vec![b'x'])).collect();
    let (report, blocks) = read_one_by_one(&many_versions(400, BlockKind::Symlink, &cells));
    assert!(report.has(SymlinkChunk), "{report}");
    assert!(blocks < 400 * 20, "{blocks} blocks");
}
