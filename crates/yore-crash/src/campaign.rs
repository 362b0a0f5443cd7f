//! Many runs: on all processors, until something breaks or enough was tried. A run that breaks a promise is
//! then shortened.

use crate::case::Case;
use crate::compare::compare;
use crate::crash::{Each, Thoroughness};
use crate::generate::Profile;
use crate::record::{record_between, Between};
use crate::systematic;
use crate::volume::{orders, Wrong};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use yore_device::simulated::CrashState;
use yore_fs::{Durability, Engine};

/// What to try, and how much of it.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Seed of the first sequence; the next ones count up.
    pub seed: u64,
    /// The number of the first sequence: greater than 0 to go on with a campaign.
    pub first: u64,
    /// Operations of a sequence.
    pub ops: usize,
    /// Crash states of a sequence.
    pub states_per_sequence: usize,
    /// Stop after this many crash states, if given.
    pub states: Option<u64>,
    /// Stop after this many sequences, if given.
    pub sequences: Option<u64>,
    /// Stop after this time, if given.
    pub time: Option<Duration>,
    /// Stop after this many failures.
    pub failures: usize,
    /// The engine of the volumes.
    pub engine: Engine,
    /// When calls return.
    pub durability: Durability,
    /// Whether the log is on another disk.
    pub elsewhere: bool,
    /// How many sequences run at once.
    pub threads: usize,
    /// Shorten the sequences of failures.
    pub shorten: bool,
    /// The purpose of the sequences.
    pub profile: Profile,
    /// Whether all sequences that can expunge files from snapshots do so.
    pub expunges: bool,
    /// Whether the volumes keep checksums of file data.
    pub checksums: bool,
}

impl Campaign {
    /// Crashes, up to `states` of them, by default settings.
    pub fn crashes(seed: u64, states: u64) -> Campaign {
        Campaign {
            seed,
            first: 0,
            ops: 60,
            states_per_sequence: 200,
            states: Some(states),
            sequences: None,
            time: None,
            failures: 1,
            engine: Engine::Snapshot,
            durability: Durability::Async,
            elsewhere: false,
            threads: std::thread::available_parallelism().map_or(1, |count| count.get()),
            shorten: true,
            profile: Profile::Crash,
            expunges: false,
            checksums: false,
        }
    }

    /// Comparisons with the model: this many sequences, each of this many operations.
    pub fn comparisons(seed: u64, sequences: u64, ops: usize, engine: Engine) -> Campaign {
        Campaign {
            ops,
            states_per_sequence: 0,
            states: None,
            sequences: Some(sequences),
            engine,
            profile: Profile::Model,
            ..Campaign::crashes(seed, 0)
        }
    }

    /// The run of the n-th sequence, and its kind. Of nine sequences with crashes, three are the next cases
    /// of [`crate::systematic`] and one of [`systematic::across`], one is random, one is mostly fsyncs with a
    /// small log, one is disturbed by another thread, one is by several threads, and one copies files. Under
    /// engines that order changes one of the systematic cases gives way to fsyncs of single files. About a
    /// third takes snapshots, except those of several threads. In some that are not by number, each file is
    /// closed after each change, which makes a version. In some freed blocks are discarded, and some begin on
    /// a volume that is nearly full. Of those with snapshots half expunge files from them; with `expunges`
    /// all sequences do, except those of several threads.
    fn case(&self, number: u64) -> (Kind, Case) {
        let seed = self.seed.wrapping_add(number);
        let plain = Case { engine: self.engine, ..Case::new(seed, self.ops, self.profile) };
        let plain = Case { checksums: self.checksums, ..plain };
        if self.profile != Profile::Crash {
            let past = match number % 6 {
                _ if self.expunges => Past::Expunges,
                5 => Past::Expunges,
                2 => Past::Snapshots,
                _ => Past::Nothing,
            };
            return (Kind::Compared, past.of(plain));
        }
        let (kind, case) = self.case_without_events(number, plain);
        let round = number / TURNS;
        let events = match kind {
            // The number of cases is no multiple of 7, so a second pass over all of them takes snapshots in
            // others.
            Kind::Systematic => (round * 3 + number % TURNS) % 7 < 2,
            Kind::Across => round % 7 < 2,
            Kind::Random => round % 3 == 1,
            Kind::Shared => round % 2 == 1,
            Kind::Parts => round % 4 == 3,
            Kind::Fsyncs => round % 5 < 2,
            Kind::Disturbed => round / 3 % 3 == 1,
            Kind::Threads | Kind::Compared => false,
        };
        let closes = match kind {
            Kind::Random => round % 4 == 1,
            Kind::Fsyncs => round % 4 == 2,
            Kind::Disturbed => round % 4 == 3,
            _ => false,
        };
        // Recordings with other policies begin differently.
        let usual = match kind {
            Kind::Random => !closes && round.is_multiple_of(4),
            Kind::Fsyncs | Kind::Disturbed => !closes && round.is_multiple_of(3),
            Kind::Systematic | Kind::Across => round % 5 == 4,
            Kind::Threads | Kind::Shared | Kind::Parts | Kind::Compared => false,
        };
        let all = self.expunges && kind != Kind::Threads;
        let past = match events {
            _ if all => Past::Expunges,
            true if round % 2 == 1 => Past::Expunges,
            true => Past::Snapshots,
            false => Past::Nothing,
        };
        let discard = match kind {
            Kind::Systematic | Kind::Across => round % 6 == 1,
            Kind::Threads => round % 3 == 1,
            Kind::Compared => false,
            _ => round % 5 > 2,
        };
        let nearly_full = match kind {
            Kind::Random => matches!(round % 7, 2 | 5),
            Kind::Fsyncs | Kind::Systematic => round % 8 == 5,
            Kind::Across | Kind::Shared | Kind::Parts | Kind::Disturbed | Kind::Threads | Kind::Compared => {
                false
            }
        };
        // A call that waits for the log would wait for ever behind a stalled sync.
        let stalled = case.stalled && self.durability == Durability::Async;
        let Campaign { durability, elsewhere, checksums, .. } = *self;
        let case = Case { closes, usual, discard, nearly_full, ..case };
        (kind, past.of(Case { stalled, durability, elsewhere, checksums, ..case }))
    }

    fn case_without_events(&self, number: u64, plain: Case) -> (Kind, Case) {
        let round = number / TURNS;
        let log = Some(SMALL_LOGS[(round % SMALL_LOGS.len() as u64) as usize]);
        let small_log = |case: Case| Case { log, profile: Profile::Fsync, ..case };
        let is_ordered = orders(self.engine);
        match number % TURNS {
            2 if is_ordered => {
                let (stalled, commits) = (round % 3 == 1, round % 3 == 2);
                (Kind::Parts, Case { profile: Profile::Part, stalled, commits, ..plain })
            }
            turn @ 0..=2 => {
                let turns = if is_ordered { 2 } else { 3 };
                let case = systematic::spread(self.seed.wrapping_add(round * turns + turn));
                (Kind::Systematic, Case { engine: self.engine, ..Case::systematic(case) })
            }
            3 => {
                let case = systematic::spread_across(self.seed.wrapping_add(round));
                (Kind::Across, Case { engine: self.engine, ..Case::across(case) })
            }
            4 => (Kind::Random, Case { stalled: round % 2 == 1, ..plain }),
            5 => (Kind::Fsyncs, Case { stalled: round % 3 == 1, ..small_log(plain) }),
            6 => match round % 3 {
                0 => (Kind::Disturbed, Case { disturb: true, ..plain }),
                1 => (Kind::Disturbed, Case { commits: true, ..plain }),
                _ => (Kind::Disturbed, Case { commits: true, ..small_log(plain) }),
            },
            8 => {
                let case = Case { profile: Profile::Shared, stalled: round % 4 < 2, ..plain };
                (Kind::Shared, case)
            }
            _ => {
                let threads = 2 + (round % 3) as usize;
                let case = Case { threads, ops: self.ops / 2, commits: round % 4 > 1, ..plain };
                let case = match round % 4 {
                    1 | 3 => small_log(case),
                    0 if is_ordered => Case { profile: Profile::Part, ..case },
                    _ => case,
                };
                (Kind::Threads, case)
            }
        }
    }

    /// Runs the campaign.
    pub fn run(&self) -> Summary {
        let begin = Instant::now();
        let (next, states, stop) = (AtomicU64::new(self.first), AtomicU64::new(0), AtomicBool::new(false));
        let end = self.sequences.map(|most| self.first.saturating_add(most));
        let failures = Mutex::new(Vec::new());
        let kinds = Mutex::new(Kinds::new());
        let running = Running::default();
        let workers = self.threads.max(1);
        let enough = || {
            stop.load(Ordering::Relaxed)
                || self.time.is_some_and(|time| begin.elapsed() >= time)
                || self.states.is_some_and(|most| states.load(Ordering::Relaxed) >= most)
        };
        std::thread::scope(|scope| {
            scope.spawn(|| running.watch());
            for _ in 0..workers {
                scope.spawn(|| {
                    let _done = running.worker(workers);
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if enough() || end.is_some_and(|end| number >= end) {
                            break;
                        }
                        let mut tried = 0;
                        let mut go_on = |_| {
                            tried += 1;
                            states.fetch_add(1, Ordering::Relaxed);
                            !enough()
                        };
                        let (kind, case) = self.case(number);
                        let _entry = running.enter(number, &case);
                        let result = try_case(&case, self.states_per_sequence, &mut go_on);
                        let mut kinds = kinds.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                        let count = kinds.entry(kind).or_default();
                        (count.sequences, count.states) = (count.sequences + 1, count.states + tried);
                        drop(kinds);
                        let Err(failure) = result else { continue };
                        let failure =
                            if self.shorten { shorten(*failure, self.states_per_sequence) } else { *failure };
                        let mut failures = failures.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                        failures.push(failure);
                        if failures.len() >= self.failures {
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let kinds = kinds.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        Summary {
            sequences: kinds.values().map(|count| count.sequences).sum(),
            kinds,
            states: states.load(Ordering::Relaxed),
            failures: failures.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()),
            time: begin.elapsed(),
        }
    }
}

/// What a sequence does with the past.
enum Past {
    Nothing,
    Snapshots,
    /// Snapshots, and files expunged from them.
    Expunges,
}

impl Past {
    /// A case that does that. On a full volume nothing is expunged: a call for several files may have handled
    /// some of them when it fails.
    fn of(self, case: Case) -> Case {
        match self {
            Past::Nothing => case,
            Past::Expunges if case.profile != Profile::Full && !case.nearly_full => case.with_expunges(),
            Past::Snapshots | Past::Expunges => case.with_events(),
        }
    }
}

/// Sequences that take turns in a campaign with crashes.
const TURNS: u64 = 9;
/// Sizes in blocks of the logs of sequences that are to fill them: less than the smallest log that mkfs makes
/// by itself.
const SMALL_LOGS: [u64; 5] = [16, 20, 24, 32, 48];

/// The source of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::Display, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Kind {
    /// A case of [`crate::systematic`].
    Systematic,
    /// A case of [`systematic::across`].
    Across,
    /// A random sequence; in every second one the syncs stall.
    Random,
    /// Mostly small writes and fsyncs, with a small log.
    Fsyncs,
    /// A random sequence, while another thread syncs all the time, or generations begin all the time.
    Disturbed,
    /// Random sequences of several threads at once.
    Threads,
    /// Files are copied, so that they share blocks, and changed.
    Shared,
    /// Files and directories are fsynced beside others that leave their changes pending.
    Parts,
    /// Compared with the model; no crashes.
    Compared,
}

/// How much of a kind was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Sequences begun.
    pub sequences: u64,
    /// Crash states.
    pub states: u64,
}

/// How much of each kind was tried.
pub type Kinds = BTreeMap<Kind, Count>;

/// How long a sequence may take before a warning says that it may hang.
const HANGS_AFTER: Duration = Duration::from_secs(90);

/// The sequences that are running, so that one that hangs can be named: nothing else would tell which it is.
#[derive(Default)]
struct Running {
    state: Mutex<RunningState>,
    finished: Condvar,
}

#[derive(Default)]
struct RunningState {
    cases: HashMap<u64, (Instant, String)>,
    workers_done: usize,
    all_done: bool,
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, RunningState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Records a sequence until the value is dropped.
    fn enter(&self, number: u64, case: &Case) -> impl Drop + '_ {
        self.lock().cases.insert(number, (Instant::now(), case.to_string()));
        AtEnd(move || {
            self.lock().cases.remove(&number);
        })
    }

    /// Counts a worker as done when the value is dropped.
    fn worker(&self, workers: usize) -> impl Drop + '_ {
        AtEnd(move || {
            let mut state = self.lock();
            state.workers_done += 1;
            state.all_done = state.workers_done == workers;
            drop(state);
            self.finished.notify_all();
        })
    }

    /// Names sequences that take too long, until all workers are done.
    fn watch(&self) {
        let mut state = self.lock();
        while !state.all_done {
            let waited = self.finished.wait_timeout(state, HANGS_AFTER / 3);
            state = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
            for (since, case) in state.cases.values() {
                if since.elapsed() > HANGS_AFTER {
                    eprintln!(
                        "still running after {} s: yore-crash replay \"{case}\"",
                        since.elapsed().as_secs()
                    );
                }
            }
        }
    }
}

/// Runs a function when it is dropped.
struct AtEnd<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// What a campaign found.
#[derive(Debug)]
pub struct Summary {
    /// Sequences begun.
    pub sequences: u64,
    /// Crash states tried.
    pub states: u64,
    /// The same by kind.
    pub kinds: Kinds,
    /// What went wrong.
    pub failures: Vec<Failure>,
    /// How long it took.
    pub time: Duration,
}

impl Summary {
    /// Panics with the failures, if there are any: for tests.
    pub fn must_be_good(&self) {
        let list: Vec<String> = self.failures.iter().map(Failure::to_string).collect();
        assert!(list.is_empty(), "{}", list.join("\n\n"));
    }
}

/// A broken promise, and how to reproduce it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The run.
    pub case: Case,
    /// What was wrong.
    pub wrong: Wrong,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "yore-crash replay \"{}\"", self.case)?;
        write!(f, "  [{}] {}", self.wrong.class, self.wrong.message)
    }
}

/// Runs one case: with a crash, that one; without, `states` samples, or the comparison with the model.
///
/// # Errors
/// The first broken promise.
pub fn try_case(
    case: &Case,
    states: usize,
    go_on: &mut dyn FnMut(CrashState) -> bool,
) -> Result<(), Box<Failure>> {
    try_case_between(case, states, go_on, &|device| device)
}

/// The same with a device of the caller's between the file system and the device that records.
///
/// # Errors
/// As [`try_case`].
pub fn try_case_between(
    case: &Case,
    states: usize,
    go_on: &mut dyn FnMut(CrashState) -> bool,
    between: Between<'_>,
) -> Result<(), Box<Failure>> {
    let failed = |case: Case, wrong| Box::new(Failure { case, wrong });
    if matches!(case.profile, Profile::Model | Profile::Full) {
        return guarded(|| compare(case)).map_err(|wrong| failed(case.clone(), wrong));
    }
    let recorded = guarded(|| record_between(case, between)).map_err(|wrong| failed(case.clone(), wrong))?;
    if let Some(state) = case.crash {
        let tried = guarded(|| recorded.try_state(state, case.trial));
        return tried.map(|_| ()).map_err(|wrong| failed(case.clone(), wrong));
    }
    // The state that is being tried, in case something panics.
    let mut current = None;
    let mut each = |state, trial| {
        current = Some((state, trial));
        go_on(state)
    };
    let each: Each<'_> = &mut each;
    let tried = guarded(|| match case.is_by_number() {
        true => recorded.try_all(Thoroughness::default(), case.seed, each),
        false => recorded.try_samples(states, case.seed, each),
    });
    tried.map_err(|wrong| match current {
        Some((state, trial)) => failed(Case { crash: Some(state), trial, ..case.clone() }, wrong),
        None => failed(case.clone(), wrong),
    })
}

/// Turns a panic into something wrong.
fn guarded<T>(work: impl FnOnce() -> Result<T, Wrong>) -> Result<T, Wrong> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panicked(&*panic)))
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Wrong {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    Wrong::new("panic", format!("panicked: {text}"))
}

/// Attempts and time that shortening may take.
const ATTEMPTS: usize = 150;
const SHORTEN_TIME: Duration = Duration::from_secs(20);

/// Leaves operations out as long as an error of the same class remains.
fn shorten(failure: Failure, states: usize) -> Failure {
    let begin = Instant::now();
    let mut best = failure;
    if best.case.depends_on_schedule() {
        // Another schedule would make another run.
        return best;
    }
    let (mut attempts, mut part) = (0, best.case.numbers().len() / 2);
    while part > 0 {
        let (mut at, mut shorter) = (0, false);
        while at < best.case.numbers().len() {
            if attempts >= ATTEMPTS || begin.elapsed() > SHORTEN_TIME {
                return best;
            }
            attempts += 1;
            let mut keep = best.case.numbers();
            keep.drain(at..(at + part).min(keep.len()));
            match try_case(&best.case.with_only(&keep), states, &mut |_| true) {
                Err(found) if found.wrong.class == best.wrong.class => {
                    best = *found;
                    shorter = true;
                }
                _ => at += part,
            }
        }
        if !shorter || part > 1 {
            part /= 2;
        }
    }
    best
}
