//! The present, with snapshots being taken, and with many behind it.
//!
//! A step goes on for some time on the volume whose turn comes first, and for as many operations on the
//! other, so that both do the same. Each operation opens files by name. The files that are removed are those
//! that were created, which the snapshots taken meanwhile have seen. That step ends when they are used up, if
//! its time is not over before.
//!
//! In the past, every snapshot has a small change before it. After the last one, all files of the pool are
//! overwritten and renamed once before the clock starts, on both volumes: other measures cover the cost of
//! the first change after a snapshot, and here it would depend on the length of the step. All files are also
//! read once before the measured reads, which are therefore warm.

use super::run::{turns, Goal, Line, Run};
use super::volume::Volume;
use crate::report::Unit;
use crate::workload::steps::{check_size, noise};
use crate::{Result, Target};
use std::time::{Duration, Instant};
use yore_fs::Node;

/// Bytes of each file of the pool.
const BYTES: usize = 4096;
/// How often a snapshot is taken; the first one at once.
const EVERY: Duration = Duration::from_secs(1);
/// Operations between two looks at the clock.
const UNWATCHED: usize = 16;

/// When snapshots are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Past {
    /// A snapshot every second.
    Meanwhile,
    /// Many snapshots before the steps, none during them.
    Behind,
}

#[derive(Clone, Copy)]
enum Step {
    Create,
    Read,
    Overwrite,
    Rename,
    Unlink,
}

impl Step {
    const ALL: [Step; 5] = [Step::Create, Step::Read, Step::Overwrite, Step::Rename, Step::Unlink];

    fn name(self) -> &'static str {
        match self {
            Step::Create => "create",
            Step::Read => "read 4 KiB",
            Step::Overwrite => "overwrite 4 KiB",
            Step::Rename => "rename",
            Step::Unlink => "unlink",
        }
    }
}

/// When a step ends.
#[derive(Clone, Copy)]
enum Until {
    Time(Duration),
    Count(usize),
}

/// A volume with a pool of files.
struct Tree {
    volume: Volume,
    /// Both names of each file of the pool, used in turns.
    names: [Vec<String>; 2],
    data: Vec<u8>,
    buffer: Vec<u8>,
    /// Files created beside the pool.
    created: usize,
}

pub(super) fn measure(run: &Run<'_>, past: Past) -> Result<Vec<Line>> {
    let (how, goal) = match past {
        Past::Meanwhile => ("a snapshot every second".to_string(), 0.95),
        Past::Behind => (format!("{} snapshots behind", run.history.snapshots), 0.98),
    };
    let measure = |step: Step| format!("{}, {how} / none", step.name());
    let mut lines = Step::ALL.map(|step| Line::new(measure(step), Unit::PerSecond, Goal::Ratio(goal)));
    for round in run.rounds() {
        let round = round?;
        let with = Tree::new(run, "with", if past == Past::Behind { run.history.snapshots } else { 0 })?;
        let mut trees = [with, Tree::new(run, "without", 0)?];
        if past == Past::Behind {
            // The same changes without snapshots.
            trees[1].changes(run.history.snapshots, false)?;
            trees.iter_mut().try_for_each(Tree::touch_all)?;
        }
        for (i, (step, line)) in Step::ALL.into_iter().zip(&mut lines).enumerate() {
            if matches!(step, Step::Read) {
                trees.iter_mut().try_for_each(|tree| tree.all(Step::Read, 1))?;
            }
            let mut until = Until::Time(run.history.step);
            for side in turns(round + i) {
                run.options.check_stop()?;
                let every = (past == Past::Meanwhile && side == 0).then_some(EVERY);
                let (count, seconds) = trees[side].step(step, until, every)?;
                line.samples[side].push(count as f64 / seconds);
                until = Until::Count(count);
                trees[side].volume.target.sync()?;
            }
        }
        for tree in trees {
            tree.volume.end()?;
        }
    }
    Ok(lines.into())
}

impl Tree {
    /// With this many snapshots, each after a change.
    fn new(run: &Run<'_>, name: &str, snapshots: usize) -> Result<Tree> {
        let volume = Volume::make(run.options, run.dir, name)?.with_dirs(run.history.directories.max(1))?;
        let names = |prefix: &str| (0..run.history.live.max(1)).map(|i| format!("{prefix}{i:07}")).collect();
        let mut tree = Tree {
            volume,
            names: [names("file"), names("renamed")],
            data: noise(BYTES, 1),
            buffer: vec![0; BYTES],
            created: 0,
        };
        for i in 0..tree.names[0].len() {
            let file = tree.volume.target.create(tree.dir(i), &tree.names[0][i])?;
            tree.volume.target.write_at(&file, 0, &tree.data)?;
        }
        tree.changes(snapshots, true)?;
        tree.volume.target.sync()?;
        Ok(tree)
    }

    /// Makes this many small changes, each with a snapshot after it or none.
    fn changes(&mut self, count: usize, snapshots: bool) -> Result<()> {
        for i in 0..count {
            self.operate(Step::Overwrite, i)?;
            if snapshots {
                self.volume.snapshot(false)?;
            }
        }
        Ok(())
    }

    /// Overwrites all files of the pool, renames them to their other names, and back.
    fn touch_all(&mut self) -> Result<()> {
        self.all(Step::Overwrite, 1)?;
        self.all(Step::Rename, 2)?;
        self.volume.target.sync()
    }

    /// Runs the step on all files of the pool, this many times.
    fn all(&mut self, step: Step, times: usize) -> Result<()> {
        (0..times * self.names[0].len()).try_for_each(|i| self.operate(step, i))
    }

    fn dir(&self, i: usize) -> &Node {
        &self.volume.dirs[i % self.volume.dirs.len()]
    }

    /// Runs a step, with a snapshot at each interval. Returns the number of operations, and the seconds they
    /// took.
    fn step(&mut self, step: Step, until: Until, every: Option<Duration>) -> Result<(usize, f64)> {
        let start = Instant::now();
        let (mut count, mut due) = (0, Duration::ZERO);
        loop {
            if count % UNWATCHED == 0 {
                let now = start.elapsed();
                if count > 0 && matches!(until, Until::Time(most) if now >= most) {
                    break;
                }
                if let Some(every) = every.filter(|_| now >= due) {
                    self.volume.snapshot(false)?;
                    due += every;
                }
            }
            let used_up = matches!(step, Step::Unlink) && count == self.created;
            if used_up || matches!(until, Until::Count(most) if count == most) {
                break;
            }
            self.operate(step, count)?;
            count += 1;
        }
        let seconds = start.elapsed().as_secs_f64();
        if matches!(step, Step::Create) {
            self.created = count;
        }
        Ok((count, seconds))
    }

    /// The operation of this number in a step: on the pool's files in turn.
    fn operate(&mut self, step: Step, i: usize) -> Result<()> {
        let files = self.names[0].len();
        let (target, file, pass) = (&self.volume.target, i % files, i / files);
        let dir = self.dir(file);
        match step {
            Step::Create | Step::Unlink => {
                let name = format!("new{i:08}");
                match step {
                    Step::Create => target.create(self.dir(i), &name).map(drop),
                    _ => target.unlink(self.dir(i), &name),
                }
            }
            Step::Read => {
                let node = target.open(dir, &self.names[0][file])?;
                check_size(target.read_at(&node, 0, &mut self.buffer)? as u64, BYTES as u64)
            }
            Step::Overwrite => {
                let node = target.open(dir, &self.names[0][file])?;
                target.write_at(&node, 0, &self.data)
            }
            Step::Rename => {
                let (from, to) = (&self.names[pass % 2][file], &self.names[(pass + 1) % 2][file]);
                target.rename(dir, from, dir, to)
            }
        }
    }
}
