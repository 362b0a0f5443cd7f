//! Look-ups in the table of events: lists, and which events are pinned.

use super::event::{decode_event, Event};
use super::past::Past;
use crate::types::PinnedBy;
use crate::{InodeNo, Result};
use std::sync::atomic::Ordering;
use yore_format::{event_index_by_root, key_parts, EventNo, EventState, HistoryTree, Timestamp};
use yore_meta::Meta;

impl Past {
    /// Keeps an event from being forgotten, until [`Past::unpin`] was called as often as this.
    ///
    /// # Errors
    /// `NotFound` if the event is not kept; damage and device errors.
    pub(crate) fn pin(&self, meta: &Meta, event: EventNo, by: PinnedBy) -> Result<()> {
        let _still = self.expunging.hold_still();
        let _events = self.events.read();
        self.in_state_locked(meta, event, EventState::Kept)?;
        self.pin_for(event, by);
        Ok(())
    }

    /// As [`Past::pin`], for an event that is known to be kept.
    pub(super) fn pin_for(&self, event: EventNo, by: PinnedBy) {
        self.rule_epoch.fetch_add(1, Ordering::AcqRel);
        *self.pinned.lock().entry(event).or_default().by(by) += 1;
    }

    /// Takes one pin back.
    pub(crate) fn unpin(&self, event: EventNo, by: PinnedBy) {
        let mut pinned = self.pinned.lock();
        let of_event = pinned.get_mut(&event).expect("who unpins has pinned");
        *of_event.by(by) -= 1;
        if of_event.mounts + of_event.work == 0 {
            pinned.remove(&event);
        }
    }

    /// Whether the event has a pin.
    pub(crate) fn is_pinned(&self, event: EventNo) -> bool {
        self.pinned.lock().contains_key(&event)
    }

    /// Whether an event is mounted by itself.
    pub(crate) fn is_mounted(&self, event: EventNo) -> bool {
        self.pinned.lock().get(&event).is_some_and(|pinned| pinned.mounts > 0)
    }

    /// Calls `each` with the events of a directory itself from this number on, kept or dying, in ascending
    /// order, until it returns false.
    pub(crate) fn each_of(
        &self,
        meta: &Meta,
        root: InodeNo,
        from: EventNo,
        each: &mut dyn FnMut(Event) -> Result<bool>,
    ) -> Result<()> {
        let _events = self.events.read();
        self.tree(HistoryTree::EventIndex).scan(meta, &event_index_by_root(root, from), &mut |key, _| {
            match key_parts::<2>(key)? {
                [of, number] if of == root.0 => each(self.indexed(meta, EventNo(number))?),
                _ => Ok(false),
            }
        })
    }

    /// A value that changes whenever an event is taken or becomes invisible: the last number, and how many
    /// events are kept.
    pub(crate) fn stamp(&self) -> (EventNo, usize) {
        let numbers = self.numbers.read();
        (EventNo(self.last.load(Ordering::Acquire)), numbers.kept.len())
    }

    /// When the first event after a number was taken, even if that event has been forgotten. O(log events).
    pub(crate) fn time_after(&self, meta: &Meta, number: EventNo) -> Result<Option<Timestamp>> {
        let _events = self.events.read();
        let mut first: Option<Event> = None;
        let Some(next) = number.0.checked_add(1) else { return Ok(None) };
        for tree in [HistoryTree::Events, HistoryTree::Forgotten] {
            self.tree(tree).scan(meta, &next.to_be_bytes(), &mut |key, value| {
                let event = decode_event(meta, key, value)?;
                if first.as_ref().is_none_or(|first| event.number < first.number) {
                    first = Some(event);
                }
                Ok(false)
            })?;
        }
        Ok(first.map(|event| event.row.time))
    }
}
