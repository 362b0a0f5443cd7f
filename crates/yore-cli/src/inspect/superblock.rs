//! Reads the superblock before anything else, to say in plain words why a volume cannot be used.

use crate::status::{Ended, DAMAGED, FAILED};
use std::path::Path;
use yore_device::{Device, DeviceError};
use yore_format::layout::{HEADER_SLOTS, SUPERBLOCKS};
use yore_format::{
    decode_slots, verify_header, Block, BlockHeader, BlockNo, Corruption, SlotState, Superblock, ZoneHeader,
    ZoneNo, BLOCK_SIZE, FORMAT_MAJOR, ZERO_BLOCK,
};

/// The bytes of both slots.
///
/// # Errors
/// The device cannot be read, or is too short for a volume.
pub fn slots(device: &dyn Device) -> anyhow::Result<[Box<Block>; 2]> {
    let mut slots = [Box::new(ZERO_BLOCK), Box::new(ZERO_BLOCK)];
    for (at, block) in SUPERBLOCKS.iter().zip(&mut slots) {
        device.read_at(at.0 * BLOCK_SIZE as u64, &mut block[..])?;
    }
    Ok(slots)
}

/// Whether there is anything of a superblock. A block that cannot be read may be one.
pub fn is_any(device: &dyn Device) -> bool {
    let is_one = |slot: &Block, which| Superblock::decode(slot, which) != SlotState::Foreign;
    device.size() >= 2 * BLOCK_SIZE as u64
        && slots(device).map_or(true, |slots| is_one(&slots[0], 0) || is_one(&slots[1], 1))
}

/// Whether there is a volume without superblocks: it has a spare superblock, or a header of root zone 0.
///
/// # Errors
/// The device cannot be read.
pub fn is_lost(device: &dyn Device) -> Result<bool, DeviceError> {
    for at in HEADER_SLOTS.map(BlockNo) {
        if device.size() < (at.0 + 1) * BLOCK_SIZE as u64 {
            continue;
        }
        let mut block = Box::new(ZERO_BLOCK);
        device.read_at(at.0 * BLOCK_SIZE as u64, &mut block[..])?;
        // Nothing else says which volume it would be.
        let volume = BlockHeader::of(&block).volume.get();
        if verify_header(&block, ZoneHeader::addr(ZoneNo::root(0)), volume, at).is_ok() {
            return Ok(true);
        }
    }
    // One that means nothing to this program is a newer program's.
    Ok(yore_meta::spare_superblock(device)?.map_or(true, |spare| spare.is_some()))
}

/// The superblock of a volume that this program can use.
///
/// # Errors
/// Why the volume cannot be used, what that means, and what to do.
pub fn usable(volume: &Path, device: &dyn Device) -> anyhow::Result<Superblock> {
    let name = volume.display();
    let refuse = |status, message: String| anyhow::Error::new(Ended { message, status });
    let no_volume = || {
        refuse(FAILED, format!("{name} is no Yore volume; check the path, or make a volume with `yore mkfs`"))
    };
    if device.size() < 2 * BLOCK_SIZE as u64 {
        return Err(no_volume());
    }
    let slots = slots(device)?;
    let found = match decode_slots([&slots[0], &slots[1]]) {
        Ok((superblock, _, _)) => superblock,
        Err(reason) => {
            let states = [Superblock::decode(&slots[0], 0), Superblock::decode(&slots[1], 1)];
            if states.iter().all(|state| *state == SlotState::Foreign) {
                if !is_lost(device)? {
                    return Err(no_volume());
                }
                let message = format!(
                    "{name} is damaged: it is a volume that has lost both superblocks; `yore check --repair {name}` makes one of \
                     what else is there, if it can"
                );
                return Err(refuse(DAMAGED, message));
            }
            return Err(explain(&name.to_string(), &reason));
        }
    };
    let needed = found.volume_blocks * BLOCK_SIZE as u64;
    if device.size() < needed {
        let message = format!(
            "{name} is truncated: the volume has {needed} bytes, the file only {}; restore the rest of it before it is \
             used, or give up what lay there with `yore check --repair --shorten {name}`",
            device.size()
        );
        return Err(refuse(FAILED, message));
    }
    Ok(found)
}

/// What a superblock that cannot be used means for its owner.
fn explain(name: &str, reason: &Corruption) -> anyhow::Error {
    let (message, status) = match reason.field {
        "format version" => (
            format!(
                "{name} is a volume of format version {}; this program knows version {FORMAT_MAJOR}.x only: use a \
                 yore that knows it",
                reason.found
            ),
            FAILED,
        ),
        "features" => {
            (format!("{name} uses {}, which this program does not know: use a newer yore", reason.found), FAILED)
        }
        _ => (
            format!(
                "{name} is damaged: {reason}; `yore check --repair {name}` makes a superblock of what else is there, if it can \
                 (`yore inspect {name}` shows what is there)"
            ),
            DAMAGED,
        ),
    };
    Ended { message, status }.into()
}
