//! The directories that are being rolled back, in memory.

use crate::{InodeNo, Result};
use parking_lot::Mutex;
use yore_format::{Corruption, EventKind, EventNo, EventRow, EventState, Incarnation, RollbackIntent};

/// A directory that is being rolled back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unfinished {
    /// The number of its row.
    pub number: EventNo,
    /// Which directory.
    pub directory: InodeNo,
    /// Which inode of those that have had the number.
    pub incarnation: Incarnation,
    /// What is to be done.
    pub intent: RollbackIntent,
    /// The rollback was stopped.
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

/// The directories that are being rolled back, in the order of their rows.
#[derive(Default)]
pub(crate) struct Rollbacks(pub(super) Mutex<Vec<Unfinished>>);

impl Rollbacks {
    /// Adds one that was under way when the volume was closed. Returns what it needs, so that the caller can
    /// pin it.
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
