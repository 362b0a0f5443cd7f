//! Versions that a policy asks for, but that a full volume has no room for.
//!
//! A full volume would log one complaint for each close of a file, and nobody reads thousands of equal lines.
//! So the log says once that versions are missing, and once that they are made again. Between the two this
//! counts them, and `yore info` shows the count.
//!
//! **When it ends.** A volume that is almost full makes one version and misses the next. So not every version
//! that is made ends the state, but only one that is made while a small part of the volume ([`ROOM`]) is
//! free.

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

/// Whether versions are missing now. Since this opening of the volume only: it is not on the medium.
#[derive(Default)]
pub(crate) struct Missed(Mutex<Option<MissedVersions>>);

impl Missed {
    /// The missing versions; `None` if there are none.
    pub(crate) fn now(&self) -> Option<MissedVersions> {
        *self.0.lock()
    }

    /// Records whether a version could be made, given the free blocks of the volume and the number of all
    /// blocks.
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
