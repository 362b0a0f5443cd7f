//! Crashes of several threads at work on one volume.
//!
//! Each thread has a directory of its own, `/t0`, `/t1` and so on, and names of its own in a directory that
//! all of them share, `/s`: there its names begin with its number. It draws a sequence as a single thread
//! would. The sequence's `/a` to `/d` are in the shared directory, everything else in the thread's own. So
//! there are renames and links between the two, all threads change one directory and share generations, zones
//! and bitmaps, and every result is still the model's.
//!
//! # What is judged
//!
//! The tree is split into a part for each thread: its own directory, and its names in the shared one. Each
//! part must be what the thread's [`crate::judge::Judge`] allows at some moment of that thread's own
//! sequence, and
//!
//! 1. a sync that has returned, by whatever thread, makes everything durable that had returned when it began,
//!    and an fsync makes the names and attributes of that durable, unless the engine orders changes: then it
//!    promises only what concerns its file;
//! 2. there must be moments, one for each thread, that together are one moment of the volume: if an operation
//!    is there that began after another one had returned, that other one is there too.
//!
//! This is sound: a volume that keeps its promises is never refused, whatever the schedule. It is not
//! complete: operations that ran at the same time may appear in any order, even one that contradicts their
//! results; and the times and the link count of the root and of the shared directory are not examined. To
//! find the moments of point 2, each part starts at the earliest moment that it allows and is raised until no
//! part requires more of another. That finds them if there are any, because what each requires of the others
//! grows with it.

pub(crate) mod lens;

use self::lens::{Lens, NO_TIME};
use crate::case::Case;
use crate::generate::sequence;
use crate::judge::{Bounds, History, Judge, Unit};
use crate::marks::{mark, read_mark};
use crate::model::{Identity, State};
use crate::op::{EntryPath, Op, Target};
use crate::outcome::Outcome;
use crate::past::Snapshots;
use crate::recorded::{Order, Part, Recorded};
use crate::runner::Runner;
use crate::subject::{Subject, ViewSubject};
use crate::tree::{list, Tree};
use crate::volume::{must_be_clean, Wrong};
use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};
use yore_device::simulated::{SimulatedDevice, Trace, TraceEntry};
use yore_fs::{Attr, Caller, EventNo, FileKind, InodeNo, Timestamp, View};

const FIRST: Timestamp = Timestamp { seconds: i64::MIN, nanos: 0 };
const LAST: Timestamp = Timestamp { seconds: i64::MAX, nanos: 0 };

/// A volume as one of its threads sees it.
struct Sharer {
    inner: ViewSubject,
    lens: Lens,
    /// When the last operation began.
    begun: Timestamp,
}

impl Subject for Sharer {
    fn apply(&mut self, op: &Op) -> Outcome {
        self.begun = self.inner.now();
        self.inner.apply(op)
    }

    /// For the shared directory, what it would be if no other thread changed it.
    fn attr(&self, inode: u64) -> Result<Attr, String> {
        let mut attr = self.inner.attr(inode)?;
        if inode == self.lens.shared_number {
            let mut links = 2;
            let mut count = |name: &[u8], kind| {
                links += u32::from(name.starts_with(&self.lens.prefix) && kind == FileKind::Directory);
            };
            let listed = self.inner.view().readdir(InodeNo(inode), 0, &mut |item| {
                count(item.name, item.kind);
                true
            });
            listed.map_err(|error| format!("listing of the shared directory: {error}"))?;
            attr.links = links;
            (attr.atime, attr.btime) = (NO_TIME, NO_TIME);
            (attr.mtime, attr.ctime) = (self.begun, self.begun);
        }
        Ok(attr)
    }

    fn now(&self) -> Timestamp {
        self.inner.now()
    }

    fn observe(&self) -> Result<Tree, String> {
        Ok(self.lens.project(&self.inner.observe()?))
    }
}

/// A thread's side of a run.
struct Worker {
    runner: Runner<Sharer>,
    history: History,
    shared: usize,
}

/// Carries out a sequence in each thread at once, and unmounts.
///
/// # Errors
/// If a result differs from the model, or the volume cannot be used or closed.
pub fn record(case: &Case, device: &Arc<SimulatedDevice>, view: &View) -> Result<Recorded, Wrong> {
    let mut workers = prepare(case.threads, view)?;
    workers.iter_mut().for_each(|worker| worker.history.settles = case.settles());
    view.sync().map_err(|error| Wrong::new("sync", error))?;
    device.restart_trace();
    let kept = case.numbers();
    let barrier = Barrier::new(case.threads);
    let results: Vec<Result<(), Wrong>> = std::thread::scope(|scope| {
        let running: Vec<_> = workers
            .iter_mut()
            .enumerate()
            .map(|(thread, worker)| {
                let (kept, barrier) = (&kept, &barrier);
                scope.spawn(move || {
                    let seed = case.seed.wrapping_mul(1000).wrapping_add(thread as u64);
                    let ops = sequence(seed, case.ops, case.profile);
                    barrier.wait();
                    kept.iter()
                        .filter_map(|number| ops.get(*number))
                        .try_for_each(|op| worker.step(device, thread, op.clone()))
                })
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<(), Wrong>>| {
            thread.join().unwrap_or_else(|_| Err(Wrong::new("panic", "a thread panicked")))
        };
        running.into_iter().map(join).collect()
    });
    results.into_iter().collect::<Result<Vec<()>, Wrong>>()?;
    for (thread, worker) in workers.iter().enumerate() {
        let wrong = |error| Wrong::new("tree", format!("thread {thread}, after the last operation: {error}"));
        worker.runner.compare().map_err(wrong)?;
    }
    unmount(workers, Order::of(case.engine), device, view)
}

/// Makes the directories, and a model of its part for each thread.
fn prepare(threads: usize, view: &View) -> Result<Vec<Worker>, Wrong> {
    let caller = Caller::superuser();
    let make = |name: &[u8]| {
        let made = view.mkdir(&caller, view.root(), name, 0o755);
        made.map(|node| *node.attr()).map_err(|error| Wrong::new("result", error))
    };
    let shared = make(b"s")?;
    let mut workers = Vec::new();
    for thread in 0..threads {
        let lens = Lens::new(thread, shared.inode.0);
        let own = make(&lens.own)?;
        let root = view.getattr(view.root()).map_err(|error| Wrong::new("open", error))?;
        // The model itself makes the two directories that it knows.
        let mut model = State::new(&Attr { links: 2, ..root });
        let mut learned = Vec::new();
        for attr in [&own, &shared] {
            let name = if attr.inode == own.inode { &lens.own } else { &lens.shared };
            let at = EntryPath { directory: Target::Path(Vec::new()), name: name.clone() };
            let effects = model.apply(&Op::Mkdir { at, permissions: 0o755, caller }).1;
            let ino = effects.created.ok_or_else(|| Wrong::new("model", "the model made no directory"))?;
            model.learn_identity(ino, (attr.inode.0, attr.incarnation));
            model.learn_times(ino, attr, FIRST, LAST).map_err(|error| Wrong::new("model", error))?;
            learned.push(ino);
        }
        model.set_times(crate::model::ROOT, NO_TIME);
        model.set_times(learned[1], NO_TIME);
        let subject = Sharer { inner: ViewSubject::new(view.clone()), lens, begun: NO_TIME };
        let history = History::new(model.clone());
        workers.push(Worker { runner: Runner { model, subject, full: 0 }, history, shared: learned[1] });
    }
    Ok(workers)
}

impl Worker {
    fn step(&mut self, device: &SimulatedDevice, thread: usize, op: Op) -> Result<(), Wrong> {
        let op = self.runner.subject.lens.map(op);
        let number = self.history.ops.len();
        device.mark(mark(thread, number, false));
        let result = self.runner.step(&op);
        device.mark(mark(thread, number, true));
        let wrong = |error| Wrong::new("result", format!("thread {thread}, operation {number}: {error}"));
        let effects = result.map_err(wrong)?;
        if self.runner.full > 0 {
            return Err(Wrong::new("result", "the volume was full though little was stored"));
        }
        self.runner.model.set_times(self.shared, NO_TIME);
        self.history.push(op, effects, self.runner.model.clone());
        Ok(())
    }
}

fn unmount(
    mut workers: Vec<Worker>,
    order: Order,
    device: &Arc<SimulatedDevice>,
    view: &View,
) -> Result<Recorded, Wrong> {
    for (thread, worker) in workers.iter_mut().enumerate() {
        device.mark(mark(thread, worker.history.ops.len(), false));
        worker.runner.subject.inner.drop_references();
    }
    let closed = view.close();
    for (thread, worker) in workers.iter().enumerate() {
        device.mark(mark(thread, worker.history.ops.len(), true));
    }
    closed.map_err(|error| Wrong::new("close", error))?;
    must_be_clean(&**device, "after the unmount")?;
    for worker in &mut workers {
        let mut model = worker.runner.model.without_slots();
        let effects = model.apply(&Op::Sync).1;
        worker.history.push(Op::Sync, effects, model);
    }
    let trace = device.trace();
    let histories: Vec<&History> = workers.iter().map(|worker| &worker.history).collect();
    let bounds = bounds_of(&trace, &histories);
    let part = |(worker, bounds): (Worker, Vec<Bounds>)| Part {
        judge: Judge::new(worker.history),
        lens: Some(worker.runner.subject.lens),
        bounds,
    };
    let parts = workers.into_iter().zip(bounds).map(part).collect();
    Ok(Recorded { trace, parts, snapshots: Snapshots::default(), order, nearly_full: false })
}

/// For each thread and number of entries: how far its operations had come, and what others had made durable
/// of them.
fn bounds_of(trace: &Trace, histories: &[&History]) -> Vec<Vec<Bounds>> {
    let threads = histories.len();
    let mut now = vec![Bounds::new(0, 0); threads];
    let mut all: Vec<Vec<Bounds>> = now.iter().map(|bounds| vec![*bounds]).collect();
    // What each thread had done when a thread's present operation began.
    let mut at_begin: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for entry in trace.entries() {
        if let TraceEntry::Mark(mark) = entry {
            let (thread, number, returned) = read_mark(*mark);
            if !returned {
                now[thread].begun = number + 1;
                at_begin.insert(thread, now.iter().map(|bounds| bounds.returned).collect());
            } else {
                now[thread].returned = number + 1;
                let effects = &histories[thread].effects[number];
                let done = at_begin.get(&thread).cloned().unwrap_or_default();
                for (bounds, done) in now.iter_mut().zip(done) {
                    if effects.synced_all {
                        bounds.synced = bounds.synced.max(done);
                    }
                    if effects.synced.is_some() {
                        bounds.named = bounds.named.max(done);
                    }
                }
            }
        }
        all.iter_mut().zip(&now).for_each(|(list, bounds)| list.push(*bounds));
    }
    all
}

/// What a tree is, found under an engine that orders changes.
pub(crate) struct Ordered {
    /// By part: names and attributes of this moment are durable.
    pub(crate) moments: Vec<usize>,
    /// What half an exchange has left without a name.
    pub(crate) nameless: Vec<Identity>,
}

impl Recorded {
    /// Finds for each part the moment at which a tree shows it. `snapshots`: those that were found; they must
    /// be those of that moment.
    ///
    /// # Errors
    /// Why the tree is not allowed, in words.
    pub fn judge(
        &self,
        tree: &Tree,
        snapshots: &[EventNo],
        bounds: &[Bounds],
        unit: Unit,
    ) -> Result<Vec<usize>, String> {
        if self.order.is_of_changes() {
            return self.judge_ordered(tree, snapshots, bounds).map(|judged| judged.moments);
        }
        if let [Part { judge, lens: None, .. }] = &self.parts[..] {
            let moments = judge.moments_of(tree, bounds[0], unit, self.snapshots.is_none())?;
            let with_these = |moment: &&usize| self.snapshots.numbers_at(**moment) == snapshots;
            return match moments.iter().rfind(with_these) {
                Some(moment) => Ok(vec![*moment]),
                None => Err(format!(
                    "the snapshots {snapshots:?} are there, but names and attributes are of moments {moments:?}, with {:?}",
                    moments.iter().map(|moment| self.snapshots.numbers_at(*moment)).collect::<Vec<_>>()
                )),
            };
        }
        let links = tree.wrong_links();
        if !links.is_empty() {
            return Err(list(&links));
        }
        let mut allowed = Vec::new();
        for (thread, (part, bounds)) in self.parts.iter().zip(bounds).enumerate() {
            let projected = part.lens.as_ref().map(|lens| lens.project(tree));
            let seen = projected.as_ref().unwrap_or(tree);
            let moments = part.judge.moments_of(seen, *bounds, unit, false);
            allowed.push(moments.map_err(|error| format!("the part of thread {thread}: {error}"))?);
        }
        self.common_moment(&allowed)
    }

    /// The same for an engine that orders changes: finds how much of each part must be durable.
    ///
    /// # Errors
    /// As [`Recorded::judge`].
    pub(crate) fn judge_ordered(
        &self,
        tree: &Tree,
        snapshots: &[EventNo],
        bounds: &[Bounds],
    ) -> Result<Ordered, String> {
        let mut judged = Ordered { moments: Vec::new(), nameless: Vec::new() };
        for (thread, (part, bounds)) in self.parts.iter().zip(bounds).enumerate() {
            let mut lowest = part.judge.lowest_ordered(*bounds);
            if part.lens.is_none() {
                let has_these = |moment: &usize| self.snapshots.numbers_at(*moment) == snapshots;
                // An event comes alone, and everything before it comes first.
                lowest = (lowest..=bounds.begun).find(has_these).ok_or_else(|| {
                    let ever: Vec<_> =
                        (lowest..=bounds.begun).map(|moment| self.snapshots.numbers_at(moment)).collect();
                    format!("the snapshots {snapshots:?} are there, and were by moments from {lowest} on {ever:?}")
                })?;
            }
            let projected = part.lens.as_ref().map(|lens| lens.project(tree));
            let seen = projected.as_ref().unwrap_or(tree);
            let nameless = part.judge.judge_ordered(seen, *bounds, lowest);
            judged.nameless.extend(nameless.map_err(|error| match part.lens {
                None => error,
                Some(_) => format!("the part of thread {thread}: {error}"),
            })?);
            judged.moments.push(lowest);
        }
        Ok(judged)
    }

    /// One moment of each part, such that no part lacks what the others show to have happened before.
    fn common_moment(&self, allowed: &[Vec<usize>]) -> Result<Vec<usize>, String> {
        let mut chosen: Vec<usize> = allowed.iter().map(|moments| moments[0]).collect();
        loop {
            let before = chosen.clone();
            for (thread, part) in self.parts.iter().enumerate() {
                let begin = part.bounds.partition_point(|bounds| bounds.begun < chosen[thread]);
                for (other, moments) in allowed.iter().enumerate().filter(|(other, _)| *other != thread) {
                    let Some(needed) = self.parts[other].bounds.get(begin).map(|bounds| bounds.returned)
                    else {
                        continue;
                    };
                    if chosen[other] >= needed {
                        continue;
                    }
                    chosen[other] = *moments.iter().find(|moment| **moment >= needed).ok_or_else(|| {
                        format!(
                            "thread {thread} is at moment {} or later, which began when thread {other} had come to \
                             moment {needed}, but that is at {moments:?}",
                            chosen[thread]
                        )
                    })?;
                }
            }
            if chosen == before {
                return Ok(chosen);
            }
        }
    }
}
