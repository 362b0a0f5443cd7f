//! Beginning a shadow: the instant between two generations (`base/shadow.rs`, W3).

use super::Meta;
use crate::base::medium::log_blocks;
use crate::base::shadow::Shadow;
use crate::error::{MetaError, Result};
use crate::log::place::LogPlace;
use yore_format::{ZoneNo, BLOCK_SIZE};

impl Meta {
    /// The metadata as the last generation has it, to be read as a device while work goes on. Everything done
    /// before is in it: a generation is written first, if there is anything to write. Holds up the next
    /// generation, and who waits for one, while it reads the zone table. What is overwritten is kept in up to
    /// `memory` bytes, and beyond that in an unnamed temporary file.
    ///
    /// On a volume that is open for reading only nothing is overwritten, and nothing kept.
    ///
    /// # Errors
    /// [`MetaError::Refused`] if there is another one; [`MetaError::Stopped`] if the volume is closed, or an
    /// error has stopped writing; damage to the zone table.
    pub fn shadow(&self, memory: u64) -> Result<Shadow> {
        let shadows = self.base().medium.shadows();
        let blocks = usize::try_from(memory / BLOCK_SIZE as u64).unwrap_or(usize::MAX);
        let other =
            || MetaError::Refused("the volume is being checked already; wait until that is done".into());
        if self.read_only() {
            let mut shadow = shadows.begin(Vec::new(), 0..0, blocks).ok_or_else(other)?;
            shadow.log_is_elsewhere = self.found().external_log.is_some();
            return Ok(shadow);
        }
        #[cfg(feature = "mutations")]
        if crate::mutation::is(crate::mutation::Mutation::LeaksDeniedEarly) {
            self.leaks_are_gone()?;
        }
        let pending = &self.base().order.pending;
        let _exact = pending.want_exact();
        loop {
            // The totals of the superblock are to be those of what is on the medium.
            match pending.unpromised() {
                Some(_) => self.sync()?,
                None => self.sync_always()?,
            }
            let paused = self.writer.pause();
            self.check_writable()?;
            let Some(unpromised) = pending.unpromised() else { continue };
            // Under `none` another generation may have come in between, which did not close. One that is
            // written in order is whole without that.
            if !self.writer.is_closed(&paused) && !self.base().medium.strategy().orders() {
                continue;
            }
            let (_leader, _) = self.rooms.log.lead();
            let starts = self.zone_starts()?;
            let log = log_blocks(paused.superblock());
            let mut shadow = shadows.begin(starts, log, blocks).ok_or_else(other)?;
            shadow.log_is_elsewhere = paused.superblock().external_log.is_some();
            shadow.unpromised = unpromised;
            return Ok(shadow);
        }
    }

    /// Where a check of a shadow finds the log.
    ///
    /// On a volume that is open for writing everything that the generation has is in place, and nothing is
    /// kept of a log that has a device of its own. One that is open for reading only may be as a crash left
    /// it: then only the log makes some of its blocks right. It is where it was when the volume was opened.
    pub fn log_of(&self, shadow: &Shadow) -> LogPlace {
        match (shadow.log_is_elsewhere, self.read_only()) {
            (false, _) => LogPlace::Recorded,
            (true, false) => LogPlace::Without,
            (true, true) => self.log_place.clone(),
        }
    }

    /// The first blocks of all zones that the last generation has.
    fn zone_starts(&self) -> Result<Vec<u64>> {
        let (zones, medium) = (&self.rooms.blocks.zones, &self.base().medium);
        let mut starts = Vec::new();
        zones.table.find_root(|start| {
            starts.push(start.0);
            None::<()>
        });
        for no in 0..zones.limit() {
            let entry = zones.table.entry(medium, ZoneNo(no))?;
            if entry.is_present() {
                starts.push(entry.start.get());
            }
        }
        Ok(starts)
    }
}
