//! A log on its own: the write-ahead file system, with mount and unmount.
//!
//! The first two blocks of the region are *anchors*, the rest is the ring. An anchor says which log this is,
//! where its oldest kept record is, which session was begun last, and how far the log was durable. They are
//! written in turn, and each write is flushed, so one of them is always whole; the one with the greater
//! generation counts. An anchor's bytes all lie in one sector, so a crash leaves the old or the new contents
//! of its block. Should a newer anchor be damaged, the older one is used. That is sound: if the ring was
//! overwritten since, recovery meets a later batch and says so.
//!
//! An anchor is written by mount (it takes the session), by trim, and by unmount. Between, the log's end is
//! found by recovery. `durable` is a lower bound for what recovery must find: with it the loss of even the
//! last batch before an unmount is recognised.

use std::sync::Arc;

use parking_lot::Mutex;
use yore_device::{AlignedBuf, Device, BLOCK_SIZE};

use crate::layout::{Anchor, ANCHOR_MAGIC, OWNED_VERSION, VERSION};
use crate::recover::damaged;
use crate::ring::Ring;
use crate::{recover, Log, LogError, LogId, LogOwner, Lsn, OwnedRecord, Position, Records, Region};

/// Blocks before the ring.
const ANCHOR_BLOCKS: u64 = 2;

/// A stand-alone log. See the crate's documentation for an example. Dropping it without [`LogFile::unmount`]
/// is as good as a crash: what was forced is kept.
#[derive(Debug)]
pub struct LogFile {
    log: Log,
    anchors: Anchors,
    /// The anchor written last. Held while another one is written.
    last: Mutex<Anchor>,
}

/// The two blocks.
#[derive(Debug)]
pub(crate) struct Anchors {
    device: Arc<dyn Device>,
    first_block: u64,
}

impl Anchors {
    pub(crate) fn of(device: Arc<dyn Device>, region: Region) -> Anchors {
        Anchors { device, first_block: region.first_block }
    }

    /// Writes an anchor over the older of the two, and flushes.
    pub(crate) fn write(&self, anchor: Anchor) -> Result<(), LogError> {
        let mut block = AlignedBuf::zeroed(1);
        anchor.seal(&mut block);
        let anchor_block = self.first_block + anchor.generation.get() % ANCHOR_BLOCKS;
        self.device.write_at(anchor_block * BLOCK_SIZE as u64, &block)?;
        Ok(self.device.flush()?)
    }

    /// Writes zeros over both, and flushes: there is no log any more.
    pub(crate) fn erase(&self) -> Result<(), LogError> {
        let zeros = AlignedBuf::zeroed(ANCHOR_BLOCKS as usize);
        self.device.write_at(self.first_block * BLOCK_SIZE as u64, &zeros)?;
        Ok(self.device.flush()?)
    }

    /// The anchor that counts, of a log that is read without its owner's superblock.
    pub(crate) fn read_own(&self, ring_blocks: u64) -> Result<Anchor, LogError> {
        match self.read(ring_blocks)? {
            anchor if anchor.is_kept() => Err(LogError::Kept {
                device: self.device.describe(),
                owner: anchor.owner().expect("the anchor was found whole"),
            }),
            anchor => Ok(anchor),
        }
    }

    /// The anchor that counts.
    pub(crate) fn read(&self, ring_blocks: u64) -> Result<Anchor, LogError> {
        let mut blocks = AlignedBuf::zeroed(ANCHOR_BLOCKS as usize);
        self.device.read_at(self.first_block * BLOCK_SIZE as u64, &mut blocks)?;
        let mut newest: Option<Anchor> = None;
        for (i, block) in blocks.chunks(BLOCK_SIZE).enumerate() {
            let found = Anchor::find(block).map_err(|found| LogError::UnknownVersion {
                device: self.device.describe(),
                block: self.first_block + i as u64,
                found,
            })?;
            if let Some(anchor) = found {
                if newest.is_none_or(|newest| newest.generation.get() < anchor.generation.get()) {
                    newest = Some(anchor);
                }
            }
        }
        // A log of another length is not the one that was created here.
        newest
            .filter(|anchor| anchor.blocks.get() == ring_blocks && anchor.generation.get() < u64::MAX)
            .filter(|anchor| anchor.session.get() < u64::MAX)
            .ok_or_else(|| LogError::NotALog { device: self.device.describe(), block: self.first_block })
    }
}

/// The ring of a stand-alone log's region.
pub(crate) fn ring_of(device: &Arc<dyn Device>, region: Region) -> Result<Region, LogError> {
    // The whole region must be within the device, too.
    Ring::new(device.clone(), region)?;
    let ring = Region {
        first_block: region.first_block + ANCHOR_BLOCKS,
        blocks: region.blocks.saturating_sub(ANCHOR_BLOCKS),
    };
    Ring::new(device.clone(), ring)?;
    Ok(ring)
}

impl LogFile {
    /// Makes an empty log in the region, over whatever is there, and mounts it. All of the region is written.
    ///
    /// # Errors
    /// [`LogError::BadRegion`] (two blocks more are needed than an embedded log needs), [`LogError::Device`].
    pub fn create(device: Arc<dyn Device>, region: Region) -> Result<LogFile, LogError> {
        Self::create_for(device, region, None)
    }

    /// The same for an owner, who alone can mount it.
    ///
    /// # Errors
    /// As [`LogFile::create`].
    pub fn create_for(
        device: Arc<dyn Device>,
        region: Region,
        owner: Option<LogOwner>,
    ) -> Result<LogFile, LogError> {
        let owner = owner.filter(LogOwner::is_any);
        let ring = ring_of(&device, region)?;
        crate::format(device.clone(), region)?;
        let id = LogId::random();
        let anchors = Anchors::of(device.clone(), region);
        let anchor = Anchor {
            magic: ANCHOR_MAGIC,
            version: if owner.is_some() { OWNED_VERSION } else { VERSION }.into(),
            crc: 0.into(),
            generation: 1.into(),
            log: id.0.into(),
            blocks: ring.blocks.into(),
            session: 0.into(),
            durable: 1.into(),
            oldest: Position::start(id).into(),
            owner: owner.map_or([0; 16], |owner| owner.0),
        };
        anchors.write(anchor)?;
        Self::mount_for(device, region, owner)
    }

    /// Opens the log in the region, whether it was unmounted or crashed. The records that it keeps can then
    /// be read.
    ///
    /// # Errors
    /// [`LogError::Foreign`] if it has an owner, [`LogError::Kept`]; [`LogError::NotALog`];
    /// [`LogError::Damaged`], [`LogError::UnknownVersion`]; [`LogError::BadRegion`], [`LogError::Device`].
    pub fn mount(device: Arc<dyn Device>, region: Region) -> Result<LogFile, LogError> {
        Self::mount_for(device, region, None)
    }

    /// The same for the owner that it was made for.
    ///
    /// # Errors
    /// As [`LogFile::mount`]; [`LogError::Foreign`] if it is another one's, or nobody's.
    pub fn mount_for(
        device: Arc<dyn Device>,
        region: Region,
        owner: Option<LogOwner>,
    ) -> Result<LogFile, LogError> {
        let owner = owner.filter(LogOwner::is_any);
        let ring = ring_of(&device, region)?;
        let anchors = Anchors::of(device.clone(), region);
        let mut anchor = anchors.read_own(ring.blocks)?;
        if anchor.owner() != owner {
            return Err(LogError::Foreign {
                device: device.describe(),
                block: region.first_block,
                found: anchor.owner(),
                wanted: owner,
            });
        }
        let id = LogId(anchor.log.get());
        let end = recover(device.clone(), ring, id, anchor.oldest.into())?.end()?;
        if end.position.sequence < anchor.durable.get() {
            let ring = Ring::new(device, ring)?;
            let Position { block, number, .. } = end.position;
            return Err(damaged(&ring, block, number, "it was durable, and is not there"));
        }
        let session = anchor.session.get().max(end.session.unwrap_or(0)) + 1;
        anchor.generation = (anchor.generation.get() + 1).into();
        anchor.session = session.into();
        anchor.durable = end.position.sequence.into();
        let log = Log::open(device, ring, id, session, end)?;
        anchors.write(anchor)?;
        Ok(LogFile { log, anchors, last: Mutex::new(anchor) })
    }

    /// For whom it was made.
    pub fn owner(&self) -> Option<LogOwner> {
        self.last.lock().owner()
    }

    /// Appends a record made of `parts` and gives its number. Durable after a force.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn append(&self, parts: &[&[u8]]) -> Result<Lsn, LogError> {
        self.log.append(parts)
    }

    /// Appends a record, and returns when it is durable, with all before it.
    ///
    /// # Errors
    /// As [`Log::append`] and [`Log::force`].
    pub fn append_sync(&self, parts: &[&[u8]]) -> Result<Lsn, LogError> {
        let number = self.log.append(parts)?;
        self.log.force(number)?;
        Ok(number)
    }

    /// Makes the record `number` durable, and all before it.
    ///
    /// # Errors
    /// As [`Log::force`].
    pub fn force(&self, number: Lsn) -> Result<(), LogError> {
        self.log.force(number)
    }

    /// Reads a record.
    ///
    /// # Errors
    /// As [`Log::read`].
    pub fn read(&self, number: Lsn) -> Result<OwnedRecord, LogError> {
        self.log.read(number)
    }

    /// All records that are kept, in sequence.
    pub fn iter(&self) -> Records<'_> {
        self.log.records(Lsn(0))
    }

    /// Forgets the records before `number`, durably, and frees their space. `number` may be the next one to
    /// be appended: then nothing is kept. Forgetting records again changes nothing.
    ///
    /// # Errors
    /// [`LogError::NotAppended`] if it is a later one; otherwise as [`Log::read`] and [`Log::force`].
    pub fn trim(&self, number: Lsn) -> Result<(), LogError> {
        let mut last = self.last.lock();
        if number <= self.log.oldest().number {
            return Ok(());
        }
        let oldest = self.log.position_of(number)?;
        self.write_anchor(&mut last, oldest)?;
        self.log.release(oldest)
    }

    /// The log itself: positions, free space, and what else owners of embedded logs use. The next mount does
    /// not know of records released there without [`LogFile::trim`].
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Makes all records durable, and notes how far the log reaches.
    ///
    /// # Errors
    /// [`LogError::Device`]. The log can be mounted all the same.
    pub fn unmount(self) -> Result<(), LogError> {
        self.log.force_all()?;
        let oldest = self.log.oldest();
        self.write_anchor(&mut self.last.lock(), oldest)
    }

    fn write_anchor(&self, last: &mut Anchor, oldest: Position) -> Result<(), LogError> {
        // Once a write has failed, nothing more may be written.
        self.log.check()?;
        let (_, durable) = self.log.durable();
        let generation = last.generation.get() + 1;
        let anchor =
            Anchor { generation: generation.into(), durable: durable.into(), oldest: oldest.into(), ..*last };
        self.anchors.write(anchor).inspect_err(|error| self.log.fail(error))?;
        *last = anchor;
        Ok(())
    }
}
