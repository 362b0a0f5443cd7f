//! What is scattered is noted and laid together, one stretch at a time, within its limits.

use super::super::defrag::tests::{expected, pieces, scattered, BLOCKS};
use super::super::tests::{contents, evict, make, new_file, open, touch, write_back, MIB};
use super::super::{read, write};
use super::*;
use crate::history::read::at_time;
use crate::history::record::Taking;
use crate::store::Store;
use std::sync::Arc;
use yore_format::{EventKind, EventMore};

fn take_event(store: &Arc<Store>) -> yore_format::EventNo {
    let (kind, more) = (EventKind::Snapshot, EventMore::default());
    let taking = Taking { kind, name: "", held: false, more, time: None, user: None };
    at_time::take(store, InodeNo::ROOT, taking, false).unwrap().number
}

/// Calls [`tidy`] until it has nothing to do, or has no room.
fn all(store: &Store, tidying: &mut Tidying) -> Tidied {
    loop {
        match tidy(store, tidying, &|| false).unwrap() {
            Tidied::Step => {}
            other => return other,
        }
    }
}

/// Write-back notes a file that it scatters, and so does who reads one ahead. It is laid together, and noted
/// no more.
#[test]
fn what_is_scattered_is_noted() {
    let device = make(64 * MIB);
    let store = open(&device, 16 * MIB);
    assert_eq!(all(&store, &mut Tidying::default()), Tidied::Nothing);
    let no = scattered(&store, "f").cell.no;
    let another = scattered(&store, "another").cell.no;
    assert!(!store.files.scattered.is_empty());
    assert_eq!(all(&store, &mut Tidying::default()), Tidied::Nothing);
    assert_eq!(pieces(&store, &store.cell(no).unwrap()), 1);
    assert!(contents(&store, &store.cell(no).unwrap()) == expected());

    // The other way: nothing is noted when the volume is opened.
    let file = scattered(&store, "later");
    let later = file.cell.no;
    drop(file);
    store.close().unwrap();
    let store = open(&device, 16 * MIB);
    assert!(store.files.scattered.is_empty());
    let read_all = |no| {
        evict(&store);
        let cell = store.cell(no).unwrap();
        let mut buf = vec![0; 32 << 12];
        (0..BLOCKS / 32).for_each(|i| assert!(read(&store, &cell, i * (32 << 12), &mut buf).unwrap() > 0));
    };
    read_all(another);
    assert!(store.files.scattered.is_empty(), "it is whole");
    read_all(later);
    assert!(!store.files.scattered.is_empty());
    assert_eq!(all(&store, &mut Tidying::default()), Tidied::Nothing);
    assert_eq!(pieces(&store, &store.cell(later).unwrap()), 1);
    store.close().unwrap();
}

/// A file that is appended to, or is removed or made anew before its turn comes, costs nothing.
#[test]
fn what_is_not_scattered_is_left_alone() {
    let device = make(64 * MIB);
    let store = open(&device, 16 * MIB);
    let file = new_file(&store, "log");
    for i in 0..200 {
        write(&*store, &file.cell, i * 5000, &[1; 5000], false, &mut touch).unwrap();
        write_back(&store, &file.cell).unwrap();
    }
    assert!(store.files.scattered.is_empty());
    store.files.scattered.note(InodeNo(0x5000), file.cell.incarnation, 0..10);
    store.files.scattered.note(file.cell.no, yore_format::Incarnation(u32::MAX), 0..10);
    assert_eq!(all(&store, &mut Tidying::default()), Tidied::Nothing);
    drop(file);
    store.close().unwrap();
}

/// A request, or somebody who has the file, is in the way: the file stays as it is, and is noted still.
#[test]
fn requests_come_first() {
    let device = make(64 * MIB);
    let store = open(&device, 16 * MIB);
    let file = scattered(&store, "f");
    let mut tidying = Tidying::default();
    assert_eq!(tidy(&*store, &mut tidying, &|| true).unwrap(), Tidied::Busy);
    let io = file.cell.io.lock();
    let busy = std::thread::scope(|scope| {
        let of_another = scope.spawn(|| tidy(&*store, &mut Tidying::default(), &|| false).unwrap());
        of_another.join().unwrap()
    });
    assert_eq!(busy, Tidied::Busy);
    drop(io);
    assert_eq!(pieces(&store, &file.cell), BLOCKS);
    assert_eq!(store.alloc.promised(), 0);
    assert_eq!(all(&store, &mut tidying), Tidied::Nothing);
    assert_eq!(pieces(&store, &file.cell), 1);
    drop(file);
    store.close().unwrap();
}

/// History grows in an hour by a 16th of what was free, and no further. What events have seen stays.
#[test]
fn history_grows_only_so_far() {
    let device = make(64 * MIB);
    let store = open(&device, 16 * MIB);
    let files = [scattered(&store, "a"), scattered(&store, "b")];
    let event = take_event(&store);
    for file in &files {
        // A version is made, which has all blocks but one.
        write(&*store, &file.cell, 0, &[9], false, &mut touch).unwrap();
        write_back(&store, &file.cell).unwrap();
    }
    let (grown, mut tidying) = (|| store.past.space().data, Tidying::default());
    let before = grown();
    assert_eq!(all(&store, &mut tidying), Tidied::NoRoom);
    assert_eq!(grown() - before, BLOCKS - 1, "one of them, and not both: a 16th are {} blocks", 16_384 / 16);
    let laid = files.iter().filter(|file| pieces(&store, &file.cell) == 1).count();
    assert_eq!(laid, 1);
    for file in &files {
        let mut then = expected();
        at_time::read(&store, file.cell.no, event, 0, &mut then).unwrap();
        assert!(then == expected());
        assert!(contents(&store, &file.cell)[1..] == expected()[1..]);
    }
    // An hour later.
    assert_eq!(all(&store, &mut Tidying::default()), Tidied::Nothing);
    assert_eq!(grown() - before, 2 * (BLOCKS - 1));
    drop(files);
    store.close().unwrap();
}

/// An eighth of the volume stays free.
#[test]
fn an_eighth_stays_free() {
    let device = make(64 * MIB);
    let store = open(&device, 16 * MIB);
    let file = scattered(&store, "f");
    let filler = new_file(&store, "filler");
    let left = 16_384 / 8 + BLOCKS;
    let bytes = (store.alloc.free_now() - left) << 12;
    write(&*store, &filler.cell, 0, &vec![1; bytes as usize], false, &mut touch).unwrap();
    write_back(&store, &filler.cell).unwrap();
    assert!(store.alloc.free_now() <= left);
    assert_eq!(all(&store, &mut Tidying::default()), Tidied::NoRoom);
    assert_eq!(pieces(&store, &file.cell), BLOCKS);
    drop((file, filler));
    store.close().unwrap();
}
