//! The tree of forgotten events: when events were that nobody can see any more.
//!
//! A text that was printed for an event must not come to mean an older one when the event is forgotten. So
//! its row moves to this tree, with its number, its time, its kind and its root. Nobody reads what people
//! said of it, so the row leaves that behind.
//!
//! **F5 Bounded.** The tree keeps its last [`ROWS_MAX`] rows, so nobody can fill a volume by taking events
//! and forgetting them. The first row goes first, in an Op of its own: a crash between that and the insertion
//! leaves one row less. Older programs have kept all rows; so two go for one that comes, as long as there are
//! too many. A text that was printed for an event without a row means the event before it. Rows below the
//! first event that is left stay, too, though no text leads to them: by its event an operation says whom it
//! concerns ([`Past::ever`]).

use super::event::row_features;
use super::past::{Past, CELL_BLOCKS};
use super::slot::check_there;
use crate::Result;
use std::sync::atomic::Ordering;
use yore_core::btree::Pins;
use yore_core::Core;
use yore_format::{
    event_index_by_root, key_parts, EventMore, EventNo, EventRow, EventState, GroupNo, HistoryTree,
};
use yore_meta::{EdgeKind, Meta};

/// How many rows the tree keeps.
const ROWS_MAX: u64 = 1 << 16;
/// How many rows go at most for one that comes.
const DROPPED_AT_ONCE: u64 = 2;
/// How many rows are counted before the lock of the events is let go of.
const COUNTED_AT_ONCE: u64 = 1 << 12;
/// Nobody has counted the rows since the volume was opened.
pub(super) const UNCOUNTED: u64 = u64::MAX;

impl Past {
    /// Nothing is held for this dying event any more: moves its row to the tree of forgotten events. One
    /// caller at a time.
    ///
    /// # Errors
    /// Damage and device errors; `NoSpace`.
    pub(crate) fn mark_forgotten(&self, store: &Core, number: EventNo) -> Result<()> {
        self.mark_forgotten_among(store, number, ROWS_MAX)
    }

    /// The same, where the tree keeps so many rows.
    fn mark_forgotten_among(&self, store: &Core, number: EventNo, most: u64) -> Result<()> {
        let meta = &store.meta;
        unless_damaged(self.count_forgotten(meta, most))?;
        {
            let _events = self.events.write();
            let event = self.in_state_locked(meta, number, EventState::Dying)?;
            unless_damaged(self.drop_first_forgotten(store, most))?;
            let reserved = store.reserve_freely(GroupNo(0), CELL_BLOCKS)?;
            let mut pins = Pins::new();
            let (key, by_root) = (number.0.to_be_bytes(), event_index_by_root(event.row.root, number));
            let (mut events, mut index) =
                (self.tree(HistoryTree::Events), self.tree(HistoryTree::EventIndex));
            check_there(meta, &index, &by_root)?;
            events.prepare(meta, &key, &key, &mut pins)?;
            index.prepare(meta, &by_root, &by_root, &mut pins)?;
            let forgotten = self.slot(meta, HistoryTree::Forgotten, &key, CELL_BLOCKS)?;
            let row = EventRow {
                state: EventState::Forgotten,
                held: false,
                name: String::new(),
                more: EventMore::default(),
                ..event.row
            };
            let mut op = meta.begin(reserved);
            op.be_whole();
            let entered = forgotten.insert(self, &mut op, &key, &row.encode_with(row_features(meta)), number);
            let delta = events.remove(&mut op, &key);
            op.edge(EdgeKind::Replaced, entered, delta.change());
            self.store(&mut op, HistoryTree::Events, &events, delta);
            let delta = index.remove(&mut op, &by_root);
            self.store(&mut op, HistoryTree::EventIndex, &index, delta);
            self.forgotten_rows.fetch_add(1, Ordering::Relaxed);
        }
        self.numbers.write().dying_on_medium.remove(&number);
        Ok(())
    }

    /// Counts the rows, unless somebody has since the volume was opened. An older program may have kept many:
    /// of more than twice as many as the tree keeps, it counts so many.
    fn count_forgotten(&self, meta: &Meta, most: u64) -> Result<()> {
        if self.forgotten_rows.load(Ordering::Relaxed) != UNCOUNTED {
            return Ok(());
        }
        let (mut rows, mut next) = (0, Some(0u64));
        while let Some(from) = next.filter(|_| rows < 2 * most) {
            next = None;
            let counted = rows + COUNTED_AT_ONCE;
            let _events = self.events.read();
            let scanned = self.tree(HistoryTree::Forgotten).scan(meta, &from.to_be_bytes(), &mut |key, _| {
                if rows == counted {
                    next = Some(key_parts::<1>(key)?[0]);
                    return Ok(false);
                }
                rows += 1;
                Ok(true)
            });
            if scanned.is_err() {
                self.forgotten_rows.store(rows, Ordering::Relaxed);
                return scanned;
            }
        }
        self.forgotten_rows.store(rows, Ordering::Relaxed);
        Ok(())
    }

    /// Removes the first rows if another one would be too many. The caller holds the lock of the events.
    fn drop_first_forgotten(&self, store: &Core, most: u64) -> Result<()> {
        let meta = &store.meta;
        for _ in 0..DROPPED_AT_ONCE {
            if self.forgotten_rows.load(Ordering::Relaxed) < most {
                break;
            }
            let mut tree = self.tree(HistoryTree::Forgotten);
            let mut first = None;
            tree.scan(meta, &[0; 8], &mut |key, _| {
                first = Some(key_parts::<1>(key)?[0].to_be_bytes());
                Ok(false)
            })?;
            let Some(key) = first else { break };
            let reserved = store.reserve_freely(GroupNo(0), 0)?;
            let mut pins = Pins::new();
            tree.prepare(meta, &key, &key, &mut pins)?;
            let mut op = meta.begin(reserved);
            let delta = tree.remove(&mut op, &key);
            self.store(&mut op, HistoryTree::Forgotten, &tree, delta);
            self.forgotten_rows.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Damage among the first rows keeps none of them from being there, and no event from being forgotten.
fn unless_damaged(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if error.is_damage() => {
            tracing::error!("the first times of forgotten events stay: {error}");
            Ok(())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::{Past, ROWS_MAX};
    use crate::history::reclaim::forget;
    use crate::history::record::event::{decode_event, Event};
    use crate::store::Store;
    use crate::time::When;
    use crate::{Error, MkfsOptions, MountOptions, NewSnapshot, View, Volume};
    use std::ops::ControlFlow;
    use std::sync::Arc;
    use yore_device::{Device, MemoryDevice};
    use yore_format::{EventNo, HistoryTree};

    fn take(view: &View, count: usize) -> Vec<Event> {
        let description = "d".repeat(512);
        let one = |i| {
            let name = format!("snapshot-{i}");
            let new = NewSnapshot { description: &description, ..NewSnapshot::named(&name) };
            view.take_snapshot(view.root(), &new).unwrap()
        };
        (0..count).map(one).collect()
    }

    fn rows(store: &Store) -> Vec<Event> {
        let (meta, mut rows) = (&store.meta, Vec::new());
        let tree = store.past.tree(HistoryTree::Forgotten);
        tree.scan(meta, &[0; 8], &mut |key, value| {
            rows.push(decode_event(meta, key, value)?);
            Ok(true)
        })
        .unwrap();
        rows
    }

    /// Forgets events that have seen nothing, while the tree keeps so many rows.
    fn forget_among(store: &Arc<Store>, events: &[Event], most: u64) {
        let numbers: Vec<EventNo> = events.iter().map(|event| event.number).collect();
        let past: &Past = &store.past;
        let _alone = past.forgetting.lock();
        forget::begin(store, &numbers).unwrap();
        past.note_dead(&numbers);
        for number in numbers {
            past.mark_forgotten_among(store, number, most).unwrap();
        }
    }

    /// The row of a forgotten event kept its name, its description and the reason of its hold: up to a
    /// thousand bytes for ever, for each event that anybody took and forgot.
    #[test]
    fn what_was_said_of_an_event_goes_with_it() {
        let volume = Volume::memory(64 << 20).unwrap();
        let view = volume.view();
        let store = view.store().clone();
        view.take_snapshot(view.root(), &NewSnapshot::named("kept")).unwrap();
        let before = store.past.space().trees;
        let numbers: Vec<EventNo> = take(view, 400).iter().map(|event| event.number).collect();
        let held = store.past.space().trees - before;
        assert!(held >= 50, "{held} nodes have 400 descriptions");
        forget::begin(&store, &numbers).unwrap();
        forget::finish(&store, &mut |_| ControlFlow::Continue(())).unwrap();
        let held = store.past.space().trees - before;
        assert!(held <= 20, "{held} nodes have 400 times");
        let rows = rows(&store);
        assert_eq!(rows.iter().map(|event| event.number).collect::<Vec<_>>(), numbers);
        assert!(rows.iter().all(|event| event.row.name.is_empty() && event.row.more.is_empty()));
    }

    /// Rows of forgotten events stayed for ever. Now the last ones stay, and their times mean nothing; a
    /// longer tree, as older programs have left it, gets shorter with each event that is forgotten.
    #[test]
    fn the_last_rows_stay() {
        const MOST: u64 = 12;
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
        let volume = Volume::create(device.clone(), &MkfsOptions::default()).unwrap();
        let kept = volume.view().take_snapshot(volume.view().root(), &NewSnapshot::named("kept")).unwrap();
        let mut events = take(volume.view(), 20);
        forget_among(volume.view().store(), &events, ROWS_MAX);
        assert_eq!(rows(volume.view().store()).len(), 20);
        volume.close().unwrap();
        drop(volume);

        let volume = Volume::open(device, &MountOptions::default()).unwrap();
        let view = volume.view();
        let store = view.store().clone();
        for (forgotten, left) in [(1, 19), (4, 15), (5, 12), (30, 12)] {
            let more = take(view, forgotten);
            forget_among(&store, &more, MOST);
            events.extend(more);
            let last = &events[events.len() - left..];
            let numbers = |events: &[Event]| events.iter().map(|event| event.number).collect::<Vec<_>>();
            assert_eq!(numbers(&rows(&store)), numbers(last));
        }
        let (gone, known) = events.split_at(events.len() - MOST as usize);
        let event_at = |event: &Event| view.event_for(view.root(), &When::At(event.row.time));
        for event in known {
            assert!(matches!(event_at(event), Err(Error::NotFound)), "event {}", event.number);
        }
        for event in gone {
            assert_eq!(event_at(event).unwrap(), kept.number, "event {}", event.number);
        }
    }
}
