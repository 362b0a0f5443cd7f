//! Promises that every device keeps the contract of `Device`, through every kind of pointer to it.

mod common;

use std::io::{IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use common::{at, pattern, read};
use yore_device::{
    AlignedBuf, CreateOptions, Device, DeviceError, Direct, FileDevice, MemoryDevice, OpenOptions, Operation,
    ReadRequest, SimulatedDevice, WriteRequest, BLOCK_SIZE,
};

const SIZE: u64 = 4096 * BLOCK_SIZE as u64;

#[test]
fn memory() {
    conformance(&MemoryDevice::new(SIZE));
    conformance(&Arc::new(MemoryDevice::new(SIZE)));
    let boxed: Box<dyn Device> = Box::new(MemoryDevice::new(SIZE));
    conformance(&boxed);
}

#[test]
fn simulated() {
    conformance(&SimulatedDevice::new(MemoryDevice::new(SIZE)));
}

/// A file system in memory may refuse direct I/O; the device works all the same.
#[test]
fn image_files_in_memory() {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        // Not every host has `/dev/shm`. Image files are tested elsewhere in any case.
        return;
    };
    let path = directory.path().join("volume");
    conformance(&FileDevice::create(path, SIZE, CreateOptions::default()).unwrap());
}

/// A loop device, which is detached on drop.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn over(file: &Path) -> LoopDevice {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        LoopDevice(PathBuf::from(String::from_utf8(output.stdout).unwrap().trim()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // A loop device that stays behind is a nuisance, but not the subject of the test.
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// A block device keeps the contract. It is claimed from the host while it is open for writing. While it is
/// mounted it is refused, with the directory where it is mounted.
#[test]
#[ignore = "needs root, loop devices and mkfs.ext4"]
fn block_devices() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("disk");
    std::fs::File::create(&file).unwrap().set_len(SIZE).unwrap();
    let disk = LoopDevice::over(&file);
    let device = FileDevice::open(&disk.0, OpenOptions::default()).unwrap();
    assert!(device.is_block_device());
    assert_eq!(device.size(), SIZE);
    conformance(&device);
    let error = FileDevice::open(&disk.0, OpenOptions::default()).unwrap_err();
    let me = std::process::id();
    assert!(matches!(&error, DeviceError::Busy { holder: Some(holder), .. } if holder.pid == me), "{error}");
    drop(device);
    let overwrite = CreateOptions { overwrite: true, ..Default::default() };
    // A writer does not fail because somebody, such as udev, holds a lock for an instant.
    let other = std::fs::File::open(&disk.0).unwrap();
    other.lock_shared().unwrap();
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| FileDevice::open(&disk.0, OpenOptions::default()));
        drop(other);
        opening.join().unwrap().unwrap();
    });
    let too_large = FileDevice::create(&disk.0, 2 * SIZE, overwrite).unwrap_err();
    assert!(matches!(too_large, DeviceError::TooSmall { size: SIZE, .. }), "{too_large}");
    assert_eq!(FileDevice::create(&disk.0, SIZE / 2, overwrite).unwrap().size(), SIZE / 2);
    let run = |command: &mut Command| assert!(command.output().unwrap().status.success());
    run(Command::new("mkfs.ext4").arg("-q").arg(&disk.0));
    let mountpoint = directory.path().join("a place");
    std::fs::create_dir(&mountpoint).unwrap();
    run(Command::new("mount").arg(&disk.0).arg(&mountpoint));
    let refused = FileDevice::open(&disk.0, OpenOptions::default());
    run(Command::new("umount").arg(&mountpoint));
    let expected = DeviceError::Mounted {
        device: disk.0.display().to_string(),
        mount_point: mountpoint.display().to_string(),
    };
    assert_eq!(refused.unwrap_err(), expected);
}

/// With direct I/O, if the directory for temporary files allows it, and always through the page cache.
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

/// A device of 64 TiB takes room only for what is written to it, and works at its end.
#[test]
fn huge_and_sparse() {
    let size = 64 << 40;
    let directory = tempfile::tempdir().unwrap();
    let mut devices: Vec<Box<dyn Device>> = vec![Box::new(MemoryDevice::new(size))];
    // File systems of hosts differ in how long a file may be; on ext4 it is a little less than 16 TiB.
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

/// Runs all checks on an empty device of at least 2048 blocks that may be written.
fn conformance(device: &dyn Device) {
    assert!(device.size() >= at(2048) && device.size().is_multiple_of(BLOCK_SIZE as u64));
    assert!(!device.read_only());
    assert!(!device.describe().is_empty());
    single_requests(device);
    vectored_requests(device);
    unaligned_memory(device);
    batches(device);
    ranges(device);
    discards(device);
    bad_arguments(device);
}

fn single_requests(device: &dyn Device) {
    assert!(read(device, 0, 4).iter().all(|&byte| byte == 0), "not empty at first");
    let data = pattern(1, 130);
    device.write_at(at(60), &data).unwrap();
    assert_eq!(read(device, 60, 130), data);
    device.write_at(at(61), &pattern(2, 1)).unwrap();
    device.flush().unwrap();
    assert_eq!(read(device, 61, 1), pattern(2, 1), "overwriting");
    assert_eq!(read(device, 60, 1)[..], data[..BLOCK_SIZE], "the neighbour before");
    assert_eq!(read(device, 62, 128)[..], data[2 * BLOCK_SIZE..], "the neighbours after");
    assert!(read(device, 59, 1).iter().all(|&byte| byte == 0));
    let last = device.size() - BLOCK_SIZE as u64;
    device.write_at(last, &pattern(3, 1)).unwrap();
    assert_eq!(read(device, last / BLOCK_SIZE as u64, 1), pattern(3, 1));
    device.write_at(device.size(), &[]).unwrap();
    device.read_at(device.size(), &mut []).unwrap();
}

fn vectored_requests(device: &dyn Device) {
    let parts = [pattern(4, 1), pattern(5, 3), AlignedBuf::zeroed(0), pattern(6, 2)];
    let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
    device.write_vectored_at(at(300), &slices).unwrap();
    assert_eq!(read(device, 300, 6)[..], parts.iter().map(|part| &part[..]).collect::<Vec<_>>().concat()[..]);
    let mut back = [AlignedBuf::zeroed(2), AlignedBuf::zeroed(0), AlignedBuf::zeroed(4)];
    let mut slices: Vec<_> = back.iter_mut().map(|part| IoSliceMut::new(part)).collect();
    device.read_vectored_at(at(300), &mut slices).unwrap();
    assert_eq!(back[0][..BLOCK_SIZE], parts[0][..]);
    assert_eq!(back[2][2 * BLOCK_SIZE..], parts[3][..]);
    // More buffers than the host takes in one call.
    let many: Vec<_> = (0..1500).map(|seed| pattern(seed, 1)).collect();
    let slices: Vec<_> = many.iter().map(|part| IoSlice::new(part)).collect();
    device.write_vectored_at(at(400), &slices).unwrap();
    assert_eq!(read(device, 1899, 1), many[1499]);
}

fn unaligned_memory(device: &dyn Device) {
    let mut memory = vec![0u8; 601 * BLOCK_SIZE];
    // The address is odd on purpose: no device may depend on the alignment of the caller's memory.
    let skew = 1 + memory.as_ptr().align_offset(BLOCK_SIZE) % (BLOCK_SIZE - 1);
    let data = pattern(7, 600);
    memory[skew..skew + data.len()].copy_from_slice(&data);
    device.write_at(at(500), &memory[skew..skew + data.len()]).unwrap();
    assert_eq!(read(device, 500, 600), data);
    memory.fill(0);
    device.read_at(at(500), &mut memory[skew..skew + data.len()]).unwrap();
    assert_eq!(memory[skew..skew + data.len()], data[..]);
    let (head, tail) = memory[skew..skew + data.len()].split_at_mut(3 * BLOCK_SIZE);
    head.fill(0);
    let mut aligned = AlignedBuf::zeroed(1);
    let mut slices = [IoSliceMut::new(head), IoSliceMut::new(&mut aligned), IoSliceMut::new(tail)];
    device.read_vectored_at(at(500), &mut slices).unwrap();
    assert_eq!(head[..], data[..3 * BLOCK_SIZE]);
    assert_eq!(aligned[..], data[3 * BLOCK_SIZE..4 * BLOCK_SIZE]);
}

fn batches(device: &dyn Device) {
    // The requests are scattered and of different lengths; every third has memory that is not aligned.
    let blocks: Vec<u64> = (0..1000).map(|index| (index * 389) % 1000).collect();
    let data: Vec<_> = blocks.iter().map(|&block| pattern(block + 10_000, 1)).collect();
    let mut skewed = vec![vec![0u8; BLOCK_SIZE + 1]; blocks.len()];
    for (copy, data) in skewed.iter_mut().zip(&data) {
        copy[1..].copy_from_slice(data);
    }
    let writes: Vec<_> = blocks
        .iter()
        .enumerate()
        .map(|(index, &block)| WriteRequest {
            offset: at(block),
            data: if index % 3 == 0 { &skewed[index][1..] } else { &data[index] },
        })
        .collect();
    device.write_batch(&writes).unwrap();
    for (&block, data) in blocks.iter().zip(&data) {
        assert_eq!(&read(device, block, 1), data, "block {block} read alone");
    }
    let mut back: Vec<_> = blocks.iter().map(|_| vec![0u8; 2 * BLOCK_SIZE + 1]).collect();
    let mut reads: Vec<_> = back
        .iter_mut()
        .zip(&blocks)
        .enumerate()
        .map(|(index, (buf, &block))| ReadRequest {
            offset: at(block),
            buf: &mut buf[index % 2..][..(1 + index % 2) * BLOCK_SIZE],
        })
        .collect();
    device.read_batch(&mut reads).unwrap();
    for (read, data) in reads.iter().zip(&data) {
        assert_eq!(read.buf[..BLOCK_SIZE], data[..], "block at {} read in a batch", read.offset);
    }
    device.read_batch(&mut []).unwrap();
    device.write_batch(&[]).unwrap();
}

fn ranges(device: &dyn Device) {
    let size = device.size();
    let before = read(device, size / BLOCK_SIZE as u64 - 1, 1);
    let two = pattern(8, 2);
    let last = size - BLOCK_SIZE as u64;
    let far = u64::MAX - (BLOCK_SIZE as u64 - 1);
    for offset in [last, size, far] {
        let expected = |operation| {
            Err(DeviceError::OutOfRange {
                operation,
                offset,
                len: two.len() as u64,
                device: device.describe(),
                size,
            })
        };
        let mut buf = two.clone();
        assert_eq!(device.read_at(offset, &mut buf), expected(Operation::Read));
        let mut slices = [IoSliceMut::new(&mut buf)];
        assert_eq!(device.read_vectored_at(offset, &mut slices), expected(Operation::Read));
        let mut reads = [ReadRequest { offset, buf: &mut buf }];
        assert_eq!(device.read_batch(&mut reads), expected(Operation::Read));
        assert_eq!(device.write_at(offset, &two), expected(Operation::Write));
        let slices = [IoSlice::new(&two)];
        assert_eq!(device.write_vectored_at(offset, &slices), expected(Operation::Write));
        let writes = [WriteRequest { offset: 0, data: &two }, WriteRequest { offset, data: &two }];
        let first = read(device, 0, 2);
        assert_eq!(device.write_batch(&writes), expected(Operation::Write));
        assert_eq!(read(device, 0, 2), first, "found before anything was written");
        assert_eq!(device.discard(offset, two.len() as u64), expected(Operation::Discard));
    }
    assert_eq!(read(device, size / BLOCK_SIZE as u64 - 1, 1), before);
}

fn discards(device: &dyn Device) {
    let data = pattern(9, 200);
    device.write_at(at(700), &data).unwrap();
    device.discard(at(710), at(150)).unwrap();
    assert_eq!(read(device, 700, 10)[..], data[..10 * BLOCK_SIZE], "before the range");
    assert_eq!(read(device, 860, 40)[..], data[160 * BLOCK_SIZE..], "after the range");
    device.write_at(at(720), &pattern(11, 2)).unwrap();
    assert_eq!(read(device, 720, 2), pattern(11, 2), "written again");
    device.discard(0, 0).unwrap();
    device.flush().unwrap();
}

fn bad_arguments(device: &dyn Device) {
    let panics = |call: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err();
    assert!(panics(&|| drop(device.read_at(512, &mut AlignedBuf::zeroed(1)))));
    assert!(panics(&|| drop(device.read_at(0, &mut [0; 512]))));
    assert!(panics(&|| drop(device.write_at(512, &AlignedBuf::zeroed(1)))));
    assert!(panics(&|| drop(device.write_at(0, &[0; 512]))));
    assert!(panics(&|| drop(device.discard(0, 512))));
    let halves = [[0u8; 2048], [0u8; 2048]];
    let slices = [IoSlice::new(&halves[0]), IoSlice::new(&halves[1])];
    assert!(panics(&|| drop(device.write_vectored_at(0, &slices))));
}
