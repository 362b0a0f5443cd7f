//! Finds what changed between two snapshots: a few files among many, against as many files that have all
//! changed.
//!
//! The same files were also changed before the first snapshot and after the second. The differences are
//! computed once before the clock starts, so that everything they read is in memory.

use super::run::{medians, Goal, Line, Run};
use super::volume::Volume;
use crate::report::Unit;
use crate::workload::steps::{check, noise, timed};
use crate::{BenchError, Result, Target as _};
use std::ops::ControlFlow;
use yore_fs::EventNo;

/// Turns in a round, and comparisons in a turn.
const TURNS: usize = 10;
const COMPARISONS: usize = 5;
/// The longest that a comparison should last, in seconds.
const GOAL: f64 = 50e-3;

/// A volume with files, and two snapshots between which some of them changed.
struct Changed {
    volume: Volume,
    events: [EventNo; 2],
    changes: usize,
}

impl Changed {
    fn new(run: &Run<'_>, name: &str, files: usize, changes: usize) -> Result<Changed> {
        let volume = Volume::make(run.options, run.dir, name)?.with_files(files)?;
        let data = noise(4096, 1);
        let change = || -> Result<()> {
            for i in (0..files).step_by((files / changes).max(1)).take(changes) {
                volume.overwrite(i, &data)?;
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
        Ok(Changed { volume, events: [from, to], changes })
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
        let expected = format_args!("{} changed files", self.changes);
        check(found == self.changes, format_args!("{found} differences"), expected)
    }
}

pub(super) fn measure(run: &Run<'_>) -> Result<Vec<Line>> {
    let files = run.history.files.max(1);
    let changes = run.history.changes.clamp(1, files);
    let measure = format!("differences of two snapshots, {changes} of {files} files / of {changes}, warm");
    let mut line = Line::new(measure, Unit::Seconds, Goal::Most(GOAL));
    let sides = [Changed::new(run, "many", files, changes)?, Changed::new(run, "few", changes, changes)?];
    for round in run.rounds() {
        let round = round?;
        sides.iter().try_for_each(Changed::compare)?;
        line.push(medians(round, TURNS, |side| {
            Ok(timed(COMPARISONS, |_| sides[side].compare())? / COMPARISONS as f64)
        })?);
    }
    for side in sides {
        side.volume.end()?;
    }
    Ok(vec![line])
}
