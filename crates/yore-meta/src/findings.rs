//! The record of what the last check found, where every program that knows it looks; and the records of
//! scrubs and the spare superblocks that share its blocks.

use yore_device::{AlignedBuf, Device, DeviceError};
use yore_format::{
    Block, BlockNo, Corruption, FindingsRecord, ScrubRecord, Spare, BLOCK_SIZE, FINDINGS_BLOCKS, ZERO_BLOCK,
};

/// The record of the volume with this `uuid`; `None` if there never was one. Its `count` is 0 if a check has
/// found nothing since.
///
/// # Errors
/// Those of the device.
pub fn read_findings(device: &dyn Device, uuid: [u8; 16]) -> Result<Option<FindingsRecord>, DeviceError> {
    let records = blocks(device)?.map(|block| FindingsRecord::decode(&block, uuid));
    Ok(records.into_iter().flatten().max_by_key(|record| record.sequence))
}

/// The record of scrubs of the volume with this `uuid`; an empty one if there never was any.
///
/// # Errors
/// Those of the device.
pub fn read_scrubs(device: &dyn Device, uuid: [u8; 16]) -> Result<ScrubRecord, DeviceError> {
    let records = blocks(device)?.map(|block| ScrubRecord::find(&block, uuid));
    Ok(records.into_iter().flatten().max_by_key(|record| record.sequence).unwrap_or_default())
}

/// Where the next record of scrubs of the volume goes, and its bytes. The block that has the newest findings
/// stays as it is.
///
/// # Errors
/// Those of the device.
pub(crate) fn next_scrubs(
    device: &dyn Device,
    uuid: [u8; 16],
    record: &ScrubRecord,
) -> Result<(BlockNo, Box<Block>), DeviceError> {
    let blocks = blocks(device)?;
    let of_findings =
        blocks.each_ref().map(|block| FindingsRecord::decode(block, uuid).map(|record| record.sequence));
    let of_scrubs =
        blocks.each_ref().map(|block| ScrubRecord::find(block, uuid).map(|record| record.sequence));
    let place = match of_findings {
        [None, None] => usize::from(of_scrubs[0] > of_scrubs[1]),
        _ => usize::from(of_findings[0] > of_findings[1]),
    };
    let sequence = of_scrubs.into_iter().flatten().max().map_or(1, |sequence| sequence.saturating_add(1));
    let mut block = blocks[place].clone();
    ScrubRecord { sequence, ..record.clone() }.put(&mut block, uuid);
    Ok((FINDINGS_BLOCKS[place], block))
}

/// The two blocks that records and spare superblocks share.
fn blocks(device: &dyn Device) -> Result<[Box<Block>; 2], DeviceError> {
    let mut bytes = AlignedBuf::zeroed(2);
    device.read_at(FINDINGS_BLOCKS[0].0 * BLOCK_SIZE as u64, &mut bytes)?;
    let mut blocks = [Box::new(ZERO_BLOCK), Box::new(ZERO_BLOCK)];
    for (block, bytes) in blocks.iter_mut().zip(bytes.chunks_exact(BLOCK_SIZE)) {
        block.copy_from_slice(bytes);
    }
    Ok(blocks)
}

/// The newer of the two spare superblocks; `None` if there is none.
///
/// # Errors
/// Those of the device. Within, why what is there means nothing to this program: a newer one has written it.
pub fn spare_superblock(
    device: &dyn Device,
) -> Result<std::result::Result<Option<Spare>, Box<Corruption>>, DeviceError> {
    if device.size() < (FINDINGS_BLOCKS[1].0 + 1) * BLOCK_SIZE as u64 {
        return Ok(Ok(None));
    }
    let found = blocks(device)?.map(|block| Spare::find(&block));
    let [first, second] = found;
    Ok(match (first, second) {
        (Err(unknown), _) | (_, Err(unknown)) => Err(unknown),
        (Ok(first), Ok(second)) => {
            Ok(first.into_iter().chain(second).max_by_key(|spare| spare.superblock().generation))
        }
    })
}

/// The block that must be written so that spare superblocks say what this superblock says, and its bytes;
/// `None` if both do. Where neither does, the one is written that is missing, or else the older one.
///
/// # Errors
/// Those of the device.
pub(crate) fn next_spare(
    device: &dyn Device,
    wanted: &Spare,
) -> Result<Option<(BlockNo, Box<Block>)>, DeviceError> {
    let blocks = blocks(device)?;
    let is_of_us = |spare: &Spare| spare.superblock().uuid == wanted.superblock().uuid;
    let found = blocks.each_ref().map(|block| Spare::find(block).ok().flatten().filter(is_of_us));
    let says = found.each_ref().map(|spare| spare.as_ref().is_some_and(|spare| spare.says_the_same(wanted)));
    let age = |place: &usize| found[*place].as_ref().map(|spare| spare.superblock().generation);
    let Some(place) = [0, 1].into_iter().filter(|place| !says[*place]).min_by_key(age) else {
        return Ok(None);
    };
    let mut block = blocks[place].clone();
    wanted.put(&mut block);
    Ok(Some((FINDINGS_BLOCKS[place], block)))
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
    let blocks = blocks(device)?;
    let records = blocks.each_ref().map(|block| FindingsRecord::decode(block, uuid));
    let sequences = records.each_ref().map(|record| record.as_ref().map(|record| record.sequence));
    let newest = usize::from(sequences[1] > sequences[0]);
    let has_findings = records[newest].as_ref().is_some_and(|record| record.count > 0);
    if record.count == 0 && !has_findings {
        return Ok(None);
    }
    let sequence = sequences[newest].map_or(1, |sequence| sequence.saturating_add(1));
    let place = if sequences[newest].is_some() { 1 - newest } else { 0 };
    let mut block = FindingsRecord { sequence, ..record.clone() }.encode(uuid);
    Spare::carry(&blocks[place], &mut block);
    Ok(Some((FINDINGS_BLOCKS[place], block)))
}
