//! Blocks are promised, taken and given back, over a real metadata layer on a device in memory.

use super::*;
use crate::Error;
use std::sync::Arc;
use std::time::Duration;
use yore_device::{Device, MemoryDevice};
use yore_format::layout::{Geometry, GROUP_BLOCKS};
use yore_format::{BlockKind, BlockNo, GroupNo, WriteFeatures};
use yore_meta::{Durability, Meta, MetaOptions, Reclaimer, Reserved};

pub(super) fn open(bytes: u64) -> (Arc<Meta>, Arc<Alloc>) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes));
    crate::testing::format(&*device, yore_meta::default_log_blocks(4096));
    let options = MetaOptions {
        read_only: false,
        engine: None,
        cache_bytes: 16 << 20,
        commit_interval: Duration::from_secs(3600),
        durability: Durability::Async,
        log: yore_meta::LogPlace::Recorded,
        part_leaves: 0,
    };
    let meta = Meta::open(device, options).unwrap();
    let alloc = Arc::new(Alloc::new(&meta));
    let reclaimer: Arc<dyn Reclaimer> = alloc.clone();
    meta.set_reclaimer(Arc::downgrade(&reclaimer));
    (meta, alloc)
}

fn enter(meta: &Meta, alloc: &Alloc, run: Run) {
    let mut pinned = PinnedGroups::default();
    alloc.prepare_commit(meta, run, &mut pinned).unwrap();
    let mut op = meta.begin(Reserved::none());
    alloc.commit(&mut op, run);
}

fn free(meta: &Meta, alloc: &Alloc, run: Run) {
    let mut pinned = PinnedGroups::default();
    alloc.prepare_free(meta, run, &mut pinned).unwrap();
    let mut op = meta.begin(Reserved::none());
    let (no, bit) = alloc.group_and_bit(run).unwrap();
    alloc.free(&mut op, no, &[(bit, run.len)]);
}

/// Everything that is promised can be taken, and no block twice. Freed blocks are taken again only after a
/// generation.
#[test]
fn promises_are_kept() {
    let (meta, alloc) = open(300 << 20);
    let blocks = alloc.available(&meta, 0);
    assert!(blocks > 70_000);
    let mut promise = alloc.promise(&meta, GroupNo(0), blocks).unwrap();
    assert!(alloc.promise(&meta, GroupNo(0), blocks).is_err());
    let mut runs = Vec::new();
    let mut left = blocks;
    while left > 0 {
        let run = alloc.take(&meta, BlockNo(40_000), left.min(1000) as u32).unwrap();
        enter(&meta, &alloc, run);
        left -= u64::from(run.len);
        runs.push(run);
    }
    promise.take_out(blocks);
    drop(promise);
    let mut sorted = runs.clone();
    sorted.sort_by_key(|r| r.start);
    assert!(sorted.windows(2).all(|w| w[0].end() <= w[1].start.0), "a block was handed out twice");
    let generation = meta.begin(Reserved::none()).generation();
    free(&meta, &alloc, runs[0]);
    let mut promise = alloc.promise(&meta, GroupNo(0), u64::from(runs[0].len)).unwrap();
    let again = alloc.take(&meta, runs[0].start, runs[0].len).unwrap();
    promise.take_out(u64::from(again.len));
    assert!(meta.begin(Reserved::none()).generation() > generation, "reused before a commit");
    alloc.untake(again);
    alloc.release(u64::from(again.len));
    drop(promise);
    assert_eq!(alloc.promised(), 0);
    meta.close().unwrap();
}

/// Metadata grows into groups that were never used, then into aligned free runs; the blocks of an empty zone
/// are given back.
#[test]
fn metadata_grows_and_shrinks() {
    let (meta, alloc) = open(300 << 20);
    let zones = meta.totals.zones.get();
    let free = alloc.free_blocks();
    for n in 1..=4 {
        alloc.grow_metadata(&meta, GroupNo(0)).unwrap();
        assert_eq!(meta.totals.zones.get(), zones + n);
    }
    assert!(alloc.free_blocks() < free);
    assert_eq!(alloc.free_blocks(), meta.totals.free_blocks.get());
    meta.sync().unwrap();
    meta.close().unwrap();
}

/// The group in which a volume was to end had never been used. Whoever moved something there began to use it,
/// with its blocks beyond the end, and the volume could not be made shorter: they were said to be in use.
#[test]
fn a_volume_ends_in_a_group_that_was_never_used() {
    let (meta, alloc) = open(600 << 20);
    let (new, last) = (Geometry::new(2 * GROUP_BLOCKS + 10_000), GroupNo(2));
    assert!(!meta.is_initialised(last).unwrap());
    meta.extend(WriteFeatures::RESIZED).unwrap();
    let end = alloc.close_end(&meta, new).unwrap();
    let mut promise = alloc.promise(&meta, last, 100).unwrap();
    let run = alloc.take(&meta, new.data_start(last), 100).unwrap();
    promise.take_out(u64::from(run.len));
    drop(promise);
    enter(&meta, &alloc, run);
    assert!(new.group_of(run.start) == last && run.end() <= new.blocks, "{run:?}");
    meta.sync().unwrap();
    end.truncate().unwrap();
    meta.sync().unwrap();
    assert_eq!(meta.geometry().blocks, new.blocks);
    assert_eq!(alloc.free_blocks(), meta.totals.free_blocks.get());
    meta.close().unwrap();
}

/// Damaged extents may name blocks that cannot hold data; that is an error, not a panic.
#[test]
fn impossible_runs_are_corruption() {
    let (meta, alloc) = open(300 << 20);
    for (start, len) in [(0, 1), (500, 1), (32_760, 20), (1 << 40, 5), (u64::MAX - 2, 1)] {
        let run = Run { start: BlockNo(start), len };
        assert!(matches!(alloc.group_and_bit(run), Err(Error::Corruption(_))), "{run:?}");
    }
    meta.close().unwrap();
}

/// What a generation has freed waits, in runs, to be discarded, and then is available. Who finds nothing else
/// takes it without. Short runs do not wait.
#[test]
fn what_waits_to_be_discarded_is_found_by_whoever_needs_it() {
    let (meta, alloc) = open(300 << 20);
    alloc.discard_from(16);
    let blocks = alloc.available(&meta, 0);
    let mut promise = alloc.promise(&meta, GroupNo(0), blocks).unwrap();
    let mut runs = Vec::new();
    let mut left = blocks;
    while left > 0 {
        let run = alloc.take(&meta, BlockNo(0), left.min(1024) as u32).unwrap();
        enter(&meta, &alloc, run);
        left -= u64::from(run.len);
        runs.push(run);
    }
    promise.take_out(blocks);
    // Freed block by block, from behind: one run all the same.
    let long = runs.iter().copied().find(|run| run.len >= 1000).unwrap();
    let part = |from, len| Run { start: BlockNo(long.start.0 + from), len };
    meta.device().write_at(long.start.0 * 4096, &[7; 4096]).unwrap();
    (0..40).rev().for_each(|at| free(&meta, &alloc, part(at, 1)));
    free(&meta, &alloc, part(100, 15));
    free(&meta, &alloc, part(200, 16));
    let always = || true;
    assert_eq!(alloc.discard_freed(&meta, u64::MAX, &always), 0, "the generation is not complete");
    meta.sync().unwrap();
    let take = |len: u32| {
        let mut promise = alloc.promise(&meta, GroupNo(0), u64::from(len)).unwrap();
        let run = alloc.take(&meta, long.start, len).unwrap();
        promise.take_out(u64::from(run.len));
        run
    };
    assert_eq!(take(15), part(100, 15), "too short to wait");
    assert_eq!(alloc.discard_freed(&meta, 10, &always), 10, "a part of a run");
    let mut block = [1; 4096];
    meta.device().read_at(long.start.0 * 4096, &mut block).unwrap();
    assert_eq!(block, [0; 4096], "it is discarded");
    let generation = meta.completed_generation();
    assert_eq!(take(10), part(0, 10));
    assert_eq!((take(30), take(16)), (part(10, 30), part(200, 16)), "without a discard");
    assert_eq!(meta.completed_generation(), generation, "and without a generation");
    assert_eq!(alloc.discard_freed(&meta, u64::MAX, &always), 0);
    meta.close().unwrap();
}

/// An Op that lets go of many runs of a group, in whatever order, changes its bitmap once.
#[test]
fn the_bitmap_of_a_group_is_changed_once() {
    let (meta, alloc) = open(300 << 20);
    let mut promise = alloc.promise(&meta, GroupNo(0), 600).unwrap();
    let all = alloc.take(&meta, BlockNo(0), 600).unwrap();
    assert_eq!(all.len, 600);
    promise.take_out(600);
    enter(&meta, &alloc, all);
    let free = alloc.free_blocks();
    // Runs of one block with a gap behind each, from behind, and two that follow each other.
    let mut runs: Vec<Run> =
        (0..200).rev().map(|i| Run { start: BlockNo(all.start.0 + 3 * i), len: 1 }).collect();
    runs.push(Run { start: BlockNo(all.start.0 + 1), len: 2 });
    let mut pinned = PinnedGroups::default();
    runs.iter().for_each(|run| alloc.prepare_free(&meta, *run, &mut pinned).unwrap());
    let mut op = meta.begin(Reserved::none());
    let change = |op: &mut yore_meta::Op<'_>| op.set_orphan_root(yore_format::MetaAddr::NONE, 0);
    let before = change(&mut op);
    let gone = alloc.let_go(&mut op, runs, LetGo::InUse, before, pinned);
    assert_eq!(change(&mut op).number() - before.number(), 2, "one change between them");
    drop(op);
    assert_eq!((gone.freed, gone.retained, gone.references), (202, 0, 0));
    assert_eq!(alloc.free_blocks(), free + 202);
    meta.sync().unwrap();
    assert_eq!(meta.totals.free_blocks.get(), alloc.free_blocks());
    meta.close().unwrap();
}

/// Data came to a group whose zones were full, and had no checksum, although the group had room for another
/// zone. Now the group gets one for its checksum tables. Without that room, none is made, and nothing fails;
/// when there is room again, the tables come.
#[test]
fn a_group_with_full_zones_gets_checksum_tables() {
    let (meta, alloc) = open(300 << 20);
    meta.extend(WriteFeatures::CHECKSUMS).unwrap();
    let (group, tables) = (GroupNo(0), || meta.tables(BlockKind::ChecksumTable, GroupNo(0)).unwrap().len());
    let mut promise = alloc.promise(&meta, group, 4).unwrap();
    let run = alloc.take(&meta, BlockNo(4000), 4).unwrap();
    enter(&meta, &alloc, run);
    promise.take_out(4);
    drop(promise);
    let mut full = Vec::new();
    while let Some(reserved) = meta.reserve_in_group(group, 1).unwrap() {
        full.push(reserved);
    }
    // All that the volume has is promised to others.
    let others = alloc.promise(&meta, group, alloc.available(&meta, 0)).unwrap();
    while let Some(reserved) = meta.reserve_in_group(group, 1).unwrap() {
        full.push(reserved);
    }
    alloc.make_checksum_tables(&meta, run).unwrap();
    assert_eq!(tables(), 0);
    drop(others);
    let before = alloc.available(&meta, 0);
    alloc.make_checksum_tables(&meta, run).unwrap();
    assert!(tables() > 30, "{}", tables());
    assert!(alloc.available(&meta, 0) + 1000 < before, "a zone was made");
}

/// Two files share blocks, as far as allocation knows of that.
fn shared(blocks: u32) -> (Arc<Meta>, Arc<Alloc>, Run) {
    let (meta, alloc) = open(300 << 20);
    meta.extend(WriteFeatures::TABLES).unwrap();
    let mut promise = alloc.promise(&meta, GroupNo(0), u64::from(blocks)).unwrap();
    let run = alloc.take(&meta, BlockNo(4000), blocks).unwrap();
    assert_eq!(run.len, blocks);
    promise.take_out(u64::from(blocks));
    drop(promise);
    enter(&meta, &alloc, run);
    share(&meta, &alloc, run);
    (meta, alloc, run)
}

fn share(meta: &Meta, alloc: &Alloc, run: Run) {
    let mut pinned = PinnedGroups::default();
    assert!(alloc.make_tables(meta, run).unwrap() && alloc.prepare_gain(meta, run, &mut pinned).unwrap());
    let mut op = meta.begin(Reserved::none());
    let _ = alloc.gain(&mut op, run, None);
}

/// One of the owners lets go of its blocks.
fn let_go(meta: &Meta, alloc: &Alloc, run: Run) {
    let mut pinned = PinnedGroups::default();
    alloc.prepare_free(meta, run, &mut pinned).unwrap();
    let mut op = meta.begin(Reserved::none());
    let last = op.set_orphan_root(yore_format::MetaAddr::NONE, 0);
    let _ = alloc.let_go(&mut op, vec![run], LetGo::InUse, last, pinned);
}

/// One owner had let go of a block, and still had its claim when the other one wanted to: that one was told
/// that the volume is damaged.
#[test]
fn a_claim_ends_with_the_reference() {
    let (meta, alloc, run) = shared(10);
    let (mut first, mut second) = (PinnedGroups::default(), PinnedGroups::default());
    alloc.prepare_free(&meta, run, &mut first).unwrap();
    let mut op = meta.begin(Reserved::none());
    let last = op.set_orphan_root(yore_format::MetaAddr::NONE, 0);
    assert_eq!(alloc.let_go(&mut op, vec![run], LetGo::InUse, last, first).freed, 0);
    // The Op is still open. A thread with an Op prepares nothing.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            alloc.prepare_free(&meta, run, &mut second).unwrap();
            assert!(
                alloc.prepare_free(&meta, run, &mut PinnedGroups::default()).is_err(),
                "it has one owner"
            );
        });
    });
    assert_eq!(alloc.let_go(&mut op, vec![run], LetGo::InUse, last, second).freed, 10);
    drop(op);
    assert!(alloc.prepare_free(&meta, run, &mut PinnedGroups::default()).is_err());
    meta.close().unwrap();
}

/// Both owners let go of blocks at the same time: the second one found that they were shared, and then that
/// they were not.
#[test]
fn two_owners_let_go_at_the_same_time() {
    let (meta, alloc, run) = shared(500);
    let free = alloc.free_blocks();
    for round in 0..300 {
        if round > 0 {
            let mut promise = alloc.promise(&meta, GroupNo(0), 500).unwrap();
            let again = alloc.take(&meta, run.start, 500).unwrap();
            assert_eq!(again, run);
            promise.take_out(500);
            enter(&meta, &alloc, run);
            share(&meta, &alloc, run);
        }
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    start.wait();
                    let_go(&meta, &alloc, run);
                });
            }
        });
        assert_eq!(alloc.free_blocks(), free + 500, "round {round}");
        meta.sync().unwrap();
    }
    meta.close().unwrap();
}

/// Promising again was a flag that its one caller set and cleared. An error between the two would have left
/// it set, and whoever came later would have been promised room that is not there.
#[test]
fn promising_again_ends_with_its_guard() {
    let (meta, alloc) = open(300 << 20);
    let is_set = || alloc.promises_again.load(std::sync::atomic::Ordering::Relaxed);
    let fails = || {
        let _again = alloc.promise_again();
        assert!(is_set());
        alloc.promise(&meta, GroupNo(0), u64::MAX / 4).map(drop)
    };
    assert!(fails().is_err());
    assert!(!is_set());
    meta.close().unwrap();
}
