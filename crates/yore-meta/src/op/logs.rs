//! The Op with which a volume gets another log. `log/moving.rs` has the argument.

use super::Op;
use crate::error::Result;
use crate::log::opened::{NextLog, OpenLog};
use std::sync::Arc;

/// A log that was made for a volume, which has another one still.
#[derive(Debug)]
pub struct NewLog(pub(crate) NextLog);

/// The log that a volume had before.
#[derive(Debug)]
pub struct OldLog(Option<Arc<OpenLog>>);

impl OldLog {
    /// The volume has another, durably: nobody finds this one any more, if it has a device of its own.
    ///
    /// # Errors
    /// [`crate::MetaError::Device`]: the volume does not need that device, and it still looks as if it did.
    pub fn give_up(self) -> Result<()> {
        self.0.map_or(Ok(()), |log| Ok(log.give_up()?))
    }
}

impl Op<'_> {
    /// The volume has this log from the next generation on. The caller enters its blocks and frees those of
    /// the old one in this Op, which [`crate::Meta::begin_alone`] opened. Returns the old one, for when the
    /// generation is complete.
    ///
    /// # Panics
    /// If other Ops may be open.
    pub fn move_log(&mut self, new: NewLog) -> OldLog {
        self.assert_alone();
        let old = OldLog(self.rooms.log.log());
        self.rooms.blocks.base.ledger.note_changed();
        self.rooms.log.follow(&self.rooms.blocks, new.0);
        old
    }
}
