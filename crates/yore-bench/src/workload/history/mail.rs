//! PostMark with snapshots and without: how fast it runs while a snapshot is taken every second.

use super::run::{turns, Goal, Line, Run};
use super::volume::Volume;
use crate::report::Unit;
use crate::workload::postmark::{Plan, PostMark, Run as Transactions};
use crate::{Result, Target};
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
            let mut take = || match side {
                0 => volume.snapshot(false).map(drop),
                _ => Ok(()),
            };
            let (target, dirs) = (&volume.target, &volume.dirs[..]);
            let speed = transactions_a_second(run, (&options, &plan), (target, dirs), &mut take)?;
            line.samples[side].push(speed);
            volume.end()?;
        }
    }
    Ok(vec![line])
}

/// Creates PostMark's pool; then all its transactions under the clock, with a call of `take` at each
/// interval.
pub(super) fn transactions_a_second<T: Target>(
    run: &Run<'_>,
    (options, plan): (&PostMark, &Plan),
    (target, dirs): (&T, &[T::Dir]),
    take: &mut dyn FnMut() -> Result<()>,
) -> Result<f64> {
    let mut transactions = Transactions::new(options, plan, target, dirs);
    transactions.all(&plan.pool)?;
    target.sync()?;
    let start = Instant::now();
    let mut due = Duration::ZERO;
    for steps in plan.transactions.chunks(UNWATCHED) {
        if start.elapsed() >= due {
            run.options.check_stop()?;
            take()?;
            due += EVERY;
        }
        transactions.all(steps)?;
    }
    Ok(plan.transactions.len() as f64 / 2.0 / start.elapsed().as_secs_f64())
}
