//! A device in front of another one, which is only read: what is written stays in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use crate::device::{check_range, checked_len};
use crate::{Device, DeviceError, Operation, BLOCK_SIZE};

type Block = [u8; BLOCK_SIZE];

/// The device `below` as it would be with what was written. Memory: the blocks that were.
#[derive(Debug)]
pub struct Overlay<D> {
    below: D,
    changed: RwLock<BTreeMap<u64, Arc<Block>>>,
}

impl<D> Overlay<D> {
    /// In front of `below`, with nothing written.
    pub fn new(below: D) -> Overlay<D> {
        Overlay { below, changed: RwLock::default() }
    }

    /// The device that is only read.
    pub fn below(&self) -> &D {
        &self.below
    }

    /// The blocks that were written, by number.
    pub fn changes(&self) -> RwLockReadGuard<'_, BTreeMap<u64, Arc<Block>>> {
        // A panic between two accesses leaves a map of whole blocks.
        self.changed.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the block of this number, wherever the device below ends.
    pub fn put(&self, number: u64, block: &Block) {
        self.changed.write().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(*block));
    }
}

impl<D: Device> Device for Overlay<D> {
    fn size(&self) -> u64 {
        self.below.size()
    }

    fn read_only(&self) -> bool {
        false
    }

    fn describe(&self) -> String {
        self.below.describe()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.below.read_at(offset, buf)?;
        let first = offset / BLOCK_SIZE as u64;
        let end = first + (buf.len() / BLOCK_SIZE) as u64;
        for (number, block) in self.changes().range(first..end) {
            let at = (number - first) as usize * BLOCK_SIZE;
            buf[at..at + BLOCK_SIZE].copy_from_slice(&block[..]);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        check_range(self, Operation::Write, offset, checked_len(buf))?;
        for (number, bytes) in (offset / BLOCK_SIZE as u64..).zip(buf.chunks_exact(BLOCK_SIZE)) {
            self.put(number, bytes.try_into().expect("a whole block"));
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;
    use std::io::IoSlice;

    /// What was written is read, and the device below has what it had.
    #[test]
    fn the_device_below_stays() {
        let device = Overlay::new(MemoryDevice::new(16 * BLOCK_SIZE as u64));
        device.below().write_at(0, &[7; 16 * BLOCK_SIZE]).unwrap();
        let (one, two) = ([1; BLOCK_SIZE], [2; 2 * BLOCK_SIZE]);
        device.write_vectored_at(4 * BLOCK_SIZE as u64, &[IoSlice::new(&one), IoSlice::new(&two)]).unwrap();
        let read = |device: &dyn Device| {
            let mut bytes = vec![0; 16 * BLOCK_SIZE];
            device.read_at(0, &mut bytes).unwrap();
            bytes.chunks(BLOCK_SIZE).map(|block| block[9]).collect::<Vec<_>>()
        };
        assert_eq!(read(&device), [7, 7, 7, 7, 1, 2, 2, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
        assert_eq!(read(device.below()), [7; 16]);
        assert!(matches!(device.write_at(16 * BLOCK_SIZE as u64, &one), Err(DeviceError::OutOfRange { .. })));
    }
}
