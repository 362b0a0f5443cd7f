//! The medium: the device, the identity of the volume on it, and reading blocks that can be verified.

use crate::base::shadow::Shadows;
use crate::engine::Strategy;
use crate::error::Result;
use crate::findings::next_spare;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use yore_device::{near, AlignedBuf, Device};
use yore_format::layout::{Geometry, SUPERBLOCKS, VOLUME_BLOCKS_MAX, VOLUME_BLOCKS_MIN};
use yore_format::{
    verify_header, verify_version, Block, BlockNo, Corruption, Engine, MetaAddr, SlotState, Spare,
    Superblock, BLOCK_SIZE, ZERO_BLOCK,
};

/// Blocks between two that are read together, which are read with them rather than with another request.
const GAP: u64 = 16;
/// The most blocks of such a request: 1 MiB.
const REQUEST: u64 = 256;

/// The device with the volume on it.
pub(crate) struct Medium {
    device: Arc<dyn Device>,
    /// The part of that device that keeps a generation readable.
    shadows: Arc<Shadows>,
    /// The length of the volume. Only an Op that is alone changes it.
    volume_blocks: AtomicU64,
    volume_tag: u32,
    strategy: &'static dyn Strategy,
    /// The log's blocks within the volume. Only an Op that is alone changes them.
    log: RwLock<Range<u64>>,
    /// As it was when the volume was opened.
    found: Superblock,
    /// Whether what a crash may have left is still to be recounted.
    has_leaks: AtomicBool,
    /// What both spare superblocks say, once that is known. Whoever has it may write to their blocks.
    spares: Mutex<Option<Spare>>,
}

impl Medium {
    pub(crate) fn new(
        device: Arc<dyn Device>,
        shadows: Arc<Shadows>,
        found: Superblock,
        strategy: &'static dyn Strategy,
    ) -> Medium {
        device.use_up_to(found.volume_blocks * BLOCK_SIZE as u64);
        Medium {
            device,
            shadows,
            volume_blocks: AtomicU64::new(found.volume_blocks),
            volume_tag: found.volume_tag(),
            strategy,
            log: RwLock::new(log_blocks(&found)),
            has_leaks: AtomicBool::new(found.may_have_leaks()),
            found,
            spares: Mutex::new(None),
        }
    }

    #[inline]
    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// What keeps a generation readable.
    #[inline]
    pub(crate) fn shadows(&self) -> &Arc<Shadows> {
        &self.shadows
    }

    /// The engine in use.
    #[inline]
    pub(crate) fn engine(&self) -> Engine {
        self.strategy.engine()
    }

    /// What the engine decides.
    #[inline]
    pub(crate) fn strategy(&self) -> &'static dyn Strategy {
        self.strategy
    }

    /// What headers of blocks say of the volume.
    #[inline]
    pub(crate) fn volume_tag(&self) -> u32 {
        self.volume_tag
    }

    pub(crate) fn uuid(&self) -> [u8; 16] {
        self.found.uuid
    }

    /// The superblock as it was when the volume was opened.
    pub(crate) fn found(&self) -> &Superblock {
        &self.found
    }

    /// Whether the volume may have what a crash leaves under an engine that orders changes.
    pub(crate) fn has_leaks(&self) -> bool {
        self.has_leaks.load(Ordering::Acquire)
    }

    /// The volume has nothing of that any more. Superblocks say so from now on.
    pub(crate) fn is_recounted(&self) {
        self.has_leaks.store(false, Ordering::Release);
    }

    #[inline]
    pub(crate) fn geometry(&self) -> Geometry {
        Geometry { blocks: self.volume_blocks.load(Ordering::Acquire) }
    }

    /// Sets the length of the volume; returns the one that it had.
    pub(crate) fn set_length(&self, geometry: Geometry) -> u64 {
        self.device.use_up_to(geometry.blocks * BLOCK_SIZE as u64);
        self.volume_blocks.swap(geometry.blocks, Ordering::AcqRel)
    }

    /// Whether the volume has this length, or could have had it if it was `resized`.
    pub(crate) fn may_have_length(&self, blocks: u64, resized: bool) -> bool {
        blocks == self.geometry().blocks
            || (resized && (VOLUME_BLOCKS_MIN..=VOLUME_BLOCKS_MAX).contains(&blocks))
    }

    /// The log's blocks within the volume; an empty range if it has none there.
    #[inline]
    pub(crate) fn log_blocks(&self) -> Range<u64> {
        self.log.read().clone()
    }

    /// The log has these blocks within the volume from now on.
    pub(crate) fn set_log_blocks(&self, blocks: Range<u64>) {
        *self.log.write() = blocks;
    }

    /// Reads the first of these blocks, as many as lie near each other, with one request. `at` says where a
    /// block is; the places ascend. `take` gets each block, and verifies it. Returns the blocks that are
    /// left.
    pub(crate) fn read_near<'b, B>(
        &self,
        blocks: &'b [B],
        at: impl Fn(&B) -> BlockNo,
        mut take: impl FnMut(&B, &Block),
    ) -> (&'b [B], Result<()>) {
        let (count, len) = near(blocks.iter().map(|block| at(block).0), GAP, REQUEST);
        let (together, left) = blocks.split_at(count);
        let Some(first) = together.first().map(|block| at(block).0) else { return (left, Ok(())) };
        let mut bytes = AlignedBuf::zeroed(len as usize);
        if let Err(error) = self.device.read_at(first * BLOCK_SIZE as u64, &mut bytes) {
            return (left, Err(error.into()));
        }
        for block in together {
            let from = (at(block).0 - first) as usize * BLOCK_SIZE;
            take(block, bytes[from..from + BLOCK_SIZE].try_into().expect("one block"));
        }
        (left, Ok(()))
    }

    /// Reads a block, which the caller verifies.
    pub(crate) fn read_block(&self, at: BlockNo) -> Result<Box<Block>> {
        let mut buf = AlignedBuf::zeroed(1);
        self.device.read_at(at.0 * BLOCK_SIZE as u64, &mut buf)?;
        let mut block = Box::new(ZERO_BLOCK);
        block.copy_from_slice(&buf);
        Ok(block)
    }

    /// Writes a superblock to a slot, and one of the spare superblocks if one says something else; nothing is
    /// flushed. The other spare follows with the next superblock, so one of the two is always whole.
    pub(crate) fn write_superblock(&self, superblock: &Superblock, slot: u32) -> Result<()> {
        let bytes = AlignedBuf::from_slice(&superblock.encode(slot)[..]);
        self.device.write_at(SUPERBLOCKS[slot as usize].0 * BLOCK_SIZE as u64, &bytes)?;
        let wanted = Spare::of(superblock);
        let mut both = self.spares.lock();
        if both.as_ref().is_some_and(|both| both.says_the_same(&wanted)) {
            return Ok(());
        }
        match next_spare(&*self.device, &wanted)? {
            Some((at, block)) => {
                *both = None;
                self.device.write_at(at.0 * BLOCK_SIZE as u64, &AlignedBuf::from_slice(&block[..]))?;
            }
            None => *both = Some(wanted),
        }
        Ok(())
    }

    /// Keeps others from writing to the blocks that spare superblocks share with the record of findings.
    pub(crate) fn hold_spares(&self) -> MutexGuard<'_, Option<Spare>> {
        self.spares.lock()
    }

    /// Verifies a block that was read from where a zone's map leads: first the block itself, then that it is
    /// the copy which the map means.
    pub(crate) fn verify_copy(
        &self,
        block: &Block,
        check: u32,
        addr: MetaAddr,
        at: BlockNo,
    ) -> std::result::Result<(), Box<Corruption>> {
        verify_header(block, addr, self.volume_tag, at)?;
        verify_version(block, check, addr, at)
    }
}

/// The blocks that a superblock says the log has within the volume.
pub(crate) fn log_blocks(superblock: &Superblock) -> Range<u64> {
    let (start, blocks) = (superblock.log_start.0, superblock.log_blocks);
    match superblock.external_log {
        Some(_) => 0..0,
        None => start..start.saturating_add(blocks),
    }
}

/// Seconds since 1970.
pub(crate) fn now_seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Whether `device` holds a volume: a superblock of ours, whole or not, in either slot.
///
/// # Errors
/// [`crate::MetaError::Device`].
pub fn holds_volume(device: &dyn Device) -> Result<bool> {
    if device.size() < 2 * BLOCK_SIZE as u64 {
        return Ok(false);
    }
    for (slot, at) in SUPERBLOCKS.into_iter().enumerate() {
        let mut buf = AlignedBuf::zeroed(1);
        device.read_at(at.0 * BLOCK_SIZE as u64, &mut buf)?;
        let block: &Block = buf[..].try_into().expect("one block");
        if Superblock::decode(block, slot as u32) != SlotState::Foreign {
            return Ok(true);
        }
    }
    Ok(false)
}
