//! Changes of lists of extents, without a medium.

use super::*;
use yore_format::{BlockKind, BlockNo, Incarnation};

fn edit(extents: &[(u64, u64, u32)]) -> Edit {
    let list: Vec<Extent> =
        extents.iter().map(|(key, start, len)| (*key, value(*start, *len, false))).collect();
    Edit {
        no: InodeNo(400),
        tree: Tree::empty(BlockKind::Extents, InodeNo(400), Incarnation(1)),
        in_tree: false,
        past: PastNodes::default(),
        before: list.clone(),
        after: list,
        whole: true,
        limit: u64::MAX,
        recorded_until: EventNo(0),
        birth: EventNo(1),
        lost: 0,
        freed: Vec::new(),
        left: Vec::new(),
        taken: Vec::new(),
        checksums: Vec::new(),
        gained: Vec::new(),
        groups: PinnedGroups::default(),
    }
}

fn value(start: u64, len: u32, unwritten: bool) -> ExtentValue {
    ExtentValue { start: BlockNo(start), len, unwritten, shared: false, birth: EventNo(1) }
}

fn run(start: u64, len: u32) -> Run {
    Run { start: BlockNo(start), len }
}

/// New blocks replace what was there, split it, free its blocks, and join what continues it.
#[test]
fn putting_splits_and_merges() {
    let mut e = edit(&[(10, 5000, 10)]);
    e.put(14, run(9000, 2), false);
    assert_eq!(
        e.after,
        [(10, value(5000, 4, false)), (14, value(9000, 2, false)), (16, value(5006, 4, false))]
    );
    assert_eq!(e.freed, [run(5004, 2)]);
    e.put(16, run(9002, 4), false);
    assert_eq!(e.after, [(10, value(5000, 4, false)), (14, value(9000, 6, false))]);
    assert_eq!(e.freed, [run(5004, 2), run(5006, 4)]);
    assert_eq!(e.growth(), 1);
}

/// A removal trims and splits extents; it does not free blocks that are shared or older than the event.
#[test]
fn removing_frees_what_may_be_freed() {
    let mut e = edit(&[(0, 5000, 10), (20, 6000, 10)]);
    e.remove(5, 25);
    assert_eq!(e.after, [(0, value(5000, 5, false)), (25, value(6005, 5, false))]);
    assert_eq!(e.freed, [run(5005, 5), run(6000, 5)]);
    e.after[0].1.shared = true;
    e.recorded_until = EventNo(1);
    e.remove(0, 30);
    assert!(e.after.is_empty());
    assert_eq!(e.freed.len(), 2);
}

/// Every second part of an extent has another owner, too. Zeroing all of it at once made more extents than
/// the Op had reserved room for, and the Op panicked.
#[test]
fn zeroing_shared_parts_goes_in_small_steps() {
    let mut e = edit(&[(0, 5000, 1000)]);
    let every_second = |run: Run| Ok(((run.start.0 - 5000) % 8 < 4, (4 - run.start.0 % 4) as u32));
    let rest = e.set_unwritten(0, 1000, every_second).unwrap();
    assert_eq!(rest, 4 * PIECES_MOST as u64);
    assert_eq!(e.after.len(), PIECES_MOST / 2 + 1);
    assert_eq!(e.after.last(), Some(&(rest, value(5000 + rest, 1000 - rest as u32, false))));
    assert_eq!(e.freed.len(), PIECES_MOST / 2);
}

/// Unwritten extents become written piece by piece, and in the end are one extent again.
#[test]
fn flags_split_and_join() {
    let mut e = edit(&[(0, 5000, 10)]);
    e.set_unwritten(0, 10, |run| Ok((true, run.len))).unwrap();
    e.set_written(3, 5);
    assert_eq!(e.after, [(0, value(5000, 3, true)), (3, value(5003, 2, false)), (5, value(5005, 5, true))]);
    e.set_written(0, 10);
    assert_eq!(e.after, [(0, value(5000, 10, false))]);
    assert!(e.freed.is_empty());
}

/// Extents before the range were counted among the first ones of the range. On a volume with hardly any room
/// for metadata, where a removal goes one by one, it came to an end before its beginning, for ever.
#[test]
fn the_first_extents_are_those_of_the_range() {
    let e = edit(&[(0, 5000, 2), (10, 6000, 2), (20, 7000, 2), (30, 8000, 2)]);
    for (from, extents, limit) in [(0, 1, 10), (2, 1, 20), (10, 1, 20), (11, 1, 20), (12, 2, u64::MAX)] {
        assert_eq!(e.limit_of(from, extents), limit, "{extents} from {from}");
    }
}
