//! Devices that break the contract on which the crash argument rests, to prove that the crash tests would
//! notice.
//!
//! A [`Mutant`] stands between the file system and the device that records. The file system reads the right
//! bytes, so nothing goes wrong while it runs. But the recording is that of a wrong file system: one that
//! leaves a flush out, hands a block to the device only after the flush that was to cover it, or writes a
//! superblock before the blocks that it leads to. The mutant tells blocks apart by their content, following
//! `docs/FORMAT.md`, and flushes by what was written since the previous one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use yore_device::wrapped::{Hook, Request};
use yore_device::{Device, DeviceError, BLOCK_SIZE};

/// What a block is, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Written {
    /// A slot of the superblock.
    Superblock,
    /// A batch of the log.
    Log,
    /// Header of a zone.
    ZoneHeader,
    /// Block of the zone table.
    ZoneTable,
    /// Bitmap.
    Bitmap,
    /// Inodes.
    Inodes,
    /// Node of a tree.
    Tree,
    /// Node of a tree of the history, or the block that has their roots.
    History,
    /// Anything but metadata.
    Data,
}

impl Written {
    fn of(block: &[u8]) -> Written {
        match block {
            [b'Y', b'O', b'R', b'E', 0x89, b'V', ..] => Written::Superblock,
            [b'Y', b'O', b'R', b'E', 0x89, b'L', ..] => Written::Log,
            [b'Y', b'O', b'R', b'E', 1, ..] => Written::ZoneHeader,
            [b'Y', b'O', b'R', b'E', 2, ..] => Written::ZoneTable,
            [b'Y', b'O', b'R', b'E', 3, ..] => Written::Bitmap,
            [b'Y', b'O', b'R', b'E', 4, ..] => Written::Inodes,
            [b'Y', b'O', b'R', b'E', 5..=9, ..] => Written::Tree,
            [b'Y', b'O', b'R', b'E', 10..=15 | 18..=21, ..] => Written::History,
            _ => Written::Data,
        }
    }
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Nothing: for comparison.
    None,
    /// A flush is left out: the one after a block of this kind was written, and none of the kinds before it
    /// in the order of [`Written`]. For a zone header: the flush before the superblock. For data: the one
    /// before a record.
    OmitFlush(Written),
    /// Blocks of this kind reach the device after the next flush has returned.
    Late(Written),
    /// Each third block of this kind never reaches the device.
    Lose(Written),
    /// Everything but the log reaches the device after the superblock, all before the flush that follows it.
    SuperblockFirst,
}

/// Makes a device wrong in one way.
pub struct Mutant {
    mutation: Mutation,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Blocks that were written and not passed on, by number.
    held: BTreeMap<u64, Box<[u8]>>,
    /// What was written since the last flush.
    written: Vec<Written>,
    /// How many blocks of the kind of interest were written.
    count: u64,
}

impl Mutant {
    /// One that makes it wrong like this.
    pub fn new(mutation: Mutation) -> Mutant {
        Mutant { mutation, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn release(state: &mut State, below: &dyn Device) -> Result<(), DeviceError> {
        for (block, bytes) in std::mem::take(&mut state.held) {
            below.write_at(block * BLOCK_SIZE as u64, &bytes)?;
        }
        Ok(())
    }

    /// Whether a block is passed on now. Otherwise it is kept, or lost.
    fn passes(&self, state: &mut State, kind: Written) -> bool {
        match self.mutation {
            Mutation::None | Mutation::OmitFlush(_) => true,
            Mutation::Late(late) => kind != late,
            Mutation::SuperblockFirst => matches!(kind, Written::Superblock | Written::Log),
            Mutation::Lose(lost) => {
                state.count += u64::from(kind == lost);
                kind != lost || !state.count.is_multiple_of(3)
            }
        }
    }

    fn read(&self, offset: u64, buf: &mut [u8], below: &dyn Device) -> Result<(), DeviceError> {
        let state = self.lock();
        below.read_at(offset, buf)?;
        let first = offset / BLOCK_SIZE as u64;
        for (number, bytes) in buf.chunks_mut(BLOCK_SIZE).enumerate() {
            if let Some(held) = state.held.get(&(first + number as u64)) {
                bytes.copy_from_slice(held);
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, buf: &[u8], below: &dyn Device) -> Result<(), DeviceError> {
        let mut state = self.lock();
        if Written::of(buf) == Written::Log {
            // The blocks of a batch have only one header.
            state.written.push(Written::Log);
            if self.passes(&mut state, Written::Log) {
                return below.write_at(offset, buf);
            }
        }
        let in_log = Written::of(buf) == Written::Log;
        for (number, bytes) in buf.chunks(BLOCK_SIZE).enumerate() {
            let block = offset / BLOCK_SIZE as u64 + number as u64;
            let kind = if in_log { Written::Log } else { Written::of(bytes) };
            state.written.push(kind);
            if !in_log && self.passes(&mut state, kind) {
                state.held.remove(&block);
                below.write_at(block * BLOCK_SIZE as u64, bytes)?;
            } else if !matches!(self.mutation, Mutation::Lose(_)) {
                state.held.insert(block, bytes.into());
            }
            if kind == Written::Superblock && self.mutation == Mutation::SuperblockFirst {
                Self::release(&mut state, below)?;
            }
        }
        Ok(())
    }

    fn flush(&self, below: &dyn Device) -> Result<(), DeviceError> {
        let mut state = self.lock();
        let first = std::mem::take(&mut state.written).into_iter().min();
        if self.mutation == first.map_or(Mutation::None, Mutation::OmitFlush) && first.is_some() {
            return Ok(());
        }
        below.flush()?;
        match self.mutation {
            Mutation::SuperblockFirst => Ok(()),
            _ => Self::release(&mut state, below),
        }
    }
}

impl fmt::Debug for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mutant({:?})", self.mutation)
    }
}

impl Hook for Mutant {
    fn request(&self, request: Request<'_>, below: &dyn Device) -> Result<(), DeviceError> {
        match request {
            Request::Read { offset, buf } => self.read(offset, buf, below),
            Request::Write { mut offset, bufs } => bufs.iter().try_for_each(|buf| {
                self.write(offset, buf, below)?;
                offset += buf.len() as u64;
                Ok(())
            }),
            Request::Flush => self.flush(below),
            Request::Discard { .. } => request.pass(below),
        }
    }
}
