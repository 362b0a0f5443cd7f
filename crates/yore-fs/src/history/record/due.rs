//! What policies with intervals are to version at which time.

use crate::InodeNo;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::time::{Duration, Instant};
use yore_format::EventNo;

/// What is to be versioned at which time.
#[derive(Default)]
pub(crate) struct Due {
    at: Mutex<HashMap<InodeNo, Instant>>,
    /// When it was last looked what is kept, and the next number then.
    pub(crate) retained: Mutex<Option<(Instant, EventNo)>>,
}

impl Due {
    /// Something below a directory with an interval has changed. True if it was not known that it is to be
    /// versioned.
    pub(crate) fn note(&self, no: InodeNo, interval: Duration) -> bool {
        let mut at = self.at.lock();
        if at.contains_key(&no) {
            return false;
        }
        at.insert(no, Instant::now() + interval);
        true
    }

    /// It is to be versioned after this time, whatever was known before.
    pub(crate) fn put(&self, no: InodeNo, after: Duration) {
        self.at.lock().insert(no, Instant::now() + after);
    }

    /// How long until the next one.
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
