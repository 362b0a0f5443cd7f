//! Opening the log; and another one for an open volume: enlarged, inside instead of elsewhere, or the other
//! way round.
//!
//! **L-M1 One generation.** The new log is empty, and durable, before an Op that is alone names it to the
//! writer ([`Intent::follow`]). The generation of this Op goes aside, as records do not say so. In the
//! instant in which it is frozen the new log takes the place of the old one; what is outstanding is appended
//! to the new one, and the generation's superblock is the first that names it. Nobody appends anything else
//! before that superblock is durable.
//!
//! **L-M2 One log counts.** Until then the superblock on the medium names the old log, which nobody has
//! touched: its blocks are freed by the same Op, so they are available behind that superblock (R3), and an
//! old log elsewhere is given up behind it. The slot with the older superblock is never used again once the
//! newer is whole: the next one is written over the older.
//!
//! **L-M3 What is outstanding fits both.** Data is noted until the new log takes the place of the old one,
//! and that may be long after the new one was made. So from the instant in which it is compared with what is
//! outstanding ([`Intent::may_carry_over`]) to the switch, no more is noted than the shorter of the two has
//! room for.

use super::intent::{outstanding_most, Intent, LogStatus};
use super::opened::{NextLog, OpenLog, Whereabouts};
use super::region::set_position;
use crate::blocks::Blocks;
use crate::error::Result;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use yore_format::{Generation, Superblock};
use yore_log::{LogId, Position};

/// Opening the log, and what it is doing.
impl Intent {
    /// Opens the log for appending, if there is one. Nothing has been changed yet: changes are tracked from
    /// now on. If records were replayed, only a generation makes them, and what follows, durable: until then
    /// replay starts with them, and a record of the running generation would not follow them.
    pub(crate) fn start(&self, blocks: &Blocks, log: Option<OpenLog>) {
        if log.is_some() {
            blocks.zones.changes.start_logging();
        }
        if self.replayed.load(Ordering::Relaxed) > 0 {
            blocks.zones.changes.lose();
        }
        *self.log.write() = log.map(Arc::new);
    }

    /// So many records were replayed.
    pub(crate) fn set_replayed(&self, records: u64) {
        self.replayed.store(records, Ordering::Relaxed);
    }

    /// What the log is doing; `blocks` is its length.
    pub(crate) fn status(&self, blocks: u64) -> LogStatus {
        LogStatus {
            blocks: self.log().map_or(blocks, |log| log.capacity_blocks()),
            used: self.log().map_or(0, |log| log.capacity_blocks() - log.free_blocks()),
            records: self.records.load(Ordering::Relaxed),
            replayed: self.replayed.load(Ordering::Relaxed),
        }
    }

    /// Overwrites the records that no replay needs any more; durable after a flush of the volume's device.
    pub(crate) fn erase_released(&self) -> Result<()> {
        match self.log() {
            Some(log) => {
                log.erase_released()?;
                match log.own_device() {
                    Some(device) => Ok(device.flush()?),
                    None => Ok(()),
                }
            }
            None => Ok(()),
        }
    }
}

/// Moving it.
impl Intent {
    /// Whether a log that was just made has room for what a generation must append to it that is its first.
    /// If so, it has: as long as the log is there no more becomes outstanding than it has room for.
    pub(crate) fn may_carry_over(&self, log: &Arc<OpenLog>) -> bool {
        let notes = self.notes.lock();
        if notes.outstanding_bytes() > outstanding_most(log) {
            return false;
        }
        let mut made = self.made.lock();
        made.retain(|log| log.strong_count() > 0);
        made.push(Arc::downgrade(log));
        true
    }

    /// The next generation is the first one of another log. Called by an Op that is alone.
    pub(crate) fn follow(&self, blocks: &Blocks, next: NextLog) {
        blocks.zones.changes.lose();
        *self.next.lock() = Some(next);
    }

    /// The running generation is being frozen, with the gate held alone: if it is the first one of another
    /// log, that takes the place of the old one. Returns where it is.
    pub(crate) fn switch(&self, blocks: &Blocks) -> Option<Whereabouts> {
        let NextLog { at, open } = self.next.lock().take()?;
        if open.is_some() {
            blocks.zones.changes.start_logging();
        }
        *self.log.write() = open;
        let inside = if at.external.is_some() { 0 } else { at.blocks };
        blocks.base.medium.set_log_blocks(at.start.0..at.start.0 + inside);
        Some(at)
    }
}

/// Enters another log, which is empty, in the superblock of the first generation that has it; records in it
/// will belong to `running`.
pub(crate) fn enter(at: &Whereabouts, superblock: &mut Superblock, running: Generation) {
    at.enter(superblock);
    set_position(superblock, Position::start(LogId(at.id)), running);
}
