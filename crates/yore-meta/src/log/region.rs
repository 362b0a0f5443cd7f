//! Where the log lies on the medium, and what superblocks say of it.

use crate::engine::strategy;
use crate::error::Result;
use yore_device::{AlignedBuf, Device};
use yore_format::layout::ZONE_BLOCKS;
use yore_format::{BlockNo, Engine, Generation, Superblock, BLOCK_SIZE};
use yore_log::{LogId, Lsn, Position, Region};

/// Where a superblock says that replay starts.
pub(crate) fn position_of(superblock: &Superblock) -> Position {
    Position {
        number: Lsn(superblock.log_number),
        sequence: superblock.log_sequence,
        block: superblock.log_position,
        chain: superblock.log_chain,
    }
}

/// Enters in a superblock where replay starts, and which generation the records there will belong to.
pub(crate) fn set_position(superblock: &mut Superblock, position: Position, generation: Generation) {
    superblock.log_number = position.number.0;
    superblock.log_sequence = position.sequence;
    superblock.log_position = position.block;
    superblock.log_chain = position.chain;
    superblock.log_generation = generation;
}

/// Makes a superblock one of a volume without a log. Under `journal`, which needs one, the engine becomes
/// `snapshot`.
pub fn forget_log(superblock: &mut Superblock) {
    superblock.external_log = None;
    superblock.log_start = BlockNo(0);
    (superblock.log_blocks, superblock.log_id, superblock.log_position) = (0, 0, 0);
    (superblock.log_number, superblock.log_sequence, superblock.log_chain) = (0, 0, 0);
    superblock.log_generation = Generation(0);
    if superblock.engine == Engine::Journal {
        superblock.engine = Engine::Snapshot;
    }
}

/// The log's place in the volume; `None` if it has none there.
pub(crate) fn region_of(superblock: &Superblock) -> Option<(Region, LogId)> {
    let region = Region { first_block: superblock.log_start.0, blocks: superblock.log_blocks };
    let is_inside = superblock.log_blocks > 0 && superblock.external_log.is_none();
    is_inside.then_some((region, LogId(superblock.log_id)))
}

/// The usual length, in blocks, of the log of a volume of `blocks` blocks: a 128th of it, at least 256 KiB
/// and at most 32 MiB. A mount replays what a crash leaves in a log of that length within a second.
pub fn default_log_blocks(blocks: u64) -> u64 {
    (blocks / 128).clamp(64, 8_192)
}

/// The usual length, in blocks, of the log of a volume of `blocks` blocks under an engine. Where all changes
/// go through the log it is about a hundredth of the volume, from 4 to 48 MiB, and never more than an eighth.
pub fn usual_log_blocks(engine: Engine, blocks: u64) -> u64 {
    match strategy(engine).logs_first() {
        true => (blocks / 100).clamp(1024, 12_288).min(blocks / 8),
        false => default_log_blocks(blocks),
    }
}

/// Zeroes a new log, so that later flushes change no metadata of a file that holds the volume.
pub(crate) fn format(device: &dyn Device, region: Region) -> Result<()> {
    let zeros = AlignedBuf::zeroed(256);
    let mut at = region.first_block;
    let end = at + region.blocks;
    while at < end {
        let n = (end - at).min(256);
        device.write_at(at * BLOCK_SIZE as u64, &zeros[..n as usize * BLOCK_SIZE])?;
        at += n;
    }
    Ok(())
}

/// The first block of the log and those after it, where a volume with a log of `blocks` blocks has it: behind
/// group 0's first zone.
pub(crate) fn behind(zone: BlockNo, blocks: u64) -> Region {
    Region { first_block: zone.0 + ZONE_BLOCKS, blocks }
}
