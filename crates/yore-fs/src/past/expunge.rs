//! What expunging changes in the trees of the past ([`crate::expunge`] says when): the row that says that the history of a file is
//! being given up, and names that are given up for it.
//!
//! The row is a cut that nobody sees: it has a number, and what the file was before that number is gone from the moment in which
//! the row is there. In the same Op the present is cut loose: the inode in use, and the name that it remembers, are born at that
//! number, so no earlier cut has seen them. What was before is then not shown any more ([`Expunging::has`]), and goes in Ops of its own.

use super::forget::check_there;
use super::{Cut, Ended, Past, PastEntry, CELL_BLOCKS};
use crate::btree::Pins;
use crate::dir::{self, Looked};
use crate::inode::{store_inode, InodeCell, InodeState};
use crate::store::Store;
use crate::{Error, InodeNo, Result};
use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use yore_format::{
    cut_index_by_root, name_end_key, name_key, shard_of, Corruption, CutKind, CutRow, CutState, DirEntry,
    GroupNo, HistoryTree, Incarnation, Number, PastName,
};
use yore_meta::{Meta, Op};

/// Blocks that the row may need: itself, and its entry in the index.
const ROW_BLOCKS: u32 = 2 * CELL_BLOCKS;

/// A file whose history is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expunge {
    /// What it was before this number is given up.
    pub number: Number,
    /// Which file.
    pub inode: InodeNo,
    /// Which of those that have had the inode number.
    pub incarnation: Incarnation,
}

impl Expunge {
    /// Whether this, born then, is what is given up.
    pub(crate) fn takes(&self, inode: InodeNo, incarnation: Incarnation, birth: Number) -> bool {
        (inode, incarnation) == (self.inode, self.incarnation) && birth < self.number
    }
}

/// The files whose history is being given up.
#[derive(Default)]
pub(crate) struct Expunging {
    /// There are some.
    any: AtomicBool,
    /// Lock order: after all others.
    files: RwLock<HashMap<InodeNo, Vec<Expunge>>>,
    /// Counts directories that moved.
    moves: AtomicU64,
    /// Held by who makes a cut stay, and by who must know which ones do. Before the lock of the cuts.
    holding: Mutex<()>,
}

impl Expunging {
    /// One that was under way when the volume was closed.
    pub(super) fn load(&self, cut: &Cut) -> Result<()> {
        if cut.row.state != CutState::Dying {
            return Err(Corruption::new("cut", "state", "dying, of one that expunges", "another").into());
        }
        let (inode, incarnation) = (cut.row.root, cut.row.root_incarnation);
        self.add(Expunge { number: cut.number, inode, incarnation });
        Ok(())
    }

    fn add(&self, file: Expunge) {
        self.files.write().entry(file.inode).or_default().push(file);
        self.any.store(true, Ordering::Release);
    }

    fn remove(&self, file: &Expunge) {
        let mut files = self.files.write();
        if let Some(same) = files.get_mut(&file.inode) {
            same.retain(|other| other != file);
            if same.is_empty() {
                files.remove(&file.inode);
            }
        }
        self.any.store(!files.is_empty(), Ordering::Release);
    }

    /// Whether what a file was as of a cut is being given up: its version, and each name that it had.
    pub(crate) fn has(&self, inode: InodeNo, incarnation: Incarnation, cut: Number) -> bool {
        let is_it = |file: &Expunge| file.incarnation == incarnation && cut < file.number;
        self.any.load(Ordering::Acquire)
            && self.files.read().get(&inode).is_some_and(|files| files.iter().any(is_it))
    }

    /// The same of what a name meant.
    pub(crate) fn has_entry(&self, entry: &PastEntry, cut: Number) -> bool {
        self.has(entry.inode, entry.incarnation, cut)
    }

    /// All of them, in the order in which they were asked for.
    pub(crate) fn all(&self) -> Vec<Expunge> {
        let mut all: Vec<Expunge> = self.files.read().values().flatten().copied().collect();
        all.sort_by_key(|file| file.number);
        all
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        match self.any.load(Ordering::Acquire) {
            true => self.files.read().values().map(Vec::len).sum(),
            false => 0,
        }
    }

    pub(super) fn note_moved(&self) {
        self.moves.fetch_add(1, Ordering::AcqRel);
    }

    /// How often a directory was moved.
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Acquire)
    }

    /// As long as this lives, no cut comes to be held or pinned, or ceases to be held.
    pub(crate) fn hold_still(&self) -> MutexGuard<'_, ()> {
        self.holding.lock()
    }
}

impl Past {
    /// The history of a file is given up from now on: nobody sees any of it when this returns, and all that comes later is seen as if
    /// the file had been made now. Not durable by itself. The volume has a past.
    ///
    /// # Errors
    /// `NoSpace`; damage and device errors. Nothing has changed then.
    pub(crate) fn expunge(
        &self,
        store: &Arc<Store>,
        inode: InodeNo,
        incarnation: Incarnation,
    ) -> Result<Expunge> {
        let cell = match store.cell(inode) {
            Ok(cell) => Some(cell).filter(|cell| cell.incarnation == incarnation),
            Err(Error::Stale) => None,
            Err(e) => return Err(e),
        };
        let file = self.enter_expunge(store, cell.as_deref(), (inode, incarnation))?;
        // Who reads a version reads it to the end first; who comes later does not find it.
        let _reading = self.reading.write();
        self.expunging.add(file);
        store.versions.forget_all(inode);
        Ok(file)
    }

    /// Enters the row, and cuts the present loose.
    fn enter_expunge(
        &self,
        store: &Arc<Store>,
        cell: Option<&InodeCell>,
        (inode, incarnation): (InodeNo, Incarnation),
    ) -> Result<Expunge> {
        let meta = &store.meta;
        let mut last = self.cuts.write();
        loop {
            // The directory is locked first, and which one it is may change until then.
            let above = || cell.map(|cell| cell.state.read().inode.parent).filter(|no| *no != InodeNo::NONE);
            let no = above();
            let parent = match no.map(|no| store.cell(no)).transpose() {
                Err(Error::Stale) if above() != no => continue,
                parent => parent?,
            };
            let reserved = store.reserve_freely(GroupNo(0), ROW_BLOCKS)?;
            let mut pins = Pins::new();
            let mut dir = parent.as_ref().map(|parent| parent.state.write());
            let mut state = cell.map(|cell| cell.state.write());
            let now = state.as_ref().map_or(InodeNo::NONE, |state| state.inode.parent);
            if now != parent.as_ref().map_or(InodeNo::NONE, |parent| parent.no) {
                continue;
            }
            let number = meta.number();
            let name = match (&parent, &dir, &state) {
                (Some(parent), Some(dir), Some(state)) => {
                    let at = state.inode.parent_cookie;
                    Entry::prepare(store, parent, dir, at, (inode, incarnation), number, &mut pins)?
                }
                _ => None,
            };
            let key = number.0.to_be_bytes();
            let by_root = cut_index_by_root(inode, number);
            let row = self.prepare(meta, HistoryTree::Cuts, &key, CELL_BLOCKS)?;
            let index = self.prepare(meta, HistoryTree::CutIndex, &by_root, CELL_BLOCKS)?;
            let time = super::cut::after(*last, crate::store::now());
            let value = CutRow {
                time,
                kind: CutKind::Expunge,
                state: CutState::Dying,
                held: false,
                root: inode,
                root_incarnation: incarnation,
                name: String::new(),
            };
            let mut op = meta.begin(reserved);
            let taken = op.take_number_beside_others();
            assert_eq!(taken, number, "a number taken beside the lock of the cuts");
            row.insert(self, &mut op, &key, &value.encode(), number);
            index.insert(self, &mut op, &by_root, &[], number);
            if let (Some(name), Some(parent), Some(dir)) = (name, &parent, &mut dir) {
                name.apply(&mut op, parent, dir);
            }
            if let (Some(cell), Some(state)) = (cell, &mut state) {
                if !state.gone && state.inode.links > 0 && state.inode.born < number {
                    state.inode.born = number;
                    store_inode(&mut op, cell, state);
                }
            }
            self.last.store(number.0, Ordering::Release);
            *last = time;
            drop(op);
            return Ok(Expunge { number, inode, incarnation });
        }
    }

    /// All of a file's history is given up: nothing remembers it.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn end_expunge(&self, store: &Store, file: &Expunge) -> Result<()> {
        let meta = &store.meta;
        {
            let _cuts = self.cuts.write();
            let reserved = store.reserve_freely(GroupNo(0), 0)?;
            let mut pins = Pins::new();
            let (key, by_root) = (file.number.0.to_be_bytes(), cut_index_by_root(file.inode, file.number));
            let (mut cuts, mut index) = (self.tree(HistoryTree::Cuts), self.tree(HistoryTree::CutIndex));
            check_there(meta, &cuts, &key)?;
            check_there(meta, &index, &by_root)?;
            cuts.prepare(meta, &key, &key, &mut pins)?;
            index.prepare(meta, &by_root, &by_root, &mut pins)?;
            let mut op = meta.begin(reserved);
            let delta = cuts.remove(&mut op, &key);
            self.store(&mut op, HistoryTree::Cuts, &cuts, &delta);
            let delta = index.remove(&mut op, &by_root);
            self.store(&mut op, HistoryTree::CutIndex, &index, &delta);
        }
        self.expunging.remove(file);
        Ok(())
    }

    /// Gives up what a name meant before a number. If it meant that longer, it has since that number.
    ///
    /// # Errors
    /// Damage and device errors; `NoSpace`.
    pub(crate) fn expunge_name(&self, store: &Store, name: &PastEntry, number: Number) -> Result<()> {
        let PastEntry { directory, cookie, birth, death, inode, incarnation, kind, .. } = *name;
        if death <= number {
            return self.remove_name(store, &Ended { end: death, inode: directory, cookie }, birth);
        }
        let meta = &store.meta;
        let reserved = store.reserve_freely(store.near(directory), CELL_BLOCKS)?;
        let shard = shard_of(directory);
        let _guard = self.shards[shard].write();
        let which = HistoryTree::Names(shard);
        let (old, new) = (name_key(directory, cookie, birth), name_key(directory, cookie, number));
        check_there(meta, &self.tree(which), &old)?;
        check_there(meta, &self.tree(HistoryTree::Changes(shard)), &name_end_key(death, directory, cookie))?;
        let mut pins = Pins::new();
        let slot = self.prepare(meta, which, &new, CELL_BLOCKS)?;
        slot.tree.prepare(meta, &old, &old, &mut pins)?;
        slot.tree.prepare(meta, &new, &new, &mut pins)?;
        let entry = DirEntry { inode, incarnation, birth: number, kind, name: &name.name };
        let mut op = meta.begin(reserved);
        let entered = slot.insert(self, &mut op, &new, &PastName { death, entry }.encode(), death);
        let mut tree = self.tree(which);
        let gone = tree.remove(&mut op, &old);
        op.before(entered, gone.change);
        self.store(&mut op, which, &tree, &gone);
        Ok(())
    }

    /// Calls `each` with past names of a shard from a key on, at most so many; returns the key to go on from.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn names_of_shard(
        &self,
        meta: &Meta,
        shard: usize,
        from: [u8; 24],
        most: usize,
        each: &mut dyn FnMut(PastEntry),
    ) -> Result<Option<[u8; 24]>> {
        let _shard = self.shards[shard].read();
        let (mut met, mut next) = (0, None);
        self.tree(HistoryTree::Names(shard)).scan(meta, &from, &mut |key, value| {
            let entry = PastEntry::decode(key, value)?;
            if met == most {
                next = Some(name_key(entry.directory, entry.cookie, entry.birth));
                return Ok(false);
            }
            met += 1;
            each(entry);
            Ok(true)
        })?;
        Ok(next)
    }
}

/// An entry in use, made ready to be one that began with a number.
pub(crate) struct Entry {
    name: Vec<u8>,
    found: dir::Found,
    spot: dir::Spot,
    number: Number,
}

impl Entry {
    /// The entry at a cookie of a directory whose state is locked for writing, if it is older than `number` and means this inode.
    ///
    /// # Errors
    /// Damage and device errors.
    fn prepare(
        store: &Store,
        directory: &InodeCell,
        state: &InodeState,
        cookie: u64,
        meant: (InodeNo, Incarnation),
        number: Number,
        pins: &mut Pins,
    ) -> Result<Option<Entry>> {
        let Some(before) = cookie.checked_sub(1).filter(|_| state.check_directory().is_ok()) else {
            return Ok(None);
        };
        let mut name = None;
        dir::list(store, state, directory.no, before, &mut |at, entry| {
            let is_it = at == cookie && (entry.inode, entry.incarnation) == meant && entry.birth < number;
            name = is_it.then(|| entry.name.to_vec());
            Ok(false)
        })?;
        let Some(name) = name else { return Ok(None) };
        match dir::look(store, state, directory.no, &name, pins)? {
            Looked::Taken(found, spot) if found.cookie == cookie => {
                Ok(Some(Entry { name, found, spot, number }))
            }
            // Damage: one name under two cookies.
            _ => {
                let shown = String::from_utf8_lossy(&name).into_owned();
                Err(Corruption::new("directory", "entry", "one of each name", shown).of(directory.no).into())
            }
        }
    }

    /// Inside an Op.
    fn apply(self, op: &mut Op<'_>, directory: &InodeCell, state: &mut InodeState) {
        let entry = DirEntry { birth: self.number, ..self.found.entry(&self.name) };
        let placed = dir::repoint(op, state, directory.no, self.spot, &entry);
        let stored = store_inode(op, directory, state);
        placed.stored(op, stored);
    }
}

/// The entry at a cookie, if it means a file whose history is given up, has meant it since that was asked for, and no longer.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn cut_entry_loose(
    store: &Store,
    directory: &InodeCell,
    cookie: u64,
    file: &Expunge,
) -> Result<()> {
    let reserved = store.reserve_freely(store.near(directory.no), 0)?;
    let mut pins = Pins::new();
    let mut state = directory.state.write();
    let meant = (file.inode, file.incarnation);
    if let Some(entry) = Entry::prepare(store, directory, &state, cookie, meant, file.number, &mut pins)? {
        entry.apply(&mut store.meta.begin(reserved), directory, &mut state);
    }
    Ok(())
}
