//! Promise: wherever the power fails during a rollback, when the volume is opened again, the directory is as
//! before the rollback or as after it, never in between. Once the rollback was promised, it is as after it.
//! Other directories are not affected, the volume is sound before and after, and the events show what they
//! have seen.
//!
//! The test runs random sequences of operations and snapshots, each with a rollback, an undo or a redo, and
//! lets the power fail after each of its writes; so it does under engines that order changes, which may leave
//! what docs/EDGES.md says, and on volumes that are nearly full, where a rollback that finds no room must
//! have done nothing. `YORE_SEED=n` begins with another sequence, `YORE_ROUNDS=n` runs that many.

use crate::common::seeds;
use crate::common::tree;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use seeds::seeds;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tree::{tree, Tree};
use yore_check::{check, CheckOptions, Report};
use yore_crash::volume::Findings;
use yore_device::simulated::{Choice, CrashPlan, SimulatedDevice, Tearing};
use yore_device::MemoryDevice;
use yore_fs::rollback::{next, operations, until, Plan, Rights, Verb};
use yore_fs::{
    Engine, Error, EventNo, FallocateMode, InodeFlags, InodeNo, MkfsOptions, MountOptions, NewSnapshot,
    RenameMode, SetXattrMode, View, Volume,
};

const SIZE: u64 = 32 << 20;
/// The promise that it is done.
const DONE: u64 = 1;

fn options() -> MountOptions {
    MountOptions { commit_interval: Duration::from_secs(3600), ..MountOptions::default() }
}

struct Random(Xoshiro256PlusPlus);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0.random_range(0..n)
    }

    fn path(&mut self) -> String {
        let directory = ["", "a/", "b/", "a/c/"][self.below(4)];
        let name = ["f", "g", "h", "i", "j", "c"][self.below(6)];
        format!("d/{directory}{name}")
    }

    /// Changes something; skips what is impossible.
    fn step(&mut self, volume: &Volume) {
        let (path, other, n) = (self.path(), self.path(), self.below(60_000));
        let _ = match self.below(16) {
            0..=4 => volume.write(&path, vec![n as u8; if n % 3 == 0 { n } else { n % 90 }]),
            5 => volume.create_dir(&path),
            6 => volume.create_dir_all(["d/a/c", "d/b"][n % 2]),
            7 => volume.remove_file(&path),
            8 if n % 3 == 0 => volume.remove_dir_all(&path),
            9 | 10 => {
                let mode = if n % 4 == 0 { RenameMode::Exchange } else { RenameMode::Replace };
                volume.rename_with(&path, &other, mode)
            }
            11 => volume.hard_link(&path, &other),
            12 => volume.set_permissions(&path, 0o600 + n as u32 % 64),
            13 => volume.set_xattr(&path, "user.a", n.to_string(), SetXattrMode::Any),
            // The attribute is removed as often as it is set.
            14 => volume.node(&path).and_then(|node| {
                let bits = [InodeFlags::IMMUTABLE, InodeFlags::APPEND_ONLY, InodeFlags::NO_DUMP];
                let flags = bits.get(n % 6).copied().unwrap_or(InodeFlags::empty());
                volume.view().set_flags(node.inode(), flags)
            }),
            _ => volume.symlink("target", &path),
        };
    }
}

/// The last operation: a rollback to the first event, an undo of one, or a redo of that.
fn roll(volume: &Volume, dir: InodeNo, target: EventNo, verb: Verb) -> yore_fs::Result<()> {
    let view = volume.view();
    let plan = match verb {
        Verb::Rollback => Plan { verb, of: None, target, others: None },
        verb => {
            let events = view.events().unwrap();
            let all = operations(events.iter().filter(|event| event.row.root == dir));
            let one = next(&all, verb == Verb::Redo).unwrap();
            let target = one.before.as_ref().unwrap().number;
            Plan { verb, of: Some(one.number), target, others: until(&all, one) }
        }
    };
    view.rollback(&Rights::All, dir, &plan, &mut |_| ()).map(|_| ())
}

/// Runs a sequence up to the last rollback, which is to be that of `verb`. Returns the directory, and the
/// event to which it goes back.
fn until_the_last(volume: &Volume, seed: u64, verb: Verb) -> (InodeNo, EventNo) {
    let mut random = Random(Xoshiro256PlusPlus::seed_from_u64(seed));
    volume.create_dir_all("d/a/c").unwrap();
    volume.create_dir("d/b").unwrap();
    volume.write("beside", "beside").unwrap();
    let view = volume.view();
    let dir = volume.node("d").unwrap().inode();
    (0..30).for_each(|_| random.step(volume));
    let whole = if seed.is_multiple_of(3) { view.root() } else { dir };
    let target =
        view.take_snapshot(whole, &NewSnapshot { wait: true, ..NewSnapshot::default() }).unwrap().number;
    (0..25).for_each(|_| random.step(volume));
    if verb != Verb::Rollback {
        roll(volume, dir, target, Verb::Rollback).unwrap();
        // Others go on.
        (0..2).for_each(|_| random.step(volume));
        if verb == Verb::Redo {
            roll(volume, dir, target, Verb::Undo).unwrap();
        }
    }
    if seed.is_multiple_of(2) {
        volume.sync().unwrap();
    } else {
        // Everything so far is promised, but in no generation yet.
        view.take_snapshot(dir, &NewSnapshot { wait: true, ..NewSnapshot::default() }).unwrap();
    }
    (dir, target)
}

/// Leaves so many blocks on a volume.
fn leave_little(volume: &Volume, blocks: u64) {
    let node = yore_fs::File::create(volume, "takes all the room").map(drop);
    node.and_then(|()| volume.node("takes all the room"))
        .and_then(|node| {
            let room = volume.view().statfs();
            let len = room.blocks_available.saturating_sub(blocks) * u64::from(room.block_size);
            let mode = FallocateMode::Allocate { keep_size: true };
            volume.view().fallocate(node.inode(), 0, len, mode)
        })
        .and_then(|()| volume.sync())
        .unwrap();
}

/// A check finds nothing but what the engine may leave.
fn must_be_sound(report: &Report, engine: Engine, state: &str) {
    if let Some(finding) = Findings::behind_a_crash_under(engine).wrong_of(report) {
        panic!("{state}: {finding}");
    }
}

/// Runs a sequence; returns how many states there were. `left`: so many blocks are left before the rollback.
fn run(seed: u64, engine: Engine, left: Option<u64>) -> usize {
    let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(SIZE)));
    let log_size = (seed.is_multiple_of(2)).then_some(0);
    let mkfs = MkfsOptions { log_size, engine, ..MkfsOptions::default() };
    Volume::create(device.clone(), &mkfs).unwrap().close().unwrap();
    let volume = Volume::open(device.clone(), &options()).unwrap();
    let verb = [Verb::Rollback, Verb::Undo, Verb::Redo, Verb::Rollback][seed as usize % 4];
    let (dir, target) = until_the_last(&volume, seed, verb);
    let view = volume.view();
    if let Some(left) = left {
        leave_little(&volume, left);
    }
    let before = tree(view, dir);
    device.restart_trace();
    let is_done = match roll(&volume, dir, target, verb) {
        Err(error) if left.is_some() && matches!(error.root(), Error::NoSpace | Error::NeverFits { .. }) => {
            false
        }
        rolled => rolled.map(|()| true).unwrap(),
    };
    device.mark(DONE);
    let after = tree(view, dir);
    match is_done {
        true => assert!(verb != Verb::Rollback || after == tree_of_then(view, dir, target), "seed {seed}"),
        false => assert!(after == before, "seed {seed}: what found no room has changed something"),
    }
    if seed % 3 == 1 {
        volume.sync().unwrap();
    }
    let trace = device.trace();
    let mut states = 0;
    let tearing = match engine {
        Engine::Snapshot => CrashPlan::default().tearing,
        _ => Tearing::Blocks,
    };
    for case in trace.crash_states(&CrashPlan { tearing, ..CrashPlan::default() }) {
        let promised = trace.marks_before(case.after_entry()).any(|mark| mark == DONE);
        let state = format!("YORE_SEED={seed} {} {left:?}: {}", engine.name(), case.state());
        let medium = Arc::new(case.materialise());
        let report = check(&*medium, &CheckOptions::default()).unwrap();
        must_be_sound(&report, engine, &state);
        // If a generation was complete before, a generation that has the row is of this rollback, and not of
        // the one that is undone.
        let is_begun = seed.is_multiple_of(2) && report.counts.rollbacks > 0;
        let again = Volume::open(medium.clone(), &options()).unwrap();
        let found = tree(again.view(), dir);
        let shown = |of: &Tree| {
            let differ = found.keys().chain(of.keys()).filter(|path| found.get(*path) != of.get(*path));
            let one = |path: &PathBuf| format!("{path:?}: {:?}, not {:?}", found.get(path), of.get(path));
            differ.map(one).collect::<Vec<_>>()
        };
        match promised || is_begun {
            true => assert!(found == after, "{state}: not as after: {:#?}", shown(&after)),
            false => assert!(
                found == before || found == after,
                "{state}: between: {:#?} {:#?}",
                shown(&before),
                shown(&after)
            ),
        }
        assert_eq!(again.read_to_string("beside").unwrap(), "beside", "{state}");
        assert_eq!(again.view().unfinished_rollbacks().unwrap(), [], "{state}");
        assert_eq!(tree_of_then(again.view(), dir, target), tree_of_then(view, dir, target), "{state}");
        again.close().unwrap();
        let report = check(&*medium, &CheckOptions::default()).unwrap();
        must_be_sound(&report, engine, &state);
        assert!(report.counts.rollbacks == 0, "{state}: {report}");
        states += 1;
    }
    states
}

/// The past of a directory. Set-id bits, which the past does not show, are left out on both sides; there are
/// none here anyway.
fn tree_of_then(view: &View, dir: InodeNo, event: EventNo) -> Tree {
    tree(&view.as_of(event), dir)
}

/// `YORE_ROUNDS` says how many other sequences to run, and `YORE_SEED` where to begin.
#[test]
fn a_crash_leaves_before_or_after() {
    let mut states = 0;
    for seed in seeds(6) {
        states += run(seed, Engine::Snapshot, None);
    }
    println!("{states} states");
    assert!(states > 20, "{states}");
}

/// The same under engines that order changes.
#[test]
fn a_crash_under_an_engine_that_orders_changes_leaves_before_or_after() {
    for engine in [Engine::SoftUpdates, Engine::Sync] {
        let states: usize = seeds(2).map(|seed| run(seed, engine, None)).sum();
        println!("{states} states under {}", engine.name());
        assert!(states > 20, "{states}");
    }
}

/// The same where hardly any room is left. Not under `sync`: there a mount behind the crash may find less
/// room than the rollback had, and leave it stopped (docs/TESTING.md, "Not covered").
#[test]
fn a_crash_on_a_nearly_full_volume_leaves_before_or_after() {
    for engine in [Engine::Snapshot, Engine::SoftUpdates] {
        let left = |seed: u64| [40, 0, 4][(seed % 3) as usize];
        let states: usize = seeds(3).map(|seed| run(seed, engine, Some(left(seed)))).sum();
        println!("{states} states under {}", engine.name());
        assert!(states > 10, "{states}");
    }
}

/// A rollback that finds nothing to change promises the same: what the directory has is durable, the data of
/// its files, too.
#[test]
fn a_rollback_that_changes_nothing_is_durable() {
    for engine in [Engine::Snapshot, Engine::Journal, Engine::SoftUpdates, Engine::Sync] {
        let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(SIZE)));
        let mkfs = MkfsOptions { engine, ..MkfsOptions::default() };
        Volume::create(device.clone(), &mkfs).unwrap().close().unwrap();
        let volume = Volume::open(device.clone(), &options()).unwrap();
        volume.create_dir("d").unwrap();
        volume.write("d/f", vec![7; 20_000]).unwrap();
        let dir = volume.node("d").unwrap().inode();
        let target = volume.view().take_snapshot(dir, &NewSnapshot::default()).unwrap().number;
        roll(&volume, dir, target, Verb::Rollback).unwrap();
        let trace = device.trace();
        let case = trace.crash_point(trace.len()).unwrap();
        let medium = case.materialise(Choice::None, Tearing::Blocks).unwrap();
        let again = Volume::open(Arc::new(medium), &options()).unwrap();
        assert_eq!(again.read("d/f").unwrap(), vec![7; 20_000], "{}", engine.name());
    }
}
