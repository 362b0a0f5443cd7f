//! What forgetting changes in the trees of the past ([`crate::history::reclaim::forget`] says when): the
//! states of events, and versions and names that are given up. `forgotten.rs` has what is left of events.

use super::annals::{AnnalsRemoval, RowsRemoval};
use super::ended::{Ended, LeavingRow};
use super::event::{held, held_until, row_features, until_text, Event};
use super::first::FirstRemoval;
use super::past::{Past, CELL_BLOCKS};
use super::slot::check_there;
use super::users::{Counted, User};
use crate::{Error, InodeNo, Result};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use yore_core::btree::Pins;
use yore_core::Core;
use yore_format::{
    event_index_by_name, Corruption, EventNo, EventRow, EventState, GroupNo, HistoryTree, Version,
    WriteFeatures,
};
use yore_meta::{Change, Meta, Op};

impl Past {
    /// Makes events invisible; each occurs once in `numbers`. Not durable by itself: after a crash some of
    /// them may be visible again.
    ///
    /// # Errors
    /// [`Error::NotFound`] if one is not kept, [`Error::Held`] or [`Error::Pinned`] if one must stay: then
    /// nothing has changed. After damage and device errors the events before the failing one are dying.
    pub(crate) fn mark_dying(&self, store: &Core, numbers: &[EventNo]) -> Result<()> {
        let mut marked = 0;
        let result = {
            let _events = self.events.write();
            let mut events = Vec::with_capacity(numbers.len());
            for number in numbers {
                let event = self.in_state_locked(&store.meta, *number, EventState::Kept)?;
                if let Some(held) = held(&event) {
                    return Err(held);
                }
                if self.is_pinned(*number) {
                    return Err(Error::Pinned { event: number.0 });
                }
                events.push(event);
            }
            events.into_iter().try_for_each(|event| {
                let name = event.row.name.clone();
                self.change_row(
                    store,
                    event.number,
                    EventRow { state: EventState::Dying, ..event.row },
                    &name,
                )?;
                marked += 1;
                Ok(())
            })
        };
        let _reading = self.reading.write();
        self.lately.iter().for_each(|event| event.store(0, Ordering::Relaxed));
        let mut all = self.numbers.write();
        for number in &numbers[..marked] {
            let file = all.kept.remove(number).filter(|of| of.is_file).map(|of| of.root);
            all.dying.insert(*number, file);
        }
        result
    }

    /// The medium has these events as dying, too: nothing more is kept for them. On return, a caller that
    /// takes the locks of the shards sees everything that was kept for them.
    pub(crate) fn note_dead(&self, events: &[EventNo]) {
        {
            let mut numbers = self.numbers.write();
            for event in events {
                numbers.note_dying_on_medium(*event);
            }
        }
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether something is to be given up.
    pub(crate) fn is_forgetting(&self) -> bool {
        let is_dying = {
            let numbers = self.numbers.read();
            !numbers.dying.is_empty() || !numbers.dying_on_medium.is_empty()
        };
        is_dying || self.expunging.count() > 0
    }

    /// All kept events, in ascending order. O(events).
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn kept_events(&self, meta: &Meta) -> Result<Vec<Event>> {
        let mut kept = Vec::new();
        self.each_event(meta, EventNo(0), &mut |event| {
            if event.row.state == EventState::Kept {
                kept.push(event);
            }
            Ok(true)
        })?;
        Ok(kept)
    }

    /// Holds a kept event or releases it, on behalf of a user, whom the row notes, and for a reason (an empty
    /// one leaves the present one), if `may` allows it, which gets the row as it is until it changes. Only
    /// root, or a caller without a user, releases an event that a policy holds for a time. Not durable by
    /// itself.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the event is not kept; [`Error::HeldUntil`], [`Error::LimitReached`]; those of
    /// `may`; damage and device errors.
    pub(crate) fn set_held(
        &self,
        store: &Core,
        number: EventNo,
        (held, reason): (bool, &str),
        user: Option<&User>,
        may: &dyn Fn(&EventRow) -> Result<()>,
    ) -> Result<()> {
        if held && (user.is_some() || !reason.is_empty()) {
            store.meta.extend(WriteFeatures::EXTENDED_PAST)?;
        }
        let _still = self.expunging.hold_still();
        let _events = self.events.write();
        let Event { mut row, .. } = self.in_state_locked(&store.meta, number, EventState::Kept)?;
        may(&row)?;
        if held {
            if !row.held || row.more.held_by.is_some_and(|by| user.is_none_or(|user| user.uid != by)) {
                self.users.check(user, Counted::Holds, 1)?;
                row.more.held_by = user.map(|user| user.uid);
            }
            if !reason.is_empty() {
                row.more.hold_reason = reason.to_string();
            }
        } else {
            if let Some(until) = held_until(&row).filter(|_| user.is_some_and(|user| user.uid != 0)) {
                return Err(Error::HeldUntil { event: number.0, until: until_text(until) });
            }
            (row.more.held_by, row.more.held_until) = (None, None);
            row.more.hold_reason.clear();
        }
        self.change_row(store, number, EventRow { held, ..row }, "")
    }

    /// Replaces the row with this number, and removes a name (unless it is empty) from the index. The caller
    /// holds the lock of the events. Fields that the old row did not have need
    /// [`yore_format::WriteFeatures::EXTENDED_PAST`].
    pub(super) fn change_row(&self, store: &Core, number: EventNo, row: EventRow, name: &str) -> Result<()> {
        self.rule_epoch.fetch_add(1, Ordering::AcqRel);
        let meta = &store.meta;
        let (key, is, row) = (number.0.to_be_bytes(), row.clone(), row.encode_with(row_features(meta)));
        let old = self.tree(HistoryTree::Events).get(meta, &key, |value| {
            value
                .map(|value| Ok((value.len(), EventRow::decode_with(value, row_features(meta))?)))
                .transpose()
        });
        let old: Option<(usize, EventRow)> = old?.map_err(|e: Box<Corruption>| e)?;
        let was = old.as_ref().map_or(0, |(len, _)| *len);
        // A longer row may split nodes.
        let reserved = store.reserve_freely(GroupNo(0), if row.len() > was { CELL_BLOCKS } else { 0 })?;
        let mut pins = Pins::new();
        let (mut events, mut index) = (self.tree(HistoryTree::Events), self.tree(HistoryTree::EventIndex));
        events.prepare(meta, &key, &key, &mut pins)?;
        let by_name = (!name.is_empty()).then(|| event_index_by_name(&store.hash_seed, name, number));
        if let Some(key) = &by_name {
            check_there(meta, &index, key)?;
            index.prepare(meta, key, key, &mut pins)?;
        }
        let mut op = meta.begin(reserved);
        op.be_whole();
        let delta = events.replace(&mut op, &key, &row);
        self.store(&mut op, HistoryTree::Events, &events, delta);
        if let Some(key) = &by_name {
            let delta = index.remove(&mut op, key);
            self.store(&mut op, HistoryTree::EventIndex, &index, delta);
        }
        if let Some((_, old)) = &old {
            self.users.replace(old, &is);
        }
        Ok(())
    }

    /// Gives up a name.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn remove_name(&self, store: &Core, ended: &Ended, birth: EventNo) -> Result<()> {
        let reserved = store.reserve_freely(store.near(ended.inode), 0)?;
        let meta = &store.meta;
        let removal = match self.annals_with(ended.end) {
            Some(annals) => RemovalFrom::Annals(annals.removal_of_name(meta, ended, birth)?),
            None => RemovalFrom::First(self.first().removal_of_name(meta, ended, birth)?),
        };
        Removal(removal).apply(&mut meta.begin(reserved));
        Ok(())
    }

    /// Prepares giving up facts of rows, all of one shard and in ascending order; there is at least one.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn prepare_removal_of_rows(
        &self,
        meta: &Meta,
        leaving: &[&LeavingRow],
    ) -> Result<RowsRemoval<'_>> {
        let annals = self.annals().expect("rows were read from them");
        annals.removal_of_rows(meta, leaving[0].row.shard, leaving)
    }

    /// Prepares giving up a version.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn prepare_removal(
        &self,
        store: &Core,
        no: InodeNo,
        version: &Version,
    ) -> Result<Removal<'_>> {
        let meta = &store.meta;
        Ok(Removal(match self.annals_with(version.end) {
            Some(annals) => RemovalFrom::Annals(annals.removal_of_version(meta, no, version)?),
            None => RemovalFrom::First(self.first().removal_of_version(meta, no, version)?),
        }))
    }
}

/// A version or a name that is ready to be given up.
pub(crate) struct Removal<'p>(RemovalFrom<'p>);

enum RemovalFrom<'p> {
    First(FirstRemoval<'p>),
    Annals(AnnalsRemoval<'p>),
}

impl Removal<'_> {
    /// Removes it, inside an Op. What it held may be freed after the change that is returned.
    pub(crate) fn apply(self, op: &mut Op<'_>) -> Change {
        match self.0 {
            RemovalFrom::First(removal) => removal.apply(op),
            RemovalFrom::Annals(removal) => removal.apply(op),
        }
    }
}

/// How far forgetting has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Forgetting {
    /// Versions and names looked at.
    pub examined: u64,
    /// Versions and names given up.
    pub given_up: u64,
    /// Blocks freed, of data and of metadata.
    pub blocks: u64,
    /// Events forgotten.
    pub forgotten: u64,
    /// Events still dying.
    pub dying: u64,
    /// Files whose whole history is given up.
    pub expunged: u64,
    /// Files of whose history some is left.
    pub expunging: u64,
}

/// A callback that learns how far forgetting has come, and decides whether to go on.
pub(crate) type Ask<'a> = &'a mut dyn FnMut(&Forgetting) -> ControlFlow<()>;
