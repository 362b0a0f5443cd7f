//! What checks of the open volume have found and nobody has repaired.

use super::Meta;
use crate::error::Result;
use crate::findings::{next_findings, read_findings};
use yore_device::AlignedBuf;
use yore_format::{FindingsRecord, BLOCK_SIZE};

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
}
