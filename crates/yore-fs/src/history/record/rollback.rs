//! What rolling back keeps in the table of cuts ([`crate::history::rollback`] says when): the row that says that a directory is being made what it
//! was. It is there from before the first change until all is done, so whoever opens the volume meanwhile knows. The cuts that are
//! needed to go on are pinned as long as it is there.

use super::{Cut, Past, ROW_BLOCKS};
use crate::core::Core;
use crate::types::PinnedBy;
use crate::{InodeNo, Result};
use parking_lot::Mutex;
use yore_format::{Corruption, CutKind, CutRow, CutState, GroupNo, Incarnation, Number, RollbackIntent};

/// A directory that is being made what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unfinished {
    /// The number of its row.
    pub number: Number,
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
    fn row(&self) -> CutRow {
        CutRow {
            time: Default::default(),
            kind: CutKind::Rollback,
            state: CutState::Dying,
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
pub(crate) struct Rollbacks(Mutex<Vec<Unfinished>>);

impl Rollbacks {
    /// One that was under way when the volume was closed.
    pub(super) fn load(&self, past: &Past, cut: &Cut) -> Result<()> {
        if cut.row.state != CutState::Dying {
            return Err(Corruption::new("cut", "state", "dying, of one that rolls back", "another").into());
        }
        let intent = RollbackIntent::decode(&cut.row.name)?;
        let (directory, incarnation) = (cut.row.root, cut.row.root_incarnation);
        past.hold_for(&intent);
        let stopped = cut.row.held;
        self.0.lock().push(Unfinished { number: cut.number, directory, incarnation, intent, stopped });
        Ok(())
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Unfinished> {
        self.0.lock().clone()
    }
}

impl Past {
    fn hold_for(&self, intent: &RollbackIntent) {
        intent.needs().for_each(|cut| self.pin_for(cut, PinnedBy::Work));
    }

    /// From now on a directory is being made what it was. Not durable by itself. The caller has pinned the cuts that are needed.
    ///
    /// # Errors
    /// Damage and device errors; `NoSpace`.
    pub(crate) fn begin_rollback(
        &self,
        store: &Core,
        (directory, incarnation): (InodeNo, Incarnation),
        intent: RollbackIntent,
    ) -> Result<Unfinished> {
        let mut entering = self.enter_rows(CutKind::Rollback, intent.encode());
        let reserved = store.reserve(GroupNo(0), ROW_BLOCKS)?;
        let row = entering.prepare(&store.meta, directory, incarnation)?;
        let number = row.file().number;
        let mut op = store.meta.begin(reserved);
        entering.apply(&mut op, row);
        self.hold_for(&intent);
        let new = Unfinished { number, directory, incarnation, intent, stopped: false };
        self.rollbacks.0.lock().push(new.clone());
        Ok(new)
    }

    /// One is given up for now. Not durable by itself.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn stop_rollback(&self, store: &Core, of: &Unfinished) -> Result<()> {
        {
            let _cuts = self.cuts.write();
            let cut = self.in_state_locked(&store.meta, of.number, CutState::Dying)?;
            let row = CutRow { time: cut.row.time, ..Unfinished { stopped: true, ..of.clone() }.row() };
            self.change_row(store, of.number, row, "")?;
        }
        let mut all = self.rollbacks.0.lock();
        all.iter_mut().filter(|one| one.number == of.number).for_each(|one| one.stopped = true);
        Ok(())
    }

    /// One is finished, or another one counts in its place: nothing remembers it. Not durable by itself.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn end_rollback(&self, store: &Core, of: &Unfinished) -> Result<()> {
        self.remove_row(store, of.number, of.directory)?;
        self.rollbacks.0.lock().retain(|one| one.number != of.number);
        of.intent.needs().for_each(|cut| self.unpin(cut, PinnedBy::Work));
        Ok(())
    }
}
