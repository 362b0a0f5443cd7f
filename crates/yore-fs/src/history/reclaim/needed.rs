//! What kept events need.
//!
//! **What is needed** (V9). A version [b, e) is needed exactly if a kept event with a number in that span
//! covers the inode as it was then: an event of the inode itself, or of a directory above it at that moment.
//! So the search follows the way upwards, through the places where the directories were in that span. A name
//! is needed if a kept event of its span covers its directory. For an inode whose place is not known (files
//! of several names, and without a name), any kept event of a directory in the span is enough. Needing too
//! much only costs space.
//!

use crate::history::read::at_time::each_state;
use crate::history::record::Event;
use crate::store::Store;
use crate::{InodeNo, Result};
use hashbrown::{HashMap, HashSet};
use std::sync::Arc;
use yore_format::{EventNo, EventState, Inode, Version};

/// Tells what kept events need.
pub(crate) struct Needed<'s> {
    store: &'s Arc<Store>,
    /// The next number at loading: this cannot tell about what ended later (F2).
    next: EventNo,
    /// Kept events that cover more than one file.
    of_directories: Vec<u64>,
    /// The events of each directory or file that has any, in ascending order.
    by_root: HashMap<InodeNo, Vec<u64>>,
    /// An event that counts as forgotten.
    without: Option<EventNo>,
}

impl<'s> Needed<'s> {
    /// What the events that are kept now need.
    pub(crate) fn load(store: &'s Arc<Store>) -> Result<Needed<'s>> {
        Needed::of(store, |_| true)
    }

    /// What those kept events need that are `wanted`.
    pub(crate) fn of(store: &'s Arc<Store>, wanted: impl Fn(&Event) -> bool) -> Result<Needed<'s>> {
        let next = store.number();
        let mut needed =
            Needed { store, next, of_directories: Vec::new(), by_root: HashMap::new(), without: None };
        store.past.each_event(&store.meta, EventNo(0), &mut |event| {
            if event.row.state == EventState::Kept && wanted(&event) {
                if !event.row.kind.is_of_file() {
                    needed.of_directories.push(event.number.0);
                }
                needed.by_root.entry(event.row.root).or_default().push(event.number.0);
            }
            Ok(true)
        })?;
        Ok(needed)
    }

    /// Where versions and names that only these events have seen may have ended: after the first number of
    /// each span, up to the second (F2, F3).
    pub(crate) fn spans(&self, dying: &[EventNo]) -> Result<Vec<(EventNo, EventNo)>> {
        let mut spans: Vec<(EventNo, EventNo)> = Vec::new();
        for event in dying {
            let found = self.store.past.in_state(&self.store.meta, *event, EventState::Dying)?;
            let last = self.last_of(found.row.root, *event);
            match spans.last_mut().filter(|(_, end)| *end >= *event) {
                Some((_, end)) => *end = last.max(*end),
                None => spans.push((*event, last)),
            }
        }
        Ok(spans)
    }

    /// The next number when the events were loaded: this cannot tell about what ended later (F2).
    pub(crate) fn next(&self) -> EventNo {
        self.next
    }

    /// Up to where versions and names that only this event has seen may have ended: the next of these events
    /// of the same directory, or of the volume (F3).
    pub(crate) fn next_of(&self, event: &Event) -> EventNo {
        self.last_of(event.row.root, event.number)
    }

    fn last_of(&self, root: InodeNo, event: EventNo) -> EventNo {
        let next = |root: InodeNo| {
            let numbers = self.by_root.get(&root).map_or(&[][..], Vec::as_slice);
            numbers.get(numbers.partition_point(|number| *number <= event.0)).copied()
        };
        let last = next(root).into_iter().chain(next(InodeNo::ROOT)).min();
        last.map_or(self.next, |last| EventNo(last).min(self.next))
    }

    /// Whether only this kept event needs a version: the version would go with the event.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn only_by(&mut self, event: EventNo, no: InodeNo, version: &Version) -> Result<bool> {
        self.without = Some(event);
        let needed = self.version(no, version);
        self.without = None;
        Ok(!needed?)
    }

    /// Whether one of these ascending numbers is in `from..to`.
    fn any_in(&self, numbers: &[u64], from: EventNo, to: EventNo) -> bool {
        let first = numbers.partition_point(|number| *number < from.0);
        let without = self.without.map(|number| number.0);
        let found = numbers[first..].iter().find(|number| Some(**number) != without);
        found.is_some_and(|number| *number < to.0)
    }

    /// Whether a kept event has seen this version.
    pub(crate) fn version(&self, no: InodeNo, version: &Version) -> Result<bool> {
        match self.seen(no, &version.inode, version.inode.born, version.end) {
            Seen::Yes => Ok(true),
            Seen::No => Ok(false),
            Seen::With(directory) => self.in_directory(directory, version.inode.born, version.end),
        }
    }

    /// Whether a kept event in `from..to` is of this very directory or file.
    pub(crate) fn has_event(&self, root: InodeNo, from: EventNo, to: EventNo) -> bool {
        self.by_root.get(&root).is_some_and(|numbers| self.any_in(numbers, from, to))
    }

    /// What is known of an inode that was like this in `from..to`.
    fn seen(&self, no: InodeNo, inode: &Inode, from: EventNo, to: EventNo) -> Seen {
        if self.has_event(no, from, to) {
            Seen::Yes
        } else if !self.any_in(&self.of_directories, from, to) {
            Seen::No
        } else if !has_one_name(inode) || self.has_event(InodeNo::ROOT, from, to) {
            Seen::Yes
        } else if no == InodeNo::ROOT {
            Seen::No
        } else {
            Seen::With(inode.parent)
        }
    }

    /// Whether a kept event in `from..to` covers a directory. O(states of the directories above it in that
    /// span), if the span contains events of directories; else O(log events).
    pub(crate) fn in_directory(&self, directory: InodeNo, from: EventNo, to: EventNo) -> Result<bool> {
        let (mut left, mut met) = (vec![(directory, from, to)], HashSet::new());
        while let Some((directory, from, to)) = left.pop() {
            // This also stops at a circle, which is damage.
            if !met.insert((directory, from, to)) {
                continue;
            }
            let mut seen = false;
            each_state(self.store, directory, from, to, &mut |inode, from, to| {
                match self.seen(directory, inode, from, to) {
                    Seen::Yes => seen = true,
                    Seen::No => {}
                    Seen::With(above) => left.push((above, from, to)),
                }
                !seen
            })?;
            if seen {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether an inode had a single name, and its place is known.
pub(crate) fn has_one_name(inode: &Inode) -> bool {
    inode.links > 0 && (inode.is_directory() || (inode.links == 1 && inode.parent != InodeNo::NONE))
}

/// Whether kept events have seen something.
enum Seen {
    Yes,
    No,
    /// If kept events have seen this directory.
    With(InodeNo),
}
