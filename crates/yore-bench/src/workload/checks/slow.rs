//! Checks of whole volumes on a slow disk, while they age.
//!
//! The disk is the model of one that turns 7,200 times a minute. Yore's check reads an image through it, and
//! waits as long as the disk would take, so that its threads and its choice of requests are as they are
//! there. What e2fsck reads of an image is recorded by strace(1) and played into the same model; what it
//! reads twice is read once. Figures are the disk's time, of both without the processor's.
//!
//! All volumes get the same tree and age by the same calls (`ageing`). Of Yore's there are two: one gets ten
//! snapshots at each level, which no other has, and one has no past. Each is checked as it is, and as it
//! would be after a while in which nobody asks for anything, when its metadata is laid together. That is done
//! beside the image, so the volume ages on as if it were never idle.

use super::ageing::STEPS;
use super::checker::e2fsck;
use super::recorded::{check_can_record, play, reads};
use super::run::{Found, Run};
use crate::report::{Cell, Column, LeftOut, Row, Table, Unit};
use crate::rival::{OnTarget, Rival, RivalKind};
use crate::simulated::{HardDisk, Model as _, Range, TimedDevice, Usage};
use crate::workload::computed::seconds;
use crate::workload::lines::{Goal, Line};
use crate::workload::player::Player;
use crate::workload::script::{Phase, Script};
use crate::workload::steps::check as check_that;
use crate::{BenchError, Result, Target};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use yore_check::CheckOptions;
use yore_device::{Device, FileDevice, OpenOptions, Overlay};
use yore_fs::{MountOptions, NewSnapshot, View};

/// How many times as fast as e2fsck on ext3.
const GOAL: f64 = 10.0;
/// How much of its speed a check keeps while the volume ages.
const CONSTANT: f64 = 0.95;

/// What is checked.
struct Subject {
    kind: RivalKind,
    name: &'static str,
    /// Whether it gets them while it ages.
    snapshots: bool,
}

const SUBJECTS: [Subject; 4] = [
    Subject { kind: RivalKind::Library, name: "library", snapshots: true },
    Subject { kind: RivalKind::Library, name: "library without snapshots", snapshots: false },
    Subject { kind: RivalKind::Ext3, name: "ext3", snapshots: false },
    Subject { kind: RivalKind::Ext4, name: "ext4", snapshots: false },
];

/// A subject, and its levels from the freshest.
struct Measured {
    kind: RivalKind,
    name: String,
    levels: Vec<Level>,
    /// What checks took when it was fresh and nobody had laid anything together.
    fresh: Vec<f64>,
}

/// What checks of one volume took.
#[derive(Default)]
struct Level {
    /// One for each round.
    usages: Vec<Usage>,
    /// Bytes of metadata that the volume has; of others what was read.
    metadata: f64,
}

pub(super) fn measure(run: &Run<'_>) -> Result<Found> {
    let script = run.checks.tree().aged(run.checks.levels);
    let mut found = Found::default();
    let mut measured = Vec::new();
    for subject in SUBJECTS.iter().filter(|subject| run.options.targets.contains(&subject.kind)) {
        match on(run, subject, &script) {
            Ok((as_is, idle)) => {
                let (kind, fresh) = (subject.kind, times(&as_is[0]));
                let of = |name: String, levels| Measured { kind, name, levels, fresh: fresh.clone() };
                measured.push(of(subject.name.into(), as_is));
                if !idle.is_empty() {
                    measured.push(of(format!("{}, then idle", subject.name), idle));
                }
            }
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            Err(error) => found
                .left_out
                .push(LeftOut { target: format!("slow on {}", subject.name), reason: error.to_string() }),
        }
    }
    found.lines = lines(&measured);
    found.tables = tables(&measured);
    Ok(found)
}

/// The levels as they are; and those of ours after a while in which nobody asks for anything.
fn on(run: &Run<'_>, subject: &Subject, script: &Script) -> Result<(Vec<Level>, Vec<Level>)> {
    let kind = subject.kind;
    if !kind.is_ours() {
        check_can_record()?;
    }
    let directory = run.directory(&format!("slow-{}", kind.name()))?;
    let mut rival = Rival::make(kind, &run.options.environment(directory.path.clone()))?;
    let (mut as_is, mut idle) = (Vec::new(), Vec::new());
    let mut check = |rival: &mut Rival| {
        rival.with_image(|image| {
            as_is.push(check(run, kind, image, &directory.path)?);
            if kind.is_ours() {
                idle.push(check_idle(run, image)?);
            }
            Ok(())
        })
    };
    at_each_level(run, &mut rival, script, subject.snapshots, &mut check)?;
    rival.end()?;
    Ok((as_is, idle))
}

/// Has a volume grow and age by the levels of a script, with a snapshot of it all after each step if there
/// are to be `snapshots`. Calls `check` when it is fresh, and behind each level.
pub(super) fn at_each_level(
    run: &Run<'_>,
    rival: &mut Rival,
    script: &Script,
    snapshots: bool,
    check: &mut dyn FnMut(&mut Rival) -> Result<()>,
) -> Result<()> {
    let (grown, aged) = script.phases.split_at(script.phases.len() - run.checks.levels * STEPS);
    for phase in grown {
        rival.measure(Part { script, phase })?;
    }
    check(rival)?;
    for level in aged.chunks(STEPS) {
        for phase in level {
            run.options.check_stop()?;
            rival.measure(Part { script, phase })?;
            if let Some(view) = rival.view().filter(|_| snapshots) {
                let snapshot = view.take_snapshot(view.root(), &NewSnapshot::default());
                snapshot.map_err(BenchError::library("taking a snapshot"))?;
            }
        }
        check(rival)?;
    }
    Ok(())
}

/// A phase, and then everything on the medium.
struct Part<'s> {
    script: &'s Script,
    phase: &'s Phase,
}

impl OnTarget for Part<'_> {
    type Output = ();

    fn on<T: Target>(self, target: &T) -> Result<()> {
        Player::new(self.script, target).with_threads(self.phase)?;
        target.sync()
    }
}

fn check(run: &Run<'_>, kind: RivalKind, image: &Path, directory: &Path) -> Result<Level> {
    let rounds = run.options.rounds;
    if !kind.is_ours() {
        let usage = play(&reads(&e2fsck(image), image, directory)?, &mut HardDisk::new());
        // Each time the same.
        return Ok(Level { usages: vec![usage; rounds], metadata: usage.bytes_read as f64 });
    }
    let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
    check_ours(run, &|| Ok(Arc::new(FileDevice::open(image, read_only)?)))
}

/// The check of a volume of ours whose metadata is laid together first, as it is when nobody asks for
/// anything. The image stays as it is.
fn check_idle(run: &Run<'_>, image: &Path) -> Result<Level> {
    let file = FileDevice::open(image, OpenOptions::default())?;
    let device: Arc<dyn Device> = Arc::new(Overlay::new(file));
    let options = MountOptions { access_times: false, defragment_after: None, ..MountOptions::default() };
    let view = View::open(device.clone(), &options).map_err(BenchError::library("opening the volume"))?;
    view.lay_metadata_together(&mut || ControlFlow::Continue(()))
        .map_err(BenchError::library("laying metadata together"))?;
    view.close().map_err(BenchError::library("closing the volume"))?;
    drop(view);
    check_ours(run, &|| Ok(device.clone()))
}

fn check_ours(run: &Run<'_>, open: &dyn Fn() -> Result<Arc<dyn Device>>) -> Result<Level> {
    let mut level = Level::default();
    for round in run.rounds() {
        round?;
        let disk = TimedDevice::waiting(open()?, Box::new(HardDisk::new()));
        let report = yore_check::check(&disk, &CheckOptions::default()).map_err(BenchError::checking)?;
        check_that(
            report.is_clean(),
            format_args!("{} findings", report.findings_count),
            format_args!("a volume in which nothing is wrong"),
        )?;
        level.usages.push(disk.usage());
        level.metadata = 4096.0 * (report.counts.metadata_blocks + report.counts.zones) as f64;
    }
    Ok(level)
}

fn times(level: &Level) -> Vec<f64> {
    level.usages.iter().map(seconds).collect()
}

/// What a level is called.
pub(super) fn name(level: usize) -> String {
    match level {
        0 => "fresh".into(),
        1 => "aged by one level".into(),
        level => format!("aged by {level} levels"),
    }
}

fn lines(measured: &[Measured]) -> Vec<Line> {
    let (ours, others): (Vec<_>, Vec<_>) = measured.iter().partition(|subject| subject.kind.is_ours());
    let gives = sequential();
    let mut lines = Vec::new();
    for Measured { name: mine, levels, fresh, .. } in &ours {
        for Measured { kind, name: theirs, levels: their_levels, .. } in &others {
            let goal = if *kind == RivalKind::Ext3 { Goal::Ratio(GOAL) } else { Goal::None };
            for (level, (our_level, their_level)) in levels.iter().zip(their_levels).enumerate() {
                let name = format!("check on a slow disk, {}, {mine} / e2fsck on {theirs}", name(level));
                let mut line = Line::new(name, Unit::Seconds, goal);
                line.samples = [times(our_level), times(their_level)];
                lines.push(line);
            }
        }
        for (level, aged) in levels.iter().enumerate().skip(1) {
            let name = format!("check on a slow disk, {mine}, {} / fresh", name(level));
            let mut line = Line::new(name, Unit::Seconds, Goal::Ratio(CONSTANT));
            line.samples = [times(aged), fresh.clone()];
            lines.push(line);
        }
        for (level, aged) in levels.iter().enumerate() {
            let name =
                format!("metadata in use for that time, {mine}, {} / what the slow disk gives", name(level));
            let mut line = Line::new(name, Unit::BytesPerSecond, Goal::None);
            for seconds in times(aged) {
                line.push([aged.metadata / seconds, gives]);
            }
            lines.push(line);
        }
    }
    lines
}

/// Bytes a second that the disk gives to one reader who reads what follows.
fn sequential() -> f64 {
    let mut disk = HardDisk::new();
    for i in 0..256 {
        disk.read(&[Range { offset: i << 20, len: 1 << 20 }]);
    }
    disk.usage().bytes_read as f64 / seconds(&disk.usage())
}

/// A table of each kind of figure: a column for each level.
fn tables(measured: &[Measured]) -> Vec<Table> {
    let levels = measured.first().map_or(0, |subject| subject.levels.len());
    let table = |what: &str, column: fn(String) -> Column, of: &dyn Fn(&Level) -> Vec<f64>| {
        let row = |subject: &Measured| Row {
            target: subject.name.clone(),
            cells: subject.levels.iter().map(|level| Cell::new(of(level))).collect(),
        };
        Table {
            title: format!("A check on a slow disk: {what}"),
            columns: (0..levels).map(name).map(column).collect(),
            rows: measured.iter().map(row).collect(),
        }
    };
    let of = |figure: fn(&Usage) -> f64| move |level: &Level| level.usages.iter().map(figure).collect();
    vec![
        table("time", Column::time, &of(seconds)),
        table("metadata in use; of others what was read", Column::bytes, &|level| vec![level.metadata]),
        table("bytes read", Column::bytes, &of(|usage| usage.bytes_read as f64)),
        table("requests", Column::count, &of(|usage| usage.reads as f64)),
        table("seeks", Column::count, &of(|usage| usage.seeks as f64)),
        table("bytes a second", Column::throughput, &of(|usage| usage.bytes_read as f64 / seconds(usage))),
    ]
}
