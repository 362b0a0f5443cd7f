//! Keeping versions and names at the first change after an event: prepared where that may fail
//! ([`Past::prepare`]), entered in the Op that changes them ([`Recording`]).
//!
//! What ends is entered in two trees of its shard: its own, and the tree of changes, which says when it
//! ended. Cells that are entered one after the other are often neighbours (a directory's names, files made
//! one after the other), so each tree has [`LeafHints`].

use super::past::Past;
use super::shard::Shard;
use super::slot::Slot;
use crate::{InodeNo, Result};
use parking_lot::RwLockWriteGuard;
use yore_core::btree::Pins;
use yore_core::inode::{InodeCell, InodeState};
use yore_core::Core;
use yore_format::{
    name_end_key, name_key, name_shard, version_end_key, version_key, version_shard, DirEntry, EventNo,
    HistoryTree, Inode, PastName, Version,
};
use yore_meta::{Change, Op};

impl Past {
    /// Prepares keeping inodes as they are, and names that will be removed or will mean something else from
    /// `number` on. All get the same number. The states of the inodes are locked for writing, and their data
    /// is written back. The states of the names' directories are locked for writing. Of the names, this keeps
    /// only those that an event has seen before. An event that is taken meanwhile has `number` itself; a name
    /// that was made with that number ends with it, too, and no event has seen it.
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn prepare(
        &self,
        store: &Core,
        number: EventNo,
        versions: Vec<OldVersion>,
        old_names: &[OldName<'_>],
    ) -> Result<Recording<'_>> {
        let mut recording = Recording { past: self, number, shards: Vec::new(), _pins: Pins::new() };
        if !self.is_any() {
            return Ok(recording);
        }
        let mut cells = Vec::new();
        for OldVersion { no, born, value } in versions {
            let key = Key::Version(version_key(no, born));
            cells.push((version_shard(no), key, value, version_end_key(number, no)));
        }
        for OldName { directory, inode, cookie, entry, cover, excluded } in old_names {
            let of_directory = match excluded {
                true => self.cover_of_names(store, directory, inode)?,
                false => self.cover(store, directory, inode)?,
            };
            let cover = (*cover).max(of_directory);
            if entry.birth <= cover && entry.birth < number {
                let key = Key::Name(name_key(directory.no, *cookie, entry.birth));
                let value = PastName { death: number, entry: *entry }.encode();
                cells.push((
                    name_shard(directory.no),
                    key,
                    value,
                    name_end_key(number, directory.no, *cookie),
                ));
            }
        }
        cells.sort_by_key(|(shard, ..)| *shard);
        let mut cells = cells.into_iter().peekable();
        while let Some(no) = cells.peek().map(|(no, ..)| *no) {
            let mut of_shard = RecordingShard { no, shard: self.shards[no].write(), cells: Vec::new() };
            while let Some((_, key, value, end)) = cells.next_if(|(of, ..)| *of == no) {
                let shard = &mut *of_shard.shard;
                let hints = match key {
                    Key::Version(_) => &mut shard.versions,
                    Key::Name(_) => &mut shard.names,
                };
                let at = self.slot_near(&store.meta, key.tree(no), hints, (&key, value.len()))?;
                let changes = HistoryTree::Changes(no);
                let end_at = self.slot_near(&store.meta, changes, &mut shard.changes, (&end, 0))?;
                let is_first = of_shard.cells.is_empty();
                if !is_first || cells.peek().is_some_and(|(of, ..)| *of == no) {
                    // The first cells entered change the path for the others.
                    at.tree.prepare(&store.meta, &key, &key, &mut recording._pins)?;
                    end_at.tree.prepare(&store.meta, &end, &end, &mut recording._pins)?;
                }
                of_shard.cells.push(RecordedCell { key, value, end, slots: Some((at, end_at)) });
            }
            recording.shards.push(of_shard);
        }
        Ok(recording)
    }
}

/// What a version stores of an inode. Of directories it stores no entries: these say themselves when they
/// existed.
fn as_version(inode: &Inode) -> Inode {
    let mut recorded = inode.clone();
    if inode.is_directory() {
        recorded.set_inline(&[]);
    }
    recorded
}

/// A version of an inode as it is before it changes.
pub(crate) struct OldVersion {
    no: InodeNo,
    born: EventNo,
    value: Vec<u8>,
}

impl OldVersion {
    /// The version that ends at `number`.
    pub(crate) fn new(no: InodeNo, inode: &Inode, number: EventNo) -> OldVersion {
        let value = Version { end: number, inode: as_version(inode) }.encode();
        OldVersion { no, born: inode.born, value }
    }
}

/// A name that a directory is about to lose.
pub(crate) struct OldName<'a> {
    /// The directory.
    pub directory: &'a InodeCell,
    /// Its inode.
    pub inode: &'a Inode,
    /// The entry's cookie.
    pub cookie: u64,
    /// The entry.
    pub entry: DirEntry<'a>,
    /// What covers the inode that it means ([`Past::hold_cover`]).
    pub cover: EventNo,
    /// Policies exclude the inode.
    pub excluded: bool,
}

/// The key of a cell to be entered.
enum Key {
    Version([u8; 16]),
    Name([u8; 24]),
}

impl std::ops::Deref for Key {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Key::Version(key) => key,
            Key::Name(key) => key,
        }
    }
}

impl Key {
    fn tree(&self, shard: usize) -> HistoryTree {
        match self {
            Key::Version(_) => HistoryTree::Versions(shard),
            Key::Name(_) => HistoryTree::Names(shard),
        }
    }
}

/// A cell and the key of its end, and where both go; `None` if the insert has to search for that.
struct RecordedCell {
    key: Key,
    value: Vec<u8>,
    end: [u8; 24],
    slots: Option<(Slot, Slot)>,
}

/// The cells of one shard, each with its insert position, which is valid until another cell is entered.
struct RecordingShard<'p> {
    no: usize,
    shard: RwLockWriteGuard<'p, Shard>,
    cells: Vec<RecordedCell>,
}

/// Versions and names that are ready to be kept.
pub(crate) struct Recording<'p> {
    past: &'p Past,
    /// When they end.
    number: EventNo,
    shards: Vec<RecordingShard<'p>>,
    _pins: Pins,
}

impl Recording<'_> {
    /// Whether there is nothing to keep.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// Called inside an Op, when no event of a directory was taken since the preparation. If a version was
    /// prepared, the inode as it is becomes that version, and the inode in use is born anew. The caller
    /// stores the inode in use after the change that is returned.
    pub(crate) fn inode(&mut self, op: &mut Op<'_>, no: InodeNo, state: &mut InodeState) -> Option<Change> {
        let recorded = self.enter(op, &version_key(no, state.inode.born))?;
        state.inode.born = self.number;
        state.set_recorded(EventNo(self.number.0 - 1));
        Some(recorded)
    }

    /// Called inside an Op, before the entry changes: keeps the entry if an event has seen it.
    pub(crate) fn name(&mut self, op: &mut Op<'_>, directory: InodeNo, cookie: u64, birth: EventNo) {
        self.enter(op, &name_key(directory, cookie, birth));
    }

    /// Enters the cell with this key, if it was prepared.
    fn enter(&mut self, op: &mut Op<'_>, key: &[u8]) -> Option<Change> {
        let (past, number) = (self.past, self.number);
        let (shard, i) = self.shards.iter_mut().find_map(|shard| {
            let i = shard.cells.iter().position(|recorded| *recorded.key == *key)?;
            Some((shard, i))
        })?;
        let known = shard.cells[i].slots.take();
        shard.cells.iter_mut().for_each(|recorded| recorded.slots = None);
        let RecordedCell { key, value, end, .. } = &shard.cells[i];
        let (which, changes) = (key.tree(shard.no), HistoryTree::Changes(shard.no));
        let anew = || (Slot::unknown(past, which), Slot::unknown(past, changes));
        let (at, end_at) = known.unwrap_or_else(anew);
        let Shard { versions, names, changes } = &mut *shard.shard;
        let hints = if matches!(key, Key::Version(_)) { versions } else { names };
        let recorded = at.insert_near(past, op, Some(hints), (key, value), number);
        end_at.insert_near(past, op, Some(changes), (end, &[]), number);
        Some(recorded)
    }
}
