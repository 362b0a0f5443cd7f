//! The directories that are being made what they were, in memory.

use crate::{InodeNo, Result};
use parking_lot::Mutex;
use yore_format::{Corruption, EventKind, EventNo, EventRow, EventState, Incarnation, RollbackIntent};

/// A directory that is being made what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unfinished {
    /// The number of its row.
    pub number: EventNo,
    /// Which directory.
    pub directory: InodeNo,
    /// Which of those that have had the inode number.
    pub incarnation: Incarnation,
    /// What is to be done.
    pub intent: RollbackIntent,
    /// It was given up for now.
    pub stopped: bool,
}

impl Unfinished {
    pub(super) fn row(&self) -> EventRow {
        EventRow {
            time: Default::default(),
            kind: EventKind::Rollback,
            state: EventState::Dying,
            held: self.stopped,
            root: self.directory,
            root_incarnation: self.incarnation,
            name: self.intent.encode(),
            more: Default::default(),
        }
    }
}

/// The directories that are being made what they were, in the order of their rows.
#[derive(Default)]
pub(crate) struct Rollbacks(pub(super) Mutex<Vec<Unfinished>>);

impl Rollbacks {
    /// One that was under way when the volume was closed; what it needs, to be pinned.
    pub(super) fn load(&self, number: EventNo, row: &EventRow) -> Result<RollbackIntent> {
        if row.state != EventState::Dying {
            return Err(Corruption::new("event", "state", "dying, of one that rolls back", "another").into());
        }
        let intent = RollbackIntent::decode(&row.name)?;
        let (directory, incarnation) = (row.root, row.root_incarnation);
        let stopped = row.held;
        self.0.lock().push(Unfinished { number, directory, incarnation, intent, stopped });
        Ok(intent)
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Unfinished> {
        self.0.lock().clone()
    }
}
