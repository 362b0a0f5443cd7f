//! Gathers the blocks of a generation, so that they go to the device in large batches.

use crate::base::medium::Medium;
use crate::error::Result;
use yore_device::{AlignedBuf, WriteRequest};
use yore_format::{seal, Block, BlockNo, Generation, BLOCK_SIZE};

/// Blocks gathered before they go to the device together.
const BATCH_BLOCKS: usize = 512;

/// Gathers writes into aligned memory and hands them to the device in large batches.
pub(super) struct Gather<'m> {
    medium: &'m Medium,
    buffer: AlignedBuf,
    targets: Vec<BlockNo>,
}

impl<'m> Gather<'m> {
    /// For about so many blocks: the memory for a whole batch would cost a small generation more than all the
    /// rest.
    pub(super) fn new(medium: &'m Medium, blocks: usize) -> Gather<'m> {
        let blocks = blocks.clamp(1, BATCH_BLOCKS);
        Gather { medium, buffer: AlignedBuf::zeroed(blocks), targets: Vec::with_capacity(blocks) }
    }

    /// Adds a copy of `block`, sealed for `generation`; returns its checksum.
    pub(super) fn push(&mut self, at: BlockNo, block: &Block, generation: Generation) -> Result<u32> {
        Ok(seal(self.copy(at, block)?, generation))
    }

    /// Adds a copy of `block`, which is sealed already.
    pub(super) fn push_sealed(&mut self, at: BlockNo, block: &Block) -> Result<()> {
        self.copy(at, block).map(|_| ())
    }

    fn copy(&mut self, at: BlockNo, block: &Block) -> Result<&mut Block> {
        if self.targets.len() == self.buffer.blocks() {
            self.submit()?;
        }
        let offset = self.targets.len() * BLOCK_SIZE;
        let copy: &mut Block =
            (&mut self.buffer[offset..offset + BLOCK_SIZE]).try_into().expect("one block of the buffer");
        copy.copy_from_slice(block);
        self.targets.push(at);
        Ok(copy)
    }

    pub(super) fn submit(&mut self) -> Result<()> {
        let mut writes: Vec<WriteRequest<'_>> = Vec::new();
        let mut from = 0;
        while from < self.targets.len() {
            let mut to = from + 1;
            while to < self.targets.len() && self.targets[to].0 == self.targets[to - 1].0 + 1 {
                to += 1;
            }
            let data = &self.buffer[from * BLOCK_SIZE..to * BLOCK_SIZE];
            writes.push(WriteRequest { offset: self.targets[from].0 * BLOCK_SIZE as u64, data });
            from = to;
        }
        if !writes.is_empty() {
            self.medium.device().write_batch(&writes)?;
        }
        self.targets.clear();
        Ok(())
    }
}
