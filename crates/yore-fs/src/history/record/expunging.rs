//! The files whose history is being given up, in memory.

use super::entry::PastEntry;
use crate::{InodeNo, Result};
use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use yore_format::{Corruption, EventNo, EventRow, EventState, Incarnation};

/// A file whose history is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expunge {
    /// What the file was before this number is given up.
    pub number: EventNo,
    /// Which file.
    pub inode: InodeNo,
    /// Which inode of those that have had the number.
    pub incarnation: Incarnation,
}

impl Expunge {
    /// Whether a version or name with this birth is being given up.
    pub(crate) fn takes(&self, inode: InodeNo, incarnation: Incarnation, birth: EventNo) -> bool {
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
    /// How many directories have moved so far.
    moves: AtomicU64,
    /// Held by callers that make events stay, and by callers that must know which events do. Lock order:
    /// before the lock of the events.
    holding: Mutex<()>,
}

impl Expunging {
    /// Adds a file whose history was being given up when the volume was closed.
    pub(super) fn load(&self, number: EventNo, row: &EventRow) -> Result<()> {
        if row.state != EventState::Dying {
            return Err(Corruption::new("event", "state", "dying, of one that expunges", "another").into());
        }
        let (inode, incarnation) = (row.root, row.root_incarnation);
        self.add(Expunge { number, inode, incarnation });
        Ok(())
    }

    pub(super) fn add(&self, file: Expunge) {
        self.files.write().entry(file.inode).or_default().push(file);
        self.any.store(true, Ordering::Release);
    }

    pub(super) fn remove(&self, file: &Expunge) {
        let mut files = self.files.write();
        if let Some(same) = files.get_mut(&file.inode) {
            same.retain(|other| other != file);
            if same.is_empty() {
                files.remove(&file.inode);
            }
        }
        self.any.store(!files.is_empty(), Ordering::Release);
    }

    /// Whether what a file was as of an event is being given up: its version, and each name that it had.
    pub(crate) fn has(&self, inode: InodeNo, incarnation: Incarnation, event: EventNo) -> bool {
        let is_it = |file: &Expunge| file.incarnation == incarnation && event < file.number;
        self.any.load(Ordering::Acquire)
            && self.files.read().get(&inode).is_some_and(|files| files.iter().any(is_it))
    }

    /// As [`Expunging::has`], for what a name meant.
    pub(crate) fn has_entry(&self, entry: &PastEntry, event: EventNo) -> bool {
        self.has(entry.inode, entry.incarnation, event)
    }

    /// The birth of an entry that was made at `birth`, without the part that is being given up. The answer
    /// stays true as long as the state of the entry's inode is locked.
    pub(crate) fn began(&self, inode: InodeNo, incarnation: Incarnation, birth: EventNo) -> EventNo {
        if !self.any.load(Ordering::Acquire) {
            return birth;
        }
        let files = self.files.read();
        let taken =
            files.get(&inode).into_iter().flatten().filter(|file| file.takes(inode, incarnation, birth));
        taken.map(|file| file.number).max().unwrap_or(birth)
    }

    /// All of these files, in the order of the requests.
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

    /// How many directories have moved so far.
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Acquire)
    }

    /// As long as this lives, no event becomes held or pinned, and no event is released.
    pub(crate) fn hold_still(&self) -> MutexGuard<'_, ()> {
        self.holding.lock()
    }
}
