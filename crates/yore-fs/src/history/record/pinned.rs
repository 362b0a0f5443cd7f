//! How many pins an event has.

use crate::types::PinnedBy;

/// How many pins an event has.
#[derive(Default)]
pub(super) struct Pinned {
    pub(super) mounts: usize,
    pub(super) work: usize,
}

impl Pinned {
    pub(super) fn by(&mut self, by: PinnedBy) -> &mut usize {
        match by {
            PinnedBy::Mount => &mut self.mounts,
            PinnedBy::Work => &mut self.work,
        }
    }
}
