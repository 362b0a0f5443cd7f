//! Which cuts there are, in memory: their numbers, by state.

use crate::InodeNo;
use std::collections::{BTreeMap, BTreeSet};
use yore_format::{CutKind, CutRow, Number};

/// The numbers of cuts, by state, each with the file if it is of a single one.
#[derive(Default)]
pub(super) struct Numbers {
    pub(super) kept: BTreeMap<Number, Option<InodeNo>>,
    /// Invisible, but perhaps not on the medium.
    pub(super) dying: BTreeMap<Number, Option<InodeNo>>,
    /// Dying on the medium, too.
    pub(super) dead: BTreeSet<Number>,
    /// Those of directories that are kept or dying: what covers inodes below.
    pub(super) directories: BTreeSet<Number>,
    /// Those of them that no policy took: what covers inodes below that are excluded.
    pub(super) asked: BTreeSet<Number>,
    /// So those of single files.
    pub(super) files: BTreeSet<(InodeNo, Number)>,
}

impl Numbers {
    /// One more is kept.
    pub(super) fn keep(&mut self, number: Number, row: &CutRow) {
        let file = row.kind.is_of_file().then_some(row.root);
        self.kept.insert(number, file);
        match file {
            None => {
                if row.kind != CutKind::Interval {
                    self.asked.insert(number);
                }
                self.directories.insert(number)
            }
            // That it was removed is no state of it.
            Some(file) if row.kind != CutKind::Removed => self.files.insert((file, number)),
            Some(_) => false,
        };
    }

    /// One that was dying is so on the medium, too.
    pub(super) fn bury(&mut self, number: Number) {
        let file = self.dying.remove(&number).flatten();
        self.dead.insert(number);
        self.directories.remove(&number);
        self.asked.remove(&number);
        if let Some(file) = file {
            self.files.remove(&(file, number));
        }
    }
}
