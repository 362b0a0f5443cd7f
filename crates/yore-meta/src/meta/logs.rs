//! The log of an open volume: whether it may have gaps, and another one in its place, for which
//! `log/moving.rs` has the argument.

use super::Meta;
use crate::error::{MetaError, Result};
use crate::log::elsewhere::{self, check_length};
use crate::log::opened::{NextLog, OpenLog, Whereabouts};
use crate::log::place::LogDevice;
use crate::log::region;
use crate::op::logs::NewLog;
use std::sync::Arc;
use yore_format::{BlockNo, WriteFeatures};
use yore_log::{End, Log, LogId, Position, Region};

impl Meta {
    /// The blocks of the volume that its log has: the first one, and how many.
    pub fn log_inside(&self) -> Option<(BlockNo, u64)> {
        let blocks = self.base().medium.log_blocks();
        (!blocks.is_empty()).then(|| (BlockNo(blocks.start), blocks.end - blocks.start))
    }

    /// From now on the log may have gaps, if it lies on a disk with platters (`yore-log/src/log.rs`). The
    /// volume gets the feature first, which is durable when this returns. The caller has no Op open.
    ///
    /// # Errors
    /// As [`Meta::extend`].
    pub fn leave_gaps(&self) -> Result<()> {
        let Some(log) = self.rooms.log.log().filter(|log| log.has_platters()) else { return Ok(()) };
        self.extend(WriteFeatures::LOG_GAPS)?;
        log.leave_gaps();
        Ok(())
    }

    /// Makes an empty log in blocks of the volume that the caller has taken and entered nowhere.
    ///
    /// # Errors
    /// [`MetaError::Refused`] for a length that no log has, or too short for what the log must carry over;
    /// [`MetaError::Device`], [`MetaError::ReadOnly`].
    pub fn make_log_inside(&self, start: BlockNo, blocks: u64) -> Result<NewLog> {
        self.check_writable()?;
        let device = self.base().medium.device().clone();
        check_length(&device.describe(), blocks)?;
        let region = Region { first_block: start.0, blocks };
        let id = LogId::random();
        region::format(&*device, region)?;
        // What the superblock names must be there before it.
        device.flush()?;
        let session = self.superblock().mount_id;
        let open = Log::open(device, region, id, session, End::at(Position::start(id)))?;
        self.new_log(Whereabouts { start, blocks, id: id.0, external: None }, OpenLog::new(open, None))
    }

    /// Makes an empty log over the whole length of another device. `force`: also where a log of another
    /// volume is, or a volume.
    ///
    /// # Errors
    /// [`MetaError::Refused`] also if something is there that should not be lost; else as
    /// [`Meta::make_log_inside`].
    pub fn make_log_elsewhere(&self, on: &LogDevice, force: bool) -> Result<NewLog> {
        self.check_writable()?;
        let uuid = self.base().medium.uuid();
        elsewhere::check(on, uuid, force)?;
        let (kept, at) = elsewhere::make(on, uuid)?;
        let (device, id) = (kept.device().clone(), kept.id());
        let open = Log::open(device, kept.ring(), id, kept.session(), End::at(Position::start(id)))?;
        self.new_log(at, OpenLog::new(open, Some(kept)))
    }

    fn new_log(&self, at: Whereabouts, open: OpenLog) -> Result<NewLog> {
        if self.has_features(WriteFeatures::LOG_GAPS) {
            open.leave_gaps();
        }
        if !self.base().medium.strategy().logs() {
            return Ok(NewLog(NextLog { at, open: None }));
        }
        let open = Arc::new(open);
        if !self.rooms.log.may_carry_over(&open) {
            return Err(MetaError::Refused(format!(
                "a log of {} KiB has no room for what the one that there is still holds; make it longer",
                at.blocks * 4
            )));
        }
        Ok(NewLog(NextLog { at, open: Some(open) }))
    }
}
