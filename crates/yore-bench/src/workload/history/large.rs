//! A large file: read as it was, and overwritten for the first time after a snapshot.
//!
//! Both versions that are read were written in one go. So was the file that is overwritten, each time on a
//! volume of its own: on a volume that is used again, the time depends more on the free places that earlier
//! turns have left than on the snapshot. Its image is not sparse, because otherwise the host would have to
//! find places for the blocks that a snapshot keeps.

use super::run::{medians, Goal, Line, Run};
use super::volume::Volume;
use crate::report::Unit;
use crate::workload::steps::{check, noise, timed};
use crate::{BenchError, Result, Target};
use rand::seq::SliceRandom as _;
use rand::SeedableRng as _;
use std::time::Instant;
use yore_fs::View;

/// Bytes of each sequential read and write, and of each random write.
const LARGE: usize = 1 << 20;
const SMALL: usize = 4096;
/// One of this many blocks is overwritten, in random order.
const SHARE: usize = 4;
/// Turns in a round, of which the middle one counts: each lasts a tenth of a second only.
const TURNS: usize = 3;
/// Bytes of a volume besides what its file needs.
const SPARE: u64 = 128 << 20;
const NAME: &str = "large";

pub(super) fn measure(run: &Run<'_>) -> Result<Vec<Line>> {
    let pieces = usize::try_from(run.history.large_bytes.div_ceil(LARGE as u64)).unwrap_or(usize::MAX).max(1);
    let mut lines = vec![read(run, pieces)?];
    lines.extend(overwrite(run, pieces)?);
    Ok(lines)
}

/// Data whose first byte says which version it is.
fn version(number: u8) -> Vec<u8> {
    let mut data = noise(LARGE, u64::from(number));
    data[0] = number;
    data
}

/// Writes all of the file.
fn write(volume: &Volume, pieces: usize, data: &[u8]) -> Result<()> {
    let file = volume.target.open(&volume.target.root()?, NAME)?;
    timed(pieces, |i| volume.target.write_at(&file, (i * LARGE) as u64, data)).map(drop)
}

fn read(run: &Run<'_>, pieces: usize) -> Result<Line> {
    let temperature = if run.cold { "cold" } else { "opened anew" };
    let measure = format!("reading {pieces} MiB, the old version / the live one, {temperature}");
    let mut line = Line::new(measure, Unit::BytesPerSecond, Goal::Ratio(0.95));
    let volume = Volume::make(run.options, run.dir, "read")?;
    volume.target.create(&volume.target.root()?, NAME)?;
    write(&volume, pieces, &version(0))?;
    volume.target.sync()?;
    let event = volume.snapshot(true)?;
    write(&volume, pieces, &version(1))?;
    volume.target.sync()?;
    let mut volume = Some(volume);
    for round in run.rounds() {
        let round = round?;
        let seconds = medians(round, TURNS, |side| {
            let reopened = volume.take().expect("it is put back").reopen(run.cold)?;
            let volume = volume.insert(reopened);
            match side {
                0 => read_all(&volume.target.view().as_of(event), NAME, pieces, Some(0)),
                _ => read_all(volume.target.view(), NAME, pieces, Some(1)),
            }
        })?;
        line.push(seconds.map(|seconds| (pieces * LARGE) as f64 / seconds));
    }
    volume.map_or(Ok(()), Volume::end)?;
    Ok(line)
}

/// Seconds to open the file and to read it from start to end; all of it must be of this version, if one is
/// given.
pub(super) fn read_all(view: &View, name: &str, pieces: usize, version: Option<u8>) -> Result<f64> {
    let mut buffer = vec![0; LARGE];
    let start = Instant::now();
    let node = view.lookup(view.root(), name.as_bytes()).map_err(BenchError::library("looking up a file"))?;
    for i in 0..pieces {
        let offset = (i * LARGE) as u64;
        let count = node.read(offset, &mut buffer).map_err(BenchError::library("reading a file"))?;
        let expected = version.unwrap_or(buffer[0]);
        check(
            count == LARGE && buffer[0] == expected,
            format_args!("{count} bytes of version {}", buffer[0]),
            format_args!("{LARGE} of version {expected}"),
        )?;
    }
    Ok(start.elapsed().as_secs_f64())
}

fn overwrite(run: &Run<'_>, pieces: usize) -> Result<[Line; 2]> {
    let bytes = (pieces * LARGE) as u64;
    let mut offsets: Vec<u64> = (0..bytes).step_by(SMALL).collect();
    offsets.shuffle(&mut rand::rngs::StdRng::seed_from_u64(run.history.large_bytes));
    offsets.truncate((offsets.len() / SHARE).max(1));
    let mut lines = [
        Line::new(
            format!("overwriting {pieces} MiB and sync, first after a snapshot / without"),
            Unit::BytesPerSecond,
            Goal::Ratio(0.95),
        ),
        Line::new(
            format!("overwriting {} random blocks of it and sync, likewise", offsets.len()),
            Unit::PerSecond,
            Goal::Ratio(0.8),
        ),
    ];
    let (before, data) = (version(0), version(1));
    for round in run.rounds() {
        let round = round?;
        for (order, line) in lines.iter_mut().enumerate() {
            let count = if order == 0 { pieces } else { offsets.len() };
            let seconds = medians(round, TURNS, |side| {
                run.options.check_stop()?;
                let volume = Volume::make_written(run.dir, "overwrite", 2 * bytes + SPARE)?;
                volume.target.create(&volume.target.root()?, NAME)?;
                write(&volume, pieces, &before)?;
                volume.target.sync()?;
                if side == 0 {
                    volume.snapshot(true)?;
                }
                let file = volume.target.open(&volume.target.root()?, NAME)?;
                let seconds = timed(count + 1, |i| match (order, offsets.get(i)) {
                    _ if i == count => volume.target.sync(),
                    (1, Some(offset)) => volume.target.write_at(&file, *offset, &data[..SMALL]),
                    _ => volume.target.write_at(&file, (i * LARGE) as u64, &data),
                })?;
                drop(file);
                volume.end()?;
                Ok(seconds)
            })?;
            let done = if order == 0 { bytes as f64 } else { count as f64 };
            line.push(seconds.map(|seconds| done / seconds));
        }
    }
    Ok(lines)
}
