//! Discarding: the device is told which blocks nobody has any more.
//!
//! Runs that a complete generation has freed *wait* here, if they are long enough, before they become
//! available. Housekeeping discards them and then makes them available ([`Alloc::discard_freed`]). Shorter
//! runs become available at once. What waits counts as pending. Who finds nothing available takes what waits,
//! undiscarded, and waits for what is being discarded ([`Alloc::recall`]), so A2 holds.
//!
//! **Why nothing is lost.** Discarding is writing, and the device chooses what. A run is discarded while it
//! could as well be available: a writer could take it, write anything to it, and give it back. So what holds
//! for reusing blocks holds for discarding them. R2: the run comes from [`yore_meta::Reclaimer::reclaim`],
//! behind the flush after superblock G. R3: no state that a crash brings back names the run. Superblock G
//! does not; records of the log from before it are not replayed; those behind it name blocks that the
//! allocator handed out, and these it does not.
//!
//! **What is written again is not discarded.** The discard has returned before the run becomes available, and
//! a device lets what is written after that win ([`yore_device::Device::discard`]). Late data of the run
//! is written before (L3), though nobody reads it.
//!
//! What a replay frees does not come here: bitmaps show it free when they are loaded. Such blocks are
//! discarded when somebody has used and freed them again.
//!
//! A closed end of the volume has no waiting runs: [`Alloc::recall`] takes them when the end is closed, and
//! what comes back later is not queued ([`Alloc::wait_to_be_discarded`]).

use super::space::Alloc;
use super::waiting::Run;
use parking_lot::MutexGuard;
use std::sync::atomic::Ordering;
use yore_device::Device;
use yore_format::{BlockNo, BLOCK_SIZE};
use yore_meta::{Meta, Reclaimer};

/// So many runs wait at most: 1 MiB. Further ones become available at once.
const WAITING_MOST: usize = 1 << 16;

/// Runs that a thread has taken out, and will make available.
struct UnderWay<'a> {
    alloc: &'a Alloc,
    runs: Vec<Run>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.alloc.end_pending(&self.runs);
        let discards = &self.alloc.discards;
        let mut waiting = discards.waiting.lock();
        waiting.under_way -= 1;
        if waiting.under_way == 0 {
            discards.ended.notify_all();
        }
    }
}

impl Alloc {
    /// From now on runs of so many blocks and more are discarded when they have become free.
    pub fn discard_from(&self, blocks: u32) {
        self.discards.least.store(blocks, Ordering::Relaxed);
    }

    /// Takes out what is to be discarded before it becomes available.
    pub(super) fn wait_to_be_discarded(&self, runs: &mut Vec<Run>) {
        let least = self.discards.least.load(Ordering::Relaxed);
        if least == 0 {
            return;
        }
        let mut waiting = self.discards.waiting.lock();
        // Under the lock: who closes the end recalls what was queued before.
        if self.closed_from.load(Ordering::Acquire) != u64::MAX {
            return;
        }
        runs.retain(|run| {
            let waits = run.len >= least && waiting.runs.len() < WAITING_MOST;
            if waits {
                waiting.runs.push_back(*run);
            }
            !waits
        });
    }

    /// Discards runs that wait, up to `most` blocks, while `go_on` says so, and makes them available. Returns
    /// how many blocks it has discarded. A device that cannot, or fails to, is not asked again.
    pub fn discard_freed(&self, meta: &Meta, most: u64, go_on: &dyn Fn() -> bool) -> u64 {
        let mut done = 0;
        #[cfg(feature = "mutations")]
        self.discard_late(meta);
        while done < most && go_on() {
            let Some(taken) = self.next_waiting(most - done) else { break };
            #[cfg(feature = "mutations")]
            if yore_meta::mutation::is(yore_meta::mutation::Mutation::DiscardedLate) {
                self.discards.waiting.lock().left_out.extend(&taken.runs);
                continue;
            }
            for run in &taken.runs {
                if let Err(why) = discard(meta, *run) {
                    tracing::warn!("freed blocks are not discarded any more: {why}");
                    drop(taken);
                    self.discard_from(0);
                    self.recall();
                    return done;
                }
                done += u64::from(run.len);
            }
        }
        done
    }

    /// The first run that waits, or `most` blocks of it.
    fn next_waiting(&self, most: u64) -> Option<UnderWay<'_>> {
        let mut waiting = self.discards.waiting.lock();
        if waiting.recalls > 0 {
            return None;
        }
        let mut run = waiting.runs.pop_front()?;
        if u64::from(run.len) > most {
            let (start, len) = (BlockNo(run.start.0 + most), run.len - most as u32);
            waiting.runs.push_front(Run { start, len });
            run.len = most as u32;
        }
        waiting.under_way += 1;
        Some(UnderWay { alloc: self, runs: vec![run] })
    }

    /// Makes available what waits to be discarded, and waits for what is being discarded. Returns whether
    /// there was any. The caller may hold `grow`, and no lock of a group.
    pub(super) fn recall(&self) -> bool {
        let mut waiting = self.discards.waiting.lock();
        let runs: Vec<Run> = waiting.runs.drain(..).collect();
        if runs.is_empty() && waiting.under_way == 0 {
            return false;
        }
        waiting.recalls += 1;
        waiting.under_way += 1;
        MutexGuard::unlocked(&mut waiting, || drop(UnderWay { alloc: self, runs }));
        while waiting.under_way > 0 {
            self.discards.ended.wait(&mut waiting);
        }
        waiting.recalls -= 1;
        true
    }

    /// Discards what was made available without, again and again.
    #[cfg(feature = "mutations")]
    fn discard_late(&self, meta: &Meta) {
        let left_out = self.discards.waiting.lock().left_out.clone();
        for run in left_out {
            let _ = discard(meta, run);
        }
    }
}

impl Reclaimer for Alloc {
    fn reclaim(&self, runs: &[(BlockNo, u32)]) {
        let mut runs = merged(runs.iter().map(|(start, len)| Run { start: *start, len: *len }).collect());
        self.wait_to_be_discarded(&mut runs);
        self.end_pending(&runs);
    }
}

/// Sorts runs that have no block in common, and makes one of those that follow each other. No run reaches
/// over a group's end, because the next group begins with a zone.
fn merged(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_unstable_by_key(|run| run.start.0);
    runs.dedup_by(|next, run| {
        let follows = run.end() == next.start.0;
        if follows {
            run.len += next.len;
        }
        follows
    });
    runs
}

fn discard(meta: &Meta, run: Run) -> Result<(), String> {
    let device = meta.device();
    let block = BLOCK_SIZE as u64;
    device.discard(run.start.0 * block, u64::from(run.len) * block).map_err(|error| error.to_string())?;
    match device.can_discard() {
        true => Ok(()),
        false => Err(format!("{} cannot do that", device.describe())),
    }
}
