//! A device in memory whose time passes by a model.

use super::model::{Model, Range, Usage};
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use yore_device::{Device, DeviceError, MemoryDevice, ReadRequest, WriteRequest};

/// A device in memory that charges every request to a [`Model`]. Discards cost nothing: they are advice.
pub struct TimedDevice {
    image: MemoryDevice,
    model: Mutex<Box<dyn Model>>,
}

impl TimedDevice {
    /// A device with the contents of `image`.
    pub fn new(image: MemoryDevice, model: Box<dyn Model>) -> TimedDevice {
        TimedDevice { image, model: Mutex::new(model) }
    }

    /// What was done so far, and how long it took.
    pub fn usage(&self) -> Usage {
        self.model().usage()
    }

    /// Nobody asks for anything for a while.
    pub fn idle(&self) {
        self.model().idle();
    }

    fn model(&self) -> MutexGuard<'_, Box<dyn Model>> {
        // Models do not panic half-way through a change that matters: the worst is a wrong figure of a run
        // that failed.
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TimedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimedDevice({} bytes, {:?})", self.image.size(), self.usage())
    }
}

fn one(offset: u64, len: usize) -> [Range; 1] {
    [Range { offset, len: len as u64 }]
}

/// The image goes first, because it checks the ranges: a refused request costs nothing.
impl Device for TimedDevice {
    fn size(&self) -> u64 {
        self.image.size()
    }

    fn read_only(&self) -> bool {
        false
    }

    fn describe(&self) -> String {
        "simulated disk".to_string()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.image.read_at(offset, buf)?;
        self.model().read(&one(offset, buf.len()));
        Ok(())
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        self.image.read_vectored_at(offset, bufs)?;
        self.model().read(&one(offset, bufs.iter().map(|b| b.len()).sum()));
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.image.write_at(offset, buf)?;
        self.model().write(&one(offset, buf.len()));
        Ok(())
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        self.image.write_vectored_at(offset, bufs)?;
        self.model().write(&one(offset, bufs.iter().map(|b| b.len()).sum()));
        Ok(())
    }

    fn read_batch(&self, reads: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        self.image.read_batch(reads)?;
        let batch: Vec<Range> = reads.iter().flat_map(|r| one(r.offset, r.buf.len())).collect();
        self.model().read(&batch);
        Ok(())
    }

    fn write_batch(&self, writes: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        self.image.write_batch(writes)?;
        let batch: Vec<Range> = writes.iter().flat_map(|w| one(w.offset, w.data.len())).collect();
        self.model().write(&batch);
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.image.flush()?;
        self.model().flush();
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.image.discard(offset, len)
    }

    fn can_discard(&self) -> bool {
        self.image.can_discard()
    }
}
