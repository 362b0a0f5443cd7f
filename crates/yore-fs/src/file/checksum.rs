//! Entering checksums of data that was there before the volume kept any.
//!
//! Of a run of blocks the bytes are read, and an Op enters their checksums, while nothing of that can change:
//! the state's lock keeps the extents of a file as it is, and forgetting is held back while a version is
//! looked at. The device is flushed before the Op counts. Nobody writes over such a block any more, for data
//! that is accepted since the volume keeps checksums goes elsewhere. What was accepted before is recognised:
//! its page is newer than the medium and has no promise. Its block is left out; where it is written back, it
//! has no checksum ([`super::batch`]).
//!
//! Nothing says how far a walk has come, because it enters only what is not known: whoever walks again goes
//! on where others have stopped, and a crash between two Ops leaves blocks of which no checksum is known.

use super::flush::flush_file;
use super::history::History;
use super::map::map_block;
use crate::Result;
use std::sync::Arc;
use yore_core::alloc::{PinnedGroups, Run};
use yore_core::extent;
use yore_core::inode::{InodeCell, InodeState};
use yore_core::Core;
use yore_device::AlignedBuf;
use yore_format::{BlockNo, DataChecksum, Inode, InodeNo, BLOCK_SIZE};

/// Blocks of one Op: 1 MiB.
const TOGETHER: u32 = 256;

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entered {
    /// Blocks whose checksums were entered.
    pub(crate) blocks: u64,
    /// Blocks of which none is known after all.
    pub(crate) left: u64,
}

impl Entered {
    /// Adds what was done elsewhere.
    pub(crate) fn add(&mut self, other: Entered) {
        self.blocks += other.blocks;
        self.left += other.left;
    }
}

/// Enters the checksums of the next blocks of a file from file block `at` on, as far as they are not known.
/// Returns where to go on; `None` at the end.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn enter_missing(
    store: &impl History,
    cell: &Arc<InodeCell>,
    at: u64,
    entered: &mut Entered,
) -> Result<Option<u64>> {
    if at == 0 {
        flush_file(store, cell)?;
    }
    let missing = {
        let state = cell.state.read();
        if state.gone || !state.inode.is_regular() {
            return Ok(None);
        }
        next_missing(store, cell.no, &state.inode, at)?
    };
    let Some((first, run)) = missing else { return Ok(None) };
    store.alloc.make_checksum_tables(&store.meta, run)?;
    let _io = cell.io.lock();
    let state = cell.state.read();
    let mapping = map_block(store, cell.no, &state, first)?;
    if state.gone || mapping.extent.is_none_or(|e| e.unwritten || e.start != run.start) {
        return Ok(Some(first)); // It has changed; what it is now is looked at again.
    }
    let run = Run { len: run.len.min(mapping.len as u32), ..run };
    entered.add(enter_run(store, cell.no, run, &|i| is_older(&state, first + i))?);
    Ok(Some(first + u64::from(run.len)))
}

/// Whether the page has bytes that were accepted before the volume kept checksums.
fn is_older(state: &InodeState, block: u64) -> bool {
    let page = block as u32;
    state.data.cached().is_some_and(|pages| pages.is_unstable(page) && pages.promised_in(page, page + 1) == 0)
}

/// As [`enter_missing`], for a version. The caller holds forgetting back.
///
/// # Errors
/// As [`enter_missing`].
pub(crate) fn enter_missing_of_version(
    store: &impl History,
    no: InodeNo,
    inode: &Inode,
    at: u64,
    entered: &mut Entered,
) -> Result<Option<u64>> {
    let Some((first, run)) = next_missing(store, no, inode, at)? else { return Ok(None) };
    store.alloc.make_checksum_tables(&store.meta, run)?;
    entered.add(enter_run(store, no, run, &|_| false)?);
    Ok(Some(first + u64::from(run.len)))
}

/// Calls `each` with the first block and the number of blocks that have data of a file and no checksum. The
/// caller holds what keeps them the file's.
///
/// # Errors
/// As [`enter_missing`].
pub(crate) fn each_missing(
    store: &Core,
    no: InodeNo,
    inode: &Inode,
    each: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let mut at = 0;
    while let Some((first, run)) = next_missing(store, no, inode, at)? {
        let known = store.alloc.checksums(&store.meta, run)?;
        let len = (0..run.len).take_while(|i| known.get(*i as usize).is_none()).count() as u64;
        each(run.start.0, len);
        at = first + len;
    }
    Ok(())
}

/// The first blocks from `at` on of which no checksum is known: their place in the file, and where they are.
fn next_missing(store: &Core, no: InodeNo, inode: &Inode, at: u64) -> Result<Option<(u64, Run)>> {
    use yore_format::ContentKind::{Extents, Tree};
    if !matches!(inode.content_kind, Extents | Tree) {
        return Ok(None);
    }
    let mut found = None;
    extent::each(&store.meta, no, inode, at, &mut |(key, value)| {
        let mut skip = at.saturating_sub(key) as u32;
        while !value.unwritten && skip < value.len {
            let len = (value.len - skip).min(TOGETHER);
            let run = Run { start: BlockNo(value.start.0 + u64::from(skip)), len };
            extent::check_run(&store.meta, &store.alloc, no, run)?;
            let known = store.alloc.checksums(&store.meta, run)?;
            if let Some(first) = (0..len).find(|i| known.get(*i as usize).is_none()) {
                let run = Run { start: BlockNo(run.start.0 + u64::from(first)), len: len - first };
                found = Some((key + u64::from(skip + first), run));
                return Ok(false);
            }
            skip += len;
        }
        Ok(true)
    })?;
    Ok(found)
}

/// Enters the checksums of blocks that nobody changes, but for those that are `left_out`.
fn enter_run(store: &Core, no: InodeNo, run: Run, left_out: &dyn Fn(u64) -> bool) -> Result<Entered> {
    let mut pinned = PinnedGroups::default();
    store.alloc.prepare_known(&store.meta, run, &mut pinned)?;
    let reserved = store.reserve_freely(store.near(no), 0)?;
    let mut bytes = AlignedBuf::zeroed(run.len as usize);
    store.meta.device().read_at(run.start.0 * BLOCK_SIZE as u64, &mut bytes)?;
    let known = store.alloc.checksums(&store.meta, run)?;
    let checksums: Vec<_> = (0u64..)
        .zip(bytes.chunks(BLOCK_SIZE))
        .map(|(i, block)| match known.get(i as usize) {
            None if left_out(i) => None,
            None => Some(DataChecksum::of(block)),
            known => known,
        })
        .collect();
    let new =
        checksums.iter().enumerate().filter(|(i, sum)| sum.is_some() && known.get(*i).is_none()).count();
    store.meta.note_data_named();
    let mut op = store.meta.begin(reserved);
    store.alloc.enter_known(&mut op, run, &checksums);
    drop(op);
    let after = store.alloc.checksums(&store.meta, run)?;
    let left = (0..run.len as usize).filter(|i| after.get(*i).is_none()).count() as u64;
    Ok(Entered { blocks: (new as u64).saturating_sub(left), left })
}

#[cfg(test)]
mod tests;
