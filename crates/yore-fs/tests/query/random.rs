//! Random differences, applied to the earlier tree, give the later one.

use super::*;
use crate::common::seeds::seeds;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use yore_fs::{
    DirItem, Error, FallocateMode, FileKind, InodeNo, NewSnapshot, OpenOptions, RenameMode, SetXattrMode,
    Timestamp, View,
};

type Copied = (FileKind, u32, u64, Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>, Timestamp);
type Copy = BTreeMap<PathBuf, Copied>;

/// Everything that a view has below a directory, except what a difference does not show: times and sizes of
/// directories, and link counts.
fn copy(view: &View, root: InodeNo) -> Copy {
    let (mut all, mut left) = (Copy::new(), vec![(PathBuf::new(), root)]);
    while let Some((path, inode)) = left.pop() {
        let attr = view.getattr(inode).unwrap();
        let is_directory = attr.kind == FileKind::Directory;
        let content = match attr.kind {
            FileKind::Regular => {
                let mut bytes = vec![0; attr.size as usize];
                assert_eq!(view.read(inode, 0, &mut bytes).unwrap(), bytes.len());
                bytes
            }
            FileKind::Symlink => view.readlink(inode).unwrap(),
            _ => Vec::new(),
        };
        if is_directory {
            let below = &mut |item: DirItem<'_>| {
                if !matches!(item.name, b"." | b"..") {
                    left.push((path.join(OsStr::from_bytes(item.name)), item.inode));
                }
                true
            };
            view.readdir(inode, 0, below).unwrap();
        }
        let mut xattrs: Vec<_> = view.listxattr(inode).unwrap();
        xattrs.sort();
        let xattrs = xattrs.into_iter().map(|n| (n.clone(), view.getxattr(inode, &n).unwrap())).collect();
        let (size, mtime) = match is_directory {
            true => (0, Timestamp::default()),
            false => (attr.size, attr.mtime),
        };
        all.insert(path, (attr.kind, attr.permissions & 0o1777, size, content, xattrs, mtime));
    }
    all
}

/// Applies the differences to `from`; content that they call new or changed is taken from `to`.
fn apply(from: &Copy, to: &Copy, found: &[Difference]) -> Copy {
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let mut renamed: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    let mut removed: BTreeSet<PathBuf> = BTreeSet::new();
    for d in found {
        if let Some(old) = &d.old_path {
            assert!(renamed.insert(path(old), path(&d.path)).is_none(), "renamed twice: {d:?}");
        }
        if d.change == Change::Removed {
            assert!(removed.insert(path(&d.path)), "removed twice: {d:?}");
        }
    }
    fn now(old: &Path, renamed: &BTreeMap<PathBuf, PathBuf>) -> PathBuf {
        match (renamed.get(old), old.parent()) {
            (Some(new), _) => new.clone(),
            (None, Some(above)) => now(above, renamed).join(old.file_name().unwrap()),
            (None, None) => PathBuf::new(),
        }
    }
    let mut result = Copy::new();
    for (old, value) in from {
        if !removed.contains(old) {
            assert!(result.insert(now(old, &renamed), value.clone()).is_none(), "two at {}", old.display());
        }
    }
    for d in found {
        let at = path(&d.path);
        let value = || to.get(&at).unwrap_or_else(|| panic!("{d:?} is not there")).clone();
        match d.change {
            Change::Added => assert!(result.insert(at.clone(), value()).is_none(), "there already: {d:?}"),
            Change::Modified => {
                let value = value();
                assert!(result.insert(at.clone(), value.clone()).is_some(), "not there: {d:?}");
            }
            Change::Renamed if !d.what.is_empty() => {
                result.insert(at.clone(), value());
            }
            Change::Renamed | Change::Removed => {}
        }
    }
    result
}

struct Run {
    rng: Xoshiro256PlusPlus,
    volume: Volume,
    seen: Vec<(EventNo, InodeNo, Copy)>,
    log: Vec<String>,
    /// How many differences were not empty.
    compared: usize,
}

const DIRECTORIES: [&str; 6] = ["", "a", "b", "a/c", "b/c", "a/c/d"];

impl Run {
    fn pick(&mut self, n: usize) -> usize {
        self.rng.random_range(0..n)
    }

    fn path(&mut self) -> String {
        let directory = DIRECTORIES[self.pick(6)];
        let name = ["a", "b", "c", "d", "e", "f", "g", "h"][self.pick(8)];
        format!("{directory}/{name}")
    }

    fn step(&mut self) -> Result<()> {
        let (path, other) = (self.path(), self.path());
        let (what, at) = (self.pick(100), self.pick(60_000) as u64);
        let byte = self.pick(250) as u8 + 1;
        self.log.push(format!("{what} {path} {other} {at}"));
        let volume = &self.volume;
        match what {
            0..=9 => volume.create_dir(&path),
            10..=14 => volume.remove_dir_all(&path),
            15..=39 => {
                let file = OpenOptions::new().write(true).create(true).open(volume, &path)?;
                file.write_at(&vec![byte; at as usize % 9000 + 1], at).map(|_| ())
            }
            40..=44 => volume.truncate(&path, at),
            45..=52 => volume.remove_file(&path),
            53..=70 => {
                let mode = if at % 4 == 0 { RenameMode::Exchange } else { RenameMode::Replace };
                volume.rename_with(&path, &other, mode)
            }
            71..=76 => volume.hard_link(&path, &other),
            77..=78 => volume.symlink(&other, &path),
            79..=82 => volume.set_permissions(&path, 0o600 + at as u32 % 64),
            83..=86 => volume.set_xattr(&path, "user.x", vec![byte; at as usize % 3000], SetXattrMode::Any),
            87..=88 => volume.remove_xattr(&path, "user.x"),
            89 => {
                let inode = volume.node(&path)?.inode();
                volume.view().fallocate(inode, at, 9000, FallocateMode::PunchHole)
            }
            90..=91 => volume.sync(),
            _ => {
                let root = if at % 3 == 0 { DIRECTORIES[at as usize % 6] } else { "" };
                let root = volume.node(format!("/{root}"))?.inode();
                if volume.view().getattr(root)?.kind != FileKind::Directory {
                    return Ok(());
                }
                let copy = copy(volume.view(), root);
                let number = volume.view().take_snapshot(root, &NewSnapshot::default())?.number;
                self.seen.push((number, root, copy));
                Ok(())
            }
        }
    }

    /// Compares two snapshots that have seen the same directory, or one with the present.
    fn compare(&mut self) {
        if self.seen.is_empty() {
            return;
        }
        let (i, j) = (self.pick(self.seen.len()), self.pick(self.seen.len() + 1));
        let (from, root, before) = &self.seen[i];
        let view = self.volume.view();
        let (to, after) = match self.seen.get(j) {
            Some((_, other, _)) if other != root => return,
            Some((to, _, after)) => (Some(*to), after.clone()),
            None => match view.getattr(*root) {
                Ok(attr) if attr.kind == FileKind::Directory => (None, copy(view, *root)),
                _ => return,
            },
        };
        for reversed in [false, true] {
            let mut found = Vec::new();
            let (first, second) = if reversed { (to, Some(*from)) } else { (Some(*from), to) };
            let result = view.diff(*root, first, second, &mut |d| {
                found.push(d);
                ControlFlow::Continue(())
            });
            match result {
                // The number belongs to another directory by now.
                Err(Error::NotFound) if to.is_none() => return,
                result => result.unwrap(),
            }
            let (before, after) = if reversed { (&after, before) } else { (before, &after) };
            let result = apply(before, after, &found);
            let brief = |copy: &Copy| -> Vec<String> {
                copy.iter()
                    .map(|(p, v)| format!("{} {:?} {:o} {} {:?}", p.display(), v.0, v.1, v.2, v.5))
                    .collect()
            };
            let last = &self.log[self.log.len().saturating_sub(40)..];
            let names = lines(&found);
            self.compared += usize::from(!found.is_empty());
            assert_eq!(brief(&result), brief(after), "{first:?} to {second:?}: {names:#?} {last:#?}");
            assert!(result == *after, "{first:?} to {second:?}: content: {names:#?} {last:#?}");
        }
    }
}

/// The differences between any two times, applied to the one tree, give the other one. This holds in both
/// directions, before and after other snapshots were forgotten.
#[test]
fn differences_give_what_is() {
    for seed in seeds(12) {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut run = Run { rng, volume: small(), seen: Vec::new(), log: Vec::new(), compared: 0 };
        for step in 0..500 {
            match run.step() {
                Err(e) if matches!(e.root(), Error::Corruption(_) | Error::NoSpace | Error::Device(_)) => {
                    panic!("{e}: {:#?}", run.log.last())
                }
                _ => {}
            }
            if step % 7 == 0 {
                run.compare();
            }
            if run.seen.len() > 8 {
                let i = run.pick(run.seen.len());
                let (number, ..) = run.seen.swap_remove(i);
                run.volume.view().forget(&[number]).unwrap();
                if number.0 % 2 == 0 {
                    run.volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
                }
            }
        }
        for _ in 0..40 {
            run.compare();
        }
        assert!(run.compared > 20, "only {} differences", run.compared);
        // No query fails.
        for directory in DIRECTORIES {
            let Ok(node) = run.volume.node(format!("/{directory}")) else { continue };
            let view = run.volume.view();
            let go_on = ControlFlow::Continue(());
            if node.attr().kind == FileKind::Directory {
                view.deleted(node.inode(), true, &mut |_| go_on).unwrap();
            }
            for name in ["", "a", "b", "c", "d", "e", "f", "g", "h"] {
                match view.log(node.inode(), name.as_bytes(), &mut |_| go_on) {
                    Ok(()) | Err(Error::NotFound | Error::NotADirectory) => {}
                    Err(e) => panic!("log of {directory}/{name}: {e}"),
                }
            }
        }
    }
}
