//! The first measurement: what the basic calls cost, side by side.
//!
//! Five workloads on every file system: create empty files; stat them by name; rename each within its directory; unlink
//! them; and create files of 4 KiB, each made durable before the next. Files go round the directories in turn, as a program that
//! fills many directories at once would do it, which gives no file system the favour of one hot directory.
//!
//! Rounds take turns: round 1 on every file system, then round 2, …, and each starts one place later, so that a machine that
//! slows down or speeds up meanwhile does so for all. Every round leaves the file system as empty as it found it.

use crate::places::{self, Place};
use crate::report::median;
use crate::{Report, Result, Skipped, Target, TargetResult, WorkloadResult};
use std::path::PathBuf;
use std::time::Instant;

/// What to measure.
#[derive(Clone, Debug)]
pub struct FirstOptions {
    /// Files per round; a tenth of them for the durable ones.
    pub files: usize,
    /// Directories they are spread over.
    pub directories: usize,
    /// Rounds per file system.
    pub rounds: usize,
    /// Where volumes, images and mount points are made (a directory of their own within it, removed afterwards). It decides
    /// which disk is measured.
    pub work_dir: PathBuf,
}

impl Default for FirstOptions {
    fn default() -> FirstOptions {
        FirstOptions { files: 20_000, directories: 100, rounds: 5, work_dir: std::env::temp_dir() }
    }
}

/// Bytes of each volume and image: room for the files of any sensible run, sparse on the host.
const VOLUME_BYTES: u64 = 4 << 30;

/// Bytes of each durable file.
const DURABLE_BYTES: usize = 4096;

const WORKLOADS: [&str; 5] = ["create", "stat", "rename", "unlink", "create + 4 KiB + fsync"];

/// Measures. A file system that this machine or this user cannot mount is listed as skipped. Errors: one that was
/// mounted and then failed, which is a finding and not a figure.
pub fn first(options: &FirstOptions) -> Result<Report> {
    let work = tempfile::Builder::new()
        .prefix("yore-bench-")
        .tempdir_in(&options.work_dir)
        .map_err(crate::BenchError::system(format!("making a directory in {:?}", options.work_dir)))?;
    let dir = work.path();
    let mut skipped = Vec::new();
    let mut places: Vec<Place> = vec![places::library(dir, VOLUME_BYTES)?];
    for (name, place) in [
        ("yore, mounted", places::mounted(dir, VOLUME_BYTES)),
        (places::BOUND, places::bound(dir)),
        (places::EXT4, places::ext4(dir, VOLUME_BYTES)),
    ] {
        match place {
            Ok(place) => places.push(place),
            Err(error) => skipped.push(Skipped { name: name.into(), reason: error.to_string() }),
        }
    }
    let mut figures: Vec<Vec<Vec<f64>>> = vec![vec![Vec::new(); WORKLOADS.len()]; places.len()];
    for round in 0..options.rounds {
        for turn in 0..places.len() {
            let index = (round + turn) % places.len();
            let measured = run_round(places[index].target.as_mut(), options, round)?;
            for (all, figure) in figures[index].iter_mut().zip(measured) {
                all.push(figure);
            }
        }
    }
    let targets = places.iter().zip(figures).map(|(place, figures)| result(place.target.name(), figures));
    let report = Report {
        files: options.files,
        directories: options.directories,
        rounds: options.rounds,
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        processors: std::thread::available_parallelism().map_or(0, |n| n.get()),
        targets: targets.collect(),
        skipped,
    };
    for place in places {
        place.end()?;
    }
    Ok(report)
}

fn result(name: &str, figures: Vec<Vec<f64>>) -> TargetResult {
    let workload = |(name, per_second): (&&str, Vec<f64>)| {
        let median = median(&per_second);
        WorkloadResult { name: name.to_string(), per_second, median }
    };
    TargetResult { name: name.to_string(), workloads: WORKLOADS.iter().zip(figures).map(workload).collect() }
}

/// One round on one file system: operations per second of each workload.
fn run_round(
    target: &mut dyn Target,
    options: &FirstOptions,
    round: usize,
) -> Result<[f64; WORKLOADS.len()]> {
    let (files, directories) = (options.files.max(1), options.directories.max(1));
    let durable = (files / 10).max(1);
    for directory in 0..directories {
        target.make_directory(&format!("round{round}-{directory:04}"))?;
    }
    let content = vec![0x5a; DURABLE_BYTES];
    // Names are made beforehand: making them is not the file system's work.
    let names = |prefix: &str, count: usize| -> Vec<String> {
        (0..count).map(|i| format!("{prefix}-{i:07}")).collect()
    };
    let (old, new, kept) = (names("file", files), names("renamed", files), names("durable", durable));
    let place = |i: usize| i % directories;
    let figures = [
        timed(files, |i| target.create(place(i), &old[i]))?,
        timed(files, |i| target.stat(place(i), &old[i]).map(drop))?,
        timed(files, |i| target.rename(place(i), &old[i], &new[i]))?,
        timed(files, |i| target.unlink(place(i), &new[i]))?,
        timed(durable, |i| target.create_durable(place(i), &kept[i], &content))?,
    ];
    for (i, name) in kept.iter().enumerate() {
        let size = target.stat(place(i), name)?;
        assert_eq!(size, DURABLE_BYTES as u64, "{} lost bytes of {name}", target.name());
        target.unlink(place(i), name)?;
    }
    target.remove_directories()?;
    Ok(figures)
}

fn timed(count: usize, mut step: impl FnMut(usize) -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    for i in 0..count {
        step(i)?;
    }
    Ok(count as f64 / start.elapsed().as_secs_f64())
}
