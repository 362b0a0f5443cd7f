//! What laying the pieces of a file together needs: long runs or none, and who else has its blocks.

use super::counts::parts;
use super::space::{Alloc, Run};
use crate::Result;
use std::sync::atomic::Ordering;
use yore_format::{BlockNo, CountTableRef, GroupNo, WriteFeatures, BITS_PER_GROUP};
use yore_meta::Meta;

/// How many groups are searched for a run.
const GROUPS_SEARCHED: u32 = 64;

/// The other owners of blocks that an inode in use has: those outside of its own chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// Nobody.
    Nobody,
    /// Only versions, or nobody whose reference is in use.
    Past,
    /// Another file, or another part of the same one, in the present.
    InUse,
}

impl Alloc {
    /// Who else has the first of these blocks, and for how many of them that holds. An inode in use names
    /// them. Without shared blocks on the volume this costs an atomic load.
    ///
    /// # Errors
    /// `Corruption` for a run that no data can have; reading a table may fail.
    pub fn others(&self, meta: &Meta, run: Run) -> Result<(Others, u32)> {
        if !meta.has_features(WriteFeatures::TABLES) {
            return Ok((Others::Nobody, run.len));
        }
        let (no, bit) = self.group_and_bit(run)?;
        let (mut first, mut at) = (None, 0);
        for (table, entry, n) in parts(no, bit, run.len) {
            let frame = self.read_table(meta, table)?;
            let page = frame.as_ref().map(|frame| frame.read());
            for i in 0..n as usize {
                let count = page.as_ref().and_then(|page| CountTableRef::new(page).get(entry + i));
                let others = match count {
                    None => Others::Nobody,
                    Some(count) if count.in_use <= 1 => Others::Past,
                    Some(_) => Others::InUse,
                };
                if *first.get_or_insert(others) != others {
                    return Ok((first.unwrap_or(others), at));
                }
                at += 1;
            }
        }
        Ok((first.unwrap_or(Others::Nobody), run.len))
    }

    /// Takes `want` consecutive available blocks, as near after `goal` as there are so many; `None` if no
    /// group nearby has them. The caller holds a promise for them, which this spends. Withheld room stays
    /// alone, and nothing waits for a generation.
    ///
    /// # Errors
    /// Reading a bitmap may fail.
    pub fn take_whole(&self, meta: &Meta, goal: BlockNo, want: u32) -> Result<Option<Run>> {
        let want = want.clamp(1, BITS_PER_GROUP);
        let groups = self.geometry().groups();
        let first = self.geometry().group_of(goal).0.min(groups - 1);
        let mut searched = 0;
        for at in 0..groups {
            let no = GroupNo((first + at) % groups);
            if self.known_available(no).is_some_and(|available| available < want) {
                continue;
            }
            if searched == GROUPS_SEARCHED {
                break;
            }
            searched += 1;
            let bit = match self.geometry().bit_of(goal) {
                Some((group, bit)) if group == no => bit,
                _ => 0,
            };
            if let Some(run) = self.take_whole_in(meta, no, bit, want)? {
                self.promised.fetch_sub(i64::from(run.len), Ordering::Relaxed);
                return Ok(Some(run));
            }
        }
        Ok(None)
    }

    /// The same in one group, at or after this place in it. It spends no promise.
    pub(super) fn take_whole_in(
        &self,
        meta: &Meta,
        no: GroupNo,
        from: u32,
        want: u32,
    ) -> Result<Option<Run>> {
        let summary = meta.group_summary(no)?;
        if !summary.initialised && !self.initialise(meta, no)? {
            return Ok(None);
        }
        let (group, _) = self.load(meta, no)?;
        let taken = {
            let mut state = group.state.lock();
            let found = state.find_from(from, want, false).filter(|(_, len)| *len == want);
            found.map(|(bit, len)| (bit, state.take(bit, len, false)))
        };
        self.note_available(no, &group);
        Ok(taken.map(|(bit, len)| Run { start: self.geometry().block_of(no, bit), len }))
    }

    /// Free blocks that can be handed out now: without those that an incomplete generation freed, and those
    /// that were promised.
    pub fn free_now(&self) -> u64 {
        (self.unpromised.load(Ordering::Relaxed) - self.pending() as i64).max(0) as u64
    }

    /// Blocks that incomplete generations have freed.
    pub fn pending(&self) -> u64 {
        self.pending.load(Ordering::Relaxed).max(0) as u64
    }
}
