//! What the memory device promises beyond the contract: snapshots that share nothing visible, golden images,
//! and writers that do not disturb each other.

mod common;

use common::{at, pattern, read};
use yore_device::{AlignedBuf, Device, DeviceError, MemoryDevice};

/// A snapshot stays what it was, whatever either side writes or discards later, and a comparison finds the
/// first change.
#[test]
fn snapshots_are_independent() {
    let device = MemoryDevice::new(1 << 40);
    let far = (1 << 28) - 1;
    for block in [0, 63, 64, 2047, 2048, 100_000, far] {
        device.write_at(at(block), &pattern(block, 1)).unwrap();
    }
    let snapshot = device.snapshot();
    assert_eq!(device.first_difference(&snapshot), None);
    device.write_at(at(2048), &pattern(1, 1)).unwrap();
    device.discard(at(50), at(20)).unwrap();
    snapshot.write_at(at(99_999), &pattern(2, 1)).unwrap();
    assert_eq!(device.first_difference(&snapshot), Some(at(63)));
    for block in [63, 64] {
        assert_eq!(read(&device, block, 1), AlignedBuf::zeroed(1));
        assert_eq!(read(&snapshot, block, 1), pattern(block, 1));
    }
    assert_eq!(read(&snapshot, 2048, 1), pattern(2048, 1));
    assert_eq!(read(&device, 99_999, 1), AlignedBuf::zeroed(1));
    assert_eq!(read(&device, far, 1), read(&snapshot, far, 1));
    // Written zeros and blocks that were never written are the same contents.
    let (a, b) = (MemoryDevice::new(at(4)), MemoryDevice::new(at(4)));
    a.write_at(at(2), &AlignedBuf::zeroed(1)).unwrap();
    assert_eq!(a.first_difference(&b), None);
}

/// A discard of any range leaves exactly the blocks outside it. The test compares with a plain model, across
/// the edges of stripes and shards.
#[test]
fn discards_clear_exactly_their_range() {
    let blocks = 5000;
    let mut seed: u64 = 3;
    for round in 0..40 {
        let device = MemoryDevice::from_bytes(&pattern(1, blocks));
        let mut next = |bound: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % bound
        };
        let first = next(blocks as u64);
        let count = next(blocks as u64 - first + 1);
        device.discard(at(first), at(count)).unwrap();
        let mut expected = pattern(1, blocks);
        expected[at(first) as usize..at(first + count) as usize].fill(0);
        assert_eq!(device.to_bytes(), expected[..], "round {round}: {count} from {first}");
    }
}

/// Contents survive being written to a file and read back, holes included; a file of odd length is padded.
#[test]
fn images_on_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    let device = MemoryDevice::new(at(300));
    device.write_at(at(70), &pattern(1, 5)).unwrap();
    device.write_to_file(&path).unwrap();
    let back = MemoryDevice::from_file(&path).unwrap();
    assert_eq!(back.first_difference(&device), None);
    assert_eq!(std::fs::read(&path).unwrap(), device.to_bytes());
    std::fs::write(&path, [9; 5000]).unwrap();
    let odd = MemoryDevice::from_file(&path).unwrap();
    assert_eq!(odd.size(), at(2));
    assert_eq!(odd.to_bytes()[4999..5001], [9, 0]);
    let missing = MemoryDevice::from_file(directory.path().join("missing"));
    assert!(matches!(missing, Err(DeviceError::NotFound { .. })));
}

/// Threads that each write to their own blocks find what they wrote, while others take snapshots; each
/// snapshot has only whole blocks.
#[test]
fn concurrent_writers() {
    let device = MemoryDevice::new(at(1024));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let device = &device;
            scope.spawn(move || {
                for round in 1..200u64 {
                    let block = AlignedBuf::from_slice(&[(round % 251) as u8; 4096]);
                    let index = (round * 4 + thread) % 1024;
                    device.write_at(at(index), &block).unwrap();
                    assert_eq!(read(device, index, 1), block);
                    if round % 50 == 0 {
                        let snapshot = device.snapshot().to_bytes();
                        let whole = |block: &[u8]| block.iter().all(|&byte| byte == block[0]);
                        assert!(snapshot.chunks(4096).all(whole));
                    }
                }
            });
        }
    });
}
