//! Versions that a policy asks for and that a full volume has no room for.
//!
//! A full volume would have one complaint for each close of a file, and nobody reads thousands of equal
//! lines. So the log says once that versions are missing, and once that they are made again. Between the two
//! this counts them, and `yore info` tells the count.
//!
//! **When it ends.** A volume that is almost full makes one version and misses the next. So the state ends
//! with a version that was made while a small part of the volume ([`ROOM`]) was free, and not with each
//! version that was made.

use crate::clock::now;
use crate::{Error, Result};
use parking_lot::Mutex;
use yore_format::Timestamp;

/// The part of the volume that must be free before the log says that there is room again: one of so many.
const ROOM: u64 = 128;

/// Versions that were not made since the volume became full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MissedVersions {
    /// When the first one was missed.
    pub since: Timestamp,
    /// How many there are.
    pub count: u64,
}

/// Whether versions are missing now. Of this opening of the volume: it is not on the medium.
#[derive(Default)]
pub(crate) struct Missed(Mutex<Option<MissedVersions>>);

impl Missed {
    /// What is missing; `None`: nothing.
    pub(crate) fn now(&self) -> Option<MissedVersions> {
        *self.0.lock()
    }

    /// Takes note of how making a version went, given the free blocks of the volume and all of them.
    pub(crate) fn note<R>(&self, made: &Result<R>, blocks: impl FnOnce() -> (u64, u64)) {
        let mut missed = self.0.lock();
        match (made, &mut *missed) {
            (Err(error), Some(missed)) if is_full(error) => missed.count = missed.count.saturating_add(1),
            (Err(error), None) if is_full(error) => {
                *missed = Some(MissedVersions { since: now(), count: 1 });
                tracing::warn!(
                    "the volume is full: versions that policies ask for are not made until there is room again; `yore info` says \
                     what would free space"
                );
            }
            (Ok(_), Some(MissedVersions { count, .. })) => {
                let (free, all) = blocks();
                if free >= all / ROOM {
                    tracing::warn!(
                        "there is room again: versions are made as policies ask; {count} were not made meanwhile"
                    );
                    *missed = None;
                }
            }
            _ => {}
        }
    }
}

/// Whether a version was not made because the volume is full.
pub(crate) fn is_full(error: &Error) -> bool {
    matches!(error.root(), Error::NoSpace | Error::NeverFits { .. })
}
