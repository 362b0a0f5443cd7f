//! Files over a real store on a device in memory.

mod errors;
mod nodes;
mod random;

use super::group::{write_back_many, Busy};
use super::map::{map_block, pages_for, Touch, PAGE};
use super::*;
use crate::ops::{create, InUse, NewFile};
use crate::store::Store;
use crate::{Caller, Error, FallocateMode, FileKind, InodeNo, MountOptions, Result, SeekTo};
use std::sync::Arc;
use std::time::Duration;
use yore_core::inode::{InodeCell, InodeState};
use yore_device::simulated::{Fault, FaultPlan};
use yore_device::{Device, MemoryDevice, SimulatedDevice};
use yore_format::{ContentKind, EventKind};

pub(super) const MIB: u64 = 1 << 20;

pub(super) fn make(bytes: u64) -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes));
    format(&device);
    device
}

fn format(device: &Arc<dyn Device>) {
    format_with_log(device, yore_meta::default_log_blocks(4096));
}

fn format_with_log(device: &Arc<dyn Device>, log_blocks: u64) {
    yore_core::testing::format(&**device, log_blocks);
}

pub(super) fn open(device: &Arc<dyn Device>, cache: u64) -> Arc<Store> {
    let options = MountOptions {
        data_cache: cache,
        metadata_cache: 16 << 20,
        commit_interval: Duration::from_secs(3600),
        defragment_after: None,
        ..MountOptions::default()
    };
    Store::open(device.clone(), &options).unwrap()
}

pub(super) fn new_file(store: &Arc<Store>, name: &str) -> InUse {
    let new = NewFile { kind: FileKind::Regular, permissions: 0o644, rdev: 0, target: b"" };
    create(store, &Caller::superuser(), InodeNo::ROOT, name.as_bytes(), &new).unwrap()
}

pub(super) fn write_back(store: &Store, cell: &Arc<InodeCell>) -> Result<()> {
    write_back_many(store, std::slice::from_ref(cell), Busy::Wait)
}

pub(super) fn truncate(store: &Store, cell: &Arc<InodeCell>, size: u64, touch: Touch<'_>) -> Result<()> {
    super::truncate(store, cell, size, touch, &mut ())
        .map(|done| assert!(done, "nothing goes with the truncation"))
}

pub(super) fn touch(state: &mut InodeState) {
    state.touch_mtime();
}

pub(super) fn contents(store: &Store, cell: &InodeCell) -> Vec<u8> {
    let mut buf = vec![0xee; cell.state.read().inode.size as usize + 100];
    let n = read(store, cell, 0, &mut buf).unwrap();
    buf.truncate(n);
    buf
}

pub(super) fn evict(store: &Store) {
    store.files.pages.make_room(usize::MAX);
}

/// Checks that everything promised was spent or given back, and that counts agree.
pub(super) fn check_counts(store: &Store) {
    assert_eq!(store.alloc.promised(), 0, "promises left over");
    assert_eq!(store.alloc.promised_extents(), 0, "room for extents left over");
    assert_eq!(store.alloc.free_blocks(), store.meta.totals.free_blocks.get());
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// What was written is read back: through the cache, from the medium, and after a remount. Small files live
/// in the inode.
#[test]
fn written_bytes_come_back() {
    let device = make(64 * MIB);
    let store = open(&device, 8 * MIB);
    let small = new_file(&store, "small");
    let large = new_file(&store, "large");
    let bytes: Vec<u8> = (0..3 * MIB as u32 + 77).map(|i| (i / 7) as u8).collect();
    write(&*store, &small.cell, 0, b"hello", false, &mut touch).unwrap();
    write(&*store, &large.cell, 0, &bytes, false, &mut touch).unwrap();
    assert_eq!(contents(&store, &large.cell), bytes);
    flush_all(&*store).unwrap();
    evict(&store);
    assert_eq!(contents(&store, &large.cell), bytes);
    assert_eq!(contents(&store, &small.cell), b"hello");
    assert_eq!(small.cell.state.read().inode.content_kind, ContentKind::Inline);
    assert_eq!(large.cell.state.read().inode.blocks, bytes.len().div_ceil(4096) as u64);
    check_counts(&store);
    let (a, b) = (small.cell.no, large.cell.no);
    drop((small, large));
    store.close().unwrap();
    let store = open(&device, 8 * MIB);
    assert_eq!(contents(&store, &store.cell(a).unwrap()), b"hello");
    assert_eq!(contents(&store, &store.cell(b).unwrap()), bytes);
    store.close().unwrap();
}

/// However a file grows again, bytes beyond its former end never show.
#[test]
fn growth_shows_zeros() {
    let device = make(64 * MIB);
    let store = open(&device, 8 * MIB);
    let file = new_file(&store, "f");
    let cell = &file.cell;
    write(&*store, cell, 0, &[1; 6000], false, &mut touch).unwrap();
    flush_file(&*store, cell).unwrap();
    truncate(&store, cell, 5000, &mut touch).unwrap();
    evict(&store);
    truncate(&store, cell, 9000, &mut touch).unwrap();
    let mut expected = vec![1; 5000];
    expected.resize(9000, 0);
    assert_eq!(contents(&store, cell), expected);
    flush_file(&*store, cell).unwrap();
    evict(&store);
    assert_eq!(contents(&store, cell), expected);
    truncate(&store, cell, 100, &mut touch).unwrap();
    flush_file(&*store, cell).unwrap();
    evict(&store);
    write(&*store, cell, 20_000, b"x", false, &mut touch).unwrap();
    expected.truncate(100);
    expected.resize(20_000, 0);
    expected.push(b'x');
    assert_eq!(contents(&store, cell), expected);
    store.close().unwrap();
}

/// For seek, holes and unwritten extents are holes; dirty and written data is data.
#[test]
fn seek_finds_data_and_holes() {
    let device = make(64 * MIB);
    let store = open(&device, 8 * MIB);
    let file = new_file(&store, "f");
    let cell = &file.cell;
    truncate(&store, cell, 100_000, &mut touch).unwrap();
    assert!(matches!(seek(&store, cell, 0, SeekTo::Data), Err(Error::NoDataThere)));
    assert_eq!(seek(&store, cell, 5, SeekTo::Hole).unwrap(), 5);
    write(&*store, cell, 40_960, &[1; 5000], false, &mut touch).unwrap();
    for _ in 0..2 {
        assert_eq!(seek(&store, cell, 0, SeekTo::Data).unwrap(), 40_960);
        assert_eq!(seek(&store, cell, 41_000, SeekTo::Data).unwrap(), 41_000);
        assert_eq!(seek(&store, cell, 41_000, SeekTo::Hole).unwrap(), 49_152);
        flush_file(&*store, cell).unwrap();
        let mode = FallocateMode::Allocate { keep_size: true };
        fallocate(&*store, cell, 0, 8192, mode, &mut touch).unwrap();
    }
    assert!(matches!(seek(&store, cell, 100_000, SeekTo::Hole), Err(Error::NoDataThere)));
    assert_eq!(cell.state.read().inode.blocks, 4);
    store.close().unwrap();
}

/// A full volume refuses a write at once; what it accepted can all be written back, overwritten and deleted.
#[test]
fn a_full_volume_keeps_its_promises() {
    let device = make(24 * MIB);
    let store = open(&device, 64 * MIB);
    let free = store.alloc.free_blocks();
    let file = new_file(&store, "f");
    let cell = &file.cell;
    let mut size = 0;
    loop {
        match write(&*store, cell, size, &[size as u8 | 1; 10_000], false, &mut touch) {
            Ok(_) => size += 10_000,
            Err(Error::NoSpace) => break,
            Err(e) => panic!("{e}"),
        }
    }
    assert!(size > 10 * MIB, "only {size} bytes fit");
    flush_file(&*store, cell).unwrap();
    check_counts(&store);
    write(&*store, cell, 0, &[9; 5000], false, &mut touch).unwrap();
    flush_file(&*store, cell).unwrap();
    evict(&store);
    let mut byte = [0];
    read(&store, cell, 4999, &mut byte).unwrap();
    assert_eq!(byte, [9]);
    // Freed blocks can be used again at once, although only a commit makes them available.
    truncate(&store, cell, 0, &mut touch).unwrap();
    write(&*store, cell, 0, &vec![3; 10 * MIB as usize], false, &mut touch).unwrap();
    flush_file(&*store, cell).unwrap();
    truncate(&store, cell, 0, &mut touch).unwrap();
    assert_eq!(cell.state.read().inode.blocks, 0);
    store.meta.sync().unwrap();
    assert_eq!(store.alloc.free_blocks(), free);
    check_counts(&store);
    store.close().unwrap();
}

/// A file in many pieces has a tree, is truncated in several Ops, and gives everything back.
#[test]
fn fragmented_files_are_freed_whole() {
    let device = make(256 * MIB);
    let store = open(&device, 64 * MIB);
    let file = new_file(&store, "f");
    let cell = &file.cell;
    let free = store.alloc.free_blocks();
    for i in 0..3000u64 {
        write(&*store, cell, i * 8192, &[i as u8; 100], false, &mut touch).unwrap();
    }
    flush_file(&*store, cell).unwrap();
    {
        let state = cell.state.read();
        assert_eq!(state.inode.content_kind, ContentKind::Tree);
        assert!(state.inode.blocks > 3020, "{}", state.inode.blocks);
    }
    truncate(&store, cell, 2 * 8192, &mut touch).unwrap();
    assert_eq!(cell.state.read().inode.blocks, 2);
    assert!(!cell.state.read().data.listed);
    truncate(&store, cell, 0, &mut touch).unwrap();
    store.meta.sync().unwrap();
    assert_eq!(store.alloc.free_blocks(), free);
    check_counts(&store);
    store.close().unwrap();
}

/// Many threads on a cache far smaller than their files see their own bytes.
#[test]
fn files_in_parallel_under_pressure() {
    let device = make(128 * MIB);
    let store = open(&device, MIB);
    let shared = new_file(&store, "shared");
    std::thread::scope(|scope| {
        for t in 0..4u64 {
            let (store, shared) = (&store, &shared);
            scope.spawn(move || {
                let file = new_file(store, &format!("f{t}"));
                let mut rng = Rng(t);
                let mut model = vec![0u8; 3 << 20];
                for round in 0..60 {
                    let at = rng.below(model.len() as u64 - 70_000) as usize;
                    let len = rng.below(70_000) as usize;
                    model[at..at + len].fill(round + 1);
                    write(&**store, &file.cell, at as u64, &model[at..at + len], false, &mut touch).unwrap();
                    let line = [t as u8 + 1; 500];
                    write(&**store, &shared.cell, 0, &line, true, &mut touch).unwrap();
                    if round % 16 == 0 {
                        flush_file(&**store, &file.cell).unwrap();
                    }
                }
                let found = contents(store, &file.cell);
                assert!(found[..] == model[..found.len()], "thread {t}");
            });
        }
    });
    let lines = contents(&store, &shared.cell);
    assert_eq!(lines.len(), 4 * 60 * 500);
    assert!(lines.chunks(500).all(|line| line.iter().all(|b| *b == line[0])), "appends are atomic");
    drop(shared);
    store.sync().unwrap();
    check_counts(&store);
    store.close().unwrap();
}

/// Writers, truncation, punching, zeroing and allocation at once on one file: each page reads as one write or
/// as zeros.
#[test]
fn one_file_from_all_sides() {
    const PAGES: u64 = 200;
    let device = make(64 * MIB);
    let store = open(&device, MIB);
    let file = new_file(&store, "f");
    let free = store.alloc.free_blocks();
    std::thread::scope(|scope| {
        for t in 0..2u64 {
            let (store, cell) = (&store, &file.cell);
            scope.spawn(move || {
                let mut rng = Rng(100 + t);
                for _ in 0..400 {
                    let data = vec![1 + rng.below(255) as u8; 4096 * (1 + rng.below(4) as usize)];
                    write(&**store, cell, rng.below(PAGES) * 4096, &data, false, &mut touch).unwrap();
                }
            });
        }
        let (store, cell) = (&store, &file.cell);
        scope.spawn(move || {
            let mut rng = Rng(7);
            for _ in 0..300 {
                let (at, len) = (rng.below(PAGES) * 4096, 4096 * (1 + rng.below(20)));
                match rng.below(6) {
                    0 => truncate(store, cell, at, &mut touch).unwrap(),
                    1 => fallocate(&**store, cell, at, len, FallocateMode::PunchHole, &mut touch).unwrap(),
                    2 => {
                        let mode = FallocateMode::ZeroRange { keep_size: true };
                        fallocate(&**store, cell, at, len, mode, &mut touch).unwrap();
                    }
                    3 => {
                        let mode = FallocateMode::Allocate { keep_size: false };
                        fallocate(&**store, cell, at, len, mode, &mut touch).unwrap();
                    }
                    4 => evict(store),
                    _ => flush_file(&**store, cell).unwrap(),
                }
            }
        });
        scope.spawn(move || {
            for _ in 0..100 {
                for (i, page) in contents(store, cell).chunks(4096).enumerate() {
                    assert!(page.iter().all(|b| *b == page[0]), "page {i} is torn");
                }
            }
        });
    });
    flush_file(&*store, &file.cell).unwrap();
    check_counts(&store);
    let before = contents(&store, &file.cell);
    evict(&store);
    assert!(contents(&store, &file.cell) == before);
    truncate(&store, &file.cell, 0, &mut touch).unwrap();
    store.meta.sync().unwrap();
    assert_eq!((file.cell.state.read().inode.blocks, store.alloc.free_blocks()), (0, free));
    drop(file);
    store.close().unwrap();
}

/// Rule 4: whatever the medium holds at any instant, a file is a prefix of what was appended, no shorter than
/// at the last sync, and never shows what its blocks held before.
#[test]
fn a_crash_leaves_a_prefix() {
    let memory = Arc::new(MemoryDevice::new(32 * MIB));
    let device: Arc<dyn Device> = memory.clone();
    format(&device);
    let store = open(&device, 16 * MIB);
    let old = new_file(&store, "old");
    write(&*store, &old.cell, 0, &vec![0xdd; 12 << 20], false, &mut touch).unwrap();
    flush_all(&*store).unwrap();
    truncate(&store, &old.cell, 0, &mut touch).unwrap();
    let file = new_file(&store, "f");
    store.sync().unwrap();
    let byte = |i: usize| (i / 100 % 250) as u8 + 1;
    let (mut rng, mut synced) = (Rng(5), 0);
    for step in 0..120 {
        let size = file.cell.state.read().inode.size as usize;
        let data: Vec<u8> = (size..size + rng.below(90_000) as usize).map(byte).collect();
        write(&*store, &file.cell, 0, &data, true, &mut touch).unwrap();
        match rng.below(3) {
            0 => {}
            1 => flush_file(&*store, &file.cell).unwrap(),
            _ => {
                flush_file(&*store, &file.cell).unwrap();
                store.meta.sync().unwrap();
                synced = file.cell.state.read().inode.size as usize;
            }
        }
        if step % 5 == 0 {
            let crashed: Arc<dyn Device> = Arc::new(memory.snapshot());
            let after = open(&crashed, MIB);
            let found = contents(&after, &after.cell(file.cell.no).unwrap());
            assert!(found.len() >= synced, "step {step}: {} bytes of {synced} synced", found.len());
            assert!(found.iter().enumerate().all(|(i, b)| *b == byte(i)), "step {step}");
            after.close().unwrap();
        }
    }
    drop((old, file));
    store.close().unwrap();
}

/// What a crash now leaves of a file if nothing is lost. Another thread reads it, because this one may hold
/// locks.
fn left_of(memory: &MemoryDevice, file: &InodeCell) -> Vec<u8> {
    let crashed: Arc<dyn Device> = Arc::new(memory.snapshot());
    let observe = || {
        let after = open(&crashed, MIB);
        let found = contents(&after, &after.cell(file.no).unwrap());
        after.close().unwrap();
        found
    };
    std::thread::scope(|scope| scope.spawn(observe).join().unwrap())
}

/// A file was fsynced, so the log had it, and then appended to. Between the Op of its write-back that stored
/// the size and the end of the pass, somebody wrote a record or a generation, while the log still had the
/// earlier bytes. A replay entered them, and zeros up to the size.
#[test]
fn the_log_lets_go_in_the_op_that_stores_the_size() {
    let content: Vec<u8> = (0..10_000).map(|i| (i / 100 % 250) as u8 + 1).collect();
    // How many bytes are at home at first; how many are fsynced; to what size the file is truncated then
    // (`None`: not at all); and how many bytes it has in the end. In the last case everything that is left
    // goes in place, so no Op enters it; an unrelated Op stores the size.
    let new_blocks = (0, 1000, None, 2000);
    let further_blocks = (3000, 5000, None, 9000);
    let in_place = (5000, 9000, Some(6000), 7000);
    for (at_home, logged, truncated_to, size) in [new_blocks, further_blocks, in_place] {
        for by_generation in [false, true] {
            let story =
                format!("{at_home}, {logged}, {truncated_to:?}, {size}, by generation: {by_generation}");
            let memory = Arc::new(MemoryDevice::new(32 * MIB));
            let device: Arc<dyn Device> = memory.clone();
            format(&device);
            let store = open(&device, 16 * MIB);
            let file = new_file(&store, "f");
            let cell = &file.cell;
            let append_to = |size: usize| {
                let from = cell.state.read().inode.size as usize;
                write(&*store, cell, 0, &content[from..size], true, &mut touch).unwrap();
            };
            append_to(at_home);
            store.sync().unwrap();
            append_to(logged);
            make_ready(&*store, cell).unwrap();
            store.force().unwrap();
            assert!(cell.state.read().data.logged_size.is_some(), "{story}");
            if let Some(size) = truncated_to {
                truncate(&store, cell, size, &mut touch).unwrap();
            }
            append_to(size);
            let io = cell.io.lock();
            let pass = super::batch::Pass { end: pages_for(size as u64), size: size as u64 };
            let batch = super::batch::collect(&*store, cell, 0, pass).unwrap();
            let mut parts = [super::flush::Part::new(cell, batch)];
            super::flush::write_parts(&*store, &mut parts, super::flush::When::Now);
            let [part] = parts;
            part.result.unwrap();
            cell.state.write().touch_ctime();
            cell.state.write().dirty = true;
            super::flush::store_changed(&store, cell).unwrap();
            match by_generation {
                true => store.meta.sync().unwrap(),
                false => store.force().unwrap(),
            }
            let found = left_of(&memory, cell);
            assert!(found.len() >= truncated_to.map_or(logged, |size| at_home.min(size as usize)), "{story}");
            assert!(found == content[..found.len()], "{story}: {} bytes are no prefix", found.len());
            super::flush::finish_pass(&store, cell, pass).unwrap();
            store.force().unwrap();
            drop(io);
            assert!(left_of(&memory, cell) == content[..size], "{story}, after the pass");
            drop(file);
            store.close().unwrap();
        }
    }
}

/// A page was fsynced, so the log had it. Then a program dirtied so much before that page, just when a group
/// of files was gathered, that the batch of the file was not all of its pass. The pass ended all the same:
/// the log let the page go, which was not at home.
#[test]
fn a_pass_of_a_group_ends_when_all_of_it_is_written() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(128 * MIB));
    format_with_log(&device, 1024);
    let store = open(&device, 64 * MIB);
    let file = new_file(&store, "file");
    let cell = &file.cell;
    let page = |byte: u8| [byte; PAGE as usize];
    write(&*store, cell, 0, &vec![1; (20 * MIB) as usize], false, &mut touch).unwrap();
    write_back(&store, cell).unwrap();
    store.meta.sync().unwrap();
    write(&*store, cell, 4500 * PAGE, &page(2), false, &mut touch).unwrap();
    make_ready(&*store, cell).unwrap();
    store.force().unwrap();
    assert!(cell.state.read().data.logged_size.is_some(), "the log has the page");
    write(&*store, cell, 0, &vec![3; 1000 * PAGE as usize], false, &mut touch).unwrap();
    let (other, of) = (store.clone(), cell.clone());
    super::group::BEFORE_COLLECTED.set(Some(Box::new(move || {
        write(&*other, &of, 2000 * PAGE, &vec![3; 200 * PAGE as usize], false, &mut touch).unwrap();
    })));
    write_back(&store, cell).unwrap();
    let state = cell.state.read();
    let is_dirty = state.data.cached().is_some_and(|pages| pages.has_dirty());
    assert!(!is_dirty || state.data.logged_size.is_some(), "the log let go what is not at home");
    drop(state);
    store.force().unwrap();
    // The power fails: nothing is closed.
    let copy: Arc<dyn Device> = Arc::new(MemoryDevice::new(128 * MIB));
    let mut bytes = yore_device::AlignedBuf::zeroed(128 * 256);
    device.read_at(0, &mut bytes).unwrap();
    copy.write_at(0, &bytes).unwrap();
    let again = open(&copy, 64 * MIB);
    let found = again.cell(cell.no).unwrap();
    assert!(contents(&again, &found)[4500 * PAGE as usize..][..PAGE as usize] == page(2));
}

/// An fsync that finds nothing else to do flushes what write-back has overwritten in place, with a log and
/// without.
#[test]
fn what_went_in_place_is_flushed_by_the_next_fsync() {
    for log_blocks in [yore_meta::default_log_blocks(4096), 0] {
        let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(32 * MIB)));
        let any: Arc<dyn Device> = device.clone();
        format_with_log(&any, log_blocks);
        let store = open(&any, 16 * MIB);
        let file = new_file(&store, "f");
        let cell = &file.cell;
        write(&*store, cell, 0, &[1; 5000], false, &mut touch).unwrap();
        store.sync().unwrap();
        write(&*store, cell, 0, &[2; 5000], false, &mut touch).unwrap();
        super::flush::store_changed(&store, cell).unwrap();
        store.meta.sync().unwrap();
        write_back(&store, cell).unwrap();
        assert!(super::flush::is_settled(&cell.state.read()));
        let pending = || device.trace().crash_point(device.entries()).unwrap().pending();
        assert!(pending() > 0, "log of {log_blocks} blocks: written, and not flushed");
        make_ready(&*store, cell).unwrap();
        store.force().unwrap();
        assert_eq!(pending(), 0, "log of {log_blocks} blocks");
        drop(file);
        store.close().unwrap();
    }
}

/// A file is removed just before the write-back thread comes to it, and its inode number is used again. What
/// the thread then notes of the old file does not apply to the new one. It once did, and the new file's data
/// was never written.
#[test]
fn a_number_used_again_is_another_dirty_file() {
    let device = make(64 * MIB);
    let store = open(&device, 8 * MIB);
    let old = new_file(&store, "old");
    write(&*store, &old.cell, 0, &[1; 5000], false, &mut touch).unwrap();
    let (no, old_cell) = (old.cell.no, old.cell.clone());
    drop(old);
    crate::ops::remove(&store, InodeNo::ROOT, b"old", crate::ops::Remove::File).unwrap();
    let new = new_file(&store, "new");
    assert_eq!(new.cell.no, no, "the number is used again");
    write(&*store, &new.cell, 0, &[2; 5000], false, &mut touch).unwrap();
    // What the thread does with a file that it took from the list before the file was removed.
    drop(write_back(&store, &old_cell));
    drop(new);
    store.close().unwrap();
    let store = open(&device, 8 * MIB);
    assert_eq!(contents(&store, &store.cell(no).unwrap()), [2; 5000]);
    store.close().unwrap();
}

/// Small files that are written back together are each whole afterwards, lie next to one another, and cost
/// the device few writes. If somebody else holds a file's io lock, the file is left out or waited for, as the
/// caller wants.
#[test]
fn small_files_are_written_back_together() {
    let device = make(64 * MIB);
    let store = open(&device, 16 * MIB);
    let files: Vec<InUse> = (0..40).map(|i| new_file(&store, &format!("small {i}"))).collect();
    let content = |i: usize| vec![i as u8 + 1; 5000 + i * 100];
    for (i, file) in files.iter().enumerate() {
        write(&*store, &file.cell, 0, &content(i), false, &mut touch).unwrap();
    }
    let cells: Vec<Arc<InodeCell>> = files.iter().map(|f| f.cell.clone()).collect();
    let busy = cells[7].io.lock();
    write_back_many(&*store, &cells, Busy::Skip).unwrap();
    for (i, cell) in cells.iter().enumerate() {
        assert_eq!(cell.state.read().data.is_busy(), i == 7, "file {i}");
    }
    drop(busy);
    write_back_many(&*store, &cells, Busy::Wait).unwrap();
    check_counts(&store);
    evict(&store);
    let mut blocks: Vec<u64> = Vec::new();
    for (i, cell) in cells.iter().enumerate() {
        assert_eq!(contents(&store, cell), content(i), "file {i}");
        let state = cell.state.read();
        let mapping = map_block(&store, cell.no, &state, 0).unwrap();
        assert_eq!(mapping.len, u64::from(pages_for(state.inode.size)), "file {i} is one extent");
        blocks.push(mapping.extent.unwrap().start.0);
    }
    let (first, last) = (*blocks.iter().min().unwrap(), *blocks.iter().max().unwrap());
    let pages: u64 = (0..cells.len()).map(|i| u64::from(pages_for(content(i).len() as u64))).sum();
    assert!(last - first < pages, "{pages} pages from {first} to {last}");
    drop(files);
    store.close().unwrap();
}

/// Unlinking a file with a few extents frees them and the inode in one Op, without the list of orphans.
#[test]
fn a_small_file_goes_in_one_op() {
    let device = make(64 * MIB);
    let store = open(&device, 16 * MIB);
    let free = store.alloc.free_blocks();
    let file = new_file(&store, "goes");
    for part in 0..3u64 {
        write(&*store, &file.cell, part * 8 * PAGE, &[1; 5000], false, &mut touch).unwrap();
    }
    let cell = file.cell.clone();
    write_back(&store, &cell).unwrap();
    assert_eq!(cell.state.read().inode.content_kind, ContentKind::Extents);
    write(&*store, &cell, 40 * PAGE, &[2; 5000], false, &mut touch).unwrap();
    drop(file);
    let orphans = store.orphans.lock();
    crate::ops::remove(&store, InodeNo::ROOT, b"goes", crate::ops::Remove::File).unwrap();
    drop(orphans);
    assert!(cell.state.read().gone);
    store.meta.sync().unwrap();
    assert_eq!(store.alloc.free_blocks(), free);
    check_counts(&store);
    store.close().unwrap();
}
