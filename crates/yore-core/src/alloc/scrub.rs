//! Reading all data that has checksums, in the order of the medium.
//!
//! What does not match, or cannot be read, is a *candidate*: the block may be free by now, or be another's,
//! or be allocated and never written. Who has the names of files asks each owner again, under its lock
//! ([`Alloc::verify_block`]).

use super::space::{Alloc, Run};
use crate::Result;
use std::ops::ControlFlow;
use yore_device::AlignedBuf;
use yore_format::{BitmapRef, BlockNo, GroupNo, BLOCK_SIZE};
use yore_meta::{Meta, Patience};

/// Blocks that are read at a time: 2 MiB, from which on a buffer is a huge page ([`AlignedBuf`]).
const TOGETHER: u32 = 512;

impl Alloc {
    /// Reads the blocks in use from `from` on that have checksums. `wrong` is called with each that is a
    /// candidate, `told` with the block where the scrub is and how many of them were read: it says whether to
    /// go on. O(volume).
    ///
    /// # Errors
    /// Damage of metadata; device errors, but not those of single blocks of data.
    pub fn scrub(
        &self,
        meta: &Meta,
        from: BlockNo,
        wrong: &mut dyn FnMut(BlockNo),
        told: &mut dyn FnMut(BlockNo, u64) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let geometry = self.geometry();
        let (mut buffer, mut patience) = (AlignedBuf::zeroed(TOGETHER as usize), Patience::default());
        let first = geometry.group_of(BlockNo(from.0.min(geometry.blocks.saturating_sub(1))));
        for group in (first.0..geometry.groups()).map(GroupNo) {
            if !meta.group_summary(group)?.initialised {
                continue;
            }
            let usable = geometry.data_blocks(group) as u32;
            let mut bit = from.0.saturating_sub(geometry.data_start(group).0).min(u64::from(usable)) as u32;
            while bit < usable {
                let run = {
                    let (_, frame) = self.load(meta, group)?;
                    let page = frame.read();
                    let map = BitmapRef::new(&page);
                    let Some(first) = (bit..usable).find(|bit| map.get(*bit)) else { break };
                    let end = (first..usable.min(first + TOGETHER)).take_while(|bit| map.get(*bit)).count();
                    Run { start: geometry.block_of(group, first), len: end as u32 }
                };
                bit = (run.end() - geometry.data_start(group).0) as u32;
                self.read_checksums_ahead(meta, run);
                let checksums = self.checksums(meta, run)?;
                let known = (0..run.len as usize).filter(|i| checksums.get(*i).is_some()).count() as u64;
                if known > 0 {
                    let bytes = &mut buffer[..run.len as usize * BLOCK_SIZE];
                    patience.read(&**meta.device(), run.start, bytes, &mut |at, error| {
                        tracing::error!("a block of file data cannot be read: {error}");
                        wrong(BlockNo(run.start.0 + at as u64));
                    })?;
                    for i in checksums.all_wrong(bytes.chunks(BLOCK_SIZE)) {
                        wrong(BlockNo(run.start.0 + i.at as u64));
                    }
                }
                if told(BlockNo(run.end()), known).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Reads a block that a file has as written, and says whether it is damaged: it is not what its checksum
    /// says, or cannot be read. The caller holds what keeps it the file's.
    ///
    /// # Errors
    /// Damage of metadata; device errors that are of more than the block.
    pub fn verify_block(&self, meta: &Meta, block: BlockNo) -> Result<bool> {
        let checksums = self.checksums(meta, Run { start: block, len: 1 })?;
        let (mut bytes, mut is_readable) = (AlignedBuf::zeroed(1), true);
        Patience::default().read(&**meta.device(), block, &mut bytes, &mut |_, _| is_readable = false)?;
        Ok(!is_readable || checksums.first_wrong([&bytes[..]]).is_some())
    }
}
