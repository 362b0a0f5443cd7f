//! Freeing blocks that nobody has, while the volume is in use.
//!
//! **K1 A leak is a fact.** A block that a generation marks as used, and that nothing in this generation has,
//! stays so: calls take only blocks that are marked free, and free only what somebody has. So what a check of
//! that generation says of it is true at any later time, until somebody frees it here.

use super::groups::PinnedGroups;
use super::space::{Alloc, Run};
use crate::Result;
use yore_format::{BitmapRef, BlockKind, Expect, MetaAddr, ZoneNo};
use yore_meta::{Meta, Reserved};

impl Alloc {
    /// Frees those of these blocks that are marked used. A check has found that they belong to nobody. Blocks
    /// of which a table counts references are left alone: that is more than a leak. Returns how many were
    /// freed; they are available once the generation is complete.
    ///
    /// # Errors
    /// `Corruption` for a run that no data can have; reading bitmaps and tables may fail.
    pub fn free_leaked(&self, meta: &Meta, run: Run) -> Result<u64> {
        let (no, bit) = self.group_and_bit(run)?;
        if meta.taken_block(no, run.start, run.len)?.is_some() {
            return Ok(0);
        }
        let references = self.references(meta, run)?;
        let bitmap = meta.read(MetaAddr::new(ZoneNo::primary(no), 0), &Expect::volume(BlockKind::Bitmap))?;
        let mut runs: Vec<(u32, u32)> = Vec::new();
        {
            let page = bitmap.read();
            let bits = BitmapRef::new(&page);
            for (at, references) in (bit..).zip(&references) {
                if *references != 1 || !bits.get(at) {
                    continue;
                }
                match runs.last_mut() {
                    Some((first, len)) if *first + *len == at => *len += 1,
                    _ => runs.push((at, 1)),
                }
            }
        }
        if runs.is_empty() {
            return Ok(0);
        }
        let mut pinned = PinnedGroups::default();
        for (bit, len) in &runs {
            let run = Run { start: self.geometry().block_of(no, *bit), len: *len };
            self.prepare_free(meta, run, &mut pinned)?;
        }
        let mut op = meta.begin(Reserved::none());
        self.free(&mut op, no, &runs);
        drop(op);
        Ok(runs.iter().map(|(_, len)| u64::from(*len)).sum())
    }
}
