//! Who of several owners of a block was the first, and how much is read to find that out.

use super::*;

/// Files of zone 2, beside the one that is always there: 20 blocks of inodes.
const FILES: usize = 320;

fn file(i: usize) -> InodeNo {
    InodeNo::new(MetaAddr::new(ZoneNo(2), 2 + (i / 16) as u16), (i % 16) as u8)
}

/// The sound volume with files in zone 2, without names. So many of the second half of them have the block of
/// one of the first half; and the second extent of a file of zone 0 is that of another there if `in_zone_0`.
fn volume(twice: usize, in_zone_0: bool) -> MemoryDevice {
    let mut b = sound();
    let mut starts = Vec::new();
    for i in 0..FILES {
        let start = match i.checked_sub(FILES / 2).filter(|n| *n < twice) {
            Some(n) => starts[n],
            None => b.data(1),
        };
        starts.push(start);
        let mut inode = empty_inode(FILE, 1, 7);
        ExtentValue::encode_inline(&mut inode, &[(0, extent(start, 1, false))]);
        (inode.size, inode.blocks) = (4096, 1);
        b.inodes.insert(file(i), inode);
    }
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
