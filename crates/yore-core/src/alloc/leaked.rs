//! Freeing blocks that nobody has, and counting what nobody has counted, while the volume is in use.
//!
//! **K1 A leak is a fact.** A block that a generation marks as used, and that nothing in this generation has,
//! stays so: calls take only blocks that are marked free, and free only what somebody has. So what a check of
//! that generation says of it is true at any later time, until somebody frees it here.

use super::groups::PinnedGroups;
use super::space::{Alloc, Run};
use crate::Result;
use std::sync::atomic::Ordering;
use yore_format::{
    table_of, BitmapRef, BlockCount, BlockKind, BlockNo, CountTableMut, CountTableRef, Expect, MetaAddr,
    ZoneNo,
};
use yore_meta::{Meta, Reserved, TotalsGrowth};

impl Alloc {
    /// Adds what the volume's totals lack, as a check has found. What was lacking of free blocks can be
    /// promised from now on.
    ///
    /// # Errors
    /// Those of [`Meta::correct_totals`].
    pub fn correct_totals(&self, meta: &Meta, by: TotalsGrowth) -> Result<()> {
        meta.correct_totals(by)?;
        self.unpromised.fetch_add(by.free_blocks, Ordering::Relaxed);
        Ok(())
    }

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
        drop(pinned);
        drop(op);
        Ok(runs.iter().map(|(_, len)| u64::from(*len)).sum())
    }

    /// Lowers the count of a block's references by so many as a check has found to be too many; `by` has how
    /// many there are, and how many of them are in use. Calls count what they gain and let go of, so the
    /// difference stays. A block of which no reference is left is marked used, and the next check finds it.
    /// False, and nothing is changed, if the count is not so high any more.
    ///
    /// # Errors
    /// `Corruption` for a block that no data can have; reading the table may fail.
    pub fn lower_references(&self, meta: &Meta, block: BlockNo, by: BlockCount) -> Result<bool> {
        let run = Run { start: block, len: 1 };
        let (no, bit) = self.group_and_bit(run)?;
        let mut pinned = PinnedGroups::default();
        self.pin_tables(meta, (no, bit, 1), &mut pinned.tables)?;
        let (table, entry) = table_of(no, bit);
        let Some(frame) = pinned.tables.tables.get(&table) else { return Ok(false) };
        let mut op = meta.begin(Reserved::none());
        // Whoever else changes the entry does so in the block, too, so it is examined where it is changed.
        let (lowered, _) = op.change(frame, |page| {
            let was = CountTableRef::new(page.block()).get(entry);
            let references = was.and_then(|was| was.references.checked_sub(by.references));
            let in_use = was.and_then(|was| was.in_use.checked_sub(by.in_use));
            let (Some(references), Some(in_use)) = (references, in_use) else { return None };
            let is = BlockCount { references, in_use };
            page.apply(|block| CountTableMut::new(block).set(entry, (references > 1).then_some(is)));
            Some(references)
        });
        if lowered.is_some_and(|references| references <= 1) {
            self.note_lowered(run, op.generation().0);
        }
        drop(op);
        self.note_emptied(table);
        Ok(lowered.is_some())
    }
}
