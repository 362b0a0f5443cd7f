//! A volume of format 2.2 with a rich past in old trees, for tests that go on from there: what they record is
//! in annals. `yore-fs/tests/golden_old_trees.rs` says what is on it.

// No test uses all of it.
#![allow(dead_code)]

#[path = "../../../yore-fs/tests/golden/blocks.rs"]
mod blocks;

pub use blocks::unpack;
use std::ops::ControlFlow;
use std::sync::Arc;
use yore_device::{Device, MemoryDevice, BLOCK_SIZE};
use yore_fs::{EventNo, MountOptions, Volume};

const IMAGE: &[u8] = include_bytes!("../../../yore-fs/tests/golden/volume-2.2-past.blocks");

/// The volume as it was left, 256 MiB long.
pub fn device() -> MemoryDevice {
    unpack(IMAGE)
}

/// The same on a longer device.
pub fn device_of(bytes: u64) -> MemoryDevice {
    let (image, longer) = (device(), MemoryDevice::new(bytes));
    let mut block = vec![0; BLOCK_SIZE];
    for at in (0..image.size()).step_by(BLOCK_SIZE) {
        image.read_at(at, &mut block).unwrap();
        if block.iter().any(|byte| *byte != 0) {
            longer.write_at(at, &block).unwrap();
        }
    }
    longer
}

/// The same without all history of the many small files: what is left of the old trees has one level. Tests
/// that compare everything again and again are much faster on it. The directory stays: what was expunged
/// cannot be rolled back to, and a directory above counts the directories in it.
pub fn without_many() -> Arc<MemoryDevice> {
    let device = Arc::new(device());
    let volume = Volume::open(device.clone(), &MountOptions::default()).unwrap();
    let view = volume.view();
    let many = *volume.node("many").unwrap().attr();
    let below = view.remembered_below(many.inode, many.incarnation).unwrap();
    let below: Vec<_> = below
        .iter()
        .map(|one| (one.inode, one.incarnation))
        .filter(|(inode, _)| *inode != many.inode)
        .collect();
    assert!(below.len() > 240);
    let names: Vec<_> =
        volume.read_dir("many").unwrap().map(|entry| entry.unwrap().file_name().to_owned()).collect();
    for name in names {
        volume.remove_file(std::path::Path::new("many").join(name)).unwrap();
    }
    view.expunge(&below).unwrap();
    view.finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
    volume.close().unwrap();
    device
}

/// Forgets what others than the root directory have seen: all events that are left are of that.
pub fn of_root_alone(device: Arc<MemoryDevice>) -> Arc<MemoryDevice> {
    let volume = Volume::open(device.clone(), &MountOptions::default()).unwrap();
    let view = volume.view();
    let events = view.events().unwrap();
    let others: Vec<EventNo> =
        events.iter().filter(|event| event.row.root != view.root()).map(|event| event.number).collect();
    assert!(others.len() > 4 && others.len() < events.len());
    view.forget(&others).unwrap();
    view.finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
    volume.close().unwrap();
    device
}
