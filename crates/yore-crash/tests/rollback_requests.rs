//! Promise: whatever rollback an owner asks for, it ends, or is refused before anything is changed.
//! Directories change at random, and are rolled back as of any event. The request may say that others'
//! changes lie between any two events, as a program that speaks to a mount may do. Meanwhile files are open,
//! have names elsewhere, and come and go in the directory that is rolled back. A rollback that leaves no
//! changes out makes everything exactly what it was then; and what was undone can be undone.
//!
//! `YORE_SEED=n` begins with another sequence, `YORE_ROUNDS=n` runs that many.

use crate::common::seeds;
use crate::common::tree;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use seeds::seeds;
use std::path::PathBuf;
use std::sync::Arc;
use tree::tree;
use yore_check::{check, CheckOptions};
use yore_device::MemoryDevice;
use yore_fs::rollback::{next, operations, until, Plan, Rights, Verb};
use yore_fs::{
    Error, EventNo, File, FileKind, InodeNo, MkfsOptions, MountOptions, NewSnapshot, RenameMode,
    SetXattrMode, Volume,
};

const SIZE: u64 = 64 << 20;
/// Directories that get snapshots and are rolled back.
const ROOTS: [&str; 4] = ["/", "d", "d/a", "d/b"];

struct Owner {
    random: Xoshiro256PlusPlus,
    volume: Volume,
    open: Vec<File>,
    log: Vec<String>,
}

impl Owner {
    fn below(&mut self, n: usize) -> usize {
        self.random.random_range(0..n)
    }

    fn path(&mut self) -> String {
        let directory = ["d/", "d/", "d/a/", "d/b/", "d/a/c/", "d/b/e/", "beside/"][self.below(7)];
        let name = ["f", "g", "h", "a", "b", "c", "e", ".yore-rollback-0", "0"][self.below(9)];
        format!("{directory}{name}")
    }

    /// Changes something; skips what is impossible.
    fn step(&mut self) {
        let (path, other, n, what) = (self.path(), self.path(), self.below(60_000), self.below(24));
        let volume = &self.volume;
        let done = match what {
            0..=4 => volume.write(&path, vec![n as u8; if n % 3 == 0 { n } else { n % 120 }]),
            5 | 6 => volume.create_dir(&path),
            7 => volume.create_dir_all(["d/a/c", "d/b/e"][n % 2]),
            8 => volume.remove_file(&path),
            9 => volume.remove_dir(&path),
            10 if n % 3 == 0 => volume.remove_dir_all(&path),
            11..=14 => {
                let mode = [RenameMode::Replace, RenameMode::Exchange, RenameMode::NoReplace][n % 3];
                volume.rename_with(&path, &other, mode)
            }
            15 | 16 => volume.hard_link(&path, &other),
            17 => volume.set_permissions(&path, n as u32 % 0o10000),
            18 => volume.set_xattr(&path, "user.a", n.to_string(), SetXattrMode::Any),
            19 => volume.symlink("t".repeat(n % 2000 + 1), &path),
            20 => volume.create_special(&path, [FileKind::Fifo, FileKind::Socket][n % 2], 0o600, 0),
            21 => volume.truncate(&path, n as u64 * 7),
            22 => File::open(volume, &path).map(|file| self.open.push(file)),
            _ => {
                self.open.clear();
                Ok(())
            }
        };
        if done.is_ok() {
            self.log.push(format!("{what} {path} {other} {n}"));
        }
    }

    fn events(&self, dir: InodeNo) -> Vec<EventNo> {
        let view = self.volume.view();
        let sees = |number: &EventNo| view.as_of(*number).getattr(dir).is_ok();
        view.events().unwrap().iter().map(|event| event.number).filter(sees).collect()
    }

    /// A plan, either as the commands make it or any other.
    fn plan(&mut self, dir: InodeNo, numbers: &[EventNo]) -> Option<Plan> {
        let any = numbers[self.below(numbers.len())];
        match self.below(6) {
            0 => Some(Plan { verb: Verb::Rollback, of: None, target: any, others: None }),
            1 | 2 => {
                let verb = [Verb::Undo, Verb::Redo][self.below(2)];
                let events = self.volume.view().events().unwrap();
                let all = operations(events.iter().filter(|event| event.row.root == dir));
                let one = next(&all, verb == Verb::Redo)?;
                let target = one.before.as_ref()?.number;
                let others = if self.below(3) == 0 { None } else { until(&all, one) };
                Some(Plan { verb, of: Some(one.number), target, others })
            }
            _ => {
                let verb = [Verb::Rollback, Verb::Undo, Verb::Redo][self.below(3)];
                let from = numbers[self.below(numbers.len())];
                let to = (self.below(2) == 0).then(|| numbers[self.below(numbers.len())]);
                let of = (self.below(2) == 0).then(|| self.below(20) as u64);
                Some(Plan { verb, of, target: any, others: Some((from, to)) })
            }
        }
    }

    fn roll(&mut self) {
        let path = ROOTS[self.below(ROOTS.len())];
        let Ok(dir) = self.volume.node(path).map(|node| node.inode()) else { return };
        if self.volume.view().getattr(dir).unwrap().kind != FileKind::Directory {
            return;
        }
        let numbers = self.events(dir);
        if numbers.is_empty() {
            return;
        }
        let Some(plan) = self.plan(dir, &numbers) else { return };
        self.log.push(format!("{plan:?} of {path}"));
        let view = self.volume.view().clone();
        let tail = self.log.len().saturating_sub(60);
        match view.rollback(&Rights::All, dir, &plan, &mut |_| ()) {
            Ok(_) if plan.others.is_none() => {
                let (is, was) = (tree(&view, dir), tree(&view.as_of(plan.target), dir));
                let differ: Vec<_> =
                    is.keys().chain(was.keys()).filter(|p| is.get(*p) != was.get(*p)).collect();
                let one =
                    |path: &&PathBuf| format!("{path:?}: {:?}, was {:?}", is.get(*path), was.get(*path));
                let differ: Vec<_> = differ.iter().map(one).collect();
                assert!(differ.is_empty(), "{differ:#?} after {:#?}", &self.log[tail..]);
            }
            Ok(_) | Err(Error::Refused(_) | Error::NotFound | Error::NotADirectory | Error::Stale) => {}
            Err(e) => panic!("{e} ({e:?}) after {:#?}", &self.log[tail..]),
        }
        assert_eq!(view.unfinished_rollbacks().unwrap(), []);
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            match self.below(20) {
                0 => {
                    let path = ROOTS[self.below(ROOTS.len())];
                    let view = self.volume.view();
                    let Ok(node) = self.volume.node(path) else { continue };
                    if view.take_snapshot(node.inode(), &NewSnapshot::default()).is_ok() {
                        self.log.push(format!("event {path}"));
                    }
                }
                1 => self.roll(),
                _ => self.step(),
            }
        }
    }
}

fn run(seed: u64) {
    let device = Arc::new(MemoryDevice::new(SIZE));
    Volume::create(device.clone(), &MkfsOptions::default()).unwrap().close().unwrap();
    let volume = Volume::open(device.clone(), &MountOptions::default()).unwrap();
    volume.create_dir_all("d/a/c").unwrap();
    volume.create_dir_all("d/b/e").unwrap();
    volume.create_dir("beside").unwrap();
    let random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut owner = Owner { random, volume, open: Vec::new(), log: Vec::new() };
    owner.run(600);
    owner.open.clear();
    owner.volume.close().unwrap();
    let report = check(&*device, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "YORE_SEED={seed}: {report}");
}

/// `YORE_ROUNDS` says how many other sequences to run, and `YORE_SEED` where to begin.
#[test]
fn every_rollback_ends_or_is_refused() {
    for seed in seeds(8) {
        run(seed);
    }
}
