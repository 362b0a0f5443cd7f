//! Promise: whatever the sequence of operations and events, every past view equals a full copy made when the
//! event was taken, even after others were forgotten. The sequences contain moves out of and into directories
//! with their own events, hard links across them, and events of the volume and of directories. They contain
//! versions that policies make of files, under the names that these had, and policies that change. The volume
//! is opened again, and forgetting is interrupted and goes on. When all events are forgotten, nothing of the
//! past is left. Where all events are of the root directory, what each of them holds is what a walk finds.
//! Two thirds of the sequences begin with a rich past in old trees, and go on in annals.
//!
//! `YORE_SEED=n` begins with another sequence, `YORE_ROUNDS=n` runs that many.

use crate::common::copies;
use crate::common::old_trees;
use crate::common::seeds;

use copies::{copy, copy_all, Named, Seen, Tree};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use seeds::seeds;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use yore_check::{check, CheckOptions};
use yore_device::{Device, MemoryDevice};
use yore_fs::rollback::{Plan, Rights, Verb};
use yore_fs::{
    Error, EventKind, EventNo, FallocateMode, FileKind, InodeNo, MkfsOptions, MountOptions, NewSnapshot,
    OpenOptions, Policy, RenameMode, Result, SetXattrMode, Versioning, View, Volume,
};

/// Inode and incarnation of what a path leads to, from a directory.
fn resolve(view: &View, root: InodeNo, path: &Path) -> Option<(InodeNo, u32)> {
    let mut attr = view.getattr(root).ok()?;
    for part in path.iter() {
        attr = *view.lookup(attr.inode, part.as_bytes()).ok()?.attr();
    }
    Some((attr.inode, attr.incarnation))
}

struct Run {
    rng: Xoshiro256PlusPlus,
    volume: Volume,
    device: Arc<dyn Device>,
    seen: Vec<Seen>,
    log: Vec<String>,
    /// Whether events are of the root directory alone.
    only_root: bool,
    forgets: bool,
    /// Whether all history of some files is given up.
    expunges: bool,
    /// Whether directories are rolled back.
    rolls_back: bool,
    /// Whether policies make versions of files.
    policies: bool,
    /// The last event known.
    last: EventNo,
    /// The last event that a rollback has taken.
    last_rolled: EventNo,
}

fn options() -> MountOptions {
    MountOptions { commit_interval: Duration::from_secs(3600), ..MountOptions::default() }
}

/// A new volume for a third of the seeds; for a ninth one with a past in old trees, which is slow; and for
/// the others one with a smaller one. With `only_root` events are of the root directory alone.
fn device_of(seed: u64, only_root: bool) -> Arc<dyn Device> {
    let device = match seed / 2 % 9 {
        0 => Arc::new(old_trees::device()),
        1 | 4 | 7 => {
            let device = Arc::new(MemoryDevice::new(256 << 20));
            Volume::create(device.clone(), &MkfsOptions::default()).unwrap().close().unwrap();
            return device;
        }
        _ => old_trees::without_many(),
    };
    match only_root {
        true => old_trees::of_root_alone(device),
        false => device,
    }
}

impl Run {
    /// With `only_root` events are of the root directory alone.
    fn new(seed: u64, only_root: bool) -> Run {
        let device = device_of(seed, only_root);
        let volume = Volume::open(device.clone(), &options()).unwrap();
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (view, events) = (volume.view(), volume.view().events().unwrap());
        // Sequences have policies of their own, or none.
        for (inode, _) in view.policies().unwrap() {
            view.set_policy(inode, &Policy::default()).unwrap();
        }
        // `golden_old_trees.rs` of `yore-fs` compares what these events have seen with a list.
        let seen = events.iter().map(|event| Seen {
            event: event.number,
            root: event.row.root,
            copy: match event.row.kind {
                EventKind::Removed => Tree::new(),
                _ => copy(&view.as_of(event.number), event.row.root),
            },
            named: None,
        });
        Run {
            rng,
            seen: seen.collect(),
            last: events.last().map_or(EventNo(0), |event| event.number),
            volume,
            device,
            log: Vec::new(),
            only_root,
            forgets: false,
            expunges: false,
            rolls_back: false,
            policies: false,
            last_rolled: EventNo(0),
        }
    }

    fn pick(&mut self, n: u64) -> u64 {
        self.rng.random_range(0..n)
    }

    fn directory(&mut self) -> PathBuf {
        match self.pick(6) {
            0 => PathBuf::from("/"),
            n => ["/a", "/b", "/a/c", "/b/c", "/a/c/d"][n as usize - 1].into(),
        }
    }

    fn path(&mut self) -> PathBuf {
        let name = ["f", "g", "h", "i", "long name that takes room in the directory's inode", "c", "d"];
        let name = name[self.pick(7) as usize];
        self.directory().join(name)
    }

    fn step(&mut self) -> Result<()> {
        let path = self.path();
        let volume = self.volume.clone();
        let file = |path: &Path| OpenOptions::new().write(true).create(true).open(&volume, path);
        let extent = |run: &mut Run| match run.pick(4) {
            0 => (run.pick(200), run.pick(100) + 1),
            1 => (run.pick(20_000), run.pick(9_000) + 1),
            2 => (run.pick(60) * 4096, (run.pick(9) + 1) * 4096),
            _ => (run.pick(700_000), run.pick(120_000) + 1),
        };
        let what = self.pick(100);
        let (at, len) = extent(self);
        let byte = self.pick(250) as u8 + 1;
        self.log.push(format!("{what} {} {at} {len}", path.display()));
        match what {
            0..=4 => volume.create_dir(&path),
            5..=6 => volume.create_dir_all(self.directory()),
            7..=8 => volume.remove_dir(&path),
            9 => volume.remove_dir_all(&path),
            10..=39 => file(&path)?.write_at(&vec![byte; len as usize], at).map(|_| ()),
            40..=44 => volume.append(&path, vec![byte; len as usize % 5000]),
            45..=51 => volume.truncate(&path, at),
            52..=59 => volume.remove_file(&path),
            60..=67 => {
                let to = self.path();
                let mode = if self.pick(4) == 0 { RenameMode::Exchange } else { RenameMode::Replace };
                volume.rename_with(&path, to, mode)
            }
            68..=70 => {
                let to = self.path();
                volume.hard_link(&path, to)
            }
            71..=72 => volume.symlink("t".repeat(at as usize % 4000 + 1), &path),
            73..=75 => volume.set_permissions(&path, 0o600 + (at as u32 % 64)),
            76..=80 => {
                let name = format!("user.{}", at % 5);
                volume.set_xattr(&path, name, vec![byte; len as usize % 6000], SetXattrMode::Any)
            }
            81..=82 => volume.remove_xattr(&path, format!("user.{}", at % 5)),
            83..=87 => {
                let mode = match at % 3 {
                    0 => FallocateMode::PunchHole,
                    1 => FallocateMode::ZeroRange { keep_size: len % 2 == 0 },
                    _ => FallocateMode::Allocate { keep_size: len % 2 == 0 },
                };
                let node = volume.node(&path)?;
                volume.view().fallocate(node.inode(), at, len, mode)
            }
            88..=89 => volume.sync(),
            90 => file(&path)?.sync_all(),
            91..=97 => self.event(&volume),
            98 => {
                let to = self.path();
                let old = self.seen.len().checked_sub(1).map(|last| self.pick(last as u64 + 1) as usize);
                let Some(old) = old.map(|i| &self.seen[i]) else { return Ok(()) };
                let Some((from, _)) = old.copy.iter().find(|(_, v)| v.0 == FileKind::Regular) else {
                    return Ok(());
                };
                let content = old.copy[from].4.clone();
                volume.write(to, content)
            }
            _ => {
                self.volume.close()?;
                self.check();
                self.volume = Volume::open(self.device.clone(), &options())?;
                Ok(())
            }
        }
    }

    fn event(&mut self, volume: &Volume) -> Result<()> {
        let of_root = self.pick(3) > 0 || self.only_root;
        let root = if of_root { PathBuf::from("/") } else { self.directory() };
        let root = volume.node(&root)?.inode();
        let copy = copy(volume.view(), root);
        let event = volume
            .view()
            .take_snapshot(root, &NewSnapshot { wait: self.pick(5) == 0, ..NewSnapshot::default() })?
            .number;
        self.seen.push(Seen { event, root, copy, named: None });
        Ok(())
    }

    /// Gives a file or a directory another policy.
    fn set_policy(&mut self) -> Result<()> {
        let path = if self.pick(3) == 0 { self.path() } else { self.directory() };
        let versioning = match self.pick(4) {
            0 => None,
            1 => Some(Versioning::Snapshots),
            _ => Some(Versioning::Close),
        };
        self.log.push(format!("policy {} {versioning:?}", path.display()));
        let inode = self.volume.node(path)?.inode();
        self.volume.view().set_policy(inode, &Policy { versioning, ..Policy::default() })
    }

    /// Records the versions that policies have made.
    fn note_versions(&mut self) {
        let view = self.volume.view().clone();
        let new: Vec<_> =
            view.events().unwrap().into_iter().filter(|event| event.number > self.last).collect();
        for event in &new {
            self.last = event.number;
            let root = event.row.root;
            let seen = match event.row.kind {
                EventKind::Close => {
                    let copy = copy(&view.as_of(event.number), root);
                    // Others of the same call came after the names changed.
                    let is_last = new.last().is_some_and(|last| last.number == event.number);
                    let named = if is_last { Named::of(&view, root, event.row.time) } else { None };
                    if named.is_some() {
                        let now = self::copy(&view, root);
                        assert!(copy == now, "{:?}: not as it is", self.log.last());
                    }
                    Seen { event: event.number, root, copy, named }
                }
                EventKind::Removed => Seen { event: event.number, root, copy: Tree::new(), named: None },
                _ => continue,
            };
            seen.compare(&self.volume, "at once");
            self.seen.push(seen);
        }
    }

    fn check(&self) {
        let report = check(&*self.device, &CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{report}: {:#?}", &self.log[self.log.len().saturating_sub(30)..]);
    }

    /// What each event holds is known, and is what a walk finds.
    fn check_usage(&self) {
        let view = self.volume.view();
        let ask = |by_walk: bool| {
            view.find_usage_by_walk(by_walk);
            let mut all = Vec::new();
            let totals = view.usage(view.root(), &mut |event| {
                all.push((event.seen.event.number, event.exclusive, event.with_older, event.shared));
                ControlFlow::Continue(())
            });
            (totals.unwrap(), all, view.what_would_free().unwrap())
        };
        loop {
            let (by_walk, known) = (ask(true), ask(false));
            // Data may have been written back meanwhile, or something was given up.
            if known == by_walk || view.forgetting().is_some() {
                return;
            }
            let tail = &self.log[self.log.len().saturating_sub(30)..];
            assert!(ask(true) != by_walk, "known {known:#?}, and by a walk {by_walk:#?}: {tail:#?}");
        }
    }

    /// Forgets some events: at once, in the background of later operations, or in pieces.
    fn forget(&mut self) {
        let mut numbers = Vec::new();
        for _ in 0..self.pick(4) + 1 {
            if !self.seen.is_empty() {
                let i = self.pick(self.seen.len() as u64) as usize;
                numbers.push(self.seen.swap_remove(i).event);
            }
        }
        self.log.push(format!("forget {numbers:?}"));
        let view = self.volume.view().clone();
        view.forget(&numbers).unwrap();
        for number in numbers {
            let gone = view.as_of(number).getattr(view.root());
            assert!(matches!(gone, Err(Error::Stale)), "{gone:?}");
        }
        let left = self.pick(4);
        if left > 0 {
            let ask = &mut |_: &_| if left == 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            view.finish_forgetting(ask).unwrap();
        }
    }

    /// Gives up all history of a file, or of a directory with everything that was ever in it; the copies lose
    /// it, too. This happens at once, in the background of later operations, or in pieces.
    fn expunge(&mut self) {
        let view = self.volume.view().clone();
        let old = self.pick(self.seen.len() as u64 * 2) as usize;
        let (at, root, path) = match self.seen.get(old).filter(|seen| !seen.copy.is_empty()) {
            Some(seen) => {
                let (event, root, paths) =
                    (seen.event, seen.root, seen.copy.keys().cloned().collect::<Vec<_>>());
                let which = self.pick(paths.len() as u64) as usize;
                (view.as_of(event), root, paths[which].clone())
            }
            None => (view.clone(), view.root(), self.path().strip_prefix("/").unwrap().into()),
        };
        let Some((inode, incarnation)) = resolve(&at, root, &path) else { return };
        if inode == view.root() {
            return;
        }
        let all = view.remembered_below(inode, incarnation).unwrap();
        let to_expunge: Vec<(InodeNo, u32)> = all.iter().map(|one| (one.inode, one.incarnation)).collect();
        self.log.push(format!("expunge {to_expunge:?}, {} as of {:?}", path.display(), at.event()));
        let before = copy_all(&self.volume);
        for seen in &mut self.seen {
            let then = view.as_of(seen.event);
            let root = seen.root;
            seen.copy.retain(|path, _| !to_expunge.contains(&resolve(&then, root, path).unwrap()));
        }
        view.expunge(&to_expunge).unwrap();
        let kept: Vec<EventNo> = view.events().unwrap().iter().map(|event| event.number).collect();
        self.seen.retain(|seen| {
            let is_kept = kept.contains(&seen.event);
            assert!(
                is_kept || to_expunge.iter().any(|(inode, _)| *inode == seen.root),
                "event {}",
                seen.event
            );
            is_kept
        });
        self.seen.iter().for_each(|seen| seen.compare(&self.volume, "expunged"));
        let left = self.pick(4);
        if left > 0 {
            let ask = &mut |_: &_| if left == 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            view.finish_forgetting(ask).unwrap();
            self.seen.iter().for_each(|seen| seen.compare(&self.volume, "expunged, and given up"));
        }
        if left > 1 {
            for (inode, incarnation) in to_expunge {
                let left = view.remembered(inode, incarnation).map_or(0, |left| left.versions);
                assert_eq!(left, 0, "{inode}");
            }
        }
        assert_eq!(copy_all(&self.volume), before, "the present stays");
    }

    /// Rolls a directory back to an event. It equals its copy then, and everything else is unchanged; the
    /// events before and after can be seen, too. A rollback cannot bring back what was expunged from an
    /// event, so both are not tried together.
    fn roll_back(&mut self) {
        let view = self.volume.view().clone();
        let old = self.pick(self.seen.len() as u64) as usize;
        let Seen { event, root, .. } = self.seen[old];
        let same = |at: &View| at.node(root, None).map(|node| node.attr().incarnation).ok();
        let is_directory =
            self.seen[old].copy.get(Path::new("")).is_some_and(|of| of.0 == FileKind::Directory);
        if !is_directory || same(&view).is_none() || same(&view) != same(&view.as_of(event)) {
            return;
        }
        self.log.push(format!("roll {root} back to {event}"));
        let (before, all) = (copy(&view, root), copy_all(&self.volume));
        let path_now = view.path_now(root).unwrap();
        let plan = Plan { verb: Verb::Rollback, of: None, target: event, others: None };
        let done = view.rollback(&Rights::All, root, &plan, &mut |_| ()).unwrap();
        let after = copy(&view, root);
        let was = &self.seen[old].copy;
        let differ: Vec<_> =
            was.keys().chain(after.keys()).filter(|p| was.get(*p) != after.get(*p)).collect();
        let tail = &self.log[self.log.len().saturating_sub(30)..];
        assert!(differ.is_empty(), "{differ:?} differ: {tail:#?}");
        // Files that also have names elsewhere may have changed there with their attributes.
        if let Some(path_now) = path_now {
            let below = path_now.strip_prefix("/").unwrap().to_path_buf();
            let others = |of: &Tree| -> Vec<PathBuf> {
                of.keys().filter(|path| !path.starts_with(&below)).cloned().collect()
            };
            assert_eq!(others(&all), others(&copy_all(&self.volume)), "what is elsewhere: {tail:#?}");
        }
        for event in view.events().unwrap() {
            let copy = match event.row.name.split_once('-') {
                Some(("before", name)) if name == done.name && event.row.root == root => before.clone(),
                Some(("after", name)) if name == done.name && event.row.root == root => after.clone(),
                _ => continue,
            };
            if event.number > self.last_rolled {
                self.last_rolled = event.number;
                self.seen.push(Seen { event: event.number, root, copy, named: None });
            }
        }
        assert_eq!(view.unfinished_rollbacks().unwrap(), []);
        // A version that was made just before its file got a name is found under that name as long as the
        // name is in use. Many such names go away here.
        self.seen.iter_mut().for_each(|seen| seen.named = None);
    }

    fn forget_all(mut self) {
        while !self.seen.is_empty() {
            self.forget();
            self.seen.iter().for_each(|seen| seen.compare(&self.volume, "after forgetting"));
        }
        let before = copy_all(&self.volume);
        self.volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(self.volume.view().events().unwrap().len(), 0);
        self.volume.close().unwrap();
        self.check();
        let report = check(&*self.device, &CheckOptions::default()).unwrap();
        let counts = report.counts;
        let left = (counts.versions, counts.past_names, counts.history_data_blocks, counts.history_nodes);
        assert_eq!(left, (0, 0, 0, 0), "something of the past is left");
        let volume = Volume::open(self.device.clone(), &options()).unwrap();
        assert_eq!(copy_all(&volume), before);
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            if self.forgets && self.seen.len() > 3 && self.pick(12) == 0 {
                self.forget();
            }
            if self.expunges && self.seen.len() > 2 && self.pick(15) == 0 {
                self.expunge();
            }
            if self.rolls_back && self.seen.len() > 2 && self.pick(12) == 0 {
                self.roll_back();
            }
            // Not drawn, so that a seed does the same with and without rows to index.
            if self.log.len() % 10 == 3 {
                let rows = self.log.len() as u64 * 7 % 70;
                self.volume.view().index_history(rows).unwrap();
            }
            match self.step() {
                Err(e) if matches!(e.root(), Error::Corruption(_) | Error::NoSpace | Error::Device(_)) => {
                    panic!("{e}: {:#?}", &self.log[self.log.len().saturating_sub(8)..])
                }
                _ => {}
            }
            if self.only_root && self.log.len() % 5 == 2 {
                self.check_usage();
            }
            if self.policies {
                self.note_versions();
                if self.pick(12) == 0 {
                    let _ = self.set_policy();
                }
            }
            if !self.seen.is_empty() && self.pick(4) == 0 {
                let i = self.pick(self.seen.len() as u64) as usize;
                let last = self.log.last().cloned().unwrap_or_default();
                self.seen[i].compare(&self.volume, &last);
            }
        }
        self.seen.iter().for_each(|seen| seen.compare(&self.volume, "in the end"));
        self.volume.close().unwrap();
        self.check();
        self.volume = Volume::open(self.device.clone(), &options()).unwrap();
        self.seen.iter().for_each(|seen| seen.compare(&self.volume, "opened again"));
    }
}

#[test]
fn every_past_view_equals_its_copy() {
    for seed in seeds(6) {
        Run::new(seed, false).run(400);
    }
}

#[test]
fn what_is_not_forgotten_stays_and_what_is_leaves_nothing() {
    for seed in seeds(6) {
        let mut run = Run { forgets: true, ..Run::new(seed, seed % 2 == 0) };
        run.run(500);
        run.forget_all();
    }
}

/// The same holds with versions that policies make of files.
#[test]
fn what_policies_keep_stays_and_what_is_forgotten_leaves_nothing() {
    for seed in seeds(6) {
        let run = Run { policies: true, ..Run::new(seed, seed % 2 == 0) };
        let mut run = Run { forgets: seed % 3 > 0, ..run };
        run.run(500);
        run.forget_all();
    }
}

/// The same holds when all history of some files is given up: it is gone from all views, and everything else
/// stays.
#[test]
fn what_is_expunged_is_gone_and_nothing_else() {
    for seed in seeds(6) {
        let run = Run { expunges: true, policies: seed % 2 == 0, ..Run::new(seed, seed % 5 == 0) };
        let mut run = Run { forgets: seed % 3 > 0, ..run };
        run.run(500);
        run.forget_all();
    }
}

/// Directories are rolled back, and forward again, exactly; everything else and every past view stays as it
/// was.
#[test]
fn what_is_rolled_back_is_its_copy() {
    for seed in seeds(6) {
        let run = Run { rolls_back: true, policies: seed % 3 == 0, ..Run::new(seed, seed % 5 == 0) };
        let mut run = Run { forgets: seed % 2 == 0, ..run };
        run.run(500);
        run.forget_all();
    }
}

/// Many versions share a link that never changes and attributes in a tree of three levels. The checker
/// reported the nodes below a shared node as named twice.
#[test]
fn trees_that_versions_share_are_sound() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    let volume = Volume::create(device.clone(), &MkfsOptions::default()).unwrap();
    volume.symlink("t".repeat(4095), "link0").unwrap();
    volume.write("file", "content").unwrap();
    for i in 0..60 {
        volume.set_xattr("file", format!("user.{i}"), vec![i; 60_000], SetXattrMode::Any).unwrap();
    }
    let view = volume.view();
    let mut seen = Vec::new();
    for i in 0..4 {
        let (root, copy) = (view.root(), copy_all(&volume));
        seen.push(Seen {
            event: view.take_snapshot(root, &NewSnapshot::default()).unwrap().number,
            root,
            copy,
            named: None,
        });
        volume.rename(format!("link{i}"), format!("link{}", i + 1)).unwrap();
        volume.set_xattr("file", format!("user.{}", i * 17), "small", SetXattrMode::Any).unwrap();
        volume.remove_xattr("file", format!("user.{}", i * 13 + 1)).unwrap();
    }
    seen.iter().for_each(|seen| seen.compare(&volume, "in the end"));
    volume.close().unwrap();
    let report = check(&*device, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
}

/// When a node is freed together with everything below it, the counts include everything below it. Here trees
/// of attributes with three levels, partly shared with the past, go with their files; then the versions go,
/// one after another.
#[test]
fn trees_that_go_whole_are_counted_whole() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(128 << 20));
    let options = options();
    let mut volume = Volume::create(device.clone(), &MkfsOptions::default()).unwrap();
    volume.symlink("t".repeat(4095), "link").unwrap();
    let attribute = |i: u8| format!("user.{i}");
    for file in ["whole", "changed"] {
        volume.write(file, "content").unwrap();
        for i in 0..60 {
            volume.set_xattr(file, attribute(i), vec![i; 60_000], SetXattrMode::Any).unwrap();
        }
    }
    let event = |volume: &Volume| {
        let view = volume.view();
        view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number
    };
    let held = |volume: Volume| {
        volume.close().unwrap();
        let report = check(&*device, &CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{report}");
        let held = (report.counts.history_data_blocks, report.counts.history_nodes);
        (Volume::open(device.clone(), &options).unwrap(), held)
    };
    let first = event(&volume);
    for i in 0..5 {
        volume.set_xattr("changed", attribute(i * 11), "small", SetXattrMode::Any).unwrap();
    }
    let second = event(&volume);
    volume.set_xattr("changed", attribute(7), "small", SetXattrMode::Any).unwrap();
    for name in ["whole", "changed", "link"] {
        volume.remove_file(name).unwrap();
    }
    let (reopened, all) = held(volume);
    assert!(all.1 > 2 * 60 * 15, "{all:?}");
    volume = reopened;
    for number in [first, second] {
        volume.view().forget(&[number]).unwrap();
        volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
        let (reopened, left) = held(volume);
        assert!(left.1 < all.1, "{left:?}");
        assert_eq!(left == (0, 0), number == second, "{left:?}");
        volume = reopened;
    }
}
