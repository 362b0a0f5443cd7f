//! What one thread does in a directory of its own on a volume that is full, and what must be in it.

use crate::promises::{Files, Notes};
use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use yore_faults::sample::content;
use yore_format::{Engine, EventNo};
use yore_fs::rollback::{Plan, Rights, Verb};
use yore_fs::{Error, FallocateMode, NewSnapshot, OpenOptions, Result, SetXattrMode, Volume};

const FILES: u64 = 40;
/// Files that all threads copy, and nobody changes.
pub const COMMON: u64 = 6;
/// Files of a thread as of a snapshot that it took, and which ones those are.
const SNAPSHOTS: usize = 4;

/// A snapshot.
pub struct Taken {
    pub event: EventNo,
    pub files: Files,
    /// It was durable, with the data of all files, when the trace had so many entries.
    pub durable: Option<usize>,
}

/// One thread's directory, and what must be in it.
pub struct Work<'v> {
    volume: &'v Volume,
    what: String,
    pub dir: String,
    pub files: Files,
    snapshots: VecDeque<(EventNo, Files)>,
    pub notes: Notes,
    /// All snapshots that it took.
    pub taken: Vec<Taken>,
    rng: Xoshiro256PlusPlus,
    number: u64,
}

impl<'v> Work<'v> {
    pub fn new(volume: &'v Volume, engine: Engine, seed: u64) -> Work<'v> {
        let dir = format!("work{seed}");
        volume.create_dir(&dir).unwrap();
        Work {
            volume,
            what: format!("{engine:?}, seed {seed}"),
            dir,
            files: Files::new(),
            snapshots: VecDeque::new(),
            notes: Notes::default(),
            taken: Vec::new(),
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
            true => {
                let bytes = self.never_fails("read", self.volume.read(&path));
                self.files.insert(name.into(), Arc::new(bytes));
            }
            false => drop(self.files.remove(name)),
        }
    }

    /// The same of the whole directory.
    fn examine_all(&mut self) {
        (0..FILES).for_each(|n| self.examine(&n.to_string()));
    }

    #[track_caller]
    pub fn compare(&self, name: &str) {
        let is = self.never_fails("read", self.volume.read(self.path(name)));
        same(&format!("{}, file {name}", self.what), &is, &self.files[name]);
    }

    fn write(&mut self) {
        let (name, bytes) = (self.some_name(), self.bytes(60_000));
        self.notes.touch(&[&name]);
        let result = self.volume.write(self.path(&name), &bytes);
        match self.succeeded("write", result) {
            true => drop(self.files.insert(name, Arc::new(bytes))),
            false => self.examine(&name),
        }
    }

    fn write_within(&mut self, name: &str) {
        let (bytes, path) = (self.bytes(20_000), self.path(name));
        let mut is = self.files[name].to_vec();
        let at = self.rng.random_range(0..is.len() + 5000);
        let file = self.never_fails("open", OpenOptions::new().write(true).open(self.volume, path));
        self.notes.touch(&[name]);
        let result = file.write_at(&bytes, at as u64);
        match self.succeeded("write_at", result) {
            true => {
                is.resize(is.len().max(if bytes.is_empty() { 0 } else { at + bytes.len() }), 0);
                if !bytes.is_empty() {
                    is[at..at + bytes.len()].copy_from_slice(&bytes);
                }
                self.files.insert(name.into(), Arc::new(is));
            }
            false => self.examine(name),
        }
        if self.rng.random_bool(0.2) {
            self.never_fails("fsync", file.sync_all());
            self.notes.file_synced(name, &self.files[name]);
        }
    }

    fn truncate(&mut self, name: &str) {
        let size = self.rng.random_range(0..30_000);
        self.notes.touch(&[name]);
        let result = self.volume.truncate(self.path(name), size);
        match self.succeeded("truncate", result) {
            true => Arc::make_mut(self.files.get_mut(name).unwrap()).resize(size as usize, 0),
            false => self.examine(name),
        }
    }

    fn punch(&mut self, name: &str) {
        let from = self.rng.random_range(0..30_000);
        let len = self.rng.random_range(1..20_000);
        let node = self.never_fails("node", self.volume.node(self.path(name)));
        self.notes.touch(&[name]);
        let result = self.volume.view().fallocate(node.inode(), from, len, FallocateMode::PunchHole);
        match self.succeeded("punch", result) {
            true => {
                let is = Arc::make_mut(self.files.get_mut(name).unwrap());
                let (from, to) = ((from as usize).min(is.len()), ((from + len) as usize).min(is.len()));
                is[from..to].fill(0);
            }
            false => self.examine(name),
        }
    }

    fn remove(&mut self, name: &str) {
        self.notes.touch(&[name]);
        let result = self.volume.remove_file(self.path(name));
        if self.succeeded("remove", result) {
            self.files.remove(name);
        }
    }

    fn rename(&mut self, name: &str) {
        let to = self.some_name();
        self.notes.touch(&[name, &to]);
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
        self.notes.touch(&[&to]);
        let result = self.volume.copy(self.path(name), self.path(&to));
        match self.succeeded("copy", result) {
            true => drop(self.files.insert(to, self.files[name].clone())),
            false => self.examine(&to),
        }
    }

    /// Blocks of such a copy have references in all directories.
    fn copy_common(&mut self) {
        let (from, to) = (self.rng.random_range(0..COMMON), self.some_name());
        self.notes.touch(&[&to]);
        let result = self.volume.copy(format!("common/{from}"), self.path(&to));
        match self.succeeded("copy", result) {
            true => drop(self.files.insert(to, Arc::new(common(from)))),
            false => self.examine(&to),
        }
    }

    fn take_snapshot(&mut self) {
        let node = self.never_fails("node", self.volume.node(&self.dir));
        let wait = self.rng.random_bool(0.3);
        let new = NewSnapshot { wait, ..NewSnapshot::default() };
        let result = self.volume.view().take_snapshot(node.inode(), &new);
        if let Ok(event) = &result {
            let (event, files) = (event.number, self.files.clone());
            self.snapshots.push_back((event, files.clone()));
            self.taken.push(Taken { event, files, durable: wait.then(|| self.notes.entries()) });
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
        self.notes.touch_all();
        match view.rollback(&Rights::All, node.inode(), &plan, &mut |_| ()) {
            Ok(_) => {
                self.files = then.clone();
                self.notes.synced(&self.files);
            }
            Err(error) if matches!(error.root(), Error::NotFound | Error::Stale) => {
                drop(self.snapshots.remove(n))
            }
            // What was done before there was no room stays.
            Err(Error::Unfinished { source, .. }) => {
                self.succeeded::<()>("rollback", Err(*source));
                self.examine_all();
            }
            Err(error) => drop(self.succeeded::<()>("rollback", Err(error))),
        }
    }

    fn forget(&mut self) {
        let Some((event, _)) = self.snapshots.pop_front() else { return };
        match self.volume.view().forget(&[event]) {
            // A rollback that did not end needs it.
            Err(error) if matches!(error.root(), Error::NotFound | Error::Stale | Error::Pinned { .. }) => {}
            result => drop(self.succeeded("forget", result)),
        }
    }

    /// What attributes are read is not compared.
    fn set_xattr(&mut self, name: &str) {
        let bytes = self.bytes(5000);
        let result = self.volume.set_xattr(self.path(name), "user.x", bytes, SetXattrMode::Any);
        self.succeeded("setxattr", result);
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

    pub fn sync(&mut self) {
        self.never_fails("sync", self.volume.sync());
        self.notes.synced(&self.files);
        let entries = self.notes.entries();
        for taken in self.taken.iter_mut().rev().take_while(|taken| taken.durable.is_none()) {
            taken.durable = Some(entries);
        }
    }

    pub fn step(&mut self) {
        let what = self.rng.random_range(0..100);
        match what {
            0..35 => return self.write(),
            35..42 => return self.sync(),
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
            95 => self.set_xattr(&name),
            _ => self.compare(&name),
        }
    }
}

/// What a common file has.
pub fn common(number: u64) -> Vec<u8> {
    content(number, 20_000 + 9000 * number as usize)
}

#[track_caller]
pub fn same(what: &str, is: &[u8], should: &[u8]) {
    assert!(
        is == should,
        "{what}: {} bytes in place of {}, different from {:?}",
        is.len(),
        should.len(),
        is.iter().zip(should).position(|(a, b)| a != b)
    );
}
