//! What each event holds of the past: sums of blocks by the events that see them, in memory
//! ([`crate::history::reclaim::spans`] makes them and adds to them).

use hashbrown::HashMap;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use yore_format::EventNo;
use yore_meta::LeftBlocks;

/// How many sums there are at most: some 16 MiB.
const CELLS_MOST: usize = 1 << 17;
/// So many need not become fewer.
const CELLS_FEW: usize = 1 << 10;

/// The sums of an open volume, if somebody has asked.
#[derive(Default)]
pub(crate) struct Spans {
    /// Lock order: after `making_room`, before `forgetting`.
    pub table: Mutex<Option<SpanTable>>,
    /// The sums are wrong, or will be soon.
    to_drop: AtomicBool,
    /// How often the sums were more than there is.
    refuted: AtomicU64,
    /// A test wants the walk's answer.
    is_unused: AtomicBool,
}

impl Spans {
    /// Something happens that the sums cannot follow. Needs no lock.
    pub(crate) fn drop_later(&self) {
        self.to_drop.store(true, Ordering::Release);
    }

    /// Whether that was so since the sums were begun.
    pub(crate) fn is_to_drop(&self) -> bool {
        self.to_drop.load(Ordering::Acquire)
    }

    /// The sums are more than there is.
    pub(crate) fn refute(&self) {
        self.refuted.fetch_add(1, Ordering::AcqRel);
    }

    /// How often the sums were more than there is.
    pub(crate) fn refuted(&self) -> u64 {
        self.refuted.load(Ordering::Acquire)
    }

    /// From here on nobody is answered from the sums, or (false) everybody again.
    pub(crate) fn set_unused(&self, unused: bool) {
        self.is_unused.store(unused, Ordering::Release);
    }

    /// Whether nobody is answered from the sums.
    pub(crate) fn is_unused(&self) -> bool {
        self.is_unused.load(Ordering::Acquire)
    }

    /// Sums are begun.
    pub(crate) fn begin(&self) {
        self.to_drop.store(false, Ordering::Release);
    }
}

/// From the birth of a state to its end: the events that see it.
pub(crate) type Span = (EventNo, EventNo);

/// Sums by the spans of the states that have the blocks, in ascending order. Neighbours are one span if no
/// kept event lies between them, so there is one as a rule.
pub(crate) struct SpanTable {
    cells: HashMap<Vec<Span>, LeftBlocks>,
    /// At how many sums those that say the same become one.
    merge_at: usize,
    /// When somebody asked last.
    pub asked: Instant,
}

impl Default for SpanTable {
    fn default() -> SpanTable {
        SpanTable { cells: HashMap::new(), merge_at: CELLS_FEW, asked: Instant::now() }
    }
}

impl SpanTable {
    /// Adds blocks that these states have, the oldest first. `is_between`: whether a kept event is between
    /// two numbers.
    pub(crate) fn add(
        &mut self,
        states: impl Iterator<Item = Span>,
        blocks: LeftBlocks,
        is_between: impl Fn(EventNo, EventNo) -> bool,
    ) {
        let mut spans: Vec<Span> = Vec::with_capacity(1);
        for (birth, end) in states {
            match spans.last_mut() {
                Some(last) if last.1 == birth || !is_between(last.1, birth) => last.1 = end,
                _ => spans.push((birth, end)),
            }
        }
        if !spans.is_empty() {
            *self.cells.entry(spans).or_default() += blocks;
        }
    }

    /// Makes one of the sums that say the same, if there are many. False: there are too many all the same.
    pub(crate) fn merge(&mut self, kept: &[EventNo]) -> bool {
        if self.cells.len() > self.merge_at {
            let cells = self.by_events(kept).into_iter().map(|(seen, blocks)| {
                let spans = seen
                    .into_iter()
                    .map(|range| (kept[range.start], EventNo(kept[range.end - 1].0.saturating_add(1))));
                (spans.collect(), blocks)
            });
            self.cells = cells.collect();
            self.merge_at = (2 * self.cells.len()).max(CELLS_FEW);
        }
        self.cells.len() <= CELLS_MOST
    }

    /// What is seen by which of these events, the kept ones: ranges of their indexes. What none of them sees
    /// is left out: it is about to be given up.
    pub(crate) fn by_events(&self, kept: &[EventNo]) -> HashMap<Vec<Range<usize>>, LeftBlocks> {
        let mut by_events: HashMap<Vec<Range<usize>>, LeftBlocks> = HashMap::new();
        for (spans, blocks) in &self.cells {
            let mut seen: Vec<Range<usize>> = Vec::with_capacity(spans.len());
            for (birth, end) in spans {
                let first = kept.partition_point(|event| event < birth);
                let end = kept.partition_point(|event| event < end);
                match seen.last_mut() {
                    // Damaged numbers may be in any order.
                    _ if first >= end => {}
                    Some(last) if last.end == first => last.end = end,
                    _ => seen.push(first..end),
                }
            }
            if !seen.is_empty() {
                *by_events.entry(seen).or_default() += *blocks;
            }
        }
        by_events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(numbers: &[u64]) -> Vec<EventNo> {
        numbers.iter().copied().map(EventNo).collect()
    }

    fn add(table: &mut SpanTable, kept: &[EventNo], states: &[(u64, u64)], data: u64) {
        let states = states.iter().map(|(birth, end)| (EventNo(*birth), EventNo(*end)));
        let between = |from, to| kept.iter().any(|event| (from..to).contains(event));
        table.add(states, LeftBlocks { data, nodes: 0 }, between);
    }

    fn seen(table: &SpanTable, kept: &[EventNo]) -> Vec<(Vec<Range<usize>>, u64)> {
        let mut seen: Vec<_> = table.by_events(kept).into_iter().map(|(s, b)| (s, b.data)).collect();
        seen.sort_unstable_by_key(|(s, _)| (s[0].start, s[0].end, s.len()));
        seen
    }

    fn one(range: Range<usize>) -> Vec<Range<usize>> {
        vec![range]
    }

    #[test]
    fn states_with_no_event_between_are_one_span() {
        let kept = numbers(&[2, 4, 6]);
        let mut table = SpanTable::default();
        add(&mut table, &kept, &[(1, 3), (3, 5)], 1);
        add(&mut table, &kept, &[(1, 2), (3, 5)], 10);
        add(&mut table, &kept, &[(2, 4), (5, 7)], 100);
        add(&mut table, &kept, &[(3, 4)], 1000);
        assert_eq!(table.cells.len(), 4);
        // In the second sum event 2 lies between the states, and nobody sees the first one.
        let all = seen(&table, &kept);
        assert_eq!(all, [(vec![0..1, 2..3], 100), (one(0..2), 1), (one(1..2), 10)]);
        let without_4 = numbers(&[2, 6]);
        assert_eq!(seen(&table, &without_4), [(one(0..1), 1), (one(0..2), 100)]);
        assert_eq!(seen(&table, &numbers(&[4])), [(one(0..1), 11)]);
        assert_eq!(seen(&table, &[]), []);
    }

    #[test]
    fn many_sums_become_those_of_the_events() {
        let kept = numbers(&[1000, 5000]);
        let mut table = SpanTable::default();
        for birth in 0..3000 {
            add(&mut table, &kept, &[(birth, 4000)], 1);
            add(&mut table, &kept, &[(birth, 6000)], 1);
        }
        let before = seen(&table, &kept);
        assert!(table.merge(&kept));
        assert_eq!(table.cells.len(), 3);
        assert_eq!(seen(&table, &kept), before);
        assert_eq!(before, [(one(0..1), 1001), (one(0..2), 1001), (one(1..2), 1999)]);
    }
}
