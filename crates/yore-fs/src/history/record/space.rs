//! How much space the past takes.

use super::past::Past;
use std::sync::atomic::Ordering;
use yore_format::{EventNo, HistoryRoots, HistorySpace, WriteFeatures};
use yore_meta::Meta;

impl Past {
    /// Versions were given up, by a caller that holds `forgetting`.
    pub(crate) fn note_given_up(&self) {
        self.given_up.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts how often versions were given up.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Acquire)
    }

    /// Whether all events of directories so far were of the root directory.
    pub(crate) fn has_only_root(&self) -> bool {
        self.only_root.load(Ordering::Acquire)
    }

    /// Whether some block that only history has, or that an inode in use has besides, is in it several times.
    pub(crate) fn shares_blocks(&self, meta: &Meta) -> bool {
        if !meta.has_features(WriteFeatures::TABLES) {
            return false;
        }
        let Some(frame) = self.roots.get() else { return false };
        let page = frame.read();
        let counts = HistoryRoots::annals_counts(&page);
        counts.annals_from == EventNo(0) || counts.references != HistoryRoots::space(&page).data
    }

    /// What the past alone holds. O(1).
    pub(crate) fn space(&self) -> HistorySpace {
        self.roots.get().map_or(HistorySpace::default(), |frame| HistoryRoots::space(&frame.read()))
    }
}
