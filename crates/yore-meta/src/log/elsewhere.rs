//! Making a log on a device of its own.

use super::opened::Whereabouts;
use super::place::LogDevice;
use crate::base::medium::holds_volume;
use crate::error::{MetaError, Result};
use std::sync::Arc;
use yore_device::{Device, DeviceError};
use yore_format::{BlockNo, ExternalLog};
use yore_log::{KeptLog, LogError, LogId, LogOwner, Region, REGION_BLOCKS_MAX, REGION_BLOCKS_MIN};

/// Checks that a device can get a log for the volume `uuid`: without `force`, that nothing is there which
/// would be missed.
pub(crate) fn check(on: &LogDevice, uuid: [u8; 16], force: bool) -> Result<()> {
    on.check()?;
    let device = &on.device;
    let name = device.describe();
    if device.read_only() {
        let operation = yore_device::Operation::Write;
        return Err(DeviceError::ReadOnly { operation, device: name }.into());
    }
    let region = Region::whole(&**device);
    check_length(&name, region.blocks.saturating_sub(2))?;
    if force {
        return Ok(());
    }
    check_unused(device, uuid)
}

/// Makes an empty log on a device that was checked, durably. Returns it, and what a superblock says of it.
pub(crate) fn make(on: &LogDevice, uuid: [u8; 16]) -> Result<(KeptLog, Whereabouts)> {
    let device = &on.device;
    let region = Region::whole(&**device);
    let kept = KeptLog::create(device.clone(), region, LogId::random(), LogOwner(uuid))?;
    let external = ExternalLog { session: kept.session(), begins: false, path: on.path.clone() };
    let (blocks, id) = (kept.ring().blocks, kept.id().0);
    Ok((kept, Whereabouts { start: BlockNo(0), blocks, id, external: Some(external) }))
}

/// Checks that a log can have so many blocks.
pub(crate) fn check_length(name: &str, blocks: u64) -> Result<()> {
    if (REGION_BLOCKS_MIN..=REGION_BLOCKS_MAX).contains(&blocks) {
        return Ok(());
    }
    Err(MetaError::Refused(format!(
        "{name} has no room for a log: one has at least {} KiB, and two blocks more on a device of its own",
        REGION_BLOCKS_MIN * 4
    )))
}

/// Refuses a device that should not be overwritten with a log for the volume `uuid` without being asked.
fn check_unused(device: &Arc<dyn Device>, uuid: [u8; 16]) -> Result<()> {
    let name = device.describe();
    if holds_volume(&**device)? {
        return Err(MetaError::Refused(format!(
            "{name} holds a Yore volume, which a log there would destroy: use --force if that is meant"
        )));
    }
    match KeptLog::find(device.clone(), Region::whole(&**device)) {
        Ok(kept) if kept.owner() != LogOwner(uuid) => Err(MetaError::Refused(format!(
            "{name} has the log of the volume {}, and two volumes cannot share one: use another place, or --force if that volume \
             does not need it",
            kept.owner()
        ))),
        Err(LogError::Device(e)) => Err(e.into()),
        _ => Ok(()),
    }
}
