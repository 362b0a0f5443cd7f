//! Scattered files are laid together: what they hold does not change, and nobody reads what is no longer
//! theirs.

use super::super::tests::{check_counts, contents, evict, make, new_file, open, touch, write_back, MIB};
use super::super::{fallocate, read, write};
use super::*;
use crate::ops::InUse;
use crate::store::Store;
use crate::FallocateMode;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use yore_format::WriteFeatures;

pub(crate) const BLOCKS: u64 = 600;

fn block(i: u64) -> Vec<u8> {
    i.to_le_bytes().repeat(PAGE as usize / 8)
}

/// A file of blocks of which each second one was written later than all others: each is a piece of its own.
pub(crate) fn scattered(store: &Arc<Store>, name: &str) -> InUse {
    let file = new_file(store, name);
    for odd in [0, 1] {
        for i in (0..BLOCKS).filter(|i| i % 2 == odd) {
            write(&**store, &file.cell, i * PAGE, &block(i + 1), false, &mut touch).unwrap();
        }
        write_back(store, &file.cell).unwrap();
    }
    assert_eq!(pieces(store, &file.cell), BLOCKS);
    file
}

pub(crate) fn expected() -> Vec<u8> {
    (0..BLOCKS).flat_map(|i| block(i + 1)).collect()
}

pub(crate) fn pieces(store: &Store, cell: &InodeCell) -> u64 {
    let (mut from, mut pieces) = (0, 0);
    while let Some(stretch) = stretch(store, cell, from).unwrap() {
        (from, pieces) = (stretch.next, pieces + stretch.pieces());
    }
    pieces
}

fn lay(store: &Store, cell: &Arc<InodeCell>, from: u64) -> Laid {
    let mut promise = store.alloc.try_promise(&store.meta, STRETCH, 0).unwrap();
    let _io = cell.io.lock();
    lay_together(store, cell, (from, PIECES), &mut promise, &|| false).unwrap()
}

/// A file of many pieces becomes one, with the same content from the cache, from the medium and after a
/// remount; its times stay, and the old blocks come back.
#[test]
fn pieces_become_one() {
    let device = make(64 * MIB);
    let store = open(&device, 16 * MIB);
    let file = scattered(&store, "f");
    let free = store.alloc.free_blocks();
    let times = |cell: &InodeCell| {
        let inode = &cell.state.read().inode;
        (inode.mtime, inode.ctime, inode.born, inode.size, inode.blocks)
    };
    let before = times(&file.cell);
    assert_eq!(lay(&store, &file.cell, 0), Laid::Moved(BLOCKS));
    assert_eq!(pieces(&store, &file.cell), 1);
    assert_eq!(lay(&store, &file.cell, 0), Laid::Left);
    let after = times(&file.cell);
    assert_eq!((before.0, before.1, before.2, before.3), (after.0, after.1, after.2, after.3));
    assert!(after.4 <= before.4, "nodes of the tree went");
    assert!(contents(&store, &file.cell) == expected());
    evict(&store);
    assert!(contents(&store, &file.cell) == expected());
    store.meta.sync().unwrap();
    check_counts(&store);
    assert!(store.alloc.free_blocks() >= free);
    let no = file.cell.no;
    drop(file);
    store.close().unwrap();
    let store = open(&device, 16 * MIB);
    assert!(contents(&store, &store.cell(no).unwrap()) == expected());
    store.close().unwrap();
}

/// A thread that reads ahead holds no lock, and may get to an old block when it belongs to somebody else:
/// what it brings then is dropped.
#[test]
fn what_is_on_its_way_from_old_blocks_is_dropped() {
    let device = make(64 * MIB);
    let store = open(&device, 16 * MIB);
    let file = scattered(&store, "f");
    evict(&store);
    let arriving = {
        let state = file.cell.state.read();
        state.data.arriving(&store.files.pages, 16..200).unwrap()
    };
    assert_eq!(lay(&store, &file.cell, 0), Laid::Moved(BLOCKS));
    let others = vec![0xff; PAGE as usize];
    arriving.arrive((16..200).map(|_| AlignedBuf::from_slice(&others)).collect());
    assert!(contents(&store, &file.cell) == expected(), "what arrived was somebody else's");
    // And for good: not one page of it was entered.
    let found = file.cell.state.read().data.cached().is_some_and(|pages| pages.has_dirty());
    assert!(!found);
    store.close().unwrap();
}

/// Pages that are dirty while their blocks move are written to the new ones; holes stay, and blocks that were
/// never written stay so.
#[test]
fn dirty_pages_holes_and_unwritten_blocks() {
    let device = make(64 * MIB);
    let store = open(&device, 16 * MIB);
    let file = scattered(&store, "f");
    let mut expected = expected();
    let allocate = |mode, from: u64, len: u64| {
        fallocate(&*store, &file.cell, from * PAGE, len * PAGE, mode, &mut touch).unwrap();
    };
    allocate(FallocateMode::PunchHole, 100, 50);
    allocate(FallocateMode::ZeroRange { keep_size: true }, 200, 50);
    write_back(&store, &file.cell).unwrap();
    for range in [100..150, 200..250] {
        expected[range.start * PAGE as usize..range.end * PAGE as usize].fill(0);
    }
    // A write takes no io, so a page may become dirty between the write-back of the job and its Op.
    let mut promise = store.alloc.try_promise(&store.meta, STRETCH, 0).unwrap();
    let io = file.cell.io.lock();
    let write_now = || {
        write(&*store, &file.cell, 7 * PAGE, &block(77), false, &mut touch).unwrap();
        false
    };
    let laid = lay_together(&*store, &file.cell, (0, PIECES), &mut promise, &write_now).unwrap();
    drop((io, promise));
    assert!(matches!(laid, Laid::Moved(_)), "{laid:?}");
    expected[7 * PAGE as usize..8 * PAGE as usize].copy_from_slice(&block(77));
    assert!(contents(&store, &file.cell) == expected);
    write_back(&store, &file.cell).unwrap();
    evict(&store);
    assert!(contents(&store, &file.cell) == expected);
    assert!(pieces(&store, &file.cell) <= 2);
    check_counts(&store);
    store.close().unwrap();
}

/// Without a long run, nothing moves; `stop` ends the work before anything has moved. Both give back what was
/// taken.
#[test]
fn no_room_and_stopping() {
    let device = make(64 * MIB);
    let store = open(&device, 16 * MIB);
    let file = scattered(&store, "f");
    let free = store.alloc.free_blocks();
    {
        let mut promise = store.alloc.try_promise(&store.meta, STRETCH, 0).unwrap();
        let _io = file.cell.io.lock();
        let laid = lay_together(&*store, &file.cell, (0, PIECES), &mut promise, &|| true).unwrap();
        assert_eq!(laid, Laid::Stopped);
        let mut promise = store.alloc.try_promise(&store.meta, BLOCKS - 1, 0).unwrap();
        let laid = lay_together(&*store, &file.cell, (0, PIECES), &mut promise, &|| false).unwrap();
        assert_eq!(laid, Laid::NoRoom);
    }
    assert_eq!(store.alloc.free_blocks(), free);
    check_counts(&store);
    assert_eq!(pieces(&store, &file.cell), BLOCKS);
    store.close().unwrap();
}

/// The volume begins to keep checksums while a stretch is copied. What was read before had none, so those of
/// other blocks were entered for it: whoever read it was told that sound data is damaged. Or their number was
/// wrong, and the thread panicked. Now the stretch stays as it is, and moves with checksums the next time.
#[test]
fn checksums_are_enabled_while_a_stretch_is_copied() {
    let device = make(64 * MIB);
    let store = open(&device, 16 * MIB);
    let file = scattered(&store, "f");
    let free = store.alloc.free_blocks();
    let asked = Cell::new(0);
    let enable = || {
        asked.set(asked.get() + 1);
        if asked.get() == BLOCKS / 2 {
            std::thread::scope(|scope| {
                scope.spawn(|| store.meta.extend(WriteFeatures::CHECKSUMS).unwrap());
            });
        }
        false
    };
    let mut promise = store.alloc.try_promise(&store.meta, STRETCH, 0).unwrap();
    let io = file.cell.io.lock();
    let laid = lay_together(&*store, &file.cell, (0, PIECES), &mut promise, &enable).unwrap();
    drop((io, promise));
    assert_eq!((laid, asked.get()), (Laid::Left, BLOCKS));
    assert_eq!((pieces(&store, &file.cell), store.alloc.free_blocks()), (BLOCKS, free));
    assert_eq!(lay(&store, &file.cell, 0), Laid::Moved(BLOCKS));
    evict(&store);
    assert!(contents(&store, &file.cell) == expected());
    check_counts(&store);
    store.close().unwrap();
}

/// Readers read files while these are laid together, and while their old blocks get somebody else's data.
#[test]
fn beside_readers() {
    let device = make(256 * MIB);
    let store = open(&device, 4 * MIB);
    let other = new_file(&store, "other");
    for turn in 0..12u64 {
        let file = scattered(&store, &format!("f{turn}"));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut buf = vec![0; 64 * PAGE as usize];
                    while !over.load(Ordering::SeqCst) {
                        evict(&store);
                        for from in (0..BLOCKS).step_by(64) {
                            let n = read(&store, &file.cell, from * PAGE, &mut buf).unwrap();
                            for (i, page) in buf[..n].chunks(PAGE as usize).enumerate() {
                                let own = (from + i as u64 + 1).to_le_bytes();
                                assert!(page.chunks(8).all(|word| word == own), "block {}", from + i as u64);
                            }
                        }
                    }
                });
            }
            let laid = lay(&store, &file.cell, 0);
            store.meta.sync().unwrap();
            let others = vec![0xff; (BLOCKS * PAGE) as usize];
            write(&*store, &other.cell, turn * BLOCKS * PAGE, &others, false, &mut touch).unwrap();
            write_back(&store, &other.cell).unwrap();
            over.store(true, Ordering::SeqCst);
            assert_eq!(laid, Laid::Moved(BLOCKS));
        });
        assert!(contents(&store, &file.cell) == expected());
    }
    drop(other);
    store.close().unwrap();
}
