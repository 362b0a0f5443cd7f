//! Which events there are, in memory: their numbers, by state.

use crate::InodeNo;
use std::collections::{BTreeMap, BTreeSet};
use yore_format::{EventKind, EventNo, EventRow};

/// The numbers of events, by state, each with the file if it is of a single one.
#[derive(Default)]
pub(super) struct Numbers {
    pub(super) kept: BTreeMap<EventNo, Option<InodeNo>>,
    /// Invisible, but perhaps not on the medium.
    pub(super) dying: BTreeMap<EventNo, Option<InodeNo>>,
    /// Dying on the medium, too.
    pub(super) dead: BTreeSet<EventNo>,
    /// Those of directories that are kept or dying: what covers inodes below.
    pub(super) directories: BTreeSet<EventNo>,
    /// Those of them that no policy took: what covers inodes below that are excluded.
    pub(super) asked: BTreeSet<EventNo>,
    /// So those of single files.
    pub(super) files: BTreeSet<(InodeNo, EventNo)>,
}

impl Numbers {
    /// One more is kept.
    pub(super) fn keep(&mut self, number: EventNo, row: &EventRow) {
        let file = row.kind.is_of_file().then_some(row.root);
        self.kept.insert(number, file);
        match file {
            None => {
                if row.kind != EventKind::Interval {
                    self.asked.insert(number);
                }
                self.directories.insert(number)
            }
            // That it was removed is no state of it.
            Some(file) if row.kind != EventKind::Removed => self.files.insert((file, number)),
            Some(_) => false,
        };
    }

    /// One that was dying is so on the medium, too.
    pub(super) fn bury(&mut self, number: EventNo) {
        let file = self.dying.remove(&number).flatten();
        self.dead.insert(number);
        self.directories.remove(&number);
        self.asked.remove(&number);
        if let Some(file) = file {
            self.files.remove(&(file, number));
        }
    }
}
