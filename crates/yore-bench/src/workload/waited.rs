//! `simulated durable`: threads that create files which must be durable, on a disk whose time passes.
//!
//! How many callers share a record depends on how many wait while the disk works, so here the disk's time is
//! not only counted: each request returns when the model says that it is done. A file that is created is
//! durable when the call returns (`journal` with durability) or behind an fsync (the others). Figures are of
//! the whole, with the processor, and vary by a few in a hundred.

use super::mechanism::Mechanism;
use crate::report::{Cell, Column, Report, Row, Table};
use crate::rival::library::mkfs;
use crate::simulated::{disk, TimedDevice, DISKS};
use crate::{BenchError, CompareOptions, LibraryTarget, Result, Target};
use std::sync::Arc;
use std::time::Instant;
use yore_device::{Device, MemoryDevice};
use yore_fs::{Durability, Engine, MountOptions, View};

/// Creating files that are durable one by one, on a simulated disk.
#[derive(Clone, Debug)]
pub struct Waited {
    /// Files of each thread.
    pub files: usize,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Bytes of the volume.
    pub volume_bytes: u64,
    /// The engines, of which the first is what the others are compared with. Logs are inside.
    pub engines: Vec<Mechanism>,
}

impl Default for Waited {
    fn default() -> Waited {
        Waited {
            files: 100,
            threads: vec![1, 4, 16],
            volume_bytes: 1 << 30,
            engines: vec![
                Mechanism::new(Engine::Journal, Durability::Sync),
                Mechanism::new(Engine::Journal, Durability::Group),
                Mechanism::new(Engine::Journal, Durability::Async),
                Mechanism::new(Engine::Snapshot, Durability::Async),
            ],
        }
    }
}

impl Waited {
    /// Runs it. Of `options` only the place and the stop flag count.
    ///
    /// # Errors
    /// [`BenchError::Interrupted`]; what failed in the library.
    pub fn run(&self, options: &CompareOptions) -> Result<Report> {
        let mut rows = Vec::new();
        for &mechanism in &self.engines {
            let mut cells = Vec::new();
            for &threads in &self.threads {
                options.check_stop()?;
                cells.push(Cell::new(vec![self.on(mechanism, threads)?]));
            }
            rows.push(Row { target: mechanism.info().name, cells });
        }
        let table = Table {
            title: format!("Durable creates a second, simulated {}", DISKS[0]),
            columns: self.threads.iter().map(|count| Column::rate(format!("{count} threads"))).collect(),
            rows,
        };
        let targets: Vec<_> = self.engines.iter().map(|of| of.info()).collect();
        let bases = targets.first().map(|first| first.name.clone()).into_iter().collect();
        let about = "Threads that create files which must be durable, on a disk whose time passes.".into();
        let described = vec![
            ("files of a thread".to_string(), self.files.to_string()),
            ("volume bytes".into(), self.volume_bytes.to_string()),
        ];
        Ok(options.report(("durable", about), described, (targets, bases), vec![table], Vec::new()))
    }

    /// Creates a second.
    fn on(&self, mechanism: Mechanism, threads: usize) -> Result<f64> {
        let device: Arc<dyn Device> =
            Arc::new(TimedDevice::waiting(MemoryDevice::new(self.volume_bytes), disk(0)));
        mkfs(&device, mechanism.engine, Some(7))?;
        let durability = mechanism.durability;
        let mount = MountOptions { durability, access_times: false, ..MountOptions::default() };
        let view = View::open(device, &mount).map_err(BenchError::library("opening the volume"))?;
        let target = LibraryTarget::new(view.clone());
        let names: Vec<String> = (0..threads).map(|thread| format!("d{thread}")).collect();
        let directories = target.new_dirs(&target.root()?, &names)?;
        target.sync()?;
        let start = Instant::now();
        let outcome = std::thread::scope(|scope| {
            let one = |directory| {
                for i in 0..self.files {
                    let file = target.create(directory, &format!("f{i:05}"))?;
                    if durability == Durability::Async {
                        target.fsync(&file)?;
                    }
                }
                Ok(())
            };
            let running: Vec<_> =
                directories.iter().map(|directory| scope.spawn(move || one(directory))).collect();
            let ended = running
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            ended.fold(Ok(()), Result::and)
        });
        let seconds = start.elapsed().as_secs_f64();
        drop(target);
        view.close().map_err(BenchError::library("closing the volume"))?;
        outcome.map(|()| (threads * self.files) as f64 / seconds.max(1e-9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk's time passes: between two records of one thread at least the gap between them goes by, which
    /// takes half a millisecond, and every engine has a row.
    #[test]
    fn the_disk_sets_the_pace() {
        let small = Waited { files: 5, threads: vec![1, 2], ..Waited::default() };
        let report = small.run(&CompareOptions::default()).unwrap();
        let [table] = &report.tables[..] else { panic!("one table") };
        assert_eq!(table.rows.len(), small.engines.len());
        let alone = table.rows[0].cells[0].samples[0];
        assert!(alone > 1.0 && alone < 2000.0, "{alone} a second");
    }
}
