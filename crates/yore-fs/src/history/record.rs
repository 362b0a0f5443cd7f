//! Keeping what was: cuts, versions of inodes, and names that mean something else now.
//!
//! A cut takes a number and nothing else ([`Past::cut`]). What it covers is kept at its first change afterwards: the inode as it
//! was goes to the tree of versions, and the inode in use is *born* anew, at the number that the next cut will take
//! ([`Keep::inode`]); a name that is removed or comes to mean something else goes to the tree of past names ([`Keep::name`]).
//! So what has birth b and end e is what was as of every cut n with b ≤ n < e.
//!
//! **P1 Who is covered** ([`Past::cover`], V4). The greatest cut of an inode is that of its own or of the directory that has its
//! name, and so on upwards. Each inode in memory remembers it, until a directory is cut or moved ([`Past::epoch`]). For a file
//! of several names, whose directories are not all known, it is the volume's last cut; for one without, what it was when
//! it lost the last. Too great a cut costs space, one too small would lose what was.
//!
//! **P2 No cut between looking and changing.** Whoever changes an inode looks, with its state locked, whether the version that it
//! is about to change has been kept; and takes the epoch before. The Op is opened only if the epoch is still that one
//! ([`Past::begin`]); cuts are taken in an Op that is alone. Otherwise all is looked at again. What changes in memory only (a write)
//! is looked at under the state lock: it belongs before a cut that comes between, for whoever reads as of that cut waits for
//! the lock.
//!
//! What is stamped with the present number (entries, new inodes and their nodes) is made in Ops that are opened so. All that an
//! inode gains later is stamped with the first number after its newest version: whichever side of a cut it lies on, the next
//! version, which ends behind that cut, has it.
//!
//! **P3 What is shared** (V8). A version keeps the blocks and nodes that it names. The inode in use names most of them, too: all
//! of its own that were born before its newest version ended ([`InodeState::kept`]). These it neither overwrites nor frees.
//!
//! **P4 Data first.** A version says what its blocks hold, so the file is written back before it is kept; `file/preserve.rs` sees to
//! that.
//!
//! **P5 Dead cuts cover nothing.** What covers an inode is rounded down to the last cut that is kept, or dying and not so on the medium
//! ([`Past::round`], V4), whatever it is of: a cut remembered here may be gone, and one before it may have covered the same. Cuts that
//! die change the epoch like those that are taken, so who was about to keep something for them looks again. How what they alone have
//! seen is given up is in [`crate::history::reclaim::forget`].
//!
//! **P6 Nobody reads what goes.** Who reads as of a cut holds a lock ([`Past::see`]) that a cut needs to become invisible.
//!
//! **P7 Cuts of single files** (close policies, V1) cover nobody else, so they need not be alone: they are taken with the file's
//! state locked, and leave the epoch as it is. Others that had made ready with the number that it takes are not covered by
//! it, and the cut after that sees what they make. Each Op has one number for all that it ends and begins. A file's own cuts also keep the names that it had then (V7): a name goes to
//! the past if a cut of its directory has seen it, or one that covers the inode.
//!
//! All roots are in one block, which is made with the first cut or policy and stays in memory. The trees of versions, names and changes are in
//! sixteen shards by inode and by directory; a shard's lock is taken after all states, and held for writing from looking for a place until the Op
//! has ended, for reading as long as a tree is walked.

mod cover;
mod cut;
mod due;
mod estimates;
mod exclude;
mod expunge;
mod forget;
mod keep;
mod lately;
mod look;
mod missed;
mod names;
mod operations;
mod policies;
mod rollback;
mod space;
mod table;
#[cfg(test)]
mod tests;
mod users;
mod versions;

pub(crate) use cut::Taking;
pub(crate) use due::Due;
pub(crate) use estimates::{Answer, Estimates, Most};
pub use exclude::check_patterns;
use exclude::Exclusions;
pub(crate) use expunge::{Expunge, Expunging, ROW_BLOCKS};
pub use forget::Forgetting;
pub(crate) use forget::{held, is_held, Ask, Ended};
pub(crate) use keep::{Ending, Going, Keep};
use keep::{Shard, Slot};
use lately::Lately;
pub(crate) use look::PastEntry;
pub use missed::MissedVersions;
pub(crate) use missed::{is_full, Missed};
pub(crate) use rollback::{Rollbacks, Unfinished};
use table::Pinned;
pub(crate) use users::{Counted, Users};
pub use users::{User, UserLimits};
pub(crate) use versions::Versions;

use crate::core::btree::Tree;
use crate::core::inode::InodeCell;
use crate::core::retained;
use crate::core::Core;
use crate::{Error, InodeNo, Result};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::OnceLock;
use std::time::Duration;
use yore_format::{
    cut_index_by_root, key_parts, version_key, version_shard, BlockKind, Corruption, CutKind, CutRow,
    CutState, Expect, HistoryGrowth, HistoryRoots, HistoryTree, Incarnation, Inode, Number, Timestamp,
    Version, HISTORY_SHARDS,
};
use yore_meta::{Frame, Meta, Op, Reserved};

/// Blocks that keeping a version may need: a split on each level of two trees, and a new root for both.
pub(crate) const VERSION_BLOCKS: u32 = 16;
/// Blocks that one cell more may need: a split on each level of a tree, and a new root.
const CELL_BLOCKS: u32 = VERSION_BLOCKS / 2;
/// Blocks that keeping one name may need: itself, and the entry that says when it ended.
const NAME_BLOCKS: u32 = 2 * CELL_BLOCKS;

/// A cut, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Cut {
    /// Its place in the order of all cuts.
    pub number: Number,
    /// When it was, what it is of, its name.
    pub row: CutRow,
}

/// The past of an open volume.
pub(crate) struct Past {
    roots: OnceLock<Frame>,
    /// Guards the table of cuts and its index; the time of the last cut. Lock order: to change, before any inode's state; to
    /// read, with none.
    cuts: RwLock<Timestamp>,
    /// Guard the trees of each shard. Lock order: after all states, in ascending order.
    shards: [RwLock<Shard>; HISTORY_SHARDS],
    /// Counts what changes which cuts cover whom: cuts of directories, and moves of directories.
    epoch: AtomicU64,
    /// The last number taken; 0: nothing was ever cut.
    last: AtomicU64,
    /// The last number taken by a cut that covers more than one file.
    last_of_directories: AtomicU64,
    /// The last cut of the root directory.
    root_cut: AtomicU64,
    /// All cuts that cover more than one file were of the root directory.
    only_root: AtomicBool,
    /// Guards the tree of policies. Lock order: after all states.
    policies: RwLock<()>,
    /// There are some.
    any_policy: AtomicBool,
    /// Counts what is changed of them.
    policy_epoch: AtomicU64,
    /// Guards the tree of operations. Lock order: after `cuts`, before any inode's state.
    operations: RwLock<()>,
    /// The numbers in the table of cuts. Lock order: after all others.
    numbers: RwLock<Numbers>,
    /// Kept cuts that somebody needs to stay, and how many do. Lock order: after `cuts`, before all others.
    pinned: Mutex<BTreeMap<Number, Pinned>>,
    /// Held for reading while something is read as of a cut; for writing while a cut becomes invisible, with no other lock.
    reading: RwLock<()>,
    /// Kept cuts as of which was read lately, each at its number modulo the length. Emptied while a cut becomes invisible.
    lately: [AtomicU64; 16],
    /// What somebody reads as of cuts.
    pub(crate) being_read: Lately,
    /// Counts how often a kept cut has come to have to stay, or to go.
    pub(crate) rule_epoch: AtomicU64,
    /// Held by who gives up what dying cuts have seen; before all but `making_room`.
    pub(crate) forgetting: Mutex<()>,
    /// Held by who forgets to make room; first of all. How often that was done.
    pub(crate) making_room: Mutex<()>,
    pub(crate) rooms_made: AtomicU64,
    /// Files whose history is being given up.
    pub(crate) expunging: Expunging,
    /// Directories that are being made what they were.
    pub(crate) rollbacks: Rollbacks,
    /// What each user has.
    pub(crate) users: Users,
    /// What policies exclude.
    exclusions: Exclusions,
}

/// The numbers of cuts, by state, each with the file if it is of a single one.
#[derive(Default)]
struct Numbers {
    kept: BTreeMap<Number, Option<InodeNo>>,
    /// Invisible, but perhaps not on the medium.
    dying: BTreeMap<Number, Option<InodeNo>>,
    /// Dying on the medium, too.
    dead: BTreeSet<Number>,
    /// Those of directories that are kept or dying: what covers inodes below.
    directories: BTreeSet<Number>,
    /// Those of them that no policy took: what covers inodes below that are excluded.
    asked: BTreeSet<Number>,
    /// So those of single files.
    files: BTreeSet<(InodeNo, Number)>,
}

impl Numbers {
    /// One more is kept.
    fn keep(&mut self, number: Number, row: &CutRow) {
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
    fn bury(&mut self, number: Number) {
        let file = self.dying.remove(&number).flatten();
        self.dead.insert(number);
        self.directories.remove(&number);
        self.asked.remove(&number);
        if let Some(file) = file {
            self.files.remove(&(file, number));
        }
    }
}

/// As long as it lives, a cut does not become invisible.
pub(crate) struct Seeing<'p> {
    /// The cut.
    pub cut: Number,
    _reading: RwLockReadGuard<'p, ()>,
}

impl Past {
    /// The past of a volume as it was opened. If what lists it cannot be read, a volume that is opened for reading only has as much of it as
    /// could be, for the present is whole without it.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn open(meta: &Meta, reading_lasts: Duration) -> Result<Past> {
        let past = Past {
            roots: OnceLock::new(),
            cuts: RwLock::new(Timestamp { seconds: i64::MIN, nanos: 0 }),
            shards: Default::default(),
            epoch: AtomicU64::new(0),
            last: AtomicU64::new(0),
            last_of_directories: AtomicU64::new(0),
            root_cut: AtomicU64::new(0),
            only_root: AtomicBool::new(true),
            policies: RwLock::new(()),
            any_policy: AtomicBool::new(false),
            policy_epoch: AtomicU64::new(0),
            operations: RwLock::new(()),
            numbers: RwLock::default(),
            pinned: Mutex::default(),
            reading: RwLock::new(()),
            lately: Default::default(),
            being_read: Lately::new(reading_lasts),
            rule_epoch: AtomicU64::new(0),
            forgetting: Mutex::new(()),
            making_room: Mutex::new(()),
            rooms_made: AtomicU64::new(0),
            expunging: Expunging::default(),
            rollbacks: Rollbacks::default(),
            users: Users::default(),
            exclusions: Exclusions::default(),
        };
        if meta.history_root().is_none() {
            return Ok(past);
        }
        match past.load(meta) {
            Err(error) if meta.read_only() => {
                tracing::error!(%error, "a part of the history cannot be read: snapshots are missing");
            }
            loaded => loaded?,
        }
        Ok(past)
    }

    fn load(&self, meta: &Meta) -> Result<()> {
        let expect = Expect {
            kind: BlockKind::HistoryRoots,
            owner: InodeNo::HISTORY,
            incarnation: Incarnation(0),
            level: Some(0),
        };
        let _ = self.roots.set(meta.read(meta.history_root(), &expect)?);
        self.any_policy.store(!self.tree(HistoryTree::Policies).is_empty(), Ordering::Relaxed);
        // As much as can be.
        let last = self.load_last(meta);
        let numbers = self.load_numbers(meta);
        let root = self.last_of(meta, InodeNo::ROOT, Number(u64::MAX));
        let root = root.map(|cut| self.root_cut.store(cut.map_or(0, |cut| cut.number.0), Ordering::Relaxed));
        last.and(numbers).and(root).and(self.load_exclusions(meta))
    }

    fn load_last(&self, meta: &Meta) -> Result<()> {
        for tree in [HistoryTree::Cuts, HistoryTree::Forgotten] {
            if let Some(last) = self.floor_in(meta, tree, Number(u64::MAX))? {
                if !meta.read_only() {
                    check_last(&last, meta.number())?;
                }
                self.last.fetch_max(last.number.0, Ordering::Relaxed);
                let mut time = self.cuts.write();
                *time = last.row.time.max(*time);
            }
        }
        Ok(())
    }

    fn load_numbers(&self, meta: &Meta) -> Result<()> {
        let mut numbers = Numbers::default();
        let loaded = self.each_cut(meta, Number(0), &mut |cut| {
            self.last.fetch_max(cut.number.0, Ordering::Relaxed);
            if cut.row.kind == CutKind::Expunge {
                self.expunging.load(&cut)?;
                return Ok(true);
            }
            if cut.row.kind == CutKind::Rollback {
                self.rollbacks.load(self, &cut)?;
                return Ok(true);
            }
            if !cut.row.kind.is_of_file() {
                self.last_of_directories.store(cut.number.0, Ordering::Relaxed);
                if cut.row.root != InodeNo::ROOT {
                    self.only_root.store(false, Ordering::Relaxed);
                }
            }
            match cut.row.state {
                CutState::Kept => {
                    self.users.add(&cut.row);
                    numbers.keep(cut.number, &cut.row);
                }
                CutState::Dying => drop(numbers.dead.insert(cut.number)),
                CutState::Forgotten => {
                    return Err(Corruption::new("cut", "state", "kept or dying", "forgotten").into());
                }
            }
            Ok(true)
        });
        *self.numbers.write() = numbers;
        loaded
    }

    /// Whether a version or a name has ended behind this cut. O(log history).
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn is_changed_since(&self, meta: &Meta, cut: Number) -> Result<bool> {
        for shard in 0..HISTORY_SHARDS {
            let _shard = self.shards[shard].read();
            let tree = self.tree(HistoryTree::Changes(shard));
            let last = tree
                .floor(meta, &[u8::MAX; 24], |cell| cell.map(|(key, _)| key_parts::<3>(key)).transpose())?;
            if last?.is_some_and(|[end, _, _]| end > cut.0) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Keeps a cut from becoming invisible.
    ///
    /// # Errors
    /// `Stale` if it is not kept.
    pub(crate) fn see(&self, cut: Number) -> Result<Seeing<'_>> {
        // One call each: a second one by who holds the first would wait for a cut that waits for both.
        let reading = self.reading.read();
        let lately = &self.lately[cut.0 as usize % self.lately.len()];
        if cut == Number(0) || lately.load(Ordering::Relaxed) != cut.0 {
            if !self.numbers.read().kept.contains_key(&cut) {
                return Err(Error::Stale);
            }
            lately.store(cut.0, Ordering::Relaxed);
        }
        Ok(Seeing { cut, _reading: reading })
    }

    /// Somebody reads as of a cut: a full volume does not give it up meanwhile.
    pub(crate) fn note_reading(&self, cut: Number) {
        if self.being_read.note(cut) {
            self.rule_epoch.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Cuts that are to be forgotten, in ascending order.
    pub(crate) fn dying(&self) -> Vec<Number> {
        let numbers = self.numbers.read();
        let all: BTreeSet<Number> = numbers.dying.keys().chain(&numbers.dead).copied().collect();
        all.into_iter().collect()
    }

    /// Whether something was ever cut.
    pub(crate) fn is_any(&self) -> bool {
        self.last.load(Ordering::Acquire) > 0
    }

    /// What must not change between looking at inodes and changing them.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// A directory moved: others cover what is below it. Inside the Op that moves it.
    pub(crate) fn note_moved(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.expunging.note_moved();
    }

    /// Opens an Op, unless there was a cut since `epoch` was taken; gives the reservation back then.
    pub(crate) fn begin<'m>(&self, meta: &'m Meta, reserved: Reserved, epoch: u64) -> Option<Op<'m>> {
        let op = meta.begin(reserved);
        (self.epoch() == epoch).then_some(op)
    }

    fn roots(&self) -> &Frame {
        self.roots.get().expect("only what was cut has a past")
    }

    fn tree(&self, which: HistoryTree) -> Tree {
        let empty = Tree::empty(which.kind(), which.owner(), Incarnation(0));
        match self.roots.get() {
            Some(frame) => {
                let (root, level) = HistoryRoots::get(&frame.read(), which);
                Tree { root, level, ..empty }
            }
            None => empty,
        }
    }

    /// Stores a tree's root, if it is another.
    fn store(&self, op: &mut Op<'_>, which: HistoryTree, tree: &Tree, delta: &crate::core::btree::TreeDelta) {
        retained::count(op, HistoryGrowth { trees: delta.nodes.into(), ..HistoryGrowth::default() });
        let frame = self.roots();
        if HistoryRoots::get(&frame.read(), which) == (tree.root, tree.level) {
            return;
        }
        let ((), change) =
            op.change(frame, |page| page.apply(|b| HistoryRoots::set(b, which, tree.root, tree.level)));
        delta.stored(op, change);
    }

    /// The last cut of this directory or file itself with a number up to `most`.
    pub(crate) fn last_of(&self, meta: &Meta, root: InodeNo, most: Number) -> Result<Option<Cut>> {
        let _cuts = self.cuts.read();
        let key = cut_index_by_root(root, most);
        let found = self
            .tree(HistoryTree::CutIndex)
            .floor(meta, &key, |cell| cell.map(|(key, _)| key_parts::<2>(key)).transpose())??;
        let of_root = found.filter(|[of, number]| *of == root.0 && *number > 0);
        of_root.map(|[_, number]| self.indexed(meta, Number(number))).transpose()
    }

    /// The cut with the greatest number up to this one, kept or dying.
    pub(crate) fn floor(&self, meta: &Meta, most: Number) -> Result<Option<Cut>> {
        let _cuts = self.cuts.read();
        self.floor_locked(meta, most)
    }

    /// The forgotten cut with the greatest number up to this one.
    pub(crate) fn floor_forgotten(&self, meta: &Meta, most: Number) -> Result<Option<Cut>> {
        let _cuts = self.cuts.read();
        self.floor_in(meta, HistoryTree::Forgotten, most)
    }

    fn floor_locked(&self, meta: &Meta, most: Number) -> Result<Option<Cut>> {
        self.floor_in(meta, HistoryTree::Cuts, most)
    }

    fn floor_in(&self, meta: &Meta, tree: HistoryTree, most: Number) -> Result<Option<Cut>> {
        let found = self.tree(tree).floor(meta, &most.0.to_be_bytes(), |cell| {
            cell.map(|(key, value)| decode_cut(key, value)).transpose()
        })?;
        Ok(found?)
    }

    /// Calls `each` with the cuts from this number on, kept or dying, until it returns false.
    pub(crate) fn each_cut(
        &self,
        meta: &Meta,
        from: Number,
        each: &mut dyn FnMut(Cut) -> Result<bool>,
    ) -> Result<()> {
        let _cuts = self.cuts.read();
        let from = from.0.to_be_bytes();
        self.tree(HistoryTree::Cuts).scan(meta, &from, &mut |key, value| each(decode_cut(key, value)?))
    }

    /// The cut of this number and in this state.
    ///
    /// # Errors
    /// `NotFound` if there is none; damage and device errors.
    pub(crate) fn in_state(&self, meta: &Meta, number: Number, state: CutState) -> Result<Cut> {
        let _cuts = self.cuts.read();
        self.in_state_locked(meta, number, state)
    }

    fn in_state_locked(&self, meta: &Meta, number: Number, state: CutState) -> Result<Cut> {
        let cut = self.numbered_locked(meta, number)?.filter(|cut| cut.row.state == state);
        cut.ok_or(Error::NotFound)
    }

    fn numbered_locked(&self, meta: &Meta, number: Number) -> Result<Option<Cut>> {
        Ok(self.floor_locked(meta, number)?.filter(|cut| cut.number == number))
    }

    /// The cut of a number that the index has.
    fn indexed(&self, meta: &Meta, number: Number) -> Result<Cut> {
        let cut = self.numbered_locked(meta, number)?;
        cut.ok_or_else(|| Corruption::new("index of cuts", "number", "a cut's", number).into())
    }

    /// Blocks to reserve for keeping a version.
    pub(crate) fn blocks_for_version(&self) -> u32 {
        if self.is_any() {
            VERSION_BLOCKS
        } else {
            0
        }
    }

    /// Blocks to reserve for keeping so many names.
    pub(crate) fn blocks_for_names(&self, n: u32) -> u32 {
        if self.is_any() {
            n * NAME_BLOCKS
        } else {
            0
        }
    }

    /// Whether the inode is as a cut saw it, and no version says so yet.
    ///
    /// # Errors
    /// As [`Past::cover`].
    pub(crate) fn must_keep(&self, store: &Core, cell: &InodeCell, inode: &Inode) -> Result<bool> {
        Ok(self.is_any() && inode.born <= self.cover(store, cell, inode)?)
    }

    /// The version of an inode with the greatest birth up to `most`, whether it had ended by then or not.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn version(&self, meta: &Meta, no: InodeNo, most: Number) -> Result<Option<Version>> {
        let shard = version_shard(no);
        let _shard = self.shards[shard].read();
        let key = version_key(no, most);
        let found = self.tree(HistoryTree::Versions(shard)).floor(meta, &key, |cell| {
            let Some((key, value)) = cell else { return Ok(None) };
            match key_parts::<2>(key)? {
                [of, born] if of == no.0 => Version::decode(no, Number(born), value).map(Some),
                _ => Ok(None),
            }
        })?;
        Ok(found?)
    }

    /// What was born at this number or before belongs to versions of the inode, too (P3).
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn kept(&self, meta: &Meta, no: InodeNo) -> Result<Number> {
        if !self.is_any() {
            return Ok(Number(0));
        }
        let newest = self.version(meta, no, Number(u64::MAX))?;
        Ok(Number(newest.map_or(0, |version| version.end.0 - 1)))
    }
}

/// What is taken next has a greater number, and a later time.
fn check_last(last: &Cut, next: Number) -> std::result::Result<(), Box<Corruption>> {
    if last.number >= next {
        return Err(Corruption::new("cut", "number", format!("below {next}, the next one"), last.number));
    }
    match last.row.time.seconds {
        i64::MAX => {
            Err(Corruption::new("cut", "time", "one that others can follow", "the last that there is"))
        }
        _ => Ok(()),
    }
}

fn decode_cut(key: &[u8], value: &[u8]) -> std::result::Result<Cut, Box<Corruption>> {
    let [number] = key_parts::<1>(key)?;
    if number == 0 {
        return Err(Corruption::new("cut", "number", "at least 1", "0"));
    }
    Ok(Cut { number: Number(number), row: CutRow::decode(value)? })
}
