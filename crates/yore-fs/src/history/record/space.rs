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

    /// Whether each kept event is of the root directory: it sees whatever there was then.
    pub(crate) fn has_one_class(&self) -> bool {
        self.only_root.load(Ordering::Acquire) && self.numbers.read().kept.values().all(Option::is_none)
    }

    /// The numbers of all kept events, in ascending order.
    pub(crate) fn kept_numbers(&self) -> Vec<EventNo> {
        self.numbers.read().kept.keys().copied().collect()
    }

    /// Whether an event in `from..to` is kept.
    pub(crate) fn any_kept_in(&self, from: EventNo, to: EventNo) -> bool {
        from < to && self.numbers.read().kept.range(from..to).next().is_some()
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
