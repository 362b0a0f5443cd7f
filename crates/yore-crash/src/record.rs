//! Runs sequences on a device that records, and compares each result with the model.
//!
//! A mark before and after each operation shows, for every entry of the device, which operations had begun
//! and which had returned. The judge's knowledge afterwards is a [`Recorded`]: the trace, and for each
//! [`Part`] of the tree its judge and how far its operations had come at each entry. A sequence by one thread
//! has one part, the whole tree; [`crate::together`] records several threads, each with a part of its own.

use crate::case::Case;
use crate::fill;
use crate::generate::{sequence, Profile};
use crate::judge::{History, Judge};
use crate::marks::{bounds_of, mark};
use crate::model::{Effects, State};
use crate::op::{Op, Target};
use crate::past::{weave, Seen, Snapshots};
use crate::recorded::{Order, Part, Recorded};
use crate::runner::Runner;
use crate::stalled::{Gate, Gated, StalledSync};
use crate::subject::ViewSubject;
use crate::systematic;
use crate::together;
use crate::tree::Tree;
use crate::volume::{
    make, make_with, must_be_sound, open, open_with, sides, used_device, used_pair, Findings, Wrong, NEVER,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;
use yore_device::simulated::SimulatedDevice;
use yore_device::Device;
use yore_fs::{Engine, MkfsOptions, Policy, Versioning, View};

/// The age of changes at which a generation begins, in runs where generations begin all the time.
const AT_ONCE: Duration = Duration::from_micros(20);

/// Puts a device between the file system and the one that records: for tests that make the medium's contract
/// wrong.
pub type Between<'a> = &'a dyn Fn(Arc<SimulatedDevice>) -> Arc<dyn Device>;

/// Carries a case out.
///
/// # Errors
/// If a result differs from the model, or the volume cannot be made, opened or closed.
pub fn record(case: &Case) -> Result<Recorded, Wrong> {
    record_between(case, &|device| device)
}

/// The same with a device of the caller's in between, which takes effect when the volume is made.
///
/// # Errors
/// As [`record`].
pub fn record_between(case: &Case, between: Between<'_>) -> Result<Recorded, Wrong> {
    let used = if case.elsewhere { used_pair() } else { used_device() };
    // The log has gaps of none, one, or two blocks.
    let used = used.turning(case.seed % 3);
    let device = Arc::new(SimulatedDevice::new(used));
    let raw: Arc<dyn Device> = device.clone();
    let policy = match case.usual {
        true => MkfsOptions::usual_policy(),
        false => Policy::default(),
    };
    make_with(&raw, (case.engine, case.checksums), case.seed, case.log, policy)?;
    if case.profile == Profile::Shared {
        share_first(&raw)?;
    }
    device.restart_trace();
    let gate = case.stalled.then(|| Arc::new(Gated::new(between(device.clone()), Gate::new())));
    let used: Arc<dyn Device> = match &gate {
        Some(gate) => gate.clone(),
        None => between(device.clone()),
    };
    let interval = if case.commits { AT_ONCE } else { NEVER };
    let opened = open_with(used, interval, case.durability, case.discard);
    let view = opened.map_err(|error| Wrong::new("open", error))?;
    if case.closes {
        let close = Policy { versioning: Some(Versioning::Close), ..Policy::default() };
        view.set_policy(view.root(), &close).map_err(|error| Wrong::new("open", error))?;
    }
    if case.threads > 1 {
        return together::record(case, &device, &view);
    }
    let root = view.getattr(view.root()).map_err(|error| Wrong::new("open", error))?;
    let mut run = Run::new(&device, &view, State::new(&root));
    if case.is_by_number() {
        run.carry_out(systematic::preparation(case.seed))?;
        run.forget_events();
    }
    if case.nearly_full {
        run.carry_out(fill::leave_little(&view, case.seed))?;
        run.forget_events();
        run.nearly_full = true;
    }
    run.gate = gate;
    run.history.settles = case.settles();
    run.order = Order::of(case.engine);
    run.discards = case.discard;
    run.has_shared = case.profile == Profile::Shared;
    with_disturbance(&view, case.disturb, || run.carry_out(case.operations()))?;
    run.finish()
}

/// Runs operations for which there is no line, after others that no crash meets; the last of those must be a
/// sync.
///
/// # Errors
/// As [`record`].
pub fn record_operations(preparation: Vec<Op>, ops: Vec<Op>) -> Result<Recorded, Wrong> {
    let device = Arc::new(SimulatedDevice::new(used_device()));
    let used: Arc<dyn Device> = device.clone();
    make(&used, Engine::Snapshot, 1)?;
    device.restart_trace();
    let view = open(used).map_err(|error| Wrong::new("open", error))?;
    let root = view.getattr(view.root()).map_err(|error| Wrong::new("open", error))?;
    let mut run = Run::new(&device, &view, State::new(&root));
    run.carry_out(preparation)?;
    run.forget_events();
    run.carry_out(ops)?;
    run.finish()
}

/// Goes on with a volume that was just opened on `device`, and that has `tree` and these snapshots. Takes
/// further snapshots if there are any.
///
/// # Errors
/// As [`record`].
pub(crate) fn record_more(
    device: &Arc<SimulatedDevice>,
    view: &View,
    tree: &Tree,
    snapshots: Vec<Seen>,
    (order, nearly_full): (Order, bool),
    seed: u64,
) -> Result<Recorded, Wrong> {
    const OPS: usize = 14;
    let mut run = Run::new(device, view, State::of(tree));
    run.history.settles = view.info().engine == Engine::Sync;
    run.nearly_full = nearly_full;
    let mut ops = sequence(seed, OPS, Profile::Crash);
    ops.retain(|op| !nearly_full || fill::is_all_or_nothing(op));
    run.carry_out(if snapshots.is_empty() { ops } else { weave(ops, seed, 4, "later") })?;
    run.snapshots_before = snapshots;
    run.order = order;
    run.finish()
}

/// Shares blocks for the first time in the life of a volume, which completes a generation. A copy that meets
/// a stalled sync does not wait for it then.
fn share_first(device: &Arc<dyn Device>) -> Result<(), Wrong> {
    let shared = || -> yore_fs::Result<()> {
        let (device, journal) = sides(device);
        let options = yore_fs::MountOptions { journal, ..yore_fs::MountOptions::default() };
        let volume = yore_fs::Volume::open(device, &options)?;
        volume.write("a", vec![1; 20_000])?;
        volume.sync()?;
        volume.copy("a", "b")?;
        volume.remove_file("a")?;
        volume.remove_file("b")?;
        volume.close()
    };
    shared().map_err(|error| Wrong::new("open", error))
}

/// A run by one thread.
struct Run<'a> {
    device: &'a SimulatedDevice,
    runner: Runner<ViewSubject>,
    history: History,
    /// Operations that were carried out before the first entry.
    before: usize,
    /// The gate, if syncs are to stall, and the sync that stalls now.
    gate: Option<Arc<Gated>>,
    stalled: Option<StalledSync>,
    /// Files of the volume have shared blocks before ([`share_first`]).
    has_shared: bool,
    /// A snapshot was taken, so the volume has a past.
    has_recorded: bool,
    /// Freed blocks are discarded now and then.
    discards: bool,
    snapshots_before: Vec<Seen>,
    /// What a crash leaves.
    order: Order,
    /// Operations may fail for want of room.
    nearly_full: bool,
}

impl<'a> Run<'a> {
    fn new(device: &'a SimulatedDevice, view: &View, model: State) -> Run<'a> {
        let runner = Runner { model, subject: ViewSubject::new(view.clone()), full: 0 };
        let history = History::new(runner.model.clone());
        let snapshots_before = Vec::new();
        Run {
            device,
            history,
            runner,
            before: 0,
            gate: None,
            stalled: None,
            has_shared: false,
            has_recorded: false,
            discards: false,
            snapshots_before,
            order: Order::OneMoment,
            nearly_full: false,
        }
    }

    /// Begins a sync in another thread, which stalls for some operations. In the history it does nothing;
    /// when it has returned, a mark says what it promises.
    fn hold(&mut self, gate: &Arc<Gated>) -> Result<(), Wrong> {
        let moment = self.history.ops.len();
        // A generation of an engine that orders changes has a flush for each round.
        let flushes = if self.order.is_of_changes() { 5 } else { 2 };
        let (first, left) = (moment as u32 / 3 % flushes, 1 + moment % 5);
        let stalled = StalledSync::begin(gate, self.runner.subject.view(), moment, first, left)?;
        self.stalled = Some(stalled);
        self.history.push(Op::Sync, Effects::default(), self.runner.model.clone());
        self.device.mark(mark(0, moment, false));
        self.device.mark(mark(0, moment, true));
        Ok(())
    }

    /// Lets a stalled sync go on, and waits for it.
    fn let_go(&mut self) -> Result<(), Wrong> {
        self.stalled.take().map_or(Ok(()), |stalled| stalled.end(self.device))
    }

    /// Everything done so far is durable, and no crash meets it.
    fn forget_events(&mut self) {
        self.device.restart_trace();
        self.before = self.history.ops.len();
    }

    fn carry_out(&mut self, ops: Vec<Op>) -> Result<(), Wrong> {
        for op in ops {
            let waits = match op {
                Op::Sync
                | Op::Fsync { .. }
                | Op::Snapshot { wait: true, .. }
                | Op::Forget { .. }
                | Op::Expunge { .. } => true,
                // The first one that shares blocks.
                Op::Copy { .. } => !self.has_shared,
                // The first one, with which annals begin.
                Op::Snapshot { .. } => !std::mem::replace(&mut self.has_recorded, true),
                _ => false,
            };
            if waits || self.stalled.as_ref().is_some_and(|stalled| stalled.left == 0) {
                self.let_go()?;
            }
            if let (Op::Sync, Some(gate)) = (&op, self.gate.clone()) {
                self.hold(&gate)?;
                continue;
            }
            if let Some(stalled) = &mut self.stalled {
                stalled.left -= 1;
            }
            let number = self.history.ops.len();
            let full = self.runner.full;
            self.device.mark(mark(0, number, false));
            let result = self.runner.step(&op);
            self.device.mark(mark(0, number, true));
            // Where the thread in the background might come.
            if number % 3 == 1 {
                let late = self.runner.subject.view().write_late();
                late.map_err(|error| Wrong::new("result", format!("late data: {error}")))?;
            }
            if self.discards && number.is_multiple_of(2) {
                let discarded = self.runner.subject.view().discard_freed();
                discarded.map_err(|error| Wrong::new("result", format!("discarding: {error}")))?;
            }
            let effects =
                result.map_err(|error| Wrong::new("result", format!("operation {number}: {error}")))?;
            let op = match self.runner.full == full {
                true => op,
                false => after_no_space(op),
            };
            self.history.push(op, effects, self.runner.model.clone());
        }
        if self.runner.full > 0 && !self.nearly_full {
            return Err(Wrong::new("result", "the volume was full though little was stored"));
        }
        self.runner
            .compare()
            .map_err(|error| Wrong::new("tree", format!("after the last operation: {error}")))
    }

    /// Unmounting releases the slots, and makes everything durable, so it counts as a last sync.
    fn finish(mut self) -> Result<Recorded, Wrong> {
        self.let_go()?;
        let (number, mut model) = (self.history.ops.len(), self.runner.model.without_slots());
        self.device.mark(mark(0, number, false));
        self.runner.subject.drop_references();
        let closed = self.runner.subject.view().close();
        self.device.mark(mark(0, number, true));
        closed.map_err(|error| Wrong::new("close", error))?;
        let effects = model.apply(&Op::Sync).1;
        self.history.push(Op::Sync, effects, model);
        let may = match self.order {
            Order::ChangesAgain => Findings::OrderedTwice,
            Order::OneMoment | Order::Changes => Findings::None,
        };
        must_be_sound(self.device, may, "after the unmount")?;
        let trace = self.device.trace();
        let bounds = bounds_of(&trace, 0, self.before);
        let snapshots = Snapshots::new(self.snapshots_before, &self.history, self.runner.subject.snapshots());
        let part = Part { judge: Judge::new(self.history), lens: None, bounds };
        Ok(Recorded { trace, parts: vec![part], snapshots, order: self.order, nearly_full: self.nearly_full })
    }
}

/// What an operation has done that found no room: nothing, so for the judge it is one that only reads.
/// Forgetting marks the snapshot before it needs room.
fn after_no_space(op: Op) -> Op {
    match op {
        Op::Forget { .. } => op,
        _ => Op::Readdir { target: Target::Path(Vec::new()), batch: 1 },
    }
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
        // This also runs if the work panics; otherwise the scope would wait for ever.
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
