//! How many need an event to stay.

use crate::types::PinnedBy;

/// How many need an event to stay.
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
