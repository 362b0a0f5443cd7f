//! A file as its pages see it: which page holds a byte, and what is at a block.

use crate::{Error, Result};
use yore_core::alloc::Run;
use yore_core::datacache::read_run;
use yore_core::extent::{self, Mapping};
use yore_core::inode::InodeState;
use yore_core::Core;
use yore_device::AlignedBuf;
use yore_format::{BlockNo, InodeNo, BLOCK_SIZE};

/// Bytes of a page.
pub(super) const PAGE: u64 = BLOCK_SIZE as u64;
/// How many pages the longest single transfer has: 1 MiB.
pub(super) const TRANSFER: u32 = 256;

/// What a call changes in the inode in addition to size and blocks: its times, and its mode where writing
/// drops bits.
pub(crate) type Touch<'a> = &'a mut dyn FnMut(&mut InodeState);

/// What is at a block of the file for readers and writers: its extents without the doomed ones.
pub(super) fn map_block(store: &Core, no: InodeNo, state: &InodeState, block: u64) -> Result<Mapping> {
    let mapping = |block| extent::mapping(&store.meta, &store.alloc, no, &state.inode, block);
    let Some(doomed) = &state.data.doomed else { return mapping(block) };
    if doomed.contains(&block) {
        return Ok(Mapping::hole(doomed.end - block));
    }
    let mut found = mapping(block)?;
    if block < doomed.start {
        found.len = found.len.min(doomed.start - block);
        if let Some(extent) = &mut found.extent {
            extent.len = found.len as u32;
        }
    }
    Ok(found)
}

/// As [`map_block`], for a caller who asks whether the block may be written over: what another file has, too,
/// and what has a checksum, is marked as shared, and the mapping ends where that changes.
pub(super) fn map_to_write(store: &Core, no: InodeNo, state: &InodeState, block: u64) -> Result<Mapping> {
    let mut found = map_block(store, no, state, block)?;
    if let Some(extent) = found.extent.as_mut().filter(|extent| !extent.unwritten) {
        let run = Run { start: extent.start, len: extent.len };
        let (is_sole, len) = store.alloc.in_place_part(&store.meta, run)?;
        (extent.shared, extent.len, found.len) = (!is_sole, len, u64::from(len));
    }
    Ok(found)
}

/// Reads up to `count` pages from `page` on, which lie in blocks from `start` on, and verifies them. At least
/// one is returned.
///
/// # Errors
/// The device's; `Corruption` if the first block does not hold what was written to it.
pub(super) fn read_blocks(
    store: &Core,
    no: InodeNo,
    state: &InodeState,
    start: BlockNo,
    (page, count): (u32, u32),
) -> Result<Vec<AlignedBuf>> {
    let checksums = store.alloc.checksums(&store.meta, Run { start, len: count })?;
    let device = &**store.meta.device();
    let read = read_run(device, start, page, count, state.data.medium_size, &checksums);
    read.map_err(|e| match e {
        Error::Corruption(c) => {
            let c = c.of(no);
            store.met.note(start.0);
            tracing::error!("{c}");
            c.into()
        }
        e => e,
    })
}

/// The page that holds a byte. File sizes are limited so that every page has a 32-bit index.
pub(super) fn page_of(offset: u64) -> u32 {
    u32::try_from(offset / PAGE).expect("offsets are within the largest file")
}

/// The number of pages that `size` bytes take.
pub(super) fn pages_for(size: u64) -> u32 {
    u32::try_from(size.div_ceil(PAGE)).expect("sizes are within the largest file")
}

pub(super) fn check_alive(state: &InodeState) -> Result<()> {
    match state.gone {
        true => Err(Error::Stale),
        false => Ok(()),
    }
}
