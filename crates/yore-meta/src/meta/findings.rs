//! What checks of the open volume have found and nobody has repaired; and how far a scrub is.

use super::Meta;
use crate::error::Result;
use crate::findings::{next_findings, next_scrubs, read_findings, read_scrubs};
use yore_device::{AlignedBuf, Device};
use yore_format::{FindingsRecord, ScrubRecord, BLOCK_SIZE};

impl Meta {
    /// What the last check found and left as it is; `None` if nothing is recorded.
    ///
    /// # Errors
    /// Those of the device.
    pub fn findings(&self) -> Result<Option<FindingsRecord>> {
        let record = read_findings(&**self.device(), self.found().uuid)?;
        Ok(record.filter(|record| record.count > 0))
    }

    /// Records what a check has found, in place of what was recorded; its `sequence` does not matter. Takes
    /// no room. Durable when it returns. Only whoever has a [`crate::Shadow`] may call this, so there is one
    /// at a time.
    ///
    /// # Errors
    /// [`crate::MetaError::ReadOnly`], [`crate::MetaError::Stopped`]; those of the device, which stop all
    /// writing (R16).
    pub fn record_findings(&self, record: &FindingsRecord) -> Result<()> {
        self.check_writable()?;
        let _alone = self.base().medium.hold_spares();
        let Some((at, block)) = next_findings(&**self.device(), self.found().uuid, record)? else {
            return Ok(());
        };
        let bytes = AlignedBuf::from_slice(&block[..]);
        let written = self.device().write_at(at.0 * BLOCK_SIZE as u64, &bytes);
        written.map_err(|e| {
            self.stop(e.clone().into());
            crate::MetaError::Device(e)
        })?;
        self.base().flush()
    }

    /// How far a scrub is, and how the last one ended.
    ///
    /// # Errors
    /// Those of the device.
    pub fn scrubs(&self) -> Result<ScrubRecord> {
        Ok(read_scrubs(&**self.device(), self.found().uuid)?)
    }

    /// Records how far a scrub is, in place of what was recorded; its `sequence` does not matter. Takes no
    /// room. `through` is how a volume that is open for reading only is written to, if it can be: a device of
    /// the same volume, which nobody else has open for writing. With `flush` it is durable when it returns.
    ///
    /// # Errors
    /// [`crate::MetaError::ReadOnly`], [`crate::MetaError::Stopped`]; those of the device, which stop all
    /// writing (R16).
    pub fn record_scrubs(
        &self,
        record: &ScrubRecord,
        through: Option<&dyn Device>,
        flush: bool,
    ) -> Result<()> {
        let uuid = self.found().uuid;
        let _alone = self.base().medium.hold_spares();
        if let Some(device) = through.filter(|_| self.read_only()) {
            let (at, block) = next_scrubs(device, uuid, record)?;
            device.write_at(at.0 * BLOCK_SIZE as u64, &AlignedBuf::from_slice(&block[..]))?;
            if flush {
                device.flush()?;
            }
            return Ok(());
        }
        self.write_scrubs(record, flush)
    }

    /// Adds the blocks of data that `met` says were met damaged to the record of scrubs, as many as it has
    /// room for. Takes no room of the volume. Durable when it returns.
    ///
    /// # Errors
    /// As [`Meta::record_scrubs`].
    pub fn record_damaged<M: IntoIterator<Item = u64>>(&self, met: impl FnOnce() -> M) -> Result<()> {
        // A scrub that ends forgets what was met, and then replaces the record: not between these lines.
        let _alone = self.base().medium.hold_spares();
        let mut record = self.scrubs()?;
        match record.add_damaged(met()) {
            true => self.write_scrubs(&record, true),
            false => Ok(()),
        }
    }

    /// Writes the next record of scrubs. The caller holds the spare superblocks.
    fn write_scrubs(&self, record: &ScrubRecord, flush: bool) -> Result<()> {
        self.check_writable()?;
        let (at, block) = next_scrubs(&**self.device(), self.found().uuid, record)?;
        let written = self.device().write_at(at.0 * BLOCK_SIZE as u64, &AlignedBuf::from_slice(&block[..]));
        written.map_err(|e| {
            self.stop(e.clone().into());
            crate::MetaError::Device(e)
        })?;
        match flush {
            true => self.base().flush(),
            false => Ok(()),
        }
    }
}
