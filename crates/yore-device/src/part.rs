//! A part of a device as a device of its own.

use std::io::{IoSlice, IoSliceMut};

use crate::device::{check_range, checked_len};
use crate::{Device, DeviceError, Operation, BLOCK_SIZE};

/// A run of blocks of a device. Its flush covers the part, and more only if the device below flushes more.
#[derive(Debug, Clone)]
pub struct Part<D> {
    below: D,
    start: u64,
    len: u64,
}

impl<D: Device> Part<D> {
    /// The `len` bytes from `start` on.
    ///
    /// # Panics
    /// If they are not whole blocks of the device.
    pub fn new(below: D, start: u64, len: u64) -> Part<D> {
        let is_whole = start.is_multiple_of(BLOCK_SIZE as u64) && len.is_multiple_of(BLOCK_SIZE as u64);
        let fits = start.checked_add(len).is_some_and(|end| end <= below.size());
        assert!(is_whole && fits, "{len} bytes at {start} are no blocks of {}", below.describe());
        Part { below, start, len }
    }

    /// Checks a range of the part; returns where it begins below.
    fn at(&self, operation: Operation, offset: u64, len: u64) -> Result<u64, DeviceError> {
        check_range(self, operation, offset, len)?;
        Ok(self.start + offset)
    }
}

impl<D: Device> Device for Part<D> {
    fn size(&self) -> u64 {
        self.len
    }

    fn read_only(&self) -> bool {
        self.below.read_only()
    }

    fn describe(&self) -> String {
        format!("{} bytes from {} of {}", self.len, self.start, self.below.describe())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.below.read_at(self.at(Operation::Read, offset, checked_len(buf))?, buf)
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        let len = bufs.iter().map(|buf| checked_len(buf)).sum();
        self.below.read_vectored_at(self.at(Operation::Read, offset, len)?, bufs)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.below.write_at(self.at(Operation::Write, offset, checked_len(buf))?, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        let len = bufs.iter().map(|buf| checked_len(buf)).sum();
        self.below.write_vectored_at(self.at(Operation::Write, offset, len)?, bufs)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.below.flush_range(self.start, self.len)
    }

    fn flush_range(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.below.flush_range(self.at(Operation::Flush, offset, len)?, len)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.below.discard(self.at(Operation::Discard, offset, len)?, len)
    }

    fn can_discard(&self) -> bool {
        self.below.can_discard()
    }

    fn blocks_gone_by(&self, next: u64) -> u64 {
        self.below.blocks_gone_by(next)
    }
}
