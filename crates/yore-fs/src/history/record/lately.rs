//! Which events are being read: those as of which somebody has read something lately. Nobody knows what is
//! open in the past (a mount's kernel opens files without asking). But a program that has a file open reads
//! it sooner or later, and a reader goes on reading.

use hashbrown::HashMap;
use parking_lot::Mutex;
use rustix::time::{clock_gettime, ClockId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use yore_format::EventNo;

/// When this many events are remembered, those that were read too long ago are dropped.
const MANY: usize = 1024;
/// The bits for the second, in a word that has an event and a second.
const SECOND_BITS: u32 = 24;

/// When events were last read.
pub(crate) struct Lately {
    /// How long an event counts as being read.
    lasts: Duration,
    /// The latest notes of some events, each with its event and second, so that noting the same again costs
    /// no lock.
    noted: [AtomicU64; 16],
    read: Mutex<HashMap<EventNo, Duration>>,
}

impl Lately {
    pub(super) fn new(lasts: Duration) -> Lately {
        Lately { lasts, noted: Default::default(), read: Mutex::default() }
    }

    /// Notes that somebody reads as of an event. Returns whether nobody did before, so that one more event
    /// must stay.
    pub(super) fn note(&self, event: EventNo) -> bool {
        let now = now();
        let word = event.0 << SECOND_BITS | (now.as_secs() & ((1 << SECOND_BITS) - 1));
        let noted = &self.noted[event.0 as usize % self.noted.len()];
        if noted.load(Ordering::Relaxed) == word {
            return false;
        }
        noted.store(word, Ordering::Relaxed);
        let mut read = self.read.lock();
        if read.len() >= MANY {
            read.retain(|_, at| *at + self.lasts >= now);
        }
        let before = read.insert(event, now);
        before.is_none_or(|at| at + self.lasts < now)
    }

    /// Whether somebody reads as of an event, or did lately.
    pub(crate) fn is_read(&self, event: EventNo) -> bool {
        let read = self.read.lock();
        read.get(&event).is_some_and(|at| *at + self.lasts > now())
    }
}

/// The time since the machine started, to some milliseconds. A finer clock, asked twice for each file that is
/// opened and read, was a tenth of what that takes.
fn now() -> Duration {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
