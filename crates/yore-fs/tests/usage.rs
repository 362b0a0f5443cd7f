//! Promises about the size of history: the count is exact at any time; what an event is said to hold alone is
//! what forgetting it frees; and what all versions hold adds up to the count.

use crate::common::seeds;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use seeds::seeds;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use yore_device::{Device, MemoryDevice};
use yore_fs::{
    Caller, EventNo, EventUsage, FallocateMode, MkfsOptions, MountOptions, NewSnapshot, Retained, SetAttr,
    SetXattrMode, StateUsage, UsageTotals, View, Volume, WriteMode,
};

const BLOCK: u64 = 4096;
const PLAIN: WriteMode = WriteMode { append: false, kill_set_id: false };

fn device() -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(256 << 20));
    View::mkfs(&device, &MkfsOptions::default()).unwrap();
    device
}

fn open(device: &Arc<dyn Device>) -> Volume {
    let options = MountOptions { commit_interval: Duration::from_secs(3600), ..MountOptions::default() };
    Volume::open(device.clone(), &options).unwrap()
}

fn event(volume: &Volume, path: &str) -> EventNo {
    let view = volume.view();
    view.take_snapshot(volume.node(path).unwrap().inode(), &NewSnapshot::default()).unwrap().number
}

fn forget(volume: &Volume, event: EventNo) {
    volume.view().forget(&[event]).unwrap();
    volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
}

fn usage(volume: &Volume, path: &str) -> (Vec<EventUsage>, UsageTotals) {
    let mut all = Vec::new();
    let directory = volume.node(path).unwrap().inode();
    let totals = volume.view().usage(directory, &mut |event| {
        all.push(event);
        ControlFlow::Continue(())
    });
    (all, totals.unwrap())
}

fn of_file(volume: &Volume, directory: &str, name: &str) -> (Vec<StateUsage>, UsageTotals) {
    let mut all = Vec::new();
    let directory = volume.node(directory).unwrap().inode();
    let totals = volume.view().usage_of(directory, name.as_bytes(), &mut |state| {
        all.push(state);
        ControlFlow::Continue(())
    });
    (all, totals.unwrap())
}

/// The blocks that only history holds, as the volume counts them, without those of history's own trees.
fn counted(volume: &Volume) -> Retained {
    let found = volume.view().statfs();
    Retained { data: found.history_data_blocks * BLOCK, metadata: found.history_metadata_blocks * BLOCK }
}

fn write(volume: &Volume, path: &str, first: u64, blocks: u64, byte: u8) {
    let node = volume.node(path).unwrap();
    let data = vec![byte; (blocks * BLOCK) as usize];
    node.write(first * BLOCK, &data, PLAIN).unwrap();
    // Old blocks are let go of when the new ones have been written.
    volume.sync().unwrap();
}

fn truncated(volume: &Volume, path: &str, blocks: u64) {
    let set = SetAttr { size: Some(blocks * BLOCK), ..SetAttr::default() };
    let caller = Caller { uid: 0, gid: 0, umask: 0, keeps_set_id: true };
    volume.view().setattr(&caller, volume.node(path).unwrap().inode(), &set).unwrap();
}

/// A block that is overwritten, truncated, punched or removed belongs to history from the moment at which a
/// version has it, and is free when that version is forgotten.
#[test]
fn each_way_to_let_go_is_counted() {
    let volume = open(&device());
    let view = volume.view();
    volume.write("f", vec![1; 100 * 4096]).unwrap();
    volume.sync().unwrap();
    assert_eq!((counted(&volume), view.statfs().history_index_blocks), (Retained::default(), 0));
    let first = event(&volume, "/");
    assert_eq!(counted(&volume).data, 0, "a snapshot costs nothing");
    assert!(view.statfs().history_index_blocks > 0);
    let data = || counted(&volume).data / BLOCK;
    write(&volume, "f", 0, 3, 2);
    assert_eq!(data(), 3);
    write(&volume, "f", 0, 3, 3);
    assert_eq!(data(), 3, "what nobody has seen is overwritten in place");
    let inode = volume.node("f").unwrap().inode();
    view.fallocate(inode, 10 * BLOCK, 5 * BLOCK, FallocateMode::PunchHole).unwrap();
    assert_eq!(data(), 8);
    truncated(&volume, "f", 50);
    assert_eq!(data(), 8 + 50);
    let (events, totals) = usage(&volume, "/");
    assert_eq!(
        (events.len(), events[0].seen.event.number, events[0].exclusive),
        (1, first, counted(&volume))
    );
    assert_eq!(totals.history, counted(&volume));
    assert_eq!(events[0].shared, 0, "what the present has, too, does not count");
    let second = event(&volume, "/");
    volume.remove_file("f").unwrap();
    assert_eq!(data(), 58 + 45);
    let (events, _) = usage(&volume, "/");
    let exclusive: Vec<u64> = events.iter().map(|event| event.exclusive.data / BLOCK).collect();
    assert_eq!(exclusive, [58, 3]);
    forget(&volume, second);
    assert_eq!(data(), 100);
    forget(&volume, first);
    assert_eq!(counted(&volume), Retained::default());
}

/// The states of a file, each with what no other state has.
#[test]
fn states_of_a_file() {
    let volume = open(&device());
    volume.create_dir("d").unwrap();
    volume.write("d/f", vec![1; 10 * 4096]).unwrap();
    let events = [0u64, 1, 2].map(|i| {
        let number = event(&volume, "/");
        write(&volume, "d/f", i * 2, 3, 7 + i as u8);
        number
    });
    let (states, totals) = of_file(&volume, "d", "f");
    let of: Vec<(u64, u64)> =
        states.iter().map(|state| (state.exclusive.data / BLOCK, state.shared / BLOCK)).collect();
    // The first state had all of what was overwritten. The second had one block that only it had seen, and so
    // had the third.
    assert_eq!(of, [(0, 10), (1, 9), (1, 9), (3, 7)], "{states:#?}");
    assert_eq!(totals.live, 10 * BLOCK);
    assert_eq!(totals.history, counted(&volume));
    let with_older: Vec<u64> = states.iter().map(|state| state.with_older.data / BLOCK).collect();
    assert_eq!(with_older, [9, 9, 6, 3], "each time three were overwritten");
    let (below, totals_below) = usage(&volume, "d");
    assert_eq!(below.iter().map(|event| event.seen.event.number).collect::<Vec<_>>(), events);
    let same: Vec<u64> = below.iter().rev().map(|event| event.exclusive.data / BLOCK).collect();
    assert_eq!(same[..], of[1..].iter().map(|(exclusive, _)| *exclusive).collect::<Vec<_>>()[..]);
    assert_eq!(totals_below.history, totals.history);
    assert_eq!(usage(&volume, "/").1.history, totals.history);
}

/// Files that are, or were, elsewhere do not count for a directory; events of it, and of directories above
/// and below it, all count.
#[test]
fn directories_have_what_was_below_them() {
    let volume = open(&device());
    for directory in ["a", "a/b", "c"] {
        volume.create_dir(directory).unwrap();
    }
    for file in ["a/x", "a/b/y", "c/z"] {
        volume.write(file, vec![1; 8 * 4096]).unwrap();
    }
    let whole = event(&volume, "/");
    volume.rename("a/b", "c/b").unwrap();
    write(&volume, "a/x", 0, 1, 2);
    write(&volume, "c/b/y", 0, 2, 2);
    write(&volume, "c/z", 0, 4, 2);
    let of_c = event(&volume, "c");
    write(&volume, "c/b/y", 0, 1, 3);
    write(&volume, "c/z", 0, 1, 3);
    let of_b = event(&volume, "c/b");
    write(&volume, "c/b/y", 0, 1, 4);
    let exclusive = |path: &str| -> Vec<(EventNo, u64)> {
        let found = usage(&volume, path).0;
        found.iter().map(|event| (event.seen.event.number, event.exclusive.data / BLOCK)).collect()
    };
    assert_eq!(exclusive("a"), [(whole, 1 + 2)], "where it was then");
    assert_eq!(exclusive("c"), [(whole, 4), (of_c, 2)]);
    assert_eq!(exclusive("/"), [(whole, 7)]);
    // As of the first event it was not in `c`. The event of `c` has seen it there, and its own event has seen
    // one more state.
    assert_eq!(exclusive("c/b"), [(whole, 2), (of_c, 1), (of_b, 1)]);
    let before = counted(&volume).data;
    forget(&volume, of_c);
    assert_eq!(before - counted(&volume).data, 2 * BLOCK);
}

/// Whatever was changed between events of the volume and of directories, forgetting any one event frees
/// exactly what the event was said to hold alone, of data and of nodes.
#[test]
fn forgetting_frees_what_was_said() {
    for seed in seeds(6) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let device = device();
        let mut volume = open(&device);
        for directory in ["d0", "d1", "d0/e"] {
            volume.create_dir(directory).unwrap();
        }
        let mut events = Vec::new();
        for step in 0..400 {
            events.extend(change(&volume, &mut rng, step));
            if step % 100 == 99 {
                volume.close().unwrap();
                volume = open(&device);
            }
        }
        volume.sync().unwrap();
        // Every other time the oldest ones go first: each frees everything that was said to go with it and
        // with older ones.
        let (rows, _) = usage(&volume, "/");
        let before = counted(&volume);
        for row in rows.iter().filter(|_| seed % 2 == 0) {
            let number = row.seen.event.number;
            forget(&volume, number);
            events.retain(|event| *event != number);
            assert_eq!(freed(before, &volume), row.with_older, "event {number} and older ones");
        }
        while !events.is_empty() {
            volume.sync().unwrap();
            let forgotten = events.swap_remove(rng.random_range(0..events.len()));
            let (all, totals) = usage(&volume, "/");
            let before = counted(&volume);
            assert_eq!(totals.history, before, "what versions hold adds up");
            forget(&volume, forgotten);
            // What an event of a directory below holds is listed under that directory.
            if let Some(said) = all.iter().find(|event| event.seen.event.number == forgotten) {
                assert_eq!(freed(before, &volume), said.exclusive, "event {forgotten}");
            }
        }
        assert_eq!(counted(&volume), Retained::default());
        assert_eq!(usage(&volume, "/").1.history, Retained::default());
        volume.close().unwrap();
    }
}

/// Changes something at random, or takes an event, which it returns.
fn change(volume: &Volume, rng: &mut Xoshiro256PlusPlus, step: usize) -> Option<EventNo> {
    let directories = ["/", "d0", "d1", "d0/e"];
    let file = format!("{}/f{}", directories[rng.random_range(0..4)], rng.random_range(0..4));
    let at = rng.random_range(0..40);
    match rng.random_range(0..12) {
        0 => return Some(event(volume, directories[rng.random_range(0..4usize) & !1])),
        1 => drop(volume.remove_file(&file)),
        2 if volume.node(&file).is_ok() => truncated(volume, &file, at),
        3 => {
            if let Ok(node) = volume.node(&file) {
                let mode = FallocateMode::PunchHole;
                volume.view().fallocate(node.inode(), at * BLOCK, 3 * BLOCK, mode).unwrap();
            }
        }
        4 => {
            if let Ok(node) = volume.node(&file) {
                let value = vec![1; rng.random_range(0..9000)];
                let name = format!("user.{}", rng.random_range(0..3));
                let view = volume.view();
                view.setxattr(node.inode(), name.as_bytes(), &value, SetXattrMode::Any).unwrap();
            }
        }
        _ => {
            if volume.node(&file).is_err() {
                volume.write(&file, "").unwrap();
            }
            // Every other block, so that there are trees.
            for i in 0..rng.random_range(1..20) {
                let node = volume.node(&file).unwrap();
                node.write((at + 2 * i) * BLOCK, &[step as u8; 4096], PLAIN).unwrap();
            }
        }
    }
    None
}

/// How much less history holds than before.
fn freed(before: Retained, volume: &Volume) -> Retained {
    let after = counted(volume);
    Retained { data: before.data - after.data, metadata: before.metadata - after.metadata }
}
