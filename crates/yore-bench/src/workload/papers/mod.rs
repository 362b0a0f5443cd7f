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

use crate::report::{LeftOut, Report, TargetInfo};
use crate::workload::computed::Computed;
use crate::workload::mechanism::Mechanism;
use crate::{BenchError, CompareOptions, Result, RivalKind};
use simulated::SimulatedDisks;
use std::time::Duration;
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
    /// How long Debian's program `dbench` runs for each number of clients, in seconds.
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
            dbench_seconds: 30,
        }
    }

    /// A sample of each: a tenth of the sizes.
    pub fn quick() -> Papers {
        Papers {
            scale: Scale { share: 0.1, news: 15_000 },
            simulated_bytes: 16 << 30,
            dbench_seconds: 2,
            ..Papers::full()
        }
    }

    /// The file systems that the real disk is measured on.
    pub const TARGETS: [RivalKind; 14] = [
        RivalKind::MountNone,
        RivalKind::Mount,
        RivalKind::MountJournal,
        RivalKind::MountJournalGroup,
        RivalKind::MountJournalSync,
        RivalKind::MountSoftUpdates,
        RivalKind::MountSync,
        RivalKind::Ext2,
        RivalKind::Ext3,
        RivalKind::Ext3Journal,
        RivalKind::Ext3Writeback,
        RivalKind::Ext4,
        RivalKind::Xfs,
        RivalKind::Btrfs,
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
        for experiment in &self.experiments {
            options.check_stop()?;
            let script = match experiment.script(&self.scale) {
                Ok(script) => script,
                Err(error @ BenchError::NotInstalled { .. }) => {
                    let (target, reason) = (experiment.name().to_string(), error.to_string());
                    report.left_out.push(LeftOut { target, reason });
                    continue;
                }
                Err(error) => return Err(error),
            };
            report.tables.extend(reported::tables(*experiment));
            if !self.engines.is_empty() {
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
                report.tables.extend(disks.run(*experiment, &script, options)?);
            }
            if !options.targets.is_empty() {
                progress(&format!("{} on the real disk", experiment.name()));
                for measured in measured::measure(*experiment, &script, self.dbench_seconds, options)? {
                    merge(&mut report, measured);
                }
            }
        }
        report.targets.extend(self.engines.iter().map(|mechanism| mechanism.info()));
        report.bases = self.engines.first().map(|first| first.info().name).into_iter().collect();
        report.bases.extend(options.bases.iter().map(|kind| kind.name().to_string()));
        report.notes.extend(reported::notes());
        Ok(report)
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

/// Adds the figures of one experiment to those of all.
fn merge(all: &mut Report, one: Report) {
    let is_new = |info: &TargetInfo| all.targets.iter().all(|known| known.name != info.name);
    let new: Vec<TargetInfo> = one.targets.into_iter().filter(is_new).collect();
    all.targets.extend(new);
    all.tables.extend(one.tables);
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
