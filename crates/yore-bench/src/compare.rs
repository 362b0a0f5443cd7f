//! Rivals side by side, in rounds that take turns.
//!
//! Round 1 runs on every file system, then round 2, and so on. Each round starts one place later. So a
//! machine that slows down or speeds up meanwhile affects all of them, and none always runs after the same
//! other. Every round leaves a file system as empty as it found it. The next round uses it again, so that all
//! age equally, or creates it anew ([`CompareOptions::fresh`]). After its turn each must put everything on
//! the medium before the next begins: nobody writes back while another is measured.

use crate::report::{Cell, Column, LeftOut, Machine, Report, Row, Table, TargetInfo, SCHEMA};
use crate::rival::{Environment, Rival, RivalKind, Serving};
use crate::{BenchError, Result};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Instant;

/// Something to measure.
pub trait Benchmark {
    /// Its name.
    fn name(&self) -> &'static str;
    /// What it does, in a sentence.
    fn about(&self) -> String;
    /// Its parameters.
    fn options(&self) -> Vec<(String, String)>;
    /// The tables it fills: their titles and columns.
    fn tables(&self) -> Vec<(String, Vec<Column>)>;
    /// Why it cannot run on that kind of file system, if it cannot.
    ///
    /// # Errors
    /// The reason.
    fn check(&self, _: RivalKind) -> Result<()> {
        Ok(())
    }
    /// One round: a sample for every column of every table.
    ///
    /// # Errors
    /// What failed.
    fn round(&self, rival: &mut Subject<'_>, round: usize) -> Result<Vec<Vec<f64>>>;
}

/// A file system whose turn it is. (Only this crate knows what a [`Benchmark`] may do with it.)
pub struct Subject<'r>(pub(crate) &'r mut Rival);

/// How to compare.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// The file systems to measure.
    pub targets: Vec<RivalKind>,
    /// Those of them to which the ratios refer.
    pub bases: Vec<RivalKind>,
    /// Rounds per file system.
    pub rounds: usize,
    /// A fresh file system for every round.
    pub fresh: bool,
    /// Bytes of each volume and image.
    pub volume_bytes: u64,
    /// Allocate the images beforehand; otherwise they are sparse.
    pub preallocate: bool,
    /// How file systems in user space get their server.
    pub serving: Serving,
    /// Options for `yore mount -o`.
    pub mount_options: String,
    /// Where volumes, images and mount points are made (in a new directory within it, removed afterwards). It
    /// decides which disk is measured.
    pub work_dir: PathBuf,
    /// From then on no file system is made: the report says which were left out for lack of time.
    pub until: Option<Instant>,
    /// Checked between steps: if set, everything is removed and the run ends.
    pub stop: Arc<AtomicBool>,
}

impl Default for CompareOptions {
    fn default() -> CompareOptions {
        CompareOptions {
            targets: vec![RivalKind::Library, RivalKind::Mount, RivalKind::MemoryFuse, RivalKind::Ext4],
            bases: vec![RivalKind::Ext4, RivalKind::MemoryFuse],
            rounds: 5,
            fresh: false,
            volume_bytes: 8 << 30,
            preallocate: false,
            serving: Serving::InProcess,
            mount_options: String::new(),
            work_dir: std::env::temp_dir(),
            until: None,
            stop: Arc::default(),
        }
    }
}

impl CompareOptions {
    pub(crate) fn check_stop(&self) -> Result<()> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(BenchError::Interrupted),
            false => Ok(()),
        }
    }

    fn check_time(&self) -> Result<()> {
        match self.until.is_some_and(|until| Instant::now() >= until) {
            true => Err(BenchError::impossible(
                "there was no time left for it",
                "give the run more, or fewer file systems",
            )),
            false => Ok(()),
        }
    }

    /// A directory for everything that the run creates, removed when dropped.
    pub(crate) fn make_work_dir(&self) -> Result<tempfile::TempDir> {
        let doing = || BenchError::system(format!("making a directory in {}", self.work_dir.display()));
        // Absolute, because programs that run in other directories get it.
        let at = self.work_dir.canonicalize().map_err(doing())?;
        tempfile::Builder::new().prefix("yore-bench-").tempdir_in(at).map_err(doing())
    }

    pub(crate) fn environment(&self, dir: PathBuf) -> Environment {
        Environment {
            volume_bytes: self.volume_bytes,
            preallocate: self.preallocate,
            serving: self.serving.clone(),
            mount_options: self.mount_options.clone(),
            dir,
        }
    }

    /// A report on something other than rounds of rivals.
    pub(crate) fn report(
        &self,
        (benchmark, about): (&str, String),
        options: Vec<(String, String)>,
        (targets, bases): (Vec<TargetInfo>, Vec<String>),
        tables: Vec<Table>,
        notes: Vec<String>,
    ) -> Report {
        Report {
            schema: SCHEMA,
            benchmark: benchmark.into(),
            about,
            options,
            machine: Machine::this(&self.work_dir),
            targets,
            bases,
            tables,
            left_out: Vec::new(),
            failed: Vec::new(),
            notes,
        }
    }

    /// The parameters that every report states.
    pub(crate) fn describe(&self) -> Vec<(String, String)> {
        let mut options = vec![
            ("rounds".to_string(), self.rounds.to_string()),
            (
                "volumes".to_string(),
                if self.fresh { "fresh for each round" } else { "used for all rounds" }.into(),
            ),
            ("image bytes".to_string(), self.volume_bytes.to_string()),
            ("images".to_string(), if self.preallocate { "preallocated" } else { "sparse" }.to_string()),
        ];
        if !self.mount_options.is_empty() {
            options.push(("mount options".into(), self.mount_options.clone()));
        }
        options
    }
}

/// One target's place in the run.
struct Lane {
    kind: RivalKind,
    rival: Option<Rival>,
    version: Option<String>,
    /// Per table, per column, one sample per round.
    samples: Vec<Vec<Vec<f64>>>,
}

/// Measures `benchmark` on all targets. A target that this machine or this user cannot have is left out. One
/// that fails during the measurement goes no further. The report mentions both.
///
/// # Errors
/// [`BenchError::Interrupted`]; nothing can be created in the work directory; a file system could not be
/// removed.
pub fn compare(benchmark: &dyn Benchmark, options: &CompareOptions) -> Result<Report> {
    let work = options.make_work_dir()?;
    let env = options.environment(work.path().to_path_buf());
    // Reports name no paths.
    let path = work.path().display().to_string();
    let without = |kind: RivalKind, error: BenchError| LeftOut {
        target: kind.name().into(),
        reason: error.to_string().replace(&path, "…"),
    };
    let (mut left_out, mut failed) = (Vec::new(), Vec::new());
    let mut lanes = Vec::new();
    for &kind in &options.targets {
        options.check_stop()?;
        let may_run = options.check_time().and_then(|()| benchmark.check(kind));
        match may_run.and_then(|()| Rival::make(kind, &env)) {
            Ok(rival) => lanes.push(Lane::new(kind, rival, benchmark)),
            Err(error) => left_out.push(without(kind, error)),
        }
    }
    for round in 0..options.rounds {
        for turn in 0..lanes.len() {
            options.check_stop()?;
            let index = (round + turn) % lanes.len();
            let lane = &mut lanes[index];
            if let Err(error) = lane.round(benchmark, options, &env, round) {
                failed.push(without(lane.kind, error));
                lane.rival = None;
            }
        }
    }
    let report = report_of(benchmark, options, &lanes, left_out, failed, work.path());
    for rival in lanes.into_iter().filter_map(|lane| lane.rival) {
        rival.end()?;
    }
    Ok(report)
}

impl Lane {
    fn new(kind: RivalKind, rival: Rival, benchmark: &dyn Benchmark) -> Lane {
        let samples = benchmark.tables().iter().map(|(_, columns)| vec![Vec::new(); columns.len()]).collect();
        Lane { kind, version: rival.version().map(str::to_string), rival: Some(rival), samples }
    }

    fn round(
        &mut self,
        benchmark: &dyn Benchmark,
        options: &CompareOptions,
        env: &Environment,
        round: usize,
    ) -> Result<()> {
        // Gone after a failure.
        let Some(mut rival) = self.rival.take() else { return Ok(()) };
        if options.fresh && round > 0 {
            rival.end()?;
            rival = Rival::make(self.kind, env)?;
        }
        let measured = benchmark.round(&mut Subject(&mut rival), round)?;
        rival.settle()?;
        self.rival = Some(rival);
        for (all, table) in self.samples.iter_mut().zip(measured) {
            for (all, sample) in all.iter_mut().zip(table) {
                all.push(sample);
            }
        }
        Ok(())
    }
}

fn report_of(
    benchmark: &dyn Benchmark,
    options: &CompareOptions,
    lanes: &[Lane],
    left_out: Vec<LeftOut>,
    failed: Vec<LeftOut>,
    dir: &std::path::Path,
) -> Report {
    let table = |(index, (title, columns)): (usize, (String, Vec<Column>))| {
        let row = |lane: &Lane| Row {
            target: lane.kind.name().into(),
            cells: lane.samples[index].iter().cloned().map(Cell::new).collect(),
        };
        Table { title, columns, rows: lanes.iter().map(row).collect() }
    };
    let info = |lane: &Lane| lane.kind.info(lane.version.clone());
    let mut notes = Vec::new();
    let served = |lane: &Lane| lane.kind.is_mount() || lane.kind == RivalKind::MemoryFuse;
    if options.serving == Serving::InProcess && lanes.iter().any(served) {
        notes.push(
            "The mounts were served by threads of the measuring process, not by one of their own.".into(),
        );
    }
    Report {
        schema: SCHEMA,
        benchmark: benchmark.name().into(),
        about: benchmark.about(),
        options: benchmark.options().into_iter().chain(options.describe()).collect(),
        machine: Machine::this(dir),
        targets: lanes.iter().map(info).collect(),
        bases: options.bases.iter().map(|kind| kind.name().to_string()).collect(),
        tables: benchmark.tables().into_iter().enumerate().map(table).collect(),
        left_out,
        failed,
        notes,
    }
}
