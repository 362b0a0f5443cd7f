//! Entering versions and past names, each in two trees of its shard: its own, and the tree of changes, which
//! says when it ended. Cells that are entered one after the other are often neighbours (a directory's names,
//! files made one after the other), so each tree has [`yore_core::btree::LeafHints`].

use crate::history::record::old::{encode, OldName, OldVersion};
use crate::history::record::past::Past;
use crate::history::record::shard::Shard;
use crate::history::record::slot::Slot;
use crate::Result;
use parking_lot::RwLockWriteGuard;
use yore_core::btree::Pins;
use yore_format::{
    name_end_key, name_key, name_shard, version_end_key, version_key, version_shard, EventNo, HistoryTree,
    PastName,
};
use yore_meta::{Change, Meta, Op};

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

/// Versions and names that are ready to be entered.
pub(in crate::history::record) struct FirstRecording<'p> {
    past: &'p Past,
    /// When they end.
    number: EventNo,
    /// What is to be prepared: each cell with its shard.
    cells: Vec<(usize, Key, Vec<u8>, [u8; 24])>,
    shards: Vec<RecordingShard<'p>>,
    pins: Pins,
}

impl<'p> FirstRecording<'p> {
    pub(crate) fn new(past: &'p Past, number: EventNo) -> FirstRecording<'p> {
        FirstRecording { past, number, cells: Vec::new(), shards: Vec::new(), pins: Pins::new() }
    }

    pub(crate) fn add_version(&mut self, OldVersion { no, inode }: OldVersion<'_>) {
        let (key, value) = (Key::Version(version_key(no, inode.born)), encode(inode, self.number));
        self.cells.push((version_shard(no), key, value, version_end_key(self.number, no)));
    }

    pub(crate) fn add_name(&mut self, OldName { directory, cookie, entry, .. }: &OldName<'_>) {
        let key = Key::Name(name_key(directory.no, *cookie, entry.birth));
        let value = PastName { death: self.number, entry: *entry }.encode();
        let end = name_end_key(self.number, directory.no, *cookie);
        self.cells.push((name_shard(directory.no), key, value, end));
    }

    /// Whether nothing was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Finds the insert positions of all that was added.
    pub(crate) fn prepare(&mut self, meta: &Meta) -> Result<()> {
        let past = self.past;
        let mut cells = std::mem::take(&mut self.cells);
        cells.sort_by_key(|(shard, ..)| *shard);
        let mut cells = cells.into_iter().peekable();
        while let Some(no) = cells.peek().map(|(no, ..)| *no) {
            let mut of_shard = RecordingShard { no, shard: past.shards[no].write(), cells: Vec::new() };
            while let Some((_, key, value, end)) = cells.next_if(|(of, ..)| *of == no) {
                let shard = &mut *of_shard.shard;
                let hints = match key {
                    Key::Version(_) => &mut shard.versions,
                    Key::Name(_) => &mut shard.names,
                };
                let at = past.slot_near(meta, key.tree(no), hints, (&key, value.len()))?;
                let changes = HistoryTree::Changes(no);
                let end_at = past.slot_near(meta, changes, &mut shard.changes, (&end, 0))?;
                let is_first = of_shard.cells.is_empty();
                if !is_first || cells.peek().is_some_and(|(of, ..)| *of == no) {
                    // The first cells entered change the path for the others.
                    at.tree.prepare(meta, &key, &key, &mut self.pins)?;
                    end_at.tree.prepare(meta, &end, &end, &mut self.pins)?;
                }
                of_shard.cells.push(RecordedCell { key, value, end, slots: Some((at, end_at)) });
            }
            self.shards.push(of_shard);
        }
        Ok(())
    }

    /// Enters the cell with this key, if it was prepared.
    pub(crate) fn enter(&mut self, op: &mut Op<'_>, key: &[u8]) -> Option<Change> {
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
        let Shard { versions, names, changes, .. } = &mut *shard.shard;
        let hints = if matches!(key, Key::Version(_)) { versions } else { names };
        let recorded = at.insert_near(past, op, Some(hints), (key, value), number);
        end_at.insert_near(past, op, Some(changes), (end, &[]), number);
        Some(recorded)
    }
}
