//! The record of what the last check found, where every program that knows it looks.

use yore_device::{AlignedBuf, Device, DeviceError};
use yore_format::{Block, BlockNo, FindingsRecord, BLOCK_SIZE, FINDINGS_BLOCKS};

/// The record of the volume with this `uuid`; `None` if there never was one. Its `count` is 0 if a check has
/// found nothing since.
///
/// # Errors
/// Those of the device.
pub fn read_findings(device: &dyn Device, uuid: [u8; 16]) -> Result<Option<FindingsRecord>, DeviceError> {
    Ok(read_both(device, uuid)?.into_iter().flatten().max_by_key(|record| record.sequence))
}

fn read_both(device: &dyn Device, uuid: [u8; 16]) -> Result<[Option<FindingsRecord>; 2], DeviceError> {
    let mut records = [None, None];
    for (at, record) in FINDINGS_BLOCKS.iter().zip(&mut records) {
        let mut bytes = AlignedBuf::zeroed(1);
        device.read_at(at.0 * BLOCK_SIZE as u64, &mut bytes)?;
        let block: &Block = bytes[..].try_into().expect("one block");
        *record = FindingsRecord::decode(block, uuid);
    }
    Ok(records)
}

/// Where the next record of the volume goes, and its bytes; `None` if there is nothing to record, and nothing
/// was. The block that has the newest record stays as it is, so one of the two is whole whatever happens.
///
/// # Errors
/// Those of the device.
pub fn next_findings(
    device: &dyn Device,
    uuid: [u8; 16],
    record: &FindingsRecord,
) -> Result<Option<(BlockNo, Box<Block>)>, DeviceError> {
    let records = read_both(device, uuid)?;
    let sequences = records.each_ref().map(|record| record.as_ref().map(|record| record.sequence));
    let newest = usize::from(sequences[1] > sequences[0]);
    let has_findings = records[newest].as_ref().is_some_and(|record| record.count > 0);
    if record.count == 0 && !has_findings {
        return Ok(None);
    }
    let sequence = sequences[newest].map_or(1, |sequence| sequence.saturating_add(1));
    let place = if sequences[newest].is_some() { 1 - newest } else { 0 };
    let block = FindingsRecord { sequence, ..record.clone() }.encode(uuid);
    Ok(Some((FINDINGS_BLOCKS[place], block)))
}
