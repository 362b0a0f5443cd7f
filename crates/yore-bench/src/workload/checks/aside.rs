//! A device whose changes stay in memory: a volume can be changed on it, and its image is as before.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};
use yore_device::wrapped::{Hook, Request};
use yore_device::{Device, DeviceError, BLOCK_SIZE};

/// Keeps what is written; the device below is only read.
#[derive(Debug, Default)]
pub(super) struct Aside(RwLock<BTreeMap<u64, Box<[u8]>>>);

impl Hook for Aside {
    fn request(&self, request: Request<'_>, below: &dyn Device) -> Result<(), DeviceError> {
        match request {
            Request::Read { offset, buf } => {
                below.read_at(offset, buf)?;
                let first = offset / BLOCK_SIZE as u64;
                let end = first + (buf.len() / BLOCK_SIZE) as u64;
                // A panic between two accesses leaves a map of whole blocks.
                let kept = self.0.read().unwrap_or_else(PoisonError::into_inner);
                for (number, block) in kept.range(first..end) {
                    let at = (number - first) as usize * BLOCK_SIZE;
                    buf[at..at + BLOCK_SIZE].copy_from_slice(block);
                }
            }
            Request::Write { offset, bufs } => {
                let mut kept = self.0.write().unwrap_or_else(PoisonError::into_inner);
                let blocks = bufs.iter().flat_map(|buf| buf.chunks_exact(BLOCK_SIZE));
                kept.extend((offset / BLOCK_SIZE as u64..).zip(blocks.map(Box::from)));
            }
            Request::Flush | Request::Discard { .. } => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::IoSlice;
    use yore_device::wrapped::Wrapped;
    use yore_device::MemoryDevice;

    /// What was written is read, and the device below has what it had.
    #[test]
    fn the_device_below_stays() {
        let device = Wrapped::new(MemoryDevice::new(16 * BLOCK_SIZE as u64), Aside::default());
        device.below.write_at(0, &[7; 16 * BLOCK_SIZE]).unwrap();
        let (one, two) = ([1; BLOCK_SIZE], [2; 2 * BLOCK_SIZE]);
        device.write_vectored_at(4 * BLOCK_SIZE as u64, &[IoSlice::new(&one), IoSlice::new(&two)]).unwrap();
        let read = |device: &dyn Device| {
            let mut bytes = vec![0; 16 * BLOCK_SIZE];
            device.read_at(0, &mut bytes).unwrap();
            bytes.chunks(BLOCK_SIZE).map(|block| block[9]).collect::<Vec<_>>()
        };
        assert_eq!(read(&device), [7, 7, 7, 7, 1, 2, 2, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
        assert_eq!(read(&device.below), [7; 16]);
    }
}
