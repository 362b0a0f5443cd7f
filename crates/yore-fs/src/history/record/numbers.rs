//! Which events exist, in memory: their numbers, by state.

use crate::InodeNo;
use std::collections::{BTreeMap, BTreeSet};
use yore_format::{EventKind, EventNo, EventRow};

/// What an event is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Of {
    pub(super) root: InodeNo,
    /// A single file, and not a directory with all that is below it.
    pub(super) is_file: bool,
}

/// The numbers of events, by state; those of single files come with their file.
#[derive(Default)]
pub(super) struct Numbers {
    pub(super) kept: BTreeMap<EventNo, Of>,
    /// Invisible, but perhaps not so on the medium.
    pub(super) dying: BTreeMap<EventNo, Option<InodeNo>>,
    /// Dying, and so on the medium, too.
    pub(super) dying_on_medium: BTreeSet<EventNo>,
    /// Events of directories that are kept or dying: they cover the inodes below.
    pub(super) directories: BTreeSet<EventNo>,
    /// Those of `directories` that no policy took: they also cover the excluded inodes below.
    pub(super) asked: BTreeSet<EventNo>,
    /// Events of single files that are kept or dying.
    pub(super) files: BTreeSet<(InodeNo, EventNo)>,
}

impl Numbers {
    /// One more event is kept.
    pub(super) fn insert(&mut self, number: EventNo, row: &EventRow) {
        let file = row.kind.is_of_file().then_some(row.root);
        self.kept.insert(number, Of { root: row.root, is_file: file.is_some() });
        match file {
            None => {
                if row.kind != EventKind::Interval {
                    self.asked.insert(number);
                }
                self.directories.insert(number)
            }
            // The removal of a file is no state of it.
            Some(file) if row.kind != EventKind::Removed => self.files.insert((file, number)),
            Some(_) => false,
        };
    }

    /// The medium has a dying event as dying, too.
    pub(super) fn note_dying_on_medium(&mut self, number: EventNo) {
        let file = self.dying.remove(&number).flatten();
        self.dying_on_medium.insert(number);
        self.directories.remove(&number);
        self.asked.remove(&number);
        if let Some(file) = file {
            self.files.remove(&(file, number));
        }
    }
}
