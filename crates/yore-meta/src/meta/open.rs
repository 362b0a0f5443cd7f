//! Opening a volume.
//!
//! **Recovery under `snapshot` is choosing a superblock.** The newer slot that is whole is believed; the older only
//! if the newer is torn. Everything it reaches was flushed before it was written (R1) and nothing it reaches has been
//! reused since (R2), so there is nothing to repair and nothing to scan.
//!
//! **Then the log is replayed** (`replay.rs`): in memory, so it changes nothing and can be repeated. The mount's own superblock
//! keeps the position in the log; the first generation after it holds what was replayed, and moves the position on. No
//! record is appended before that.
//!
//! **Generations are never reused (R5).** A crash can leave blocks and headers of generation G+1 on the medium that no
//! superblock completes. If the next mount wrote its own G+1, a lost header write could leave the old one where the
//! new one should be. So a mount takes S+1 for its own superblock and S+2 for its first generation, S being the
//! greatest stamp found in either slot: at most one generation beyond a stamped one was ever under way.

use crate::base::extensions::Extensions;
use crate::cache::Cache;
use crate::error::{MetaError, Result};
use crate::log::intent::{position_of, region_of, set_position, Intent};
use crate::log::replay::Recovered;
use crate::meta::{now_seconds, Meta, Progress, RootState, Totals};
use crate::space::Hints;
use crate::zones::zone::{read_header, Zones};
use parking_lot::{Condvar, Mutex, RwLock};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use yore_device::{AlignedBuf, Device};
use yore_format::layout::{SUPERBLOCKS, ZONE_INDEXES};
use yore_format::{
    decode_slots, Block, Corruption, Engine, Generation, Superblock, VolumeState, ZoneNo, ZoneTableEntry,
    BLOCK_SIZE,
};
use yore_log::Position;

/// How to open the metadata of a volume.
#[derive(Clone, Debug)]
pub struct MetaOptions {
    /// Change nothing on the medium.
    pub read_only: bool,
    /// The engine to use instead of the one recorded.
    pub engine: Option<Engine>,
    /// Bytes of the metadata cache.
    pub cache_bytes: u64,
    /// The longest time between two generations while there are changes.
    pub commit_interval: Duration,
}
impl Meta {
    /// Opens the volume on `device`. The reclaimer is to be set before the first Op.
    ///
    /// # Errors
    /// [`MetaError::Refused`] for a device that is no volume, is too short, must be checked first, or whose engine this
    /// version does not have; [`MetaError::Corruption`] and [`MetaError::Device`].
    pub fn open(device: Arc<dyn Device>, options: MetaOptions) -> Result<Arc<Meta>> {
        let (found, slot, newest) = read_superblock(&*device)?;
        let engine = check_openable(&*device, &found, &options)?;
        if !options.read_only {
            check_limit("generation", LEFT, newest.0)?;
            check_limit("mount_id", LEFT, found.mount_id)?;
            check_counts(&found)?;
        }
        let meta = Arc::new(Meta::assemble(device, options, engine, found, slot, newest));
        meta.load_roots()?;
        // Only this engine has a log; another that comes after it finds nothing behind the position in the superblock.
        let (recovered, end) = match meta.found.engine {
            Engine::Snapshot => meta.replay()?,
            _ => (None, None),
        };
        if !meta.read_only {
            if recovered.is_some() && meta.engine != meta.found.engine {
                return Err(MetaError::RecoverFirst { recorded: meta.found.engine });
            }
            let empty_from = end.as_ref().filter(|_| recovered.is_none()).map(|end| end.position);
            meta.begin_mount(newest, recovered.is_none(), empty_from)?;
            meta.open_log(end)?;
            meta.recovering.store(recovered.is_some(), Ordering::Release);
            if recovered.is_none() {
                meta.start_writer()?;
            }
        }
        *meta.recovered.lock() = recovered;
        Ok(meta)
    }

    /// What replaying the log left for the store to do, once. If there is something, and the volume is open for writing, no
    /// generation is written until [`Meta::finish_recovery`].
    pub fn take_recovered(&self) -> Option<Recovered> {
        self.recovered.lock().take()
    }

    /// The store has done what [`Meta::take_recovered`] told: the volume moves on from what was in the log.
    ///
    /// # Errors
    /// Those of writing a generation.
    pub fn finish_recovery(self: &Arc<Self>) -> Result<()> {
        if !self.recovering.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        self.start_writer()?;
        self.sync()
    }

    fn start_writer(self: &Arc<Self>) -> Result<()> {
        let weak = Arc::downgrade(self);
        let writer = std::thread::Builder::new()
            .name("yore-commit".into())
            .spawn(move || crate::writer::commit::run(&weak))
            .map_err(|e| MetaError::Refused(format!("cannot start the commit thread: {e}")))?;
        *self.writer.lock() = Some(writer);
        Ok(())
    }

    /// Opens the log for appending, if the volume has one and the engine uses it.
    fn open_log(&self, end: Option<yore_log::End>) -> Result<()> {
        let superblock = self.superblock.lock().0.clone();
        let log = match region_of(&superblock) {
            Some((region, id)) if self.engine == Engine::Snapshot => {
                let end = end.unwrap_or_else(|| yore_log::End::at(position_of(&superblock)));
                Some(yore_log::Log::open(self.device.clone(), region, id, superblock.mount_id, end)?)
            }
            _ => None,
        };
        self.intent.start(log);
        Ok(())
    }

    fn assemble(
        device: Arc<dyn Device>,
        options: MetaOptions,
        engine: Engine,
        found: Superblock,
        slot: u32,
        newest: Generation,
    ) -> Meta {
        let first = newest.0.saturating_add(2);
        let totals = Totals::default();
        totals.free_blocks.set(found.free_blocks);
        totals.inodes.set(found.inodes);
        totals.metadata_blocks.set(found.metadata_blocks);
        totals.zones.set(u64::from(found.zones));
        Meta {
            volume_blocks: AtomicU64::new(found.volume_blocks),
            volume_tag: found.volume_tag(),
            uuid: found.uuid,
            engine,
            read_only: options.read_only,
            cache: Cache::new(options.cache_bytes),
            options,
            zones: Zones::new(),
            totals,
            gate: RwLock::new(first),
            dirty_zones: Mutex::default(),
            dirty_frames: AtomicUsize::new(0),
            root_changed: AtomicBool::new(false),
            freed: Mutex::default(),
            orphan_root: Mutex::new((found.orphan_root, found.orphan_level)),
            history_root: AtomicU64::new(found.history_root.0),
            extensions: Extensions::new(&found),
            next_incarnation: AtomicU64::new(found.next_incarnation),
            next_number: AtomicU64::new(found.next_number.0),
            zone_number_limit: AtomicU32::new(found.zone_number_limit),
            block_hints: Hints::new(),
            inode_hints: Hints::new(),
            table: Mutex::default(),
            roots: Mutex::default(),
            root_zones: AtomicU32::new(found.root_zones.iter().flatten().count() as u32),
            superblock: Mutex::new((found.clone(), slot)),
            progress: Mutex::new(Progress { completed: first - 1, wanted: first - 1, ..Progress::default() }),
            progressed: Condvar::new(),
            stopped: AtomicBool::new(false),
            reclaimer: OnceLock::new(),
            writer: Mutex::new(None),
            unwritten: Mutex::default(),
            intent: Intent::default(),
            recovered: Mutex::default(),
            recovering: AtomicBool::new(false),
            found,
            device,
        }
    }

    fn load_roots(&self) -> Result<()> {
        let mut roots = Vec::new();
        for (i, root) in self.found.root_zones.iter().enumerate() {
            let Some(root) = root else {
                roots.push(None);
                continue;
            };
            let mut entry = ZoneTableEntry::ABSENT;
            entry.place = root.place.0.into();
            entry.generation = root.generation.0.into();
            entry.crc = root.crc.into();
            entry.header_slot = root.header_slot;
            entry.present = 1;
            let header = read_header(self, ZoneNo::root(i as u32), &entry)?;
            roots.push(Some(RootState {
                place: root.place,
                exists: header.exists,
                map: header.map,
                checks: header.checks,
                current: Some(*root),
            }));
        }
        *self.roots.lock() = roots;
        Ok(())
    }

    /// Says on the medium that the volume is in use, under this engine and a mount id never used before (R5).
    /// If the log has nothing to replay, it may still hold what was carried over for a superblock that never arrived; this
    /// mount's first generation has the number that those records are for, so the next mount must begin behind them, at
    /// `empty_from`.
    fn begin_mount(
        &self,
        newest: Generation,
        log_is_empty: bool,
        empty_from: Option<Position>,
    ) -> Result<()> {
        let mut guard = self.superblock.lock();
        let (superblock, slot) = &mut *guard;
        superblock.mount_id += 1;
        superblock.generation = Generation(newest.0 + 1);
        superblock.state = VolumeState::InUse;
        if log_is_empty {
            // Else the next mount must still believe the records there.
            let position = empty_from.unwrap_or_else(|| position_of(superblock));
            set_position(superblock, position, Generation(newest.0 + 2));
        }
        let changes_engine = superblock.engine != self.engine;
        superblock.engine = self.engine;
        superblock.written_seconds = now_seconds();
        // An in-place engine must be known from either slot before it overwrites anything.
        let writes = if changes_engine && self.engine.in_place() { 2 } else { 1 };
        for _ in 0..writes {
            *slot = 1 - *slot;
            self.device
                .write_at(SUPERBLOCKS[*slot as usize].0 * BLOCK_SIZE as u64, &superblock.encode(*slot)[..])?;
            self.device.flush()?;
        }
        Ok(())
    }
}

fn read_superblock(device: &dyn Device) -> Result<(Superblock, u32, Generation)> {
    if device.size() < 2 * BLOCK_SIZE as u64 {
        let (name, size) = (device.describe(), device.size());
        return Err(MetaError::Refused(format!(
            "{name} is no Yore volume: it has only {size} bytes; make one with `yore mkfs`"
        )));
    }
    let mut slots = [AlignedBuf::zeroed(1), AlignedBuf::zeroed(1)];
    for (slot, at) in slots.iter_mut().zip(SUPERBLOCKS) {
        device.read_at(at.0 * BLOCK_SIZE as u64, slot)?;
    }
    let [a, b] = &slots;
    let blocks: [&Block; 2] = [a, b].map(|s| s[..].try_into().expect("one block each"));
    Ok(decode_slots(blocks)?)
}

/// How far counts that go on growing may have come: enough is left for a mount each nanosecond, for centuries.
const LEFT: u64 = 1 << 62;

fn check_limit(field: &'static str, limit: u64, value: u64) -> Result<()> {
    match value <= limit {
        true => Ok(()),
        false => Err(Corruption::new("superblock", field, format!("at most {limit}"), value).into()),
    }
}

/// Counts and limits that go on growing must have room to, and those that loops run up to must be possible. Wrong ones that
/// are possible are for the checker to find. The log's records say some of them anew.
pub(crate) fn check_counts(found: &Superblock) -> Result<()> {
    if found.next_number.0 == 0 {
        return Err(Corruption::new("superblock", "next_number", "at least 1", 0).into());
    }
    let zones_max = found.root_zones.len() as u64
        * u64::from(ZONE_INDEXES)
        * yore_format::layout::ZONE_TABLE_ENTRIES as u64;
    for (field, limit, value) in [
        ("next_number", LEFT, found.next_number.0),
        ("zone_number_limit", zones_max, u64::from(found.zone_number_limit)),
        ("zones", zones_max + found.root_zones.len() as u64, u64::from(found.zones)),
        ("free_blocks", found.volume_blocks, found.free_blocks),
        ("metadata_blocks", found.volume_blocks, found.metadata_blocks),
    ] {
        check_limit(field, limit, value)?;
    }
    Ok(())
}

fn check_openable(device: &dyn Device, found: &Superblock, options: &MetaOptions) -> Result<Engine> {
    let name = device.describe();
    let need = found.volume_blocks * BLOCK_SIZE as u64;
    if device.size() < need {
        return Err(MetaError::Refused(format!(
            "{name} is truncated: the volume on it has {need} bytes, the file or device only {}; restore the missing end before using it",
            device.size()
        )));
    }
    let left_open = matches!(found.state, VolumeState::InUse | VolumeState::MustBeChecked);
    if found.engine == Engine::None && left_open {
        return Err(MetaError::Refused(format!(
            "{name} was in use under the engine `none`, which promises nothing, and was not unmounted; run `yore check --repair {name}` before mounting it"
        )));
    }
    let engine = options.engine.unwrap_or(found.engine);
    for e in [found.engine, engine] {
        if !matches!(e, Engine::None | Engine::Snapshot) {
            return Err(MetaError::Refused(format!(
                "the engine `{}` is not available in this version; use `snapshot` or `none`",
                e.name()
            )));
        }
    }
    if !options.read_only && device.read_only() {
        return Err(MetaError::Refused(format!(
            "{name} can only be read; mount it with `-o ro`, or make it writable"
        )));
    }
    Ok(engine)
}

/// Whether `device` holds a volume: a superblock of ours, whole or not, in either slot.
///
/// # Errors
/// [`MetaError::Device`].
pub fn holds_volume(device: &dyn Device) -> Result<bool> {
    if device.size() < 2 * BLOCK_SIZE as u64 {
        return Ok(false);
    }
    for (slot, at) in SUPERBLOCKS.into_iter().enumerate() {
        let mut buf = AlignedBuf::zeroed(1);
        device.read_at(at.0 * BLOCK_SIZE as u64, &mut buf)?;
        let block: &Block = buf[..].try_into().expect("one block");
        if Superblock::decode(block, slot as u32) != yore_format::SlotState::Foreign {
            return Ok(true);
        }
    }
    Ok(false)
}
