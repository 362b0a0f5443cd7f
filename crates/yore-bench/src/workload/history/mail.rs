//! PostMark with snapshots and without: how fast it is while one is taken every second, and how many blocks of metadata a day of it
//! leaves with one each hour and each minute.
//!
//! A day is the whole trace: what counts for the metadata is how much happens between two snapshots, not how long that takes here.
//! Blocks are counted when the transactions are over, with what is left of the pool, after a sync.

use super::volume::Volume;
use super::{turns, Goal, Line, Run};
use crate::report::Unit;
use crate::workload::postmark::{Plan, PostMark, Run as Transactions, Step};
use crate::{Result, Target as _};
use std::time::{Duration, Instant};
use yore_fs::Node;

/// How often a snapshot is taken; the first one at once.
const EVERY: Duration = Duration::from_secs(1);
/// Steps between two looks at the clock.
const UNWATCHED: usize = 16;
/// Snapshots of a day, how they are called, and how much of the metadata the rest may be: 2 and 3 % more.
const DAYS: [(usize, &str, f64); 2] = [(24, "each hour", 1.0 / 1.02), (24 * 60, "each minute", 1.0 / 1.03)];
/// Bytes of a block.
const BLOCK: f64 = 4096.0;

/// PostMark in the proportions of its preset.
fn options(run: &Run<'_>) -> PostMark {
    let transactions = run.history.transactions.max(1);
    let preset = PostMark::default();
    let share = |of: usize| (of * transactions / preset.transactions).max(1);
    PostMark { transactions, files: share(preset.files), directories: share(preset.directories), ..preset }
}

/// A volume with the pool, and the directories it is in.
fn with_pool(run: &Run<'_>, options: &PostMark, plan: &Plan, name: &str) -> Result<(Volume, Vec<Node>)> {
    let volume = Volume::make(run.options, run.dir, name)?;
    let dirs = volume.directories(options.directories)?;
    Transactions::new(options, plan, &volume.target, &dirs).all(&plan.pool)?;
    volume.target.sync()?;
    Ok((volume, dirs))
}

/// Transactions a second.
pub(super) fn speed(run: &Run<'_>) -> Result<Vec<Line>> {
    let options = options(run);
    let plan = Plan::new(&options);
    let measure = "PostMark's transactions, a snapshot every second / none";
    let mut line = Line::new(measure, Unit::PerSecond, Goal::Ratio(0.95));
    for round in run.rounds() {
        for side in turns(round?) {
            let (volume, dirs) = with_pool(run, &options, &plan, "mail")?;
            let seconds = {
                let mut transactions = Transactions::new(&options, &plan, &volume.target, &dirs);
                match side {
                    0 => with_snapshots(run, &mut transactions, &volume, &plan.transactions)?,
                    _ => transactions.all(&plan.transactions)?,
                }
            };
            line.samples[side].push(plan.transactions.len() as f64 / 2.0 / seconds);
            drop(dirs);
            volume.end()?;
        }
    }
    Ok(vec![line])
}

/// Seconds for all steps, with a snapshot every so often.
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

/// Bytes of metadata.
pub(super) fn metadata(run: &Run<'_>) -> Result<Vec<Line>> {
    let options = options(run);
    let plan = Plan::new(&options);
    let measure = |how: &str| format!("metadata after a day of PostMark, a snapshot {how} / none");
    let mut lines = DAYS.map(|(_, how, goal)| Line::new(measure(how), Unit::Bytes, Goal::Ratio(goal)));
    for round in run.rounds() {
        round?;
        let without = after_a_day(run, &options, &plan, 0)?;
        for ((snapshots, ..), line) in DAYS.iter().zip(&mut lines) {
            line.samples[0].push(after_a_day(run, &options, &plan, *snapshots)?);
            line.samples[1].push(without);
        }
    }
    Ok(lines.into())
}

fn after_a_day(run: &Run<'_>, options: &PostMark, plan: &Plan, snapshots: usize) -> Result<f64> {
    run.options.check_stop()?;
    let (volume, dirs) = with_pool(run, options, plan, "day")?;
    let mut transactions = Transactions::new(options, plan, &volume.target, &dirs);
    match snapshots {
        0 => drop(transactions.all(&plan.transactions)?),
        _ => {
            for steps in plan.transactions.chunks(plan.transactions.len().div_ceil(snapshots).max(1)) {
                volume.snapshot(false)?;
                transactions.all(steps)?;
            }
        }
    }
    drop(transactions);
    volume.target.sync()?;
    let blocks = volume.target.view().info().metadata_blocks;
    drop(dirs);
    volume.end()?;
    Ok(blocks as f64 * BLOCK)
}
