//! Freed blocks go back to the device: an image file gets smaller, and a device that cannot discard is not
//! asked again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use yore_device::{wrapped, CreateOptions, Device, DeviceError, FileDevice, MemoryDevice, Operation};
use yore_fs::{MkfsOptions, MountOptions, NewSnapshot, View, Volume, DISCARD_BLOCKS};

const MIB: u64 = 1 << 20;

fn options() -> MountOptions {
    MountOptions { discard: Some(DISCARD_BLOCKS), ..MountOptions::default() }
}

/// A file that a snapshot has seen is removed, then the snapshot is forgotten: when that is on the medium,
/// the image file is as small as before. Closing gives back what nobody has given back yet.
#[test]
fn an_image_gets_smaller() {
    use std::os::unix::fs::MetadataExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("volume");
    let device = FileDevice::create(&path, 256 * MIB, CreateOptions::default()).unwrap();
    let device: Arc<dyn Device> = Arc::new(device);
    View::mkfs(&device, &MkfsOptions::default()).unwrap();
    let volume = Volume::open(device, &options()).unwrap();
    let allocated = || std::fs::metadata(&path).unwrap().blocks() * 512;
    let view = volume.view();
    let data = vec![0x5a; 40 * MIB as usize];
    volume.write("small", b"it stays").unwrap();
    volume.sync().unwrap();
    let empty = allocated();
    volume.write("large", &data).unwrap();
    let event = view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number;
    volume.remove_file("large").unwrap();
    volume.sync().unwrap();
    assert_eq!(view.discard_freed().unwrap(), 0, "the snapshot has it");
    assert!(allocated() >= empty + 40 * MIB);
    view.forget(&[event]).unwrap();
    view.finish_forgetting(&mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    let full = allocated();
    volume.sync().unwrap();
    let discarded = view.discard_freed().unwrap();
    // Housekeeping may have been faster. The sync itself writes metadata.
    let after = allocated();
    assert!(discarded <= 41 * MIB && after + 39 * MIB <= full, "{discarded}: {full} -> {after}");
    assert!(after < empty + 4 * MIB, "{empty} -> {after}");

    volume.write("large", &data).unwrap();
    volume.sync().unwrap();
    assert!(volume.read("large").unwrap() == data, "what was discarded is used again");
    volume.remove_file("large").unwrap();
    volume.close().unwrap();
    assert!(allocated() < empty + 4 * MIB, "{empty} -> {}", allocated());
    drop(volume);
    let volume = Volume::open(Arc::new(FileDevice::open(&path, Default::default()).unwrap()), &options());
    assert_eq!(volume.unwrap().read("small").unwrap(), b"it stays");
}

/// Refuses to discard.
#[derive(Debug, Default)]
struct Refuses(AtomicU64);

impl wrapped::Hook for Refuses {
    fn request(&self, request: wrapped::Request<'_>, below: &dyn Device) -> Result<(), DeviceError> {
        if let wrapped::Request::Discard { .. } = request {
            self.0.fetch_add(1, Ordering::Relaxed);
            return Err(DeviceError::ReadOnly { operation: Operation::Discard, device: below.describe() });
        }
        request.pass(below)
    }
}

/// A device fails to discard: the volume goes on without, and all that was freed can be written.
#[test]
fn a_device_that_cannot_is_not_asked_again() {
    let below = wrapped::Wrapped::new(MemoryDevice::new(64 * MIB), Refuses::default());
    let device = Arc::new(below);
    let used: Arc<dyn Device> = device.clone();
    View::mkfs(&used, &MkfsOptions::default()).unwrap();
    let volume = Volume::open(used, &options()).unwrap();
    let data = vec![3; 40 * MIB as usize];
    for _ in 0..4 {
        volume.write("file", &data).unwrap();
        volume.sync().unwrap();
        volume.remove_file("file").unwrap();
        volume.sync().unwrap();
        assert_eq!(volume.view().discard_freed().unwrap(), 0);
    }
    assert_eq!(device.hook.0.load(Ordering::Relaxed), 1);
    volume.write("file", &data).unwrap();
    volume.close().unwrap();
}
