//! The ring of blocks that a log is written into, over and over.
//!
//! Blocks of the ring are counted from the region's first; after the last comes the first again, also in the
//! middle of a batch. [`Stream`] reads a ring once around, from one block on, in large reads.

use std::sync::Arc;

use yore_device::{AlignedBuf, Device, DeviceError, ReadRequest, WriteRequest, BLOCK_SIZE};

use crate::{LogError, Region, REGION_BLOCKS_MAX, REGION_BLOCKS_MIN};

/// Blocks that are read, and written by [`Ring::clear`], at once: 1 MiB.
const WINDOW_BLOCKS: u64 = 256;

/// A region of a device as a ring.
#[derive(Debug, Clone)]
pub(crate) struct Ring<D = Arc<dyn Device>> {
    device: D,
    region: Region,
}

impl<D: Device> Ring<D> {
    /// Checks the region against the device.
    pub fn new(device: D, region: Region) -> Result<Ring<D>, LogError> {
        let device_blocks = device.size() / BLOCK_SIZE as u64;
        let fits = region.first_block.checked_add(region.blocks).is_some_and(|end| end <= device_blocks);
        if !fits || !(REGION_BLOCKS_MIN..=REGION_BLOCKS_MAX).contains(&region.blocks) {
            return Err(LogError::BadRegion {
                device: device.describe(),
                first_block: region.first_block,
                blocks: region.blocks,
                device_blocks,
            });
        }
        Ok(Ring { device, region })
    }

    pub fn device(&self) -> &dyn Device {
        &self.device
    }

    pub fn blocks(&self) -> u64 {
        self.region.blocks
    }

    /// The block `n` after `block`; `n` is at most the length of the ring.
    pub fn after(&self, block: u64, n: u64) -> u64 {
        (block + n) % self.region.blocks
    }

    /// The number of blocks from `from` forward to `to`, less than the length of the ring.
    pub fn distance(&self, from: u64, to: u64) -> u64 {
        (to + self.region.blocks - from) % self.region.blocks
    }

    /// The block of the device that holds a block of the ring.
    pub fn device_block(&self, block: u64) -> u64 {
        self.region.first_block + block
    }

    fn offset(&self, block: u64) -> u64 {
        self.device_block(block) * BLOCK_SIZE as u64
    }

    /// How many of `len` bytes from `block` on lie before the ring's end.
    fn before_end(&self, block: u64, len: usize) -> usize {
        let room = (self.region.blocks - block) * BLOCK_SIZE as u64;
        (len as u64).min(room) as usize
    }

    /// Writes whole blocks from `block` on, around the end.
    pub fn write(&self, block: u64, data: &[u8]) -> Result<(), DeviceError> {
        let (first, second) = data.split_at(self.before_end(block, data.len()));
        let first = WriteRequest { offset: self.offset(block), data: first };
        if second.is_empty() {
            return self.device.write_at(first.offset, first.data);
        }
        self.device.write_batch(&[first, WriteRequest { offset: self.offset(0), data: second }])
    }

    /// Reads whole blocks from `block` on, around the end.
    pub fn read(&self, block: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let (first, second) = buf.split_at_mut(self.before_end(block, buf.len()));
        let first = ReadRequest { offset: self.offset(block), buf: first };
        if second.is_empty() {
            return self.device.read_at(first.offset, first.buf);
        }
        self.device.read_batch(&mut [first, ReadRequest { offset: self.offset(0), buf: second }])
    }

    /// Writes zeros over `count` blocks from `block` on, around the end.
    pub fn erase(&self, block: u64, count: u64) -> Result<(), DeviceError> {
        let zeros = AlignedBuf::zeroed(WINDOW_BLOCKS.min(count.max(1)) as usize);
        let mut done = 0;
        while done < count {
            let at = self.after(block, done);
            let n = WINDOW_BLOCKS.min(count - done).min(self.region.blocks - at);
            self.device.write_at(self.offset(at), &zeros[..n as usize * BLOCK_SIZE])?;
            done += n;
        }
        Ok(())
    }

    /// Writes zeros over the whole ring and flushes. A host then has room for all of it, and later flushes of
    /// a log in a host's file have no metadata of that file to write.
    pub fn clear(&self) -> Result<(), DeviceError> {
        let zeros = AlignedBuf::zeroed(WINDOW_BLOCKS.min(self.region.blocks) as usize);
        let mut block = 0;
        while block < self.region.blocks {
            let n = WINDOW_BLOCKS.min(self.region.blocks - block);
            self.device.write_at(self.offset(block), &zeros[..n as usize * BLOCK_SIZE])?;
            block += n;
        }
        self.device.flush()
    }
}

/// A ring read once around in large reads. Places are counted from the block that reading began at, so they
/// only grow.
#[derive(Debug)]
pub(crate) struct Stream<D = Arc<dyn Device>> {
    ring: Ring<D>,
    origin: u64,
    buffer: AlignedBuf,
    /// The place of the first block in `buffer`, and how many it holds.
    base: u64,
    filled: u64,
}

impl<D: Device> Stream<D> {
    /// Reads from `origin` on, which must be a block of the ring.
    pub fn new(ring: Ring<D>, origin: u64) -> Stream<D> {
        let blocks = WINDOW_BLOCKS.min(ring.blocks()) as usize;
        Stream { ring, origin, buffer: AlignedBuf::zeroed(blocks), base: 0, filled: 0 }
    }

    /// As [`Stream::new`], and nothing is read ahead.
    pub fn block_by_block(ring: Ring<D>, origin: u64) -> Stream<D> {
        Stream { ring, origin, buffer: AlignedBuf::zeroed(1), base: 0, filled: 0 }
    }

    pub fn ring(&self) -> &Ring<D> {
        &self.ring
    }

    /// The block of the ring at a place.
    pub fn block(&self, at: u64) -> u64 {
        self.ring.after(self.origin, at)
    }

    /// Makes sure that `n` blocks from `at` on are in memory, and reads ahead. They must lie within one time
    /// around.
    pub fn load(&mut self, at: u64, n: u64) -> Result<(), DeviceError> {
        let end = self.base + self.filled;
        if at >= self.base && at + n <= end {
            return Ok(());
        }
        assert!(at + n <= self.ring.blocks(), "{n} blocks at {at} are more than once around the ring");
        let kept = if (self.base..end).contains(&at) { end - at } else { 0 };
        let from = (at.wrapping_sub(self.base) as usize).wrapping_mul(BLOCK_SIZE);
        let kept_bytes = kept as usize * BLOCK_SIZE;
        if n > self.buffer.blocks() as u64 {
            let mut larger = AlignedBuf::zeroed(n as usize);
            if kept > 0 {
                larger[..kept_bytes].copy_from_slice(&self.buffer[from..from + kept_bytes]);
            }
            self.buffer = larger;
        } else if kept > 0 {
            self.buffer.copy_within(from..from + kept_bytes, 0);
        }
        (self.base, self.filled) = (at, kept);
        let wanted = (self.buffer.blocks() as u64).min(self.ring.blocks() - at);
        let block = self.block(at + kept);
        self.ring.read(block, &mut self.buffer[kept_bytes..wanted as usize * BLOCK_SIZE])?;
        self.filled = wanted;
        Ok(())
    }

    /// `n` blocks from `at` on, which were loaded.
    pub fn get(&self, at: u64, n: u64) -> &[u8] {
        assert!(at >= self.base && at + n <= self.base + self.filled, "{n} blocks at {at} are not loaded");
        let start = (at - self.base) as usize * BLOCK_SIZE;
        &self.buffer[start..start + n as usize * BLOCK_SIZE]
    }
}

/// Makes a region ready for a log: writes zeros over all of it, and flushes. The owner of an embedded log
/// then stores [`Position::start`](crate::Position::start) of a new
/// [`LogId`](crate::LogId) in its superblock. (Zeros are not needed to tell old
/// records from new ones; they make the host set aside room for a file, so that no later flush has to write
/// metadata of the host.)
///
/// # Errors
/// [`LogError::BadRegion`], and [`LogError::Device`].
pub fn format(device: Arc<dyn Device>, region: Region) -> Result<(), LogError> {
    Ok(Ring::new(device, region)?.clear()?)
}
