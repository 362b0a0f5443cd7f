//! What an administrator does to a volume that others keep full: checks, scrubs, policies, checksums, and
//! files that are expunged from all snapshots.

use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;
use yore_device::simulated::SimulatedDevice;
use yore_faults::sample::content;
use yore_format::{Engine, EventNo};
use yore_fs::{Error, NewSnapshot, Policy, Progress, Result, Scrub, Versioning, Volume};
use yore_online::OnlineOptions;

/// The directory of files that are expunged.
const SECRETS: &str = "secrets";

/// A file that was expunged.
pub struct Secret {
    name: String,
    /// A snapshot that has seen it.
    event: EventNo,
    /// No snapshot shows it, whatever happens when the trace has so many entries.
    gone: Option<usize>,
}

/// The administrator of one volume.
pub struct Administrator<'v> {
    volume: &'v Volume,
    what: String,
    device: Option<Arc<SimulatedDevice>>,
    rng: Xoshiro256PlusPlus,
    number: u64,
    pub secrets: Vec<Secret>,
}

impl<'v> Administrator<'v> {
    pub fn new(volume: &'v Volume, engine: Engine, seed: u64) -> Administrator<'v> {
        volume.create_dir(SECRETS).unwrap();
        Administrator {
            volume,
            what: format!("{engine:?}, seed {seed}, administrator"),
            device: None,
            rng: Xoshiro256PlusPlus::seed_from_u64(!seed),
            number: seed << 32 | 1 << 31,
            secrets: Vec::new(),
        }
    }

    /// From now on what is promised is noted. The device's trace has just begun.
    pub fn begin(&mut self, device: &Arc<SimulatedDevice>) {
        self.device = Some(device.clone());
        self.secrets.iter_mut().for_each(|secret| secret.gone = secret.gone.map(|_| 0));
    }

    /// Works until the others are done, and so that most of the time is theirs.
    pub fn work(&mut self, is_done: &AtomicBool) {
        while !is_done.load(Ordering::Acquire) {
            self.step(is_done);
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    fn step(&mut self, is_done: &AtomicBool) {
        match self.rng.random_range(0..20) {
            0..6 => self.check(is_done),
            6..9 => self.scrub(is_done),
            9..13 => self.expunge(is_done),
            13..16 => self.set_policy(),
            16 => self.add_checksums(is_done),
            17 => self.shred(is_done),
            _ => {}
        }
    }

    #[track_caller]
    fn never_fails<T, E: std::fmt::Display>(&self, call: &str, result: std::result::Result<T, E>) -> T {
        result.unwrap_or_else(|error| panic!("{}, {call}: {error}", self.what))
    }

    /// What a call returned, unless there was no room.
    #[track_caller]
    fn unless_full<T>(&self, call: &str, result: Result<T>) -> Option<T> {
        match result {
            Err(error) if matches!(error.root(), Error::NoSpace | Error::NeverFits { .. }) => None,
            result => Some(self.never_fails(call, result)),
        }
    }

    fn check(&self, is_done: &AtomicBool) {
        let checked =
            yore_online::check(self.volume.view(), &OnlineOptions::default(), &mut |_| until(is_done));
        if matches!(checked, Err(yore_online::OnlineError::BrokenOff)) {
            return;
        }
        let found = self.never_fails("check", checked).report;
        assert!(found.findings.is_empty(), "{}: {found}", self.what);
    }

    fn scrub(&self, is_done: &AtomicBool) {
        let scrubbed =
            self.volume.view().scrub(Scrub::default(), &Progress::default(), &mut || until(is_done));
        let found = self.never_fails("scrub", scrubbed);
        assert!(found.is_clean(), "{}: {found:?}", self.what);
    }

    /// Makes a file that a snapshot sees, and expunges it.
    fn expunge(&mut self, is_done: &AtomicBool) {
        self.number += 1;
        let (name, view) = (self.number.to_string(), self.volume.view());
        let path = format!("{SECRETS}/{name}");
        let written = self.volume.write(&path, content(self.number, 9000));
        let directory = self.never_fails("node", self.volume.node(SECRETS));
        let taken = match self.unless_full("write", written) {
            Some(()) => view.take_snapshot(directory.inode(), &NewSnapshot::default()),
            None => Err(Error::NoSpace),
        };
        if let Some(event) = self.unless_full("snapshot", taken) {
            let node = self.never_fails("node", self.volume.node(&path));
            let file = (node.inode(), node.attr().incarnation);
            // Of some the last name goes before.
            let goes_first = self.rng.random_bool(0.5);
            if goes_first {
                let removed = self.volume.remove_file(&path);
                self.unless_full("remove", removed);
            }
            self.secrets.push(Secret { name, event: event.number, gone: None });
            let expunged = view.expunge(&[file]);
            if self.unless_full("expunge", expunged).is_some() {
                self.secrets.last_mut().expect("it was entered").gone =
                    Some(self.device.as_ref().map_or(0, |device| device.entries()));
                let finished = view.finish_forgetting(&mut |_| until(is_done));
                self.unless_full("finish_forgetting", finished);
                let secret = self.secrets.last().expect("it was entered");
                secret.must_be_gone(&self.what, self.volume, usize::MAX);
            }
        }
        if self.never_fails("exists", self.volume.exists(&path)) {
            let removed = self.volume.remove_file(&path);
            self.unless_full("remove", removed);
        }
    }

    /// The root's policy changes, which all threads' files have.
    fn set_policy(&mut self) {
        let versioning = self.rng.random_bool(0.3).then_some(Versioning::Close);
        let root = self.volume.view().root();
        let set = self.volume.view().set_policy(root, &Policy { versioning, ..Policy::default() });
        self.unless_full("set_policy", set);
    }

    fn add_checksums(&self, is_done: &AtomicBool) {
        let progress = Progress::default();
        let added = self.volume.view().enable_data_checksums(&progress, &mut || until(is_done));
        if !matches!(added, Err(Error::Refused(_))) {
            self.unless_full("enable_data_checksums", added);
        }
    }

    fn shred(&self, is_done: &AtomicBool) {
        let shredded = self.volume.view().shred(&mut || until(is_done));
        self.unless_full("shred", shredded);
    }
}

impl Secret {
    /// No snapshot shows it, if it was gone when the trace had so many entries.
    pub fn must_be_gone(&self, what: &str, volume: &Volume, entries: usize) {
        if self.gone.is_none_or(|gone| gone > entries) {
            return;
        }
        let past = Volume::from_view(volume.view().as_of(self.event));
        match past.read(format!("{SECRETS}/{}", self.name)) {
            Ok(_) => panic!("{what}: the secret {} is shown as of {:?}", self.name, self.event),
            Err(error) if matches!(error.root(), Error::Stale | Error::NotFound) => {}
            Err(error) => panic!("{what}: the secret {} as of {:?}: {error}", self.name, self.event),
        }
    }
}

fn until(is_done: &AtomicBool) -> ControlFlow<()> {
    match is_done.load(Ordering::Acquire) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    }
}
