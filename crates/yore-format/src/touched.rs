//! Which bytes of a block a change touched.
//!
//! A change *means* a unit or some (a cell, an inode's slot, bits, an entry, a root) and may also move data
//! that is derived from others (a node's index and counters, a bitmap's count). Engines that order changes
//! ask for the meaning; a log that repeats changes needs every byte. So a change carries both: where its
//! units are now, and a set of 64-byte *chunks* that covers all that it touched.

use crate::BLOCK_SIZE;
use std::ops::Range;

/// Bytes of a chunk; a block has 64 of them.
pub const CHUNK_BYTES: usize = BLOCK_SIZE / 64;

/// The bytes of a block that a change touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    /// What the change means: the bits of a bitmap, the bytes of anything else. Of a node that is one cell,
    /// which has its key still if it was removed, or the body of a new node; nothing, if no unit is another.
    pub meaning: Range<usize>,
    /// Bit i: something in chunk i may have changed.
    pub chunks: u64,
}

impl Touched {
    /// All of the block, meaning `meaning`.
    pub fn whole(meaning: Range<usize>) -> Touched {
        Touched { meaning, chunks: u64::MAX }
    }

    /// Bytes that are derived from others, or recounted.
    pub fn derived(range: Range<usize>) -> Touched {
        Touched { meaning: 0..0, chunks: chunks_of(range) }
    }

    /// Also touches `range`.
    #[must_use]
    pub fn and(mut self, range: Range<usize>) -> Touched {
        self.chunks |= chunks_of(range);
        self
    }
}

impl From<Range<usize>> for Touched {
    fn from(meaning: Range<usize>) -> Touched {
        Touched { chunks: chunks_of(meaning.clone()), meaning }
    }
}

/// The chunks that hold the bytes of `range`, which lies in a block.
pub fn chunks_of(range: Range<usize>) -> u64 {
    debug_assert!(range.end <= BLOCK_SIZE, "a range in a block");
    if range.is_empty() {
        return 0;
    }
    let (first, last) = (range.start / CHUNK_BYTES, (range.end - 1) / CHUNK_BYTES);
    (u64::MAX << first) & (u64::MAX >> (63 - last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_exactly_the_range() {
        assert_eq!(chunks_of(0..0), 0);
        assert_eq!(chunks_of(0..1), 1);
        assert_eq!(chunks_of(63..65), 0b11);
        assert_eq!(chunks_of(64..128), 0b10);
        assert_eq!(chunks_of(0..BLOCK_SIZE), u64::MAX);
        assert_eq!(chunks_of(4095..4096), 1 << 63);
        assert_eq!(Touched::from(64..100).and(4000..4096).chunks, 0b10 | 0b11 << 62);
    }
}
