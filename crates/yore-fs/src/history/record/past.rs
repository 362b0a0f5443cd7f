//! The past of an open volume as it is in memory, the trees that store it, and the look-ups of events in
//! them.

use super::backlog::Backlog;
use super::event::{decode_event, Event};
use super::exclusions::Exclusions;
use super::expunging::Expunging;
use super::lately::Lately;
use super::numbers::Numbers;
use super::pinned::Pinned;
use super::shard::Shard;
use super::unfinished::Rollbacks;
use super::users::Users;
use crate::{Error, InodeNo, Result};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::OnceLock;
use yore_core::btree::{CellChange, Tree, TreeDelta};
use yore_core::retained;
use yore_format::{
    event_index_by_root, key_parts, AnnalsCounts, AnnalsKey, BlockKind, Corruption, EventNo, EventState,
    HistoryRoots, HistoryTree, Incarnation, Timestamp, HISTORY_SHARDS,
};
use yore_meta::{Change, Frame, Meta, NewBlock, Op, Reserved};

/// Blocks that one more cell may need: two new nodes on each of five levels of a tree, and a new root.
pub(super) const CELL_BLOCKS: u32 = 11;

/// The past of an open volume.
pub(crate) struct Past {
    pub(super) roots: OnceLock<Frame>,
    /// Guards the table of events and its index; contains the time of the last event. Lock order: to change
    /// them, before any inode's state; to read them, with no state locked.
    pub(super) events: RwLock<Timestamp>,
    /// They guard the trees of each shard. Lock order: after all states, in ascending order.
    pub(super) shards: [RwLock<Shard>; HISTORY_SHARDS],
    /// The least end of what is in the annals; 0: there are none.
    pub(super) annals_from: AtomicU64,
    /// They guard the two indexes of the annals. Lock order: after the shards, the one by inode first.
    pub(super) inode_index: RwLock<()>,
    pub(super) name_index: RwLock<()>,
    /// Rows that have no keys yet.
    pub(super) backlog: Backlog,
    /// Counts the changes of what events cover: events of directories, and moves of directories.
    pub(super) epoch: AtomicU64,
    /// The last number taken; 0: there was never an event.
    pub(super) last: AtomicU64,
    /// The last number taken by an event that covers more than one file.
    pub(super) last_of_directories: AtomicU64,
    /// The last event of the root directory.
    pub(super) root_event: AtomicU64,
    /// All events so far that cover more than one file were of the root directory.
    pub(super) only_root: AtomicBool,
    /// Guards the tree of policies. Lock order: after all states.
    pub(super) policies: RwLock<()>,
    /// There are policies.
    pub(super) any_policy: AtomicBool,
    /// Counts changes of policies.
    pub(super) policy_epoch: AtomicU64,
    /// Guards the tree of operations. Lock order: after `events`, before any inode's state.
    pub(super) operations: RwLock<()>,
    /// The numbers in the table of events. Lock order: after all others.
    pub(super) numbers: RwLock<Numbers>,
    /// Kept events that somebody needs to stay, and how many pins they have. Lock order: after `events`,
    /// before all others.
    pub(super) pinned: Mutex<BTreeMap<EventNo, Pinned>>,
    /// Held for reading while somebody reads something as of an event. To make an event invisible it is held
    /// for writing, with no other lock.
    pub(super) reading: RwLock<()>,
    /// Kept events as of which somebody has read lately, each at its number modulo the length. Cleared when
    /// an event becomes invisible.
    pub(super) lately: [AtomicU64; 16],
    /// The events as of which somebody reads.
    pub(crate) being_read: Lately,
    /// Counts how often it was decided anew that a kept event must stay, or that it goes.
    pub(crate) rule_epoch: AtomicU64,
    /// Held while somebody gives up what dying events have seen. Lock order: before all but `making_room`.
    pub(crate) forgetting: Mutex<()>,
    /// Whether a crash under an engine that orders changes may have left rows whose changes did not come, of
    /// which nobody has looked yet ([`crate::history::reclaim::unended`]).
    pub(crate) may_have_unended: AtomicBool,
    /// Held by whoever looks.
    pub(crate) ending: Mutex<()>,
    /// Held while somebody forgets to make room; the first of all locks. `rooms_made` counts how often that
    /// was done.
    pub(crate) making_room: Mutex<()>,
    pub(crate) rooms_made: AtomicU64,
    /// Counts how often versions were given up.
    pub(super) given_up: AtomicU64,
    /// How many rows of forgotten events there are, if somebody has counted them (`forgotten.rs`).
    pub(super) forgotten_rows: AtomicU64,
    /// Files whose history is being given up.
    pub(crate) expunging: Expunging,
    /// Directories that are being rolled back.
    pub(crate) rollbacks: Rollbacks,
    /// What each user has on record.
    pub(crate) users: Users,
    /// What policies exclude.
    pub(super) exclusions: Exclusions,
}

/// As long as this lives, the event does not become invisible.
pub(crate) struct Seeing<'p> {
    /// The event.
    pub event: EventNo,
    _reading: RwLockReadGuard<'p, ()>,
}

impl Past {
    /// Keeps an event from becoming invisible.
    ///
    /// # Errors
    /// `Stale` if it is not kept.
    pub(crate) fn see(&self, event: EventNo) -> Result<Seeing<'_>> {
        // A single call: a second one by a thread that holds the first would wait for a writer that waits for
        // both.
        let reading = self.reading.read();
        let lately = &self.lately[event.0 as usize % self.lately.len()];
        if event == EventNo(0) || lately.load(Ordering::Relaxed) != event.0 {
            if !self.numbers.read().kept.contains_key(&event) {
                return Err(Error::Stale);
            }
            lately.store(event.0, Ordering::Relaxed);
        }
        Ok(Seeing { event, _reading: reading })
    }

    /// Keeps events from becoming invisible, all at once. Callers with more than one event use this instead
    /// of [`Past::see`].
    ///
    /// # Errors
    /// `Stale` if one is not kept.
    pub(crate) fn see_all(&self, events: &[EventNo]) -> Result<Seeing<'_>> {
        let reading = self.reading.read();
        let numbers = self.numbers.read();
        match events.iter().all(|event| numbers.kept.contains_key(event)) {
            true => Ok(Seeing { event: events.last().copied().unwrap_or_default(), _reading: reading }),
            false => Err(Error::Stale),
        }
    }

    /// Somebody reads as of an event: a full volume does not give it up meanwhile.
    pub(crate) fn note_reading(&self, event: EventNo) {
        if self.being_read.note(event) {
            self.rule_epoch.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Events that are to be forgotten, in ascending order.
    pub(crate) fn dying(&self) -> Vec<EventNo> {
        let numbers = self.numbers.read();
        let all: BTreeSet<EventNo> = numbers.dying.keys().chain(&numbers.dying_on_medium).copied().collect();
        all.into_iter().collect()
    }

    /// Whether there was ever an event.
    pub(crate) fn is_any(&self) -> bool {
        self.last.load(Ordering::Acquire) > 0
    }

    /// Counts what must not change between a look at inodes and a change of them.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// A directory moved: other events cover what is below it. Called inside the Op that moves it.
    pub(crate) fn note_moved(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.expunging.note_moved();
    }

    /// Opens an Op, unless an event was taken since `epoch` was read; then it gives the reservation back.
    pub(crate) fn begin<'m>(&self, meta: &'m Meta, reserved: Reserved, epoch: u64) -> Option<Op<'m>> {
        let op = meta.begin(reserved);
        (self.epoch() == epoch).then_some(op)
    }

    pub(super) fn roots(&self) -> &Frame {
        self.roots.get().expect("only what the event is of has a past")
    }

    /// Makes the block of roots if there is none yet. With `has_annals` the volume has that feature. The
    /// caller holds the lock of the events; this takes one block.
    pub(super) fn make_roots(&self, op: &mut Op<'_>, has_annals: bool) {
        if self.roots.get().is_some() {
            return;
        }
        let new = NewBlock {
            kind: BlockKind::HistoryRoots,
            level: 0,
            owner: InodeNo::HISTORY,
            incarnation: Incarnation(0),
            birth: EventNo(0),
        };
        let (frame, _) = op.allocate(new);
        op.set_history_root(frame.addr());
        retained::count_trees(op, 1);
        assert!(self.roots.set(frame).is_ok(), "the roots are made under the lock of the events");
        if has_annals {
            self.begin_annals(op, EventNo(0), 0);
        }
    }

    /// Inside an Op that is alone, or that makes the roots: the annals have what ends behind this number. The
    /// past has so many references.
    pub(super) fn begin_annals(&self, op: &mut Op<'_>, number: EventNo, references: u64) {
        let from = EventNo(number.0 + 1);
        let counts = AnnalsCounts { annals_from: from, references, ..AnnalsCounts::default() };
        op.change(self.roots(), |page| {
            page.apply(|b| HistoryRoots::set_annals_counts(b, counts));
            for shard in 0..HISTORY_SHARDS {
                let to = AnnalsKey { end: number, sequence: u32::MAX };
                page.apply(|b| HistoryRoots::set_watermark(b, shard, to));
            }
        });
        self.annals_from.store(from.0, Ordering::Release);
    }

    pub(super) fn tree(&self, which: HistoryTree) -> Tree {
        let empty = Tree::empty(which.kind(), which.owner(), Incarnation(0));
        match self.roots.get() {
            Some(frame) => {
                let (root, level) = HistoryRoots::get(&frame.read(), which);
                Tree { root, level, ..empty }
            }
            None => empty,
        }
    }

    /// Stores a tree's root, if it has changed. Returns what the change of the tree means, if it is one of a
    /// single cell.
    pub(super) fn store(
        &self,
        op: &mut Op<'_>,
        which: HistoryTree,
        tree: &Tree,
        delta: TreeDelta,
    ) -> Option<CellChange> {
        if delta.nodes == 0 && !delta.moves_root() {
            return delta.unmoved();
        }
        retained::count_trees(op, delta.nodes.into());
        let frame = self.roots();
        if HistoryRoots::get(&frame.read(), which) == (tree.root, tree.level) {
            return delta.unmoved();
        }
        let ((), change) =
            op.change(frame, |page| page.apply(|b| HistoryRoots::set(b, which, tree.root, tree.level)));
        Some(delta.stored(op, change))
    }

    /// As [`Past::store`], after a change of one cell. Returns the change from which on the cell counts.
    pub(super) fn store_cell(
        &self,
        op: &mut Op<'_>,
        which: HistoryTree,
        tree: &Tree,
        delta: TreeDelta,
    ) -> Change {
        self.store(op, which, tree, delta).expect("one cell").counts
    }

    /// The last event of this directory or file itself with a number up to `most`.
    pub(crate) fn last_of(&self, meta: &Meta, root: InodeNo, most: EventNo) -> Result<Option<Event>> {
        let _events = self.events.read();
        let key = event_index_by_root(root, most);
        let found = self
            .tree(HistoryTree::EventIndex)
            .floor(meta, &key, |cell| cell.map(|(key, _)| key_parts::<2>(key)).transpose())??;
        let of_root = found.filter(|[of, number]| *of == root.0 && *number > 0);
        of_root.map(|[_, number]| self.indexed(meta, EventNo(number))).transpose()
    }

    /// The event with the greatest number up to this one, kept or dying.
    pub(crate) fn floor(&self, meta: &Meta, most: EventNo) -> Result<Option<Event>> {
        let _events = self.events.read();
        self.floor_locked(meta, most)
    }

    /// The forgotten event with the greatest number up to this one.
    pub(crate) fn floor_forgotten(&self, meta: &Meta, most: EventNo) -> Result<Option<Event>> {
        let _events = self.events.read();
        self.floor_in(meta, HistoryTree::Forgotten, most)
    }

    pub(super) fn floor_locked(&self, meta: &Meta, most: EventNo) -> Result<Option<Event>> {
        self.floor_in(meta, HistoryTree::Events, most)
    }

    pub(super) fn floor_in(&self, meta: &Meta, tree: HistoryTree, most: EventNo) -> Result<Option<Event>> {
        let found = self.tree(tree).floor(meta, &most.0.to_be_bytes(), |cell| {
            cell.map(|(key, value)| decode_event(meta, key, value)).transpose()
        })?;
        Ok(found?)
    }

    /// Calls `each` with the events from this number on, kept or dying, until it returns false.
    pub(crate) fn each_event(
        &self,
        meta: &Meta,
        from: EventNo,
        each: &mut dyn FnMut(Event) -> Result<bool>,
    ) -> Result<()> {
        let _events = self.events.read();
        let from = from.0.to_be_bytes();
        self.tree(HistoryTree::Events)
            .scan(meta, &from, &mut |key, value| each(decode_event(meta, key, value)?))
    }

    /// The event with this number and in this state.
    ///
    /// # Errors
    /// `NotFound` if there is none; damage and device errors.
    pub(crate) fn in_state(&self, meta: &Meta, number: EventNo, state: EventState) -> Result<Event> {
        let _events = self.events.read();
        self.in_state_locked(meta, number, state)
    }

    pub(super) fn in_state_locked(&self, meta: &Meta, number: EventNo, state: EventState) -> Result<Event> {
        let event = self.numbered_locked(meta, number)?.filter(|event| event.row.state == state);
        event.ok_or(Error::NotFound)
    }

    pub(super) fn numbered_locked(&self, meta: &Meta, number: EventNo) -> Result<Option<Event>> {
        Ok(self.floor_locked(meta, number)?.filter(|event| event.number == number))
    }

    /// The event with a number found in the index.
    pub(super) fn indexed(&self, meta: &Meta, number: EventNo) -> Result<Event> {
        let event = self.numbered_locked(meta, number)?;
        event.ok_or_else(|| Corruption::new("index of events", "number", "an event's", number).into())
    }

    /// How many blocks to reserve for keeping a version.
    pub(crate) fn blocks_for_version(&self) -> u32 {
        self.blocks_for_names(1)
    }

    /// How many blocks to reserve for keeping so many names: each in a row, whose keys come later.
    pub(crate) fn blocks_for_names(&self, n: u32) -> u32 {
        if self.is_any() {
            n * CELL_BLOCKS
        } else {
            0
        }
    }
}
