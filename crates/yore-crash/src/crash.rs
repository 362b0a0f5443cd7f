//! Crash states: records a sequence on a simulated device, produces what crashes could have left, and tries it.
//!
//! A mark before and after each operation says, for every event of the device, which operations had begun and
//! which had returned. A state is *tried*: the checker must find nothing, the volume must open without repair, what
//! a walk finds must satisfy the [`Judge`], what had no name must be gone; and of some states: the volume can be used
//! and is clean afterwards, and a second crash at any moment of the mount is survived in the same way.

use crate::case::Case;
use crate::judge::{Bounds, History, Judge, Unit};
use crate::op::Op;
use crate::runner::Runner;
use crate::subject::{observe, ViewSubject};
use crate::volume::{make, must_be_clean, open, Wrong, VOLUME_SIZE};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use yore_device::simulated::{Choice, CrashPoint, CrashState, Event, SimulatedDevice, Tearing, Trace};
use yore_device::{Device, MemoryDevice};
use yore_fs::{Caller, Error, FileKind, InodeNo, View, WriteMode};

/// A sequence that was carried out on a recording device.
pub struct Recorded {
    trace: Trace,
    judge: Judge,
    /// By number of events.
    bounds: Vec<Bounds>,
}

/// What to do with a state beyond looking at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    /// Change something, unmount, and check again.
    pub use_it: bool,
    /// Crash again while mounting: the seed of where and how.
    pub again: Option<u64>,
}

/// Carries a sequence out, comparing each result with the model.
///
/// # Errors
/// If a result differs, or the volume cannot be made, opened or closed.
pub fn record(case: &Case) -> Result<Recorded, Wrong> {
    let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(VOLUME_SIZE)));
    let shared: Arc<dyn Device> = device.clone();
    make(&shared, case.engine, case.seed)?;
    device.restart_trace();
    let view = open(shared.clone()).map_err(|error| Wrong::new("open", error))?;
    let (runner, mut history) = with_disturbance(&view, case.disturb, || run(case, &device, &view))?;
    unmount(runner, &mut history, &device)?;
    let trace = device.trace();
    let bounds = bounds_of(&trace);
    Ok(Recorded { bounds, judge: Judge::new(history), trace })
}

/// Runs `work` while, if asked for, another thread syncs all the time.
fn with_disturbance<T>(view: &View, disturb: bool, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if disturb {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // An error is sticky, so the next operation of the sequence reports it.
                    if view.sync().is_err() {
                        break;
                    }
                }
            });
        }
        // Also when the work panics, or the scope would wait for ever.
        struct Finish<'a>(&'a AtomicBool);
        impl Drop for Finish<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _finish = Finish(&done);
        work()
    })
}

fn run(case: &Case, device: &SimulatedDevice, view: &View) -> Result<(Runner<ViewSubject>, History), Wrong> {
    let root = view.getattr(view.root()).map_err(|error| Wrong::new("open", error))?;
    let mut runner = Runner::new(ViewSubject::new(view.clone()), &root);
    let mut history = History::new(runner.model.clone());
    for (number, op) in case.operations().into_iter().enumerate() {
        device.mark(number as u64 * 2);
        let result = runner.step(&op);
        device.mark(number as u64 * 2 + 1);
        let effects = result.map_err(|error| Wrong::new("result", format!("operation {number}: {error}")))?;
        history.push(op, effects, runner.model.clone());
    }
    if runner.full > 0 {
        return Err(Wrong::new("result", "the volume was full though little was stored"));
    }
    runner.compare().map_err(|error| Wrong::new("tree", format!("after the last operation: {error}")))?;
    Ok((runner, history))
}

/// Unmounting gives back what is held, and makes everything durable, so it counts as a last sync.
fn unmount(
    mut runner: Runner<ViewSubject>,
    history: &mut History,
    device: &SimulatedDevice,
) -> Result<(), Wrong> {
    let (number, mut model) = (history.ops.len() as u64, runner.model.without_slots());
    device.mark(number * 2);
    runner.subject.drop_held();
    let closed = runner.subject.view().close();
    device.mark(number * 2 + 1);
    closed.map_err(|error| Wrong::new("close", error))?;
    let effects = model.apply(&Op::Sync).1;
    history.push(Op::Sync, effects, model);
    must_be_clean(device, "after the unmount").map(|_| ())
}

/// For each number of events, how far the operations had come.
fn bounds_of(trace: &Trace) -> Vec<Bounds> {
    let mut now = Bounds { begun: 0, returned: 0 };
    let mut bounds = vec![now];
    for event in trace.events() {
        if let Event::Mark(mark) = event {
            let number = (mark / 2) as usize + 1;
            match mark % 2 {
                0 => now.begun = number,
                _ => now.returned = number,
            }
        }
        bounds.push(now);
    }
    bounds
}

impl Recorded {
    /// How many events were recorded: a crash can happen after 0 up to this many.
    pub fn events(&self) -> usize {
        self.trace.len()
    }

    /// How far the operations had come after so many events.
    pub fn bounds(&self, after_event: usize) -> Bounds {
        self.bounds[after_event.min(self.bounds.len() - 1)]
    }

    /// The judge of this sequence.
    pub fn judge(&self) -> &Judge {
        &self.judge
    }

    /// Tries about `count` states, chosen by `seed`: `each` is called before each, and returns false to stop.
    ///
    /// # Errors
    /// The promise that the state last given to `each` breaks.
    pub fn try_samples(
        &self,
        count: usize,
        seed: u64,
        each: &mut dyn FnMut(CrashState, Trial) -> bool,
    ) -> Result<(), Wrong> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut after: Vec<usize> = (0..count).map(|_| random.random_range(0..=self.events())).collect();
        after.sort_unstable();
        let mut points = self.trace.crash_points(after.first().copied().unwrap_or(0));
        let mut point: Option<Arc<CrashPoint>> = None;
        let mut tried_as_is = false;
        for at in after {
            while point.as_ref().is_none_or(|point| point.after_event() < at) {
                point = points.next();
                tried_as_is = false;
            }
            let Some(point) = &point else { break };
            if point.pending() == 0 && std::mem::replace(&mut tried_as_is, true) {
                continue;
            }
            let state = choose(point, &mut random);
            let trial = Trial {
                use_it: random.random_range(0..8) == 0,
                again: (random.random_range(0..8) == 0).then(|| random.random_range(0..1_000_000)),
            };
            if !each(state, trial) {
                break;
            }
            self.try_at(point, state, trial)?;
        }
        Ok(())
    }

    /// Tries one state.
    ///
    /// # Errors
    /// The promise that it breaks, or that the trace has no such state.
    pub fn try_state(&self, state: CrashState, trial: Trial) -> Result<usize, Wrong> {
        let point = self.trace.crash_point(state.after_event).map_err(|error| Wrong::new("replay", error))?;
        self.try_at(&point, state, trial)
    }

    fn try_at(&self, point: &CrashPoint, state: CrashState, trial: Trial) -> Result<usize, Wrong> {
        let medium =
            point.materialise(state.choice, state.tearing).map_err(|error| Wrong::new("replay", error))?;
        let bounds = self.bounds(state.after_event);
        let unit = unit_of(state);
        match trial.again {
            None => self.try_medium(Arc::new(medium), bounds, unit, trial.use_it),
            Some(seed) => self.try_again(medium, bounds, unit, seed),
        }
    }

    /// Mounts on a recording device, crashes that, and tries what is left.
    fn try_again(&self, medium: MemoryDevice, bounds: Bounds, unit: Unit, seed: u64) -> Result<usize, Wrong> {
        let device = Arc::new(SimulatedDevice::new(medium));
        let first = self.try_medium(device.clone(), bounds, unit, false)?;
        let trace = device.trace();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let after_event = random.random_range(0..=trace.len());
        let point = trace.crash_point(after_event).map_err(|error| Wrong::new("replay", error))?;
        let state = choose(&point, &mut random);
        let medium =
            point.materialise(state.choice, state.tearing).map_err(|error| Wrong::new("replay", error))?;
        let second = self.try_medium(Arc::new(medium), bounds, unit, false).map_err(|wrong| {
            Wrong::new(wrong.class, format!("after a second crash, {state} of the mount: {}", wrong.message))
        })?;
        // The two may differ only where the judge cannot tell moments apart.
        let hash = |moment: usize| {
            crate::tree::Tree::of(&self.judge.history().states[moment].without_slots()).names_hash()
        };
        match hash(first) == hash(second) {
            true => Ok(first),
            false => Err(Wrong::new(
                "again",
                format!("the first mount found moment {first}, the mount after a second crash ({state}) moment {second}"),
            )),
        }
    }

    fn try_medium(
        &self,
        device: Arc<dyn Device>,
        bounds: Bounds,
        unit: Unit,
        use_it: bool,
    ) -> Result<usize, Wrong> {
        must_be_clean(&*device, "as the crash left it")?;
        let view = open(device.clone()).map_err(|error| Wrong::new("mount", error))?;
        let state = view.info().state;
        if state == "must be checked" || state == "leaks pending" {
            return Err(Wrong::new("mount", format!("the volume calls itself \"{state}\"")));
        }
        let tree = observe(&view, view.root()).map_err(|error| Wrong::new("read", error))?;
        let moment = self.judge.judge(&tree, bounds, unit).map_err(|error| Wrong::new("judge", error))?;
        for (number, incarnation) in self.judge.orphans(moment) {
            match view.node(InodeNo(number), Some(incarnation)) {
                Err(Error::Stale) => {}
                Ok(_) => {
                    return Err(Wrong::new(
                        "orphan",
                        format!("inode {number} has no name and is still there"),
                    ))
                }
                Err(error) => return Err(Wrong::new("orphan", format!("node {number}: {error}"))),
            }
        }
        if use_it {
            use_volume(&view)?;
        }
        view.close().map_err(|error| Wrong::new("close", error))?;
        if use_it {
            must_be_clean(&*device, "after the volume was used and unmounted")?;
        }
        Ok(moment)
    }
}

/// Draws one of the states of a point.
fn choose(point: &CrashPoint, random: &mut Xoshiro256PlusPlus) -> CrashState {
    let pending = point.pending();
    let choice = match random.random_range(0..10) {
        _ if pending == 0 => Choice::None,
        0 => Choice::None,
        1 => Choice::All,
        2..=3 => Choice::AllBut(random.random_range(0..pending)),
        _ => Choice::Seed(random.random_range(0..1_000_000)),
    };
    let tearing = match random.random_range(0..2) {
        0 if matches!(choice, Choice::Seed(_)) => Tearing::Blocks,
        _ => Tearing::Sectors,
    };
    CrashState { after_event: point.after_event(), choice, tearing }
}

/// Sectors that tear, tear data that is overwritten in place as well.
fn unit_of(state: CrashState) -> Unit {
    match (state.tearing, state.choice) {
        (Tearing::Sectors, Choice::Seed(_) | Choice::Index(_)) => Unit::Sector,
        _ => Unit::Block,
    }
}

/// Makes a file and a directory, and removes something if there is anything.
fn use_volume(view: &View) -> Result<(), Wrong> {
    let wrong = |what: &str, error: Error| Wrong::new("use", format!("{what} after the mount: {error}"));
    let (caller, root) = (Caller::superuser(), view.root());
    let name = b"made after the crash";
    let node = view
        .create(&caller, root, name, FileKind::Regular, 0o600, 0)
        .map_err(|error| wrong("create", error))?;
    let data = crate::op::payload(1, 20_000);
    let mode = WriteMode { append: false, kill_set_id: false };
    view.write(node.inode(), 0, &data, mode).map_err(|error| wrong("write", error))?;
    view.mkdir(&caller, root, b"directory made after the crash", 0o700)
        .map_err(|error| wrong("mkdir", error))?;
    view.fsync(node.inode(), false).map_err(|error| wrong("fsync", error))?;
    let mut victims = Vec::new();
    view.readdir(root, 0, &mut |item| {
        if item.kind == FileKind::Regular && item.name != name {
            victims.push(item.name.to_vec());
        }
        true
    })
    .map_err(|error| wrong("readdir", error))?;
    if let Some(victim) = victims.first() {
        view.unlink(root, victim).map_err(|error| wrong("unlink", error))?;
    }
    view.sync().map_err(|error| wrong("sync", error))?;
    let mut back = vec![0; data.len()];
    let count = view.read(node.inode(), 0, &mut back).map_err(|error| wrong("read", error))?;
    match count == data.len() && back == data {
        true => Ok(()),
        false => Err(Wrong::new("use", "a file written after the mount reads back differently")),
    }
}
