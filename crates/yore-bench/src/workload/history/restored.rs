//! Restores a large file on a mount, as `yore restore` does, against a copy of all its bytes.
//!
//! The file has been removed, and a snapshot still has it. Restoring asks the mount to copy `name@snapshot`
//! within the volume, which shares the blocks, and renames what it has made to the old name. The copy reads
//! and writes the same bytes through the mount. Threads of this process serve the mount.

use super::run::{turns, Goal, Line, Run};
use super::volume::Volume;
use crate::report::Unit;
use crate::workload::steps::{check_size, noise};
use crate::{BenchError, Result};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::Instant;
use yore_control::{Client as _, Mounted, Take};

/// How many times as large as the large file it is: 1 GiB by default.
const TIMES: u64 = 4;
/// Bytes of each read and write.
const PIECE: usize = 1 << 20;
/// The longest that restoring should last, in seconds.
const GOAL: f64 = 50e-3;
const NAME: &str = "large";

/// The row; none if nothing can be mounted, with the reason.
pub(super) fn measure(run: &Run<'_>) -> Result<std::result::Result<Line, String>> {
    if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
        return Ok(Err(format!("No file was restored on a mount: /dev/fuse: {error}.")));
    }
    let volume = Volume::make(run.options, run.dir, "restored")?;
    volume.on_mount(run.dir, |mountpoint| times(run, mountpoint)).map(Ok)
}

fn times(run: &Run<'_>, mountpoint: &Path) -> Result<Line> {
    let bytes = run.history.large_bytes.next_multiple_of(PIECE as u64) * TIMES;
    let measure = format!("restoring {} MiB on a mount / copying them", bytes >> 20);
    let mut line = Line::new(measure, Unit::Seconds, Goal::Most(GOAL));
    let path = mountpoint.join(NAME);
    make(&path, bytes)?;
    let directory = File::open(mountpoint).map_err(BenchError::system("opening the mount"))?;
    let take = Take { name: "before".into(), wait: true, ..Take::default() };
    Mounted(&directory).take(take).map_err(BenchError::library("taking a snapshot"))?;
    fs::remove_file(&path).map_err(BenchError::system("removing the large file"))?;
    let source = mountpoint.join(format!("{NAME}@before"));
    for round in run.rounds() {
        for side in turns(round?) {
            let start = Instant::now();
            let temporary = mountpoint.join("new");
            let mut from = File::open(&source).map_err(BenchError::system("opening the past"))?;
            let mut to = File::create_new(&temporary).map_err(BenchError::system("making a file"))?;
            match side {
                0 => share(&from, &to, bytes)?,
                _ => copy(&mut from, &mut to)?,
            }
            fs::rename(&temporary, &path).map_err(BenchError::system("renaming what was restored"))?;
            line.samples[side].push(start.elapsed().as_secs_f64());
            check_size(to.metadata().map_err(BenchError::system("asking for a size"))?.len(), bytes)?;
            drop((from, to));
            fs::remove_file(&path).map_err(BenchError::system("removing what was restored"))?;
            rustix::fs::syncfs(&directory).map_err(|e| BenchError::system("syncing the mount")(e.into()))?;
        }
    }
    Ok(line)
}

fn make(path: &Path, bytes: u64) -> Result<()> {
    let failed = || BenchError::system("writing the large file");
    let mut file = File::create_new(path).map_err(failed())?;
    let data = noise(PIECE, 1);
    for _ in 0..bytes / PIECE as u64 {
        file.write_all(&data).map_err(failed())?;
    }
    file.sync_all().map_err(failed())
}

fn share(from: &File, to: &File, bytes: u64) -> Result<()> {
    let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
    while left > 0 {
        let copied = rustix::fs::copy_file_range(from, None, to, None, left)
            .map_err(|e| BenchError::system("copying within the mount")(e.into()))?;
        if copied == 0 {
            break;
        }
        left -= copied;
    }
    Ok(())
}

/// Not by `std::io::copy`, which asks the kernel to share.
fn copy(from: &mut File, to: &mut File) -> Result<()> {
    let mut buffer = vec![0; PIECE];
    loop {
        let count = from.read(&mut buffer).map_err(BenchError::system("reading the past"))?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..count]).map_err(BenchError::system("writing a copy"))?;
    }
}
