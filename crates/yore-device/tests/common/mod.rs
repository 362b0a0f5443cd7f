//! What every device promises, whatever it is made of; and a small generator of reproducible bytes.

use std::io::{IoSlice, IoSliceMut};

use yore_device::{AlignedBuf, Device, DeviceError, Operation, ReadRequest, WriteRequest, BLOCK_SIZE};

/// `blocks` blocks of bytes that depend on `seed` only.
pub fn pattern(seed: u64, blocks: usize) -> AlignedBuf {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut buf = AlignedBuf::zeroed(blocks);
    for word in buf.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    buf
}

pub fn at(block: u64) -> u64 {
    block * BLOCK_SIZE as u64
}

/// Reads `blocks` blocks.
pub fn read(device: &dyn Device, block: u64, blocks: usize) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(blocks);
    device.read_at(at(block), &mut buf).unwrap();
    buf
}

/// Runs all checks on an empty device of at least 2048 blocks that may be written.
pub fn conformance(device: &dyn Device) {
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
    // Odd on purpose: no device may depend on where the caller's memory lies.
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
    // Scattered, of different lengths, every third with memory that is not aligned.
    let places: Vec<u64> = (0..1000).map(|index| (index * 389) % 1000).collect();
    let data: Vec<_> = places.iter().map(|&place| pattern(place + 10_000, 1)).collect();
    let mut skewed = vec![vec![0u8; BLOCK_SIZE + 1]; places.len()];
    for (copy, data) in skewed.iter_mut().zip(&data) {
        copy[1..].copy_from_slice(data);
    }
    let writes: Vec<_> = places
        .iter()
        .enumerate()
        .map(|(index, &place)| WriteRequest {
            offset: at(place),
            data: if index % 3 == 0 { &skewed[index][1..] } else { &data[index] },
        })
        .collect();
    device.write_batch(&writes).unwrap();
    for (&place, data) in places.iter().zip(&data) {
        assert_eq!(&read(device, place, 1), data, "block {place} read alone");
    }
    let mut back: Vec<_> = places.iter().map(|_| vec![0u8; 2 * BLOCK_SIZE + 1]).collect();
    let mut reads: Vec<_> = back
        .iter_mut()
        .zip(&places)
        .enumerate()
        .map(|(index, (buf, &place))| ReadRequest {
            offset: at(place),
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
