//! The history of a workload: the model after each step, what was promised, and whether a volume keeps it.

use super::model::{Inode, Model};
use super::observe::{observe, observe_snapshots, Observed};
use super::step::Step;
use std::collections::BTreeMap;
use yore_fs::{Error, Volume};

/// What the history knows of a snapshot.
#[derive(Clone, Debug)]
struct Snapshot {
    /// The volume as it was.
    model: Model,
    /// It was promised, so its contents must be these.
    whole: bool,
    standing: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Kept,
    /// The call that should have taken or forgotten it failed.
    Unknown,
    Forgotten,
}

/// The model after each step, and what was promised.
#[derive(Clone, Debug)]
pub struct History {
    /// By name.
    snapshots: BTreeMap<String, Snapshot>,
    states: Vec<Model>,
    /// The state that the last completed sync or fsync promised.
    promised: usize,
    /// Files, and their content as of their last sync or fsync, if they were not touched since.
    safe: BTreeMap<u64, Vec<u8>>,
}

impl History {
    /// Begins with a volume in its present state, all of it promised.
    pub fn new(model: Model) -> History {
        let safe = model.inodes.iter().map(|(id, inode)| (*id, inode.content.clone())).collect();
        History { snapshots: BTreeMap::new(), states: vec![model], promised: 0, safe }
    }

    /// Begins with a volume in its present state, and all its snapshots of the root directory that have a
    /// name.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn of(volume: &Volume) -> std::result::Result<History, String> {
        let model = |seen: Observed| match seen.errors.first() {
            Some((path, error)) => Err(format!("{path} cannot be read: {error}")),
            None => Ok(seen.model),
        };
        let mut history = History::new(model(observe(volume))?);
        for (name, seen) in observe_snapshots(volume).map_err(|error| error.to_string())? {
            let kept = Snapshot { model: model(seen)?, whole: true, standing: Standing::Kept };
            history.snapshots.insert(name, kept);
        }
        Ok(history)
    }

    /// The state that the volume should have now.
    pub fn now(&self) -> &Model {
        self.states.last().expect("there is always a state")
    }

    /// The step was carried out.
    pub fn done(&mut self, step: &Step) {
        let mut model = self.now().clone();
        self.begun(step);
        model.apply(step);
        self.states.push(model);
        match step {
            Step::Forget { name } => {
                if let Some(snapshot) = self.snapshots.get_mut(*name) {
                    snapshot.standing = Standing::Forgotten;
                }
            }
            Step::Sync | Step::Snapshot { .. } => {
                self.promised = self.states.len() - 1;
                let inodes = &self.states[self.promised].inodes;
                self.safe = inodes.iter().map(|(id, inode)| (*id, inode.content.clone())).collect();
                if let Step::Snapshot { name } = step {
                    let model = self.now().clone();
                    let kept = Snapshot { model, whole: true, standing: Standing::Kept };
                    self.snapshots.insert((*name).into(), kept);
                }
            }
            Step::Fsync { path } => {
                self.promised = self.states.len() - 1;
                let now = &self.states[self.promised];
                if let (Some(id), Some(inode)) = (now.names.get(*path), now.get(path)) {
                    self.safe.insert(*id, inode.content.clone());
                }
            }
            _ => {}
        }
    }

    /// The step failed. It changed nothing, or (an error that came late) everything it was to change: `seen`
    /// tells which.
    ///
    /// # Errors
    /// The step has changed something else.
    pub fn failed(&mut self, step: &Step, seen: &Model) -> std::result::Result<(), String> {
        self.begun(step);
        match step {
            Step::Snapshot { name } => {
                let model = self.now().clone();
                let perhaps = Snapshot { model, whole: false, standing: Standing::Unknown };
                self.snapshots.insert((*name).into(), perhaps);
            }
            Step::Forget { name } => {
                if let Some(snapshot) = self.snapshots.get_mut(*name) {
                    snapshot.standing = Standing::Unknown;
                }
            }
            _ => {}
        }
        if self.now().same_names(seen) {
            return Ok(());
        }
        let mut after = self.now().clone();
        after.apply(step);
        if !after.same_names(seen) {
            return Err(format!("a call that failed has changed {}", self.now().difference(seen)));
        }
        self.states.push(after);
        Ok(())
    }

    /// Content that the step may have changed is no longer promised.
    fn begun(&mut self, step: &Step) {
        if let Step::Write { path, .. }
        | Step::Truncate { path, .. }
        | Step::Punch { path, .. }
        | Step::Allocate { path, .. } = step
        {
            if let Some(id) = self.now().names.get(*path) {
                let id = *id;
                self.safe.remove(&id);
            }
        }
    }

    /// Compares a volume after it was opened again with what was promised.
    ///
    /// # Errors
    /// The broken promise, in words.
    pub fn judge(&self, seen: &Observed) -> std::result::Result<(), String> {
        if let Some((path, error)) = seen.errors.first() {
            return Err(format!("{path} cannot be read: {error}"));
        }
        let states = self.states[self.promised..].iter().rev();
        let mut why = String::new();
        for state in states {
            if !state.same_names(&seen.model) {
                why = state.difference(&seen.model);
                continue;
            }
            return state.names.iter().try_for_each(|(path, id)| {
                match (self.safe.get(id), seen.model.get(path)) {
                    (Some(safe), Some(found)) if *safe != found.content => {
                        let at = safe.iter().zip(&found.content).position(|(a, b)| a != b);
                        Err(format!(
                            "{path} has {} bytes, should have {}; they differ at {at:?}",
                            found.content.len(),
                            safe.len()
                        ))
                    }
                    _ => Ok(()),
                }
            });
        }
        Err(format!("names are of no step since the last sync; last: {why}"))
    }

    /// Compares a volume's snapshots with what was promised of them: those that must be there are, those that
    /// must not be there are not, and each shows the volume as it was, including contents if `contents`.
    ///
    /// # Errors
    /// The broken promise, in words.
    pub fn judge_past(&self, volume: &Volume, contents: bool) -> std::result::Result<(), String> {
        let mut seen: BTreeMap<_, _> = observe_snapshots(volume)
            .map_err(|error| format!("the past cannot be read: {error}"))?
            .into_iter()
            .collect();
        for (name, snapshot) in &self.snapshots {
            let seen = match (seen.remove(name), snapshot.standing) {
                (Some(_), Standing::Forgotten) => return Err(format!("{name} was forgotten, and is there")),
                (None, Standing::Kept) => return Err(format!("{name} is gone")),
                (None, _) => continue,
                (Some(seen), _) => seen,
            };
            if let Some((path, error)) = seen.errors.first() {
                return Err(format!("{path} as of {name} cannot be read: {error}"));
            }
            let then = &snapshot.model;
            if !then.same_names(&seen.model) {
                return Err(format!("as of {name}, {}", then.difference(&seen.model)));
            }
            if contents && snapshot.whole {
                if let Some(path) = then.other_content(&seen.model) {
                    return Err(format!("as of {name}, {path} has other content"));
                }
            }
        }
        match seen.into_keys().next() {
            Some(name) => Err(format!("{name}: there never was such a snapshot")),
            None => Ok(()),
        }
    }

    /// As [`History::judge_past`] for a medium that lied: as far as a snapshot can be read, its names and
    /// attributes existed at some time. If the checker finds nothing (`clean`), everything that must be there
    /// is.
    ///
    /// # Errors
    /// The broken promise, in words.
    pub fn judge_damaged_past(&self, volume: &Volume, clean: bool) -> std::result::Result<(), String> {
        if clean {
            return self.judge_past(volume, false);
        }
        let damaged = |error: &Error| match error.root() {
            Error::Corruption(_) => Ok(()),
            _ => Err(format!("not an error of damage: {error}")),
        };
        let snapshots = match observe_snapshots(volume) {
            Ok(snapshots) => snapshots,
            Err(error) => return damaged(&error),
        };
        for (name, seen) in snapshots {
            for (path, error) in &seen.errors {
                damaged(error).map_err(|why| format!("{path} as of {name}: {why}"))?;
            }
            for path in seen.model.names.keys() {
                let found = seen.model.get(path).map(Inode::facts);
                let mut known = self.states.iter().chain(self.snapshots.values().map(|s| &s.model));
                if !known.any(|state| state.get(path).map(Inode::facts) == found) {
                    return Err(format!("{path} as of {name} is {found:?}, which it never was"));
                }
            }
        }
        Ok(())
    }

    /// As [`History::judge`] for a medium that lied: names and attributes that can be read are those after
    /// some step, and if nothing is missing, all are those after one step. Contents are not judged, because
    /// no checksum guards them.
    ///
    /// # Errors
    /// The broken promise, in words.
    pub fn judge_damaged(&self, seen: &Observed, back: bool) -> std::result::Result<(), String> {
        for (path, error) in &seen.errors {
            if !matches!(error.root(), Error::Corruption(_)) {
                return Err(format!("{path}: not an error of damage: {error}"));
            }
        }
        if seen.errors.is_empty() {
            let from = if back { 0 } else { self.promised };
            let known = self.states[from..].iter().any(|state| state.same_names(&seen.model));
            return match known {
                true => Ok(()),
                false => Err(format!("silently other names: {}", self.now().difference(&seen.model))),
            };
        }
        for path in seen.model.names.keys() {
            let found = seen.model.get(path).map(Inode::facts);
            if !self.states.iter().any(|state| state.get(path).map(Inode::facts) == found) {
                return Err(format!("{path} is {found:?}, which it never was"));
            }
        }
        Ok(())
    }

    /// Compares everything, including contents, with the state that the volume should have now.
    ///
    /// # Errors
    /// The difference, in words.
    pub fn compare(&self, seen: &Observed) -> std::result::Result<(), String> {
        if let Some((path, error)) = seen.errors.first() {
            return Err(format!("{path} cannot be read: {error}"));
        }
        let now = self.now();
        if !now.same_names(&seen.model) {
            return Err(now.difference(&seen.model));
        }
        let other = now.other_content(&seen.model);
        other.map_or(Ok(()), |path| Err(format!("{path} has other content")))
    }
}
