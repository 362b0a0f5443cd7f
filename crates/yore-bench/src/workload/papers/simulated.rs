//! The experiments in the library, on disks whose time is computed.
//!
//! One thread works: clients take turns. The clock is the disk's time and [`SimulatedDisks::call`] for each
//! call, so what happens depends on no machine. When it has gone on by a commit interval, the engine does
//! what its background does then; so it does at the end of each phase, with all that is left, and the disk
//! writes out its cache. Nobody waits for anything but fsync. So `none` writes blocks and nothing else, as in
//! the papers. Figures have the disk's time alone.

use super::experiment::Experiment;
use crate::report::{Cell, Column, Row, Table};
use crate::rival::library::mkfs;
use crate::simulated::{disk as model, TimedDevice, Usage, DISKS};
use crate::workload::player::Player;
use crate::workload::script::{Phase, Script};
use crate::workload::simulated::engine_info;
use crate::{BenchError, CompareOptions, LibraryTarget, Result};
use std::sync::Arc;
use std::time::Duration;
use yore_device::{Device, MemoryDevice};
use yore_fs::{Durability, Engine, MountOptions, PassCounts, View};

/// How much of the clock's time passes between two commits: as by default on a mount.
const INTERVAL: Duration = Duration::from_secs(5);

/// So many intervals old is what is left at the end of a phase: old enough for any engine.
const END: u32 = 1000;

/// What an engine cost on one disk.
#[derive(Default)]
struct Cost {
    /// The requests of each phase that is measured.
    phases: Vec<Usage>,
    /// What its generations cost in all of these, under an engine that orders changes.
    passes: PassCounts,
}

/// On each disk.
type Costs = [Cost; DISKS.len()];

/// What runs on them, and how.
pub(super) struct SimulatedDisks<'a> {
    pub(super) engines: &'a [(Engine, Durability)],
    /// What a call takes besides the disk's time.
    pub(super) call: Duration,
    /// Bytes of a disk.
    pub(super) bytes: u64,
    /// The bytes of metadata and of data that memory may hold; `None`: more than all.
    pub(super) caches: Option<(u64, u64)>,
}

impl SimulatedDisks<'_> {
    /// A table for each of the script's and each disk, and one of all requests.
    pub(super) fn run(
        &self,
        experiment: Experiment,
        script: &Script,
        options: &CompareOptions,
    ) -> Result<Vec<Table>> {
        let mut engines = Vec::new();
        for &(engine, durability) in self.engines {
            let mut costs = Costs::default();
            for (disk, costs) in costs.iter_mut().enumerate() {
                options.check_stop()?;
                *costs = self.on(script, (engine, durability), disk)?;
            }
            engines.push((engine_info(engine, durability).name, costs));
        }
        let mut tables = Vec::new();
        for title in script.tables() {
            for (disk, name) in DISKS.iter().enumerate() {
                let mine = |phase: &&Phase| phase.table == Some(title);
                let measured = || script.phases.iter().filter(|phase| phase.table.is_some());
                let cell = |(phase, cost): (&Phase, &Usage)| Cell::new(vec![phase.rate(seconds(cost))]);
                let row = |(engine, costs): &(String, Costs)| Row {
                    target: engine.clone(),
                    cells: measured()
                        .zip(&costs[disk].phases)
                        .filter(|(phase, _)| mine(phase))
                        .map(cell)
                        .collect(),
                };
                tables.push(Table {
                    title: experiment.heading(title, &format!("simulated {name}")),
                    columns: measured().filter(mine).map(Phase::as_column).collect(),
                    rows: engines.iter().map(row).collect(),
                });
            }
        }
        for (disk, name) in DISKS.iter().enumerate() {
            tables.push(totals(
                experiment.heading("all requests", &format!("simulated {name}")),
                disk,
                &engines,
            ));
        }
        Ok(tables)
    }

    /// The cost of each phase that is measured.
    fn on(&self, script: &Script, (engine, durability): (Engine, Durability), disk: usize) -> Result<Cost> {
        let timed = Arc::new(TimedDevice::new(MemoryDevice::new(self.bytes), model(disk)));
        let device: Arc<dyn Device> = timed.clone();
        mkfs(&device, engine, Some(7))?;
        let (metadata_cache, data_cache) = self.caches.unwrap_or((1 << 30, 2 << 30));
        let mount = MountOptions {
            // The machine's clock decides nothing.
            commit_interval: Duration::from_secs(24 * 3600),
            durability,
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
            let before = (timed.usage(), passes()?);
            self.phase(script, phase, &view, &timed)?;
            if phase.table.is_some() {
                cost.phases.push(timed.usage().since(&before.0));
                cost.passes.add(passes()?.since(before.1));
            }
        }
        close(view)?;
        Ok(cost)
    }

    fn phase(&self, script: &Script, phase: &Phase, view: &View, timed: &TimedDevice) -> Result<()> {
        let target = LibraryTarget::new(view.clone());
        let passed = |intervals| {
            let done = view.pass_intervals(intervals);
            timed.idle();
            done.map_err(BenchError::library("letting a commit interval pass"))
        };
        let time = || Duration::from_nanos(timed.usage().busy);
        let (mut since, mut calling, mut intervals) = (time(), Duration::ZERO, 0);
        Player::new(script, &target).by_turns(phase, || {
            calling += self.call;
            if time() - since + calling >= INTERVAL {
                intervals += 1;
                if passed(intervals)? {
                    intervals = 0;
                }
                (since, calling) = (time(), Duration::ZERO);
            }
            Ok(())
        })?;
        passed(END).map(drop)
    }
}

fn seconds(usage: &Usage) -> f64 {
    usage.busy as f64 / 1e9
}

/// What all phases cost together.
fn totals(title: String, disk: usize, engines: &[(String, Costs)]) -> Table {
    let columns = vec![
        Column::time("time"),
        Column::count("writes"),
        Column::bytes("written"),
        Column::count("reads"),
        Column::bytes("read"),
        Column::count("flushes"),
        Column::count("seeks"),
        Column::count("rounds"),
        Column::count("rolled back"),
    ];
    let row = |(engine, costs): &(String, Costs)| {
        let sum = |of: fn(&Usage) -> u64| costs[disk].phases.iter().map(of).sum::<u64>() as f64;
        let figures = [
            costs[disk].phases.iter().map(seconds).sum(),
            sum(|usage| usage.writes),
            sum(|usage| usage.bytes_written),
            sum(|usage| usage.reads),
            sum(|usage| usage.bytes_read),
            sum(|usage| usage.flushes),
            sum(|usage| usage.seeks),
            costs[disk].passes.rounds as f64,
            costs[disk].passes.rollbacks as f64,
        ];
        let cells = figures.into_iter().map(|figure| Cell::new(vec![figure])).collect();
        Row { target: engine.clone(), cells }
    };
    Table { title, columns, rows: engines.iter().map(row).collect() }
}
