//! The kept events by what they are of: which of them have seen something is a question of numbers, once it
//! is known of which roots events could see it.

use super::past::Past;
use crate::InodeNo;
use hashbrown::HashMap;
use std::ops::Range;
use std::sync::Arc;
use yore_format::EventNo;

/// In the place of a root: all directories but the root directory. Events of any of them may have seen a file
/// of several names.
pub(crate) const ELSEWHERE: InodeNo = InodeNo::NONE;

/// Between these numbers, events of one directory or file see something; see [`ELSEWHERE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Span {
    /// What the events are of.
    pub root: InodeNo,
    /// The first number.
    pub from: EventNo,
    /// The first number behind it.
    pub to: EventNo,
}

/// The events that were kept at one moment, each list in ascending order.
#[derive(Default)]
pub(crate) struct Kept {
    /// Of each directory or file that has any, and of all other directories together ([`ELSEWHERE`]).
    by_root: HashMap<InodeNo, Vec<EventNo>>,
    /// How many there are.
    count: usize,
}

impl Kept {
    /// How many there are, of all roots.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The events of this root.
    pub(crate) fn of(&self, root: InodeNo) -> &[EventNo] {
        self.by_root.get(&root).map_or(&[], Vec::as_slice)
    }

    /// Of the events of this root, the indexes of those in `from..to`; perhaps none. O(log events).
    pub(crate) fn range(&self, root: InodeNo, from: EventNo, to: EventNo) -> Range<usize> {
        let events = self.of(root);
        let first = events.partition_point(|event| *event < from);
        // Damaged numbers may be in any order.
        first..events.partition_point(|event| *event < to).max(first)
    }

    /// Whether this root has an event in `from..to`.
    pub(crate) fn any(&self, root: InodeNo, from: EventNo, to: EventNo) -> bool {
        !self.range(root, from, to).is_empty()
    }

    /// For each root, how many of the events before each one stay.
    pub(crate) fn staying(&self, goes: impl Fn(EventNo) -> bool) -> HashMap<InodeNo, Vec<usize>> {
        let count = |events: &Vec<EventNo>| {
            let mut stay = vec![0];
            stay.extend(events.iter().scan(0, |count, event| {
                *count += usize::from(!goes(*event));
                Some(*count)
            }));
            stay
        };
        self.by_root.iter().map(|(root, events)| (*root, count(events))).collect()
    }

    /// Sorts spans, and makes one of those of a root between which it has no event.
    pub(crate) fn join(&self, spans: &mut Vec<Span>) {
        if spans.len() < 2 {
            return;
        }
        spans.sort_unstable();
        spans.dedup_by(|next, last| {
            let joins =
                next.root == last.root && (next.from <= last.to || !self.any(last.root, last.to, next.from));
            if joins {
                last.to = next.to.max(last.to);
            }
            joins
        });
    }

    #[cfg(test)]
    pub(super) fn of_root(numbers: &[u64]) -> Kept {
        Kept::of_roots(&[(InodeNo::ROOT, numbers)])
    }

    #[cfg(test)]
    pub(super) fn of_roots(roots: &[(InodeNo, &[u64])]) -> Kept {
        let list = |numbers: &[u64]| -> Vec<EventNo> { numbers.iter().copied().map(EventNo).collect() };
        let by_root: HashMap<_, _> = roots.iter().map(|(root, numbers)| (*root, list(numbers))).collect();
        let count = by_root.values().map(Vec::len).sum();
        Kept { by_root, count }
    }
}

impl Past {
    /// The events that are kept now. O(events).
    pub(crate) fn kept(&self) -> Kept {
        let mut kept = Kept::default();
        for (number, of) in &self.numbers.read().kept {
            kept.by_root.entry(of.root).or_default().push(*number);
            kept.count += 1;
            if !of.is_file && of.root != InodeNo::ROOT {
                kept.by_root.entry(ELSEWHERE).or_default().push(*number);
            }
        }
        kept
    }
}

/// What is remembered between two questions who has seen a version ([`crate::history::reclaim::seers`]).
#[derive(Default)]
pub(crate) struct Seers {
    /// The kept events.
    pub kept: Kept,
    /// What these are of: the last number of an event, and how many are kept.
    of: Option<(EventNo, usize)>,
    /// By directory: who sees what is in it, up to the number behind the last event.
    pub above: HashMap<InodeNo, Arc<[Span]>>,
}

impl Seers {
    /// Sees to it that the events are those that are kept now. Returns the last number of an event.
    pub(crate) fn refresh(&mut self, past: &Past) -> EventNo {
        let now = past.stamp();
        if self.of != Some(now) {
            *self = Seers { kept: past.kept(), of: Some(now), above: HashMap::new() };
        }
        now.0
    }
}
