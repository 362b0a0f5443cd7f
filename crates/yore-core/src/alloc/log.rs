//! Blocks for the log of a volume, when it gets another (`yore-meta`'s `log/moving.rs` has the argument).

use super::groups::PinnedGroups;
use super::space::{Alloc, Run};
use crate::{Error, Result};
use yore_format::{GroupNo, BITS_PER_GROUP};
use yore_meta::{LogDevice, Meta, NewLog, Reserved, LOG_BLOCKS_MIN};

/// Where the log of a volume is to be.
#[derive(Clone, Debug)]
pub enum MoveLog {
    /// In the volume, with so many blocks.
    Inside(u64),
    /// On this device, over its whole length.
    Elsewhere {
        /// The device.
        on: LogDevice,
        /// Overwrite what is there, even a volume or the log of another.
        force: bool,
    },
}

impl Alloc {
    /// Moves the log. The new one counts, durably, when this returns, and the old one is gone. Each instant
    /// before has exactly one log that counts. No other thread moves it meanwhile.
    ///
    /// # Errors
    /// `NoSpace` if the volume has not so many free blocks in a row; [`Error::Refused`] for a log that cannot
    /// be, or a device that should not be overwritten; damage and device errors. The volume then has the log
    /// that it had.
    pub fn move_log(&self, meta: &Meta, to: &MoveLog) -> Result<()> {
        match to {
            MoveLog::Elsewhere { on, force } => {
                let new = meta.make_log_elsewhere(on, *force)?;
                let (mut pinned, old) = (PinnedGroups::default(), self.log_run(meta)?);
                self.prepare_old_log(meta, old, &mut pinned)?;
                self.enter_log(meta, new, None, old, pinned)
            }
            MoveLog::Inside(blocks) => {
                let run = self.take_log(meta, *blocks)?;
                let (mut pinned, old) = (PinnedGroups::default(), self.log_run(meta)?);
                let made = meta.make_log_inside(run.start, u64::from(run.len)).map_err(Error::from);
                let prepared = made.and_then(|new| {
                    self.prepare_commit(meta, run, &mut pinned)?;
                    self.prepare_old_log(meta, old, &mut pinned)?;
                    Ok(new)
                });
                match prepared {
                    Ok(new) => self.enter_log(meta, new, Some(run), old, pinned),
                    Err(e) => {
                        self.untake(run);
                        self.release(u64::from(run.len));
                        Err(e)
                    }
                }
            }
        }
    }

    /// Takes the blocks for a log in the volume, which lies in one piece.
    fn take_log(&self, meta: &Meta, blocks: u64) -> Result<Run> {
        let most = u64::from(BITS_PER_GROUP);
        let Some(want) = u32::try_from(blocks).ok().filter(|want| u64::from(*want) <= most) else {
            return Err(Error::Refused(format!(
                "a log in the volume has at most {} KiB, since it lies in one piece; a longer one needs a device of its own",
                most * 4
            )));
        };
        if u64::from(want) < LOG_BLOCKS_MIN {
            return Err(Error::Refused(format!("a log has at least {} KiB", LOG_BLOCKS_MIN * 4)));
        }
        let goal = meta.geometry().data_start(GroupNo(0));
        let mut promise = self.promise(meta, GroupNo(0), blocks)?;
        let run = self.take_whole(meta, goal, want)?.ok_or(Error::NoSpace)?;
        promise.take_out(u64::from(run.len));
        Ok(run)
    }

    /// The blocks of the log that there is, with the place in their group.
    fn log_run(&self, meta: &Meta) -> Result<Option<(Run, GroupNo, u32)>> {
        let Some((start, blocks)) = meta.log_inside() else { return Ok(None) };
        let run = Run { start, len: u32::try_from(blocks).unwrap_or(u32::MAX) };
        let (no, bit) = self.group_and_bit(run)?;
        Ok(Some((run, no, bit)))
    }

    fn prepare_old_log(
        &self,
        meta: &Meta,
        old: Option<(Run, GroupNo, u32)>,
        pinned: &mut PinnedGroups,
    ) -> Result<()> {
        old.map_or(Ok(()), |(run, ..)| self.prepare_free(meta, run, pinned))
    }

    /// Enters the blocks of the new log, frees those of the old one, and has the generation written. All was
    /// prepared.
    fn enter_log(
        &self,
        meta: &Meta,
        new: NewLog,
        run: Option<Run>,
        old: Option<(Run, GroupNo, u32)>,
        pinned: PinnedGroups,
    ) -> Result<()> {
        let replaced = {
            let mut op = meta.begin_alone(Reserved::none());
            if let Some(run) = run {
                self.commit(&mut op, run);
            }
            if let Some((run, no, bit)) = old {
                self.free(&mut op, no, &[(bit, run.len)]);
            }
            drop(pinned);
            op.move_log(new)
        };
        #[cfg(feature = "mutations")]
        if yore_meta::mutation::is(yore_meta::mutation::Mutation::OldLogGivenUpEarly) {
            replaced.give_up()?;
            return Ok(meta.sync()?);
        }
        meta.sync()?;
        Ok(replaced.give_up()?)
    }
}
