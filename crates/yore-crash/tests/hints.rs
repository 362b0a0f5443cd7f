//! What counts free blocks is a hint after a crash under an engine that orders changes: the entries of the
//! zone table, and the superblock (docs/FORMAT.md, docs/EDGES.md). A volume of several groups shows that: the
//! first zone of each but the first is not read before somebody needs it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use yore_check::{check, CheckOptions};
use yore_crash::volume::NEVER;
use yore_device::{Device as _, MemoryDevice};
use yore_format::{decode_slots, Superblock, BLOCK_SIZE, ZERO_BLOCK};
use yore_fs::{Caller, Engine, Error, FallocateMode, FileKind, MkfsOptions, MountOptions, Volume};
use yore_online::{recount, OnlineOptions};

/// Of three groups.
const SIZE: u64 = 300 << 20;
const MIB: u64 = 1 << 20;

fn open(device: &Arc<MemoryDevice>, commit_interval: Duration) -> Volume {
    let options =
        MountOptions { engine: Some(Engine::SoftUpdates), commit_interval, ..MountOptions::default() };
    Volume::open(device.clone(), &options).unwrap()
}

/// Makes a file and allocates its blocks. False, and there is no file, if there is no room for them.
fn allocate(volume: &Volume, number: usize, len: u64) -> bool {
    let (view, name) = (volume.view(), number.to_string());
    let caller = Caller::superuser();
    let file = view.create(&caller, view.root(), name.as_bytes(), FileKind::Regular, 0o600, 0).unwrap();
    match view.fallocate(file.inode(), 0, len, FallocateMode::Allocate { keep_size: false }) {
        Ok(()) => true,
        Err(Error::NoSpace | Error::NeverFits { .. }) => {
            drop(file);
            volume.remove_file(name).unwrap();
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// A closed volume all of whose blocks belong to files, and how many files these are.
fn full() -> (Arc<MemoryDevice>, usize) {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let options = MkfsOptions { engine: Engine::SoftUpdates, ..MkfsOptions::default() };
    Volume::create(device.clone(), &options).unwrap().close().unwrap();
    let (volume, mut files) = (open(&device, NEVER), 0);
    for len in [8 * MIB, MIB, MIB / 16, BLOCK_SIZE as u64] {
        while allocate(&volume, files, len) {
            files += 1;
        }
    }
    volume.close().unwrap();
    (device, files)
}

fn empty(volume: &Volume, files: impl Iterator<Item = usize>) {
    files.for_each(|number| volume.truncate(number.to_string(), 0).unwrap());
}

/// What the medium has when the power fails now.
fn crash(device: &MemoryDevice, volume: Volume) -> Arc<MemoryDevice> {
    let crashed = Arc::new(device.snapshot());
    drop(volume);
    crashed
}

fn superblock(device: &MemoryDevice) -> Superblock {
    let mut slots = [ZERO_BLOCK; 2];
    for (slot, bytes) in (0u64..).zip(&mut slots) {
        device.read_at(slot * BLOCK_SIZE as u64, bytes).unwrap();
    }
    decode_slots([&slots[0], &slots[1]]).unwrap().0
}

fn close(device: &MemoryDevice, volume: &Volume) {
    volume.close().unwrap();
    let report = check(device, &CheckOptions::default()).unwrap();
    assert!(report.findings.iter().all(|finding| finding.is_tolerated()), "{report}");
}

/// Blocks of each group were freed before a crash. Whoever freed others behind it was told that the group is
/// damaged: its bitmap was compared with the count that the zone table had from the last close.
#[test]
fn blocks_are_freed_in_groups_that_changed_before_a_crash() {
    let (device, files) = full();
    let volume = open(&device, NEVER);
    empty(&volume, (0..files).step_by(2));
    volume.sync().unwrap();
    let device = crash(&device, volume);
    let volume = open(&device, NEVER);
    empty(&volume, (1..files).step_by(2));
    volume.sync().unwrap();
    close(&device, &volume);
}

/// A group was full when the volume was closed, and is not since a crash. It was passed over: data was
/// accepted for its blocks, which the superblock counts, and then there was no space.
#[test]
fn room_is_found_in_groups_that_were_full_before_a_crash() {
    let (device, files) = full();
    let volume = open(&device, Duration::from_millis(5));
    empty(&volume, 0..files);
    // A later pass of the background has a superblock that counts it.
    let is_counted = (0..2000).any(|round| {
        volume.set_permissions("0", 0o600 | (round % 2)).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        superblock(&device).free_blocks > 60_000
    });
    assert!(is_counted);
    let device = crash(&device, volume);
    let volume = open(&device, NEVER);
    assert!((files..files + 25).all(|number| allocate(&volume, number, 8 * MIB)));
    close(&device, &volume);
}

/// The superblock does not count what was freed just before a crash. A recount counted it, and nobody could
/// write it all the same until the volume was opened again: who hands out blocks had asked before.
#[test]
fn what_a_recount_has_counted_can_be_written() {
    let (device, files) = full();
    let volume = open(&device, NEVER);
    empty(&volume, 0..files);
    volume.sync().unwrap();
    let device = crash(&device, volume);
    let volume = open(&device, NEVER);
    let before = volume.statfs().blocks_free;
    let found = recount(volume.view(), &OnlineOptions::default(), &mut |_| ControlFlow::Continue(()));
    let found = found.unwrap();
    assert!(found.is_clean(), "{}", found.report);
    let after = volume.statfs().blocks_free;
    assert_eq!(after, volume.info().free_blocks);
    assert!(after > before + 10_000, "{before} blocks were free, {after} are");
    assert!((files..files + 25).all(|number| allocate(&volume, number, 8 * MIB)));
    close(&device, &volume);
}
