//! Random steps on a volume with a past: writes, names, attributes, links, snapshots and forgetting, and what
//! makes files share blocks.

use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::ops::ControlFlow;
use yore_fs::rollback::{Plan, Rights, Verb};
use yore_fs::{
    EventNo, FallocateMode, File, NewSnapshot, OpenOptions, Policy, SetXattrMode, Versioning, Volume,
    WriteMode,
};

pub const BLOCK: u64 = 4096;
pub const PLAIN: WriteMode = WriteMode { append: false, kill_set_id: false };
pub const HOUR: u64 = 3_600_000_000_000;

pub fn snapshot(volume: &Volume, path: &str) -> EventNo {
    let view = volume.view();
    view.take_snapshot(volume.node(path).unwrap().inode(), &NewSnapshot::default()).unwrap().number
}

pub fn finish(volume: &Volume) {
    volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
}

pub fn forget(volume: &Volume, event: EventNo) {
    volume.view().forget(&[event]).unwrap();
    finish(volume);
}

pub fn expunge(volume: &Volume, path: &str) {
    let node = volume.node(path).unwrap();
    let attr = volume.view().getattr(node.inode()).unwrap();
    volume.view().expunge(&[(attr.inode, attr.incarnation)]).unwrap();
    finish(volume);
}

/// Restores a file from an event: it has the same blocks.
pub fn restore(volume: &Volume, path: &str, event: EventNo) {
    let past = Volume::from_view(volume.view().as_of(event));
    let Ok(source) = File::open(&past, path) else { return };
    let size = source.metadata().unwrap().len();
    let to = OpenOptions::new().write(true).create(true).truncate(true).open(volume, path);
    // Its directory may have been moved away.
    let Ok(to) = to else { return };
    to.copy_from(&source, 0, size).unwrap();
}

pub struct Steps {
    pub rng: Xoshiro256PlusPlus,
    pub events: Vec<EventNo>,
    /// Whether policies leave files out.
    pub excludes: bool,
    /// Whether files come to share blocks.
    pub shares: bool,
    /// Whether other directories than the root, and files, have events, too.
    pub many_roots: bool,
}

impl Steps {
    pub fn file(&mut self) -> String {
        let directories = ["", "d0/", "d1/", "d0/e/"];
        let ending = if self.rng.random_bool(0.3) { ".swp" } else { "" };
        format!("{}f{}{ending}", directories[self.rng.random_range(0..4)], self.rng.random_range(0..3))
    }

    pub fn step(&mut self, volume: &Volume, n: usize) -> &'static str {
        let (file, other) = (self.file(), self.file());
        let view = volume.view();
        let at = self.rng.random_range(0..40) * BLOCK;
        let inode = volume.node(&file).map(|node| node.inode());
        if self.many_roots && self.rng.random_bool(0.25) {
            return self.step_of_roots(volume, &file);
        }
        match self.rng.random_range(0..24) {
            0..=2 => {
                self.events.push(snapshot(volume, "/"));
                "snapshot"
            }
            3 if self.excludes => {
                let policy = Policy {
                    exclude: Some(vec!["*.swp".into()]),
                    versioning: Some(Versioning::Interval(HOUR)),
                    ..Policy::default()
                };
                view.set_policy(view.root(), &Policy::default()).unwrap();
                view.set_policy(view.root(), &policy).unwrap();
                let last = view.events().unwrap().last().unwrap().number;
                if !self.events.contains(&last) {
                    self.events.push(last);
                }
                "interval"
            }
            4 | 5 if !self.events.is_empty() => {
                let event = self.events.swap_remove(self.rng.random_range(0..self.events.len()));
                // The events of a file that was expunged are gone.
                if view.events().unwrap().iter().any(|kept| kept.number == event) {
                    forget(volume, event);
                }
                "forget"
            }
            6 if inode.is_ok() => {
                expunge(volume, &file);
                "expunge"
            }
            7 => {
                drop(volume.remove_file(&file));
                "unlink"
            }
            8 => {
                drop(volume.rename(&file, &other));
                "rename"
            }
            9 => {
                drop(volume.hard_link(&file, &other));
                "link"
            }
            10 if inode.is_ok() => {
                volume.truncate(&file, at).unwrap();
                "truncate"
            }
            11 if inode.is_ok() => {
                view.fallocate(inode.unwrap(), at, 3 * BLOCK, FallocateMode::PunchHole).unwrap();
                "punch"
            }
            12 if inode.is_ok() => {
                // Many large ones make a tree of several levels, whose nodes go unread.
                let most = if self.rng.random_bool(0.3) { 60_000 } else { 5000 };
                let value = vec![1; self.rng.random_range(0..most)];
                let name = format!("user.{}", self.rng.random_range(0..9));
                view.setxattr(inode.unwrap(), name.as_bytes(), &value, SetXattrMode::Any).unwrap();
                "attribute"
            }
            13 => {
                let link = format!("d1/l{}", self.rng.random_range(0..2));
                drop(volume.remove_file(&link));
                volume.symlink("x".repeat(self.rng.random_range(1..4000)), &link).unwrap();
                "symbolic link"
            }
            14 if self.shares && !self.events.is_empty() => {
                let event = self.events[self.rng.random_range(0..self.events.len())];
                restore(volume, &file, event);
                "restore"
            }
            15 if inode.is_ok() && self.shares => {
                drop(volume.copy(&file, &other));
                "copy"
            }
            16 if self.shares && !self.events.is_empty() => {
                let event = self.events[self.rng.random_range(0..self.events.len())];
                rollback(volume, event);
                "rollback"
            }
            17 => {
                volume.sync().unwrap();
                "sync"
            }
            18 if inode.is_ok() => {
                let open = File::open(volume, &file).unwrap();
                volume.remove_file(&file).unwrap();
                self.events.push(snapshot(volume, "/"));
                drop(open);
                "unlink while in use"
            }
            _ => {
                if inode.is_err() {
                    drop(volume.write(&file, ""));
                }
                for i in 0..self.rng.random_range(1..20) {
                    let Ok(node) = volume.node(&file) else { break };
                    node.write(at + 2 * i * BLOCK, &[n as u8; 4096], PLAIN).unwrap();
                }
                "write"
            }
        }
    }
}

impl Steps {
    /// What makes a difference where not only the root directory has events.
    fn step_of_roots(&mut self, volume: &Volume, file: &str) -> &'static str {
        let view = volume.view();
        // What has been moved away may be missing.
        let directories: Vec<&str> = ["d0", "d1", "d0/e", "d1/e", "d1/d0", "e"]
            .into_iter()
            .filter(|d| volume.node(d).is_ok())
            .collect();
        let directory = directories[self.rng.random_range(0..directories.len())];
        match self.rng.random_range(0..8) {
            0..=2 => {
                self.events.push(snapshot(volume, directory));
                "snapshot of a directory"
            }
            3 | 4 => {
                let (from, to) =
                    [("d0/e", "d1/e"), ("d1/e", "e"), ("e", "d0/e"), ("d0", "d1/d0"), ("d1/d0", "d0")]
                        [self.rng.random_range(0..5)];
                if volume.node(to).is_err() {
                    drop(volume.rename(from, to));
                }
                "move of a directory"
            }
            _ => {
                if volume.node(file).is_err() {
                    drop(volume.write(file, "new"));
                }
                let Ok(node) = volume.node(file) else { return "nothing" };
                let close = Policy { versioning: Some(Versioning::Close), ..Policy::default() };
                view.set_policy(node.inode(), &close).unwrap();
                node.write(self.rng.random_range(0..8) * BLOCK, &[7; 4096], PLAIN).unwrap();
                self.events.extend(view.closed(node.inode()).unwrap().map(|event| event.number));
                "close"
            }
        }
    }
}

/// Rolls the root directory back to an event of it, which takes events of its own.
pub fn rollback(volume: &Volume, target: EventNo) {
    let root = volume.view().root();
    if !volume.view().events().unwrap().iter().any(|event| event.number == target && event.row.root == root) {
        return;
    }
    let plan = Plan { verb: Verb::Rollback, of: None, target, others: None };
    volume.view().rollback(&Rights::All, volume.view().root(), &plan, &mut |_| ()).unwrap();
}
