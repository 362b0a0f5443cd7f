//! The names of events, and what else people can change of them.
//!
//! **N1** A name is unique among the kept events of one directory: many directories may each have a `step-1`.
//! Where somebody uses a name, it means the event of the nearest directory above that has one of that name
//! ([`crate::history::read::at_time`]).
//!
//! **N2** Two stretches of the index tell which events of one directory have a name: that of the directory
//! and that of the name. The search looks in both by turns for what both have, so the shorter stretch
//! determines how long it takes.
//!
//! **N3** A volume on which two kept events have the same name has [`WriteFeatures::EXTENDED_PAST`]. Older
//! programs refuse to change it.

use super::event::{row_features, Event};
use super::past::{Past, CELL_BLOCKS};
use super::slot::check_there;
use crate::{Error, InodeNo, Result};
use yore_core::btree::Pins;
use yore_core::Core;
use yore_format::{
    event_index_by_name, event_index_by_root, key_parts, EventMore, EventNo, EventRow, EventState, GroupNo,
    HistoryTree, Incarnation, WriteFeatures,
};
use yore_meta::Meta;

impl Past {
    /// The first and the last number of the kept events that may have a name, of any directory; `None` if
    /// there are none. O(log events + events of that name).
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn span_of_name(&self, store: &Core, name: &str) -> Result<Option<(EventNo, EventNo)>> {
        let _events = self.events.read();
        let numbers = self.numbers_named_locked(store, name)?;
        Ok(numbers.first().copied().zip(numbers.last().copied()))
    }

    /// The kept events that may have this name, in ascending order: their names have the same hash.
    fn numbers_named_locked(&self, store: &Core, name: &str) -> Result<Vec<EventNo>> {
        let first = event_index_by_name(&store.hash_seed, name, EventNo(0));
        let mut numbers = Vec::new();
        self.tree(HistoryTree::EventIndex).scan(&store.meta, &first, &mut |key, _| {
            let same = key[..8] == first[..8];
            if same {
                numbers.push(EventNo(key_parts::<2>(key)?[1]));
            }
            Ok(same)
        })?;
        Ok(numbers)
    }

    /// The kept events with this name, of any directory, in ascending order. O(events of that name · log
    /// events).
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn named(&self, store: &Core, name: &str) -> Result<Vec<Event>> {
        let _events = self.events.read();
        let numbers = self.numbers_named_locked(store, name)?;
        let events = numbers.into_iter().map(|number| self.indexed(&store.meta, number));
        events.filter(|event| event.as_ref().map_or(true, |event| event.row.name == name)).collect()
    }

    /// Those of [`Past::named`] that are of this directory itself, or of another one that had its number.
    /// Takes O(log events) for each event of the directory or of the name, whichever are fewer.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn named_of(&self, store: &Core, root: InodeNo, name: &str) -> Result<Vec<Event>> {
        let _events = self.events.read();
        self.named_of_locked(store, root, name)
    }

    fn named_of_locked(&self, store: &Core, root: InodeNo, name: &str) -> Result<Vec<Event>> {
        let (mut found, mut from) = (Vec::new(), EventNo(0));
        loop {
            let by_name = event_index_by_name(&store.hash_seed, name, from);
            let Some(named) = self.next_in_index(&store.meta, &by_name)? else { break };
            let Some(of_root) = self.next_in_index(&store.meta, &event_index_by_root(root, named))? else {
                break;
            };
            if of_root == named {
                let event = self.indexed(&store.meta, named)?;
                if event.row.name == name && event.row.root == root && event.row.state == EventState::Kept {
                    found.push(event);
                }
            }
            let Some(next) = of_root.0.checked_add(u64::from(of_root == named)) else { break };
            from = EventNo(next);
        }
        Ok(found)
    }

    /// The first number, from that of a key on, in the key's stretch of the index.
    fn next_in_index(&self, meta: &Meta, from: &[u8; 16]) -> Result<Option<EventNo>> {
        let mut next = None;
        self.tree(HistoryTree::EventIndex).scan(meta, from, &mut |key, _| {
            if key[..8] == from[..8] {
                next = Some(EventNo(key_parts::<2>(key)?[1]));
            }
            Ok(false)
        })?;
        Ok(next)
    }

    /// The event of this number, kept, dying or forgotten.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn ever(&self, meta: &Meta, number: EventNo) -> Result<Option<Event>> {
        let _events = self.events.read();
        for tree in [HistoryTree::Events, HistoryTree::Forgotten] {
            let found = self.floor_in(meta, tree, number)?;
            if let Some(event) = found.filter(|event| event.number == number) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Checks that an event of this directory may have a name.
    ///
    /// # Errors
    /// [`Error::Exists`] if another event of the directory has it, or, where names must be unique on the
    /// whole volume (N3), an event of any directory; damage and device errors.
    pub(super) fn check_name_locked(
        &self,
        store: &Core,
        (root, incarnation): (InodeNo, Incarnation),
        name: &str,
    ) -> Result<()> {
        if name.is_empty() {
            return Ok(());
        }
        if !store.meta.has_features(WriteFeatures::EXTENDED_PAST) {
            let numbers = self.numbers_named_locked(store, name)?;
            return if numbers.is_empty() { Ok(()) } else { Err(Error::Exists) };
        }
        let others = self.named_of_locked(store, root, name)?;
        match others.iter().any(|event| event.row.root_incarnation == incarnation) {
            true => Err(Error::Exists),
            false => Ok(()),
        }
    }

    /// Gives the volume the features that it must have before an event with such a name and further fields is
    /// stored (N3). The caller holds no lock.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; those of writing a generation.
    pub(crate) fn extend_for(&self, store: &Core, name: &str, more: &EventMore) -> Result<()> {
        if !more.is_empty() || (!name.is_empty() && self.span_of_name(store, name)?.is_some()) {
            store.meta.extend(WriteFeatures::EXTENDED_PAST)?;
        }
        self.extend_for_annals(&store.meta)
    }

    /// Lets `change` change the name of a kept event, its description, or who holds it; its number, its time
    /// and its root stay. Not durable by itself. Returns the row as it was, and as it is.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the event is not kept; [`Error::Exists`] if another event of the directory has
    /// the name; [`Error::NoSpace`]; damage and device errors.
    pub(crate) fn describe(
        &self,
        store: &Core,
        number: EventNo,
        change: impl Fn(&mut EventRow),
    ) -> Result<(EventRow, EventRow)> {
        let mut wanted = self.in_state(&store.meta, number, EventState::Kept)?.row;
        change(&mut wanted);
        self.extend_for(store, &wanted.name, &wanted.more)?;
        let _still = self.expunging.hold_still();
        let _events = self.events.write();
        let was = self.in_state_locked(&store.meta, number, EventState::Kept)?.row;
        let mut row = was.clone();
        change(&mut row);
        if row == was {
            return Ok((was, row));
        }
        match row.name == was.name {
            true => self.change_row(store, number, row.clone(), "")?,
            false => {
                self.check_name_locked(store, (was.root, was.root_incarnation), &row.name)?;
                self.change_name_locked(store, number, &was.name, &row)?;
            }
        }
        Ok((was, row))
    }

    /// Replaces the row with this number by one that has another name, in one Op with the index.
    fn change_name_locked(&self, store: &Core, number: EventNo, was: &str, row: &EventRow) -> Result<()> {
        let meta = &store.meta;
        let reserved = store.reserve_freely(GroupNo(0), 2 * CELL_BLOCKS)?;
        let mut pins = Pins::new();
        let (mut events, mut index) = (self.tree(HistoryTree::Events), self.tree(HistoryTree::EventIndex));
        let key = number.0.to_be_bytes();
        let by_name =
            |name: &str| (!name.is_empty()).then(|| event_index_by_name(&store.hash_seed, name, number));
        let (old, new) = (by_name(was), by_name(&row.name));
        events.prepare(meta, &key, &key, &mut pins)?;
        for key in old.iter().chain(&new) {
            index.prepare(meta, key, key, &mut pins)?;
        }
        if let Some(key) = &old {
            check_there(meta, &index, key)?;
        }
        let mut op = meta.begin(reserved);
        op.be_whole();
        let delta = events.replace(&mut op, &key, &row.encode_with(row_features(meta)));
        self.store(&mut op, HistoryTree::Events, &events, delta);
        // Names with the same hash have the same key.
        if old != new {
            if let Some(key) = &new {
                let delta = index.insert(&mut op, key, &[], number);
                self.store(&mut op, HistoryTree::EventIndex, &index, delta);
            }
            if let Some(key) = &old {
                let delta = index.remove(&mut op, key);
                self.store(&mut op, HistoryTree::EventIndex, &index, delta);
            }
        }
        Ok(())
    }
}
