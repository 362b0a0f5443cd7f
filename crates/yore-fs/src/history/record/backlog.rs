//! The backlog as memory keeps it: rows of the annals above the watermarks, which have no keys yet. See
//! [`super::annals`] for when rows come and go.

use crate::InodeNo;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use yore_format::{AnnalsKey, EventNo, InodeIndexCell, NameIndexCell};

/// What the thread that indexes waits for.
type Waker = Arc<(Mutex<bool>, Condvar)>;

const PARTS: usize = 16;

/// The rows without keys of a shard, under its lock.
#[derive(Default)]
pub(super) struct Unindexed {
    /// How many rows.
    pub(super) rows: u64,
    /// Birth and sequence of the states in them, by inode and end, but for those of fresh rows.
    pub(super) states: BTreeMap<(InodeNo, EventNo), (EventNo, u32)>,
    /// The fresh rows, in the order of their keys: those that are in no map yet.
    pub(super) fresh: VecDeque<FreshRow>,
}

/// What a fresh row says.
pub(super) struct FreshRow {
    pub(super) key: AnnalsKey,
    /// The inode whose state it has, with the birth of that.
    pub(super) state: Option<(InodeNo, EventNo)>,
    /// The directory of its name, the cookie there, and the birth.
    pub(super) name: Option<(InodeNo, u64, EventNo)>,
}

/// By directory, cookie and death: birth, sequence and shard.
type Names = BTreeMap<(InodeNo, u64, EventNo), (EventNo, u32, usize)>;

/// What is known of all shards.
pub(super) struct Backlog {
    /// With so many rows, a call that may append one waits until some have keys.
    bound: u64,
    /// Rows of all shards that are known. It may be behind for a moment.
    rows: AtomicU64,
    /// A bit for each shard whose rows are all in the maps.
    entered: AtomicU64,
    /// The names in rows. Lock order: after the shards, and none waits for another.
    names: [Mutex<Names>; PARTS],
    /// Held while rows are indexed or removed.
    work: Mutex<()>,
    /// Wakes the thread that indexes, if there is one.
    waker: OnceLock<Waker>,
}

/// *Annals work*: the right to index rows and to remove them. Lock order: after `forgetting`, before all that
/// concerns an inode; so nobody with a lock of an inode waits for it. Handed over fairly.
pub(crate) struct AnnalsWork<'p>(Option<MutexGuard<'p, ()>>);

impl Drop for AnnalsWork<'_> {
    fn drop(&mut self) {
        if let Some(guard) = self.0.take() {
            MutexGuard::unlock_fair(guard);
        }
    }
}

impl Unindexed {
    /// Whether all rows are fresh. Then these are as they were appended: who changes or removes one enters
    /// them in the maps before.
    pub(super) fn are_fresh(&self) -> bool {
        self.rows == self.fresh.len() as u64
    }

    /// The first state of an inode that ended at `from` or later.
    pub(super) fn ending_from(&self, no: InodeNo, from: EventNo) -> Option<InodeIndexCell> {
        #[cfg(feature = "mutations")]
        if crate::mutation::is(crate::mutation::Mutation::IndexAlone) {
            return None;
        }
        self.states.range((no, from)..=(no, EventNo(u64::MAX))).next().map(state_cell)
    }

    /// The states behind this inode's that ended then, at most `most`.
    pub(super) fn behind(
        &self,
        after: (InodeNo, EventNo),
        most: usize,
    ) -> impl Iterator<Item = InodeIndexCell> + '_ {
        self.states.range((Bound::Excluded(after), Bound::Unbounded)).take(most).map(state_cell)
    }

    /// The last state of an inode that ended up to `most`.
    pub(super) fn ending_by(&self, no: InodeNo, most: EventNo) -> Option<InodeIndexCell> {
        self.states.range((no, EventNo(0))..=(no, most)).next_back().map(state_cell)
    }
}

fn state_cell(((inode, end), (born, sequence)): (&(InodeNo, EventNo), &(EventNo, u32))) -> InodeIndexCell {
    InodeIndexCell { inode: *inode, end: *end, born: *born, sequence: *sequence }
}

fn name_cell(
    ((directory, cookie, death), (birth, sequence, shard)): (
        &(InodeNo, u64, EventNo),
        &(EventNo, u32, usize),
    ),
) -> NameIndexCell {
    NameIndexCell {
        directory: *directory,
        cookie: *cookie,
        death: *death,
        birth: *birth,
        sequence: *sequence,
        shard: *shard,
    }
}

impl Backlog {
    /// The backlog of a volume that is being opened.
    pub(super) fn new(bound: u64) -> Backlog {
        Backlog {
            bound: bound.max(1),
            rows: AtomicU64::new(0),
            entered: AtomicU64::new(0),
            names: Default::default(),
            work: Mutex::new(()),
            waker: OnceLock::new(),
        }
    }

    /// With so many rows, a call that may append one waits until some have keys.
    pub(super) fn bound(&self) -> u64 {
        self.bound
    }

    /// The right to index and to remove rows.
    pub(super) fn work(&self) -> AnnalsWork<'_> {
        AnnalsWork(Some(self.work.lock()))
    }

    /// The same, unless somebody has it.
    pub(super) fn try_work(&self) -> Option<AnnalsWork<'_>> {
        Some(AnnalsWork(Some(self.work.try_lock()?)))
    }

    /// The thread that waits for rows.
    pub(super) fn set_waker(&self, waker: &Waker) {
        let _ = self.waker.set(waker.clone());
    }

    /// How many rows are known.
    pub(super) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Whether all rows of a shard are in the maps.
    pub(super) fn has_entered(&self, shard: usize) -> bool {
        self.entered.load(Ordering::Acquire) >> shard & 1 == 1
    }

    /// The rows of a shard, which are so many, have just been read and are in the maps.
    pub(super) fn note_read(&self, shard: usize, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.entered.fetch_or(1 << shard, Ordering::Release);
    }

    /// Notes a row that was appended to a shard, which the caller has locked, and returns how many rows there
    /// are. It is in no map until somebody asks.
    pub(super) fn add(&self, shard: usize, locked: &mut Unindexed, row: FreshRow) -> u64 {
        if locked.fresh.is_empty() {
            self.entered.fetch_and(!(1 << shard), Ordering::Release);
        }
        locked.fresh.push_back(row);
        self.count(locked, 1, 0)
    }

    /// Enters the fresh rows of a shard, which the caller has locked, in the maps.
    pub(super) fn enter(&self, shard: usize, locked: &mut Unindexed) {
        for FreshRow { key: AnnalsKey { end, sequence }, state, name } in locked.fresh.drain(..) {
            if let Some((inode, born)) = state {
                locked.states.insert((inode, end), (born, sequence));
            }
            if let Some((directory, cookie, birth)) = name {
                self.add_name(&NameIndexCell { directory, cookie, death: end, birth, sequence, shard });
            }
        }
        self.entered.fetch_or(1 << shard, Ordering::Release);
    }

    /// The rows of a shard, which the caller has locked, have their keys up to this one: these, in order.
    pub(super) fn leave(
        &self,
        shard: usize,
        locked: &mut Unindexed,
        last: AnnalsKey,
        (rows, states, names): (u64, &[InodeIndexCell], &[NameIndexCell]),
    ) {
        let fresh = locked.fresh.front().map_or(AnnalsKey::MAX, |row| row.key);
        let is_fresh = |end, sequence| AnnalsKey { end, sequence } >= fresh;
        for cell in states.iter().filter(|cell| !is_fresh(cell.end, cell.sequence)) {
            locked.states.remove(&(cell.inode, cell.end));
        }
        for cell in names.iter().filter(|cell| !is_fresh(cell.death, cell.sequence)) {
            self.remove_name(cell.directory, cell.cookie, cell.death);
        }
        while locked.fresh.front().is_some_and(|row| row.key <= last) {
            locked.fresh.pop_front();
        }
        if locked.fresh.is_empty() {
            self.entered.fetch_or(1 << shard, Ordering::Release);
        }
        self.count(locked, 0, rows);
    }

    fn part(&self, directory: InodeNo) -> MutexGuard<'_, Names> {
        self.names[directory.0 as usize % PARTS].lock()
    }

    /// Enters a name of a row.
    pub(super) fn add_name(&self, cell: &NameIndexCell) {
        let key = (cell.directory, cell.cookie, cell.death);
        self.part(cell.directory).insert(key, (cell.birth, cell.sequence, cell.shard));
    }

    /// Takes out a name of a row.
    pub(super) fn remove_name(&self, directory: InodeNo, cookie: u64, death: EventNo) {
        self.part(directory).remove(&(directory, cookie, death));
    }

    /// Counts rows that came or went, of a shard that the caller has locked.
    pub(super) fn count(&self, of_shard: &mut Unindexed, came: u64, went: u64) -> u64 {
        of_shard.rows = (of_shard.rows + came).saturating_sub(went);
        if went > 0 {
            self.rows.fetch_sub(went.min(self.rows.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
        self.rows.fetch_add(came, Ordering::Relaxed) + came
    }

    /// Wakes the thread that indexes.
    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.1.notify_all();
        }
    }

    /// The name of a cookie, or of the nearest one below it, that ended last up to `most`.
    pub(super) fn ending_by(&self, directory: InodeNo, cookie: u64, most: EventNo) -> Option<NameIndexCell> {
        let part = self.part(directory);
        part.range((directory, 0, EventNo(0))..=(directory, cookie, most)).next_back().map(name_cell)
    }

    /// The name of a cookie that ended first at `from` or later.
    pub(super) fn ending_from(
        &self,
        directory: InodeNo,
        cookie: u64,
        from: EventNo,
    ) -> Option<NameIndexCell> {
        let part = self.part(directory);
        part.range((directory, cookie, from)..=(directory, cookie, EventNo(u64::MAX))).next().map(name_cell)
    }

    /// The names of a directory from this cookie and death on that are `wanted`, at most `most`.
    pub(super) fn names_from(
        &self,
        directory: InodeNo,
        (cookie, death): (u64, EventNo),
        most: usize,
        wanted: impl Fn(&NameIndexCell) -> bool,
    ) -> Vec<NameIndexCell> {
        let part = self.part(directory);
        let range = (directory, cookie, death)..=(directory, u64::MAX, EventNo(u64::MAX));
        part.range(range).map(name_cell).filter(wanted).take(most).collect()
    }
}
