//! Work on a volume with the policy of new volumes, and on one without any: PostMark in the library;
//! unpacking and building a source tree on a mount, where tar and make run.
//!
//! A run of these is shorter than the minute after which the policy takes its next snapshot, so it would
//! measure only the first one. Here the interval is [`INTERVAL`], many times shorter: the rows show more than
//! the policy costs. All data that is replaced between two snapshots stays, and so does the work of keeping
//! it.
//!
//! The tree that is unpacked and built is made here, in the proportions of a small program: it is the same on
//! every machine, and needs no network.

use super::mail;
use super::run::{turns, Goal, Line, Run};
use super::volume::Volume;
use crate::program::{command, run as run_program};
use crate::report::Unit;
use crate::workload::postmark::{Plan, Run as Transactions};
use crate::workload::steps::noise;
use crate::{BenchError, Result, Target as _};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;
use yore_fs::{MkfsOptions, Policy, Versioning};

/// How long after a change the next snapshot is taken, in nanoseconds: the shortest that a policy can say.
const INTERVAL: u64 = 1_000_000_000;
/// Files of the tree that is unpacked, directories, and bytes of each.
const FILES: usize = 2000;
const DIRECTORIES: usize = 100;
const BYTES: usize = 8 << 10;
/// How many times fewer files a build creates: it reads the sources, writes an object for each, then puts
/// them together, twice.
const SOURCES: usize = 500;

/// The policy of new volumes, with its snapshots in quicker succession.
fn policy() -> Policy {
    Policy { versioning: Some(Versioning::Interval(INTERVAL)), ..MkfsOptions::usual_policy() }
}

/// A volume, with the policy (side 0) or without.
fn volume(run: &Run<'_>, side: usize) -> Result<Volume> {
    let volume = Volume::make(run.options, run.dir, "usual")?;
    if side == 0 {
        let view = volume.target.view();
        view.set_policy(view.root(), &policy()).map_err(BenchError::library("setting the policy"))?;
    }
    Ok(volume)
}

/// The rows; none for unpacking and building if nothing can be mounted, with the reason.
pub(super) fn measure(run: &Run<'_>) -> Result<(Vec<Line>, Option<String>)> {
    let mut lines = vec![postmark(run)?];
    if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
        return Ok((
            lines,
            Some(format!("Nothing was unpacked and built with the usual policy: /dev/fuse: {error}.")),
        ));
    }
    lines.extend(programs(run)?);
    Ok((lines, None))
}

fn line(what: &str, unit: Unit) -> Line {
    Line::new(format!("{what}, the policy of new volumes / none"), unit, Goal::None)
}

fn postmark(run: &Run<'_>) -> Result<Line> {
    let options = mail::options(run.history.transactions);
    let plan = Plan::new(&options);
    let mut line = line("PostMark's transactions", Unit::PerSecond);
    for round in run.rounds() {
        for side in turns(round?) {
            run.options.check_stop()?;
            let volume = volume(run, side)?.with_dirs(options.directories)?;
            let mut transactions = Transactions::new(&options, &plan, &volume.target, &volume.dirs);
            transactions.all(&plan.pool)?;
            volume.target.sync()?;
            let seconds = transactions.all(&plan.transactions)?;
            line.samples[side].push(plan.transactions.len() as f64 / 2.0 / seconds);
            drop(transactions);
            volume.end()?;
        }
    }
    Ok(line)
}

fn programs(run: &Run<'_>) -> Result<Vec<Line>> {
    let archive = archive(run)?;
    let mut lines = vec![line("tar -x", Unit::Seconds), line("a build", Unit::Seconds)];
    for round in run.rounds() {
        for side in turns(round?) {
            run.options.check_stop()?;
            let mounted = |at: &Path| unpack_and_build(run, at, &archive);
            let (unpacked, built) = volume(run, side)?.on_mount(run.dir, mounted)?;
            lines[0].samples[side].push(unpacked);
            lines[1].samples[side].push(built);
        }
    }
    fs::remove_file(&archive).map_err(BenchError::system("removing the archive"))?;
    Ok(lines)
}

/// An archive of a tree.
fn archive(run: &Run<'_>) -> Result<PathBuf> {
    let (tree, archive) = (run.dir.join("tree"), run.dir.join("tree.tar"));
    let files = FILES.min(run.history.files.max(10));
    for directory in 0..DIRECTORIES.min(files) {
        fs::create_dir_all(tree.join(format!("d{directory}")))
            .map_err(BenchError::system("making a tree"))?;
    }
    let data = noise(BYTES, 3);
    for file in 0..files {
        let path = tree.join(format!("d{}/f{file}.c", file % DIRECTORIES.min(files)));
        fs::write(path, &data).map_err(BenchError::system("making a tree"))?;
    }
    run_program(command("tar").arg("-cf").arg(&archive).arg("-C").arg(&tree).arg("."), "tar")?;
    fs::remove_dir_all(&tree).map_err(BenchError::system("removing the tree that was archived"))?;
    Ok(archive)
}

/// Seconds of unpacking, and of building what was unpacked.
fn unpack_and_build(run: &Run<'_>, at: &Path, archive: &Path) -> Result<(f64, f64)> {
    let start = Instant::now();
    run_program(command("tar").arg("-xf").arg(archive).arg("-C").arg(at), "tar")?;
    let unpacked = start.elapsed().as_secs_f64();
    let start = Instant::now();
    build(run, at)?;
    Ok((unpacked, start.elapsed().as_secs_f64()))
}

/// The file accesses of compilers and linkers: each source is read, and an object half as long is written
/// beside it under another name, then renamed. Then all objects are put together in one file. This happens
/// twice, as after a change that affects all of them.
fn build(run: &Run<'_>, at: &Path) -> Result<()> {
    let files = FILES.min(run.history.files.max(10));
    let directories = DIRECTORIES.min(files);
    for _ in 0..2 {
        let mut program = Vec::new();
        for file in 0..files.min(SOURCES) {
            let directory = at.join(format!("d{}", file % directories));
            let source = fs::read(directory.join(format!("f{file}.c")))
                .map_err(BenchError::system("reading a source"))?;
            let (temporary, object) =
                (directory.join(format!("f{file}.tmp")), directory.join(format!("f{file}.o")));
            let half = &source[..source.len() / 2];
            fs::write(&temporary, half).map_err(BenchError::system("writing an object"))?;
            fs::rename(&temporary, &object).map_err(BenchError::system("renaming an object"))?;
            program.extend_from_slice(half);
        }
        fs::write(at.join("program"), &program).map_err(BenchError::system("writing the program"))?;
    }
    Ok(())
}
