//! Takes snapshots through a mount, against a request that only asks whether the mount shows the present.
//!
//! A file is changed before each, so that there is a reason for a snapshot. Threads of this process serve the
//! mount.

use super::run::{turns, Goal, Line, Run};
use super::volume::Volume;
use crate::report::Unit;
use crate::stats::percentile;
use crate::{BenchError, Result};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Instant;
use yore_control::{Client as _, Mounted, Take};

/// Turns in a round.
const TURNS: usize = 20;
/// The longest that taking a snapshot should last, in seconds.
const GOAL: f64 = 200e-6;

/// The row; none if nothing can be mounted, with the reason.
pub(super) fn measure(run: &Run<'_>) -> Result<std::result::Result<Line, String>> {
    if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
        return Ok(Err(format!("Snapshots through a mount were not taken: /dev/fuse: {error}.")));
    }
    let volume = Volume::make(run.options, run.dir, "mounted")?;
    volume.on_mount(run.dir, |mountpoint| times(run, mountpoint)).map(Ok)
}

fn times(run: &Run<'_>, mountpoint: &std::path::Path) -> Result<Line> {
    let measure = "taking a snapshot through a mount / asking it";
    let mut line = Line::new(measure, Unit::Seconds, Goal::Most(GOAL));
    let file = File::create(mountpoint.join("file")).map_err(BenchError::system("making a file"))?;
    let directory = File::open(mountpoint).map_err(BenchError::system("opening the mount"))?;
    let asked = Mounted(&directory);
    let each = run.history.takes.div_ceil(TURNS);
    for round in run.rounds() {
        let round = round?;
        let mut nanos: [Vec<u64>; 2] = Default::default();
        for turn in 0..TURNS {
            for side in turns(round + turn) {
                for i in 0..each {
                    file.write_all_at(&i.to_le_bytes(), 0).map_err(BenchError::system("changing a file"))?;
                    let start = Instant::now();
                    match side {
                        0 => asked.take(Take::default()).map(drop),
                        _ => asked.seen().map(drop),
                    }
                    .map_err(BenchError::library("asking the mount"))?;
                    nanos[side].push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
                }
            }
        }
        for (samples, mut nanos) in line.samples.iter_mut().zip(nanos) {
            nanos.sort_unstable();
            samples.push(percentile(&nanos, 0.5) as f64 / 1e9);
        }
    }
    Ok(line)
}
