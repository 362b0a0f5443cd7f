//! Which of the kept events have seen a directory in a span of numbers, without a look at each event.
//!
//! An event has seen a directory if it is an event of that directory, or has seen the one above. So the
//! search follows the way upwards, through the places where the directories were in that span, each as long
//! as its entry above existed. Everything with an entry in the directory that the event is of was as it is
//! found ([`super::tree`]).

use super::answer::SeenBy;
use crate::history::read::at_time;
use crate::history::record::Event;
use crate::store::Store;
use crate::{Error, InodeNo, Result};
use hashbrown::{HashMap, HashSet};
use std::sync::Arc;
use yore_format::{EventNo, Incarnation};

/// The kept events, as they were when they were loaded.
pub(super) struct KeptEvents<'s> {
    pub(super) store: &'s Arc<Store>,
    /// In ascending order.
    events: Vec<Event>,
    /// The numbers of the events of each root, in ascending order.
    by_root: HashMap<(InodeNo, Incarnation), Vec<EventNo>>,
}

/// The first and the last of some events; `None` if there are none.
pub(super) type Span = Option<(EventNo, EventNo)>;

pub(super) fn join_spans(a: Span, b: Span) -> Span {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        (a, b) => a.or(b),
    }
}

/// A state of a directory: the directory above, its cookie there, and from when to when.
type State = ((InodeNo, Incarnation), u64, EventNo, EventNo);

impl<'s> KeptEvents<'s> {
    /// The events that are kept now. O(events).
    pub(super) fn load(store: &'s Arc<Store>) -> Result<KeptEvents<'s>> {
        let events = at_time::events(store)?;
        let mut by_root: HashMap<_, Vec<EventNo>> = HashMap::new();
        for event in &events {
            by_root.entry((event.row.root, event.row.root_incarnation)).or_default().push(event.number);
        }
        Ok(KeptEvents { store, events, by_root })
    }

    /// The first and last of all kept events in `from..to`.
    pub(super) fn any(&self, from: EventNo, to: EventNo) -> Span {
        let first = self.events.partition_point(|event| event.number < from);
        let end = self.events.partition_point(|event| event.number < to);
        (first < end).then(|| (self.events[first].number, self.events[end - 1].number))
    }

    /// The kept events in `first..=last`, the last one first.
    pub(super) fn back_from(&self, first: EventNo, last: EventNo) -> impl Iterator<Item = &Event> {
        let begin = self.events.partition_point(|event| event.number < first);
        let end = self.events.partition_point(|event| event.number <= last);
        self.events[begin..end].iter().rev()
    }

    /// The first and last kept event in `from..to` of this very directory or file. O(log events).
    pub(super) fn own(&self, root: (InodeNo, Incarnation), from: EventNo, to: EventNo) -> Span {
        let numbers = self.by_root.get(&root)?;
        let first = numbers.partition_point(|number| *number < from);
        let end = numbers.partition_point(|number| *number < to);
        (first < end).then(|| (numbers[first], numbers[end - 1]))
    }

    /// The first and last kept event in `from..to` that have seen a directory, which existed all that time.
    /// O(log events) if all events are of the root directory; else O(states of the directories above in that
    /// span).
    ///
    /// # Errors
    /// Damage and device errors.
    pub(super) fn of_directory(
        &self,
        directory: (InodeNo, Incarnation),
        from: EventNo,
        to: EventNo,
    ) -> Result<Span> {
        let (mut left, mut met, mut found) = (vec![(directory, from, to)], HashSet::new(), None);
        while let Some((of, from, to)) = left.pop() {
            let any = self.any(from, to);
            // The last condition also stops at a circle, which is damage.
            if any.is_none() || join_spans(any, found) == found || !met.insert((of, from, to)) {
                continue;
            }
            let of_root = self.by_root.keys().find(|root| root.0 == InodeNo::ROOT);
            found = join_spans(found, of_root.and_then(|root| self.own(*root, from, to)));
            found = join_spans(found, self.own(of, from, to));
            if of.0 == InodeNo::ROOT || join_spans(any, found) == found {
                continue;
            }
            for (above, cookie, from, to) in self.states(of, from, to)? {
                self.follow(of, (above, cookie, from, to), &mut left)?;
            }
        }
        Ok(found)
    }

    /// Where a directory was in `from..to`, latest first. Adjacent states in the same place are joined.
    fn states(&self, of: (InodeNo, Incarnation), from: EventNo, to: EventNo) -> Result<Vec<State>> {
        let mut states: Vec<State> = Vec::new();
        at_time::each_state(self.store, of.0, from, to, &mut |inode, from, to| {
            if inode.incarnation == of.1 && inode.parent != InodeNo::NONE {
                let above = (inode.parent, inode.parent_incarnation);
                match states.last_mut() {
                    Some(last) if (last.0, last.1, last.2) == (above, inode.parent_cookie, to) => {
                        last.2 = from
                    }
                    _ => states.push((above, inode.parent_cookie, from, to)),
                }
            }
            true
        })?;
        Ok(states)
    }

    /// Adds the spans in which the directory, in this state, had its entry above.
    fn follow(
        &self,
        of: (InodeNo, Incarnation),
        (above, cookie, from, to): State,
        left: &mut Vec<((InodeNo, Incarnation), EventNo, EventNo)>,
    ) -> Result<()> {
        let mut end = to;
        while end > from {
            let at = EventNo(end.0 - 1);
            let entry = match at_time::entry_at(self.store, above.0, cookie, at)? {
                Some(entry) => entry,
                None => match self.store.past.name_until(&self.store.meta, above.0, cookie, at)? {
                    Some(entry) => entry,
                    None => break,
                },
            };
            let (birth, death) = (entry.birth.max(from), entry.death.min(end));
            if (entry.inode, entry.incarnation) == of && birth < death {
                left.push((above, birth, death));
            }
            end = entry.birth;
        }
        Ok(())
    }

    /// A kept event, with the time of the next event, even if that has been forgotten: a text that names the
    /// first must not name the second. O(log events).
    ///
    /// # Errors
    /// `Stale` if this is not one of these events; damage and device errors.
    pub(super) fn seen_by(&self, number: EventNo) -> Result<SeenBy> {
        let at = self.events.binary_search_by_key(&number, |event| event.number).map_err(|_| Error::Stale)?;
        let next = self.store.past.time_after(&self.store.meta, number)?;
        Ok(SeenBy { event: self.events[at].clone(), next })
    }
}
