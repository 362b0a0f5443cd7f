//! Recounts that are under way behind a crash ([`crate::View::begin_recount`]), and calls that wait for what
//! they free.
//!
//! Under an engine that orders changes a crash leaves blocks that are marked used and that nobody has. They
//! are free again when a recount has found them. So a call that finds no room while one is under way waits,
//! and tries again whenever something was freed and can be used, until the recount is over.
//!
//! - **W1** *A call that waits holds no lock.* It may hold a passage of the gate. A recount does not wait for
//!   that, unless a rollback waits in turn. So no call waits while a directory is rolled back.
//! - **W2** *A recount does not wait for itself.* It works on behalf of nobody, and calls on behalf of nobody
//!   do not wait. What the volume does by itself does not wait, either: it can be done later.
//! - **W3** *Nobody waits longer than [`LONGEST`]* in one call. A recount of a large volume takes longer;
//!   then the call fails as it would have at once.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// How long a call waits at most.
pub(crate) const LONGEST: Duration = Duration::from_secs(30);
/// How often a call that waits looks whether it still may (W1).
const PAUSE: Duration = Duration::from_millis(50);
/// [`Recounts::percent`]: nothing is known.
const NO_PERCENT: u8 = u8::MAX;

/// The recounts of a volume.
pub(crate) struct Recounts {
    /// How many are under way: one works, and others may wait for it.
    under_way: Mutex<u32>,
    /// How often a recount has given something back that can be used since. It grows while `under_way` is
    /// locked, so that nobody misses it who is about to wait.
    freed: AtomicU64,
    changed: Condvar,
    /// How far the recount in the background is, in percent; [`NO_PERCENT`] if there is none.
    percent: AtomicU8,
}

impl Default for Recounts {
    fn default() -> Recounts {
        Recounts {
            under_way: Mutex::default(),
            freed: AtomicU64::new(0),
            changed: Condvar::new(),
            percent: AtomicU8::new(NO_PERCENT),
        }
    }
}

impl Recounts {
    /// How far the recount in the background is, in percent.
    pub(crate) fn percent(&self) -> Option<u8> {
        Some(self.percent.load(Ordering::Relaxed)).filter(|percent| *percent != NO_PERCENT)
    }

    /// Says how far the recount in the background is, or that none is under way.
    pub(crate) fn set_percent(&self, percent: Option<u8>) {
        self.percent.store(percent.map_or(NO_PERCENT, |percent| percent.min(100)), Ordering::Relaxed);
    }

    /// One more is under way.
    pub(crate) fn begin(&self) {
        *self.under_way.lock() += 1;
    }

    /// One is over.
    pub(crate) fn end(&self) {
        *self.under_way.lock() -= 1;
        self.changed.notify_all();
    }

    /// Something was given back, and can be used.
    pub(crate) fn freed(&self) {
        let _under_way = self.under_way.lock();
        self.freed.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_all();
    }

    /// How often something was given back until now. A call asks before it looks for room.
    pub(crate) fn times_freed(&self) -> u64 {
        self.freed.load(Ordering::Acquire)
    }

    /// Waits until something was given back that was not yet at `before`, or no recount is under way. False
    /// if neither has come by `until`, if `may_wait` says no, or if there was nothing to wait for.
    pub(crate) fn wait(&self, before: u64, until: Instant, may_wait: &dyn Fn() -> bool) -> bool {
        let mut under_way = self.under_way.lock();
        let mut has_waited = false;
        loop {
            if self.times_freed() != before || (has_waited && *under_way == 0) {
                return true;
            }
            let now = Instant::now();
            if *under_way == 0 || now >= until || !may_wait() {
                return false;
            }
            has_waited = true;
            self.changed.wait_until(&mut under_way, until.min(now + PAUSE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(1)
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(600)
    }

    /// A call goes on at once if it has nothing to wait for, may not wait, or has waited long enough. A call
    /// that has missed what was freed tries again.
    #[test]
    fn waiting_is_bounded() {
        let recounts = Recounts::default();
        assert!(!recounts.wait(0, later(), &|| true));
        recounts.begin();
        assert!(!recounts.wait(0, later(), &|| false));
        assert!(!recounts.wait(0, soon(), &|| true));
        recounts.freed();
        assert!(recounts.wait(0, later(), &|| true));
        assert!(!recounts.wait(recounts.times_freed(), soon(), &|| true));
    }

    /// A call that waits tries again when something was freed, and when the last recount is over.
    #[test]
    fn waiting_ends() {
        for ends in [Recounts::freed, Recounts::end] {
            let recounts = Recounts::default();
            recounts.begin();
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| {
                    let waited = recounts.wait(0, later(), &|| true);
                    waited || recounts.times_freed() == 0
                });
                ends(&recounts);
                assert!(waits.join().is_ok_and(|is_right| is_right));
            });
        }
    }
}
