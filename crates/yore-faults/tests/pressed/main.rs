//! Promises: on a volume that several threads keep full, so that history is given up for most of what they
//! write, no call fails except for want of room, and what says that it cannot fail for that does not: sync,
//! fsync, and reads. What was accepted reads as it was written, each snapshot that is still kept shows what
//! was, and the checker finds nothing.
//!
//! Every second seed keeps checksums of the data. `YORE_SEED` and `YORE_ROUNDS` ask for other cases and for
//! more of them.

use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;
use yore_check::{check, CheckOptions};
use yore_device::MemoryDevice;
use yore_faults::sample::content;
use yore_format::{Engine, EventNo};
use yore_fs::rollback::{Plan, Rights, Verb};
use yore_fs::{
    Error, FallocateMode, File, MkfsOptions, MountOptions, NewSnapshot, OpenOptions, Result, Volume,
};

const THREADS: u64 = 3;
const FILES: u64 = 40;
/// Files that all threads copy, and nobody changes.
const COMMON: u64 = 6;
/// Files of a thread as of a snapshot that it took, and which ones those are.
const SNAPSHOTS: usize = 4;

type Files = BTreeMap<String, Vec<u8>>;

/// One thread's directory, and what must be in it.
struct Work<'v> {
    volume: &'v Volume,
    what: String,
    dir: String,
    files: Files,
    snapshots: VecDeque<(EventNo, Files)>,
    rng: Xoshiro256PlusPlus,
    number: u64,
}

impl<'v> Work<'v> {
    fn new(volume: &'v Volume, engine: Engine, seed: u64) -> Work<'v> {
        let dir = format!("work{seed}");
        volume.create_dir(&dir).unwrap();
        Work {
            volume,
            what: format!("{engine:?}, seed {seed}"),
            dir,
            files: Files::new(),
            snapshots: VecDeque::new(),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            number: seed << 32,
        }
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.dir)
    }

    fn some_name(&mut self) -> String {
        self.rng.random_range(0..FILES).to_string()
    }

    fn some_file(&mut self) -> Option<String> {
        let n = self.rng.random_range(0..self.files.len().max(1));
        self.files.keys().nth(n).cloned()
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        self.number += 1;
        content(self.number, self.rng.random_range(0..most))
    }

    /// Whether a call succeeded; if not, there was no room.
    #[track_caller]
    fn succeeded<T>(&self, call: &str, result: Result<T>) -> bool {
        match result {
            Ok(_) => true,
            Err(error) => {
                let is_full = matches!(error.root(), Error::NoSpace | Error::NeverFits { .. });
                assert!(is_full, "{}, {call}: {error}", self.what);
                false
            }
        }
    }

    #[track_caller]
    fn never_fails<T>(&self, call: &str, result: Result<T>) -> T {
        result.unwrap_or_else(|error| panic!("{}, {call}: {error}", self.what))
    }

    /// What a file has after a call that may have done a part of what it was to do.
    fn examine(&mut self, name: &str) {
        let path = self.path(name);
        match self.never_fails("exists", self.volume.exists(&path)) {
            true => drop(self.files.insert(name.into(), self.never_fails("read", self.volume.read(&path)))),
            false => drop(self.files.remove(name)),
        }
    }

    #[track_caller]
    fn compare(&self, name: &str) {
        let is = self.never_fails("read", self.volume.read(self.path(name)));
        same(&format!("{}, file {name}", self.what), &is, &self.files[name]);
    }

    fn write(&mut self) {
        let (name, bytes) = (self.some_name(), self.bytes(60_000));
        let result = self.volume.write(self.path(&name), &bytes);
        match self.succeeded("write", result) {
            true => drop(self.files.insert(name, bytes)),
            false => self.examine(&name),
        }
    }

    fn write_within(&mut self, name: &str) {
        let (bytes, path) = (self.bytes(20_000), self.path(name));
        let mut is = self.files[name].clone();
        let at = self.rng.random_range(0..is.len() + 5000);
        let file = self.never_fails("open", OpenOptions::new().write(true).open(self.volume, path));
        let result = file.write_at(&bytes, at as u64);
        match self.succeeded("write_at", result) {
            true => {
                is.resize(is.len().max(if bytes.is_empty() { 0 } else { at + bytes.len() }), 0);
                if !bytes.is_empty() {
                    is[at..at + bytes.len()].copy_from_slice(&bytes);
                }
                self.files.insert(name.into(), is);
            }
            false => self.examine(name),
        }
        if self.rng.random_bool(0.2) {
            self.never_fails("fsync", file.sync_all());
        }
    }

    fn truncate(&mut self, name: &str) {
        let size = self.rng.random_range(0..30_000);
        let result = self.volume.truncate(self.path(name), size);
        match self.succeeded("truncate", result) {
            true => self.files.get_mut(name).unwrap().resize(size as usize, 0),
            false => self.examine(name),
        }
    }

    fn punch(&mut self, name: &str) {
        let from = self.rng.random_range(0..30_000);
        let len = self.rng.random_range(1..20_000);
        let node = self.never_fails("node", self.volume.node(self.path(name)));
        let result = self.volume.view().fallocate(node.inode(), from, len, FallocateMode::PunchHole);
        match self.succeeded("punch", result) {
            true => {
                let is = self.files.get_mut(name).unwrap();
                let (from, to) = ((from as usize).min(is.len()), ((from + len) as usize).min(is.len()));
                is[from..to].fill(0);
            }
            false => self.examine(name),
        }
    }

    fn remove(&mut self, name: &str) {
        let result = self.volume.remove_file(self.path(name));
        if self.succeeded("remove", result) {
            self.files.remove(name);
        }
    }

    fn rename(&mut self, name: &str) {
        let to = self.some_name();
        let result = self.volume.rename(self.path(name), self.path(&to));
        if self.succeeded("rename", result) {
            let bytes = self.files.remove(name).unwrap();
            self.files.insert(to, bytes);
        }
    }

    fn copy(&mut self, name: &str) {
        let to = self.some_name();
        if to == name {
            return;
        }
        let result = self.volume.copy(self.path(name), self.path(&to));
        match self.succeeded("copy", result) {
            true => drop(self.files.insert(to, self.files[name].clone())),
            false => self.examine(&to),
        }
    }

    /// Blocks of such a copy have references in all directories.
    fn copy_common(&mut self) {
        let (from, to) = (self.rng.random_range(0..COMMON), self.some_name());
        let result = self.volume.copy(format!("common/{from}"), self.path(&to));
        match self.succeeded("copy", result) {
            true => drop(self.files.insert(to, common(from))),
            false => self.examine(&to),
        }
    }

    fn take_snapshot(&mut self) {
        let node = self.never_fails("node", self.volume.node(&self.dir));
        let result = self.volume.view().take_snapshot(node.inode(), &NewSnapshot::default());
        if let Ok(event) = &result {
            self.snapshots.push_back((event.number, self.files.clone()));
        }
        self.succeeded("snapshot", result);
        if self.snapshots.len() > SNAPSHOTS {
            self.snapshots.pop_front();
        }
    }

    /// Some file as of some snapshot, unless that was given up.
    fn compare_past(&mut self) {
        let n = self.rng.random_range(0..self.snapshots.len().max(1));
        let Some((event, then)) = self.snapshots.get(n) else { return };
        let past = Volume::from_view(self.volume.view().as_of(*event));
        let k = self.rng.random_range(0..then.len().max(1));
        let Some((name, bytes)) = then.iter().nth(k) else { return };
        match past.read(self.path(name)) {
            Ok(is) => same(&format!("{}, file {name} as of {event:?}", self.what), &is, bytes),
            Err(error) if matches!(error.root(), Error::Stale) => drop(self.snapshots.remove(n)),
            Err(error) => panic!("{}, file {name} as of {event:?}: {error}", self.what),
        }
    }

    /// The directory as of some snapshot, unless that was given up.
    fn roll_back(&mut self) {
        let n = self.rng.random_range(0..self.snapshots.len().max(1));
        let Some((target, then)) = self.snapshots.get(n) else { return };
        let (view, plan) =
            (self.volume.view(), Plan { verb: Verb::Rollback, of: None, target: *target, others: None });
        let node = self.never_fails("node", self.volume.node(&self.dir));
        match view.rollback(&Rights::All, node.inode(), &plan, &mut |_| ()) {
            Ok(_) => self.files = then.clone(),
            Err(error) if matches!(error.root(), Error::NotFound | Error::Stale) => {
                drop(self.snapshots.remove(n))
            }
            Err(error) => drop(self.succeeded::<()>("rollback", Err(error))),
        }
    }

    fn forget(&mut self) {
        let Some((event, _)) = self.snapshots.pop_front() else { return };
        match self.volume.view().forget(&[event]) {
            Err(error) if matches!(error.root(), Error::NotFound | Error::Stale) => {}
            result => drop(self.succeeded("forget", result)),
        }
    }

    fn defragment(&mut self, name: &str) {
        let node = self.never_fails("node", self.volume.node(self.path(name)));
        let progress = yore_fs::Progress::default();
        let result =
            self.volume.view().defragment(node.inode(), 1, &progress, &mut || ControlFlow::Continue(()));
        // It says itself how much room it takes.
        if !matches!(result, Err(Error::Refused(_))) {
            self.succeeded("defragment", result);
        }
    }

    fn step(&mut self) {
        let what = self.rng.random_range(0..100);
        match what {
            0..35 => return self.write(),
            35..42 => return self.never_fails("sync", self.volume.sync()),
            42..45 => return self.take_snapshot(),
            45..53 => return self.compare_past(),
            53 => return self.roll_back(),
            54 => return self.forget(),
            55..60 => return self.copy_common(),
            _ => {}
        }
        let Some(name) = self.some_file() else { return };
        match what {
            60..67 => self.remove(&name),
            67..73 => self.rename(&name),
            73..80 => self.truncate(&name),
            80..88 => self.write_within(&name),
            88..91 => self.punch(&name),
            91..94 => self.copy(&name),
            94 => self.defragment(&name),
            _ => self.compare(&name),
        }
    }
}

fn common(number: u64) -> Vec<u8> {
    content(number, 20_000 + 9000 * number as usize)
}

#[track_caller]
fn same(what: &str, is: &[u8], should: &[u8]) {
    let first = is.iter().zip(should).position(|(a, b)| a != b);
    assert!(
        is == should,
        "{what}: {} bytes in place of {}, different from {first:?}",
        is.len(),
        should.len()
    );
}

/// What the background does when nobody asks for anything, while everybody does.
fn keep_house(volume: &Volume, is_done: &AtomicBool) {
    let ask = || match is_done.load(Ordering::Acquire) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    while !is_done.load(Ordering::Acquire) {
        let view = volume.view();
        view.lay_metadata_together(&mut || ask()).unwrap();
        view.finish_forgetting(&mut |_| ask()).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn pressed(engine: Engine, seed: u64, steps: u64) {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let data_checksums = seed.is_multiple_of(2) && engine != Engine::None;
    let options = MkfsOptions { data_checksums, ..MkfsOptions::default() };
    Volume::create(device.clone(), &options).unwrap().close().unwrap();
    let options = MountOptions {
        engine: Some(engine),
        commit_interval: Duration::from_millis(20),
        ..MountOptions::default()
    };
    let volume = Volume::open(device.clone(), &options).unwrap();
    volume.create_dir("common").unwrap();
    (0..COMMON).for_each(|n| volume.write(format!("common/{n}"), common(n)).unwrap());
    let mut works: Vec<Work<'_>> =
        (0..THREADS).map(|thread| Work::new(&volume, engine, seed * THREADS + thread)).collect();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let house = scope.spawn(|| keep_house(&volume, &is_done));
        let threads: Vec<_> =
            works.iter_mut().map(|work| scope.spawn(move || (0..steps).for_each(|_| work.step()))).collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        is_done.store(true, Ordering::Release);
        house.join().unwrap();
        results.into_iter().for_each(|result| result.unwrap());
    });
    works.iter().for_each(|work| work.files.keys().for_each(|name| work.compare(name)));
    let files: Vec<(String, Files)> = works.into_iter().map(|work| (work.dir, work.files)).collect();
    volume.close().unwrap();
    drop(volume);
    let report = check(&*device, &CheckOptions::default()).unwrap();
    assert!(report.findings.is_empty(), "{engine:?}, seed {seed}: {report}");
    let volume = Volume::open(device, &options).unwrap();
    for (dir, files) in files {
        for (name, bytes) in files {
            let file = File::open(&volume, format!("{dir}/{name}")).unwrap();
            let mut is = vec![0; bytes.len() + 1];
            let n = file.read_at(&mut is, 0).unwrap();
            same(&format!("{engine:?}, seed {seed}, {dir}/{name} when mounted again"), &is[..n], &bytes);
        }
    }
}

fn from_environment(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// What this found: a claim to free blocks outlived its Op, so the next owner was told that the volume is
/// damaged; a sync was told that there is no room, because others got what its generation had freed; and
/// under `soft-updates` two rounds took more into a node than there is room for, which stopped the volume.
#[test]
fn threads_keep_a_volume_full() {
    let (first, rounds) = (from_environment("YORE_SEED", 1), from_environment("YORE_ROUNDS", 1));
    for seed in first..first + rounds {
        for engine in [Engine::Snapshot, Engine::Journal, Engine::SoftUpdates, Engine::Sync, Engine::None] {
            pressed(engine, seed, 3000);
        }
    }
}
