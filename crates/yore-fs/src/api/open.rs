//! The calls of a view that concern the volume as a whole: making, opening, resizing and closing it, and the
//! facts about it.

use crate::api::view::View;
use crate::history::rollback;
use crate::store::Store;
use crate::{Error, MkfsOptions, MountOptions, Result, Statfs, Stopped, VolumeInfo};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use yore_core::alloc::MoveLog;
use yore_device::Device;
use yore_format::{Policy, Superblock, VolumeState, FORMAT_MAJOR, FORMAT_MINOR};
use yore_meta::{LogPlace, LogStatus, PassCounts};

impl View {
    /// Makes a volume on `device`, over its whole length, in constant time. A policy with an interval begins
    /// with a snapshot of the root directory, so a snapshot sees whatever changes from then on.
    ///
    /// # Errors
    /// [`Error::Refused`] if a volume is there and `force` is not given, if the device is too small (16 MiB),
    /// too large (128 TiB) or read-only; [`Error::Device`].
    pub fn mkfs(device: &Arc<dyn Device>, options: &MkfsOptions) -> Result<VolumeInfo> {
        if !options.force && yore_meta::holds_volume(&**device)? {
            return Err(Error::Refused(format!(
                "{} already holds a Yore volume; making another one destroys it: use --force if that is meant",
                device.describe()
            )));
        }
        let superblock = yore_meta::mkfs(
            &**device,
            &yore_meta::MkfsOptions {
                uuid: options.uuid,
                hash_seed: options.hash_seed,
                label: options.label.clone(),
                engine: options.engine,
                owner: options.owner,
                permissions: options.permissions,
                now: crate::clock::now(),
                log_blocks: options.log_size.map_or_else(
                    || {
                        yore_meta::usual_log_blocks(
                            options.engine,
                            device.size() / yore_format::BLOCK_SIZE as u64,
                        )
                    },
                    |bytes| bytes.div_ceil(yore_format::BLOCK_SIZE as u64),
                ),
                log_device: options.journal.clone(),
                data_checksums: options.data_checksums,
                force: options.force,
            },
        )?;
        if options.policy == Policy::default() {
            return Ok(info_of(&superblock));
        }
        let journal = options.journal.clone().map_or(LogPlace::Recorded, LogPlace::On);
        let view = View::open(device.clone(), &MountOptions { journal, ..MountOptions::default() })?;
        let set = view.set_policy(view.root(), &options.policy);
        let info = view.info();
        let closed = view.close();
        set.and(closed).map(|()| info)
    }

    /// Opens the volume on `device`. Under the default engine this repairs nothing and scans nothing,
    /// whatever the size of the volume and however it was left.
    ///
    /// # Errors
    /// [`Error::Refused`] if the device has no volume, or one that is truncated, is of another version, must
    /// be checked first, or cannot be written; [`Error::Corruption`], [`Error::Device`].
    pub fn open(device: Arc<dyn Device>, options: &MountOptions) -> Result<View> {
        let store = Store::open(device, options)?;
        let view = View::new(store, Store::close);
        rollback::finish_all(&view)?;
        Ok(view)
    }

    /// Has a volume that nobody has open forget the log that it has on a device of its own, which is gone.
    /// The volume is then as its last superblock left it, without a log; what only the log had is lost. Under
    /// `journal`, which needs a log, the engine becomes `snapshot`.
    ///
    /// A volume that was in use under `journal` may have blocks that are newer than that superblock, or torn:
    /// the caller has checked it without the log (`yore-check`), and found nothing.
    ///
    /// # Errors
    /// [`Error::Refused`] if the log is inside, or there is none; damage and device errors.
    pub fn give_up_log(device: &Arc<dyn Device>) -> Result<VolumeInfo> {
        Ok(info_of(&yore_meta::give_up_log(&**device)?))
    }

    /// What the log that makes fsync cheap is doing.
    pub fn log_status(&self) -> LogStatus {
        self.store().meta.log_status()
    }

    /// Moves the log while the volume is in use: to other blocks of the volume, and so to another length, or
    /// to a device of its own, or back. The new one counts, durably, when this returns; a crash before leaves
    /// one of the two, and all that was durable.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the volume has not so many free blocks in a row; [`Error::Refused`] for a log
    /// that cannot be, or a device that should not be overwritten; [`Error::ReadOnly`]; damage and device
    /// errors.
    pub fn move_log(&self, to: &MoveLog) -> Result<()> {
        let store = self.live()?;
        store.check_writable()?;
        // What only the old log has comes home.
        store.sync()?;
        store.meta.sync()?;
        store.alloc.move_log(&store.meta, to)
    }

    /// Writes everything, marks the volume clean, and stops. Later changes are refused; closing again does
    /// nothing.
    ///
    /// # Errors
    /// Names what could not be written; the volume is then as its last complete generation left it.
    pub fn close(&self) -> Result<()> {
        self.store().close()
    }

    /// Makes the volume `bytes` long, or as long as its groups allow, while it is in use. It also makes the
    /// device longer, where the device can be. The change is durable when this returns. Returns whether the
    /// volume was shorter.
    ///
    /// ```
    /// # fn main() -> yore_fs::Result<()> {
    /// let volume = yore_fs::Volume::memory(64 << 20)?;
    /// assert!(!volume.view().lengthen(32 << 20)?);
    /// // Memory is as long as it is.
    /// assert!(volume.view().lengthen(128 << 20).is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Refused`] if the device cannot be made as long, or the volume would be too long;
    /// [`Error::ReadOnly`]; damage and device errors.
    pub fn lengthen(&self, bytes: u64) -> Result<bool> {
        let store = self.live()?;
        store.alloc.lengthen(&store.meta, bytes)
    }

    /// Makes the volume `bytes` long; the device stays as it is. Data of files beyond the new end moves
    /// before it, unless the past has it, too; inodes and directories do not move. `told` is called with the
    /// bytes that have moved, and with the bytes that are to move. The caller must be the only one who uses
    /// the volume, and must close it afterwards: only then is the change durable in both superblocks, and the
    /// device may be shortened. Returns whether the volume was longer.
    ///
    /// # Errors
    /// [`Error::Refused`] if something lies beyond that does not move, or if there is no room for what does:
    /// then nothing was changed; [`Error::ReadOnly`]; damage and device errors. The volume then has its old
    /// length.
    pub fn shorten(&self, bytes: u64, told: &mut dyn FnMut(u64, u64)) -> Result<bool> {
        self.live()?;
        crate::api::shrink::shorten(self, bytes, told)
    }

    /// Erases from the medium what is left there of all that is gone: history that was given up, files that
    /// were removed, blocks, names and targets of links that something else has replaced. First it finishes
    /// what is being given up. It calls `ask` now and then, which says whether to go on. What the present or
    /// a kept snapshot has stays. The time depends on how much is free, and how much is in use as metadata.
    /// The erasure is durable when this returns.
    ///
    /// It cannot reach what lies below the device: copies that a host's file system or a solid-state disk
    /// keeps, and backups.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; damage and device errors.
    pub fn shred(&self, ask: &mut dyn FnMut() -> std::ops::ControlFlow<()>) -> Result<crate::Shredded> {
        crate::history::reclaim::shred::shred(self.live()?, ask)
    }

    /// Bytes of the device underneath, which may be more than the volume uses.
    pub fn device_size(&self) -> u64 {
        self.store().meta.device().size()
    }

    /// Facts about the volume, as of now.
    pub fn info(&self) -> VolumeInfo {
        self.store().settle_set_aside();
        let meta = &self.store().meta;
        let mut info = match self.store().read_only {
            true => info_of(meta.found()),
            // As it was found, but for the log, which may have moved since.
            false => {
                let found = info_of(meta.found());
                let VolumeInfo { log_size, log_path, .. } = info_of(&meta.superblock());
                VolumeInfo { log_size, log_path, ..found }
            }
        };
        let geometry = meta.geometry();
        (info.size, info.groups) = (geometry.blocks * yore_format::BLOCK_SIZE as u64, geometry.groups());
        info.engine = meta.engine();
        info.zones = meta.totals.zones.get() as u32;
        info.metadata_blocks = meta.totals.metadata_blocks.get();
        info.inodes = meta.totals.inodes.get();
        info.free_blocks = meta.totals.free_blocks.get();
        if !self.store().read_only {
            info.generation = meta.completed_generation();
        }
        info
    }

    /// Whether an error has stopped all writing to the volume. `None` while the volume can be written, and
    /// for a volume that is open for reading only.
    pub fn stopped(&self) -> Option<Stopped> {
        let (first, since_seconds) = self.store().meta.first_error()?;
        Some(Stopped { first: first.into(), since_seconds })
    }

    /// Space. A caller can write `blocks_available` blocks as the data of one file. For some of them a full
    /// volume gives up history, as far as it may do so for this view's requests.
    pub fn statfs(&self) -> Statfs {
        self.store().statfs(self.behalf())
    }

    /// Has the device get some of the data that it is to get later: of files that changed after an event had
    /// seen data of them that was only in memory. Returns whether there was any. A thread does that in the
    /// background; this is for tests that decide when.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::Stopped`].
    pub fn write_late(&self) -> Result<bool> {
        Ok(self.live()?.meta.write_late()?)
    }

    /// Has the device discard what complete generations have freed, if the volume was opened so
    /// ([`MountOptions::discard`]). Returns how many bytes it has discarded. A thread does that in the
    /// background, and closing does the rest; this is for tests that decide when.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Stopped`].
    pub fn discard_freed(&self) -> Result<u64> {
        let store = self.live()?;
        store.check_writable()?;
        Ok(store.alloc.discard_freed(&store.meta, u64::MAX, &|| true) * yore_format::BLOCK_SIZE as u64)
    }

    /// Puts everything that was done before on the medium before it returns.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::Stopped`]; never [`Error::NoSpace`] for data that was accepted.
    pub fn sync(&self) -> Result<()> {
        self.store().sync()
    }

    /// Does at once what the background does until changes are `intervals` commit intervals old: writes file
    /// data back, and then what the engine has to write by then. For measurements on a clock of their own; it
    /// makes nothing durable. Returns whether a generation was written, from which the next intervals count.
    ///
    /// # Errors
    /// As [`View::sync`]; [`Error::ReadOnly`].
    pub fn pass_intervals(&self, intervals: u32) -> Result<bool> {
        let store = self.live()?;
        store.check_writable()?;
        store.write_back()?;
        Ok(store.meta.pass_intervals(intervals)?)
    }

    /// What the generations of an engine that orders changes have cost since the volume was opened.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] for a view of the past.
    pub fn pass_counts(&self) -> Result<PassCounts> {
        Ok(self.live()?.meta.pass_counts())
    }

    /// How many threads wait until generations are complete: syncs, and calls that go on behind one. For
    /// tests that hold the writer up.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] for a view of the past.
    pub fn threads_waiting(&self) -> Result<usize> {
        Ok(self.live()?.meta.threads_waiting())
    }

    /// As [`View::sync`]; also, all metadata is where it belongs when this returns, and not in the log alone.
    /// The next mount replays nothing of it, and what was freed can be used again.
    ///
    /// # Errors
    /// As [`View::sync`].
    pub fn checkpoint(&self) -> Result<()> {
        let store = self.store();
        store.sync()?;
        match store.read_only {
            true => Ok(()),
            false => Ok(store.meta.checkpoint()?),
        }
    }
}

fn info_of(superblock: &Superblock) -> VolumeInfo {
    VolumeInfo {
        uuid: superblock.uuid,
        label: superblock.label.clone(),
        format: (FORMAT_MAJOR, FORMAT_MINOR),
        engine: superblock.engine,
        size: superblock.volume_blocks * yore_format::BLOCK_SIZE as u64,
        groups: superblock.geometry().groups(),
        zones: superblock.zones,
        metadata_blocks: superblock.metadata_blocks,
        inodes: superblock.inodes,
        free_blocks: superblock.free_blocks,
        generation: superblock.generation.0,
        mount_id: superblock.mount_id,
        state: match superblock.state {
            VolumeState::Clean => "clean",
            VolumeState::InUse => "in use",
            VolumeState::MustBeChecked => "must be checked",
            VolumeState::LeaksPending => "leaks pending",
        },
        created_seconds: superblock.created_seconds,
        written_seconds: superblock.written_seconds,
        log_size: superblock.log_blocks * yore_format::BLOCK_SIZE as u64,
        log_path: superblock.external_log.as_ref().map(|log| OsStr::from_bytes(&log.path).into()),
    }
}
