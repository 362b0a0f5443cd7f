//! Opening a volume.
//!
//! **Recovery under `snapshot` is choosing a superblock.** A mount believes the newer slot; it uses the older
//! only if the newer is torn. Everything it reaches was flushed before it was written (R1) and nothing it
//! reaches has been reused since (R2), so there is nothing to repair and nothing to scan.
//!
//! **Then the mount replays the log** (`log/replay.rs`): in memory, so this changes nothing and can be
//! repeated. The mount's own superblock keeps the position in the log; the first generation after it holds
//! what was replayed, and moves the position on. Nobody appends a record before that (`Intent::start`).
//!
//! **A log on a device of its own** begins a session before anything is appended to it. The superblock says
//! that one is about to begin, then the log's anchor has it, then the mount's superblock. So each of the two
//! recognises an older copy of the other (`log/place.rs`).
//!
//! **Generations are never reused (R5).** A crash can leave blocks and headers of generation G+1 on the
//! medium that no superblock completes. If the next mount wrote its own G+1, a lost header write could leave
//! the old one where the new one should be. So a mount takes S+1 for its own superblock and S+2 for its first
//! generation, S being the greatest stamp found in either slot: at most one generation beyond a stamped one
//! was ever under way.

use super::Meta;
use crate::base::late::Late;
use crate::base::limits::{check_counts, check_mounts};
use crate::base::medium::Medium;
use crate::base::shadow::Shadows;
use crate::base::Base;
use crate::blocks::Blocks;
use crate::engine::{self, Durability, Strategy};
use crate::error::{MetaError, Result};
use crate::log::intent::Intent;
use crate::log::opened::OpenLog;
use crate::log::place::{self, FoundLog, LogPlace};
use crate::log::region::position_of;
use crate::log::replay::{Recovered, Replay};
use crate::rooms::Rooms;
use crate::space::Space;
use crate::writer::{Writer, FLUSH_BLOCKS};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use yore_device::{AlignedBuf, Device};
use yore_format::layout::SUPERBLOCKS;
use yore_format::{
    decode_slots, Block, Engine, Generation, Superblock, VolumeState, WriteFeatures, BLOCK_SIZE,
};

/// How to open the metadata of a volume.
#[derive(Clone, Debug)]
pub struct MetaOptions {
    /// Change nothing on the medium.
    pub read_only: bool,
    /// The engine to use instead of the one recorded.
    pub engine: Option<Engine>,
    /// Bytes of the metadata cache.
    pub cache_bytes: u64,
    /// The longest time until a change is on the medium: in a generation, or in the log.
    pub commit_interval: Duration,
    /// When calls return. Only engines that log changes first have others than [`Durability::Async`].
    pub durability: Durability,
    /// Where the log is, if it has a device of its own.
    pub log: LogPlace,
    /// Under an engine that orders changes, an fsync leaves to the next generation what its file does not
    /// need, if that is at least so many blocks.
    pub part_leaves: usize,
}

/// The usual [`MetaOptions::part_leaves`]: as many blocks as cost what a flush does, which they take later.
pub const PART_LEAVES: usize = FLUSH_BLOCKS as usize;

impl Meta {
    /// Opens the volume on `device`. The caller sets the reclaimer before the first Op.
    ///
    /// # Errors
    /// [`MetaError::Refused`] for a device that is no volume, is too short, must be checked first, or whose
    /// engine this version does not have; [`MetaError::Corruption`] and [`MetaError::Device`].
    pub fn open(device: Arc<dyn Device>, options: MetaOptions) -> Result<Arc<Meta>> {
        let (mut found, slot, newest) = read_superblock(&*device)?;
        if found.in_place_since.0 != 0 && !options.read_only {
            // A crash may have left rows of the past whose end has not come: it would be this number. No row
            // that is made from now on may have their keys (docs/EDGES.md, "The past").
            found.next_number.0 += 1;
        }
        let Engines { recorded, strategy } = check_openable(&*device, &found, &options)?;
        if found.in_place_since.0 != 0 && !strategy.orders() && !options.read_only {
            return Err(MetaError::RecoverFirst { recorded: recorded.engine() });
        }
        if !options.read_only {
            check_mounts(&found, newest)?;
            check_counts(&found)?;
        }
        // Behind the position in a superblock of an engine that does not log there is nothing.
        let log = match recorded.logs() || strategy.logs() {
            true => place::find(&*device, &found, &options.log, options.read_only)?,
            false => None,
        };
        let begins =
            log.as_ref().is_some_and(|log| log.kept.is_some()) && strategy.logs() && !options.read_only;
        // That a session of the log is about to begin takes a superblock of its own.
        let newest = if begins { Generation(newest.0 + 1) } else { newest };
        let shadows = Arc::new(Shadows::new(device));
        let late = Arc::new(Late::new(shadows.clone()));
        let meta = Arc::new(Meta::assemble((late, shadows), &options, strategy, found, slot, newest));
        let blocks = &meta.rooms.blocks;
        blocks.zones.table.load_roots(&blocks.base)?;
        let (recovered, end) = match &log {
            Some(log) if recorded.logs() => {
                let (recovered, end) = Replay { blocks, log }.run()?;
                (recovered, Some(end))
            }
            _ => (None, None),
        };
        meta.rooms.log.set_replayed(recovered.as_ref().map_or(0, |recovered| recovered.records));
        if !options.read_only {
            if recovered.is_some() && strategy.engine() != recorded.engine() {
                return Err(MetaError::RecoverFirst { recorded: recorded.engine() });
            }
            let empty_from = end.as_ref().filter(|_| recovered.is_none()).map(|end| end.position);
            let mut log = log;
            let begun = match log.as_mut().and_then(|log| log.kept.as_mut()).filter(|_| begins) {
                Some(kept) => Some(meta.writer.begin_session(&meta.rooms, newest, kept, &options.log)?),
                None => None,
            };
            meta.writer.begin_mount(&meta.rooms, newest, (recovered.is_none(), empty_from), begun)?;
            meta.open_log(log, end)?;
            blocks.base.progress.set_recovering(recovered.is_some());
            if recovered.is_none() {
                meta.start_writer()?;
            }
        }
        *meta.recovered.lock() = recovered;
        Ok(meta)
    }

    /// What replaying the log left for the store to do, once. If there is something, and the volume is open
    /// for writing, no generation is written until [`Meta::finish_recovery`].
    pub fn take_recovered(&self) -> Option<Recovered> {
        self.recovered.lock().take()
    }

    /// The store has done what [`Meta::take_recovered`] told it: the volume moves on from what was in the
    /// log.
    ///
    /// # Errors
    /// Those of writing a generation.
    pub fn finish_recovery(self: &Arc<Self>) -> Result<()> {
        if !self.base().progress.set_recovering(false) {
            return Ok(());
        }
        self.start_writer()?;
        self.sync()
    }

    fn start_writer(self: &Arc<Self>) -> Result<()> {
        self.writer.start(Arc::downgrade(self))
    }

    /// Opens the log for appending, if the volume has one and the engine uses it.
    fn open_log(&self, log: Option<FoundLog>, end: Option<yore_log::End>) -> Result<()> {
        let superblock = self.superblock();
        let log = match log {
            Some(found) if self.base().medium.strategy().logs() => {
                let end = end.unwrap_or_else(|| yore_log::End::at(position_of(&superblock)));
                let device = found.device(self.device()).clone();
                let session = superblock.external_log.map_or(superblock.mount_id, |log| log.session);
                let log = yore_log::Log::open(device, found.region, found.id, session, end)?;
                Some(OpenLog::new(log, found.kept))
            }
            _ => None,
        };
        self.rooms.log.start(&self.rooms.blocks, log);
        Ok(())
    }

    /// `newest` is the newest generation found: the volume's own first one is two beyond (R5).
    fn assemble(
        (late, shadows): (Arc<Late>, Arc<Shadows>),
        options: &MetaOptions,
        strategy: &'static dyn Strategy,
        found: Superblock,
        slot: u32,
        newest: Generation,
    ) -> Meta {
        let first = Generation(newest.0.saturating_add(2));
        let writer = Writer::new(found.clone(), slot, options.commit_interval, options.part_leaves);
        let base = Base::new(Medium::new(late.clone(), shadows, found, strategy), first, options.read_only);
        if strategy.orders() && !options.read_only {
            base.order.keep();
        }
        let durability = match strategy.calls_wait() {
            true => Durability::Group,
            false => options.durability,
        };
        let totals = base.ledger.totals().clone();
        let rooms = Rooms { blocks: Blocks::new(base, options.cache_bytes), log: Intent::default() };
        if strategy.orders() {
            rooms.blocks.zones.changes.start_holding();
        }
        // One that is written to is kept by whoever writes, and may move.
        let log_place = if options.read_only { options.log.clone() } else { LogPlace::Without };
        let (space, recovered) = (Space::new(), Mutex::default());
        Meta { rooms, space, writer, late, durability, totals, recovered, log_place }
    }
}

pub(super) fn read_superblock(device: &dyn Device) -> Result<(Superblock, u32, Generation)> {
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

/// The engine that the volume was in use under, and the one that it is opened with.
struct Engines {
    recorded: &'static dyn Strategy,
    strategy: &'static dyn Strategy,
}

fn check_openable(device: &dyn Device, found: &Superblock, options: &MetaOptions) -> Result<Engines> {
    let name = device.describe();
    let need = found.volume_blocks * BLOCK_SIZE as u64;
    if device.size() < need {
        return Err(MetaError::Refused(format!(
            "{name} is truncated: the volume on it has {need} bytes, the file or device only {}; restore the missing end before using it",
            device.size()
        )));
    }
    let left_open = matches!(found.state, VolumeState::InUse | VolumeState::MustBeChecked);
    let recorded = engine::strategy(found.engine);
    if recorded.must_be_checked() && left_open {
        return Err(MetaError::Refused(format!(
            "{name} was in use under the engine `{}`, which promises nothing, and was not unmounted; run `yore check --repair {name}` before mounting it",
            found.engine.name()
        )));
    }
    let strategy = options.engine.map_or(recorded, engine::strategy);
    if strategy.engine() == Engine::None && found.features.contains(WriteFeatures::CHECKSUMS) {
        return Err(MetaError::Refused(format!(
            "{name} keeps checksums of file data, which the engine `none` cannot keep right over a crash; open it with \
             engine=snapshot or engine=journal"
        )));
    }
    if options.durability != Durability::Async && !strategy.logs_first() {
        return Err(MetaError::Refused(format!(
            "durability={} is for the engine `journal`, and {name} would be opened with `{}`; add engine=journal, or leave it out",
            options.durability.name(),
            strategy.engine().name()
        )));
    }
    if strategy.logs_first() && found.log_blocks == 0 {
        return Err(MetaError::Refused(format!(
            "{name} has no log, which the engine `{}` needs; open it with another, or give it a log (`yore journal {name} --size 4M`)",
            strategy.engine().name()
        )));
    }
    if !options.read_only && device.read_only() {
        return Err(MetaError::Refused(format!(
            "{name} can only be read; mount it with `-o ro`, or make it writable"
        )));
    }
    Ok(Engines { recorded, strategy })
}
