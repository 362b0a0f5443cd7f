//! How many bytes of the medium history takes for one unlink, and for one rename, of a file that a snapshot
//! has seen.
//!
//! The figure is how much the trees of history have grown when all files are removed, or renamed, divided by
//! their number: their rows, their keys, and what is free in half-full nodes. Beside it stands what all
//! metadata takes for one file as long as it is there. Each file is a block long and has a name of twelve
//! bytes. Names are made and changed by turns in all directories.

use super::run::{Goal, Line, Run};
use super::volume::Volume;
use crate::report::Unit;
use crate::workload::steps::noise;
use crate::{Result, Target as _};

const BLOCK: usize = 4096;
/// The most bytes that history should take for each.
const GOAL: f64 = 170.0;

pub(super) fn measure(run: &Run<'_>) -> Result<Vec<Line>> {
    let line = |what: &str| {
        let measure =
            format!("bytes of history for each {what} that a snapshot has seen / of metadata for a file");
        Line::new(measure, Unit::Bytes, Goal::Most(GOAL))
    };
    let mut lines = [line("unlink"), line("rename")];
    for round in run.rounds() {
        round?;
        for (line, renames) in lines.iter_mut().zip([false, true]) {
            run.options.check_stop()?;
            line.push(bytes(run, renames)?);
        }
    }
    Ok(lines.into())
}

/// Bytes for each: of history, and of all metadata before.
fn bytes(run: &Run<'_>, renames: bool) -> Result<[f64; 2]> {
    let files = run.history.live.max(1);
    let directories = run.history.directories.max(1);
    let per_file = |blocks: u64| (blocks as usize * BLOCK) as f64 / files as f64;
    let empty = Volume::make(run.options, run.dir, "recorded")?;
    let metadata = |volume: &Volume| volume.target.view().info().metadata_blocks;
    let empty_blocks = metadata(&empty);
    let volume = empty.with_dirs(directories)?;
    let name = |i: usize| format!("file{i:08}");
    let data = noise(BLOCK, 1);
    for i in 0..files {
        let file = volume.target.create(&volume.dirs[i % directories], &name(i))?;
        volume.target.write_at(&file, 0, &data)?;
    }
    volume.target.sync()?;
    let live = metadata(&volume) - empty_blocks;
    volume.snapshot(true)?;
    let index = |volume: &Volume| volume.target.view().statfs().history_index_blocks;
    let before = index(&volume);
    for i in 0..files {
        let directory = &volume.dirs[i % directories];
        match renames {
            true => volume.target.rename(directory, &name(i), directory, &format!("new-{i:08}"))?,
            false => volume.target.unlink(directory, &name(i))?,
        }
    }
    // All of it is entered when the volume is closed.
    let volume = volume.reopen(false)?;
    let after = index(&volume);
    volume.end()?;
    Ok([per_file(after - before), per_file(live)])
}
