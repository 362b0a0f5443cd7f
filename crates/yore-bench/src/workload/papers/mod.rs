//! `papers`: the experiments of the papers on how metadata is kept consistent, over all engines.
//!
//! Each experiment is drawn as a list of calls before it runs (`script`), and runs twice: in the library on
//! disks whose time is computed (`simulated`), where figures are exact, and on the real disk beside other
//! file systems (`measured`). The report has what the papers found beside it (`reported`).

mod build;
mod curves;
mod dbench;
mod experiment;
mod many;
mod measured;
mod mixes;
mod news;
mod reported;
mod scale;
mod shell;
mod simulated;
mod streams;

pub use experiment::Experiment;
pub use scale::Scale;

use crate::report::{LeftOut, Report, Table, TargetInfo};
use crate::workload::computed::Computed;
use crate::workload::mechanism::Mechanism;
use crate::{BenchError, CompareOptions, Result, RivalKind};
use simulated::SimulatedDisks;
use std::time::{Duration, Instant};
use yore_fs::{Durability, Engine};

/// The papers' experiments.
#[derive(Clone, Debug, PartialEq)]
pub struct Papers {
    /// Which of them.
    pub experiments: Vec<Experiment>,
    /// How large they are.
    pub scale: Scale,
    /// The engines on simulated disks, of which the first is what the others are compared with. None:
    /// nothing is simulated.
    pub engines: Vec<Mechanism>,
    /// What a call takes on simulated disks besides the disk's time. It decides how much is done between two
    /// commits.
    pub call: Duration,
    /// Bytes of a volume on simulated disks.
    pub simulated_bytes: u64,
    /// How long all of it may take, about: what there is no time for is left out, the last of the file
    /// systems first.
    pub within: Option<Duration>,
    /// For which numbers of clients Debian's program `dbench` runs.
    pub dbench_clients: Vec<u32>,
    /// How long it runs for each, in seconds.
    pub dbench_seconds: u32,
}

impl Papers {
    /// As large as in the papers.
    pub fn full() -> Papers {
        Papers {
            experiments: Experiment::ALL.to_vec(),
            scale: Scale { share: 1.0, news: 520_000 },
            engines: vec![
                Mechanism::new(Engine::None, Durability::Async),
                Mechanism::new(Engine::Snapshot, Durability::Async),
                Mechanism::new(Engine::Journal, Durability::Async),
                Mechanism::new(Engine::Journal, Durability::Group),
                Mechanism::new(Engine::Journal, Durability::Sync),
                Mechanism { own_log: true, ..Mechanism::new(Engine::Journal, Durability::Async) },
                Mechanism { own_log: true, ..Mechanism::new(Engine::Journal, Durability::Group) },
                Mechanism { own_log: true, ..Mechanism::new(Engine::Journal, Durability::Sync) },
                Mechanism::new(Engine::SoftUpdates, Durability::Async),
                Mechanism::new(Engine::Sync, Durability::Async),
            ],
            call: Duration::from_micros(10),
            simulated_bytes: 64 << 30,
            within: None,
            dbench_clients: vec![1, 4, 8, 16, 32],
            dbench_seconds: 30,
        }
    }

    /// A sample of each: a twentieth of the sizes, in less than ten minutes.
    pub fn quick() -> Papers {
        Papers {
            scale: Scale { share: 0.05, news: 5_000 },
            simulated_bytes: 16 << 30,
            within: Some(Duration::from_secs(9 * 60)),
            dbench_clients: vec![1, 8, 32],
            dbench_seconds: 2,
            ..Papers::full()
        }
    }

    /// The file systems that the real disk is measured on: those that may be left out for lack of time last.
    pub const TARGETS: [RivalKind; 14] = [
        RivalKind::MountNone,
        RivalKind::Mount,
        RivalKind::MountJournal,
        RivalKind::MountSoftUpdates,
        RivalKind::Ext3,
        RivalKind::Ext4,
        RivalKind::Xfs,
        RivalKind::Btrfs,
        RivalKind::Ext2,
        RivalKind::Ext3Journal,
        RivalKind::Ext3Writeback,
        RivalKind::MountJournalGroup,
        RivalKind::MountJournalSync,
        RivalKind::MountSync,
    ];

    /// Runs them. `progress` is told what begins.
    ///
    /// # Errors
    /// [`BenchError::Interrupted`]; what failed in the library on a simulated disk.
    pub fn run(&self, options: &CompareOptions, progress: &dyn Fn(&str)) -> Result<Report> {
        let about = "The papers' experiments over all engines: on simulated disks, and on the real one.";
        let mut report = options.report(
            ("papers", about.into()),
            self.options(options),
            (Vec::new(), Vec::new()),
            Vec::new(),
            Vec::new(),
        );
        let start = Instant::now();
        let until = self.within.map(|within| start + within);
        let mut scripts = Vec::new();
        for experiment in &self.experiments {
            options.check_stop()?;
            match experiment.script(&self.scale) {
                Ok(script) => scripts.push((*experiment, script, reported::tables(*experiment))),
                Err(error @ BenchError::NotInstalled { .. }) => {
                    let (target, reason) = (experiment.name().to_string(), error.to_string());
                    report.left_out.push(LeftOut { target, reason });
                }
                Err(error) => return Err(error),
            }
        }
        if !self.engines.is_empty() {
            for (experiment, script, tables) in &mut scripts {
                progress(&format!("{} on simulated disks", experiment.name()));
                let disks = SimulatedDisks {
                    engines: &self.engines,
                    computed: Computed {
                        call: self.call,
                        bytes: self.simulated_bytes,
                        caches: experiment.caches(&self.scale),
                        scattered: false,
                    },
                };
                tables.extend(disks.run(*experiment, script, options)?);
            }
        }
        // With little time one file system goes through all experiments before the next: so what is missing
        // in the end is whole file systems, and all others can be compared.
        let turns: Vec<&[RivalKind]> = match until {
            Some(_) => options.targets.chunks(1).collect(),
            None if options.targets.is_empty() => Vec::new(),
            None => vec![&options.targets],
        };
        for targets in turns {
            for (experiment, script, tables) in &mut scripts {
                progress(&format!("{} on the real disk", experiment.name()));
                let options = CompareOptions { targets: targets.to_vec(), until, ..options.clone() };
                for mut measured in measured::measure(*experiment, script, self.dbench(), &options)? {
                    add_rows(tables, std::mem::take(&mut measured.tables));
                    merge(&mut report, measured);
                }
            }
        }
        report.tables.extend(scripts.into_iter().flat_map(|(.., tables)| tables));
        report.targets.extend(self.engines.iter().map(|mechanism| mechanism.info()));
        report.bases = self.engines.first().map(|first| first.info().name).into_iter().collect();
        report.bases.extend(options.bases.iter().map(|kind| kind.name().to_string()));
        report.notes.extend(reported::notes());
        Ok(report)
    }

    fn dbench(&self) -> measured::Dbench<'_> {
        measured::Dbench { clients: &self.dbench_clients, seconds: self.dbench_seconds }
    }

    fn options(&self, options: &CompareOptions) -> Vec<(String, String)> {
        let mut described = vec![
            ("share of the papers' sizes".to_string(), self.scale.share.to_string()),
            ("files of netnews".into(), self.scale.news.to_string()),
        ];
        if !self.engines.is_empty() {
            described.push(("a call on simulated disks".into(), format!("{:?}", self.call)));
        }
        if !options.targets.is_empty() {
            described.extend(options.describe());
        }
        described
    }
}

/// Adds tables to those of an experiment: rows, where it has the table.
fn add_rows(tables: &mut Vec<Table>, new: Vec<Table>) {
    for table in new {
        match tables.iter_mut().find(|known| known.title == table.title) {
            Some(known) => known.rows.extend(table.rows),
            None => tables.push(table),
        }
    }
}

/// Adds what else the report of one experiment has to that of all.
fn merge(all: &mut Report, one: Report) {
    let is_new = |info: &TargetInfo| all.targets.iter().all(|known| known.name != info.name);
    let new: Vec<TargetInfo> = one.targets.into_iter().filter(is_new).collect();
    all.targets.extend(new);
    for (known, found) in [(&mut all.left_out, one.left_out), (&mut all.failed, one.failed)] {
        for left_out in found {
            if !known.contains(&left_out) {
                known.push(left_out);
            }
        }
    }
    for note in one.notes {
        if !all.notes.contains(&note) {
            all.notes.push(note);
        }
    }
}
