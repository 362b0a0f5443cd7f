//! Opens and reads a small file as it was a number of versions ago, against as it is now.
//!
//! Every version was written once, a snapshot was taken of it, and it contains its number, which is checked.

use super::run::{medians, Goal, Line, Run};
use super::volume::Volume;
use crate::report::Unit;
use crate::target::LibraryTarget;
use crate::workload::steps::{check, timed};
use crate::{BenchError, Result, Target as _};
use yore_fs::{EventNo, View};

/// Bytes of the file.
pub(super) const BYTES: usize = 4096;
/// How far back.
pub(super) const DISTANCES: [usize; 5] = [1, 10, 100, 1000, 10_000];
/// Turns in a round.
const TURNS: usize = 20;
pub(super) const NAME: &str = "file";

pub(super) fn measure(run: &Run<'_>) -> Result<Vec<Line>> {
    let volume = Volume::make(run.options, run.dir, "back")?;
    let events =
        write_versions(&volume.target, run.history.snapshots.max(1), &mut || volume.snapshot(false))?;
    let line = |back: usize| {
        let versions = if back == 1 { "version" } else { "versions" };
        let measure = format!("opening and reading 4 KiB, {back} {versions} back / live");
        (back, Line::new(measure, Unit::Seconds, Goal::Ratio(0.9)))
    };
    let mut lines: Vec<(usize, Line)> =
        DISTANCES.into_iter().filter(|back| *back <= events.len()).map(line).collect();
    for round in run.rounds() {
        let round = round?;
        for (back, line) in &mut lines {
            let version = events.len() - *back;
            let view = volume.target.view();
            // As in many programs' calls, each call names its event anew.
            let then = || -> Result<()> { read(&view.as_of(events[version]), version) };
            let now = || -> Result<()> { read(view, events.len()) };
            // Warm.
            then().and_then(|()| now())?;
            let count = run.history.reads.div_ceil(TURNS);
            line.push(medians(round, TURNS, |side| {
                let seconds = match side {
                    0 => timed(count, |_| then())?,
                    _ => timed(count, |_| now())?,
                };
                Ok(seconds / count as f64)
            })?);
        }
    }
    volume.end()?;
    Ok(lines.into_iter().map(|(_, line)| line).collect())
}

/// Versions 0, 1, …, each with a snapshot, and one more without.
pub(super) fn write_versions(
    target: &LibraryTarget,
    count: usize,
    snapshot: &mut dyn FnMut() -> Result<EventNo>,
) -> Result<Vec<EventNo>> {
    let file = target.create(&target.root()?, NAME)?;
    let mut data = vec![0x59; BYTES];
    let mut events = Vec::with_capacity(count);
    for version in 0..=count {
        data[..8].copy_from_slice(&(version as u64).to_le_bytes());
        target.write_at(&file, 0, &data)?;
        if version < count {
            events.push(snapshot()?);
        }
    }
    target.sync()?;
    Ok(events)
}

/// Opens the file and reads it; it must have this version's content.
fn read(view: &View, version: usize) -> Result<()> {
    let mut buffer = [0; BYTES];
    let node =
        view.lookup(view.root(), NAME.as_bytes()).map_err(BenchError::library("looking up a version"))?;
    let count = node.read(0, &mut buffer).map_err(BenchError::library("reading a version"))?;
    let is_right = count == BYTES && buffer[..8] == (version as u64).to_le_bytes();
    check(is_right, format_args!("{count} bytes of another version"), format_args!("version {version}"))
}
