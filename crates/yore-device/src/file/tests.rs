//! Tests of what only the module itself can see: how batches are carried out, and what stops after an error.

use super::*;
use crate::{AlignedBuf, Device, DeviceError, Operation, ReadRequest, WriteRequest, BLOCK_SIZE};
use std::fs::File;
use std::io;

fn image(direct: Direct) -> (tempfile::TempDir, FileDevice) {
    let directory = tempfile::tempdir().unwrap();
    let options = CreateOptions { direct, ..Default::default() };
    let path = directory.path().join("volume");
    let device = FileDevice::create(path, 4096 * BLOCK_SIZE as u64, options).unwrap();
    (directory, device)
}

/// 1000 scattered blocks, each with its number in every word.
fn numbered(seed: u64) -> Vec<(u64, AlignedBuf)> {
    let block = |index: u64| {
        let mut buf = AlignedBuf::zeroed(1);
        for word in buf.chunks_mut(8) {
            word.copy_from_slice(&(seed + index).to_le_bytes());
        }
        ((index * 1237 % 4096) * BLOCK_SIZE as u64, buf)
    };
    (0..1000).map(block).collect()
}

fn write_then_compare(device: &FileDevice, seed: u64) {
    let blocks = numbered(seed);
    let writes: Vec<_> = blocks.iter().map(|(offset, data)| WriteRequest { offset: *offset, data }).collect();
    device.write_batch(&writes).unwrap();
    let mut batch = vec![AlignedBuf::zeroed(1); blocks.len()];
    let mut reads: Vec<_> = batch
        .iter_mut()
        .zip(&blocks)
        .map(|(buf, (offset, _))| ReadRequest { offset: *offset, buf })
        .collect();
    device.read_batch(&mut reads).unwrap();
    for ((offset, data), batch) in blocks.iter().zip(&batch) {
        let mut alone = AlignedBuf::zeroed(1);
        device.read_at(*offset, &mut alone).unwrap();
        assert_eq!(&alone, data);
        assert_eq!(&alone, batch);
    }
}

/// A batch of 1000 blocks reads the same as single reads, both with rings, where the host has them, and
/// without.
#[test]
fn batches_equal_single_requests_with_and_without_rings() {
    for direct in [Direct::Auto, Direct::Never] {
        let (_directory, device) = image(direct);
        write_then_compare(&device, 0);
        let host_has_rings = io_uring::IoUring::new(1).is_ok();
        assert_eq!(device.rings.in_use(), host_has_rings);
        let (_directory, device) = image(direct);
        device.rings.refuse();
        write_then_compare(&device, 1_000_000);
        assert!(!device.rings.in_use());
    }
}

/// Many threads with batches of their own share the pool and see their own data.
#[test]
fn concurrent_batches() {
    let (_directory, device) = image(Direct::Auto);
    write_then_compare(&device, 7);
    let blocks = numbered(7);
    std::thread::scope(|scope| {
        for part in blocks.chunks(250) {
            let device = &device;
            scope.spawn(move || {
                for _ in 0..20 {
                    let mut bufs = vec![AlignedBuf::zeroed(1); part.len()];
                    let mut reads: Vec<_> = bufs
                        .iter_mut()
                        .zip(part)
                        .map(|(buf, (offset, _))| ReadRequest { offset: *offset, buf })
                        .collect();
                    device.read_batch(&mut reads).unwrap();
                    assert!(bufs.iter().zip(part).all(|(buf, (_, data))| buf == data));
                }
            });
        }
    });
}

/// If a file is truncated while it is open, a batch fails just as a single read does, and the error names the
/// request that failed. Requests that can be read do not hide it, and nothing hangs.
#[test]
fn a_truncated_file_is_an_error() {
    for direct in [Direct::Auto, Direct::Never] {
        let (_directory, device) = image(direct);
        // Not at a block boundary, so that a read comes back short rather than empty.
        device.file.set_len(100 * BLOCK_SIZE as u64 + 1000).unwrap();
        for offset in [100, 2000].map(|block| block * BLOCK_SIZE as u64) {
            let error = device.read_at(offset, &mut AlignedBuf::zeroed(1));
            let error = error.unwrap_err();
            assert!(
                matches!(error, DeviceError::Io { offset: at, source, .. }
                    if at == offset && source.kind == io::ErrorKind::UnexpectedEof),
                "{error}"
            );
        }
        let mut bufs = vec![AlignedBuf::zeroed(1); 1000];
        let mut reads: Vec<_> = bufs
            .iter_mut()
            .enumerate()
            .map(|(index, buf)| ReadRequest { offset: index as u64 * BLOCK_SIZE as u64, buf })
            .collect();
        let error = device.read_batch(&mut reads).unwrap_err();
        assert!(
            matches!(error, DeviceError::Io { offset, .. } if offset >= 100 * BLOCK_SIZE as u64),
            "{error}"
        );
        device.read_at(0, &mut AlignedBuf::zeroed(1)).unwrap();
        device.write_at(0, &AlignedBuf::zeroed(1)).unwrap();
    }
}

/// Somebody truncates an image that is in use. Once the next write beyond its new end made it as long as
/// before, with a hole where data had been, and nobody noticed. Now no write makes it longer again, and each
/// write and flush requires that all bytes in use are there. What lies beyond them may go.
#[test]
fn a_file_that_was_shortened_is_not_written() {
    const BLOCK: u64 = BLOCK_SIZE as u64;
    let block = AlignedBuf::zeroed(1);
    for direct in [Direct::Auto, Direct::Never] {
        let shortened = |size, used| {
            let (directory, device) = image(direct);
            device.use_up_to(200 * BLOCK);
            device.file.set_len(size).unwrap();
            let path = device.path.clone();
            (directory, device, DeviceError::Shortened { device: path, size, used })
        };
        let (_directory, device, error) = shortened(100 * BLOCK, 200 * BLOCK);
        assert_eq!(device.write_at(0, &block), Err(error.clone()));
        let first = Box::new(error);
        let refused = DeviceError::WrittenAfterError {
            operation: Operation::Flush,
            device: device.path.clone(),
            first,
        };
        assert_eq!(device.flush(), Err(refused));
        assert_eq!(device.file.metadata().unwrap().len(), 100 * BLOCK);
        let (_directory, device, error) = shortened(200 * BLOCK - 1, 200 * BLOCK);
        assert_eq!(device.flush(), Err(error));
        let (_directory, device, error) = shortened(200 * BLOCK, 300 * BLOCK);
        device.write_at(199 * BLOCK, &block).unwrap();
        device.flush().unwrap();
        let writes = [0, 299].map(|at| WriteRequest { offset: at * BLOCK, data: &block });
        assert_eq!(device.write_batch(&writes), Err(error));
    }
}

/// After a failed write, every later write, flush and discard is refused and names the first error; reads go
/// on. To make the host refuse a write, the test replaces the descriptor by one that cannot write.
#[test]
fn nothing_is_written_after_an_error() {
    let (directory, mut device) = image(Direct::Never);
    device.file = File::open(directory.path().join("volume")).unwrap();
    let block = AlignedBuf::zeroed(1);
    let first = device.write_at(4096, &block).unwrap_err();
    assert!(matches!(
        first,
        DeviceError::Io { operation: Operation::Write, offset: 4096, len: 4096, source, .. }
            if source.errno == libc::EBADF
    ));
    let refused = |operation| {
        Err(DeviceError::WrittenAfterError {
            operation,
            device: device.path.clone(),
            first: Box::new(first.clone()),
        })
    };
    assert_eq!(device.write_at(0, &block), refused(Operation::Write));
    let writes = [WriteRequest { offset: 0, data: &block }];
    assert_eq!(device.write_batch(&writes), refused(Operation::Write));
    assert_eq!(device.flush(), refused(Operation::Flush));
    assert_eq!(device.discard(0, 4096), refused(Operation::Discard));
    device.read_at(0, &mut block.clone()).unwrap();
}

/// Daemons open a volume and then fork. A process that was forked after a batch runs its own batches, on its
/// own ring, and leaves its parent's ring alone.
#[test]
fn rings_are_not_shared_over_a_fork() {
    let (_directory, device) = image(Direct::Auto);
    write_then_compare(&device, 3);
    // SAFETY: the child uses nothing that another thread of this process could have locked: the device is
    // this test's own, and the allocator of the host is safe to use after a fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let work = std::panic::AssertUnwindSafe(|| {
            write_then_compare(&device, 4);
            assert_eq!(device.rings.in_use(), io_uring::IoUring::new(1).is_ok());
        });
        let failed = std::panic::catch_unwind(work).is_err();
        // SAFETY: ends the child at once; nothing of the test harness runs in it.
        unsafe { libc::_exit(i32::from(failed)) };
    }
    assert!(child > 0);
    let mut status = 0;
    // SAFETY: `status` is valid for the call, and the child is ours.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child failed");
    write_then_compare(&device, 5);
}

/// A short transfer continues where the host can go on: at any byte through the page cache, after the last
/// whole block under direct I/O. One that makes no progress is an error, not a loop.
#[test]
fn short_transfers_are_continued_where_possible() {
    use host::{progress, Direction::Read, Direction::Write};
    assert_eq!(progress(Read, false, 5000, 8192), Ok(5000));
    assert_eq!(progress(Read, true, 5000, 8192), Ok(4096));
    assert_eq!(progress(Write, true, 8192, 8192), Ok(8192));
    assert_eq!(progress(Read, true, 1000, 8192), Err(Read.stalled()));
    assert_eq!(progress(Write, false, 0, 8192), Err(Write.stalled()));
    assert_eq!(Read.stalled().kind, io::ErrorKind::UnexpectedEof);
}

/// Making a file longer flushes it. When that failed, the error was told and forgotten: the host tells it
/// once, so the next flush succeeded without the blocks that had been lost.
#[test]
fn a_flush_that_fails_while_a_file_grows_is_remembered() {
    let (_directory, device) = image(Direct::Auto);
    let longer = device.size() + (1 << 20);
    device::FAIL_SYNC.set(true);
    assert!(matches!(device.grow(longer), Err(DeviceError::Io { operation: Operation::Flush, .. })));
    assert!(device.flush().is_err());
    assert!(device.write_at(0, &[0; BLOCK_SIZE]).is_err());
}
