//! When intervals of policies are due.

use crate::InodeNo;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::time::{Duration, Instant};
use yore_format::EventNo;

/// Which directories and files are to be versioned, and when.
#[derive(Default)]
pub(crate) struct Due {
    at: Mutex<HashMap<InodeNo, Instant>>,
    /// When the rules of retention were last applied, and the next number at that time.
    pub(crate) retained: Mutex<Option<(Instant, EventNo)>>,
}

impl Due {
    /// Something below a directory with an interval has changed. True if the directory was not due at any
    /// time yet.
    pub(crate) fn note(&self, no: InodeNo, interval: Duration) -> bool {
        let mut at = self.at.lock();
        if at.contains_key(&no) {
            return false;
        }
        at.insert(no, Instant::now() + interval);
        true
    }

    /// Makes it due after this time, whatever was due before.
    pub(crate) fn put(&self, no: InodeNo, after: Duration) {
        self.at.lock().insert(no, Instant::now() + after);
    }

    /// How long until the next one is due.
    pub(crate) fn next(&self) -> Option<Duration> {
        let next = self.at.lock().values().min().copied()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    pub(crate) fn take(&self, now: Instant) -> Vec<InodeNo> {
        let mut at = self.at.lock();
        let due: Vec<InodeNo> = at.iter().filter(|(_, time)| **time <= now).map(|(no, _)| *no).collect();
        for no in &due {
            at.remove(no);
        }
        due
    }
}
