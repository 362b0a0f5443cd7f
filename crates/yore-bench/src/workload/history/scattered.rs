//! A file in which a few random blocks were overwritten between each two of many snapshots, read in sequence.
//!
//! In the live version of the file with a past, every overwritten block is somewhere else; in the first
//! version all blocks are where they were first written. Both are compared with a file that was overwritten
//! as much without snapshots. Then somebody reads the file, which shows the volume that it is scattered; and
//! after some time in which nobody asks anything of the volume, it is read again.

use super::large::read_all;
use super::run::{medians, Goal, Line, Run};
use super::volume::Volume;
use crate::report::Unit;
use crate::workload::steps::{noise, timed};
use crate::{Result, Target as _};
use rand::{Rng as _, SeedableRng as _};
use std::time::{Duration, Instant};
use yore_fs::{EventNo, MountOptions};

/// Bytes of each sequential read and write, and of each random write.
const LARGE: usize = 1 << 20;
const SMALL: usize = 4096;
/// Snapshots.
const VERSIONS: usize = 100;
/// The most that the file has, in pieces of [`LARGE`].
const PIECES_MAX: usize = 100;
/// Turns in a round, of which the middle one counts.
const TURNS: usize = 3;
const NAME: &str = "scattered";
/// How often somebody who waits asks whether the run is to stop.
const STOP_ASKED: Duration = Duration::from_millis(100);

/// A volume with the file; and its first snapshot, if it has any.
fn make(run: &Run<'_>, name: &str, pieces: usize, snapshots: bool) -> Result<(Volume, Option<EventNo>)> {
    let volume = Volume::make(run.options, run.dir, name)?.reopen_with(false, &as_it_lies())?;
    let file = volume.target.create(&volume.target.root()?, NAME)?;
    let data = noise(LARGE, 1);
    timed(pieces, |i| volume.target.write_at(&file, (i * LARGE) as u64, &data))?;
    volume.target.sync()?;
    // The same places on both sides.
    let mut random = rand::rngs::StdRng::seed_from_u64(VERSIONS as u64);
    let blocks = pieces * LARGE / SMALL;
    let mut first = None;
    for _ in 0..VERSIONS {
        run.options.check_stop()?;
        if snapshots {
            let event = volume.snapshot(false)?;
            first = first.or(Some(event));
        }
        for _ in 0..run.history.changes {
            let offset = random.random_range(0..blocks) * SMALL;
            volume.target.write_at(&file, offset as u64, &data[..SMALL])?;
        }
        // Each version has its own blocks on the medium.
        volume.target.fsync(&file)?;
    }
    volume.target.sync()?;
    drop(file);
    Ok((volume, first))
}

/// While one volume is made or read, the other is idle, and is not to be laid together yet.
fn as_it_lies() -> MountOptions {
    MountOptions { defragment_after: None, ..MountOptions::default() }
}

/// Reads the file of a volume, and leaves the volume alone.
fn leave_idle(run: &Run<'_>, volume: &mut Option<Volume>, pieces: usize) -> Result<()> {
    let opened = volume.take().expect("it is put back").reopen(run.cold)?;
    let opened = volume.insert(opened);
    read_all(opened.target.view(), NAME, pieces, None)?;
    let until = Instant::now() + run.history.idle;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        run.options.check_stop()?;
        std::thread::sleep(left.min(STOP_ASKED));
    }
    Ok(())
}

pub(super) fn measure(run: &Run<'_>) -> Result<Vec<Line>> {
    let pieces = usize::try_from(run.history.large_bytes.div_ceil(LARGE as u64)).unwrap_or(usize::MAX);
    let pieces = pieces.clamp(1, PIECES_MAX);
    let temperature = if run.cold { "cold" } else { "opened anew" };
    let overwrites = format!("{VERSIONS} snapshots with {} random overwrites each", run.history.changes);
    let measure =
        |which: &str| format!("reading {pieces} MiB, {which} of {overwrites} / without, {temperature}");
    let line = |which: &str| Line::new(measure(which), Unit::BytesPerSecond, Goal::None);
    let mut lines = [line("live behind"), line("the first")];
    let idle = run.history.idle;
    let after = format!("after {} s idle, live behind", idle.as_secs_f64());
    let mut tidied = Line::new(measure(&after), Unit::BytesPerSecond, Goal::Ratio(0.8));
    let (with, first) = make(run, "scattered", pieces, true)?;
    let (without, _) = make(run, "in-place", pieces, false)?;
    let mut volumes = [Some(with), Some(without)];
    for round in run.rounds() {
        let round = round?;
        for (line, event) in lines.iter_mut().zip([None, first]) {
            let seconds = medians(round, TURNS, |side| {
                let volume = volumes[side].take().expect("it is put back");
                let volume = volume.reopen_with(run.cold, &as_it_lies())?;
                let view = volumes[side].insert(volume).target.view();
                match event.filter(|_| side == 0) {
                    Some(event) => read_all(&view.as_of(event), NAME, pieces, None),
                    None => read_all(view, NAME, pieces, None),
                }
            })?;
            line.push(seconds.map(|seconds| (pieces * LARGE) as f64 / seconds));
        }
    }
    leave_idle(run, &mut volumes[0], pieces)?;
    for round in run.rounds() {
        let seconds = medians(round?, TURNS, |side| {
            let volume = volumes[side].take().expect("it is put back");
            let volume = volume.reopen_with(run.cold, &as_it_lies())?;
            read_all(volumes[side].insert(volume).target.view(), NAME, pieces, None)
        })?;
        tidied.push(seconds.map(|seconds| (pieces * LARGE) as f64 / seconds));
    }
    volumes.into_iter().flatten().try_for_each(Volume::end)?;
    Ok(lines.into_iter().chain([tidied]).collect())
}
