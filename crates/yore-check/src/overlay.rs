//! The device as a repair would leave it: what the repair writes stays in memory, in front of the volume. So
//! does what closing a volume would write that a crash met (`settle.rs`).
//!
//! The checker reads an [`Overlay`] like any other device, so each round of a repair is judged by the same
//! check as the volume itself. Nothing reaches the volume before all rounds are done (`repair/undo.rs`).
//!
//! Memory: the blocks that change, and for each zone that does, which of its slots were in use before.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use yore_device::{Device, DeviceError};
use yore_format::{Block, BlockNo, BLOCK_SIZE, ZERO_BLOCK};

/// Words of a bit set over the blocks of a zone.
pub(crate) type Slots = [u64; 16];

/// Blocks in front of a device.
#[derive(Debug)]
pub(crate) struct Overlay<'a> {
    device: yore_device::Overlay<&'a dyn Device>,
    /// By the first block of a zone: which slots its header named before the repair.
    kept: Mutex<BTreeMap<u64, Slots>>,
}

impl<'a> Overlay<'a> {
    pub(crate) fn new(below: &'a dyn Device) -> Overlay<'a> {
        Overlay { device: yore_device::Overlay::new(below), kept: Mutex::default() }
    }

    /// Whether the repair wrote this block.
    pub(crate) fn is_changed(&self, block: BlockNo) -> bool {
        self.device.changes().contains_key(&block.0)
    }

    /// How many blocks the repair wrote.
    pub(crate) fn len(&self) -> usize {
        self.device.changes().len()
    }

    /// What the repair wrote, in ascending order, without what is on the device already.
    pub(crate) fn differences(&self) -> Result<Vec<(BlockNo, Arc<Block>)>, DeviceError> {
        let mut differing = Vec::new();
        let mut old = Box::new(ZERO_BLOCK);
        for (number, block) in self.device.changes().iter() {
            self.device.below().read_at(number * BLOCK_SIZE as u64, &mut old[..])?;
            if old[..] != block[..] {
                differing.push((BlockNo(*number), block.clone()));
            }
        }
        Ok(differing)
    }

    /// One block.
    pub(crate) fn read(&self, block: BlockNo) -> Result<Box<Block>, DeviceError> {
        let mut bytes = Box::new(ZERO_BLOCK);
        self.read_at(block.0 * BLOCK_SIZE as u64, &mut bytes[..])?;
        Ok(bytes)
    }

    pub(crate) fn write(&self, block: BlockNo, bytes: &Block) {
        self.device.put(block.0, bytes);
    }

    /// Which slots of the zone at `start` were in use when the repair first came to it. `now` are those in
    /// use at present.
    pub(crate) fn keep(&self, start: BlockNo, now: Slots) -> Slots {
        let mut kept: MutexGuard<'_, _> = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        *kept.entry(start.0).or_insert(now)
    }
}

impl Device for Overlay<'_> {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_only(&self) -> bool {
        self.device.read_only()
    }

    fn describe(&self) -> String {
        self.device.describe()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.device.write_at(offset, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.device.discard(offset, len)
    }
}
