//! The events, the forgotten events, and the index of the others.

use super::index::Index;
use crate::checker::Checker;
use crate::finding::PastRow;
use crate::spill::Sorter;
use crate::{CheckError, Finding, Problem};
use std::collections::BTreeMap;
use yore_format::{
    event_index_by_name, event_index_by_root, key_parts, Block, EventKind, EventNo, EventRow, EventState,
    Features, HistoryTree, Incarnation, InodeNo, MetaAddr, RollbackIntent, Timestamp, WriteFeatures,
};

/// What the trees of events hold.
struct Events {
    times: Vec<Event>,
    /// The keys that their index should have.
    keys: Sorter,
    /// The names by which kept events can be found, each with its root, or without one on a volume where
    /// names of events are unique.
    names: BTreeMap<(Option<(InodeNo, Incarnation)>, String), EventNo>,
    /// The kept events, each with its root and kind.
    kept: BTreeMap<EventNo, (InodeNo, EventKind)>,
    rollbacks: Vec<Rollback>,
}

/// A directory that is being rolled back.
struct Rollback {
    number: EventNo,
    root: InodeNo,
    incarnation: Incarnation,
    /// Suspended: since then anything may have happened to the directory.
    stopped: bool,
    intent: RollbackIntent,
    addr: MetaAddr,
}

/// The time of an event, and where its row stands.
struct Event {
    number: EventNo,
    time: Timestamp,
    root: InodeNo,
    addr: MetaAddr,
    is_forgotten: bool,
}

impl Checker<'_> {
    /// Checks the events, the forgotten events, and the index of the others.
    pub(super) fn events(&mut self, roots: &Block) -> Result<(), CheckError> {
        let mut events = Events {
            times: Vec::new(),
            keys: Sorter::new(self.room.list()),
            names: BTreeMap::new(),
            kept: BTreeMap::new(),
            rollbacks: Vec::new(),
        };
        let complete = self.events_in(roots, HistoryTree::Events, &mut events)?;
        self.events_in(roots, HistoryTree::Forgotten, &mut events)?;
        self.event_times(events.times);
        if complete {
            self.rollbacks(&events.rollbacks, &events.kept)?;
        }
        let keys = events.keys.into_sorted()?;
        let index = Index {
            keys: &keys,
            first: &[],
            complete,
            problem: Problem::EventIndex,
            shown: |key| match key_parts(key) {
                Ok([first, number]) => format!("event {number} under {first:#x}"),
                Err(c) => c.to_string(),
            },
        };
        self.compare_index((HistoryTree::EventIndex, roots), None, index)
    }

    /// Gathers the events in one of their trees. Returns whether all of them could be read.
    fn events_in(
        &mut self,
        roots: &Block,
        tree: HistoryTree,
        events: &mut Events,
    ) -> Result<bool, CheckError> {
        let mut complete = true;
        let features = match self.sb.features.contains(WriteFeatures::ANNALS) {
            true => Features::ANNALS,
            false => Features::empty(),
        };
        let mut walk = Self::past_walk(roots, tree);
        while let Some(leaf) = self.next_past_leaf(&mut walk)? {
            for i in 0..leaf.count() {
                let (number, value) = leaf.cell(i);
                match tree {
                    HistoryTree::Forgotten => self.counts.forgotten += 1,
                    _ => self.counts.events += 1,
                }
                match EventRow::decode_with(value, features) {
                    Ok(event) => complete &= self.event(tree, leaf.addr, EventNo(number), event, events)?,
                    Err(c) => {
                        self.damaged_cell(c, leaf.addr);
                        complete = false;
                    }
                }
            }
        }
        Ok(complete && walk.is_none_or(|walk| walk.complete))
    }

    /// Checks an event, and keeps what is compared with other events. Only events in the tree of events are
    /// in the index. Returns whether all of it could be read.
    fn event(
        &mut self,
        tree: HistoryTree,
        addr: MetaAddr,
        number: EventNo,
        event: EventRow,
        events: &mut Events,
    ) -> Result<bool, CheckError> {
        self.check_event(tree, addr, number, &event);
        let EventRow { time, kind, state, held, root, root_incarnation: incarnation, name, more } = event;
        if !more.is_empty() {
            self.needs(WriteFeatures::EXTENDED_PAST, "an event with further fields", addr, root);
        }
        let is_forgotten = tree == HistoryTree::Forgotten;
        events.times.push(Event { number, time, root, addr, is_forgotten });
        if tree == HistoryTree::Forgotten {
            return Ok(true);
        }
        events.keys.push(&event_index_by_root(root, number), &[])?;
        if kind == EventKind::Rollback {
            self.counts.rollbacks += 1;
            let intent = match RollbackIntent::decode(&name) {
                Ok(intent) => intent,
                Err(c) => {
                    self.damaged_cell(c, addr);
                    return Ok(false);
                }
            };
            events.rollbacks.push(Rollback { number, root, incarnation, stopped: held, intent, addr });
        }
        if kind == EventKind::Expunge {
            let last = self.history.expunged.entry((root, incarnation)).or_default();
            *last = number.max(*last);
        }
        if state == EventState::Kept {
            events.kept.insert(number, (root, kind));
        }
        // The names of dying events are free.
        if state != EventState::Dying && !name.is_empty() {
            events.keys.push(&event_index_by_name(&self.sb.hash_seed, &name, number), &[])?;
            let of = self.sb.features.contains(WriteFeatures::EXTENDED_PAST).then_some((root, incarnation));
            if let Some(other) = events.names.insert((of, name.clone()), number) {
                let found = format!("{name:?} of the events {other} and {number}");
                let finding =
                    Finding::new(Problem::EventName, "one event of a name", found).at(addr).of(root);
                self.add(finding.of_row(Some(PastRow::Event { number, is_forgotten })));
            }
        }
        Ok(true)
    }

    /// Checks that each unfinished rollback can be finished: the events that it needs are kept, and the
    /// directory exists.
    fn rollbacks(
        &mut self,
        all: &[Rollback],
        kept: &BTreeMap<EventNo, (InodeNo, EventKind)>,
    ) -> Result<(), CheckError> {
        for of in all {
            let Rollback { number, root, incarnation, stopped, intent, addr } = of;
            let row = Some(PastRow::Event { number: *number, is_forgotten: false });
            let is_there = |event: &EventNo| event < number && kept.contains_key(event);
            if let Some(missing) = intent.needs().find(|event| !is_there(event)) {
                let finding = Finding::new(Problem::RollbackEvent, "a kept event before it", missing.0);
                self.add(finding.at(*addr).of(*root).of_row(row.clone()));
            } else if kept.get(&intent.before) != Some(&(*root, EventKind::Undo)) {
                let expected = "an event of the same directory, to undo it, before it";
                let finding = Finding::new(Problem::RollbackEvent, expected, intent.before.0);
                self.add(finding.at(*addr).of(*root).of_row(row.clone()));
            }
            if *stopped || self.is_hidden(*root)? {
                continue;
            }
            self.history.rolls_back = true;
            let found = match self.known_inode(*root)? {
                Some(known) if known.is_directory() && known.incarnation == *incarnation => continue,
                Some(known) => format!("{:?} of incarnation {}", known.kind, known.incarnation),
                None => "no inode in use".to_string(),
            };
            let finding = Finding::new(Problem::RollbackRoot, format!("a directory of {incarnation}"), found);
            self.add(finding.at(*addr).of(*root).of_row(row));
        }
        Ok(())
    }

    /// Checks an event by itself.
    fn check_event(&mut self, tree: HistoryTree, addr: MetaAddr, number: EventNo, event: &EventRow) {
        let next = self.sb.next_number;
        let row = Some(PastRow::Event { number, is_forgotten: tree == HistoryTree::Forgotten });
        if number.0 == 0 || number >= next {
            let finding = Finding::new(Problem::EventNumber, format!("from 1 to below {next}"), number.0);
            self.add(finding.at(addr).of(event.root).of_row(row.clone()));
        }
        let (right, expected) = match (tree, event.kind) {
            // Nobody can look at it from the beginning, and nothing remembers it in the end.
            (_, kind) if kind.is_work() => {
                (tree == HistoryTree::Events && event.state == EventState::Dying, "dying, of work under way")
            }
            (HistoryTree::Forgotten, _) => (event.state == EventState::Forgotten, "forgotten"),
            _ => (event.state != EventState::Forgotten, "kept or dying"),
        };
        if !right {
            let found = format!("event {number}, {}", state_name(event.state));
            let finding = Finding::new(Problem::EventState, expected, found).at(addr).of(event.root);
            self.add(finding.of_row(row));
        }
        self.check_incarnation(event.root_incarnation, event.root, addr);
    }

    /// Compares numbers and times over both trees of events.
    fn event_times(&mut self, mut events: Vec<Event>) {
        events.sort_by_key(|event| event.number);
        let text = |t: Timestamp| format!("{}.{:09} s", t.seconds, t.nanos);
        for (before, event) in events.iter().zip(events.iter().skip(1)) {
            let finding = if before.number == event.number {
                let expected = format!("one event {}", event.number);
                Finding::new(Problem::EventTwice, expected, format!("another one at {}", before.addr))
            } else if before.time >= event.time {
                let expected = format!("later than {}", text(before.time));
                Finding::new(Problem::EventTime, expected, text(event.time))
            } else {
                continue;
            };
            let (number, is_forgotten) = (event.number, event.is_forgotten);
            let row = PastRow::Event { number, is_forgotten };
            self.add(finding.at(event.addr).of(event.root).of_row(Some(row)));
        }
    }
}

fn state_name(state: EventState) -> &'static str {
    match state {
        EventState::Kept => "kept",
        EventState::Dying => "dying",
        EventState::Forgotten => "forgotten",
    }
}
