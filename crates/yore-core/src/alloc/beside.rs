//! Room for what is written beside a generation, in blocks that the bitmap has as free.

use super::space::{Alloc, Run};
use crate::Result;
use std::sync::atomic::Ordering;
use yore_format::{BlockNo, GroupNo, BITS_PER_GROUP};
use yore_meta::Meta;

/// How many groups are asked whether they have room, and how many of them are searched for it.
const GROUPS_ASKED: u32 = 4096;
const GROUPS_SEARCHED: u32 = 8;

impl Alloc {
    /// Takes `want` consecutive available blocks of a group in use that nobody gives back or enters anywhere:
    /// on the medium they stay free, and until the volume is opened again nobody else gets them. `None`:
    /// there are none nearby, or they are promised.
    ///
    /// # Errors
    /// Reading a bitmap may fail.
    pub fn take_beside(&self, meta: &Meta, goal: BlockNo, want: u32) -> Result<Option<Run>> {
        if want == 0 || want > BITS_PER_GROUP {
            return Ok(None);
        }
        let Some(mut promise) = self.try_promise(meta, want.into(), 0) else { return Ok(None) };
        let groups = self.geometry().groups();
        let first = self.geometry().group_of(goal).0.min(groups - 1);
        let mut searched = 0;
        for at in 0..groups.min(GROUPS_ASKED) {
            let no = GroupNo((first + at) % groups);
            let summary = meta.group_summary(no)?;
            if !summary.initialised || summary.free_blocks < want {
                continue;
            }
            if let Some(run) = self.take_whole_in(meta, no, 0, want)? {
                promise.take_out(want.into());
                self.promised.fetch_sub(want.into(), Ordering::Relaxed);
                return Ok(Some(run));
            }
            searched += 1;
            if searched == GROUPS_SEARCHED {
                break;
            }
        }
        Ok(None)
    }
}
