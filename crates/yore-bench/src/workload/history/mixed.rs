//! PostMark on mounts while a snapshot is taken every second, and with none: Yore's, and Btrfs's with
//! `btrfs subvolume snapshot -r`, on images of the same size on the same disk.

use super::mail;
use super::run::{turns, Goal, Line, Run};
use crate::report::Unit;
use crate::rival::{OnTarget, Rival, RivalKind};
use crate::workload::postmark::{Plan, PostMark};
use crate::{program, BenchError, Result, Target};
use std::fs::File;
use std::path::Path;
use yore_control::{Client as _, Mounted, Take};

/// The file systems: each with its goal.
const KINDS: [(RivalKind, Goal); 2] = [(RivalKind::Mount, Goal::Ratio(0.97)), (RivalKind::Btrfs, Goal::None)];

/// The rows; none for what cannot be mounted, with the reasons.
pub(super) fn measure(run: &Run<'_>) -> Result<(Vec<Line>, Vec<String>)> {
    let options = mail::options(run.history.transactions);
    let plan = Plan::new(&options);
    let mut lines = Vec::new();
    let mut reasons = Vec::new();
    for (kind, goal) in KINDS {
        let measure = format!("PostMark's transactions on {}, a snapshot every second / none", kind.name());
        lines.push((kind, Line::new(measure, Unit::PerSecond, goal)));
    }
    for round in run.rounds() {
        let round = round?;
        let mut failed = None;
        for (i, (kind, line)) in lines.iter_mut().enumerate() {
            for side in turns(round + i) {
                run.options.check_stop()?;
                match speed(run, *kind, side == 0, &options, &plan) {
                    Ok(speed) => line.samples[side].push(speed),
                    Err(error @ (BenchError::Impossible { .. } | BenchError::NotInstalled { .. })) => {
                        reasons.push(format!("{} was not measured with snapshots: {error}.", kind.name()));
                        failed = Some(*kind);
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        lines.retain(|(kind, _)| Some(*kind) != failed);
    }
    Ok((lines.into_iter().map(|(_, line)| line).collect(), reasons))
}

/// Transactions a second on a file system of its own.
fn speed(run: &Run<'_>, kind: RivalKind, snapshots: bool, options: &PostMark, plan: &Plan) -> Result<f64> {
    let rival = Rival::make(kind, &run.options.environment(run.dir.to_path_buf()))?;
    let at = rival.path()?;
    let speed = rival.measure(Work { run, options, plan, snapshots: snapshots.then_some((kind, &at)) })?;
    rival.end()?;
    Ok(speed)
}

struct Work<'w> {
    run: &'w Run<'w>,
    options: &'w PostMark,
    plan: &'w Plan,
    /// How they are taken, and where; `None`: none is.
    snapshots: Option<(RivalKind, &'w Path)>,
}

impl OnTarget for Work<'_> {
    type Output = f64;

    fn on<T: Target>(self, target: &T) -> Result<f64> {
        let names: Vec<String> = (0..self.options.directories.max(1)).map(|d| format!("d{d}")).collect();
        let dirs = target.new_dirs(&target.root()?, &names)?;
        let mut taken = 0;
        let mut next = || -> Result<()> {
            taken += 1;
            match self.snapshots {
                Some((kind, at)) => take(kind, at, taken),
                None => Ok(()),
            }
        };
        mail::transactions_a_second(self.run, (self.options, self.plan), (target, &dirs), &mut next)
    }
}

fn take(kind: RivalKind, at: &Path, number: usize) -> Result<()> {
    if kind == RivalKind::Btrfs {
        let mut btrfs = program::command("btrfs");
        btrfs.args(["subvolume", "snapshot", "-r"]).arg(at).arg(at.join(format!("snapshot-{number}")));
        return program::run(&mut btrfs, "btrfs-progs").map(drop);
    }
    let directory = File::open(at).map_err(BenchError::system("opening the mount"))?;
    let taken = Mounted(&directory).take(Take::default());
    taken.map(drop).map_err(BenchError::library("taking a snapshot through the mount"))
}
