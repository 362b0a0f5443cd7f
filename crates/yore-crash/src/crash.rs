//! Crash states: produces the states that crashes could have left of a recorded run, and tries them.
//!
//! To *try* a state means: the checker must find nothing. The volume must open without repair. The result of
//! a walk must satisfy the judge of each part, for every entry after which the medium could be like that; and
//! so must the snapshots. Orphans must be gone. Some states get one more trial. The volume is used, must be
//! clean afterwards, and its snapshots must stay as they were. Or a second crash at any moment of the mount
//! must be survived in the same way, and a third at any moment of the mount after that. Or the volume goes on
//! with another sequence of operations, which is crashed and judged in turn.
//!
//! **Which states.** [`Recorded::try_samples`] draws them, for long sequences. [`Recorded::try_all`] goes
//! through all moments of a short one. If the pending writes of a moment leave few states, all of them are
//! tried, by blocks and by sectors separately. Of other moments it tries samples: nothing of what is pending,
//! all, all but one, and seeded ones. The moments just before a flush completes are included, so the flush
//! itself is interrupted with every subset of what it was to make durable. A state that was tried before
//! under the same promises is not tried again.

use crate::judge::{Bounds, Unit};
use crate::model::Identity;
use crate::outcome::Kind;
use crate::past::{must_begin_with, observe_all, taken_of, Seen};
use crate::record::record_more;
use crate::recorded::{Order, Part, Recorded};
use crate::recount::{must_rescue_directories_alone, recount, LOST_AND_FOUND};
use crate::subject::{observe, observe_ordered};
use crate::tree::{Inside, Tree};
use crate::trial::Trial;
use crate::volume::{must_be_clean, must_be_sound, open, open_as, Findings, Wrong, NEVER};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashSet};
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use yore_check::{plan_repair, CheckError, CheckOptions};
use yore_device::simulated::{
    Choice, CrashPlan, CrashPoint, CrashState, SimulatedDevice, Tearing, TraceEntry,
};
use yore_device::{Device, MemoryDevice, BLOCK_SIZE};
use yore_fs::{
    Caller, Durability, Engine, Error, EventNo, FallocateMode, FileKind, InodeNo, NewSnapshot, SetAttr, View,
    WriteMode,
};

/// What [`Recorded::try_all`] tries at each moment.
#[derive(Clone, Copy, Debug)]
pub struct Thoroughness {
    /// If a moment has at most this many states, all are tried.
    pub exhaustive_max: u64,
    /// If it has more: this many seeded samples, and at most as many that lack one write.
    pub samples: u64,
}

impl Default for Thoroughness {
    fn default() -> Thoroughness {
        Thoroughness { exhaustive_max: 64, samples: 8 }
    }
}

/// Called before each state; returns false to stop.
pub type Each<'a> = &'a mut dyn FnMut(CrashState, Trial) -> bool;

impl Recorded {
    /// Tries about `count` states, chosen by `seed`.
    ///
    /// # Errors
    /// The promise that the state last given to `each` breaks.
    pub fn try_samples(&self, count: usize, seed: u64, each: Each<'_>) -> Result<(), Wrong> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut after: Vec<usize> = (0..count).map(|_| random.random_range(0..=self.entries())).collect();
        after.sort_unstable();
        let mut points = self.trace.crash_points(after.first().copied().unwrap_or(0));
        let mut point: Option<Arc<CrashPoint>> = None;
        let mut tried_as_is = false;
        for at in after {
            while point.as_ref().is_none_or(|point| point.after_entry() < at) {
                point = points.next();
                tried_as_is = false;
            }
            let Some(point) = &point else { break };
            if point.pending() == 0 && std::mem::replace(&mut tried_as_is, true) {
                continue;
            }
            let state = self.choose(point, &mut random);
            let trial = self.draw(&mut random);
            if !each(state, trial) {
                break;
            }
            self.try_at(point, state, trial)?;
        }
        Ok(())
    }

    /// Goes through all moments; `seed` draws the samples and the further trials.
    ///
    /// # Errors
    /// The promise that the state last given to `each` breaks.
    pub fn try_all(&self, how: Thoroughness, seed: u64, each: Each<'_>) -> Result<(), Wrong> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut seen = HashSet::new();
        let mut durable_until = 0;
        for point in self.trace.crash_points(0) {
            let at = point.after_entry();
            if at > 0 && self.trace.entries()[at - 1] == TraceEntry::Flush {
                durable_until = at;
            }
            if *self.same_medium(at).end() != at {
                continue;
            }
            let touched = self.touched(durable_until, at);
            for state in states_of(&point, how, self.tearings(), &mut random) {
                let medium = point
                    .materialise(state.choice, state.tearing)
                    .map_err(|error| Wrong::new("replay", error))?;
                let key = (durable_until, hash_blocks(&medium, &touched), unit_of(state), self.promised(at));
                if !seen.insert(key) {
                    continue;
                }
                let trial = self.draw(&mut random);
                if !each(state, trial) {
                    return Ok(());
                }
                self.try_medium_by(medium, state, trial)?;
            }
        }
        Ok(())
    }

    /// The blocks that were written after one entry and until another.
    fn touched(&self, from: usize, to: usize) -> BTreeSet<u64> {
        let mut touched = BTreeSet::new();
        for entry in &self.trace.entries()[from..to] {
            let (offset, len) = match entry {
                TraceEntry::Write { offset, data } => (*offset, data.len() as u64),
                TraceEntry::Discard { offset, len } => (*offset, *len),
                TraceEntry::Flush | TraceEntry::FlushRange { .. } | TraceEntry::Mark(_) => continue,
            };
            touched.extend(offset / BLOCK_SIZE as u64..(offset + len).div_ceil(BLOCK_SIZE as u64));
        }
        touched
    }

    /// The promises after an entry: numbers for each part that differ if the promise does.
    fn promised(&self, after_entry: usize) -> Vec<(usize, usize)> {
        let of = |part: &Part| {
            let bounds = part.bounds[after_entry];
            (part.judge.promises_kept(bounds), bounds.synced.max(bounds.named))
        };
        self.parts.iter().map(of).collect()
    }

    /// Tries one state.
    ///
    /// # Errors
    /// The promise that it breaks, or that the trace has no such state.
    pub fn try_state(&self, state: CrashState, trial: Trial) -> Result<(), Wrong> {
        let point = self.trace.crash_point(state.after_entry).map_err(|error| Wrong::new("replay", error))?;
        self.try_at(&point, state, trial)
    }

    fn try_at(&self, point: &CrashPoint, state: CrashState, trial: Trial) -> Result<(), Wrong> {
        let medium =
            point.materialise(state.choice, state.tearing).map_err(|error| Wrong::new("replay", error))?;
        self.try_medium_by(medium, state, trial)
    }

    fn try_medium_by(&self, medium: MemoryDevice, state: CrashState, trial: Trial) -> Result<(), Wrong> {
        let bounds = self.bounds_at(state.after_entry);
        let unit = unit_of(state);
        match trial {
            Trial { again: Some(seed), third, .. } => {
                let seeds: Vec<u64> = [Some(seed), third].into_iter().flatten().collect();
                self.try_again(medium, &bounds, unit, &seeds)
            }
            Trial { more: Some(seed), repair, .. } => self.try_more(medium, &bounds, unit, seed, repair),
            trial => self.try_medium(Arc::new(medium), &bounds, unit, trial).map(|_| ()),
        }
    }

    /// How far each part had come at each of the entries that leave the same medium, without repetition.
    fn bounds_at(&self, after_entry: usize) -> Vec<Vec<Bounds>> {
        let mut list: Vec<Vec<Bounds>> = Vec::new();
        for entry in self.same_medium(after_entry) {
            let bounds: Vec<Bounds> = self.parts.iter().map(|part| part.bounds[entry]).collect();
            if list.last() != Some(&bounds) {
                list.push(bounds);
            }
        }
        list
    }

    /// Mounts on a recording device, crashes that, and mounts again, as often as there are seeds. All mounts
    /// must find the same names.
    fn try_again(
        &self,
        medium: MemoryDevice,
        bounds: &[Vec<Bounds>],
        unit: Unit,
        seeds: &[u64],
    ) -> Result<(), Wrong> {
        let mut device = Arc::new(SimulatedDevice::new(medium));
        let plain = Trial::default();
        let mut found = self.try_medium(device.clone(), bounds, unit, plain)?;
        let mut story = String::new();
        for seed in seeds {
            let trace = device.trace();
            let mut random = Xoshiro256PlusPlus::seed_from_u64(*seed);
            let after_entry = random.random_range(0..=trace.len());
            let point = trace.crash_point(after_entry).map_err(|error| Wrong::new("replay", error))?;
            let state = self.choose(&point, &mut random);
            let medium = point
                .materialise(state.choice, state.tearing)
                .map_err(|error| Wrong::new("replay", error))?;
            story.push_str(&format!("after a further crash, {state} of the mount: "));
            device = Arc::new(SimulatedDevice::new(medium));
            let next = self
                .try_medium(device.clone(), bounds, unit, plain)
                .map_err(|wrong| Wrong::new(wrong.class, format!("{story}{}", wrong.message)))?;
            if next.tree.names_hash() != found.tree.names_hash() {
                return Err(Wrong::new("again", format!("{story}other names and attributes were found")));
            }
            next.still_shows(&found).map_err(|error| Wrong::new("again", format!("{story}{error}")))?;
            found = next;
        }
        Ok(())
    }

    /// Goes on with another sequence, and crashes that.
    fn try_more(
        &self,
        medium: MemoryDevice,
        bounds: &[Vec<Bounds>],
        unit: Unit,
        seed: u64,
        repair: bool,
    ) -> Result<(), Wrong> {
        const STATES: usize = 12;
        let device = Arc::new(SimulatedDevice::new(medium));
        must_be_sound(&*device, self.order.findings(), "as the crash left it")?;
        let mut view = open(device.clone()).map_err(|error| Wrong::new("mount", error))?;
        let mut found = self.observe(&view, bounds, unit)?;
        let mut order = self.order;
        if self.order.is_of_changes() {
            // The model has no counts that are too high, nor a directory with two names.
            if repair || found.is_unfinished(&view)? {
                view.close().map_err(|error| Wrong::new("close", error))?;
                view = found.repair(device.clone(), self.order.findings())?;
                // What the repair has changed in them was judged.
                let snapshots = observe_all(&view).map_err(|error| Wrong::new("past", error))?;
                found = Found { tree: observe_all_of(&view)?, snapshots, ..found };
                // No crash meets the repair.
                device.restart_trace();
            } else {
                order = Order::ChangesAgain;
            }
        }
        let Found { tree, snapshots, .. } = found;
        let later = |wrong: Wrong| {
            Wrong::new(wrong.class, format!("in the sequence after the crash: {}", wrong.message))
        };
        let recorded =
            record_more(&device, &view, &tree, snapshots, (order, self.nearly_full), seed).map_err(later)?;
        drop(view);
        let mut last = None;
        let mut each = |state, _| {
            last = Some(state);
            true
        };
        recorded.try_plain_samples(STATES, seed, &mut each).map_err(|wrong| {
            let state = last.map(|state: CrashState| state.to_string()).unwrap_or_default();
            Wrong::new(wrong.class, format!("in the sequence after the crash, {state}: {}", wrong.message))
        })
    }

    /// Samples without further trials.
    fn try_plain_samples(
        &self,
        count: usize,
        seed: u64,
        each: &mut dyn FnMut(CrashState, Trial) -> bool,
    ) -> Result<(), Wrong> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        for _ in 0..count {
            let after_entry = random.random_range(0..=self.entries());
            let point = self.trace.crash_point(after_entry).map_err(|error| Wrong::new("replay", error))?;
            let state = self.choose(&point, &mut random);
            if !each(state, Trial::default()) {
                break;
            }
            self.try_at(&point, state, Trial::default())?;
        }
        Ok(())
    }

    /// Checks, mounts, walks, judges, unmounts; returns what was found.
    fn try_medium(
        &self,
        device: Arc<dyn Device>,
        bounds: &[Vec<Bounds>],
        unit: Unit,
        trial: Trial,
    ) -> Result<Found, Wrong> {
        let (findings, use_it) = (self.order.findings(), trial.use_it);
        must_be_sound(&*device, findings, "as the crash left it")?;
        let engine = trial.change.then_some(Engine::Snapshot);
        let view = open_as(device.clone(), engine, NEVER, Durability::Async, false)
            .map_err(|error| Wrong::new("mount", error))?;
        let mut found = self.observe(&view, bounds, unit)?;
        if use_it {
            use_volume(&view, self.nearly_full)?;
            if !self.snapshots.is_none() {
                found.meddle(&view, self.nearly_full)?;
            }
        }
        if trial.recount {
            recount(&view)?;
            let tree = found.must_be_kept(&view, "recount", "after the recount")?;
            must_rescue_directories_alone(&found.tree, &tree)?;
            found.must_still_be_seen(&view, "after the recount")?;
        }
        view.close().map_err(|error| Wrong::new("close", error))?;
        drop(view);
        if trial.recount {
            must_be_clean(&*device, "after the recount")?;
            let view = open(device.clone()).map_err(|error| Wrong::new("mount", error))?;
            found.must_be_kept(&view, "recount", "after the recount and a mount")?;
            found.must_still_be_seen(&view, "after the recount and a mount")?;
        }
        if use_it {
            must_be_sound(&*device, findings, "after the volume was used and unmounted")?;
            if !self.snapshots.is_none() {
                let view = open(device.clone()).map_err(|error| Wrong::new("mount", error))?;
                found.must_still_be_seen(&view, "after the volume was used and unmounted")?;
            }
        }
        if self.order.is_of_changes() && !use_it {
            must_be_sound(&*device, findings, "after the next mount")?;
        }
        if trial.repair && self.order.is_of_changes() {
            if use_it {
                // What is in use is no longer what was found.
                (found.tree, found.nameless) = (Tree::default(), Vec::new());
            }
            let view = found.repair(device, findings)?;
            view.close().map_err(|error| Wrong::new("close", error))?;
        }
        Ok(found)
    }

    /// Walks and judges what was mounted after a crash.
    fn observe(&self, view: &View, bounds: &[Vec<Bounds>], unit: Unit) -> Result<Found, Wrong> {
        let state = view.info().state;
        if state == "must be checked" || state == "leaks pending" && !self.order.is_of_changes() {
            return Err(Wrong::new("mount", format!("the volume calls itself \"{state}\"")));
        }
        let tree = match self.order.is_of_changes() {
            true => observe_ordered(view, view.root()),
            false => observe(view, view.root()),
        };
        let tree = tree.map_err(|error| Wrong::new("read", error))?;
        all_data_has_checksums(view)?;
        let snapshots = observe_all(view).map_err(|error| Wrong::new("past", error))?;
        let numbers: Vec<EventNo> = snapshots.iter().map(|seen| seen.number).collect();
        let (mut moments, mut nameless) = (Vec::new(), Vec::new());
        for bounds in bounds {
            let judged = match self.order.is_of_changes() {
                true => self.judge_ordered(&tree, &numbers, bounds).map(|judged| {
                    nameless = judged.nameless;
                    judged.moments
                }),
                false => self.judge(&tree, &numbers, bounds, unit),
            };
            moments = judged.map_err(|error| Wrong::new("judge", error))?;
            if !self.snapshots.is_none() {
                let judge = &self.parts[0].judge;
                let judged = self.snapshots.judge(judge, &snapshots, moments[0], bounds[0], unit);
                judged.map_err(|error| Wrong::new("past", error))?;
            }
        }
        for (part, moment) in self.parts.iter().zip(moments) {
            for (number, incarnation) in part.judge.orphans(moment) {
                match view.node(InodeNo(number), Some(incarnation)) {
                    Err(Error::Stale) => {}
                    Ok(_) => {
                        let message = format!("inode {number} has no name and is still there");
                        return Err(Wrong::new("orphan", message));
                    }
                    Err(error) => return Err(Wrong::new("orphan", format!("node {number}: {error}"))),
                }
            }
        }
        let before_crash = snapshots.len();
        Ok(Found { tree, snapshots, before_crash, nameless })
    }
}

/// On a volume that has kept checksums from its beginning, each block of data has one, which came with it
/// (K1). Reading says whether it is right.
fn all_data_has_checksums(view: &View) -> Result<(), Wrong> {
    if !view.keeps_data_checksums() {
        return Ok(());
    }
    let wrong = |what: String| Wrong::new("checksum", what);
    match view.data_without_checksums(&mut || ControlFlow::Continue(())) {
        Ok(Some(without)) if without.blocks == 0 => Ok(()),
        Ok(without) => {
            Err(wrong(format!("{} blocks of data have no checksum", without.unwrap_or_default().blocks)))
        }
        Err(error) => Err(wrong(error.to_string())),
    }
}

fn observe_all_of(view: &View) -> Result<Tree, Wrong> {
    observe(view, view.root()).map_err(|error| Wrong::new("read", error))
}

/// Puts a volume right that an engine has left which orders changes; nothing may be wrong then.
fn repair(device: &dyn Device) -> Result<(), Wrong> {
    static FILES: AtomicU64 = AtomicU64::new(0);
    let wrong = |error: CheckError| Wrong::new("repair", error);
    let plan = plan_repair(device, &CheckOptions::default()).map_err(wrong)?;
    if !plan.is_complete() {
        let rest: Vec<String> = plan.remaining().take(4).map(|finding| finding.to_string()).collect();
        return Err(Wrong::new("repair", format!("it would leave: {}", rest.join("; "))));
    }
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let undo = std::env::temp_dir().join(format!("yore-crash-{}-{number}.undo", std::process::id()));
    let applied = plan.apply(&undo).map_err(wrong);
    match std::fs::remove_file(&undo) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Wrong::new("repair", format!("{}: {error}", undo.display())));
        }
        _ => applied.map(|_| ())?,
    }
    must_be_clean(device, "after the repair").map(|_| ())
}

/// The content that a mount after a crash has shown.
#[derive(Clone)]
struct Found {
    tree: Tree,
    snapshots: Vec<Seen>,
    /// How many of them were taken before the crash.
    before_crash: usize,
    /// What half an exchange has left without a name.
    nameless: Vec<Identity>,
}

impl Found {
    /// Whether something waits for a recount that shows in the tree.
    fn is_unfinished(&self, view: &View) -> Result<bool, Wrong> {
        let strict = observe_all_of(view)?;
        let is_wrong = !strict.contradictions.is_empty() || !strict.wrong_links().is_empty();
        Ok(is_wrong || !self.nameless.is_empty())
    }

    /// Repairs the volume and mounts it: what was found is there, and each inode has a name.
    fn repair(&self, device: Arc<dyn Device>, findings: Findings) -> Result<View, Wrong> {
        must_be_sound(&*device, findings, "after the unmount")?;
        repair(&*device)?;
        let view = open(device).map_err(|error| Wrong::new("mount", error))?;
        let tree = self.must_be_kept(&view, "repair", "after the repair")?;
        let mut before = self.clone();
        let now = observe_all(&view).map_err(|error| Wrong::new("past", error))?;
        // Of what a snapshot has seen that was taken behind the crash, the repair puts counts right.
        for (before, now) in before.snapshots.iter_mut().zip(&now).skip(self.before_crash) {
            before.tree.take_right_links(&now.tree);
        }
        if tree.entries(tree.root).is_some_and(|entries| entries.contains_key(LOST_AND_FOUND)) {
            // The repair has made a directory in the root directory, which has no version of its own then:
            // its count and times are seen by snapshots, too.
            for (before, now) in before.snapshots.iter_mut().zip(&now) {
                let root = before.tree.nodes.get_mut(&tree.root).zip(now.tree.nodes.get(&tree.root));
                if let Some((before, now)) = root {
                    let facts = &mut before.facts;
                    (facts.links, facts.mtime, facts.ctime) =
                        (now.facts.links, now.facts.mtime, now.facts.ctime);
                }
            }
        }
        before.must_still_be_seen(&view, "after the repair")?;
        Ok(view)
    }

    /// Behind a repair or a recount what was found is there, counts are exact, and each inode has a name.
    /// Returns what is there.
    fn must_be_kept(&self, view: &View, class: &'static str, when: &str) -> Result<Tree, Wrong> {
        let tree = observe_all_of(view)?;
        let mut wrong = tree.contradictions.clone();
        wrong.extend(tree.wrong_links());
        let is_there = |number: u64, incarnation: u32| {
            tree.nodes.get(&number).is_some_and(|node| node.facts.incarnation == incarnation)
        };
        let found = self.tree.nodes.iter().map(|(number, node)| (*number, node.facts.incarnation));
        let all = found.chain(self.nameless.iter().copied());
        let gone = all.filter(|(number, incarnation)| !is_there(*number, *incarnation));
        wrong.extend(gone.map(|(number, _)| format!("{} is gone", self.tree.path_of(number))));
        for (number, entries) in self.tree.directories() {
            let now = tree.entries(number).cloned().unwrap_or_default();
            // A directory that had two names has one.
            let lost = entries.iter().filter(|(name, (_, kind))| {
                *kind != FileKind::Directory && &name[..] != LOST_AND_FOUND && !now.contains_key(*name)
            });
            wrong.extend(lost.map(|(name, _)| {
                format!("{} has lost {}", self.tree.path_of(number), crate::op::show_name(name))
            }));
        }
        for (number, node) in &self.tree.nodes {
            if let (Inside::File { .. }, Some(now)) = (&node.inside, tree.nodes.get(number)) {
                if now.inside != node.inside {
                    wrong.push(format!("{} has other content", self.tree.path_of(*number)));
                }
            }
        }
        match wrong.is_empty() {
            true => Ok(tree),
            false => Err(Wrong::new(class, format!("{when}: {}", crate::tree::list(&wrong)))),
        }
    }

    /// Whether each snapshot still exists and shows the same.
    fn still_shows(&self, before: &Found) -> Result<(), String> {
        match self.snapshots.len() == before.snapshots.len() {
            true => must_begin_with(&self.snapshots, &before.snapshots),
            false => Err(format!("{} and not {} snapshots", self.snapshots.len(), before.snapshots.len())),
        }
    }

    /// Takes another snapshot, and changes every file: no snapshot may show any of these changes.
    fn meddle(&mut self, view: &View, nearly_full: bool) -> Result<(), Wrong> {
        let wrong = |error: Error| Wrong::new("use", format!("changing what snapshots have seen: {error}"));
        let tree = observe(view, view.root()).map_err(|error| Wrong::new("read", error))?;
        let event = view.take_snapshot(view.root(), &NewSnapshot::default());
        let event = if_room(event, nearly_full).map_err(wrong)?;
        let mut files: Vec<u64> = tree.nodes.keys().copied().collect();
        files.sort_unstable();
        files.retain(|number| tree.nodes[number].facts.kind == FileKind::Regular);
        self.snapshots.extend(event.map(|event| taken_of(tree, event.number)));
        for (n, number) in files.into_iter().enumerate() {
            if_room(change_file(view, InodeNo(number), n), nearly_full).map_err(wrong)?;
            // An fsync must not fail for want of room.
            if n % 4 == 3 {
                view.fsync(InodeNo(number), false).map_err(wrong)?;
            }
        }
        self.must_still_be_seen(view, "after every file was changed")?;
        let done = view
            .finish_forgetting(&mut |_| ControlFlow::Continue(()))
            .map_err(|error| Wrong::new("use", format!("forgetting what a crash has left of it: {error}")))?;
        if (done.dying, done.expunging) != (0, 0) {
            return Err(Wrong::new("use", format!("something is left to be forgotten: {done:?}")));
        }
        self.must_still_be_seen(view, "after the rest was forgotten")?;
        view.sync().map_err(wrong)?;
        self.must_still_be_seen(view, "after a sync")
    }

    fn must_still_be_seen(&self, view: &View, when: &str) -> Result<(), Wrong> {
        let wrong = |error: String| Wrong::new("past", format!("{when}: {error}"));
        let seen = observe_all(view).map_err(wrong)?;
        match seen.len() == self.snapshots.len() {
            true => must_begin_with(&seen, &self.snapshots).map_err(wrong),
            false => Err(wrong(format!("{} and not {} snapshots", seen.len(), self.snapshots.len()))),
        }
    }
}

/// What a call has done; `None` if it has done nothing, because it found no room where hardly any is left.
fn if_room<T>(done: Result<T, Error>, nearly_full: bool) -> Result<Option<T>, Error> {
    match done {
        Err(error) if nearly_full && Kind::of(&error) == Kind::NoSpace => Ok(None),
        done => done.map(Some),
    }
}

/// Changes a file, the n-th, in one of several ways.
fn change_file(view: &View, file: InodeNo, n: usize) -> Result<(), Error> {
    let size = view.getattr(file)?.size;
    let mode = WriteMode { append: false, kill_set_id: false };
    match n % 4 {
        0 => view.write(file, 0, &crate::op::payload(2, 9000), mode).map(|_| ())?,
        1 => {
            let set = SetAttr { size: Some(size / 2), ..SetAttr::default() };
            view.setattr(&Caller::superuser(), file, &set).map(|_| ())?;
        }
        2 => view.fallocate(file, 0, size.max(1), FallocateMode::PunchHole)?,
        _ => view.write(file, size / 2, &crate::op::payload(3, 100), mode).map(|_| ())?,
    }
    Ok(())
}

/// The states to try at a moment.
fn states_of(
    point: &CrashPoint,
    how: Thoroughness,
    tearings: &[Tearing],
    random: &mut Xoshiro256PlusPlus,
) -> Vec<CrashState> {
    let mut states = Vec::new();
    for tearing in tearings.iter().copied() {
        let plan = CrashPlan {
            exhaustive_max: how.exhaustive_max,
            samples: how.samples,
            seed: random.random_range(0..1_000_000),
            tearing,
            ..CrashPlan::default()
        };
        let after_entry = point.after_entry();
        let choices = point.choices(&plan).into_iter();
        states.extend(choices.map(|choice| CrashState { after_entry, choice, tearing }));
    }
    states
}

/// A number that two media share if these blocks are the same.
fn hash_blocks(medium: &MemoryDevice, blocks: &BTreeSet<u64>) -> u64 {
    let mut hash = DefaultHasher::new();
    let mut bytes = [0; BLOCK_SIZE];
    for block in blocks {
        match medium.read_at(block * BLOCK_SIZE as u64, &mut bytes) {
            Ok(()) => bytes.hash(&mut hash),
            Err(error) => unreachable!("memory can be read where it was written: {error}"),
        }
    }
    hash.finish()
}

impl Recorded {
    /// An engine that writes in place relies on blocks that are stored as wholes.
    fn tearings(&self) -> &'static [Tearing] {
        match self.order.is_of_changes() {
            true => &[Tearing::Blocks],
            false => &[Tearing::Blocks, Tearing::Sectors],
        }
    }

    fn choose(&self, point: &CrashPoint, random: &mut Xoshiro256PlusPlus) -> CrashState {
        let state = choose(point, random);
        match self.order.is_of_changes() {
            true => CrashState { tearing: Tearing::Blocks, ..state },
            false => state,
        }
    }

    fn draw(&self, random: &mut Xoshiro256PlusPlus) -> Trial {
        match self.order.is_of_changes() {
            true => Trial::draw_ordered(random),
            false => Trial::draw(random),
        }
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
    CrashState { after_entry: point.after_entry(), choice, tearing }
}

/// If sectors tear, data that is overwritten in place tears as well.
fn unit_of(state: CrashState) -> Unit {
    match (state.tearing, state.choice) {
        (Tearing::Sectors, Choice::Seed(_) | Choice::Index(_)) => Unit::Sector,
        _ => Unit::Block,
    }
}

/// Creates a file and a directory, as far as there is room, and removes something if there is anything.
fn use_volume(view: &View, nearly_full: bool) -> Result<(), Wrong> {
    const NAME: &[u8] = b"made after the crash";
    let wrong = |what: &str, error: Error| Wrong::new("use", format!("{what} after the mount: {error}"));
    let (caller, root) = (Caller::superuser(), view.root());
    let node = view.create(&caller, root, NAME, FileKind::Regular, 0o600, 0);
    let node = if_room(node, nearly_full).map_err(|error| wrong("create", error))?;
    let data = crate::op::payload(1, 20_000);
    let mode = WriteMode { append: false, kill_set_id: false };
    let written = match &node {
        Some(node) => if_room(view.write(node.inode(), 0, &data, mode), nearly_full),
        None => Ok(None),
    };
    let written = written.map_err(|error| wrong("write", error))?.is_some();
    let made = view.mkdir(&caller, root, b"directory made after the crash", 0o700);
    if_room(made, nearly_full).map_err(|error| wrong("mkdir", error))?;
    if let Some(node) = &node {
        view.fsync(node.inode(), false).map_err(|error| wrong("fsync", error))?;
    }
    let mut victims = Vec::new();
    view.readdir(root, 0, &mut |item| {
        if item.kind == FileKind::Regular && item.name != NAME {
            victims.push(item.name.to_vec());
        }
        true
    })
    .map_err(|error| wrong("readdir", error))?;
    if let Some(victim) = victims.first() {
        view.unlink(root, victim).map_err(|error| wrong("unlink", error))?;
    }
    view.sync().map_err(|error| wrong("sync", error))?;
    let Some(node) = node.filter(|_| written) else { return Ok(()) };
    let mut back = vec![0; data.len()];
    let count = view.read(node.inode(), 0, &mut back).map_err(|error| wrong("read", error))?;
    match count == data.len() && back == data {
        true => Ok(()),
        false => Err(Wrong::new("use", "a file written after the mount reads back differently")),
    }
}
