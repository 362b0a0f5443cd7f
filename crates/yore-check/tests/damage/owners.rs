//! Who of several owners of a block was the first, and how much is read to find that out.

use super::*;

/// Files of zone 2, beside the one that is always there: 20 blocks of inodes.
const FILES: usize = 320;

fn file(i: usize) -> InodeNo {
    InodeNo::new(MetaAddr::new(ZoneNo(2), 2 + (i / 16) as u16), (i % 16) as u8)
}

/// Adds files of a block each to zone 2, without names. So many of the second half of them have the block of
/// one of the first half.
fn add_files(b: &mut Builder, twice: usize, files: usize) {
    let mut starts = Vec::new();
    for i in 0..files {
        let start = match i.checked_sub(files / 2).filter(|n| *n < twice) {
            Some(n) => starts[n],
            None => b.data(1),
        };
        starts.push(start);
        let mut inode = empty_inode(FILE, 1, 7);
        ExtentValue::encode_inline(&mut inode, &[(0, extent(start, 1, false))]);
        (inode.size, inode.blocks) = (4096, 1);
        b.inodes.insert(file(i), inode);
    }
}

/// The sound volume with such files; and the second extent of a file of zone 0 is that of another there if
/// `in_zone_0`.
fn volume(twice: usize, in_zone_0: bool) -> MemoryDevice {
    let mut b = sound();
    add_files(&mut b, twice, FILES);
    if in_zone_0 {
        let (_, first) = ExtentValue::decode_inline(b.inode(EXTENTS)).unwrap()[0];
        let inode = b.inode(FAR);
        ExtentValue::encode_inline(inode, &[(0, first)]);
        (inode.size, inode.blocks) = (u64::from(first.len) * 4096, first.len.into());
    }
    b.finish()
}

/// Checks a volume with next to no memory.
fn checked_without_memory(device: &MemoryDevice) -> Report {
    let options = CheckOptions { memory: 0, scan_from: u64::MAX, findings_max: 2000, ..Default::default() };
    check(device, &options).expect("the volume can be checked")
}

/// Whom each file of zone 2 with a block of another one has for its first owner.
fn first_owners(report: &Report) -> Vec<(InodeNo, Option<InodeNo>)> {
    let twice = report.findings.iter().filter(|finding| finding.problem == SpaceOwnedTwice);
    twice.map(|f| (f.inode.unwrap(), f.first.as_ref().expect("the first owner is known").inode)).collect()
}

/// Promises that to find the first owner of a block only the inodes of its zone are read once more, and as
/// much for a hundred blocks as for one; and that all are found.
#[test]
fn only_the_zone_of_the_first_owner_is_read_again() {
    let blocks = |twice, in_zone_0| {
        let report = checked_without_memory(&volume(twice, in_zone_0));
        let mut expected: Vec<_> = (0..twice).map(|n| (file(FILES / 2 + n), Some(file(n)))).collect();
        if in_zone_0 {
            expected.insert(0, (InodeNo(FAR), Some(InodeNo(EXTENTS))));
        }
        assert_eq!(first_owners(&report), expected);
        report.reading.bytes / BLOCK_SIZE as u64
    };
    let none = blocks(0, false);
    let one = blocks(1, false) - none;
    // Twenty blocks of inodes and that of the file that is always there; none if they are held.
    assert!(one <= 21, "{one} blocks for one of zone 2");
    let hundred = blocks(100, false) - none;
    assert_eq!(hundred, one, "blocks for a hundred of zone 2");
    let of_zone_0 = blocks(0, true) - none;
    assert!((1..40).contains(&of_zone_0), "{of_zone_0} blocks for one of zone 0");
    let both = blocks(100, true) - none;
    // Twice as much for zone 2: without memory the inodes of only one zone are held at a time.
    assert!(both <= of_zone_0 + 2 * 21, "{both} blocks for two zones, {of_zone_0} for one of zone 0");
}

/// The same files of zone 2 with names in the root directory, so that nothing else is wrong; `more` may
/// change them and the entries before the volume is made.
fn named(twice: usize, files: usize, more: impl Fn(&mut Builder, &mut Vec<(u64, Vec<u8>)>)) -> MemoryDevice {
    let mut b = sound();
    add_files(&mut b, twice, files);
    b.forget(ROOT);
    let (of_root, mut cells) = (root_cells(&b), Vec::new());
    cells.extend((0..files).map(|i| b.entry(&format!("file-{i}"), file(i).0)));
    b.set_parents(ROOT, &cells);
    cells.extend(of_root);
    more(&mut b, &mut cells);
    cells.sort();
    set_root(&mut b, &cells.chunks(60).map(<[_]>::to_vec).collect::<Vec<_>>());
    b.finish()
}

/// Promises that the fast pass finds two owners of a block by itself, as the walk does, with paths and first
/// owners; and that it reads for one such block, beyond what a sound volume takes, only the spans that may
/// have the first owner and the way to the names; and for a hundred blocks of those spans not more of them.
#[test]
fn the_fast_pass_reads_a_span_for_two_owners() {
    let blocks = |twice| {
        let device = named(twice, FILES, |_, _| {});
        let with = |scan_from| {
            let options = CheckOptions { scan_from, findings_max: 2000, ..CheckOptions::default() };
            check(&device, &options).expect("the volume can be checked")
        };
        let (quick, walked) = (with(0), with(u64::MAX));
        assert_eq!(quick.findings, walked.findings);
        assert_eq!((quick.counts, quick.findings_count), (walked.counts, walked.findings_count));
        assert_eq!(quick.proved, twice == 0, "{}", quick.doubt);
        let expected: Vec<_> = (0..twice).map(|n| (file(FILES / 2 + n), Some(file(n)))).collect();
        assert_eq!(first_owners(&quick), expected);
        if twice > 0 {
            assert!(quick.doubt.contains("all else is proved"), "{}", quick.doubt);
            assert_eq!(quick.findings[0].path.as_deref(), Some("/file-160"));
            assert_eq!(quick.findings[0].first.as_ref().unwrap().path.as_deref(), Some("/file-0"));
        }
        quick.reading.bytes / BLOCK_SIZE as u64
    };
    let none = blocks(0);
    // Three spans have claimed something near the block of the first file: that of these files, and two with
    // large ones. Between two blocks of a span one is read with them here. A path takes two blocks of inodes,
    // a branch and a leaf.
    let one = blocks(1) - none;
    assert!(one <= 3 * 2 * 22, "{one} blocks for one");
    let hundred = blocks(100) - none;
    assert!(hundred <= 3 * 2 * 22 + 200 * 5, "{hundred} blocks for a hundred");
}

/// Promises that a file that has the block of another one, and several names, is found with the path that the
/// walk tells, which the fast pass alone does not know.
#[test]
fn an_owner_with_several_names_is_found_by_the_walk() {
    let device = named(1, FILES, |b, cells| {
        cells.push(b.entry("another name", file(0).0));
        b.inode(file(0).0).links = 2;
    });
    let with = |scan_from| check(&device, &CheckOptions { scan_from, ..Default::default() }).unwrap();
    let (quick, walked) = (with(0), with(u64::MAX));
    assert_eq!(quick.findings, walked.findings);
    assert_eq!(first_owners(&quick), [(file(FILES / 2), Some(file(0)))]);
    assert!(quick.doubt.contains("where its names are"), "{}", quick.doubt);
}

/// Promises that lists which are far larger than memory, so that their parts come and go, change nothing that
/// is found or counted, on a sound volume and on one with damage everywhere.
#[test]
fn lists_beyond_memory_change_no_finding() {
    const MANY: usize = 2000;
    let damaged = |b: &mut Builder, cells: &mut Vec<(u64, Vec<u8>)>| {
        for i in (0..MANY).step_by(97) {
            b.inode(file(i).0).links += 1;
            b.inode(file(i + 1).0).parent_cookie += 1;
            b.inode(file(i + 2).0).blocks += 1;
        }
        cells.retain(|(cookie, _)| cookie % 41 != 0);
    };
    for (twice, more) in [(0, None), (300, None), (300, Some(damaged))] {
        let device = named(twice, MANY, |b, cells| more.into_iter().for_each(|more| more(b, cells)));
        let with = |scan_from, memory| {
            let options = CheckOptions { scan_from, memory, findings_max: 2000, ..CheckOptions::default() };
            check(&device, &options).expect("the volume can be checked")
        };
        let ample = with(u64::MAX, 1 << 30);
        assert_eq!(ample.is_clean(), twice == 0);
        for memory in [0, 64 << 10, 1 << 20, 1 << 30] {
            for scan_from in [0, u64::MAX] {
                let little = with(scan_from, memory);
                assert_eq!(little.findings, ample.findings, "{memory} bytes");
                assert_eq!(
                    (little.counts, little.lost),
                    (ample.counts, ample.lost.clone()),
                    "{memory} bytes"
                );
            }
        }
    }
}
