//! Promise: this holds whatever the sequence of operations, events and policies. As of an event that somebody
//! asked for, everything is exactly what it was, excluded or not. As of an event that a policy took,
//! everything that was not excluded then is exactly what it was; an excluded file is either exactly that or
//! not there. The patterns here are few, and the test computes what they exclude by other means than the
//! library.
//!
//! `YORE_SEED=n` begins with another sequence, `YORE_ROUNDS=n` runs that many.

use crate::common::seeds;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use seeds::seeds;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use yore_check::{check, CheckOptions};
use yore_device::{Device, MemoryDevice};
use yore_fs::rollback::{Plan, Rights, Verb};
use yore_fs::{
    DirItem, Error, EventKind, EventNo, FileKind, InodeNo, MkfsOptions, MountOptions, NewSnapshot,
    OpenOptions, Policy, RenameMode, Versioning, View, Volume,
};

/// By path: the content of a file; `None`: a directory.
type Tree = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// Everything below a directory, which is given by its number.
fn copy(view: &View, root: InodeNo) -> Tree {
    let mut all = Tree::new();
    let mut left = vec![(PathBuf::new(), root)];
    while let Some((path, inode)) = left.pop() {
        let attr = view.getattr(inode).unwrap();
        let is_directory = attr.kind == FileKind::Directory;
        let content = (!is_directory).then(|| {
            let mut bytes = vec![0; attr.size as usize];
            assert_eq!(view.read(inode, 0, &mut bytes).unwrap(), bytes.len());
            bytes
        });
        if is_directory {
            let below = &mut |item: DirItem<'_>| {
                if item.name != b"." && item.name != b".." {
                    left.push((path.join(OsStr::from_bytes(item.name)), item.inode));
                }
                true
            };
            view.readdir(inode, 0, below).unwrap();
        }
        all.insert(path, content);
    }
    all
}

/// An event, with the content of its time.
struct Taken {
    number: EventNo,
    root: InodeNo,
    asked: bool,
    tree: Tree,
    /// Paths of excluded files.
    excluded: BTreeSet<PathBuf>,
}

struct Test {
    device: Arc<dyn Device>,
    volume: Volume,
    rng: Xoshiro256PlusPlus,
    events: Vec<Taken>,
    /// The patterns that directories' policies have.
    patterns: BTreeMap<InodeNo, Vec<String>>,
}

/// What this test knows of gitignore's grammar: `*.end`, `name/`, `/name` and `!pattern`.
fn matches(pattern: &str, path: &Path, is_directory: bool) -> bool {
    let name = path.file_name().unwrap().to_str().unwrap();
    match pattern {
        p if p.starts_with("*.") => name.ends_with(&p[1..]),
        p if p.starts_with('/') => path == Path::new(&p[1..]),
        p if p.ends_with('/') => is_directory && name == &p[..p.len() - 1],
        p => name == p,
    }
}

fn excludes(patterns: &[String], path: &Path, is_directory: bool) -> bool {
    let mut excluded = false;
    for pattern in patterns {
        match pattern.strip_prefix('!') {
            Some(pattern) if matches(pattern, path, is_directory) => excluded = false,
            None if matches(pattern, path, is_directory) => excluded = true,
            _ => {}
        }
    }
    excluded
}

impl Test {
    fn new(seed: u64) -> Test {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(96 << 20));
        View::mkfs(&device, &MkfsOptions::default()).unwrap();
        let volume = Volume::open(device.clone(), &MountOptions::default()).unwrap();
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        Test { device, volume, rng, events: Vec::new(), patterns: BTreeMap::new() }
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.rng.random_ratio(1, one_in)
    }

    fn pick<'t, T>(&mut self, of: &'t [T]) -> &'t T {
        &of[self.rng.random_range(0..of.len())]
    }

    fn node(&self, path: &Path) -> yore_fs::Result<yore_fs::Node> {
        self.volume.symlink_node(Path::new("/").join(path))
    }

    fn now(&self) -> Tree {
        copy(self.volume.view(), self.volume.view().root())
    }

    fn path(&mut self, tree: &Tree, directory: bool) -> Option<PathBuf> {
        let all: Vec<&PathBuf> =
            tree.iter().filter(|(_, content)| content.is_none() == directory).map(|(path, _)| path).collect();
        (!all.is_empty()).then(|| (*self.pick(&all)).clone())
    }

    fn new_path(&mut self, tree: &Tree) -> PathBuf {
        let names = ["a", "b", "c.swp", "d.swp", "keep.swp", "target", "top", "e"];
        let name = *self.pick(&names);
        self.path(tree, true).unwrap().join(name)
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = *self.pick(&[3, 80, 5_000, 40_000]);
        let byte = self.rng.random();
        vec![byte; len]
    }

    /// The excluded paths of the present.
    fn excluded(&self, tree: &Tree) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        // For each directory: which one decides, and whether the directory itself is excluded.
        let mut decided: BTreeMap<PathBuf, (Option<PathBuf>, bool)> = BTreeMap::new();
        for (path, content) in tree {
            let node = self.node(path).unwrap();
            let (is_directory, links) = (content.is_none(), node.attr().links);
            let own = self.patterns.contains_key(&node.inode());
            let (by, above) = match path.parent() {
                Some(parent) => decided[parent].clone(),
                None => (None, false),
            };
            let matched = by.as_ref().is_some_and(|by| {
                let of = self.node(by).unwrap().inode();
                excludes(&self.patterns[&of], path.strip_prefix(by).unwrap(), is_directory)
            });
            let excluded = !own && (above || matched);
            if excluded && (is_directory || links == 1) {
                found.insert(path.clone());
            }
            if is_directory {
                decided.insert(path.clone(), (if own { Some(path.clone()) } else { by }, excluded));
            }
        }
        found
    }

    fn take(&mut self, tree: &Tree) {
        let path = match self.chance(2) {
            true => PathBuf::new(),
            false => self.path(tree, true).unwrap(),
        };
        let root = self.node(&path).unwrap().inode();
        let (asked, view) = (self.chance(3), self.volume.view());
        let number = match asked {
            true => view.take_snapshot(root, &NewSnapshot::default()).unwrap().number,
            false => {
                // The policy begins with an event, and takes the next one in an hour.
                let versioning = Some(Versioning::Interval(3_600_000_000_000));
                let exclude = self.patterns.get(&root).cloned();
                view.set_policy(root, &Policy { versioning, exclude, ..Policy::default() }).unwrap();
                let last = view.events().unwrap().pop().unwrap();
                assert_eq!((last.row.kind, last.row.root), (EventKind::Interval, root));
                last.number
            }
        };
        let below = |of: &PathBuf| of.strip_prefix(&path).ok().map(Path::to_path_buf);
        let excluded = self.excluded(tree).iter().filter_map(below).collect();
        let tree = tree.iter().filter_map(|(of, content)| Some((below(of)?, content.clone()))).collect();
        self.events.push(Taken { number, root, asked, tree, excluded });
    }

    fn set_policy(&mut self, tree: &Tree) {
        let path = if self.chance(2) { PathBuf::new() } else { self.path(tree, true).unwrap() };
        let inode = self.node(&path).unwrap().inode();
        let lists: [&[&str]; 6] =
            [&["*.swp"], &["target/"], &["*.swp", "!keep.swp", "target/"], &["/top"], &[], &["e", "b"]];
        let exclude = match self.chance(4) {
            true => None,
            false => Some(self.pick(&lists).iter().map(|one| one.to_string()).collect::<Vec<_>>()),
        };
        match &exclude {
            Some(patterns) => drop(self.patterns.insert(inode, patterns.clone())),
            None => drop(self.patterns.remove(&inode)),
        }
        let versioning = self.chance(3).then_some(Versioning::Close);
        self.volume.view().set_policy(inode, &Policy { exclude, versioning, ..Policy::default() }).unwrap();
    }

    fn step(&mut self) {
        let tree = self.now();
        let may = |result: yore_fs::Result<()>| match result {
            Ok(()) => {}
            Err(e) => {
                assert!(!matches!(e.root(), Error::Corruption(_) | Error::NoSpace | Error::Stale), "{e}")
            }
        };
        match self.rng.random_range(0..20) {
            0..=3 => {
                let (path, bytes) = (self.new_path(&tree), self.bytes());
                may(self.volume.write(path, bytes));
            }
            4..=7 => {
                let (Some(path), bytes) = (self.path(&tree, false), self.bytes()) else { return };
                let file = OpenOptions::new().write(true).open(&self.volume, &path).unwrap();
                let at = self.rng.random_range(0..20_000);
                file.write_at(&bytes, at).unwrap();
                if self.chance(3) {
                    file.sync_data().unwrap();
                }
                if self.chance(4) {
                    file.set_len(self.rng.random_range(0..30_000)).unwrap();
                }
            }
            8 | 9 => {
                let path = self.new_path(&tree);
                may(self.volume.create_dir(path));
            }
            10..=12 => {
                let (directory, to) = (self.chance(2), self.new_path(&tree));
                let Some(from) = self.path(&tree, directory).filter(|p| !p.as_os_str().is_empty()) else {
                    return;
                };
                may(self.rename(&from, &to));
            }
            13 => {
                let Some(path) = self.path(&tree, false) else { return };
                self.volume.remove_file(path).unwrap();
            }
            14 => {
                let Some(path) = self.path(&tree, true).filter(|p| !p.as_os_str().is_empty()) else { return };
                let gone: Vec<InodeNo> = self.patterns.keys().copied().collect();
                may(self.volume.remove_dir(path));
                let left: BTreeSet<InodeNo> =
                    self.now().keys().map(|path| self.node(path).unwrap().inode()).collect();
                gone.iter().filter(|no| !left.contains(no)).for_each(|no| drop(self.patterns.remove(no)));
            }
            15 => {
                let (Some(path), to) = (self.path(&tree, false), self.new_path(&tree)) else { return };
                may(self.volume.hard_link(path, to));
            }
            16 => self.set_policy(&tree),
            _ => self.take(&tree),
        }
    }

    fn rename(&mut self, from: &Path, to: &Path) -> yore_fs::Result<()> {
        let mode = if self.chance(4) { RenameMode::Exchange } else { RenameMode::Replace };
        let view = self.volume.view();
        let parent = |path: &Path| self.node(path.parent().unwrap()).map(|node| node.inode());
        let name = |path: &Path| path.file_name().unwrap().as_bytes().to_vec();
        let gone = self.node(to).ok().map(|node| node.inode());
        view.rename(parent(from)?, &name(from), parent(to)?, &name(to), mode)?;
        if let (RenameMode::Replace, Some(gone)) = (mode, gone) {
            let is_it = |no: InodeNo| self.node(to).unwrap().inode() == no;
            if !is_it(gone) && view.getattr(gone).is_err() {
                self.patterns.remove(&gone);
            }
        }
        Ok(())
    }

    /// Compares each event with what there was.
    fn compare(&self) {
        for Taken { number, root, asked, tree, excluded } in &self.events {
            let past = self.volume.view().as_of(*number);
            let what = |path: &Path| format!("{path:?} as of {number}, asked: {asked}");
            let found = match past.getattr(*root) {
                Ok(_) => copy(&past, *root),
                Err(Error::NotFound) => Tree::new(),
                Err(e) => panic!("{e}"),
            };
            for (path, content) in &found {
                let was = tree.get(path).unwrap_or_else(|| panic!("{} was not there", what(path)));
                assert!(was == content, "{} was something else", what(path));
            }
            for path in tree.keys().filter(|path| !found.contains_key(*path)) {
                let may = path.ancestors().any(|path| excluded.contains(path));
                assert!(may && !asked, "{} is gone", what(path));
            }
        }
    }

    fn reopen(&mut self) {
        self.volume.close().unwrap();
        let report = check(&*self.device, &CheckOptions::default()).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        self.volume = Volume::open(self.device.clone(), &MountOptions::default()).unwrap();
    }

    fn forget(&mut self) {
        if self.events.is_empty() {
            return;
        }
        let at = self.rng.random_range(0..self.events.len());
        let gone = self.events.remove(at);
        self.volume.view().forget(&[gone.number]).unwrap();
        self.volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
    }

    /// After a rollback to an event that a policy took, everything that was not excluded is what it was, and
    /// what is excluded now was left alone or put back.
    fn roll_back(&mut self) {
        let of_root = |event: &Taken| event.root == InodeNo::ROOT && !event.asked;
        let Some(event) = self.events.iter().rev().find(|event| of_root(event)) else { return };
        let view = self.volume.view();
        let (before, past) = (self.now(), view.as_of(event.number));
        let excluded = self.excluded(&before);
        let was_nothing = |path: &PathBuf| {
            let no = self.node(path).unwrap().inode();
            before[path].is_some() && matches!(past.getattr(no), Err(Error::NotFound))
        };
        let unknown: Vec<(&PathBuf, InodeNo)> = excluded
            .iter()
            .filter(|path| was_nothing(path))
            .map(|path| (path, self.node(path).unwrap().inode()))
            .collect();
        let plan = Plan { verb: Verb::Rollback, of: None, target: event.number, others: None };
        view.rollback(&Rights::All, InodeNo::ROOT, &plan, &mut |_| ()).unwrap();
        let after = self.now();
        let inodes: BTreeSet<InodeNo> = after.keys().map(|p| self.node(p).unwrap().inode()).collect();
        for (path, no) in unknown {
            assert!(
                inodes.contains(&no),
                "{path:?} is excluded, was nothing as of {}, and is lost",
                event.number
            );
            let is = self.volume.view().path_now(no).unwrap().unwrap();
            assert_eq!(after[is.strip_prefix("/").unwrap()], before[path], "{path:?} is something else");
        }
        let left: BTreeSet<InodeNo> = after.keys().map(|p| self.node(p).unwrap().inode()).collect();
        self.patterns.retain(|no, _| left.contains(no));
    }
}

#[test]
fn what_is_excluded_is_what_it_was_or_is_not_there() {
    for seed in seeds(24) {
        let mut test = Test::new(seed);
        for round in 0..4 {
            for _ in 0..60 {
                test.step();
            }
            test.compare();
            if test.chance(2) {
                test.reopen();
                test.compare();
            }
            if round == 2 {
                (0..3).for_each(|_| test.forget());
                test.compare();
            }
        }
        test.roll_back();
        test.compare();
        while !test.events.is_empty() {
            test.forget();
        }
        test.reopen();
        test.volume.close().unwrap();
    }
}
