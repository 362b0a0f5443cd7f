//! A [`Script`] in the library on a disk whose time is computed.
//!
//! One thread works: clients take turns. The clock is the disk's time and [`Computed::call`] for each
//! call, so what happens depends on no machine. When it has gone on by a commit interval, the engine does
//! what its background does then; so it does at the end of each phase, with all that is left, and the disk
//! writes out its cache. Nobody waits for anything but fsync. So `none` writes blocks and nothing else, as in
//! the papers. Figures have the disk's time alone. If the log is on a disk of its own, the two work side by
//! side: the time is that of the one that was busy longer.

use super::mechanism::Mechanism;
use super::player::Player;
use super::script::{Phase, Script};
use crate::rival::library::mkfs_with;
use crate::simulated::{disk as model, Scattered, TimedDevice, Usage};
use crate::{BenchError, LibraryTarget, Result};
use std::sync::Arc;
use std::time::Duration;
use yore_device::{Device, MemoryDevice};
use yore_fs::{LogDevice, LogPlace, MountOptions, PassCounts, View};

/// How much of the clock's time passes between two commits: as by default on a mount.
const INTERVAL: Duration = Duration::from_secs(5);

/// So many intervals old is what is left at the end of a phase: old enough for any engine.
const END: u32 = 1000;

/// Decides how metadata is scattered.
const SCATTERED: u64 = 5;

/// Bytes of a log's own disk: as many as a log inside a volume of this size has.
const LOG_BYTES: u64 = 48 << 20;

/// What a script cost on one disk.
#[derive(Default)]
pub(crate) struct Cost {
    /// The requests of each phase that is measured.
    pub(crate) phases: Vec<Usage>,
    /// What its generations cost in all of these, under an engine that orders changes.
    pub(crate) passes: PassCounts,
}

/// How a script runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Computed {
    /// What a call takes besides the disk's time.
    pub(crate) call: Duration,
    /// Bytes of a disk.
    pub(crate) bytes: u64,
    /// The bytes of metadata and of data that memory may hold; `None`: more than all.
    pub(crate) caches: Option<(u64, u64)>,
    /// Whether metadata lies anywhere on the disk, instead of together.
    pub(crate) scattered: bool,
}

impl Computed {
    /// The cost of the phases that are measured.
    pub(crate) fn run(&self, script: &Script, mechanism: Mechanism, disk: usize) -> Result<Cost> {
        let timed = |bytes| Arc::new(TimedDevice::new(MemoryDevice::new(bytes), model(disk)));
        let disks = Disks { volume: timed(self.bytes), log: mechanism.own_log.then(|| timed(LOG_BYTES)) };
        let device: Arc<dyn Device> = match self.scattered {
            true => Arc::new(Scattered::new(disks.volume.clone(), SCATTERED)),
            false => disks.volume.clone(),
        };
        let log = disks.log.clone().map(|device| LogDevice { device, path: Vec::new() });
        mkfs_with(&device, mechanism.engine, Some(7), log.clone(), false)?;
        let (metadata_cache, data_cache) = self.caches.unwrap_or((1 << 30, 2 << 30));
        let mount = MountOptions {
            // The machine's clock decides nothing.
            commit_interval: Duration::from_secs(24 * 3600),
            durability: mechanism.durability,
            journal: log.map_or(LogPlace::Recorded, LogPlace::On),
            metadata_cache,
            data_cache,
            access_times: false,
            ..MountOptions::default()
        };
        let open = || View::open(device.clone(), &mount).map_err(BenchError::library("opening the volume"));
        let close = |view: View| view.close().map_err(BenchError::library("closing the volume"));
        let mut view = open()?;
        let mut cost = Cost::default();
        for phase in &script.phases {
            if phase.cold {
                close(view)?;
                view = open()?;
            }
            let passes = || view.pass_counts().map_err(BenchError::library("asking what generations cost"));
            let before = (disks.usage(), passes()?);
            self.phase(script, phase, &view, &disks)?;
            if phase.table.is_some() {
                cost.phases.push(disks.since(&before.0));
                cost.passes.add(passes()?.since(before.1));
            }
        }
        close(view)?;
        Ok(cost)
    }

    fn phase(&self, script: &Script, phase: &Phase, view: &View, disks: &Disks) -> Result<()> {
        let target = LibraryTarget::new(view.clone());
        let passed = |intervals| {
            let done = view.pass_intervals(intervals);
            disks.idle();
            done.map_err(BenchError::library("letting a commit interval pass"))
        };
        let (mut since, mut calling, mut intervals) = (disks.usage(), Duration::ZERO, 0);
        Player::new(script, &target).by_turns(phase, || {
            calling += self.call;
            if Duration::from_nanos(disks.since(&since).busy) + calling >= INTERVAL {
                intervals += 1;
                if passed(intervals)? {
                    intervals = 0;
                }
                (since, calling) = (disks.usage(), Duration::ZERO);
            }
            Ok(())
        })?;
        passed(END).map(drop)
    }
}

/// The disks that a volume is on.
struct Disks {
    volume: Arc<TimedDevice>,
    /// That of the log, if it has its own.
    log: Option<Arc<TimedDevice>>,
}

impl Disks {
    /// What each did so far.
    fn usage(&self) -> (Usage, Usage) {
        (self.volume.usage(), self.log.as_ref().map(|log| log.usage()).unwrap_or_default())
    }

    /// What they did since, side by side.
    fn since(&self, before: &(Usage, Usage)) -> Usage {
        let now = self.usage();
        now.0.since(&before.0).beside(&now.1.since(&before.1))
    }

    fn idle(&self) {
        self.volume.idle();
        if let Some(log) = &self.log {
            log.idle();
        }
    }
}

/// The time that a disk was busy.
pub(crate) fn seconds(usage: &Usage) -> f64 {
    usage.busy as f64 / 1e9
}
