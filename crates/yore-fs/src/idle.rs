//! Whether anybody asks for anything: a clock for work that is done when nobody does.
//!
//! Each request only looks at a flag, which is nearly always set already. So the flag stays in the caches of
//! all processors, and the requests of many threads do not wait for one another here.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// When somebody last asked for something.
pub(crate) struct Idle {
    asked: AtomicBool,
    since: Mutex<Instant>,
}

impl Default for Idle {
    fn default() -> Idle {
        Idle { asked: AtomicBool::new(false), since: Mutex::new(Instant::now()) }
    }
}

impl Idle {
    /// Somebody asks for something.
    #[inline]
    pub(crate) fn note(&self) {
        if !self.asked.load(Ordering::Relaxed) {
            self.asked.store(true, Ordering::Relaxed);
        }
    }

    /// Whether somebody has asked since [`Idle::lasts`] was called.
    pub(crate) fn is_over(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// For how long nobody has asked: at least for so long, as far as this was called before.
    pub(crate) fn lasts(&self) -> Duration {
        let mut since = self.since.lock();
        if self.asked.swap(false, Ordering::Relaxed) {
            *since = Instant::now();
        }
        since.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request ends the idle time, which begins anew when somebody looks.
    #[test]
    fn a_request_ends_it() {
        let idle = Idle::default();
        idle.lasts();
        assert!(!idle.is_over());
        idle.note();
        idle.note();
        assert!(idle.is_over());
        let before = Instant::now();
        let lasts = idle.lasts();
        assert!(lasts <= before.elapsed() && !idle.is_over());
    }
}
