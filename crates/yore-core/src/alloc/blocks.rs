//! Taking blocks for data, entering them in bitmaps, and freeing them.

use super::groups::{bitmap, mark, PinnedGroups};
use super::space::{Alloc, Run, GROUPS_TRIED, REGION};
use crate::{Error, Result};
use std::sync::atomic::Ordering;
use yore_format::layout::ZONE_BLOCKS;
use yore_format::{BlockNo, GroupNo, BITS_PER_GROUP};
use yore_meta::{Change, Meta, Op, Reserved};

/// A run this long is taken at once: no search for a longer one.
const RUN_GOOD: u32 = 256;

impl Alloc {
    /// Takes up to `want` consecutive available blocks, at least one, as near after `goal` as it can. The
    /// caller holds a promise for them, which this spends. `Alloc::commit` enters them in the bitmap, or
    /// [`Alloc::untake`] gives them back.
    ///
    /// # Errors
    /// Reading a bitmap, or the commit that was needed to make freed blocks available, may fail.
    pub fn take(&self, meta: &Meta, goal: BlockNo, want: u32) -> Result<Run> {
        let want = want.clamp(1, BITS_PER_GROUP);
        // A promise is for a block that is available or pending. Those that a generation makes available may
        // all go to others, who had promises, too; what is promised here is pending again then. So this ends
        // only where nothing was pending when a search began, and a second one finds nothing either.
        let mut was_pending = true;
        loop {
            let is_pending = self.pending() > 0;
            let found = loop {
                let found = self.search(meta, goal, want, false)?;
                if found.is_some() || !self.recall() {
                    break found;
                }
            };
            let found = match found {
                None => self.search(meta, goal, want, true)?,
                found => found,
            };
            if let Some(run) = found {
                self.promised.fetch_sub(i64::from(run.len), Ordering::Relaxed);
                return Ok(run);
            }
            if !meta.may_wait() || !(is_pending || was_pending) {
                return Err(Error::NoSpace);
            }
            was_pending = is_pending;
            self.give_back_zones(meta)?;
            meta.sync()?;
        }
    }

    fn search(&self, meta: &Meta, goal: BlockNo, want: u32, withheld: bool) -> Result<Option<Run>> {
        let groups = self.geometry().groups();
        let goal_group = self.geometry().group_of(goal).0.min(groups - 1);
        let first = if self.known_available(GroupNo(goal_group)) == Some(0) {
            self.spill.load(Ordering::Relaxed).min(groups - 1)
        } else {
            goal_group
        };
        let (mut tried, mut best) = (0, None);
        let mut at = 0;
        while at < groups {
            let no = (first + at) % groups;
            let region = self.regions.get(no / REGION);
            let reclaimed = region.reclaimed.load(Ordering::Acquire);
            let end = (no / REGION + 1) * REGION;
            let span = end.min(groups) - no;
            let span = span.min(groups - at);
            if region.empty_at[usize::from(withheld)].load(Ordering::Relaxed) == reclaimed.wrapping_add(1) {
                at += span;
                continue;
            }
            let mut found = false;
            for no in no..no + span {
                let bit = match self.geometry().bit_of(goal) {
                    Some((group, bit)) if group.0 == no => Some(bit),
                    _ => None,
                };
                let Some(run) = self.search_group(meta, GroupNo(no), bit, want, withheld)? else { continue };
                found = true;
                if run.len >= want.min(RUN_GOOD) || (bit.is_some() && run.start == goal) {
                    best = Some(run);
                    tried = GROUPS_TRIED;
                } else {
                    best = best.filter(|b: &Run| b.len >= run.len).or(Some(run));
                    tried += 1;
                }
                if tried >= GROUPS_TRIED {
                    break;
                }
            }
            if !found && span >= REGION.min(groups) {
                region.empty_at[usize::from(withheld)].store(reclaimed.wrapping_add(1), Ordering::Relaxed);
            }
            if tried >= GROUPS_TRIED {
                break;
            }
            at += span;
        }
        let Some(best) = best else { return Ok(None) };
        // The run is found but not taken yet: if another thread was faster, the search starts again.
        match self.claim(meta, best, want, withheld)? {
            Some(run) => Ok(Some(run)),
            None => self.search(meta, goal, want, withheld),
        }
    }

    /// The run that the group has to offer.
    fn search_group(
        &self,
        meta: &Meta,
        no: GroupNo,
        goal: Option<u32>,
        want: u32,
        withheld: bool,
    ) -> Result<Option<Run>> {
        if self.known_available(no) == Some(0) {
            return Ok(None);
        }
        if self.known_available(no).is_none() {
            let summary = meta.group_summary(no)?;
            if !summary.initialised && !self.initialise(meta, no)? {
                return Ok(None);
            }
            if summary.free_blocks == 0 {
                // This is not noted as known: another thread may be freeing there just now.
                return Ok(None);
            }
        }
        let (group, _) = self.load(meta, no)?;
        let found = group.state.lock().find(goal, want, withheld);
        self.note_available(no, &group);
        Ok(found.map(|(bit, len)| Run { start: self.geometry().block_of(no, bit), len }))
    }

    fn claim(&self, meta: &Meta, run: Run, want: u32, withheld: bool) -> Result<Option<Run>> {
        let (no, bit) = self.geometry().bit_of(run.start).expect("a group's run is in its data area");
        let (group, _) = self.load(meta, no)?;
        let taken = group.state.lock().take(bit, run.len.min(want), withheld);
        self.note_available(no, &group);
        self.spill.store(no.0, Ordering::Relaxed);
        Ok((taken > 0).then_some(Run { start: run.start, len: taken }))
    }

    /// Gives back blocks that were taken and not entered, after a failed write. The promise for them is valid
    /// again.
    pub fn untake(&self, run: Run) {
        self.promised.fetch_add(i64::from(run.len), Ordering::Relaxed);
        self.make_available(run);
    }

    /// Enters taken blocks in the bitmap. Called inside an Op, after [`Alloc::prepare_commit`].
    pub(crate) fn commit(&self, op: &mut Op<'_>, run: Run) -> Change {
        let (no, bit) = self.group_and_bit(run).expect("taken blocks are data blocks");
        let frame = op.cached(bitmap(no)).expect("the bitmap was prepared");
        let change = mark(op, &frame, &[(bit, run.len)], true);
        op.count_free_blocks(no, -i64::from(run.len));
        self.loaded(no).state.lock().settle(run.len);
        change
    }

    /// Frees blocks of a group that nobody has: places in the group, and lengths. They are available once the
    /// Op's generation is complete.
    pub(super) fn free(&self, op: &mut Op<'_>, no: GroupNo, runs: &[(u32, u32)]) -> Change {
        let blocks = runs.iter().map(|(_, len)| len).sum();
        let frame = op.cached(bitmap(no)).expect("the bitmap was prepared");
        self.loaded(no).state.lock().owe(blocks);
        let change = mark(op, &frame, runs, false);
        op.count_free_blocks(no, i64::from(blocks));
        for (bit, len) in runs {
            op.free_after_commit(self.geometry().block_of(no, *bit), *len);
        }
        self.pending.fetch_add(i64::from(blocks), Ordering::Relaxed);
        self.unpromised.fetch_add(i64::from(blocks), Ordering::Relaxed);
        change
    }

    /// Takes empty zones out of their groups; their blocks become available with the next generation.
    pub fn give_back_zones(&self, meta: &Meta) -> Result<()> {
        let _grow = self.grow.lock();
        while let Some(zone) = meta.take_empty_zone() {
            let run = Run { start: zone.start(), len: ZONE_BLOCKS as u32 };
            let mut pinned = PinnedGroups::default();
            self.prepare_free(meta, run, &mut pinned)?;
            let (no, bit) = self.group_and_bit(run)?;
            let mut op = meta.begin(Reserved::none());
            op.remove_zone(&zone);
            self.free(&mut op, no, &[(bit, run.len)]);
            drop(pinned);
        }
        Ok(())
    }
}
