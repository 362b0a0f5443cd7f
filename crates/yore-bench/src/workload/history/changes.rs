//! Finds what changed between two snapshots: a few files among many, against as many files that have all
//! changed.
//!
//! The same files were also changed before the first snapshot and after the second. The differences are
//! computed once before the clock starts, so that everything they read is in memory.

use super::run::{turns, Goal, Line, Run};
use super::volume::Volume;
use crate::report::Unit;
use crate::stats::median;
use crate::workload::steps::{noise, timed};
use crate::{BenchError, Result, Target as _};
use std::ops::ControlFlow;
use yore_fs::{EventNo, Node};

/// Files per directory.
const PER_DIRECTORY: usize = 1000;
/// Turns in a round, and comparisons in a turn.
const TURNS: usize = 10;
const COMPARISONS: usize = 5;
/// The longest that a comparison should last, in seconds.
const GOAL: f64 = 50e-3;

/// A volume with files, and two snapshots between which some of them changed.
struct Changed {
    volume: Volume,
    dirs: Vec<Node>,
    events: [EventNo; 2],
    changes: usize,
}

impl Changed {
    fn new(run: &Run<'_>, name: &str, files: usize, changes: usize) -> Result<Changed> {
        let volume = Volume::make(run.options, run.dir, name)?;
        let dirs = volume.directories(files.div_ceil(PER_DIRECTORY))?;
        for i in 0..files {
            volume.target.create(&dirs[i / PER_DIRECTORY], &i.to_string())?;
        }
        volume.target.sync()?;
        let data = noise(4096, 1);
        let change = || -> Result<()> {
            for i in (0..files).step_by((files / changes).max(1)).take(changes) {
                let file = volume.target.open(&dirs[i / PER_DIRECTORY], &i.to_string())?;
                volume.target.write_at(&file, 0, &data)?;
            }
            Ok(())
        };
        volume.snapshot(false)?;
        change()?;
        let from = volume.snapshot(false)?;
        change()?;
        let to = volume.snapshot(false)?;
        change()?;
        volume.target.sync()?;
        Ok(Changed { volume, dirs, events: [from, to], changes })
    }

    /// Compares, and counts the results.
    fn compare(&self) -> Result<()> {
        let (view, [from, to]) = (self.volume.target.view(), self.events);
        let mut found = 0;
        view.diff(view.root(), Some(from), Some(to), &mut |_| {
            found += 1;
            ControlFlow::Continue(())
        })
        .map_err(BenchError::library("comparing two snapshots"))?;
        match found == self.changes {
            true => Ok(()),
            false => Err(BenchError::Wrong {
                found: format!("{found} differences"),
                expected: format!("{} changed files", self.changes),
            }),
        }
    }

    fn end(self) -> Result<()> {
        drop(self.dirs);
        self.volume.end()
    }
}

pub(super) fn measure(run: &Run<'_>) -> Result<Vec<Line>> {
    let files = run.history.files.max(1);
    let changes = run.history.changes.clamp(1, files);
    let measure = format!("differences of two snapshots, {changes} of {files} files / of {changes}, warm");
    let mut line = Line::new(measure, Unit::Seconds, Goal::Seconds(GOAL));
    let sides = [Changed::new(run, "many", files, changes)?, Changed::new(run, "few", changes, changes)?];
    for round in run.rounds() {
        let round = round?;
        let mut times: [Vec<f64>; 2] = Default::default();
        sides.iter().try_for_each(Changed::compare)?;
        for side in (0..TURNS).flat_map(|turn| turns(round + turn)) {
            let seconds = timed(COMPARISONS, |_| sides[side].compare())?;
            times[side].push(seconds / COMPARISONS as f64);
        }
        for (samples, times) in line.samples.iter_mut().zip(&times) {
            samples.push(median(times));
        }
    }
    for side in sides {
        side.end()?;
    }
    Ok(vec![line])
}
