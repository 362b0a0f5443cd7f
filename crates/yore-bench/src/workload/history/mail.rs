//! PostMark with snapshots and without: how fast it runs while a snapshot is taken every second.

use super::run::{turns, Goal, Line, Run};
use super::volume::Volume;
use crate::report::Unit;
use crate::workload::postmark::{Plan, PostMark, Run as Transactions, Step};
use crate::{Result, Target as _};
use std::time::{Duration, Instant};

/// How often a snapshot is taken; the first one at once.
const EVERY: Duration = Duration::from_secs(1);
/// Steps between two looks at the clock.
const UNWATCHED: usize = 16;

/// PostMark of this many transactions, in the proportions of its preset.
pub(super) fn options(transactions: usize) -> PostMark {
    let transactions = transactions.max(1);
    let preset = PostMark::default();
    let share = |of: usize| (of * transactions / preset.transactions).max(1);
    PostMark { transactions, files: share(preset.files), directories: share(preset.directories), ..preset }
}

/// Transactions a second.
pub(super) fn speed(run: &Run<'_>) -> Result<Vec<Line>> {
    let options = options(run.history.transactions);
    let plan = Plan::new(&options);
    let measure = "PostMark's transactions, a snapshot every second / none";
    let mut line = Line::new(measure, Unit::PerSecond, Goal::Ratio(0.95));
    for round in run.rounds() {
        for side in turns(round?) {
            let volume = Volume::make(run.options, run.dir, "mail")?.with_dirs(options.directories)?;
            let mut transactions = Transactions::new(&options, &plan, &volume.target, &volume.dirs);
            transactions.all(&plan.pool)?;
            volume.target.sync()?;
            let seconds = match side {
                0 => with_snapshots(run, &mut transactions, &volume, &plan.transactions)?,
                _ => transactions.all(&plan.transactions)?,
            };
            line.samples[side].push(plan.transactions.len() as f64 / 2.0 / seconds);
            drop(transactions);
            volume.end()?;
        }
    }
    Ok(vec![line])
}

/// Seconds for all steps, with a snapshot at each interval.
fn with_snapshots(
    run: &Run<'_>,
    transactions: &mut Transactions<'_, crate::target::LibraryTarget>,
    volume: &Volume,
    steps: &[Step],
) -> Result<f64> {
    let start = Instant::now();
    let mut due = Duration::ZERO;
    for steps in steps.chunks(UNWATCHED) {
        if start.elapsed() >= due {
            run.options.check_stop()?;
            volume.snapshot(false)?;
            due += EVERY;
        }
        transactions.all(steps)?;
    }
    Ok(start.elapsed().as_secs_f64())
}
