//! Promises: on the smallest volume, with exactly k data blocks or about k metadata blocks left, for every k
//! up to the need of any call, each kind of call succeeds or says that there is no space, and loses nothing.
//! Accepted data is written. Deleting always works and frees everything. The checker finds nothing.

use std::ops::ControlFlow;
use std::sync::Arc;
use yore_check::{check, CheckOptions};
use yore_device::MemoryDevice;
use yore_faults::sample::{content, mkfs_options, mount_options};
use yore_faults::watch::Watch;
use yore_faults::workload::observe;
use yore_fs::{Error, FallocateMode, File, NewSnapshot, Result, SetXattrMode, Volume};

/// The smallest volume.
const SIZE: u64 = 16 << 20;
const BLOCK: usize = 4096;

type Call = (&'static str, fn(&Volume) -> Result<()>);

/// Each kind of call that may need space, and those that must not.
const CALLS: [Call; 15] = [
    ("create", |v| v.write("new", "")),
    ("create with content", |v| v.write("new", content(1, 100))),
    ("mkdir", |v| v.create_dir("new")),
    ("short link", |v| v.symlink("kept", "new")),
    ("long link", |v| v.symlink("l".repeat(3000), "new")),
    ("hard link", |v| v.hard_link("kept", "new")),
    ("rename", |v| v.rename("kept", "directory/kept")),
    ("replace", |v| v.rename("kept", "other")),
    ("write", |v| v.write("new", content(2, 5 * BLOCK))),
    ("append", |v| v.append("kept", content(3, 3 * BLOCK + 1))),
    ("attribute", |v| {
        let inode = v.node("other")?.inode();
        v.view().setxattr(inode, b"user.a", &content(4, 9000), SetXattrMode::Any)
    }),
    ("allocate", |v| {
        let inode = v.node("other")?.inode();
        v.view().fallocate(inode, 0, 4 * BLOCK as u64, FallocateMode::Allocate { keep_size: false })
    }),
    ("snapshot and change", |v| {
        v.view().take_snapshot(v.view().root(), &NewSnapshot { wait: true, ..NewSnapshot::named("then") })?;
        v.write("kept", content(5, 2 * BLOCK))
    }),
    ("punch", |v| v.view().fallocate(v.node("kept")?.inode(), 4096, 4096, FallocateMode::PunchHole)),
    ("truncate", |v| v.truncate("kept", 100)),
];
/// The calls at the end of [`CALLS`] that are never refused.
const FREEING: usize = 2;

fn new_volume() -> (Arc<MemoryDevice>, Volume) {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let volume = Volume::create(device.clone(), &mkfs_options()).unwrap();
    volume.write("kept", content(7, 3 * BLOCK)).unwrap();
    volume.write("other", content(8, 50)).unwrap();
    volume.create_dir("directory").unwrap();
    volume.sync().unwrap();
    (device, volume)
}

fn is_full(error: &Error) -> bool {
    matches!(error.root(), Error::NoSpace | Error::NeverFits { .. })
}

/// Makes one call on a copy of a nearly full volume, and then deletes everything.
fn one(image: &MemoryDevice, number: usize, free_when_empty: u64) {
    let device = Arc::new(image.snapshot());
    let volume = Volume::open(device.clone(), &mount_options()).unwrap();
    let before = observe(&volume);
    let (_, call) = CALLS[number];
    match call(&volume) {
        Ok(()) => {}
        Err(error) => {
            assert!(is_full(&error), "{error}");
            assert!(number < CALLS.len() - FREEING, "{error}");
            let after = observe(&volume);
            // `write` creates the file first; its content may be refused then.
            if volume.exists("new").unwrap() {
                volume.remove_file("new").unwrap();
            } else if volume.view().events().unwrap().is_empty() {
                assert!(before.model.same_names(&after.model), "{}", before.model.difference(&after.model));
            }
        }
    }
    // Accepted data is written.
    volume.sync().unwrap();
    let seen = observe(&volume);
    assert!(seen.errors.is_empty(), "{:?}", seen.errors);
    let report = check(&device.snapshot(), &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
    let names: Vec<_> = volume.read_dir("/").unwrap().map(|entry| entry.unwrap().file_name()).collect();
    for name in names {
        volume.remove_dir_all(&name).unwrap();
    }
    let events: Vec<_> = volume.view().events().unwrap().iter().map(|event| event.number).collect();
    volume.view().forget(&events).unwrap();
    volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
    volume.sync().unwrap();
    volume.close().unwrap();
    let volume = Volume::open(device.clone(), &mount_options()).unwrap();
    assert!(volume.statfs().blocks_free >= free_when_empty, "blocks are gone: {:?}", volume.statfs());
    volume.write("again", content(9, 20 * BLOCK)).unwrap();
    volume.close().unwrap();
    let report = check(&*device, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
}

/// Blocks free on a volume from which everything was deleted.
fn free_when_empty() -> u64 {
    let (_, volume) = new_volume();
    volume.statfs().blocks_free
}

/// Exactly k data blocks are left, for every k that a call might need, and some more.
#[test]
fn k_data_blocks_are_left() {
    let least = free_when_empty();
    let mut watch = Watch::new(usize::MAX);
    for left in 0..8u64 {
        let (device, volume) = new_volume();
        let fill = File::create(&volume, "fill").unwrap();
        let mut at = 0;
        // When metadata grows, the available space shrinks by more than was written.
        loop {
            let available = volume.statfs().blocks_available;
            if available <= left {
                break;
            }
            let blocks = (available - left).min(512);
            fill.write_at(&content(at, blocks as usize * BLOCK), at * BLOCK as u64).unwrap();
            at += blocks;
        }
        volume.sync().unwrap();
        assert_eq!(volume.statfs().blocks_available, left);
        let image = device.snapshot();
        drop(fill);
        for (number, (name, _)) in CALLS.iter().enumerate() {
            watch.case(format!("{left} blocks left, {name}"), || one(&image, number, least));
        }
    }
    watch.finish();
}

/// At first no metadata block is available, then one by one some more.
#[test]
fn k_metadata_blocks_are_left() {
    let least = free_when_empty();
    let mut watch = Watch::new(usize::MAX);
    let (device, volume) = new_volume();
    // Data takes all blocks, so that no zone can be created.
    let fill = File::create(&volume, "fill").unwrap();
    let available = volume.statfs().blocks_available;
    fill.write_at(&content(1, available as usize * BLOCK), 0).unwrap();
    fill.sync_all().unwrap();
    drop(fill);
    // Each takes some blocks for its attribute; the last ones take single blocks.
    let mut names = Vec::new();
    for len in [40_000, 3000, 900] {
        loop {
            let name = format!("directory/{}", names.len());
            let made = volume.write(&name, "").and_then(|()| {
                let inode = volume.node(&name)?.inode();
                volume.view().setxattr(inode, b"user.a", &content(1, len), SetXattrMode::Any)
            });
            match made {
                Ok(()) => names.push(name),
                Err(error) => {
                    assert!(is_full(&error), "{error}");
                    if volume.exists(&name).unwrap() {
                        volume.remove_file(&name).unwrap();
                    }
                    break;
                }
            }
        }
    }
    assert!(names.len() > 30, "{}", names.len());
    for removed in 0..10 {
        volume.sync().unwrap();
        let image = device.snapshot();
        for (number, (name, _)) in CALLS.iter().enumerate() {
            watch.case(format!("{removed} nodes given back, {name}"), || one(&image, number, least));
        }
        let name = names.pop().unwrap();
        volume.remove_file(name).unwrap();
    }
    volume.close().unwrap();
    watch.finish();
}
