//! What a volume has promised at each moment of a trace, as far as one thread knows.
//!
//! The thread notes what it is about to change, and what was durable when a call returned, each with the
//! number of entries that the trace had. So after a crash it is known which files must be exactly as they
//! were, whatever else was under way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use yore_device::simulated::SimulatedDevice;

pub type Bytes = Arc<Vec<u8>>;
pub type Files = BTreeMap<String, Bytes>;

enum What {
    /// These are changed from here on.
    Touched(Vec<String>),
    /// All files may be changed from here on.
    AllTouched,
    /// This is all that there is, and durable.
    Synced(Files),
    /// This file is durable.
    FileSynced(String, Bytes),
}

/// The notes of one thread.
#[derive(Default)]
pub struct Notes {
    device: Option<Arc<SimulatedDevice>>,
    notes: Vec<(usize, What)>,
}

/// What must be there after a crash.
#[derive(Default)]
pub struct Promised {
    /// Durable files that nobody has begun to change since.
    pub files: Files,
    /// Names that may lead to anything, if they exist. No other names exist.
    pub unsure: BTreeSet<String>,
    /// There may be any names.
    pub is_all_unsure: bool,
}

impl Notes {
    /// From now on everything is noted. The device's trace has just begun, and all of this is durable.
    pub fn begin(&mut self, device: &Arc<SimulatedDevice>, files: &Files) {
        self.device = Some(device.clone());
        self.notes = vec![(0, What::Synced(files.clone()))];
    }

    /// How many entries the trace has.
    pub fn entries(&self) -> usize {
        self.device.as_ref().map_or(0, |device| device.entries())
    }

    fn note(&mut self, what: impl FnOnce() -> What) {
        if let Some(device) = &self.device {
            self.notes.push((device.entries(), what()));
        }
    }

    /// Called before a call that changes these.
    pub fn touch(&mut self, names: &[&str]) {
        self.note(|| What::Touched(names.iter().map(|name| name.to_string()).collect()));
    }

    /// Called before a call that may change everything.
    pub fn touch_all(&mut self) {
        self.note(|| What::AllTouched);
    }

    /// Called after a sync.
    pub fn synced(&mut self, files: &Files) {
        self.note(|| What::Synced(files.clone()));
    }

    /// Called after an fsync.
    pub fn file_synced(&mut self, name: &str, bytes: &Bytes) {
        self.note(|| What::FileSynced(name.into(), bytes.clone()));
    }

    /// What must be there if the power fails when the trace has so many entries.
    pub fn promised(&self, entries: usize) -> Promised {
        let mut promised = Promised::default();
        for (at, what) in &self.notes {
            match what {
                What::Touched(names) if *at < entries => names.iter().for_each(|name| {
                    promised.files.remove(name);
                    promised.unsure.insert(name.clone());
                }),
                What::AllTouched if *at < entries => {
                    promised = Promised { is_all_unsure: true, ..Promised::default() }
                }
                What::Synced(files) if *at <= entries => {
                    promised = Promised { files: files.clone(), ..Promised::default() }
                }
                What::FileSynced(name, bytes) if *at <= entries => {
                    promised.files.insert(name.clone(), bytes.clone());
                    promised.unsure.remove(name);
                }
                // It began, or returned, after the crash, and so did all that follows.
                _ => break,
            }
        }
        promised
    }
}
