//! Promises: when four billion inodes have been created and incarnations begin anew, nothing is mistaken for
//! damage, and nothing of one file is mistaken for another's: while incarnations are assigned, after a crash,
//! in the past, and when a file's past is given up.

use std::ops::ControlFlow;
use std::sync::Arc;
use yore_check::{check, CheckOptions};
use yore_device::{Device, MemoryDevice};
use yore_fs::{EventNo, MkfsOptions, MountOptions, NewSnapshot, Volume};

const BLOCK: usize = 4096;

/// A volume on which this many more inodes can be created before incarnations begin anew.
fn volume(left: u32) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(32 << 20));
    Volume::create(device.clone(), &MkfsOptions::default()).unwrap().close().unwrap();
    let mut slots = [[0; BLOCK]; 2];
    for (n, slot) in slots.iter_mut().enumerate() {
        device.read_at((n * BLOCK) as u64, slot).unwrap();
    }
    let mut superblock = yore_format::decode_slots([&slots[0], &slots[1]]).unwrap().0;
    superblock.next_incarnation = u64::from(u32::MAX - left) + 1;
    for slot in 0..2 {
        device.write_at(u64::from(slot) * BLOCK as u64, &superblock.encode(slot)[..]).unwrap();
    }
    device
}

fn open(device: &Arc<MemoryDevice>) -> Volume {
    Volume::open(device.clone(), &MountOptions::default()).unwrap()
}

#[track_caller]
fn is_sound(device: &MemoryDevice) {
    let report = check(device, &CheckOptions::default()).unwrap();
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
}

fn event(volume: &Volume, name: &str) -> EventNo {
    volume
        .view()
        .take_snapshot(volume.view().root(), &NewSnapshot { wait: true, ..NewSnapshot::named(name) })
        .unwrap()
        .number
}

/// Directories take each other's inode numbers, each with a name before and after. A snapshot sees all of
/// them, and the history of one is given up.
#[test]
fn incarnations_begin_anew() {
    for left in [0, 1, 3, 6, 40] {
        let device = volume(left);
        let volume = open(&device);
        let mut events = Vec::new();
        for n in 0..6 {
            volume.create_dir("d").unwrap();
            volume.write(format!("d/file{n}"), format!("content {n}")).unwrap();
            events.push(event(&volume, &format!("then{n}")));
            volume.remove_dir_all("d").unwrap();
        }
        // After a crash the log gives the same result.
        volume.write("kept", "kept").unwrap();
        volume.view().fsync(volume.node("kept").unwrap().inode(), false).unwrap();
        let crashed = Arc::new(device.snapshot());
        is_sound(&crashed);
        open(&crashed).close().unwrap();
        is_sound(&crashed);

        let gone = volume.node("d@then3").unwrap();
        let all = volume.view().remembered_below(gone.inode(), gone.attr().incarnation).unwrap();
        assert_eq!(all.len(), 2, "the directory and its file: {all:?}");
        let all: Vec<_> = all.iter().map(|one| (one.inode, one.incarnation)).collect();
        drop(gone);
        volume.view().expunge(&all).unwrap();
        while volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap().examined > 0 {}
        for (n, event) in events.iter().enumerate() {
            let then = Volume::from_view(volume.view().as_of(*event));
            let found = then.read(format!("d/file{n}")).ok();
            let expected = (n != 3).then(|| format!("content {n}").into_bytes());
            assert_eq!(found, expected, "{n} of {left}");
        }
        volume.close().unwrap();
        is_sound(&device);
        let volume = open(&device);
        volume.write("more", "more").unwrap();
        volume.close().unwrap();
        is_sound(&device);
    }
}
