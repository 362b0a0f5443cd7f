//! `simulated`: the cost of the engines' I/O on a disk whose time is computed, so that figures are exact and
//! the same on every machine.
//!
//! The volume is in memory behind a [`TimedDevice`]. One thread works. Nothing is committed by age or in the
//! background, only by the sync that ends every batch of [`Simulated::batch`] operations, by the checkpoint
//! that ends every step, and by fsync if that is measured. (`journal` also begins a checkpoint when half of
//! its log is used; a thread of its own writes it.) So the requests follow from the parameters alone, with
//! one exception: the library does not fix the order in which it writes back files that were written between
//! two syncs. If they are of different sizes, as PostMark's are, their places, and with them the time of
//! later work, may differ a little from run to run. A step's figures are those of its operations and of the
//! syncs among them, divided by the operations. They do not include the time that a processor would need.

use super::mechanism::Mechanism;
use super::postmark::{self, PostMark};
use super::steps::{noise, timed};
use crate::report::{Cell, Column, Report, Row, Table};
use crate::rival::library::mkfs;
use crate::simulated::{disk as model, TimedDevice, Usage, DISKS};
use crate::{BenchError, CompareOptions, LibraryTarget, Result, Target};
use std::sync::Arc;
use std::time::Duration;
use yore_device::{Device, MemoryDevice};
use yore_fs::{Durability, Engine, MountOptions, View};

/// The work on the simulated disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulatedWorkload {
    /// Basic calls.
    Micro,
    /// [`PostMark`].
    PostMark,
}

/// The cost of the engines' I/O on computed disks.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// The work to do.
    pub workload: SimulatedWorkload,
    /// Files per step of the basic calls; a tenth of them for durable ones.
    pub files: usize,
    /// Directories they are spread over.
    pub directories: usize,
    /// PostMark's parameters.
    pub postmark: PostMark,
    /// Operations (of PostMark: transactions) between two syncs.
    pub batch: usize,
    /// Bytes of the volume.
    pub volume_bytes: u64,
    /// The engines, of which the first is what the others are compared with. Logs are inside.
    pub engines: Vec<Mechanism>,
}

impl Default for Simulated {
    fn default() -> Simulated {
        Simulated {
            workload: SimulatedWorkload::Micro,
            files: 20_000,
            directories: 100,
            postmark: PostMark {
                transactions: 20_000,
                files: 5_000,
                directories: 100,
                ..PostMark::default()
            },
            batch: 1000,
            volume_bytes: 16 << 30,
            engines: vec![
                Mechanism::new(Engine::None, Durability::Async),
                Mechanism::new(Engine::Snapshot, Durability::Async),
                Mechanism::new(Engine::Journal, Durability::Async),
                Mechanism::new(Engine::Journal, Durability::Sync),
            ],
        }
    }
}

/// What one step did: its name, its operations, and the device's part.
struct StepUsage {
    name: &'static str,
    operations: usize,
    usage: Usage,
}

impl Simulated {
    /// Runs it. Of `options` only the place and the stop flag count.
    ///
    /// # Errors
    /// [`BenchError::Interrupted`]; what failed in the library.
    pub fn run(&self, options: &CompareOptions) -> Result<Report> {
        let mut disks = Vec::new();
        for disk in 0..DISKS.len() {
            let mut engines = Vec::new();
            for &mechanism in &self.engines {
                options.check_stop()?;
                engines.push((mechanism.info().name, self.on(mechanism, disk)?));
            }
            disks.push(engines);
        }
        let time = |disk: usize| {
            let title = format!("Device time per operation, simulated {}", DISKS[disk]);
            table(title, &disks[disk], Column::time, |usage| usage.busy as f64 / 1e9)
        };
        // The requests to the disk do not depend on its speed; movements of the arm are those of the first
        // disk.
        let requests = |what: &str, of: fn(&Usage) -> f64| {
            let unit = if what.starts_with("Bytes") { Column::bytes } else { Column::count };
            table(format!("{what} per operation"), &disks[0], unit, of)
        };
        let tables = vec![
            time(0),
            time(1),
            requests("Writes", |usage| usage.writes as f64),
            requests("Bytes written", |usage| usage.bytes_written as f64),
            requests("Reads", |usage| usage.reads as f64),
            requests("Bytes read", |usage| usage.bytes_read as f64),
            requests("Flushes", |usage| usage.flushes as f64),
            requests("Seeks of the disk", |usage| usage.seeks as f64),
        ];
        let targets: Vec<_> = self.engines.iter().map(|of| of.info()).collect();
        let mut notes = vec![
            "Figures are of the device alone and computed: the same parameters give the same figures on every machine. \
             The disks are modelled after data sheets, as the documentation of yore-bench's module `simulated` says."
                .to_string(),
        ];
        if self.workload == SimulatedWorkload::PostMark {
            notes.push(
                "Files of different sizes that were written between two syncs are placed in an order that the library \
                 does not fix: times may differ by some turns of the disk from run to run."
                    .to_string(),
            );
        }
        let about =
            "What the engines' I/O costs on simulated disks, with a sync after every batch.".to_string();
        let bases = targets.first().map(|first| first.name.clone()).into_iter().collect();
        Ok(options.report(("simulated", about), self.options(), (targets, bases), tables, notes))
    }

    fn options(&self) -> Vec<(String, String)> {
        let number = |name: &str, value: usize| (name.to_string(), value.to_string());
        let mut options = match self.workload {
            SimulatedWorkload::Micro => {
                vec![number("files", self.files), number("directories", self.directories)]
            }
            SimulatedWorkload::PostMark => vec![
                number("transactions", self.postmark.transactions),
                number("files", self.postmark.files),
                number("directories", self.postmark.directories),
                ("seed".into(), self.postmark.seed.to_string()),
            ],
        };
        options.push(number("operations between syncs", self.batch));
        options.push(("volume bytes".into(), self.volume_bytes.to_string()));
        options
    }

    /// One engine on one disk.
    fn on(&self, mechanism: Mechanism, disk: usize) -> Result<Vec<StepUsage>> {
        let timed_device = Arc::new(TimedDevice::new(MemoryDevice::new(self.volume_bytes), model(disk)));
        let device: Arc<dyn Device> = timed_device.clone();
        mkfs(&device, mechanism.engine, Some(7))?;
        let mount = MountOptions {
            // Only explicit syncs: whatever the machine's clock or another thread decides is not repeatable.
            commit_interval: Duration::from_secs(24 * 3600),
            durability: mechanism.durability,
            metadata_cache: 1 << 30,
            data_cache: 1 << 30,
            access_times: false,
            ..MountOptions::default()
        };
        let view = View::open(device, &mount).map_err(BenchError::library("opening the volume"))?;
        let target = LibraryTarget::new(view.clone());
        let steps = match self.workload {
            SimulatedWorkload::Micro => self.micro(&target, &view, &timed_device),
            SimulatedWorkload::PostMark => self.postmark(&target, &view, &timed_device),
        };
        view.close().map_err(BenchError::library("closing the volume"))?;
        steps
    }

    fn micro(&self, target: &LibraryTarget, view: &View, device: &TimedDevice) -> Result<Vec<StepUsage>> {
        let root = target.root()?;
        let names: Vec<String> = (0..self.files).map(|i| format!("file-{i:07}")).collect();
        let dirs = self.make_directories(target, &root, self.directories)?;
        let dir = |i: usize| &dirs[i % dirs.len()];
        let data = noise(4096, 1);
        let durable = (self.files / 10).max(1);
        let mut steps = Vec::new();
        let mut step = |name, count, run: &mut dyn FnMut(usize) -> Result<()>| -> Result<()> {
            let before = device.usage();
            timed(count, |i| {
                run(i)?;
                if (i + 1) % self.batch == 0 && i + 1 < count {
                    target.sync()?;
                }
                Ok(())
            })?;
            checkpoint(view)?;
            steps.push(StepUsage { name, operations: count, usage: device.usage().since(&before) });
            Ok(())
        };
        step("create", self.files, &mut |i| target.create(dir(i), &names[i]).map(drop))?;
        step("rename", self.files, &mut |i| {
            target.rename(dir(i), &names[i], dir(i), &format!("renamed-{i:07}"))
        })?;
        step("unlink", self.files, &mut |i| target.unlink(dir(i), &format!("renamed-{i:07}")))?;
        step("create + 4 KiB", self.files, &mut |i| {
            let file = target.create(dir(i), &names[i])?;
            target.write_at(&file, 0, &data)
        })?;
        step("unlink of 4 KiB", self.files, &mut |i| target.unlink(dir(i), &names[i]))?;
        step("create + unlink", self.files, &mut |i| {
            drop(target.create(dir(i), &names[i])?);
            target.unlink(dir(i), &names[i])
        })?;
        step("create + 4 KiB + fsync", durable, &mut |i| {
            let file = target.create(dir(i), &names[i])?;
            target.write_at(&file, 0, &data)?;
            target.fsync(&file)
        })?;
        Ok(steps)
    }

    fn postmark(&self, target: &LibraryTarget, view: &View, device: &TimedDevice) -> Result<Vec<StepUsage>> {
        let options = &self.postmark;
        let plan = postmark::Plan::new(options);
        let root = target.root()?;
        let dirs = self.make_directories(target, &root, options.directories)?;
        let mut run = postmark::Run::new(options, &plan, target, &dirs);
        let mut steps = Vec::new();
        // A transaction is two steps of the plan.
        for (name, all, per_operation) in [
            ("creating PostMark's pool", &plan.pool, 1),
            ("PostMark's transactions", &plan.transactions, 2),
            ("deleting PostMark's pool", &plan.rest, 1),
        ] {
            let before = device.usage();
            let mut batches = all.chunks(self.batch * per_operation).peekable();
            while let Some(batch) = batches.next() {
                run.all(batch)?;
                if batches.peek().is_some() {
                    target.sync()?;
                }
            }
            checkpoint(view)?;
            let usage = device.usage().since(&before);
            steps.push(StepUsage { name, operations: all.len() / per_operation, usage });
        }
        Ok(steps)
    }

    fn make_directories<T: Target>(&self, target: &T, root: &T::Dir, count: usize) -> Result<Vec<T::Dir>> {
        let names: Vec<String> = (0..count.max(1)).map(|d| format!("d{d:05}")).collect();
        let dirs = target.new_dirs(root, &names)?;
        target.sync()?;
        Ok(dirs)
    }
}

/// The end of a step: what an engine has only logged so far belongs to the step that it was done in.
fn checkpoint(view: &View) -> Result<()> {
    view.checkpoint().map_err(BenchError::library("writing everything where it belongs"))
}

/// One figure of all steps, per operation: a row for each engine.
fn table(
    title: String,
    engines: &[(String, Vec<StepUsage>)],
    column: fn(&'static str) -> Column,
    of: impl Fn(&Usage) -> f64,
) -> Table {
    let columns = engines.first().map(|(_, steps)| steps.iter().map(|step| column(step.name)).collect());
    let row = |(engine, steps): &(String, Vec<StepUsage>)| {
        let cell = |step: &StepUsage| Cell::new(vec![of(&step.usage) / step.operations.max(1) as f64]);
        Row { target: engine.clone(), cells: steps.iter().map(cell).collect() }
    };
    Table { title, columns: columns.unwrap_or_default(), rows: engines.iter().map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny(workload: SimulatedWorkload) -> Simulated {
        Simulated {
            workload,
            files: 300,
            directories: 7,
            // Written back one file at a time: see the module on the order of several.
            postmark: PostMark {
                transactions: 100,
                files: 100,
                directories: 7,
                read_bias: 10,
                ..PostMark::default()
            },
            batch: if workload == SimulatedWorkload::Micro { 50 } else { 1 },
            volume_bytes: 1 << 30,
            ..Simulated::default()
        }
    }

    fn usages(simulated: &Simulated, engine: Engine, disk: usize) -> Vec<(usize, Usage)> {
        let steps = simulated.on(Mechanism::new(engine, Durability::Async), disk).unwrap();
        steps.into_iter().map(|step| (step.operations, step.usage)).collect()
    }

    /// The same parameters give the same requests and the same times, to the nanosecond, for each engine,
    /// disk and workload.
    #[test]
    fn figures_are_repeatable() {
        for workload in [SimulatedWorkload::Micro, SimulatedWorkload::PostMark] {
            let simulated = tiny(workload);
            for engine in [Engine::None, Engine::Snapshot] {
                for (disk, name) in DISKS.iter().enumerate() {
                    let (first, second) =
                        (usages(&simulated, engine, disk), usages(&simulated, engine, disk));
                    assert_eq!(first, second, "{workload:?} {engine:?} {name}");
                }
            }
        }
    }

    /// The requests to a disk do not depend on which disk it is, but for those of logs, which leave gaps
    /// where there are platters.
    #[test]
    fn requests_do_not_depend_on_the_disk() {
        let requests = |disk| {
            let steps = usages(&tiny(SimulatedWorkload::PostMark), Engine::SoftUpdates, disk);
            let only =
                |(n, u): (usize, Usage)| (n, u.reads, u.writes, u.bytes_read, u.bytes_written, u.flushes);
            steps.into_iter().map(only).collect::<Vec<_>>()
        };
        assert_eq!(requests(0), requests(1));
    }

    /// Every fsync costs a flush at least; a batch of creates costs far fewer than one each. A report has a
    /// table of each figure with a row for each engine.
    #[test]
    fn flushes_are_those_of_the_syncs() {
        let simulated = tiny(SimulatedWorkload::Micro);
        let steps = simulated.on(Mechanism::new(Engine::Snapshot, Durability::Async), 0).unwrap();
        let flushes = |name: &str| {
            let step = steps.iter().find(|step| step.name == name).unwrap();
            (step.usage.flushes as usize, step.operations)
        };
        let (durable, operations) = flushes("create + 4 KiB + fsync");
        assert!(durable >= operations, "{durable} flushes");
        let (created, operations) = flushes("create");
        assert!((6..operations / 10).contains(&created), "{created} flushes for 6 batches");
        let (rows, columns) = (simulated.engines.len(), steps.len());
        let report = simulated.run(&CompareOptions::default()).unwrap();
        assert_eq!(report.tables.len(), 8);
        assert!(report.tables.iter().all(|table| table.rows.len() == rows && table.columns.len() == columns));
    }
}
