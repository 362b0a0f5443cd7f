//! Taking an event.

use super::event::{after, row_features, Event};
use super::past::{Past, CELL_BLOCKS};
use super::slot::Slot;
use super::users::{Counted, User};
use crate::{Error, InodeNo, Result};
use std::sync::atomic::Ordering;
use yore_core::btree::Pins;
use yore_core::inode::{store_inode, InodeCell};
use yore_core::Core;
use yore_format::{
    event_index_by_name, event_index_by_root, EventKind, EventMore, EventNo, EventRow, EventState, GroupNo,
    HistoryTree, Timestamp, WriteFeatures,
};
use yore_meta::{Meta, Op, Reserved};

/// Blocks that an event may need: a row, two entries of the index, and the first time the block of roots.
const EVENT_BLOCKS: u32 = 3 * CELL_BLOCKS + 1;

/// What kind of event to take.
#[derive(Clone, Debug)]
pub(crate) struct Taking<'a> {
    pub kind: EventKind,
    /// Its name; empty for none.
    pub name: &'a str,
    pub held: bool,
    /// Anything but the default needs [`Past::extend_for`].
    pub more: EventMore,
    /// The time that it gets, only for events of the root directory; `None`: now.
    pub time: Option<Timestamp>,
    /// On whose behalf: the row notes the user, which needs [`yore_format::WriteFeatures::EXTENDED_PAST`],
    /// and he may have a limit.
    pub user: Option<&'a User>,
}

/// Opens the Op that enters an event, and takes its number. What an event of directories covers must lie
/// wholly before or behind it, so no other Op is open then.
fn begin(meta: &Meta, kind: EventKind, reserved: Reserved) -> (Op<'_>, EventNo) {
    let mut op = match kind.is_of_file() {
        true => meta.begin(reserved),
        false => meta.begin_alone(reserved),
    };
    let number = match kind.is_of_file() {
        true => op.take_number_beside_others(),
        false => op.take_number(),
    };
    op.be_whole();
    (op, number)
}

impl Past {
    /// The time of the last event ever taken; before all times if there was none. The caller has no inode's
    /// state locked.
    pub(crate) fn last_time(&self) -> Timestamp {
        *self.events.read()
    }

    /// As [`Past::take`], at the present time.
    ///
    /// # Errors
    /// As [`Past::take`].
    pub(crate) fn event(
        &self,
        store: &Core,
        cell: &InodeCell,
        kind: EventKind,
        (name, held): (&str, bool),
        more: EventMore,
        user: Option<&User>,
    ) -> Result<Event> {
        self.take(store, cell, Taking { kind, name, held, more, time: None, user })
    }

    /// Takes an event of a directory or a file: that, and everything below it now, can be seen as of the
    /// number returned, whatever changes later. Constant time. Not durable by itself. A tombstone does not
    /// show its file; it says when the file was removed.
    /// # Errors
    /// [`Error::LimitReached`]; [`Error::Exists`] if another kept event of the directory has the name;
    /// [`Error::OutOfOrder`] for a time that is not after that of the last event, or in the future;
    /// [`Error::NotFound`]; [`Error::NoSpace`]; damage and device errors.
    pub(crate) fn take(&self, store: &Core, cell: &InodeCell, taking: Taking<'_>) -> Result<Event> {
        let Taking { kind, name, held, mut more, time, user } = taking;
        let meta = &store.meta;
        let must_stay = held || more.held_until.is_some();
        let _still = must_stay.then(|| self.expunging.hold_still());
        let mut last = self.events.write();
        self.check_name_locked(store, (cell.no, cell.incarnation), name)?;
        if time.is_some_and(|time| time <= *last || time > crate::clock::now()) {
            return Err(Error::OutOfOrder { last: *last });
        }
        self.users.check(user, Counted::Snapshots, 1)?;
        if held {
            self.users.check(user, Counted::Holds, 1)?;
        }
        more.by = user.map(|user| user.uid);
        more.held_by = more.by.filter(|_| held);
        let reserved = store.reserve(GroupNo(0), EVENT_BLOCKS)?;
        let mut state = cell.state.write();
        let sees = kind != EventKind::Removed;
        if sees && (state.gone || state.inode.links == 0) {
            return Err(Error::NotFound);
        }
        // Only this function takes numbers, so the number is known in advance.
        let number = meta.number();
        self.check_numbers_left(meta)?;
        let by_root = event_index_by_root(cell.no, number);
        let by_name = (!name.is_empty()).then(|| event_index_by_name(&store.hash_seed, name, number));
        let mut pins = Pins::new();
        let key = number.0.to_be_bytes();
        let events = self.slot(meta, HistoryTree::Events, &key, CELL_BLOCKS)?;
        let index = self.slot(meta, HistoryTree::EventIndex, &by_root, CELL_BLOCKS)?;
        if let Some(key) = &by_name {
            // This cell is entered after the other one, which may change the path.
            index.tree.insert_position(meta, key)?;
            index.tree.prepare(meta, key, key, &mut pins)?;
        }
        let (mut op, taken) = begin(meta, kind, reserved);
        self.make_roots(&mut op, meta.has_features(WriteFeatures::ANNALS));
        assert_eq!(taken, number, "a number taken beside the lock of the events");
        let row = EventRow {
            time: time.unwrap_or_else(|| after(*last, crate::clock::now())),
            kind,
            state: EventState::Kept,
            held,
            root: cell.no,
            root_incarnation: cell.incarnation,
            name: name.to_string(),
            more,
        };
        events.insert(self, &mut op, &key, &row.encode_with(row_features(meta)), number);
        index.insert(self, &mut op, &by_root, &[], number);
        if let Some(key) = &by_name {
            Slot::unknown(self, HistoryTree::EventIndex).insert(self, &mut op, key, &[], number);
        }
        if sees {
            state.inode.own_event = number;
            store_inode(&mut op, cell, &state);
            cell.cover.follow(&state.inode);
        }
        self.note_taken(number, &row);
        *last = row.time;
        drop(op);
        Ok(Event { number, row })
    }

    /// Called inside the Op that enters an event: it counts from now on.
    fn note_taken(&self, number: EventNo, row: &EventRow) {
        self.numbers.write().insert(number, row);
        self.users.add(row);
        self.last.store(number.0, Ordering::Release);
        if row.kind.is_of_file() {
            return;
        }
        self.last_of_directories.store(number.0, Ordering::Release);
        match row.root {
            InodeNo::ROOT => self.root_event.store(number.0, Ordering::Release),
            _ => self.only_root.store(false, Ordering::Release),
        }
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }
}
