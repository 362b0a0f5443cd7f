//! How much space the past takes.

use super::past::Past;
use std::sync::atomic::Ordering;
use yore_format::{AnnalsCounts, EventNo, HintPlace, HistoryRoots, HistorySpace, WriteFeatures};
use yore_meta::{Meta, Op};

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

    /// How many references to data blocks the past has that no inode in use has; as many as blocks, unless
    /// some are shared. `None`: the volume may share blocks, and nobody has counted the references.
    pub(crate) fn references(&self, meta: &Meta) -> Option<u64> {
        let Some(frame) = self.roots.get() else { return Some(0) };
        let page = frame.read();
        let counts = HistoryRoots::annals_counts(&page);
        match (counts.annals_from, meta.has_features(WriteFeatures::TABLES)) {
            (EventNo(0), true) => None,
            (EventNo(0), false) => Some(HistoryRoots::space(&page).data),
            (_, _) => Some(counts.references),
        }
    }

    /// Whether there are annals; without, the block of roots has no place for what comes with them.
    pub(crate) fn has_annals(&self) -> bool {
        self.annals_from.load(Ordering::Acquire) > 0
    }

    /// Where it is written what each event held when the volume was closed, perhaps long ago.
    pub(crate) fn hint(&self) -> Option<HintPlace> {
        self.roots.get().and_then(|frame| HistoryRoots::annals_counts(&frame.read()).hint)
    }

    /// Inside an Op: says where that is. The past has annals.
    pub(crate) fn set_hint(&self, op: &mut Op<'_>, hint: Option<HintPlace>) {
        op.change(self.roots(), |page| {
            page.apply(|b| {
                let counts = HistoryRoots::annals_counts(b);
                HistoryRoots::set_annals_counts(b, AnnalsCounts { hint, ..counts })
            });
        });
    }

    /// What the past alone holds. O(1).
    pub(crate) fn space(&self) -> HistorySpace {
        self.roots.get().map_or(HistorySpace::default(), |frame| HistoryRoots::space(&frame.read()))
    }
}
