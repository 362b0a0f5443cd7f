//! Erasing what free blocks hold, while others use the volume.
//!
//! A run is taken, erased, and given back, so nobody gets a block that is being overwritten. Blocks that are
//! taken cannot be promised meanwhile, but they are few. Where no block is left to be promised, a run waits
//! until some are, or is left out and counted.

use super::space::{Alloc, Run};
use crate::Result;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use yore_format::{GroupNo, BITS_PER_GROUP, BLOCK_SIZE};
use yore_meta::{AskZone, Meta};

/// The most blocks that are erased at a time.
const RUN: u32 = 1024;

impl Alloc {
    /// Erases what lies in the free blocks of all groups that were ever used. Returns how many blocks it had
    /// to leave out because all free blocks were promised to writers. `Break`: `ask` told it to stop.
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn erase_free(&self, meta: &Meta, ask: AskZone<'_>) -> Result<ControlFlow<(), u64>> {
        let mut left_out = 0;
        self.recall();
        for no in (0..self.geometry().groups()).map(GroupNo) {
            meta.check_writable()?;
            if !meta.group_summary(no)?.initialised {
                continue;
            }
            let mut at = 0;
            while at < BITS_PER_GROUP {
                let (group, _) = self.load(meta, no)?;
                let Some((bit, len)) = group.state.lock().next_run(at, RUN) else { break };
                at = bit + len;
                let withdrawn = self.unpromised.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
                    free.checked_sub(i64::from(len)).filter(|left| *left >= 0)
                });
                if withdrawn.is_err() {
                    left_out += u64::from(len);
                    continue;
                }
                // Another thread may have taken some of it first, and that one overwrites it.
                let taken = group.state.lock().take(bit, len, true);
                let erased = match taken {
                    0 => Ok(()),
                    taken => {
                        let run = Run { start: self.geometry().block_of(no, bit), len: taken };
                        let block = BLOCK_SIZE as u64;
                        let erased = meta.device().erase(run.start.0 * block, u64::from(taken) * block);
                        self.make_available(run);
                        erased
                    }
                };
                self.unpromised.fetch_add(i64::from(len), Ordering::Relaxed);
                erased?;
                at = bit + taken.max(1);
            }
            if ask().is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(left_out))
    }
}
