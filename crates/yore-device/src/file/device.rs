//! I/O on an open file or block device.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::OnceLock;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::{host, ring};
use crate::device::{check_range, check_writable, checked_len, write_zeros};
use crate::platters;
use crate::{AlignedBuf, Device, DeviceError, HostError, Operation, ReadRequest, WriteRequest, BLOCK_SIZE};

/// Batches of at most this many requests are not worth the ring.
const HANDFUL: usize = 4;

/// A regular file or a block device of the host.
#[derive(Debug)]
pub struct FileDevice {
    pub(super) file: File,
    pub(super) path: String,
    /// In bytes, whole blocks.
    pub(super) size: AtomicU64,
    /// Bytes that must be there whenever something is written or flushed.
    pub(super) used: AtomicU64,
    pub(super) is_block_device: bool,
    /// It lies on a disk with platters.
    pub(super) turns: bool,
    pub(super) read_only: bool,
    pub(super) direct_io: bool,
    /// The host cannot discard here. There is no need to ask it again.
    pub(super) discard_unsupported: AtomicBool,
    /// The directory of a file that was created and whose name, size and directory are not yet durable.
    /// Held across the full sync, so that no flush overtakes it.
    pub(super) created_in: Mutex<Option<File>>,
    /// The first write or flush that failed.
    pub(super) failed: OnceLock<DeviceError>,
    pub(super) rings: ring::RingPool,
}

#[cfg(test)]
thread_local! {
    /// The next full sync of this thread fails.
    pub(super) static FAIL_SYNC: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl FileDevice {
    /// Whether I/O goes around the host's page cache.
    pub fn direct_io(&self) -> bool {
        self.direct_io
    }

    /// Whether this is a block device rather than a regular file.
    pub fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    /// Truncates an image file to `size` bytes, durably. A block device stays as it is. What lies beyond is
    /// lost, so nothing may use it any more.
    ///
    /// # Errors
    /// [`DeviceError::ReadOnly`] and [`DeviceError::Io`].
    ///
    /// # Panics
    /// If `size` is not a multiple of [`BLOCK_SIZE`].
    pub fn truncate(&self, size: u64) -> Result<(), DeviceError> {
        assert!(size.is_multiple_of(BLOCK_SIZE as u64), "{size} bytes are not whole blocks");
        self.check_may_write(Operation::Write)?;
        if self.is_block_device || size >= self.size() {
            return Ok(());
        }
        let done = self.file.set_len(size).and_then(|()| self.file.sync_all());
        done.map_err(|error| self.error(Operation::Write, size, 0, HostError::from(&error)))?;
        self.size.store(size, Ordering::Release);
        Ok(())
    }

    /// Refuses to write where that is not allowed, or no longer safe.
    fn check_may_write(&self, operation: Operation) -> Result<(), DeviceError> {
        check_writable(self, operation)?;
        match self.failed.get() {
            None => Ok(()),
            Some(first) => Err(DeviceError::WrittenAfterError {
                operation,
                device: self.path.clone(),
                first: Box::new(first.clone()),
            }),
        }
    }

    /// The typed error for a failed request; a failed write or flush is remembered.
    fn error(&self, operation: Operation, offset: u64, len: u64, source: HostError) -> DeviceError {
        let error = DeviceError::from_host(operation, offset, len, &self.path, source);
        if matches!(operation, Operation::Write | Operation::Flush) {
            // Only the first is kept, so losing the race to another thread is fine.
            let _ = self.failed.set(error.clone());
        }
        error
    }

    /// Fails if somebody shortened the file or device, so that it ends before `end` or before the bytes in
    /// use.
    fn check_length(&self, operation: Operation, end: u64) -> Result<(), DeviceError> {
        let needed = self.used.load(Ordering::Acquire).max(end);
        let found =
            self.length().map_err(|error| self.error(operation, 0, needed, HostError::from(&error)))?;
        if found >= needed {
            return Ok(());
        }
        let error = DeviceError::Shortened { device: self.path.clone(), size: found, used: needed };
        // As in `error`: the first is kept.
        let _ = self.failed.set(error.clone());
        Err(error)
    }

    /// Makes the file durable with its length.
    fn sync_all(&self) -> io::Result<()> {
        #[cfg(test)]
        if FAIL_SYNC.take() {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.file.sync_all()
    }

    /// How long the file or device is now, in bytes.
    fn length(&self) -> io::Result<u64> {
        match self.is_block_device {
            true => Ok(host::block_device_size(&self.file)?),
            false => Ok(self.file.metadata()?.len()),
        }
    }

    /// Whether the kernel can use this memory as it is.
    fn usable(&self, buf: &[u8]) -> bool {
        !self.direct_io || (buf.as_ptr() as usize).is_multiple_of(BLOCK_SIZE)
    }

    /// Makes the file itself durable, name and size included.
    fn sync_created(&self, directory: &File) -> io::Result<()> {
        self.file.sync_all()?;
        directory.sync_all()
    }

    /// Runs transfers through a ring if that pays and is possible. Runs whatever is left one by one.
    fn run_transfers(
        &self,
        direction: host::Direction,
        transfers: &mut [host::Transfer<'_>],
    ) -> Result<(), DeviceError> {
        // The host copies a buffered write to its cache at once; a ring would only add work.
        let pays = direction == host::Direction::Read || self.direct_io;
        if pays && transfers.len() > HANDFUL {
            self.rings.run(&self.file, direction, self.direct_io, transfers);
        }
        let mut first_error = Ok(());
        for transfer in transfers {
            let result = transfer.finish(&self.file, direction, self.direct_io);
            if let (Ok(()), Err(source)) = (&first_error, result) {
                let operation = match direction {
                    host::Direction::Read => Operation::Read,
                    host::Direction::Write => Operation::Write,
                };
                let (offset, len) = (transfer.offset(), transfer.len());
                first_error = Err(self.error(operation, offset, len as u64, source));
            }
            // After a failed write nothing more is written; the rest of the batch stays undone.
            if first_error.is_err() {
                break;
            }
        }
        first_error
    }
}

impl Device for FileDevice {
    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn grow(&self, size: u64) -> Result<u64, DeviceError> {
        assert!(size.is_multiple_of(BLOCK_SIZE as u64), "{size} bytes are not whole blocks");
        self.check_may_write(Operation::Write)?;
        let failed = |error: io::Error| {
            let source = HostError::from(&error);
            DeviceError::from_host(Operation::Write, self.size(), 0, &self.path, source)
        };
        let mut found = self.length().map_err(failed)?;
        if !self.is_block_device && found < size {
            self.file.set_len(size).map_err(failed)?;
            // If that fails, it is a flush that failed: blocks that were written before may be lost.
            self.sync_all()
                .map_err(|error| self.error(Operation::Flush, 0, size, HostError::from(&error)))?;
            found = size;
        }
        self.size.fetch_max(found - found % BLOCK_SIZE as u64, Ordering::AcqRel);
        Ok(self.size())
    }

    fn use_up_to(&self, size: u64) {
        self.used.store(size, Ordering::Release);
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn describe(&self) -> String {
        self.path.clone()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.read_vectored_at(offset, &mut [IoSliceMut::new(buf)])
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        let len = bufs.iter().map(|buf| checked_len(buf)).sum();
        check_range(self, Operation::Read, offset, len)?;
        let result = if bufs.iter().all(|buf| self.usable(buf)) {
            let mut slices: Vec<_> = bufs.iter_mut().map(|buf| IoSliceMut::new(buf)).collect();
            host::read_fully(&self.file, offset, &mut slices, self.direct_io)
        } else {
            host::read_bounced(&self.file, offset, bufs, self.direct_io)
        };
        result.map_err(|source| self.error(Operation::Read, offset, len, source))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.write_vectored_at(offset, &[IoSlice::new(buf)])
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        let len = bufs.iter().map(|buf| checked_len(buf)).sum();
        self.check_may_write(Operation::Write)?;
        check_range(self, Operation::Write, offset, len)?;
        self.check_length(Operation::Write, offset + len)?;
        let result = if bufs.iter().all(|buf| self.usable(buf)) {
            host::write_fully(&self.file, offset, &mut bufs.to_vec(), self.direct_io)
        } else {
            host::write_bounced(&self.file, offset, bufs, self.direct_io)
        };
        result.map_err(|source| self.error(Operation::Write, offset, len, source))
    }

    fn read_batch(&self, reads: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        for read in reads.iter() {
            check_range(self, Operation::Read, read.offset, checked_len(read.buf))?;
        }
        let mut bounces: Vec<Option<AlignedBuf>> = reads
            .iter()
            .map(|read| match self.usable(read.buf) {
                true => None,
                false => Some(AlignedBuf::zeroed(read.buf.len() / BLOCK_SIZE)),
            })
            .collect();
        let mut transfers: Vec<_> = reads
            .iter_mut()
            .zip(&mut bounces)
            .map(|(read, bounce)| match bounce {
                Some(bounce) => host::Transfer::read(read.offset, bounce),
                None => host::Transfer::read(read.offset, read.buf),
            })
            .collect();
        self.run_transfers(host::Direction::Read, &mut transfers)?;
        for (read, bounce) in reads.iter_mut().zip(&bounces) {
            if let Some(bounce) = bounce {
                read.buf.copy_from_slice(bounce);
            }
        }
        Ok(())
    }

    fn write_batch(&self, writes: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        self.check_may_write(Operation::Write)?;
        let mut last = 0;
        for write in writes {
            let len = checked_len(write.data);
            check_range(self, Operation::Write, write.offset, len)?;
            last = last.max(write.offset + len);
        }
        self.check_length(Operation::Write, last)?;
        let bounces: Vec<Option<AlignedBuf>> = writes
            .iter()
            .map(|write| match self.usable(write.data) {
                true => None,
                false => Some(AlignedBuf::from_slice(write.data)),
            })
            .collect();
        let mut transfers: Vec<_> = writes
            .iter()
            .zip(&bounces)
            .map(|(write, bounce)| match bounce {
                Some(bounce) => host::Transfer::write(write.offset, bounce),
                None => host::Transfer::write(write.offset, write.data),
            })
            .collect();
        self.run_transfers(host::Direction::Write, &mut transfers)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        if self.read_only {
            return Ok(());
        }
        self.check_may_write(Operation::Flush)?;
        self.check_length(Operation::Flush, 0)?;
        let mut created_in = self.created_in.lock();
        let result = match created_in.take() {
            None => {
                drop(created_in);
                self.file.sync_data()
            }
            Some(directory) => self.sync_created(&directory),
        };
        result.map_err(|error| self.error(Operation::Flush, 0, self.size(), HostError::from(&error)))
    }

    /// Overwrites only the parts of an image file that the host has stored, so holes stay holes. Then the
    /// range becomes a hole.
    fn erase(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.check_may_write(Operation::Write)?;
        check_range(self, Operation::Write, offset, len)?;
        if self.is_block_device {
            return write_zeros(self, offset, len);
        }
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let data = match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(at)) {
                Ok(data) if data < end => data.max(at),
                Ok(_) | Err(Errno::NXIO) => break,
                // If the host cannot tell, all of the range counts as data.
                Err(_) => at,
            };
            let hole = rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Hole(data)).unwrap_or(end);
            let block = BLOCK_SIZE as u64;
            let (from, to) = (data - data % block, hole.next_multiple_of(block).min(end));
            write_zeros(self, from, to - from)?;
            at = to;
        }
        self.discard(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.check_may_write(Operation::Discard)?;
        check_range(self, Operation::Discard, offset, len)?;
        if len == 0 || self.discard_unsupported.load(Ordering::Relaxed) {
            return Ok(());
        }
        match host::discard(&self.file, self.is_block_device, offset, len) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY) => {
                self.discard_unsupported.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(errno) => {
                let source = HostError::from_errno(errno.raw_os_error());
                Err(self.error(Operation::Discard, offset, len, source))
            }
        }
    }

    fn can_discard(&self) -> bool {
        !self.discard_unsupported.load(Ordering::Relaxed)
    }

    fn blocks_gone_by(&self, next: u64) -> u64 {
        if self.turns {
            platters::blocks_gone_by(next)
        } else {
            0
        }
    }
}
