//! Pages that are read ahead are never older than what was written, whatever happens to the file meanwhile.
//! No reader that waits for them is forgotten.

use super::super::map::PAGE;
use super::super::tests::{contents, evict, make, new_file, open, touch, truncate, write_back, MIB};
use super::super::write::{note, prepare};
use super::super::{fallocate, read, relocate, write, Copies};
use super::*;
use crate::ops::InUse;
use crate::store::Store;
use crate::FallocateMode;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::Arc;
use yore_core::pages::Arriving;
use yore_device::AlignedBuf;
use yore_format::layout::FILE_SIZE_MAX;
use yore_format::BlockNo;

const PAGES: u32 = 64;

/// A file of 64 pages of ones that is on the medium and not in memory.
fn cold_file(store: &Arc<Store>, name: &str) -> InUse {
    let file = new_file(store, name);
    write(&**store, &file.cell, 0, &vec![1; PAGES as usize * PAGE as usize], false, &mut touch).unwrap();
    write_back(store, &file.cell).unwrap();
    evict(store);
    file
}

fn announce(store: &Store, file: &InUse, range: std::ops::Range<u32>) -> Arriving {
    let state = file.cell.state.read();
    let found = state.data.pages(&store.files.pages).gap(0, PAGES);
    state.data.arriving(&store.files.pages, range).unwrap_or_else(|| panic!("only {found:?} is not here"))
}

fn ones(count: u32) -> Vec<AlignedBuf> {
    (0..count).map(|_| AlignedBuf::from_slice(&[1; PAGE as usize])).collect()
}

/// The file is changed, written back and forgotten while old bytes are on their way: they are dropped.
#[test]
fn what_changed_meanwhile_is_not_overwritten_by_what_arrives() {
    let device = make(64 * MIB);
    let store = open(&device, 16 * MIB);
    let page = |i: u64| i * PAGE;
    type Change<'a> = (&'a str, Box<dyn Fn(&InUse) + 'a>);
    let allocate = |file: &InUse, mode, from, len| {
        fallocate(&*store, &file.cell, from, len, mode, &mut touch).unwrap();
    };
    let resize = |file: &InUse, size| truncate(&store, &file.cell, size, &mut touch).unwrap();
    let changes: Vec<Change<'_>> = vec![
        (
            "overwrite",
            Box::new(|f| assert!(write(&*store, &f.cell, page(20), &[2; 9000], false, &mut touch).is_ok())),
        ),
        ("byte", Box::new(|f| assert!(write(&*store, &f.cell, page(63), &[2], false, &mut touch).is_ok()))),
        ("hole", Box::new(|f| allocate(f, FallocateMode::PunchHole, page(20) + 5, page(10)))),
        ("zeros", Box::new(|f| allocate(f, FallocateMode::ZeroRange { keep_size: true }, page(63), page(1)))),
        ("empty", Box::new(|f| resize(f, 0))),
        ("truncated in a page", Box::new(|f| resize(f, page(33) + 7))),
        (
            "truncated and grown",
            Box::new(|f| [page(17), page(70)].into_iter().for_each(|size| resize(f, size))),
        ),
        (
            "truncated in a page and grown",
            Box::new(|f| [page(17) + 1, page(70)].into_iter().for_each(|s| resize(f, s))),
        ),
    ];
    for (what, change) in changes {
        let file = cold_file(&store, what);
        let arriving = announce(&store, &file, 16..PAGES);
        change(&file);
        let expected = contents(&store, &file.cell);
        write_back(&store, &file.cell).unwrap();
        evict(&store);
        arriving.arrive(ones(PAGES - 16));
        assert!(contents(&store, &file.cell) == expected, "{what}: what arrived is older");
    }
    store.close().unwrap();
}

/// A file gets other blocks, as where a volume is made shorter, while the old ones are being read: what
/// arrives from these is dropped, for they may be another's by now. It was taken for the file's.
#[test]
fn what_arrives_from_blocks_that_the_file_has_left_is_dropped() {
    let device = make(64 * MIB);
    let store = open(&device, 16 * MIB);
    let file = cold_file(&store, "moves");
    let arriving = announce(&store, &file, 16..PAGES);
    let mut promise = store.alloc.promise(&store.meta, store.near(file.cell.no), u64::from(PAGES)).unwrap();
    let (mut copies, mut moved) = (Copies::default(), 0);
    relocate(&*store, &file.cell, BlockNo(0), (&mut promise, &mut copies), &mut |n| moved += n).unwrap();
    assert_eq!(moved, u64::from(PAGES));
    drop(promise);
    arriving.arrive((16..PAGES).map(|_| AlignedBuf::from_slice(&[7; PAGE as usize])).collect());
    assert!(contents(&store, &file.cell) == vec![1; PAGES as usize * PAGE as usize]);
    drop(file);
    store.close().unwrap();
}

/// A reader that wants pages on their way waits for them; if they do not come, it reads them.
#[test]
fn readers_wait_for_what_is_on_its_way() {
    let device = make(64 * MIB);
    let store = open(&device, 16 * MIB);
    for arrives in [true, false] {
        let file = cold_file(&store, &format!("arrives {arrives}"));
        let arriving = announce(&store, &file, 3..8);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| contents(&store, &file.cell));
            match arrives {
                true => {
                    arriving.arrive((0..5).map(|_| AlignedBuf::from_slice(&[7; PAGE as usize])).collect())
                }
                false => drop(arriving),
            }
            let found = reader.join().unwrap();
            let from_medium = |i: usize| !(3..8).contains(&(i / PAGE as usize)) || !arrives;
            // The bytes that arrive differ from those on the medium, to show who read a page. A reader that
            // came first has read all pages itself.
            let itself = found.iter().all(|b| *b == 1);
            assert!(
                itself || found.iter().enumerate().all(|(i, b)| *b == if from_medium(i) { 1 } else { 7 })
            );
        });
    }
    store.close().unwrap();
}

/// A sequential reader of large pieces finds what follows in memory; a reader that jumps about causes no
/// reading ahead.
#[test]
fn sequential_readers_are_read_ahead_for() {
    let device = make(64 * MIB);
    let store = open(&device, 32 * MIB);
    let file = new_file(&store, "large");
    write(&*store, &file.cell, 0, &vec![1; 12 * MIB as usize], false, &mut touch).unwrap();
    write_back(&store, &file.cell).unwrap();
    evict(&store);
    let mut piece = vec![0; MIB as usize];
    let mut read_at =
        |offset: u64| assert_eq!(read(&store, &file.cell, offset, &mut piece).unwrap(), MIB as usize);
    let cached = |from: u64| {
        let state = file.cell.state.read();
        state.data.await_arrival(page(from));
        let gap = state.data.cached().unwrap().gap(page(from), page(from + MIB));
        gap.is_none()
    };
    fn page(offset: u64) -> u32 {
        (offset / PAGE) as u32
    }
    read_at(6 * MIB);
    read_at(2 * MIB);
    assert!(!cached(3 * MIB) && !cached(7 * MIB));
    read_at(3 * MIB);
    read_at(4 * MIB);
    assert!(cached(5 * MIB));
    store.close().unwrap();
}

/// A write has prepared its pages, none of which is in memory, when old bytes arrive for them. The write was
/// lost: a page that is in memory by then was taken for the one that the write had made.
#[test]
fn what_arrives_in_the_middle_of_a_write_does_not_replace_it() {
    let device = make(64 * MIB);
    let store = open(&device, 16 * MIB);
    let file = cold_file(&store, "written");
    let arriving = announce(&store, &file, 0..PAGES);
    let data = vec![2; 3 * PAGE as usize];
    {
        let mut state = file.cell.state.write();
        let plan = prepare(&*store, &file.cell, &state, 4 * PAGE, 7 * PAGE, &data).unwrap().unwrap();
        arriving.arrive(ones(PAGES));
        assert_eq!(plan.enter(&*store, &mut state), [4, 5, 6], "which have the new bytes");
        note(&store, &file.cell, &mut state);
    }
    let mut expected = vec![1; PAGES as usize * PAGE as usize];
    expected[4 * PAGE as usize..7 * PAGE as usize].fill(2);
    assert!(contents(&store, &file.cell) == expected);
    write_back(&store, &file.cell).unwrap();
    evict(&store);
    assert!(contents(&store, &file.cell) == expected, "on the medium");
    drop(file);
    store.close().unwrap();
}

/// Many readers read while one writer writes. Stamps in the pages show that nobody reads anything older than
/// what was there when the read began. The cache is much smaller than the file, so that pages come and go.
#[test]
fn readers_and_a_writer_see_time_go_forward() {
    let device = make(64 * MIB);
    let store = open(&device, 4 * MIB);
    let file = new_file(&store, "stamped");
    let stamped = |stamp: u64| stamp.to_le_bytes().repeat(PAGE as usize / 8 * 64);
    let parts: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(1)).collect();
    let part_bytes = stamped(1).len() as u64;
    for i in 0..parts.len() as u64 {
        write(&*store, &file.cell, i * part_bytes, &stamped(1), false, &mut touch).unwrap();
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut buf = vec![0; part_bytes as usize];
                while !over.load(Ordering::SeqCst) {
                    for (i, part) in parts.iter().enumerate() {
                        let least = part.load(Ordering::SeqCst);
                        read(&store, &file.cell, i as u64 * part_bytes, &mut buf).unwrap();
                        for word in buf.as_chunks::<8>().0 {
                            let found = u64::from_le_bytes(*word);
                            assert!(found >= least, "part {i}: {found} after {least}");
                        }
                    }
                }
            });
        }
        for stamp in 2..300u64 {
            let i = (stamp * 23 % 64) as usize;
            write(&*store, &file.cell, i as u64 * part_bytes, &stamped(stamp), false, &mut touch).unwrap();
            parts[i].store(stamp, Ordering::SeqCst);
            if stamp % 5 == 0 {
                write_back(&store, &file.cell).unwrap();
                evict(&store);
            }
        }
        over.store(true, Ordering::SeqCst);
    });
    drop(file);
    store.close().unwrap();
}

/// Reading ahead to the last page that a file can have went on from the first page, for ever, with the lock
/// of the file held.
#[test]
fn the_end_of_the_largest_file_is_read() {
    let store = open(&make(64 * MIB), 16 * MIB);
    let file = new_file(&store, "largest");
    truncate(&store, &file.cell, FILE_SIZE_MAX, &mut touch).unwrap();
    for piece in [MIB, 128 << 10] {
        let mut buf = vec![7; piece as usize];
        let mut at = FILE_SIZE_MAX - 3 * MIB;
        while at < FILE_SIZE_MAX {
            let count = read(&store, &file.cell, at, &mut buf).unwrap();
            assert!(count > 0 && buf[..count].iter().all(|byte| *byte == 0));
            at += count as u64;
        }
        evict(&store);
    }
}
