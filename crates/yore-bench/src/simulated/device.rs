//! A device whose time passes by a model, wherever its contents are.

use super::model::{Model, Range, Usage};
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use yore_device::{Device, DeviceError, ReadRequest, WriteRequest};

/// A device, as a rule in memory, that charges every request to a [`Model`]. Discards cost nothing: they are
/// advice.
pub struct TimedDevice {
    image: Box<dyn Device>,
    model: Mutex<Box<dyn Model>>,
    /// Requests return when their time is over, so several threads see how long others take.
    waits: bool,
}

impl TimedDevice {
    /// A device with the contents of `image`.
    pub fn new(image: impl Device + 'static, model: Box<dyn Model>) -> TimedDevice {
        TimedDevice { image: Box::new(image), model: Mutex::new(model), waits: false }
    }

    /// The same, but the time passes: a request returns when the disk has done it and those before it.
    pub fn waiting(image: impl Device + 'static, model: Box<dyn Model>) -> TimedDevice {
        TimedDevice { waits: true, ..TimedDevice::new(image, model) }
    }

    /// What was done so far, and how long it took.
    pub fn usage(&self) -> Usage {
        self.model().usage()
    }

    /// Nobody asks for anything for a while.
    pub fn idle(&self) {
        self.model().idle();
    }

    /// Has the model do something, and waits for it if this device does.
    fn charge(&self, request: impl FnOnce(&mut dyn Model)) {
        let mut model = self.model();
        let before = model.usage().busy;
        request(&mut **model);
        if self.waits {
            // With the model locked: the disk does one request after the other.
            std::thread::sleep(Duration::from_nanos(model.usage().busy - before));
        }
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
        self.image.read_only()
    }

    fn describe(&self) -> String {
        "simulated disk".to_string()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.image.read_at(offset, buf)?;
        self.charge(|model| model.read(&one(offset, buf.len())));
        Ok(())
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        self.image.read_vectored_at(offset, bufs)?;
        self.charge(|model| model.read(&one(offset, bufs.iter().map(|b| b.len()).sum())));
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.image.write_at(offset, buf)?;
        self.charge(|model| model.write(&one(offset, buf.len())));
        Ok(())
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        self.image.write_vectored_at(offset, bufs)?;
        self.charge(|model| model.write(&one(offset, bufs.iter().map(|b| b.len()).sum())));
        Ok(())
    }

    fn read_batch(&self, reads: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        self.image.read_batch(reads)?;
        let batch: Vec<Range> = reads.iter().flat_map(|r| one(r.offset, r.buf.len())).collect();
        self.charge(|model| model.read(&batch));
        Ok(())
    }

    fn write_batch(&self, writes: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        self.image.write_batch(writes)?;
        let batch: Vec<Range> = writes.iter().flat_map(|w| one(w.offset, w.data.len())).collect();
        self.charge(|model| model.write(&batch));
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.image.flush()?;
        self.charge(|model| model.flush());
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.image.discard(offset, len)
    }

    fn can_discard(&self) -> bool {
        self.image.can_discard()
    }

    fn blocks_gone_by(&self, next: u64) -> u64 {
        self.model().blocks_gone_by(next)
    }
}
