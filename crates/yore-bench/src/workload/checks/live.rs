//! Work beside a check of the volume in use: PostMark's transactions, in the library and on a mount.
//!
//! In each round the same transactions are carried out alone, and beside checks that follow one another
//! without a pause: the worst that can be asked for. Pairs take turns. On the volume is the tree that other
//! parts check, so that a check has something to do.

use super::run::{Found, Run};
use crate::report::{LeftOut, Unit};
use crate::rival::{OnTarget, Rival, RivalKind, Serving};
use crate::workload::lines::{turns, Goal, Line};
use crate::workload::player::Player;
use crate::workload::postmark::{self, Plan, PostMark};
use crate::{program, BenchError, Result, Target};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use yore_fs::View;
use yore_online::OnlineOptions;

/// The least share of the speed alone.
const GOAL: f64 = 0.85;

pub(super) fn measure(run: &Run<'_>) -> Result<Found> {
    let mut found = Found::default();
    for kind in [RivalKind::Library, RivalKind::Mount] {
        match on(run, kind) {
            Ok((line, checks)) => {
                found.notes.push(format!("{checks} checks were made beside PostMark on {}.", kind.name()));
                found.lines.push(line);
            }
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            Err(error) => found
                .left_out
                .push(LeftOut { target: format!("live on {}", kind.name()), reason: error.to_string() }),
        }
    }
    Ok(found)
}

fn on(run: &Run<'_>, kind: RivalKind) -> Result<(Line, usize)> {
    let directory = run.directory(&format!("live-{}", kind.name()))?;
    let rival = Rival::make(kind, &run.options.environment(directory.path.clone()))?;
    let measured = rounds(run, &rival);
    rival.end()?;
    measured
}

fn rounds(run: &Run<'_>, rival: &Rival) -> Result<(Line, usize)> {
    rival.measure(Fill { run })?;
    let plan = Plan::new(&run.checks.postmark);
    let checker = Checker::of(rival)?;
    let name = format!("PostMark beside checks / alone, {}", rival.kind().name());
    let mut line = Line::new(name, Unit::PerSecond, Goal::Ratio(GOAL));
    let mut checks = 0;
    for round in run.rounds() {
        let round = round?;
        let mut rates = [0.0; 2];
        for side in turns(round) {
            let mail =
                |name: String| rival.measure(Mail { options: &run.checks.postmark, plan: &plan, name });
            let name = format!("mail-{round}-{side}-");
            rates[side] = match side {
                0 => {
                    let (rate, made) = checker.beside(|| mail(name))?;
                    checks += made;
                    rate
                }
                _ => mail(name)?,
            };
            rival.settle()?;
        }
        line.push(rates);
    }
    Ok((line, checks))
}

/// What checks a volume in use.
enum Checker {
    /// The library.
    View(View),
    /// `yore check --online`.
    Program { yore: PathBuf, mount: PathBuf },
}

impl Checker {
    fn of(rival: &Rival) -> Result<Checker> {
        match (rival.view(), rival.serving()) {
            (Some(view), _) => Ok(Checker::View(view)),
            (None, Serving::Program(yore)) => {
                Ok(Checker::Program { yore: yore.clone(), mount: rival.path()? })
            }
            (None, Serving::InProcess) => Err(BenchError::impossible(
                "a mount is checked by a command",
                "measure with the yore command",
            )),
        }
    }

    fn check(&self) -> Result<()> {
        match self {
            Checker::View(view) => {
                let go_on = &mut |_: &yore_check::Progress| ControlFlow::Continue(());
                let found = yore_online::check(view, &OnlineOptions::default(), go_on)
                    .map_err(BenchError::checking)?;
                crate::workload::steps::check(
                    found.is_clean(),
                    format_args!("{} findings", found.left_count),
                    format_args!("a volume in which nothing is wrong"),
                )
            }
            Checker::Program { yore, mount } => {
                let mut check = program::command(yore);
                program::run(check.args(["check", "--online", "-q"]).arg(mount), "yore").map(drop)
            }
        }
    }

    /// Does `work` beside checks. Returns how many there were, too.
    fn beside<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<(R, usize)> {
        let (stop, made) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let checks = scope.spawn(|| -> Result<()> {
                while !stop.load(Ordering::Relaxed) {
                    self.check()?;
                    made.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
            let done = work();
            stop.store(true, Ordering::Relaxed);
            checks.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok((done?, made.load(Ordering::Relaxed)))
        })
    }
}

/// Makes the tree.
struct Fill<'r> {
    run: &'r Run<'r>,
}

impl OnTarget for Fill<'_> {
    type Output = ();

    fn on<T: Target>(self, target: &T) -> Result<()> {
        let script = self.run.checks.tree().script();
        let player = Player::new(&script, target);
        for phase in &script.phases {
            self.run.options.check_stop()?;
            player.with_threads(phase)?;
        }
        target.sync()
    }
}

/// PostMark's transactions; their rate. Pool and directories come and go.
struct Mail<'p> {
    options: &'p PostMark,
    plan: &'p Plan,
    name: String,
}

impl OnTarget for Mail<'_> {
    type Output = f64;

    fn on<T: Target>(self, target: &T) -> Result<f64> {
        let Mail { options, plan, name } = self;
        let names: Vec<String> = (0..options.directories.max(1)).map(|d| format!("{name}{d}")).collect();
        let root = target.root()?;
        let dirs = target.new_dirs(&root, &names)?;
        let mut run = postmark::Run::new(options, plan, target, &dirs);
        run.all(&plan.pool)?;
        let seconds = run.all(&plan.transactions)?;
        run.all(&plan.rest)?;
        drop(run);
        drop(dirs);
        names.iter().try_for_each(|name| target.rmdir(&root, name))?;
        Ok(plan.transactions.len() as f64 / 2.0 / seconds)
    }
}
