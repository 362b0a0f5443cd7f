//! The trait that every device implements, and the checks that its implementations share.

use crate::{AlignedBuf, DeviceError, Operation, BLOCK_SIZE};
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

/// One read of a batch: fill `buf` from `offset`.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// Where to read, in bytes from the start of the device; a multiple of [`BLOCK_SIZE`].
    pub offset: u64,
    /// What to fill; its length is a multiple of [`BLOCK_SIZE`].
    pub buf: &'a mut [u8],
}

/// One write of a batch: store `data` at `offset`.
#[derive(Debug, Clone, Copy)]
pub struct WriteRequest<'a> {
    /// Where to write, in bytes from the start of the device; a multiple of [`BLOCK_SIZE`].
    pub offset: u64,
    /// What to store; its length is a multiple of [`BLOCK_SIZE`].
    pub data: &'a [u8],
}

/// A fixed number of 4096-byte blocks that can be read, written and flushed. See the crate's documentation
/// for the rules that every implementation keeps and every caller may rely on.
pub trait Device: Send + Sync + fmt::Debug {
    /// The size in bytes: whole blocks. Only [`Device::grow`] changes it, or whoever owns the device.
    fn size(&self) -> u64;

    /// Makes a shorter device `size` bytes long, durably, if the host can do that. Also notices if the host
    /// has made it longer meanwhile. Returns its size now, which is less than `size` if the host cannot grow
    /// it. The default, which most devices use, changes nothing.
    ///
    /// # Errors
    /// [`DeviceError::ReadOnly`], [`DeviceError::NoSpace`] and [`DeviceError::Io`]; the device is then as it
    /// was, unless it was the flush that failed.
    ///
    /// # Panics
    /// If `size` is not a multiple of [`BLOCK_SIZE`].
    fn grow(&self, size: u64) -> Result<u64, DeviceError> {
        assert!(size.is_multiple_of(BLOCK_SIZE as u64), "{size} bytes are not whole blocks");
        Ok(self.size())
    }

    /// From now on the first `size` bytes are in use. A device can lose its end while it is open: somebody
    /// may truncate an image file. Such a device refuses every write and flush once it has lost some of these
    /// bytes. The default ignores the call.
    fn use_up_to(&self, size: u64) {
        let _ = size;
    }

    /// Whether every write, flush of writes and discard is refused with [`DeviceError::ReadOnly`].
    fn read_only(&self) -> bool;

    /// What to call this device in a message to a person: its path, or `memory`.
    fn describe(&self) -> String;

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`] if the range ends beyond the device; [`DeviceError::Io`] if the host
    /// cannot read it, after which `buf` may be partly filled.
    ///
    /// # Panics
    /// If `offset` or the length is not a multiple of [`BLOCK_SIZE`].
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError>;

    /// Fills `bufs`, one after the other, from one contiguous range that starts at `offset`.
    ///
    /// # Errors
    /// As [`Device::read_at`].
    ///
    /// # Panics
    /// If `offset` or the length of any buffer is not a multiple of [`BLOCK_SIZE`].
    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        let len = bufs.iter().map(|buf| checked_len(buf)).sum();
        check_range(self, Operation::Read, offset, len)?;
        let mut at = offset;
        for buf in bufs {
            self.read_at(at, buf)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    /// Stores `buf` at `offset`. Visible to reads when it returns; durable only after a [`Device::flush`].
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`] and [`DeviceError::ReadOnly`] change nothing. After
    /// [`DeviceError::NoSpace`] or [`DeviceError::Io`] the range may hold old and new sectors.
    ///
    /// # Panics
    /// If `offset` or the length is not a multiple of [`BLOCK_SIZE`].
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError>;

    /// Stores `bufs`, one after the other, in one contiguous range that starts at `offset`.
    ///
    /// # Errors
    /// As [`Device::write_at`].
    ///
    /// # Panics
    /// If `offset` or the length of any buffer is not a multiple of [`BLOCK_SIZE`].
    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        let len = bufs.iter().map(|buf| checked_len(buf)).sum();
        check_writable(self, Operation::Write)?;
        check_range(self, Operation::Write, offset, len)?;
        let mut at = offset;
        for buf in bufs {
            self.write_at(at, buf)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    /// Carries out all `reads`, in any order and possibly at once.
    ///
    /// # Errors
    /// The first error found, as [`Device::read_at`]; the other requests may or may not have been filled.
    ///
    /// # Panics
    /// If an offset or a length is not a multiple of [`BLOCK_SIZE`].
    fn read_batch(&self, reads: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        for read in reads.iter() {
            check_range(self, Operation::Read, read.offset, checked_len(read.buf))?;
        }
        for read in reads {
            self.read_at(read.offset, read.buf)?;
        }
        Ok(())
    }

    /// Carries out all `writes`, in any order and possibly at once.
    ///
    /// # Errors
    /// The first error found, as [`Device::write_at`]. A request that is out of range is found before
    /// anything is written; after any other error each of the requests may or may not have been stored.
    ///
    /// # Panics
    /// If an offset or a length is not a multiple of [`BLOCK_SIZE`].
    fn write_batch(&self, writes: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        check_writable(self, Operation::Write)?;
        for write in writes {
            let len = checked_len(write.data);
            check_range(self, Operation::Write, write.offset, len)?;
        }
        for write in writes {
            self.write_at(write.offset, write.data)?;
        }
        Ok(())
    }

    /// Makes everything whose write returned before this call durable. On a read-only device there is
    /// nothing to do, and it succeeds.
    ///
    /// # Errors
    /// [`DeviceError::Io`] if the host cannot promise it: nothing written since the last successful flush
    /// may then be believed durable, even if a later flush succeeds.
    fn flush(&self) -> Result<(), DeviceError>;

    /// As [`Device::flush`], for what was written to a range; a device may flush more.
    ///
    /// # Errors
    /// As [`Device::flush`].
    fn flush_range(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        check_range(self, Operation::Flush, offset, len)?;
        self.flush()
    }

    /// Overwrites what the device has in a range with zeros, and gives the space back where that is possible.
    /// Durable after a [`Device::flush`]. The device then no longer holds what was in the range. Older
    /// contents that the host or the medium may keep below it are beyond reach.
    ///
    /// # Errors
    /// As [`Device::write_at`].
    ///
    /// # Panics
    /// If `offset` or `len` is not a multiple of [`BLOCK_SIZE`].
    fn erase(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        write_zeros(self, offset, len)
    }

    /// Tells the device that the contents of a range no longer matter. This is advice: afterwards the
    /// contents are unspecified, commonly zeros or what was there before, and a crash may change them again.
    /// What is written after this has returned is not touched by it.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`], [`DeviceError::ReadOnly`], and [`DeviceError::Io`] if the host failed.
    /// A host that does not support discarding is not an error.
    ///
    /// # Panics
    /// If `offset` or `len` is not a multiple of [`BLOCK_SIZE`].
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError>;

    /// Whether discarding does anything, as far as is known: false once the host has said that it cannot.
    fn can_discard(&self) -> bool {
        true
    }

    /// How many blocks pass below the head of a disk from the end of a flush until it has taken the next
    /// write, of so many blocks, by somebody who has waited for the flush: too many to be written in the same
    /// turn. 0 for devices without platters, or where nothing is known.
    fn blocks_gone_by(&self, _next: u64) -> u64 {
        0
    }
}

/// Blocks of zeros written at a time.
const ZEROS: usize = 256;

/// Writes zeros over a range.
pub(crate) fn write_zeros<D: Device + ?Sized>(device: &D, offset: u64, len: u64) -> Result<(), DeviceError> {
    check_range(device, Operation::Write, offset, len)?;
    let zeros = AlignedBuf::zeroed(ZEROS.min((len / BLOCK_SIZE as u64).max(1) as usize));
    let (mut at, end) = (offset, offset + len);
    while at < end {
        let n = (zeros.len() as u64).min(end - at);
        device.write_at(at, &zeros[..n as usize])?;
        at += n;
    }
    Ok(())
}

/// The length of a buffer as the device counts it.
///
/// # Panics
/// If it is not a whole number of blocks.
pub(crate) fn checked_len(buf: &[u8]) -> u64 {
    assert!(
        buf.len().is_multiple_of(BLOCK_SIZE),
        "a buffer of {} bytes is not a whole number of {BLOCK_SIZE}-byte blocks",
        buf.len()
    );
    buf.len() as u64
}

/// Checks a range before anything is done to it.
///
/// # Panics
/// If it does not consist of whole blocks: that is the caller's bug.
pub(crate) fn check_range<D: Device + ?Sized>(
    device: &D,
    operation: Operation,
    offset: u64,
    len: u64,
) -> Result<(), DeviceError> {
    assert!(
        offset.is_multiple_of(BLOCK_SIZE as u64) && len.is_multiple_of(BLOCK_SIZE as u64),
        "{operation} of {len} bytes at {offset} does not consist of whole {BLOCK_SIZE}-byte blocks"
    );
    match offset.checked_add(len) {
        Some(end) if end <= device.size() => Ok(()),
        _ => Err(DeviceError::OutOfRange {
            operation,
            offset,
            len,
            device: device.describe(),
            size: device.size(),
        }),
    }
}

/// Refuses operations that would change a read-only device.
pub(crate) fn check_writable<D: Device + ?Sized>(
    device: &D,
    operation: Operation,
) -> Result<(), DeviceError> {
    if device.read_only() {
        return Err(DeviceError::ReadOnly { operation, device: device.describe() });
    }
    Ok(())
}

/// Passes every method on, defaults included, so that a pointer to a device is as good as the device.
macro_rules! forward_device {
    ($pointer:ty) => {
        impl<T: Device + ?Sized> Device for $pointer {
            fn size(&self) -> u64 {
                (**self).size()
            }
            fn grow(&self, size: u64) -> Result<u64, DeviceError> {
                (**self).grow(size)
            }
            fn use_up_to(&self, size: u64) {
                (**self).use_up_to(size)
            }
            fn read_only(&self) -> bool {
                (**self).read_only()
            }
            fn describe(&self) -> String {
                (**self).describe()
            }
            fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
                (**self).read_at(offset, buf)
            }
            fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
                (**self).read_vectored_at(offset, bufs)
            }
            fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
                (**self).write_at(offset, buf)
            }
            fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), DeviceError> {
                (**self).write_vectored_at(offset, bufs)
            }
            fn read_batch(&self, reads: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
                (**self).read_batch(reads)
            }
            fn write_batch(&self, writes: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
                (**self).write_batch(writes)
            }
            fn flush(&self) -> Result<(), DeviceError> {
                (**self).flush()
            }
            fn flush_range(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
                (**self).flush_range(offset, len)
            }
            fn erase(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
                (**self).erase(offset, len)
            }
            fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
                (**self).discard(offset, len)
            }
            fn can_discard(&self) -> bool {
                (**self).can_discard()
            }
            fn blocks_gone_by(&self, next: u64) -> u64 {
                (**self).blocks_gone_by(next)
            }
        }
    };
}

forward_device!(Arc<T>);
forward_device!(Box<T>);
forward_device!(&T);
