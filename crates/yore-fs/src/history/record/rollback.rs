//! What rolling back stores in the table of events ([`crate::history::rollback`] says when): the row that
//! says that a directory is being rolled back. It exists from before the first change until everything is
//! done, so whoever opens the volume meanwhile knows. While it exists, the events that are needed to go on
//! are pinned.

use super::expunge::ROW_BLOCKS;
use super::past::Past;
use super::unfinished::Unfinished;
use crate::types::PinnedBy;
use crate::{InodeNo, Result};
use yore_core::Core;
use yore_format::{EventKind, EventRow, EventState, GroupNo, Incarnation, RollbackIntent};

impl Past {
    pub(super) fn hold_for(&self, intent: &RollbackIntent) {
        intent.needs().for_each(|event| self.pin_for(event, PinnedBy::Work));
    }

    /// Records that a directory is being rolled back from now on. Not durable by itself. The caller has
    /// pinned the events that are needed.
    ///
    /// # Errors
    /// Damage and device errors; `NoSpace`.
    pub(crate) fn begin_rollback(
        &self,
        store: &Core,
        (directory, incarnation): (InodeNo, Incarnation),
        intent: RollbackIntent,
    ) -> Result<Unfinished> {
        let mut entering = self.enter_rows(EventKind::Rollback, intent.encode());
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

    /// Records that a rollback is stopped. Not durable by itself.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn stop_rollback(&self, store: &Core, of: &Unfinished) -> Result<()> {
        {
            let _events = self.events.write();
            let event = self.in_state_locked(&store.meta, of.number, EventState::Dying)?;
            let row = EventRow { time: event.row.time, ..Unfinished { stopped: true, ..of.clone() }.row() };
            self.change_row(store, of.number, row, "")?;
        }
        let mut all = self.rollbacks.0.lock();
        all.iter_mut().filter(|one| one.number == of.number).for_each(|one| one.stopped = true);
        Ok(())
    }

    /// Removes the row of a rollback that is finished, or that another one replaces: nothing remembers it.
    /// Not durable by itself.
    ///
    /// # Errors
    /// Damage and device errors.
    pub(crate) fn end_rollback(&self, store: &Core, of: &Unfinished) -> Result<()> {
        self.remove_row(store, of.number, of.directory)?;
        self.rollbacks.0.lock().retain(|one| one.number != of.number);
        of.intent.needs().for_each(|event| self.unpin(event, PinnedBy::Work));
        Ok(())
    }
}
