//! Giving up a log that is gone, without opening the volume.

use super::open::read_superblock;
use crate::base::limits::check_mounts;
use crate::base::medium::now_seconds;
use crate::error::{MetaError, Result};
use crate::log::region::forget_log;
use yore_device::{AlignedBuf, Device};
use yore_format::layout::SUPERBLOCKS;
use yore_format::{Generation, Superblock, BLOCK_SIZE};

/// Has a volume forget the log that it has on a device of its own: it is then as its last superblock left it,
/// and has no log. What only the log has is lost. Under `journal`, which needs a log, the engine becomes
/// `snapshot`. Nobody may have the volume open. Returns the superblock that counts from now on.
///
/// Under an engine that writes in place behind its log, a volume that was not closed may then have blocks
/// that are newer than that superblock, or torn. The caller has checked it without the log, and found
/// nothing.
///
/// # Errors
/// [`MetaError::Refused`] if the log is inside, or there is none; damage of the superblock; errors of the
/// device.
pub fn give_up_log(device: &dyn Device) -> Result<Superblock> {
    let (mut superblock, found, newest) = read_superblock(device)?;
    if superblock.external_log.is_none() {
        let name = device.describe();
        return Err(MetaError::Refused(format!("{name} has no log on a device of its own")));
    }
    check_mounts(&superblock, newest)?;
    forget_log(&mut superblock);
    superblock.written_seconds = now_seconds();
    // What is written over may be needed until the other one is durable.
    device.flush()?;
    // Both, so that no older program finds one that needs the log.
    for (step, slot) in [1 - found, found].into_iter().enumerate() {
        superblock.generation = Generation(newest.0 + 1 + step as u64);
        let mut bytes = AlignedBuf::zeroed(1);
        bytes.copy_from_slice(&superblock.encode(slot)[..]);
        device.write_at(SUPERBLOCKS[slot as usize].0 * BLOCK_SIZE as u64, &bytes)?;
        device.flush()?;
    }
    Ok(superblock)
}
