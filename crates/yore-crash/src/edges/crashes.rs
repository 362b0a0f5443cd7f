//! The sequences of the judge, carried out under an engine that orders changes, with a crash between any two
//! of its writes.
//!
//! What such an engine leaves must be what the judge of the order accepts, and more: what was durable when
//! the power failed is there. Syncs and fsyncs between the calls, drawn by a seed, say what was: a sync
//! everything, an fsync its file and the way to it (`synced.rs`). Blocks are torn as wholes: an engine that
//! writes in place relies on that (docs/ENGINES.md).
//!
//! Each state is looked at as the crash left it. Then it is mounted for writing, by the same engine or by
//! another one, and closed; and it must still be sound, and have the same names. Then it is used.

use super::calls::Carrier;
use super::effect::Between;
use super::synced::{at_path, Held, Synced};
use super::{calls, effect, examine, examine_past, exchanges, options, prepare, see, see_past, Expected};
use crate::recount::{must_rescue_directories_alone, recount, LOST_AND_FOUND};
use crate::tree::{Inside, Tree};
use crate::volume::{make, used_device, Findings, Wrong};
use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use yore_check::{check, CheckOptions};
use yore_device::simulated::{CrashPlan, CrashState, SimulatedDevice, Tearing, Trace};
use yore_device::{Device, MemoryDevice};
use yore_format::VolumeState;
use yore_fs::{Engine, EventNo, File, InodeNo, Volume};

/// A sequence that was carried out under an engine, with all that reached the device.
pub struct Run {
    name: &'static str,
    engine: Engine,
    trace: Trace,
    /// The tree before the first call and behind each.
    moments: Vec<Tree>,
    /// After how many entries each call began.
    began: Vec<usize>,
    /// From how many entries on which moment is durable, ascending.
    durable: Vec<(usize, usize)>,
    /// The fsyncs, in the order in which they returned.
    fsyncs: Vec<Synced>,
    exchanges: Vec<(usize, bool)>,
    forgets: bool,
    past: Vec<(EventNo, Tree)>,
    snapshots: usize,
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tried {
    /// States.
    pub states: usize,
    /// Findings of the checker in them, all of which such an engine may leave.
    pub tolerated: usize,
}

/// Carries a sequence out under an engine; `seed` says behind which calls everything is synced, and behind
/// which an inode is fsynced, or several.
///
/// # Errors
/// If a call fails, or there is no such sequence.
pub fn run(name: &str, engine: Engine, seed: u64) -> Result<Run, Wrong> {
    let sequence = calls::all().into_iter().find(|sequence| sequence.name == name);
    let Some(sequence) = sequence else {
        return Err(Wrong::new("sequence", format!("no sequence {name:?}")));
    };
    let opened = |error: yore_fs::Error| Wrong::new("open", error);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let device: Arc<dyn Device> = Arc::new(used_device());
    make(&device, Engine::Snapshot, 1)?;
    prepare(&device, &sequence)?;
    let mut copy = vec![0; device.size() as usize];
    device.read_at(0, &mut copy).map_err(|error| Wrong::new("device", error))?;
    let medium = MemoryDevice::new(device.size());
    medium.write_at(0, &copy).map_err(|error| Wrong::new("device", error))?;
    let device = Arc::new(SimulatedDevice::new(medium));
    let volume = Volume::open(device.clone(), &options(Some(engine), false)).map_err(opened)?;
    let view = volume.view().clone();
    let (mut moments, mut past) = (vec![see(&view)?], Vec::new());
    see_past(&view, &mut past)?;
    let snapshots = past.len();
    device.restart_trace();
    let (mut began, mut durable, mut fsyncs) = (Vec::new(), vec![(0, 0)], Vec::new());
    let mut drawn = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x0066_7379_6e63);
    let mut carrier = Carrier::new(&volume);
    for (number, call) in sequence.calls.iter().enumerate() {
        began.push(device.entries());
        carrier.carry_out(call)?;
        moments.push(see(&view)?);
        see_past(&view, &mut past)?;
        let tree = &moments[number + 1];
        let of_call = call.syncs().and_then(|path| at_path(tree, path));
        fsyncs.extend(of_call.and_then(|inode| Synced::of(&moments, inode, device.entries())));
        let syncs = engine != Engine::Sync && random.random_range(0..3) == 0;
        if syncs {
            view.sync().map_err(opened)?;
        }
        if syncs || engine == Engine::Sync {
            durable.push((device.entries(), number + 1));
        }
        while drawn.random_range(0..5) < 2 {
            let since = durable.last().map_or(0, |(_, moment)| *moment);
            let Some(inode) = draw(&moments[since], tree, &mut drawn) else { break };
            view.fsync(InodeNo(inode), drawn.random_range(0..4) == 0).map_err(opened)?;
            fsyncs.extend(Synced::of(&moments, inode, device.entries()));
        }
    }
    began.push(device.entries());
    drop(carrier);
    volume.close().map_err(opened)?;
    let (exchanges, forgets) = (exchanges(&sequence, &moments), sequence.forgets());
    let (name, trace) = (sequence.name, device.trace());
    Ok(Run { name, engine, trace, moments, began, durable, fsyncs, exchanges, forgets, past, snapshots })
}

/// Draws an inode: two of three times one that has changed between two trees, if there is any.
fn draw(before: &Tree, now: &Tree, random: &mut Xoshiro256PlusPlus) -> Option<u64> {
    let mut all: Vec<u64> = now.nodes.keys().copied().collect();
    if random.random_range(0..3) > 0 {
        let changed = all.iter().copied().filter(|inode| before.nodes.get(inode) != now.nodes.get(inode));
        let changed: Vec<u64> = changed.collect();
        if !changed.is_empty() {
            all = changed;
        }
    }
    all.sort_unstable();
    (!all.is_empty()).then(|| all[random.random_range(0..all.len())])
}

/// Files come, lose their names while they are in use, and go. Among the orphans of the crash no inode may be
/// that is free by now: its number is taken again, and then it is an orphan again.
fn use_inodes(volume: &Volume) -> yore_fs::Result<()> {
    for number in 0..12 {
        let path = format!("made after the crash {number}");
        File::create(volume, &path)?;
        let held = volume.symlink_node(&path)?;
        volume.remove_file(&path)?;
        drop(held);
    }
    volume.sync()
}

impl Run {
    /// The name of its sequence.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Tries about so many states, drawn by a seed.
    ///
    /// # Errors
    /// What is wrong with a state.
    pub fn try_states(&self, states: usize, seed: u64) -> Result<Tried, Wrong> {
        self.each_state(states, seed, &mut |medium, after_entry, next| {
            self.try_state(medium, after_entry, next)
        })
    }

    /// Tries about so many states, drawn by a seed: each is mounted and recounted, every second one while
    /// others work. Then nothing of what the crash has left is there any more, and the volume says so.
    ///
    /// # Errors
    /// What is wrong with a state.
    pub fn try_recounts(&self, states: usize, seed: u64) -> Result<Tried, Wrong> {
        let mut beside = true;
        self.each_state(states, seed, &mut |medium, after_entry, next| {
            beside = !beside;
            self.try_recount(medium, after_entry, next, beside)
        })
    }

    fn each_state(
        &self,
        states: usize,
        seed: u64,
        each: &mut dyn FnMut(&MemoryDevice, usize, Engine) -> Result<usize, Wrong>,
    ) -> Result<Tried, Wrong> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut tried = Tried::default();
        while tried.states < states {
            let after_entry = random.random_range(0..=self.trace.len());
            let point = self.trace.crash_point(after_entry).map_err(|error| Wrong::new("replay", error))?;
            let plan = CrashPlan {
                exhaustive_max: 8,
                samples: 3,
                seed: random.random_range(0..1 << 32),
                tearing: Tearing::Blocks,
                ..CrashPlan::default()
            };
            for choice in point.choices(&plan) {
                let medium = point
                    .materialise(choice, Tearing::Blocks)
                    .map_err(|error| Wrong::new("replay", error))?;
                let next = match random.random_range(0..4) {
                    0 => Engine::Snapshot,
                    _ => self.engine,
                };
                let state = CrashState { after_entry, choice, tearing: Tearing::Blocks };
                tried.tolerated += each(&medium, after_entry, next).map_err(|wrong| {
                    let (name, engine) = (self.name, self.engine.name());
                    let line = format!("{name} under {engine}, {state}, then {}: ", next.name());
                    Wrong::new(wrong.class, format!("{line}{}", wrong.message))
                })?;
                tried.states += 1;
            }
        }
        Ok(tried)
    }

    fn try_state(&self, medium: &MemoryDevice, after_entry: usize, next: Engine) -> Result<usize, Wrong> {
        let expected = self.expected(after_entry);
        let (tolerated, names) = examine(&medium.snapshot(), &expected)?;
        let device = Arc::new(medium.snapshot());
        let opened = |error: yore_fs::Error| Wrong::new("open", error);
        let volume = Volume::open(device.clone(), &options(Some(next), false)).map_err(opened)?;
        let tree = see(volume.view())?;
        volume.close().map_err(opened)?;
        let report = check(&*device, &CheckOptions::default()).map_err(|error| Wrong::new("check", error))?;
        if let Some(finding) = Findings::Ordered.wrong_of(&report) {
            return Err(Wrong::new("check", format!("after the mount: {finding}")));
        }
        let volume = Volume::open(device, &options(Some(Engine::Snapshot), false)).map_err(opened)?;
        let again = see(volume.view())?;
        use_inodes(&volume).map_err(|error| Wrong::new("use", error))?;
        volume.close().map_err(opened)?;
        match tree.names_hash() == again.names_hash() && names == again.names_hash() {
            true => Ok(tolerated),
            false => Err(Wrong::new("again", "the next mount found other names and attributes")),
        }
    }
    /// What a state must have if the power failed behind so many entries.
    fn expected(&self, after_entry: usize) -> Expected<'_> {
        let durable = self.durable.iter().rev().find(|(entries, _)| *entries <= after_entry);
        let first = durable.map_or(0, |(_, moment)| *moment);
        // A call may have changed the medium from the entry on before which it began.
        let last = self.began.iter().filter(|entries| **entries <= after_entry).count();
        let last = last.clamp(first, self.moments.len() - 1);
        let fsyncs = self.fsyncs.iter().filter(|synced| synced.entries <= after_entry);
        let exchanges = self.exchanges.iter().filter(|(moment, _)| *moment <= last);
        Expected {
            between: Between {
                moments: &self.moments[first..=last],
                held: Held::by(fsyncs, first),
                exchanges: exchanges.map(|(moment, what)| (moment.saturating_sub(first), *what)).collect(),
            },
            past: &self.past,
            snapshots: self.snapshots,
            forgets: self.forgets,
        }
    }

    fn try_recount(
        &self,
        medium: &MemoryDevice,
        after_entry: usize,
        next: Engine,
        beside: bool,
    ) -> Result<usize, Wrong> {
        let before = check(medium, &CheckOptions::default()).map_err(|error| Wrong::new("check", error))?;
        let opened = |error: yore_fs::Error| Wrong::new("open", error);
        let device = Arc::new(medium.snapshot());
        let volume = Volume::open(device.clone(), &options(Some(next), false)).map_err(opened)?;
        let view = volume.view();
        let pending = view.leaks_pending();
        match beside {
            false => recount(view)?,
            true => {
                let is_over = AtomicBool::new(false);
                std::thread::scope(|scope| {
                    let work = scope.spawn(|| work_beside(&volume, &is_over));
                    let end = IsOver(&is_over);
                    let recounted = recount(view);
                    drop(end);
                    let worked = work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                    worked.map_err(|error| Wrong::new("work beside", error))?;
                    recounted
                })?;
            }
        }
        if pending && !beside {
            let expected = self.expected(after_entry);
            let judged = effect::judge(&without_rescued(see(view)?)?, &expected.between, true);
            judged.map_err(|error| Wrong::new("effect", error))?;
            examine_past(view, &expected)?;
        }
        volume.close().map_err(opened)?;
        let after = check(&*device, &CheckOptions::default()).map_err(|error| Wrong::new("check", error))?;
        match after.findings.first() {
            Some(finding) => Err(Wrong::new("check", format!("after the recount: {finding}"))),
            None if after.state != VolumeState::Clean => Err(Wrong::new("check", "the volume is not clean")),
            None => Ok(before.findings.len()),
        }
    }
}

/// A tree without the directory in which the recount has put what had no name, but with what is in it:
/// directories alone. No call has made it.
fn without_rescued(mut tree: Tree) -> Result<Tree, Wrong> {
    must_rescue_directories_alone(&Tree::default(), &tree)?;
    let root = tree.root;
    let found = tree.nodes.get_mut(&root).and_then(|root| match &mut root.inside {
        Inside::Directory { entries, .. } => entries.remove(LOST_AND_FOUND),
        _ => None,
    });
    if let Some((number, _)) = found {
        tree.nodes.remove(&number);
    }
    Ok(tree)
}

/// Says that it is over when it is dropped. A panic would have those who work beside go on for ever.
struct IsOver<'a>(&'a AtomicBool);

impl Drop for IsOver<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Files come, grow, get other names, are changed beside others, and go, until it is over.
fn work_beside(volume: &Volume, is_over: &AtomicBool) -> yore_fs::Result<()> {
    let there: Vec<_> = volume.read_dir("/")?.collect::<yore_fs::Result<_>>()?;
    volume.create_dir("work beside")?;
    let mut number = 0;
    while number < 30 || !is_over.load(Ordering::Relaxed) {
        let path = |number: u32| format!("work beside/{}", number % 7);
        match number % 5 {
            0 | 1 => volume.write(path(number), vec![1; 3000 * (number as usize % 9)])?,
            2 => drop(volume.rename(path(number - 1), path(number + 2))),
            3 => drop(volume.hard_link(path(number - 3), path(number + 1))),
            _ => drop(volume.remove_file(path(number - 2))),
        }
        if let Some(entry) = there.get(number as usize % (there.len() * 3 + 1)) {
            // What the crash has touched changes, too.
            let path = entry.path();
            let moved = path.with_file_name(format!("moved {number}"));
            if volume.rename(&path, &moved).is_ok() {
                drop(volume.rename(&moved, &path));
            }
        }
        number += 1;
    }
    Ok(())
}
