//! Checks of a volume with a past, on the real disk.
//!
//! The tree of `whole` ages in levels, with ten snapshots in each (`ageing`). Before that, and behind each
//! level, the host's caches are dropped and `yore check` runs on the image. As there is more metadata at each
//! level, a row compares what a block of it takes with what it takes without a past.

use super::checker::{peak_memory, yore, Told, Used};
use super::run::{Found, Run};
use super::slow::{at_each_level, name};
use crate::report::{Cell, Column, Row, Table, Unit};
use crate::rival::{Rival, RivalKind};
use crate::workload::lines::{Goal, Line};
use crate::Result;

/// The figures of a check, in the order of the columns.
const SECONDS: usize = 0;
const METADATA: usize = 3;
const FIGURES: usize = 5;

/// What checks of a level took: the samples of each figure.
type Level = [Vec<f64>; FIGURES];

pub(super) fn measure(run: &Run<'_>) -> Result<Found> {
    let script = run.checks.tree().aged(run.checks.levels);
    let directory = run.directory("past")?;
    let mut rival = Rival::make(RivalKind::Library, &run.options.environment(directory.path.clone()))?;
    let mut levels = Vec::new();
    at_each_level(run, &mut rival, &script, true, &mut |rival| {
        levels.push(checked(run, rival)?);
        Ok(())
    })?;
    rival.end()?;
    Ok(Found { lines: lines(&levels), tables: vec![table(&levels)], ..Found::default() })
}

/// Checks the volume as it is, once for each round.
fn checked(run: &Run<'_>, rival: &mut Rival) -> Result<Level> {
    let serving = rival.serving().clone();
    let mut level = Level::default();
    rival.with_image(|image| {
        for round in run.rounds() {
            round?;
            run.chill()?;
            let used = Used::by(yore(&serving, &[], image)?)?;
            run.chill()?;
            let told = Told::by(yore(&serving, &["--progress-fd", "1", "--json"], image)?)?;
            let memory = peak_memory(yore(&serving, &[], image)?)?;
            let figures = [used.seconds, used.processor, memory, told.metadata, told.off];
            level.iter_mut().zip(figures).for_each(|(samples, figure)| samples.push(figure));
        }
        Ok(())
    })?;
    Ok(level)
}

/// What a block of metadata takes at each level, and what it takes without a past.
fn lines(levels: &[Level]) -> Vec<Line> {
    let each = |level: &Level| -> Vec<f64> {
        level[SECONDS].iter().zip(&level[METADATA]).map(|(s, bytes)| s / (bytes / 4096.0)).collect()
    };
    let fresh = levels.first().map(each).unwrap_or_default();
    let line = |(i, level): (usize, &Level)| {
        let what = format!("check with a past, {}, each block of metadata / without one", name(i));
        let mut line = Line::new(what, Unit::Seconds, Goal::None);
        line.samples = [each(level), fresh.clone()];
        line
    };
    levels.iter().enumerate().skip(1).map(line).collect()
}

fn table(levels: &[Level]) -> Table {
    let columns = vec![
        Column::time("check"),
        Column::fact("processor", Unit::Seconds),
        Column::bytes("memory"),
        Column::fact("metadata", Unit::Bytes),
        Column::fact("end said, off by at most, % (0: none said)", Unit::Count),
    ];
    let row = |(i, level): (usize, &Level)| Row {
        target: if i == 0 { "without a past".into() } else { name(i) },
        cells: level.iter().map(|samples| Cell::new(samples.clone())).collect(),
    };
    let title = "A volume with a past".into();
    Table { title, columns, rows: levels.iter().enumerate().map(row).collect() }
}
