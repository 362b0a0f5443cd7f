//! What each event holds of the past: sums of blocks by the events that see them, in memory
//! ([`crate::history::reclaim::spans`] makes them and adds to them).

use super::kept::{Kept, Seers, Span};
use super::past::Past;
use super::states::VersionsWalk;
use crate::InodeNo;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use yore_format::{EventNo, HintSpan, HintSum, Incarnation, SpanHint};
use yore_meta::{LeftBlocks, Sharing};

/// How many sums there are at most: some 16 MiB.
const CELLS_MOST: usize = 1 << 17;
/// So many need not become fewer.
const CELLS_FEW: usize = 1 << 10;
/// How many inodes are remembered whose versions may share blocks with others.
const SHARING_MOST: usize = 1 << 16;

/// The sums of an open volume, if somebody has asked.
#[derive(Default)]
pub(crate) struct Spans {
    /// Lock order: after `making_room`, before `forgetting`.
    pub table: Mutex<Table>,
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

/// The sums, as far as there are any.
pub(crate) enum Table {
    /// There are none, and in the background nobody makes any before this instant.
    None { not_before: Option<Instant> },
    /// They are being made.
    Begun(Box<Making>),
    /// They are exact, with what was noted since.
    Known(Box<SpanTable>),
}

impl Default for Table {
    fn default() -> Table {
        Table::None { not_before: None }
    }
}

/// Events of one root, as indexes into its kept ones; not empty.
pub(crate) type Events = (InodeNo, Range<usize>);

/// Sums by the spans in which events see the blocks, in ascending order and joined ([`Kept::join`]). As a
/// rule there is one span, of the root directory.
pub(crate) struct SpanTable {
    cells: HashMap<Vec<Span>, LeftBlocks>,
    /// Inodes whose versions may share blocks with others.
    pub sharing: Sharing,
    /// At how many sums those that say the same become one.
    merge_at: usize,
    /// When somebody asked last.
    pub asked: Option<Instant>,
    /// How many notes were added since.
    pub added: u64,
    /// How many versions the walk has looked at.
    pub versions: u64,
}

impl Default for SpanTable {
    fn default() -> SpanTable {
        SpanTable {
            cells: HashMap::new(),
            sharing: Sharing::new(),
            merge_at: CELLS_FEW,
            asked: None,
            added: 0,
            versions: 0,
        }
    }
}

impl SpanTable {
    /// Somebody asks.
    pub(crate) fn note_asked(&mut self) {
        (self.asked, self.added) = (Some(Instant::now()), 0);
    }

    /// Adds blocks that events see in these spans, in any order. What nobody sees is left out: it is about to
    /// be given up.
    pub(crate) fn add(&mut self, mut spans: Vec<Span>, blocks: LeftBlocks, kept: &Kept) {
        kept.join(&mut spans);
        if !spans.is_empty() {
            *self.cells.entry(spans).or_default() += blocks;
        }
    }

    /// Makes one of the sums that say the same, if there are many. False: there are too many all the same.
    pub(crate) fn merge(&mut self, past: &Past) -> bool {
        if self.cells.len() > self.merge_at {
            self.merge_by(&past.kept());
        }
        self.cells.len() <= CELLS_MOST && self.sharing.len() <= SHARING_MOST
    }

    fn merge_by(&mut self, kept: &Kept) {
        let cells = self.by_events(kept).into_iter().map(|(seen, blocks)| {
            let spans = seen.into_iter().map(|(root, range)| {
                let events = &kept.of(root)[range];
                let (first, last) = (events[0], events[events.len() - 1]);
                Span { root, from: first, to: EventNo(last.0.saturating_add(1)) }
            });
            (spans.collect(), blocks)
        });
        self.cells = cells.collect();
        self.merge_at = (2 * self.cells.len()).max(CELLS_FEW);
    }

    /// The sums, for a hint: as few as there can be, in ascending order.
    pub(crate) fn for_hint(&mut self, kept: &Kept) -> Vec<HintSum> {
        self.merge_by(kept);
        let mut sums: Vec<HintSum> = Vec::with_capacity(self.cells.len());
        for (spans, blocks) in &self.cells {
            let spans =
                spans.iter().map(|Span { root, from, to }| HintSpan { root: *root, from: *from, to: *to });
            sums.push(HintSum { spans: spans.collect(), data: blocks.data, nodes: blocks.nodes });
        }
        sums.sort_unstable_by(|a, b| a.spans.cmp(&b.spans));
        sums
    }

    /// The sums of a hint. `None`: there are more of them than there is room for.
    pub(crate) fn of_hint(hint: SpanHint) -> Option<SpanTable> {
        let SpanHint { versions, sharing, sums, .. } = hint;
        let mut table =
            SpanTable { versions, sharing: sharing.into_iter().collect(), ..SpanTable::default() };
        for HintSum { spans, data, nodes } in sums {
            let spans =
                spans.iter().map(|HintSpan { root, from, to }| Span { root: *root, from: *from, to: *to });
            *table.cells.entry(spans.collect()).or_default() += LeftBlocks { data, nodes };
        }
        table.merge_at = (2 * table.cells.len()).max(CELLS_FEW);
        (table.cells.len() <= CELLS_MOST && table.sharing.len() <= SHARING_MOST).then_some(table)
    }

    /// What is seen by which of these events, the kept ones. What none of them sees is left out.
    pub(crate) fn by_events(&self, kept: &Kept) -> HashMap<Vec<Events>, LeftBlocks> {
        let mut by_events: HashMap<Vec<Events>, LeftBlocks> = HashMap::new();
        for (spans, blocks) in &self.cells {
            let mut seen: Vec<Events> = Vec::with_capacity(spans.len());
            for Span { root, from, to } in spans {
                let found = kept.range(*root, *from, *to);
                match seen.last_mut() {
                    _ if found.is_empty() => {}
                    Some((of, last)) if of == root && last.end == found.start => last.end = found.end,
                    _ => seen.push((*root, found)),
                }
            }
            if !seen.is_empty() {
                *by_events.entry(seen).or_default() += *blocks;
            }
        }
        by_events
    }
}

/// A walk that makes sums, as far as it has come.
#[derive(Default)]
pub(crate) struct Making {
    /// How often versions had been given up when it began.
    pub given_up: u64,
    pub walk: VersionsWalk,
    pub chain: Chain,
    pub seers: Seers,
    pub sums: SpanTable,
}

/// The states of one incarnation of an inode, the oldest first.
#[derive(Default)]
pub(crate) struct Chain {
    of: (InodeNo, Incarnation),
    /// When each ended, and who has seen it.
    states: Vec<(EventNo, Vec<Span>)>,
}

impl Chain {
    /// The next state of the walk: one of this chain, or the first of another one.
    pub(crate) fn next(&mut self, of: (InodeNo, Incarnation), end: EventNo, seen: Vec<Span>) {
        if self.of != of {
            *self = Chain { of, states: Vec::new() };
        }
        self.states.push((end, seen));
    }

    /// The spans in which events see the states that have what was born at `birth`, up to the state that
    /// ended at `last` (S1 of [`crate::history::reclaim::spans`]).
    pub(crate) fn that_have(&self, birth: EventNo, last: EventNo) -> Vec<Span> {
        let first = self.states.partition_point(|(end, _)| *end <= birth);
        let states = self.states[first..].iter().take_while(|(end, _)| *end <= last);
        states.flat_map(|(_, seen)| seen.iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeNo = InodeNo(77);

    fn span(root: InodeNo, from: u64, to: u64) -> Span {
        Span { root, from: EventNo(from), to: EventNo(to) }
    }

    fn add(table: &mut SpanTable, kept: &Kept, states: &[(u64, u64)], data: u64) {
        let spans = states.iter().map(|(from, to)| span(InodeNo::ROOT, *from, *to));
        table.add(spans.collect(), LeftBlocks { data, nodes: 0 }, kept);
    }

    fn seen(table: &SpanTable, kept: &Kept) -> Vec<(Vec<Range<usize>>, u64)> {
        let ranges = |seen: Vec<Events>| seen.into_iter().map(|(_, range)| range).collect();
        let mut seen: Vec<(Vec<Range<usize>>, u64)> =
            table.by_events(kept).into_iter().map(|(s, b)| (ranges(s), b.data)).collect();
        seen.sort_unstable_by_key(|(s, _)| (s[0].start, s[0].end, s.len()));
        seen
    }

    fn one(range: Range<usize>) -> Vec<Range<usize>> {
        vec![range]
    }

    #[test]
    fn states_with_no_event_between_are_one_span() {
        let kept = Kept::of_root(&[2, 4, 6]);
        let mut table = SpanTable::default();
        add(&mut table, &kept, &[(1, 3), (3, 5)], 1);
        add(&mut table, &kept, &[(3, 5), (1, 2)], 10);
        add(&mut table, &kept, &[(2, 4), (5, 7)], 100);
        add(&mut table, &kept, &[(3, 4)], 1000);
        assert_eq!(table.cells.len(), 4);
        // In the second sum event 2 lies between the states, and nobody sees the first one.
        let all = seen(&table, &kept);
        assert_eq!(all, [(vec![0..1, 2..3], 100), (one(0..2), 1), (one(1..2), 10)]);
        let without_4 = Kept::of_root(&[2, 6]);
        assert_eq!(seen(&table, &without_4), [(one(0..1), 1), (one(0..2), 100)]);
        assert_eq!(seen(&table, &Kept::of_root(&[4])), [(one(0..1), 11)]);
        assert_eq!(seen(&table, &Kept::default()), []);
    }

    #[test]
    fn many_sums_become_those_of_the_events() {
        let kept = Kept::of_root(&[1000, 5000]);
        let mut table = SpanTable::default();
        for birth in 0..3000 {
            add(&mut table, &kept, &[(birth, 4000)], 1);
            add(&mut table, &kept, &[(birth, 6000)], 1);
        }
        let before = seen(&table, &kept);
        table.merge_by(&kept);
        assert_eq!(table.cells.len(), 3);
        assert_eq!(seen(&table, &kept), before);
        assert_eq!(before, [(one(0..1), 1001), (one(0..2), 1001), (one(1..2), 1999)]);
    }

    /// Events of one root do not see what only those of another see, whatever their numbers.
    #[test]
    fn each_root_has_spans_of_its_own() {
        let kept = Kept::of_roots(&[(InodeNo::ROOT, &[2, 6]), (FILE, &[3, 4, 5])]);
        let mut table = SpanTable::default();
        let blocks = LeftBlocks { data: 1, nodes: 0 };
        // The root directory has no event between its two spans, the file has one.
        table.add(
            vec![span(InodeNo::ROOT, 3, 7), span(FILE, 5, 6), span(InodeNo::ROOT, 1, 3), span(FILE, 1, 4)],
            blocks,
            &kept,
        );
        let all: Vec<Vec<Events>> = table.by_events(&kept).into_keys().collect();
        assert_eq!(all, [vec![(InodeNo::ROOT, 0..2), (FILE, 0..1), (FILE, 2..3)]]);
        table.merge_by(&kept);
        assert_eq!(table.by_events(&kept).into_keys().collect::<Vec<_>>(), all);
        let only_of_file = Kept::of_roots(&[(FILE, &[3, 5])]);
        assert_eq!(table.by_events(&only_of_file).into_keys().collect::<Vec<_>>(), [vec![(FILE, 0..2)]]);
    }
}
