//! The device as a repair would leave it: what the repair writes stays in memory, in front of the volume. So
//! does what closing a volume would write that a crash met (`settle.rs`).
//!
//! The checker reads an [`Overlay`] like any other device, so each round of a repair is judged by the same
//! check as the volume itself. Nothing reaches the volume before all rounds are done (`repair/undo.rs`).
//!
//! Memory: the blocks that change, and for each zone that does, which of its slots were in use before.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use yore_device::{Device, DeviceError};
use yore_format::layout::{FIRST_SLOT, ZONE_BLOCKS};
use yore_format::{Block, BlockNo, Generation, ZoneHeader, BLOCK_SIZE, ZERO_BLOCK};

/// A bit set over the blocks of a zone.
type Slots = [u64; 16];

/// What the superblock says of a volume that was in use under an engine that orders changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InUse {
    /// Its `in_place_since`.
    pub(crate) since: Generation,
    pub(crate) generation: Generation,
}

/// Blocks in front of a device.
#[derive(Debug)]
pub(crate) struct Overlay<'a> {
    device: yore_device::Overlay<&'a dyn Device>,
    /// By the first block of a zone: which slots its header named before the repair.
    kept: Mutex<BTreeMap<u64, Slots>>,
    /// Of a volume that was settled: what its superblock says, which the one in front does not.
    in_use: OnceLock<InUse>,
}

impl<'a> Overlay<'a> {
    pub(crate) fn new(below: &'a dyn Device) -> Overlay<'a> {
        Overlay { device: yore_device::Overlay::new(below), kept: Mutex::default(), in_use: OnceLock::new() }
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

    /// Remembers what the superblock says of a volume that is settled.
    pub(crate) fn set_in_use(&self, in_use: InUse) {
        self.in_use.get_or_init(|| in_use);
    }

    /// What the superblock says of a volume that was settled; `None` if it had been closed.
    pub(crate) fn in_use(&self) -> Option<InUse> {
        self.in_use.get().copied()
    }

    /// Remembers which slots of a zone this header names, if the repair comes to the zone for the first time.
    /// Returns those of the first time.
    pub(crate) fn keep(&self, header: &ZoneHeader) -> Slots {
        let mut kept: MutexGuard<'_, _> = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        *kept.entry(header.start.0).or_insert_with(|| slots_of(header))
    }

    /// A slot that neither the header names nor did before the repair; or, if there is none, one that it does
    /// not name.
    pub(crate) fn free_slot(&self, header: &ZoneHeader) -> Option<u16> {
        let (now, before) = (slots_of(header), self.keep(header));
        let is_set = |slots: &Slots, slot: u16| slots[usize::from(slot) / 64] & 1 << (slot % 64) != 0;
        let free = |slot: &u16| !is_set(&now, *slot);
        let all = FIRST_SLOT as u16..ZONE_BLOCKS as u16;
        all.clone().find(|slot| free(slot) && !is_set(&before, *slot)).or_else(|| all.clone().find(free))
    }
}

/// The slots that a header names.
fn slots_of(header: &ZoneHeader) -> Slots {
    let mut slots = [0; 16];
    for slot in header.map.iter().filter(|slot| **slot != 0) {
        slots[usize::from(*slot) / 64] |= 1 << (slot % 64);
    }
    slots
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
