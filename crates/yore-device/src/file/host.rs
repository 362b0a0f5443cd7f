//! The host's system calls, made whole: short transfers are continued and interrupted ones repeated.
//!
//! Under direct I/O a transfer can only be continued at a block boundary, so the part of a block that a short
//! transfer moved is moved again. If not even one block was moved, the file ends there (somebody truncated it
//! under us) and going on would loop.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::marker::PhantomData;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::ioctl::{self, opcode};

use crate::{AlignedBuf, HostError, BLOCK_SIZE};

/// The most bytes that are copied through an aligned buffer at a time.
const BOUNCE_BYTES: usize = 1 << 20;
/// The most buffers that the host takes in one call (`IOV_MAX`).
const SLICES_MAX: usize = 1024;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Read,
    Write,
}

impl Direction {
    /// The error for a transfer that moved nothing though there was something to move.
    pub(super) fn stalled(self) -> HostError {
        HostError {
            errno: 0,
            kind: match self {
                Direction::Read => io::ErrorKind::UnexpectedEof,
                Direction::Write => io::ErrorKind::WriteZero,
            },
        }
    }
}

fn host_error(errno: Errno) -> HostError {
    HostError::from_errno(errno.raw_os_error())
}

/// How far a transfer that moved `moved` of `wanted` bytes has come: the place from which to go on.
pub(super) fn progress(
    direction: Direction,
    direct_io: bool,
    moved: usize,
    wanted: usize,
) -> Result<usize, HostError> {
    let counted = match direct_io && moved < wanted {
        true => moved - moved % BLOCK_SIZE,
        false => moved,
    };
    match counted {
        0 => Err(direction.stalled()),
        _ => Ok(counted),
    }
}

/// Fills all of `slices` from one contiguous range. Consumes them.
pub(super) fn read_fully(
    file: &File,
    mut offset: u64,
    mut slices: &mut [IoSliceMut<'_>],
    direct_io: bool,
) -> Result<(), HostError> {
    loop {
        IoSliceMut::advance_slices(&mut slices, 0);
        let count = slices.len().min(SLICES_MAX);
        if count == 0 {
            return Ok(());
        }
        let wanted = slices[..count].iter().map(|slice| slice.len()).sum();
        match rustix::io::preadv(file, &mut slices[..count], offset) {
            Ok(moved) => {
                let step = progress(Direction::Read, direct_io, moved, wanted)?;
                IoSliceMut::advance_slices(&mut slices, step);
                offset += step as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(host_error(errno)),
        }
    }
}

/// Stores all of `slices` in one contiguous range. Consumes them.
pub(super) fn write_fully(
    file: &File,
    mut offset: u64,
    mut slices: &mut [IoSlice<'_>],
    direct_io: bool,
) -> Result<(), HostError> {
    loop {
        IoSlice::advance_slices(&mut slices, 0);
        let count = slices.len().min(SLICES_MAX);
        if count == 0 {
            return Ok(());
        }
        let wanted = slices[..count].iter().map(|slice| slice.len()).sum();
        match rustix::io::pwritev(file, &slices[..count], offset) {
            Ok(moved) => {
                let step = progress(Direction::Write, direct_io, moved, wanted)?;
                IoSlice::advance_slices(&mut slices, step);
                offset += step as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(host_error(errno)),
        }
    }
}

/// As [`read_fully`], through an aligned buffer.
pub(super) fn read_bounced(
    file: &File,
    mut offset: u64,
    bufs: &mut [IoSliceMut<'_>],
    direct_io: bool,
) -> Result<(), HostError> {
    let mut chunks = bufs.iter_mut().flat_map(|buf| buf.chunks_mut(BLOCK_SIZE));
    loop {
        let window: Vec<_> = chunks.by_ref().take(BOUNCE_BYTES / BLOCK_SIZE).collect();
        if window.is_empty() {
            return Ok(());
        }
        let mut bounce = AlignedBuf::zeroed(window.len());
        read_fully(file, offset, &mut [IoSliceMut::new(&mut bounce)], direct_io)?;
        offset += bounce.len() as u64;
        for (chunk, block) in window.into_iter().zip(bounce.chunks(BLOCK_SIZE)) {
            chunk.copy_from_slice(block);
        }
    }
}

/// As [`write_fully`], through an aligned buffer.
pub(super) fn write_bounced(
    file: &File,
    mut offset: u64,
    bufs: &[IoSlice<'_>],
    direct_io: bool,
) -> Result<(), HostError> {
    let mut chunks = bufs.iter().flat_map(|buf| buf.chunks(BLOCK_SIZE));
    loop {
        let window: Vec<_> = chunks.by_ref().take(BOUNCE_BYTES / BLOCK_SIZE).collect();
        if window.is_empty() {
            return Ok(());
        }
        let mut bounce = AlignedBuf::zeroed(window.len());
        for (chunk, block) in window.into_iter().zip(bounce.chunks_mut(BLOCK_SIZE)) {
            block.copy_from_slice(chunk);
        }
        write_fully(file, offset, &mut [IoSlice::new(&bounce)], direct_io)?;
        offset += bounce.len() as u64;
    }
}

/// One request of a batch, and how far it has come.
///
/// Invariant: `pointer` is valid for `len` bytes for the lifetime `'a`, exclusively for a read and shared for
/// a write; nothing else touches the memory while a transfer of it is in flight, since the slice it was made
/// from stays borrowed.
#[derive(Debug)]
pub(super) struct Transfer<'a> {
    offset: u64,
    pointer: *mut u8,
    len: usize,
    done: usize,
    error: Option<HostError>,
    borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> Transfer<'a> {
    pub(super) fn read(offset: u64, buf: &'a mut [u8]) -> Self {
        Transfer {
            offset,
            pointer: buf.as_mut_ptr(),
            len: buf.len(),
            done: 0,
            error: None,
            borrowed: PhantomData,
        }
    }

    pub(super) fn write(offset: u64, data: &'a [u8]) -> Self {
        Transfer {
            offset,
            // Only ever read from: the direction of a batch is that of all its transfers.
            pointer: data.as_ptr().cast_mut(),
            len: data.len(),
            done: 0,
            error: None,
            borrowed: PhantomData,
        }
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether there is something left to move, and nothing against trying.
    pub(super) fn unfinished(&self) -> bool {
        self.done < self.len && self.error.is_none()
    }

    pub(super) fn failed(&self) -> bool {
        self.error.is_some()
    }

    pub(super) fn set_error(&mut self, error: HostError) {
        self.error = Some(error);
    }

    /// What is left: its place on the device, its memory and its length.
    pub(super) fn rest(&self) -> (u64, *mut u8, usize) {
        // `done` never exceeds `len`, so the result points into, or just past, the borrowed slice.
        let pointer = self.pointer.wrapping_add(self.done);
        (self.offset + self.done as u64, pointer, self.len - self.done)
    }

    /// Counts `moved` of the `wanted` bytes that were asked for last.
    pub(super) fn advance(&mut self, direction: Direction, direct_io: bool, moved: usize, wanted: usize) {
        match progress(direction, direct_io, moved, wanted) {
            Ok(step) => self.done = self.len.min(self.done + step),
            Err(error) => self.error = Some(error),
        }
    }

    /// Moves what is left with plain calls, and reports how the whole transfer went.
    pub(super) fn finish(
        &mut self,
        file: &File,
        direction: Direction,
        direct_io: bool,
    ) -> Result<(), HostError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let (offset, pointer, len) = self.rest();
        if len == 0 {
            return Ok(());
        }
        let result = match direction {
            Direction::Read => {
                // SAFETY: by the invariant the rest of the slice is ours alone, and no transfer of it is in
                // flight: rings return only when everything they submitted has completed.
                let buf = unsafe { std::slice::from_raw_parts_mut(pointer, len) };
                read_fully(file, offset, &mut [IoSliceMut::new(buf)], direct_io)
            }
            Direction::Write => {
                // SAFETY: by the invariant the rest of the slice is valid and nobody writes to it.
                let buf = unsafe { std::slice::from_raw_parts(pointer, len) };
                write_fully(file, offset, &mut [IoSlice::new(buf)], direct_io)
            }
        };
        self.done = self.len;
        self.error = result.err();
        result
    }
}

/// Returns a range to the host.
pub(super) fn discard(file: &File, is_block_device: bool, offset: u64, len: u64) -> Result<(), Errno> {
    loop {
        let result = match is_block_device {
            true => block_device_discard(file, offset, len),
            false => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(file, flags, offset, len)
            }
        };
        if result != Err(Errno::INTR) {
            return result;
        }
    }
}

fn block_device_discard(file: &File, offset: u64, len: u64) -> Result<(), Errno> {
    const BLKDISCARD: ioctl::Opcode = opcode::none(0x12, 119);
    // SAFETY: BLKDISCARD reads an offset and a length in bytes, two 64-bit numbers, from its argument.
    unsafe { ioctl::ioctl(file, ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([offset, len])) }
}

/// The size of a block device in bytes.
pub(super) fn block_device_size(file: &File) -> Result<u64, Errno> {
    const BLKGETSIZE64: ioctl::Opcode = opcode::read::<usize>(0x12, 114);
    // SAFETY: BLKGETSIZE64 stores one 64-bit number in its argument, whatever its name's encoding says.
    unsafe { ioctl::ioctl(file, ioctl::Getter::<BLKGETSIZE64, u64>::new()) }
}

/// The size of a block device's logical sectors in bytes: the smallest unit it can write.
pub(super) fn logical_sector_size(file: &File) -> Result<u64, Errno> {
    const BLKSSZGET: ioctl::Opcode = opcode::none(0x12, 104);
    // SAFETY: BLKSSZGET stores one `int` in its argument.
    let size = unsafe { ioctl::ioctl(file, ioctl::Getter::<BLKSSZGET, i32>::new()) }?;
    Ok(u64::try_from(size).unwrap_or(u64::MAX))
}
