//! A device around another one, for tests: it looks at each request, changes it, delays it or refuses it.
//!
//! What it does is a [`Hook`]. A hook says only what is special about the device; the rest goes to the device
//! below.
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use yore_device::wrapped::{Hook, Request, Wrapped};
//! use yore_device::{Device, DeviceError, MemoryDevice};
//!
//! #[derive(Debug, Default)]
//! struct Flushes(AtomicU64);
//!
//! impl Hook for Flushes {
//!     fn request(&self, request: Request<'_>, below: &dyn Device) -> Result<(), DeviceError> {
//!         self.0.fetch_add(u64::from(matches!(request, Request::Flush)), Ordering::Relaxed);
//!         request.pass(below)
//!     }
//! }
//!
//! let device = Wrapped::new(MemoryDevice::new(1 << 20), Flushes::default());
//! device.flush().unwrap();
//! assert_eq!(device.hook.0.load(Ordering::Relaxed), 1);
//! ```

use crate::device::check_range;
use crate::{Device, DeviceError, Operation, Part};
use std::fmt;
use std::io::IoSlice;

/// One request to a device.
#[derive(Debug)]
pub enum Request<'a> {
    /// [`Device::read_at`]. A vectored or batched read is one of these for each buffer.
    Read {
        /// Where the range starts, in bytes.
        offset: u64,
        /// What to fill.
        buf: &'a mut [u8],
    },
    /// [`Device::write_at`] with one buffer, else [`Device::write_vectored_at`]. A batch is one of these for
    /// each of its writes.
    Write {
        /// Where the range starts, in bytes.
        offset: u64,
        /// What to store there, one after the other.
        bufs: &'a [IoSlice<'a>],
    },
    /// [`Device::flush`].
    Flush,
    /// [`Device::discard`].
    Discard {
        /// Where the range starts, in bytes.
        offset: u64,
        /// Its length.
        len: u64,
    },
}

impl Request<'_> {
    /// The bytes that it reads, writes or discards.
    pub fn len(&self) -> u64 {
        match self {
            Request::Read { buf, .. } => buf.len() as u64,
            Request::Write { bufs, .. } => bufs.iter().map(|buf| buf.len() as u64).sum(),
            Request::Flush => 0,
            Request::Discard { len, .. } => *len,
        }
    }

    /// Whether it concerns no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Has `device` carry it out.
    ///
    /// # Errors
    /// Those of the device.
    pub fn pass(self, device: &dyn Device) -> Result<(), DeviceError> {
        match self {
            Request::Read { offset, buf } => device.read_at(offset, buf),
            Request::Write { offset, bufs: [buf] } => device.write_at(offset, buf),
            Request::Write { offset, bufs } => device.write_vectored_at(offset, bufs),
            Request::Flush => device.flush(),
            Request::Discard { offset, len } => device.discard(offset, len),
        }
    }
}

/// What a [`Wrapped`] device does.
pub trait Hook: Send + Sync + fmt::Debug {
    /// Carries out a request to the device, as a rule by [`Request::pass`] to the one below.
    ///
    /// # Errors
    /// Those of the device below, or others that the hook thinks of.
    fn request(&self, request: Request<'_>, below: &dyn Device) -> Result<(), DeviceError>;

    /// The size of the device.
    fn size(&self, below: &dyn Device) -> u64 {
        below.size()
    }

    /// Makes it longer, as [`Device::grow`].
    ///
    /// # Errors
    /// Those of the device below.
    fn grow(&self, size: u64, below: &dyn Device) -> Result<u64, DeviceError> {
        below.grow(size)
    }
}

/// The device `below`, to which requests come by way of `hook`.
#[derive(Debug)]
pub struct Wrapped<D, H> {
    /// What carries out what the hook lets pass. Who uses it directly passes by the hook.
    pub below: D,
    /// What is done with requests.
    pub hook: H,
}

impl<D: Device, H: Hook> Wrapped<D, H> {
    /// Puts `hook` in front of `below`.
    pub fn new(below: D, hook: H) -> Wrapped<D, H> {
        Wrapped { below, hook }
    }
}

impl<D: Device, H: Hook> Device for Wrapped<D, H> {
    fn size(&self) -> u64 {
        self.hook.size(&self.below)
    }

    fn grow(&self, size: u64) -> Result<u64, DeviceError> {
        self.hook.grow(size, &self.below)
    }

    fn use_up_to(&self, size: u64) {
        self.below.use_up_to(size);
    }

    fn read_only(&self) -> bool {
        self.below.read_only()
    }

    fn describe(&self) -> String {
        self.below.describe()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.hook.request(Request::Read { offset, buf }, &self.below)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.hook.request(Request::Write { offset, bufs: &[IoSlice::new(buf)] }, &self.below)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        self.hook.request(Request::Write { offset, bufs }, &self.below)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.hook.request(Request::Flush, &self.below)
    }

    /// For the hook this is a flush like others.
    fn flush_range(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        check_range(self, Operation::Flush, offset, len)?;
        self.hook.request(Request::Flush, &Part::new(&self.below, offset, len))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.hook.request(Request::Discard { offset, len }, &self.below)
    }

    fn can_discard(&self) -> bool {
        self.below.can_discard()
    }

    fn blocks_gone_by(&self, next: u64) -> u64 {
        self.below.blocks_gone_by(next)
    }
}
