//! Sets of changes that an ordered engine may leave: closed under the edges, under the order of changes of
//! one unit (U1), and under drains.

use super::units;
use std::collections::HashMap;
use yore_fs::{EdgeKind, Place, Recording};

/// A set of changes.
pub(super) type Set = Vec<bool>;

/// Which change waits for which.
pub(super) struct Order {
    count: usize,
    /// For each change those that come before it, each with the kind of the edge; `None`: it needs none.
    before: Vec<Vec<(Option<EdgeKind>, usize)>>,
    behind: Vec<Vec<(Option<EdgeKind>, usize)>>,
    drains: Vec<usize>,
    /// A kind of edge that is left out.
    pub(super) without: Option<EdgeKind>,
}

impl Order {
    pub(super) fn of(recording: &Recording) -> Order {
        let count = recording.changes.len();
        let mut order = Order {
            count,
            before: vec![Vec::new(); count],
            behind: vec![Vec::new(); count],
            drains: recording.drains.clone(),
            without: None,
        };
        for (kind, first, then) in &recording.edges {
            order.add(Some(*kind), *first, *then);
        }
        order.add_units(recording);
        order.add_whole(recording);
        order
    }

    fn add(&mut self, kind: Option<EdgeKind>, first: usize, then: usize) {
        self.before[then].push((kind, first));
        self.behind[first].push((kind, then));
    }

    /// U1. The roots of the superblock and indexes are units, too.
    fn add_units(&mut self, recording: &Recording) {
        let mut last: HashMap<(u64, Vec<u8>), usize> = HashMap::new();
        for (number, (_, place)) in recording.changes.iter().enumerate() {
            let names: Vec<(u64, Vec<u8>)> = match place {
                Place::Block { addr, pieces, .. } => {
                    units::changed(pieces).into_keys().map(|unit| (addr.0, unit)).collect()
                }
                Place::Made { addr, .. } | Place::Freed { addr } => vec![(addr.0, b"index".to_vec())],
                Place::Orphans { .. } => vec![(0, b"orphans".to_vec())],
            };
            if let Place::Made { addr, .. } = place {
                // What an earlier block had there is void.
                last.retain(|(of, unit), _| *of != addr.0 || unit == b"index");
            }
            for name in names {
                if let Some(earlier) = last.insert(name, number) {
                    self.add(None, earlier, number);
                }
            }
        }
    }

    /// Ops that are alone: all their changes or none, and everything before.
    fn add_whole(&mut self, recording: &Recording) {
        for op in &recording.whole {
            let of_op: Vec<usize> =
                (0..self.count).filter(|change| recording.changes[*change].0 == *op).collect();
            let (Some(first), Some(last)) = (of_op.first().copied(), of_op.last().copied()) else { continue };
            self.drains.extend([first, last + 1]);
            for pair in of_op.windows(2) {
                self.add(None, pair[0], pair[1]);
                self.add(None, pair[1], pair[0]);
            }
        }
    }

    fn counts(&self, kind: Option<EdgeKind>) -> bool {
        kind.is_none() || kind != self.without
    }

    /// The edges of a kind.
    pub(super) fn of_kind(&self, kind: EdgeKind) -> Vec<(usize, usize)> {
        let edges = |then: usize| {
            self.before[then]
                .iter()
                .filter(move |(k, _)| *k == Some(kind))
                .map(move |(_, first)| (*first, then))
        };
        (0..self.count).flat_map(edges).collect()
    }

    /// The least closed set that has these changes.
    pub(super) fn least(&self, changes: impl IntoIterator<Item = usize>) -> Set {
        let mut set = vec![false; self.count];
        let mut left: Vec<usize> = changes.into_iter().collect();
        let mut drained = 0;
        loop {
            while let Some(change) = left.pop() {
                if std::mem::replace(&mut set[change], true) {
                    continue;
                }
                left.extend(self.before[change].iter().filter(|(k, _)| self.counts(*k)).map(|(_, c)| *c));
            }
            let last = set.iter().rposition(|has| *has).unwrap_or(0);
            let drain = self.drains.iter().copied().filter(|drain| *drain <= last).max().unwrap_or(0);
            if drain <= drained {
                return set;
            }
            left.extend(drained..drain);
            drained = drain;
        }
    }

    /// The greatest closed set that lacks a change.
    pub(super) fn greatest_without(&self, change: usize) -> Set {
        let mut set = vec![true; self.count];
        let mut left = vec![change];
        while let Some(change) = left.pop() {
            if !std::mem::replace(&mut set[change], false) {
                continue;
            }
            left.extend(self.behind[change].iter().filter(|(k, _)| self.counts(*k)).map(|(_, c)| *c));
            if let Some(drain) = self.drains.iter().copied().filter(|drain| *drain > change).min() {
                left.extend((drain..self.count).filter(|later| set[*later]));
            }
        }
        set
    }
}
