//! Promises that every device keeps the contract of `Device`, through every kind of pointer to it.

mod common;

use std::sync::Arc;

use common::{at, conformance, pattern, read};
use yore_device::{CreateOptions, Device, Direct, FileDevice, MemoryDevice, OpenOptions, BLOCK_SIZE};

const SIZE: u64 = 4096 * BLOCK_SIZE as u64;

#[test]
fn memory() {
    conformance(&MemoryDevice::new(SIZE));
    conformance(&Arc::new(MemoryDevice::new(SIZE)));
    let boxed: Box<dyn Device> = Box::new(MemoryDevice::new(SIZE));
    conformance(&boxed);
}

/// Direct if the directory for temporary files allows it, and always buffered.
#[test]
fn image_files() {
    for direct in [Direct::Auto, Direct::Never] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("volume");
        let options = CreateOptions { direct, ..Default::default() };
        let device = FileDevice::create(&path, SIZE, options).unwrap();
        conformance(&device);
        let block_one = read(&device, 1, 1);
        drop(device);
        let again = FileDevice::open(&path, OpenOptions::default()).unwrap();
        assert_eq!(read(&again, 1, 1), block_one, "what was written is there when opened again");
    }
}

/// A volume of 64 TiB takes room only for what is written to it, and works at its end.
#[test]
fn huge_and_sparse() {
    let size = 64 << 40;
    let directory = tempfile::tempdir().unwrap();
    let mut devices: Vec<Box<dyn Device>> = vec![Box::new(MemoryDevice::new(size))];
    // The host's file systems differ in how large a file may be; ext4 ends a little below 16 TiB.
    let on_file = [size, 15 << 40].into_iter().find_map(|size| {
        let path = directory.path().join(size.to_string());
        FileDevice::create(path, size, CreateOptions::default()).ok()
    });
    devices.push(Box::new(on_file.expect("the host takes sparse files of 15 TiB")));
    for device in devices {
        let last = device.size() / BLOCK_SIZE as u64 - 1;
        for block in [0, 12_345, last / 3, last] {
            device.write_at(at(block), &pattern(block, 1)).unwrap();
        }
        device.flush().unwrap();
        for block in [0, 12_345, last / 3, last] {
            assert_eq!(read(&device, block, 1), pattern(block, 1));
        }
        assert!(read(&device, last - 1, 1).iter().all(|&byte| byte == 0));
        device.discard(at(1), device.size() - at(2)).unwrap();
        assert_eq!(read(&device, 0, 1), pattern(0, 1));
        assert_eq!(read(&device, last, 1), pattern(last, 1));
    }
}
