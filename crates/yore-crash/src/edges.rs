//! The judge of the order of changes (docs/EDGES.md): proves the edges without an engine that uses them.
//!
//! It records short sequences of calls with all their changes, and builds states that an ordered engine may
//! leave: sets of changes that are closed under the edges. Each is put on a medium, checked with the
//! tolerances that such an engine has, mounted, and walked. With a kind of edge left out, some sequence must
//! show a state that is wrong; a kind that nobody misses would not be needed, or the judge would be blind.
//!
//! The same sequences are carried out under the engines themselves (`crashes.rs`).
//!
//! `calls.rs` has the sequences, `units.rs` what a change means, `sets.rs` the sets, `state.rs` puts one on a
//! medium, `effect.rs` says what it must have, `synced.rs` what more it must have behind an fsync.

mod calls;
pub mod crashes;
mod effect;
mod sets;
mod state;
mod synced;
mod units;

use crate::subject::observe;
use crate::tree::Tree;
use crate::volume::{make, quiet, used_device, Findings, Wrong};
use calls::{Call, Carrier, Sequence};
use effect::Between;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use sets::{Order, Set};
use state::{Ground, NoMedium};
use std::sync::Arc;
use synced::{at_path, Held};
use yore_check::{check, CheckOptions};
use yore_device::{Device, MemoryDevice};
use yore_fs::{EdgeKind, Engine, EventNo, InodeNo, MountOptions, Recording, View, Volume};

/// A sequence that was carried out, with its changes.
pub struct Recorded {
    name: &'static str,
    ground: Ground,
    recording: Recording,
    order: Order,
    /// The tree before the first call and behind each.
    moments: Vec<Tree>,
    exchanges: Vec<(usize, bool)>,
    /// What each snapshot has seen, in ascending order.
    past: Vec<(EventNo, Tree)>,
    /// How many of them there were before the first call.
    snapshots: usize,
    forgets: bool,
}

/// The names of all sequences.
pub fn sequences() -> Vec<&'static str> {
    calls::all().into_iter().map(|sequence| sequence.name).collect()
}

/// The kinds of edges that some sequence needs.
pub fn demanded() -> impl Iterator<Item = EdgeKind> {
    EdgeKind::ALL.iter().copied().filter(|kind| !calls::NOT_DEMANDED.contains(kind))
}

fn options(engine: Option<Engine>, read_only: bool) -> MountOptions {
    MountOptions { keep_history: true, defragment_after: None, ..quiet(engine, read_only) }
}

/// Carries a sequence out and records it.
///
/// # Errors
/// If a call fails, or there is no such sequence.
pub fn record(name: &str) -> Result<Recorded, Wrong> {
    let sequence = calls::all().into_iter().find(|sequence| sequence.name == name);
    let Some(sequence) = sequence else {
        return Err(Wrong::new("sequence", format!("no sequence {name:?}")));
    };
    let opened = |error: yore_fs::Error| Wrong::new("open", error);
    let device = Arc::new(used_device());
    let raw: Arc<dyn Device> = device.clone();
    make(&raw, Engine::Snapshot, 1)?;
    prepare(&raw, &sequence)?;
    let base = device.snapshot();
    // Under `none` nothing but file data reaches the device before the volume is closed.
    let volume = Volume::open(raw, &options(Some(Engine::None), false)).map_err(opened)?;
    let view = volume.view().clone();
    let mut moments = vec![see(&view)?];
    let mut past = Vec::new();
    see_past(&view, &mut past)?;
    let snapshots = past.len();
    view.record_order().map_err(opened)?;
    let mut carrier = Carrier::new(&volume);
    for call in &sequence.calls {
        carrier.carry_out(call)?;
        moments.push(see(&view)?);
        see_past(&view, &mut past)?;
    }
    let recording = view.recorded_order().map_err(opened)?;
    let with_data = device.snapshot();
    drop(carrier);
    volume.close().map_err(opened)?;
    let ground = Ground::load(base, with_data)?;
    let order = Order::of(&recording);
    let (exchanges, forgets) = (exchanges(&sequence, &moments), sequence.forgets());
    let name = sequence.name;
    Ok(Recorded { name, ground, recording, order, moments, exchanges, past, snapshots, forgets })
}

/// At which moments names had just changed places in a sequence, and whether one side was a directory.
fn exchanges(sequence: &Sequence, moments: &[Tree]) -> Vec<(usize, bool)> {
    let calls = sequence.calls.iter().enumerate();
    let exchanges = calls.filter_map(|(number, call)| match call {
        Call::Exchange(a, b) => {
            let tree = &moments[number];
            let is_directory =
                |path: &str| at_path(tree, path).is_some_and(|inode| tree.entries(inode).is_some());
            Some((number + 1, is_directory(a) || is_directory(b)))
        }
        _ => None,
    });
    exchanges.collect()
}

fn prepare(device: &Arc<dyn Device>, sequence: &Sequence) -> Result<(), Wrong> {
    let opened = |error: yore_fs::Error| Wrong::new("open", error);
    let volume = Volume::open(device.clone(), &options(None, false)).map_err(opened)?;
    let mut carrier = Carrier::new(&volume);
    sequence.before.iter().try_for_each(|call| carrier.carry_out(call))?;
    drop(carrier);
    volume.close().map_err(opened)
}

fn see(view: &View) -> Result<Tree, Wrong> {
    observe(view, view.root()).map_err(|error| Wrong::new("walk", error))
}

/// Adds what each kept snapshot has seen that is not there yet.
fn see_past(view: &View, past: &mut Vec<(EventNo, Tree)>) -> Result<(), Wrong> {
    let last = past.last().map(|(number, _)| *number);
    for event in view.events().map_err(|error| Wrong::new("events", error))? {
        if last.is_none_or(|last| event.number > last) {
            past.push((event.number, see(&view.as_of(event.number))?));
        }
    }
    Ok(())
}

/// Half an exchange has left these inodes without a name. Each has the hint by which a recount gives it one:
/// it leads to an entry that means another inode, which has a name at its own hint.
fn examine_hints(medium: &MemoryDevice, view: &View, nameless: &[u64]) -> Result<(), Wrong> {
    if nameless.is_empty() {
        return Ok(());
    }
    let ground = Ground::load(medium.snapshot(), medium.snapshot())?;
    let at_hint = |no: InodeNo| {
        let (inode, mut found) = (ground.inode(no)?, None);
        let cookie = inode.parent_cookie;
        let listed = view.readdir(inode.parent, cookie.saturating_sub(1), &mut |item| {
            found = (item.cookie == cookie).then_some(item.inode);
            false
        });
        listed.map_err(|error| Wrong::new("hint", format!("{no} hints at {}: {error}", inode.parent)))?;
        found.ok_or_else(|| Wrong::new("hint", format!("the hint of inode {no} leads to no entry")))
    };
    for no in nameless.iter().map(|number| InodeNo(*number)) {
        let other = at_hint(no)?;
        if other == no || at_hint(other)? != other {
            return Err(Wrong::new("hint", format!("inode {no} has no name and hints at {other}")));
        }
    }
    Ok(())
}

impl Recorded {
    /// How many changes there are.
    pub fn changes(&self) -> usize {
        self.recording.changes.len()
    }

    /// Judges about so many states: least sets that have a change, greatest ones that lack one, and random
    /// ones between. Returns how many they were.
    ///
    /// # Errors
    /// What is wrong with a state.
    pub fn judge(&self, states: usize, seed: u64) -> Result<usize, Wrong> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut changes: Vec<usize> = (0..self.changes()).collect();
        changes.shuffle(&mut random);
        let mut sets: Vec<Set> = vec![vec![false; self.changes()], vec![true; self.changes()]];
        for change in changes {
            sets.push(self.order.least([change]));
            sets.push(self.order.greatest_without(change));
            let few: Vec<usize> =
                (0..1 + random.random_range(0..4)).map(|_| random.random_range(0..self.changes())).collect();
            sets.push(self.order.least(few));
            if sets.len() >= states {
                break;
            }
        }
        sets.sort_unstable();
        sets.dedup();
        for set in &sets {
            self.judge_set(set.clone())?;
        }
        Ok(sets.len())
    }

    /// Whether some state is wrong if a kind of edge is left out. Tries the states in which one such edge is
    /// broken, up to so many.
    pub fn misses(&mut self, kind: EdgeKind, most: usize) -> bool {
        let edges = self.order.of_kind(kind);
        self.order.without = Some(kind);
        let step = edges.len().div_ceil(most.max(1)).max(1);
        let missed = edges.into_iter().step_by(step).any(|(first, then)| {
            let least = self.order.least([then]);
            let greatest = self.order.greatest_without(first);
            let is_broken = |set: &Set| set[then] && !set[first];
            [least, greatest].into_iter().any(|set| is_broken(&set) && self.judge_set(set).is_err())
        });
        self.order.without = None;
        missed
    }

    fn judge_set(&self, mut set: Set) -> Result<(), Wrong> {
        let medium = loop {
            match self.ground.medium(&self.recording, &set) {
                Ok(medium) => break medium,
                Err(NoMedium::Wrong(wrong)) => return Err(wrong),
                // U3: what was taken out of the node comes first.
                Err(NoMedium::Full(addr)) => {
                    let last = self.last_of(addr, |change| set[change]);
                    let more = (0..last.unwrap_or(0))
                        .filter(|change| self.recording.changes[*change].1.addr() == Some(addr));
                    let all = (0..set.len()).filter(|change| set[*change]).chain(more);
                    let next = self.order.least(all);
                    if next == set {
                        return Err(Wrong::new("state", format!("the cells of {addr} do not fit")));
                    }
                    set = next;
                }
            }
        };
        let expected = Expected {
            between: Between {
                moments: &self.moments,
                held: Held::default(),
                exchanges: self.exchanges.clone(),
            },
            past: &self.past,
            snapshots: self.snapshots,
            forgets: self.forgets,
        };
        examine(&medium, &expected).map(|_| ()).map_err(|wrong| self.tell(&set, wrong))
    }

    fn last_of(&self, addr: yore_format::MetaAddr, of: impl Fn(usize) -> bool) -> Option<usize> {
        (0..self.changes())
            .rfind(|change| of(*change) && self.recording.changes[*change].1.addr() == Some(addr))
    }

    /// A wrong state, in words.
    fn tell(&self, set: &Set, wrong: Wrong) -> Wrong {
        let list = |is: bool| {
            let numbers: Vec<String> =
                (0..set.len()).filter(|i| set[*i] == is).map(|i| i.to_string()).collect();
            numbers.join(" ")
        };
        let places = self.recording.changes.iter().enumerate().map(|(i, (op, place))| {
            format!("    {}{i} of Op {op}: {}", if set[i] { "+" } else { "-" }, state::show(place))
        });
        let places: Vec<String> = places.collect();
        let message = format!(
            "{}: {}\n  changes on the medium: {}\n  and not: {}\n{}",
            self.name,
            wrong.message,
            list(true),
            list(false),
            places.join("\n")
        );
        Wrong::new(wrong.class, message)
    }
}

/// What a state of a sequence must have.
struct Expected<'a> {
    between: Between<'a>,
    /// What each snapshot has seen, in ascending order.
    past: &'a [(EventNo, Tree)],
    /// How many of them there were before the first call.
    snapshots: usize,
    forgets: bool,
}

/// Examines a state: checks it, mounts it and walks it. Returns how much the checker found that may be left,
/// and what stands for all names and attributes.
fn examine(medium: &MemoryDevice, expected: &Expected<'_>) -> Result<(usize, u64), Wrong> {
    let report = check(medium, &CheckOptions::default()).map_err(|error| Wrong::new("check", error))?;
    if let Some(finding) = Findings::Ordered.wrong_of(&report) {
        return Err(Wrong::new("check", finding));
    }
    let view = View::open(Arc::new(medium.snapshot()), &options(None, true));
    let view = view.map_err(|error| Wrong::new("open", error))?;
    let tree = see(&view)?;
    let effect = effect::judge(&tree, &expected.between, false);
    let nameless = effect.map_err(|error| Wrong::new("effect", error))?;
    examine_hints(medium, &view, &nameless)?;
    examine_past(&view, expected)?;
    Ok((report.findings.len(), tree.names_hash()))
}

/// What a kept snapshot sees is what it has always seen.
fn examine_past(view: &View, expected: &Expected<'_>) -> Result<(), Wrong> {
    let wrong = |what: String| Wrong::new("past", what);
    let kept = view.events().map_err(|error| wrong(error.to_string()))?;
    for (number, _) in expected.past[..expected.snapshots].iter().filter(|_| !expected.forgets) {
        if !kept.iter().any(|event| event.number == *number) {
            return Err(wrong(format!("the snapshot {number} is gone")));
        }
    }
    for event in kept {
        let number = event.number;
        let Some((_, tree)) = expected.past.iter().find(|(of, _)| *of == number) else {
            return Err(wrong(format!("nobody has taken the snapshot {number}")));
        };
        let sees = see(&view.as_of(number))?;
        effect::compare(&sees, tree).map_err(|error| wrong(format!("snapshot {number}: {error}")))?;
    }
    Ok(())
}
