//! A stand-alone log that is read without being mounted: nothing is written, and whoever owns it does not
//! matter. That is for programs that show or check a log.

use std::sync::Arc;

use yore_device::Device;

use crate::file::{ring_of, Anchors};
use crate::recover::damaged;
use crate::ring::Ring;
use crate::{recover, LogError, LogId, LogOwner, Lsn, Record, Recovered, Region};

/// Reads the records that a log keeps, from the oldest to the end: [`LogReader::next_record`] until it gives
/// none, then [`LogReader::end`].
///
/// ```
/// use std::sync::Arc;
/// use yore_device::MemoryDevice;
/// use yore_log::{LogFile, LogReader, Lsn, Region};
///
/// let device = Arc::new(MemoryDevice::new(1 << 20));
/// let region = Region::whole(&*device);
/// let log = LogFile::create(device.clone(), region)?;
/// log.append_sync(&[b"debit 5"])?;
/// drop(log);
///
/// let mut reader = LogReader::open(device, region)?;
/// assert_eq!(reader.next_record()?.unwrap().contents, b"debit 5");
/// assert!(reader.next_record()?.is_none());
/// assert_eq!(reader.end()?.next, Lsn(2));
/// # Ok::<(), yore_log::LogError>(())
/// ```
#[derive(Debug)]
pub struct LogReader {
    recovered: Recovered,
    ring: Ring<Arc<dyn Device>>,
    owner: Option<LogOwner>,
    oldest: Lsn,
    /// The sequence number that the end must have reached.
    durable: u64,
}

/// Where a log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEnd {
    /// The number that the next record gets.
    pub next: Lsn,
    /// The block of the device where the next batch begins.
    pub block: u64,
    /// How many blocks the records take, and how many there are for them.
    pub used: u64,
    /// All blocks for records.
    pub blocks: u64,
}

impl LogReader {
    /// Begins to read the log in the region.
    ///
    /// # Errors
    /// [`LogError::NotALog`], [`LogError::UnknownVersion`], [`LogError::Kept`]; [`LogError::BadPosition`] for
    /// an anchor that says what cannot be; [`LogError::BadRegion`], [`LogError::Device`].
    pub fn open(device: Arc<dyn Device>, region: Region) -> Result<LogReader, LogError> {
        let ring = ring_of(&device, region)?;
        let anchor = Anchors::of(device.clone(), region).read_own(ring.blocks)?;
        let oldest = anchor.oldest.into();
        let recovered = recover(device.clone(), ring, LogId(anchor.log.get()), oldest)?;
        Ok(LogReader {
            recovered,
            ring: Ring::new(device, ring)?,
            owner: anchor.owner(),
            oldest: oldest.number,
            durable: anchor.durable.get(),
        })
    }

    /// For whom it was made.
    pub fn owner(&self) -> Option<LogOwner> {
        self.owner
    }

    /// The number of the oldest record that is kept, or of the next one if there is none.
    pub fn oldest(&self) -> Lsn {
        self.oldest
    }

    /// The next record; `None` at the end of the log.
    ///
    /// # Errors
    /// As [`Recovered::next_record`].
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, LogError> {
        self.recovered.next_record()
    }

    /// Goes through what is left, and says where the log ends.
    ///
    /// # Errors
    /// As [`Recovered::next_record`]; [`LogError::Damaged`], too, if the log was durable beyond its end.
    pub fn end(self) -> Result<LogEnd, LogError> {
        let LogReader { recovered, ring, durable, .. } = self;
        let (at, used) = recovered.walk_to_end()?;
        if at.sequence < durable {
            return Err(damaged(&ring, at.block, at.number, "it was durable, and is not there"));
        }
        Ok(LogEnd { next: at.number, block: ring.device_block(at.block), used, blocks: ring.blocks() })
    }
}
