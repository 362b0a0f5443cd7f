//! What a run has left for the judge: the trace of the device, and what each part of the tree may be after
//! each of its entries.

use crate::judge::{Bounds, Judge};
use crate::past::Snapshots;
use crate::together::lens::Lens;
use std::ops::RangeInclusive;
use yore_device::simulated::{Trace, TraceEntry};

/// What was recorded: the entries of the device, and what each part of the tree may be after each of them.
pub struct Recorded {
    pub(crate) trace: Trace,
    pub(crate) parts: Vec<Part>,
    /// Snapshots of the whole tree; with several parts there are none.
    pub(crate) snapshots: Snapshots,
}

/// A part of the tree that only one thread changed.
pub struct Part {
    /// Knows what was promised of it.
    pub judge: Judge,
    /// What the part is; `None`: the whole tree.
    pub(crate) lens: Option<Lens>,
    /// By number of entries.
    pub(crate) bounds: Vec<Bounds>,
}

impl Recorded {
    /// How many entries were recorded: a crash can happen after 0 up to this many.
    pub fn entries(&self) -> usize {
        self.trace.len()
    }

    /// How far the operations of the first part had come after so many entries.
    pub fn bounds(&self, after_entry: usize) -> Bounds {
        let bounds = &self.parts[0].bounds;
        bounds[after_entry.min(bounds.len() - 1)]
    }

    /// The entries after which the medium may be the same as after this one: only marks lie between.
    pub(crate) fn same_medium(&self, after_entry: usize) -> RangeInclusive<usize> {
        let entries = self.trace.entries();
        let is_mark = |number: usize| matches!(entries.get(number), Some(TraceEntry::Mark(_)));
        let first =
            (0..after_entry).rev().take_while(|number| is_mark(*number)).last().unwrap_or(after_entry);
        let last = (after_entry..).take_while(|number| is_mark(*number)).last();
        first..=last.map_or(after_entry, |last| last + 1)
    }
}
