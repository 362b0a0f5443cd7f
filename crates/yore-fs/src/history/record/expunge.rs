//! What expunging changes in the trees of the past ([`crate::history::reclaim::expunge`] says when): the row
//! that says that the history of a file is being given up, and names that are given up for it.
//!
//! The row is an event that nobody sees. It has a number, and what the file was before that number is gone
//! from the moment the row exists. The same Op detaches the present: the inode in use, and the name that it
//! remembers, are born at that number, so no earlier event has seen them. From then on nobody sees what was
//! before ([`Expunging::has`]); it is given up in Ops of its own.

use super::ended::Ended;
use super::entry::PastEntry;
use super::event::{after, row_features};
use super::expunging::Expunge;
use super::past::{Past, CELL_BLOCKS};
use super::slot::check_there;
use super::slot::Slot;
use crate::{InodeNo, Result};
use parking_lot::RwLockWriteGuard;
use std::sync::atomic::Ordering;
use yore_core::btree::Pins;
use yore_core::Core;
use yore_format::{
    event_index_by_root, EventKind, EventNo, EventRow, EventState, Features, GroupNo, HistoryTree,
    Incarnation, Timestamp,
};
use yore_meta::{Meta, Op};

/// Blocks that entering the row may need: the row itself, and its entry in the index.
pub(crate) const ROW_BLOCKS: u32 = 2 * CELL_BLOCKS;

impl Past {
    /// Lets a caller enter rows; no event is taken meanwhile. Lock order: before any inode's state.
    pub(crate) fn enter_expunges(&self) -> Entering<'_> {
        self.enter_rows(EventKind::Expunge, String::new())
    }

    /// As [`Past::enter_expunges`], for rows of any kind of work, which have this text in place of a name.
    pub(super) fn enter_rows(&self, kind: EventKind, text: String) -> Entering<'_> {
        Entering { past: self, last: self.events.write(), kind, text }
    }

    /// Removes the row of finished work.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(super) fn remove_row(&self, store: &Core, number: EventNo, root: InodeNo) -> Result<()> {
        let meta = &store.meta;
        let _events = self.events.write();
        let reserved = store.reserve_freely(GroupNo(0), 0)?;
        let mut pins = Pins::new();
        let (key, by_root) = (number.0.to_be_bytes(), event_index_by_root(root, number));
        let (mut events, mut index) = (self.tree(HistoryTree::Events), self.tree(HistoryTree::EventIndex));
        check_there(meta, &events, &key)?;
        check_there(meta, &index, &by_root)?;
        events.prepare(meta, &key, &key, &mut pins)?;
        index.prepare(meta, &by_root, &by_root, &mut pins)?;
        let mut op = meta.begin(reserved);
        op.be_whole();
        let delta = events.remove(&mut op, &key);
        self.store(&mut op, HistoryTree::Events, &events, delta);
        let delta = index.remove(&mut op, &by_root);
        self.store(&mut op, HistoryTree::EventIndex, &index, delta);
        Ok(())
    }

    /// After the row of a file was entered: on return nobody reads any more what the file was before it.
    /// `forget` drops that from memory. The caller holds no lock but that of [`Expunging::hold_still`].
    pub(crate) fn hide(&self, forget: impl FnOnce()) {
        // A reader of a version finishes reading first; later readers do not find it.
        let _reading = self.reading.write();
        forget();
    }

    /// Removes the row of a file whose history is all given up: nothing remembers that history.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn end_expunge(&self, store: &Core, file: &Expunge) -> Result<()> {
        self.remove_row(store, file.number, file.inode)?;
        self.expunging.remove(file);
        Ok(())
    }

    /// Gives up what a name meant before a number. If it went on meaning that, its meaning now begins at that
    /// number.
    ///
    /// # Errors
    /// Damage and device errors; `NoSpace`.
    pub(crate) fn expunge_name(&self, store: &Core, name: &PastEntry, number: EventNo) -> Result<()> {
        let PastEntry { directory, cookie, birth, death, .. } = *name;
        if death <= number {
            return self.remove_name(store, &Ended { end: death, inode: directory, cookie }, birth);
        }
        match self.annals_with(death) {
            Some(annals) => annals.begin_name_later(store, name, number),
            None => self.first().begin_name_later(store, name, number),
        }
    }
}

/// Permission to enter rows that say that something is under way.
pub(crate) struct Entering<'p> {
    past: &'p Past,
    last: RwLockWriteGuard<'p, Timestamp>,
    kind: EventKind,
    /// The text in place of a name.
    text: String,
}

/// A row that is ready to be entered.
pub(crate) struct Row {
    file: Expunge,
    events: Slot,
    index: Slot,
    time: Timestamp,
    features: Features,
}

impl Entering<'_> {
    /// Prepares the row of a file.
    ///
    /// # Errors
    /// [`crate::Error::Refused`] on a volume without numbers left; damage and device errors.
    pub(crate) fn prepare(&self, meta: &Meta, inode: InodeNo, incarnation: Incarnation) -> Result<Row> {
        self.past.check_numbers_left(meta)?;
        let file = Expunge { number: meta.number(), inode, incarnation };
        let (key, by_root) = (file.number.0.to_be_bytes(), event_index_by_root(inode, file.number));
        let events = self.past.slot(meta, HistoryTree::Events, &key, CELL_BLOCKS)?;
        let index = self.past.slot(meta, HistoryTree::EventIndex, &by_root, CELL_BLOCKS)?;
        let time = after(*self.last, crate::clock::now());
        Ok(Row { file, events, index, time, features: row_features(meta) })
    }

    /// Enters the row, inside an Op with [`ROW_BLOCKS`]. If the row expunges, the caller has locked the state
    /// of the inode in use, and what was before is now given up.
    pub(crate) fn apply(&mut self, op: &mut Op<'_>, row: Row) {
        let Row { file, events, index, time, features } = row;
        // The row, its key and what it detaches are one: no order of them is right where a crash may stop.
        op.be_whole();
        let Expunge { number, inode, incarnation } = file;
        let taken = op.take_number_beside_others();
        assert_eq!(taken, number, "a number taken beside the lock of the events");
        let value = EventRow {
            time,
            kind: self.kind,
            state: EventState::Dying,
            held: false,
            root: inode,
            root_incarnation: incarnation,
            name: self.text.clone(),
            more: Default::default(),
        };
        let past = self.past;
        events.insert(past, op, &number.0.to_be_bytes(), &value.encode_with(features), number);
        index.insert(past, op, &event_index_by_root(inode, number), &[], number);
        past.last.store(number.0, Ordering::Release);
        if self.kind == EventKind::Expunge {
            past.expunging.add(file);
        }
        *self.last = time;
    }
}

impl Row {
    /// The file of the row.
    pub(crate) fn file(&self) -> Expunge {
        self.file
    }
}
