//! A log on a device of its own whose owner keeps the position, in a superblock elsewhere.
//!
//! The anchors say which log this is, whose, how long, and which session was begun last. What the log holds
//! is found from the owner's position, as with an embedded log ([`recover`](crate::recover()) and
//! [`Log`](crate::Log), in [`KeptLog::ring`]).
//!
//! **Copies.** An owner who writes down the session that he has begun last recognises an older copy of the
//! log by its smaller session, and finds out by a greater one that another copy of himself has used the log
//! since. To begin a session he writes down that he is about to, has the anchor written
//! ([`KeptLog::begin`]), and writes down that it has begun. A crash leaves either session in the anchor, and
//! he accepts both.

use std::sync::Arc;

use yore_device::Device;

use crate::file::{ring_of, Anchors};
use crate::layout::{Anchor, RawPosition, ANCHOR_MAGIC, KEPT_VERSION};
use crate::{LogError, LogId, LogOwner, Region};

/// A log whose owner keeps the position.
#[derive(Debug)]
pub struct KeptLog {
    device: Arc<dyn Device>,
    anchors: Anchors,
    ring: Region,
    last: Anchor,
}

impl KeptLog {
    /// Makes an empty log in the region, over whatever is there. All of the region is written and durable
    /// when this returns; the anchor comes last. The session of the first opening is 1.
    ///
    /// # Errors
    /// [`LogError::BadRegion`] (two blocks more are needed than an embedded log needs), [`LogError::Device`].
    ///
    /// # Panics
    /// If the owner is nobody.
    pub fn create(
        device: Arc<dyn Device>,
        region: Region,
        id: LogId,
        owner: LogOwner,
    ) -> Result<KeptLog, LogError> {
        assert!(owner.is_any(), "a log that is nobody's has no owner who keeps the position");
        let ring = ring_of(&device, region)?;
        crate::format(device.clone(), region)?;
        let anchors = Anchors::of(device.clone(), region);
        let zero = 0.into();
        let last = Anchor {
            magic: ANCHOR_MAGIC,
            version: KEPT_VERSION.into(),
            crc: 0.into(),
            generation: 1.into(),
            log: id.0.into(),
            blocks: ring.blocks.into(),
            session: 1.into(),
            durable: 0.into(),
            oldest: RawPosition { number: zero, sequence: zero, block: zero, chain: zero },
            owner: owner.0,
        };
        anchors.write(last)?;
        Ok(KeptLog { device, anchors, ring, last })
    }

    /// Reads the anchors of the log in the region. Nothing is written.
    ///
    /// # Errors
    /// [`LogError::NotALog`], also for a log whose position nobody keeps elsewhere;
    /// [`LogError::UnknownVersion`], [`LogError::BadRegion`], [`LogError::Device`].
    pub fn find(device: Arc<dyn Device>, region: Region) -> Result<KeptLog, LogError> {
        let ring = ring_of(&device, region)?;
        let anchors = Anchors::of(device.clone(), region);
        match anchors.read(ring.blocks)? {
            last if last.is_kept() => Ok(KeptLog { device, anchors, ring, last }),
            _ => Err(LogError::NotALog { device: device.describe(), block: region.first_block }),
        }
    }

    /// Which log this is.
    pub fn id(&self) -> LogId {
        LogId(self.last.log.get())
    }

    /// For whom it was made.
    pub fn owner(&self) -> LogOwner {
        LogOwner(self.last.owner)
    }

    /// The session begun last.
    pub fn session(&self) -> u64 {
        self.last.session.get()
    }

    /// The device that it is on.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Where the batches are: the region of the log as an embedded one.
    pub fn ring(&self) -> Region {
        self.ring
    }

    /// Says, durably, that a session has begun. The owner has written down before that it may.
    ///
    /// # Errors
    /// [`LogError::SessionNotNew`] if a later one was begun; [`LogError::Device`].
    pub fn begin(&mut self, session: u64) -> Result<(), LogError> {
        let last = self.session();
        if session < last || session == u64::MAX {
            return Err(LogError::SessionNotNew { session, last });
        }
        let generation = self.last.generation.get() + 1;
        let anchor = Anchor { generation: generation.into(), session: session.into(), ..self.last };
        self.anchors.write(anchor)?;
        self.last = anchor;
        Ok(())
    }

    /// The owner has another log, durably, or none: nobody finds one here any more.
    ///
    /// # Errors
    /// [`LogError::Device`].
    pub fn give_up(&self) -> Result<(), LogError> {
        self.anchors.erase()
    }
}
