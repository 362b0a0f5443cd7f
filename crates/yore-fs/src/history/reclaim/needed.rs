//! What kept cuts need.
//!
//! **What is needed** (V9). A version [b, e) is needed exactly if a kept cut with a number in that span covers the
//! inode as it was then: a cut of itself, or of a directory above it at that moment. So the way upwards is followed through
//! what the directories were in that span. A name is needed if a kept cut of its span covers its directory. Of what is
//! not known (files of several names, and without a name) any kept cut of a directory in the span will do. To need too much costs space.
//!

use crate::history::read::at_time::each_state;
use crate::history::record::Cut;
use crate::store::Store;
use crate::{InodeNo, Result};
use hashbrown::{HashMap, HashSet};
use std::sync::Arc;
use yore_format::{CutState, Inode, Number, Version};

/// Says what kept cuts need.
pub(crate) struct Needed<'s> {
    store: &'s Arc<Store>,
    /// The next number when it was loaded: what ended later is not for it to say (F2).
    next: Number,
    /// Kept cuts that cover more than one file.
    of_directories: Vec<u64>,
    /// Of each directory or file that was cut; in ascending order.
    by_root: HashMap<InodeNo, Vec<u64>>,
    /// A cut that is taken to be forgotten.
    without: Option<Number>,
}

impl<'s> Needed<'s> {
    /// By the cuts that are kept now.
    pub(crate) fn load(store: &'s Arc<Store>) -> Result<Needed<'s>> {
        Needed::of(store, |_| true)
    }

    /// By those of them that are `wanted`.
    pub(crate) fn of(store: &'s Arc<Store>, wanted: impl Fn(&Cut) -> bool) -> Result<Needed<'s>> {
        let next = store.number();
        let mut needed =
            Needed { store, next, of_directories: Vec::new(), by_root: HashMap::new(), without: None };
        store.past.each_cut(&store.meta, Number(0), &mut |cut| {
            if cut.row.state == CutState::Kept && wanted(&cut) {
                if !cut.row.kind.is_of_file() {
                    needed.of_directories.push(cut.number.0);
                }
                needed.by_root.entry(cut.row.root).or_default().push(cut.number.0);
            }
            Ok(true)
        })?;
        Ok(needed)
    }

    /// Where what these cuts alone have seen may have ended: behind the first number of each span, up to the second (F2, F3).
    pub(crate) fn spans(&self, dying: &[Number]) -> Result<Vec<(Number, Number)>> {
        let mut spans: Vec<(Number, Number)> = Vec::new();
        for cut in dying {
            let found = self.store.past.in_state(&self.store.meta, *cut, CutState::Dying)?;
            let last = self.last_of(found.row.root, *cut);
            match spans.last_mut().filter(|(_, end)| *end >= *cut) {
                Some((_, end)) => *end = last.max(*end),
                None => spans.push((*cut, last)),
            }
        }
        Ok(spans)
    }

    /// The next number when the cuts were looked at: what ended later is not for them to say (F2).
    pub(crate) fn next(&self) -> Number {
        self.next
    }

    /// Up to where what a cut alone has seen may have ended: the next of these of the same directory, or of the volume (F3).
    pub(crate) fn next_of(&self, cut: &Cut) -> Number {
        self.last_of(cut.row.root, cut.number)
    }

    fn last_of(&self, root: InodeNo, cut: Number) -> Number {
        let next = |root: InodeNo| {
            let numbers = self.by_root.get(&root).map_or(&[][..], Vec::as_slice);
            numbers.get(numbers.partition_point(|number| *number <= cut.0)).copied()
        };
        let last = next(root).into_iter().chain(next(InodeNo::ROOT)).min();
        last.map_or(self.next, |last| Number(last).min(self.next))
    }

    /// Whether this kept cut alone needs a version: it would go with the cut.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn only_by(&mut self, cut: Number, no: InodeNo, version: &Version) -> Result<bool> {
        self.without = Some(cut);
        let needed = self.version(no, version);
        self.without = None;
        Ok(!needed?)
    }

    /// Whether one of the numbers, which ascend, is in `from..to`.
    fn any_in(&self, numbers: &[u64], from: Number, to: Number) -> bool {
        let first = numbers.partition_point(|number| *number < from.0);
        let without = self.without.map(|number| number.0);
        let found = numbers[first..].iter().find(|number| Some(**number) != without);
        found.is_some_and(|number| *number < to.0)
    }

    /// Whether a kept cut has seen this version.
    pub(crate) fn version(&self, no: InodeNo, version: &Version) -> Result<bool> {
        match self.seen(no, &version.inode, version.inode.born, version.end) {
            Seen::Yes => Ok(true),
            Seen::No => Ok(false),
            Seen::With(directory) => self.in_directory(directory, version.inode.born, version.end),
        }
    }

    /// Whether a kept cut in `from..to` is of this very directory or file.
    pub(crate) fn has_cut(&self, root: InodeNo, from: Number, to: Number) -> bool {
        self.by_root.get(&root).is_some_and(|numbers| self.any_in(numbers, from, to))
    }

    /// What is known of an inode that was so in `from..to`.
    fn seen(&self, no: InodeNo, inode: &Inode, from: Number, to: Number) -> Seen {
        if self.has_cut(no, from, to) {
            Seen::Yes
        } else if !self.any_in(&self.of_directories, from, to) {
            Seen::No
        } else if !has_one_name(inode) || self.has_cut(InodeNo::ROOT, from, to) {
            Seen::Yes
        } else if no == InodeNo::ROOT {
            Seen::No
        } else {
            Seen::With(inode.parent)
        }
    }

    /// Whether a kept cut in `from..to` covers a directory. O(states of the directories above it in that span), if there
    /// are cuts of directories in it; else O(log cuts).
    pub(crate) fn in_directory(&self, directory: InodeNo, from: Number, to: Number) -> Result<bool> {
        let (mut left, mut met) = (vec![(directory, from, to)], HashSet::new());
        while let Some((directory, from, to)) = left.pop() {
            // Also where damage makes a circle.
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

/// Whether an inode had a single name, and where that was is known.
pub(crate) fn has_one_name(inode: &Inode) -> bool {
    inode.links > 0 && (inode.is_directory() || (inode.links == 1 && inode.parent != InodeNo::NONE))
}

/// Whether kept cuts have seen something.
enum Seen {
    Yes,
    No,
    /// If they have seen this directory.
    With(InodeNo),
}
