//! What a run has left for the judge: the trace of the device, and what each part of the tree may be after
//! each of its entries.

use crate::judge::{Bounds, Judge};
use crate::past::Snapshots;
use crate::together::lens::Lens;
use crate::volume::{orders, Findings};
use std::ops::RangeInclusive;
use yore_device::simulated::{Trace, TraceEntry};
use yore_fs::Engine;

/// What was recorded: the entries of the device, and what each part of the tree may be after each of them.
pub struct Recorded {
    pub(crate) trace: Trace,
    pub(crate) parts: Vec<Part>,
    /// Snapshots of the whole tree; with several parts there are none.
    pub(crate) snapshots: Snapshots,
    /// How the engine keeps metadata consistent, and what that leaves.
    pub(crate) order: Order,
    /// Whether hardly any room was left, so that calls may find none behind a crash, too.
    pub(crate) nearly_full: bool,
}

/// Whether a crash leaves one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Names and attributes are of one moment.
    OneMoment,
    /// The engine orders changes: each name and each inode has a moment of its own.
    Changes,
    /// The same, and the volume had been through a crash before that was not repaired.
    ChangesAgain,
}

impl Order {
    /// What a volume of this engine is left as.
    pub(crate) fn of(engine: Engine) -> Order {
        match orders(engine) {
            true => Order::Changes,
            false => Order::OneMoment,
        }
    }

    /// Whether the engine orders changes.
    pub(crate) fn is_of_changes(self) -> bool {
        self != Order::OneMoment
    }

    /// What a check may find.
    pub(crate) fn findings(self) -> Findings {
        match self {
            Order::OneMoment => Findings::None,
            Order::Changes => Findings::Ordered,
            Order::ChangesAgain => Findings::OrderedTwice,
        }
    }
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
