//! The time of a check does not depend on how much data there is.
//!
//! A volume gets files that are eight times as long as in the end, so that everything that metadata needs for
//! them is there: the groups with their zones and bitmaps, inodes, names, extents. Then all files are
//! truncated to half their lengths, three times, and a copy of the image is kept each time. So the volumes
//! have the same size and the same metadata, and differ in how many blocks are in use. Contents are zeros,
//! which take no space on the host: a check does not read them.

use super::checker::{yore, Used};
use super::run::{change_volume, copy_image, make_volume, Found, Run};
use crate::report::Unit;
use crate::rival::Serving;
use crate::workload::lines::{Goal, Line};
use crate::{BenchError, Result, Target};
use std::path::Path;
use std::time::Instant;
use yore_check::CheckOptions;
use yore_device::{FileDevice, OpenOptions};

/// How many times as long the files are, from the longest.
const TIMES: [u64; 4] = [8, 4, 2, 1];
const PER_DIRECTORY: usize = 1000;
/// Bytes of files that are not made longer.
const SMALL: u64 = 8 << 10;
const LARGE: u64 = 1 << 20;

pub(super) fn measure(run: &Run<'_>) -> Result<Found> {
    let (files, large) = (run.checks.files, run.checks.large);
    let data = (files as u64 * SMALL + large as u64 * LARGE) * TIMES[0];
    let bytes = (data / 4 * 5 + (256 << 20)).next_multiple_of(128 << 20).max(run.options.volume_bytes);
    let directory = run.directory("data")?;
    let working = directory.path.join("working");
    make_volume(&working, bytes, |target| {
        each_file(target, run, |root, name, size| {
            let zeros = vec![0; (size * TIMES[0]).min(1 << 20) as usize];
            let file = target.create(root, name)?;
            (0..size * TIMES[0]).step_by(zeros.len()).try_for_each(|at| {
                let piece = (size * TIMES[0] - at).min(zeros.len() as u64) as usize;
                target.write_at(&file, at, &zeros[..piece])
            })
        })
    })?;
    let image = |times: u64| directory.path.join(format!("times-{times}"));
    for times in TIMES {
        run.options.check_stop()?;
        if times < TIMES[0] {
            change_volume(&working, |target| {
                each_file(target, run, |root, name, size| {
                    target.truncate(&target.open(root, name)?, size * times)
                })
            })?;
        }
        copy_image(&working, &image(times))?;
    }
    let mut seconds = vec![Vec::new(); TIMES.len()];
    for round in run.rounds() {
        let round = round?;
        for turn in 0..TIMES.len() {
            let which = (round + turn) % TIMES.len();
            seconds[which].push(time(run, &image(TIMES[which]))?);
        }
    }
    let once = seconds.pop().unwrap_or_default();
    let lines = TIMES.iter().zip(seconds).rev().map(|(times, samples)| {
        let goal = Goal::Ratio(0.9);
        let mut line =
            Line::new(format!("check with {times} times as much data / once"), Unit::Seconds, goal);
        line.samples = [samples, once.clone()];
        line
    });
    Ok(lines.collect::<Vec<_>>().into())
}

/// Does something with each file: its directory, its name, its bytes once as long.
fn each_file<T: Target>(
    target: &T,
    run: &Run<'_>,
    mut work: impl FnMut(&T::Dir, &str, u64) -> Result<()>,
) -> Result<()> {
    let root = target.root()?;
    let (files, large) = (run.checks.files, run.checks.large);
    let every = (files / large.max(1)).max(1);
    let mut left = large;
    for first in (0..files).step_by(PER_DIRECTORY) {
        run.options.check_stop()?;
        let name = format!("directory-{}", first / PER_DIRECTORY);
        if !target.exists(&root, &name)? {
            target.mkdir(&root, &name)?;
        }
        let directory = target.open_dir(&root, &name)?;
        for i in first..files.min(first + PER_DIRECTORY) {
            work(&directory, &format!("file-{i}"), SMALL)?;
            if left > 0 && i % every == 0 {
                left -= 1;
                work(&directory, &format!("larger-{i}"), LARGE)?;
            }
        }
    }
    target.sync()
}

/// Seconds of a check, cold if that is possible.
fn time(run: &Run<'_>, image: &Path) -> Result<f64> {
    run.chill()?;
    if let Serving::Program(_) = run.options.serving {
        return Used::by(yore(&run.options.serving, &[], image)?).map(|used| used.seconds);
    }
    let started = Instant::now();
    let device = FileDevice::open(image, OpenOptions { read_only: true, ..OpenOptions::default() })?;
    let report = yore_check::check(&device, &CheckOptions::default()).map_err(BenchError::checking)?;
    crate::workload::steps::check(
        report.is_clean(),
        format_args!("{} findings", report.findings_count),
        format_args!("a volume in which nothing is wrong"),
    )?;
    Ok(started.elapsed().as_secs_f64())
}
