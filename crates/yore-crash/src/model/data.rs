//! A file's content in the model: its size, and those of its blocks that are not all zeros.
//!
//! The map holds no block of zeros and nothing beyond the size, so that two contents are equal exactly if
//! they read alike. Clones share their blocks.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a block.
pub const BLOCK: usize = 4096;
const BLOCK_U64: u64 = BLOCK as u64;
/// The contents of one block.
pub type Block = [u8; BLOCK];

/// The content of a regular file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileData {
    size: u64,
    blocks: Arc<BTreeMap<u64, Arc<Block>>>,
}

impl FileData {
    /// Content of this size and with these blocks, none of which is all zeros or lies beyond the size.
    pub fn new(size: u64, blocks: BTreeMap<u64, Arc<Block>>) -> FileData {
        FileData { size, blocks: Arc::new(blocks) }
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The blocks that are not all zeros, by index.
    pub fn blocks(&self) -> &BTreeMap<u64, Arc<Block>> {
        &self.blocks
    }

    /// Whether it is the very same value, not only equal. Cheap; false says nothing.
    pub fn is_same(&self, other: &FileData) -> bool {
        self.size == other.size && Arc::ptr_eq(&self.blocks, &other.blocks)
    }

    /// Up to `len` bytes from `offset`, fewer at the end.
    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let end = self.size.min(offset.saturating_add(len));
        let mut bytes = vec![0; end.saturating_sub(offset) as usize];
        for piece in pieces(offset, bytes.len() as u64) {
            if let Some(block) = self.blocks.get(&piece.block) {
                bytes[piece.at..piece.at + piece.len]
                    .copy_from_slice(&block[piece.within..piece.within + piece.len]);
            }
        }
        bytes
    }

    /// Writes, growing the file if the data ends beyond it.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        for piece in pieces(offset, data.len() as u64) {
            self.patch(piece.block, |block| {
                block[piece.within..piece.within + piece.len]
                    .copy_from_slice(&data[piece.at..piece.at + piece.len]);
            });
        }
        self.size = self.size.max(offset + data.len() as u64);
    }

    /// Makes a range read as zeros, as far as the file goes.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.size);
        if offset >= end {
            return;
        }
        let first = offset / BLOCK_U64;
        let touched: Vec<u64> =
            self.blocks.range(first..).map(|(block, _)| *block).take_while(|b| b * BLOCK_U64 < end).collect();
        for block in touched {
            let start = block * BLOCK_U64;
            let from = offset.saturating_sub(start) as usize;
            let to = (end - start).min(BLOCK_U64) as usize;
            self.patch(block, |bytes| bytes[from..to].fill(0));
        }
    }

    /// Truncates, or extends with zeros.
    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, u64::MAX);
        }
        self.size = size;
    }

    /// Changes one block, and drops it if it is zeros afterwards.
    fn patch(&mut self, index: u64, change: impl FnOnce(&mut Block)) {
        let blocks = Arc::make_mut(&mut self.blocks);
        let block = Arc::make_mut(blocks.entry(index).or_insert_with(|| Arc::new([0; BLOCK])));
        change(block);
        if block.iter().all(|byte| *byte == 0) {
            blocks.remove(&index);
        }
    }

    /// The first byte at or after `offset` that is not zero.
    pub fn first_nonzero(&self, offset: u64) -> Option<u64> {
        self.blocks.range(offset / BLOCK_U64..).find_map(|(index, block)| {
            let start = index * BLOCK_U64;
            let from = offset.saturating_sub(start) as usize;
            block[from..].iter().position(|byte| *byte != 0).map(|at| start + (from + at) as u64)
        })
    }

    /// Bytes in blocks that are not all zeros.
    pub fn used(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK_U64
    }
}

/// A part of a range that lies in one block.
struct Piece {
    block: u64,
    /// Bytes from the block's start.
    within: usize,
    /// Bytes from the range's start.
    at: usize,
    len: usize,
}

fn pieces(offset: u64, len: u64) -> impl Iterator<Item = Piece> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= len {
            return None;
        }
        let within = (offset + at) % BLOCK_U64;
        let part = (BLOCK_U64 - within).min(len - at);
        let piece = Piece {
            block: (offset + at) / BLOCK_U64,
            within: within as usize,
            at: at as usize,
            len: part as usize,
        };
        at += part;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The content behaves as a vector of bytes, and equal bytes are equal values.
    #[test]
    fn it_is_a_vector_of_bytes() {
        let mut data = FileData::default();
        let mut plain: Vec<u8> = Vec::new();
        let mut word: u64 = 7;
        for round in 0..500 {
            word = word.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (offset, len) = ((word >> 20) % 20_000, (word >> 40) % 9_000);
            match word >> 62 {
                0 => {
                    let bytes = vec![round as u8; len as usize];
                    data.write(offset, &bytes);
                    if len > 0 {
                        plain.resize(plain.len().max((offset + len) as usize), 0);
                        plain[offset as usize..(offset + len) as usize].copy_from_slice(&bytes);
                    }
                }
                1 => {
                    data.zero(offset, len);
                    let end = plain.len().min((offset + len) as usize);
                    if (offset as usize) < end {
                        plain[offset as usize..end].fill(0);
                    }
                }
                _ => {
                    data.truncate(offset);
                    plain.resize(offset as usize, 0);
                }
            }
            assert_eq!(data.read(0, u64::MAX), plain, "after round {round}");
            let mut again = FileData::default();
            again.write(0, &plain);
            again.truncate(plain.len() as u64);
            assert_eq!(data, again, "after round {round}");
            let from = (offset / 2) as usize;
            let nonzero = plain.iter().skip(from).position(|byte| *byte != 0).map(|at| (from + at) as u64);
            assert_eq!(data.first_nonzero(from as u64), nonzero);
        }
    }
}
