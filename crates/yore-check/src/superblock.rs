//! Reading the superblock.

use crate::{CheckError, Finding, Problem};
use yore_device::Device;
use yore_format::layout::SUPERBLOCKS;
use yore_format::{Block, Corruption, Engine, Generation, SlotState, Superblock, VolumeState, BLOCK_SIZE};

/// The superblock that counts, and what stands beside it.
pub(crate) struct Found {
    pub(crate) superblock: Superblock,
    pub(crate) slot: u32,
    pub(crate) newest: Generation,
    pub(crate) other: SlotState,
    pub(crate) other_is_zero: bool,
}

impl Found {
    /// What is wrong with the slot that does not count. A torn one is not: a crash may tear it.
    pub(crate) fn wrong_other(&self) -> Option<Finding> {
        let wrong = match &self.other {
            SlotState::Valid(sb) if sb.uuid == self.superblock.uuid => return None,
            SlotState::Valid(_) => "a superblock of another volume".to_string(),
            SlotState::Torn(_) => return None,
            SlotState::Corrupt(_, c) => format!("{}: {}", c.field, c.found),
            SlotState::Foreign if self.other_is_zero => return None,
            SlotState::Foreign => "something else".to_string(),
        };
        let finding = Finding::new(Problem::OtherSuperblock, "an older superblock of this volume", wrong);
        Some(finding.on(SUPERBLOCKS[1 - self.slot as usize]))
    }
}

/// Reads both slots and chooses as mount does.
pub(crate) fn read_superblock(device: &dyn Device) -> Result<Found, CheckError> {
    let mut bytes = [[0u8; BLOCK_SIZE]; 2];
    if device.size() < 2 * BLOCK_SIZE as u64 {
        let reason = Corruption::new("superblock", "size of the device", "at least 16 MiB", device.size());
        return Err(CheckError::NotAVolume { device: device.describe(), reason });
    }
    for (at, block) in SUPERBLOCKS.iter().zip(&mut bytes) {
        device.read_at(at.0 * BLOCK_SIZE as u64, block)?;
    }
    let [first, second]: &[Block; 2] = &bytes;
    let (superblock, slot, newest) = yore_format::decode_slots([first, second]).map_err(|reason| {
        let device = device.describe();
        match [Superblock::decode(first, 0), Superblock::decode(second, 1)] {
            [SlotState::Foreign, SlotState::Foreign] => CheckError::NotAVolume { device, reason },
            _ => CheckError::Superblock { device, reason },
        }
    })?;
    let other_slot = 1 - slot as usize;
    Ok(Found {
        superblock,
        slot,
        newest,
        other: Superblock::decode(&bytes[other_slot], other_slot as u32),
        other_is_zero: bytes[other_slot].iter().all(|b| *b == 0),
    })
}

/// Whether a volume in this state is clean once nothing is found, without a mount.
pub(crate) fn is_ended_by_check(sb: &Superblock) -> bool {
    match sb.state {
        VolumeState::Clean | VolumeState::MustBeChecked | VolumeState::LeaksPending => true,
        VolumeState::InUse => matches!(sb.engine, Engine::None | Engine::Sync | Engine::SoftUpdates),
    }
}
