//! Reproducible bytes, and shorthands.

use yore_device::{AlignedBuf, Device, BLOCK_SIZE};

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
