//! Taking snapshots: of one file and of many; durably, beside an fsync.

use super::run::{turns, Goal, Line, Run};
use super::volume::Volume;
use crate::report::Unit;
use crate::stats::percentile;
use crate::workload::steps::noise;
use crate::{Result, Target};
use std::time::Instant;
use yore_fs::Node;

/// The distance from one changed file to the next: it leads to another directory, and does not divide the
/// number of files.
const LEAP: usize = 7919;
/// Turns that both volumes take in a round.
const TURNS: usize = 20;
/// The longest that taking a snapshot should last, in seconds.
const GOAL: f64 = 20e-6;

/// A volume with files, and how many were changed on it.
struct Filled {
    volume: Volume,
    files: usize,
    changed: usize,
    data: Vec<u8>,
}

impl Filled {
    fn new(run: &Run<'_>, name: &str, files: usize) -> Result<Filled> {
        let volume = Volume::make(run.options, run.dir, name)?.with_files(files)?;
        Ok(Filled { volume, files, changed: 0, data: noise(4096, 1) })
    }

    /// Overwrites 4 KiB of the next file, which it returns.
    fn change(&mut self) -> Result<Node> {
        let file = self.changed * LEAP % self.files;
        self.changed += 1;
        self.volume.overwrite(file, &self.data)
    }
}

/// Nanoseconds that the action takes.
fn nanoseconds(action: impl FnOnce() -> Result<()>) -> Result<u64> {
    let start = Instant::now();
    action()?;
    Ok(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

pub(super) fn measure(run: &Run<'_>) -> Result<Vec<Line>> {
    let (files, takes) = (run.history.files, run.history.takes);
    let time = |measure: String, goal: Goal| Line::new(measure, Unit::Seconds, goal);
    let of_files = |quantile: &str| format!("taking a snapshot of {files} files / of one, {quantile}");
    let mut middle = time(of_files("median"), Goal::Most(GOAL));
    let mut tail = time(of_files("p99"), Goal::None);
    let mut durable =
        time("taking one durably with nothing dirty / fsync of a file of 4 KiB".into(), Goal::None);
    let mut volumes = [Filled::new(run, "many", files)?, Filled::new(run, "one", 1)?];
    for round in run.rounds() {
        let round = round?;
        let mut times: [Vec<u64>; 2] = Default::default();
        for turn in 0..TURNS {
            for side in turns(round + turn) {
                for _ in 0..takes.div_ceil(TURNS) {
                    volumes[side].change()?;
                    times[side].push(nanoseconds(|| volumes[side].volume.snapshot(false).map(drop))?);
                }
            }
        }
        for (side, times) in times.iter_mut().enumerate() {
            times.sort_unstable();
            middle.samples[side].push(percentile(times, 0.5) as f64 / 1e9);
            tail.samples[side].push(percentile(times, 0.99) as f64 / 1e9);
        }
        for (side, time) in durably(&mut volumes[0], takes.div_ceil(20))?.into_iter().enumerate() {
            durable.samples[side].push(time);
        }
    }
    for filled in volumes {
        filled.volume.end()?;
    }
    Ok(vec![middle, tail, durable])
}

/// The median seconds of a durable snapshot when nothing is dirty, and of an fsync of a file with 4 KiB of
/// dirty data.
fn durably(filled: &mut Filled, count: usize) -> Result<[f64; 2]> {
    let mut times: [Vec<u64>; 2] = Default::default();
    for _ in 0..count {
        let node = filled.change()?;
        times[1].push(nanoseconds(|| filled.volume.target.fsync(&node))?);
        filled.volume.target.sync()?;
        times[0].push(nanoseconds(|| filled.volume.snapshot(true).map(drop))?);
    }
    Ok(times.map(|mut times| {
        times.sort_unstable();
        percentile(&times, 0.5) as f64 / 1e9
    }))
}
