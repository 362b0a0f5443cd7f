//! Promises of looking at history: a difference applied to the earlier tree gives the later one; a log has
//! each state that a snapshot has seen, under whatever name; a file that is gone is listed with the snapshot
//! that still has it.

#[path = "common/seeds.rs"]
mod seeds;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use seeds::seeds;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use yore_fs::{
    Change, Deleted, Difference, DirItem, Error, EventNo, FallocateMode, FileKind, InodeNo, Logged,
    OpenOptions, RenameMode, Result, SetAttr, SetTime, SetXattrMode, Timestamp, View, Volume, What,
};

fn small() -> Volume {
    Volume::memory(128 << 20).unwrap()
}

fn event(volume: &Volume, path: &str) -> EventNo {
    let node = volume.node(path).unwrap();
    volume.view().snapshot(node.inode(), "", false, false).unwrap().number
}

fn diff_of(
    volume: &Volume,
    path: &str,
    from: Option<EventNo>,
    to: Option<EventNo>,
) -> Result<Vec<Difference>> {
    let (mut found, node) = (Vec::new(), volume.node(path)?);
    volume.view().diff(node.inode(), from, to, &mut |difference| {
        found.push(difference);
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// `+ path`, `M path CONTENT`, `R old path`.
fn lines(found: &[Difference]) -> Vec<String> {
    let line = |d: &Difference| {
        let letter = match d.change {
            Change::Added => "+",
            Change::Removed => "-",
            Change::Modified => "M",
            Change::Renamed => "R",
        };
        let old = d.old_path.as_deref().map(|old| format!("{} ", text(old))).unwrap_or_default();
        let what: Vec<&str> =
            (d.what - What::TIME - What::LINKS).iter_names().map(|(name, _)| name).collect();
        format!("{letter} {old}{} {}", text(&d.path), what.join(",")).trim_end().to_string()
    };
    found.iter().map(line).collect()
}

#[track_caller]
fn same(found: Vec<String>, expected: &[&str]) {
    assert_eq!(found, expected);
}

/// Each kind of change between two snapshots is one line, and in the other direction its opposite.
#[test]
fn each_kind_of_change() {
    let volume = small();
    volume.create_dir_all("d/sub/deep").unwrap();
    for name in ["same", "content", "mode", "xattr", "gone", "old-name", "touched", "linked", "sub/deep/f"] {
        volume.write(format!("d/{name}"), vec![1; 10_000]).unwrap();
    }
    volume.symlink("x", "d/link").unwrap();
    volume.write("outside", "o").unwrap();
    let first = event(&volume, "d");
    let file = OpenOptions::new().write(true).open(&volume, "d/content").unwrap();
    file.write_at(&[2; 100], 5000).unwrap();
    volume.set_permissions("d/mode", 0o600).unwrap();
    volume.set_xattr("d/xattr", "user.a", "a", SetXattrMode::Any).unwrap();
    volume.remove_file("d/gone").unwrap();
    volume.rename("d/old-name", "d/new-name").unwrap();
    volume.rename("d/sub", "d/moved").unwrap();
    volume.write("d/moved/deep/f", "changed").unwrap();
    volume.hard_link("d/linked", "d/linked-too").unwrap();
    volume.rename("outside", "d/inside").unwrap();
    volume.create_dir_all("d/new/er").unwrap();
    volume.write("d/new/er/file", "new").unwrap();
    volume.remove_file("d/link").unwrap();
    volume.symlink("y", "d/link").unwrap();
    let then = SetTime::To(Timestamp { seconds: 5, nanos: 0 });
    let touched = SetAttr { mtime: Some(then), ..SetAttr::default() };
    volume.set_symlink_attributes("d/touched", &touched).unwrap();
    let present = diff_of(&volume, "d", Some(first), None).unwrap();
    let second = event(&volume, "/");
    let forth = [
        "M content CONTENT",
        "- gone",
        "+ inside",
        "+ link",
        "- link",
        "+ linked-too",
        "M mode METADATA",
        "R sub moved",
        "M moved/deep/f CONTENT",
        "+ new",
        "+ new/er",
        "+ new/er/file",
        "R old-name new-name",
        "M touched",
        "M xattr XATTRS",
    ];
    same(lines(&diff_of(&volume, "d", Some(first), Some(second)).unwrap()), &forth);
    same(lines(&present), &forth);
    let back = [
        "M content CONTENT",
        "+ gone",
        "- inside",
        "+ link",
        "- link",
        "- linked-too",
        "M mode METADATA",
        "- new",
        "- new/er",
        "- new/er/file",
        "R new-name old-name",
        "R moved sub",
        "M sub/deep/f CONTENT",
        "M touched",
        "M xattr XATTRS",
    ];
    same(lines(&diff_of(&volume, "d", Some(second), Some(first)).unwrap()), &back);
    same(lines(&diff_of(&volume, "d", Some(second), None).unwrap()), &[]);
    same(lines(&diff_of(&volume, "d", Some(second), Some(second)).unwrap()), &[]);
    let sizes = |d: &Difference| (d.before.map(|f| f.size), d.after.map(|f| f.size));
    assert_eq!(sizes(&present[0]), (Some(10_000), Some(10_000)));
    assert_eq!(sizes(&present[1]), (Some(10_000), None));
    assert_eq!(sizes(&present[2]), (None, Some(1)));
}

/// Contents that changed, while size and time were set back, differ all the same; and a change that is only
/// in memory is a difference, too.
#[test]
fn no_change_of_content_is_missed() {
    let volume = small();
    for name in ["small", "large", "dirty", "hole"] {
        volume.write(name, vec![1; if name == "small" { 20 } else { 300_000 }]).unwrap();
    }
    let attr = |name: &str| *volume.symlink_metadata(name).unwrap().attr();
    let first = event(&volume, "/");
    let again = |name: &str| {
        let set = SetAttr { mtime: Some(SetTime::To(attr(name).mtime)), ..SetAttr::default() };
        let file = OpenOptions::new().write(true).open(&volume, name).unwrap();
        match name {
            "hole" => {
                let inode = volume.node(name).unwrap().inode();
                volume.view().fallocate(inode, 8192, 4096, FallocateMode::PunchHole).unwrap();
            }
            _ => {
                file.write_at(&[2], 10).unwrap();
            }
        }
        if name != "dirty" {
            file.sync_all().unwrap();
        }
        volume.set_symlink_attributes(name, &set).unwrap();
    };
    ["small", "large", "dirty", "hole"].into_iter().for_each(again);
    let expected = ["M dirty CONTENT", "M hole CONTENT", "M large CONTENT", "M small CONTENT"];
    same(lines(&diff_of(&volume, "/", Some(first), None).unwrap()), &expected);
    let second = event(&volume, "/");
    volume.sync().unwrap();
    same(lines(&diff_of(&volume, "/", Some(first), Some(second)).unwrap()), &expected);
    // Names that come and go, and attributes that are set to what they were, are no difference.
    volume.write("a", "a").unwrap();
    volume.remove_file("a").unwrap();
    volume.set_permissions("large", attr("large").permissions).unwrap();
    same(lines(&diff_of(&volume, "/", Some(second), None).unwrap()), &[]);
}

/// A changed file is listed under all its names below the directory, also under those in directories that
/// have not changed.
#[test]
fn files_of_several_names() {
    let volume = small();
    volume.create_dir_all("d/a/b").unwrap();
    volume.create_dir("out").unwrap();
    volume.write("d/one", "1").unwrap();
    for name in ["d/a/b/two", "out/three", "d/four"] {
        volume.hard_link("d/one", name).unwrap();
    }
    let first = event(&volume, "/");
    volume.append("out/three", "2").unwrap();
    volume.rename("d/four", "d/five").unwrap();
    volume.remove_file("out/three").unwrap();
    let expected = ["M a/b/two CONTENT", "R four five CONTENT", "M one CONTENT"];
    same(lines(&diff_of(&volume, "d", Some(first), None).unwrap()), &expected);
}

/// A directory that was moved in from outside is listed as added, with everything below it, although
/// snapshots of the volume know it; a directory that was moved out is listed as removed in the same way.
#[test]
fn directories_that_come_and_go() {
    let volume = small();
    volume.create_dir("d").unwrap();
    volume.create_dir_all("tree/below").unwrap();
    volume.write("tree/below/f", "f").unwrap();
    let first = event(&volume, "/");
    volume.rename("tree", "d/in").unwrap();
    let second = event(&volume, "/");
    let (into, out) = (["+ in", "+ in/below", "+ in/below/f"], ["- in", "- in/below", "- in/below/f"]);
    same(lines(&diff_of(&volume, "d", Some(first), Some(second)).unwrap()), &into);
    same(lines(&diff_of(&volume, "d", Some(second), Some(first)).unwrap()), &out);
    volume.rename("d/in", "out").unwrap();
    same(lines(&diff_of(&volume, "d", Some(second), None).unwrap()), &out);
    same(lines(&diff_of(&volume, "/", Some(first), None).unwrap()), &["R tree out"]);
}

/// A comparison that is impossible is refused: of a directory that a snapshot has not seen, of one that is
/// gone, and of anything but a directory.
#[test]
fn what_cannot_be_compared() {
    let volume = small();
    volume.create_dir_all("a").unwrap();
    volume.create_dir_all("b").unwrap();
    volume.write("f", "f").unwrap();
    let of_a = event(&volume, "a");
    let is_absent = |result: Result<Vec<Difference>>| matches!(result.unwrap_err().root(), Error::NotFound);
    assert!(is_absent(diff_of(&volume, "b", Some(of_a), None)));
    assert!(is_absent(diff_of(&volume, "/", Some(of_a), None)));
    let node = volume.node("a").unwrap().inode();
    let file = volume.node("f").unwrap().inode();
    let all = event(&volume, "/");
    let ask = |no: InodeNo, from, to| volume.view().diff(no, from, to, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(ask(file, Some(all), None), Err(Error::NotADirectory)));
    volume.remove_dir("a").unwrap();
    assert!(matches!(ask(node, Some(of_a), None), Err(Error::NotFound)));
    assert!(ask(node, Some(of_a), Some(all)).is_ok());
    volume.view().forget(&[all]).unwrap();
    assert!(matches!(ask(node, Some(of_a), Some(all)), Err(Error::Stale | Error::NotFound)));
    // A directory that was moved into one that a snapshot has seen was not there then.
    volume.create_dir("late").unwrap();
    let of_b = event(&volume, "b");
    volume.rename("late", "b/late").unwrap();
    assert!(is_absent(diff_of(&volume, "b/late", Some(of_b), None)));
    assert!(!volume.exists("b/late@now/x").unwrap());
    same(lines(&diff_of(&volume, "b", Some(of_b), None).unwrap()), &["+ late"]);
}

fn log_of(volume: &Volume, directory: &str, name: &str) -> Result<Vec<Logged>> {
    let (mut found, node) = (Vec::new(), volume.node(directory)?);
    let view = volume.view().of(&node).into_owned();
    view.log(node.inode(), name.as_bytes(), &mut |logged| {
        found.push(logged);
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// `path size first-last what`, with snapshots counted from one, and `*` for a state that still holds.
fn log_lines(volume: &Volume, directory: &str, name: &str) -> Vec<String> {
    let numbers: Vec<EventNo> =
        volume.view().events().unwrap().into_iter().map(|event| event.number).collect();
    let at = |seen: &yore_fs::SeenBy| numbers.iter().position(|n| *n == seen.event.number).unwrap() + 1;
    let line = |l: Logged| {
        let span = match (&l.first, &l.last) {
            (Some(first), Some(last)) => format!("{}-{}", at(first), at(last)),
            _ => "none".to_string(),
        };
        let mut what: Vec<&str> = (l.what - What::TIME - What::LINKS).iter_names().map(|(n, _)| n).collect();
        what.extend(l.renamed.then_some("renamed"));
        what.extend(l.replaced.then_some("replaced"));
        what.extend(l.oldest.then_some("oldest"));
        let path = l.path.as_deref().map_or("?".into(), text);
        format!("{path} {} {span}{} {}", l.facts.size, if l.current { "*" } else { "" }, what.join(","))
    };
    log_of(volume, directory, name).unwrap().into_iter().map(line).collect()
}

/// The log of a file has the states that snapshots have seen and no others, each once, with the first and the
/// last snapshot. It follows the file when the file, or a directory above it, is renamed.
#[test]
fn a_log_follows_renames() {
    let volume = small();
    volume.create_dir_all("d/e").unwrap();
    volume.write("d/a", "1").unwrap();
    event(&volume, "/"); // 1
    event(&volume, "d"); // 2
    volume.append("d/a", "2").unwrap();
    event(&volume, "d/e"); // 3: has not seen it
    volume.append("d/a", "3").unwrap();
    event(&volume, "d"); // 4
    volume.rename("d/a", "d/e/b").unwrap();
    event(&volume, "d/e"); // 5
    event(&volume, "/"); // 6
    volume.rename("d", "x").unwrap();
    event(&volume, "/"); // 7
    volume.set_permissions("x/e/b", 0o600).unwrap();
    volume.append("x/e/b", "4").unwrap();
    let expected = [
        "/x/e/b 4 none* CONTENT,METADATA",
        "/x/e/b 3 5-7 renamed",
        // The path of the event's root is the one that it has now.
        "/x/a 3 4-4 CONTENT",
        "/x/a 1 1-2 oldest",
    ];
    same(log_lines(&volume, "x/e", "b"), &expected);
    // One more link is no other state.
    volume.hard_link("x/e/b", "again").unwrap();
    event(&volume, "/"); // 8
    volume.remove_file("again").unwrap();
    let mut expected = expected;
    expected[0] = "/x/e/b 4 8-8* CONTENT,METADATA";
    same(log_lines(&volume, "x/e", "b"), &expected);
    // A log as of a snapshot begins there. The log of a name that is gone is the log of the file that it
    // meant last.
    same(log_lines(&volume, "x@now/e", "b"), &expected);
    volume.remove_file("x/e/b").unwrap();
    expected[0] = "/x/e/b 4 8-8 CONTENT,METADATA";
    same(log_lines(&volume, "x/e", "b"), &expected);
    let nothing = log_of(&volume, "x/e", "never").unwrap_err();
    assert!(matches!(nothing, Error::NotFound));
}

/// Editors write a new file and rename it over the old one. The log goes on with the old file, even if a
/// snapshot has seen the temporary file; it does not go on with what the temporary name meant before.
#[test]
fn a_log_goes_through_saves() {
    let volume = small();
    volume.create_dir("d").unwrap();
    volume.write("d/f", "1").unwrap();
    event(&volume, "d"); // 1
    volume.write("d/.f.tmp", "22").unwrap();
    volume.rename("d/.f.tmp", "d/f").unwrap();
    event(&volume, "d"); // 2
    volume.write("d/.f.tmp", "333").unwrap();
    event(&volume, "d"); // 3
    volume.rename("d/.f.tmp", "d/f").unwrap();
    event(&volume, "d"); // 4
    volume.write("d/.f.tmp", "4444").unwrap();
    volume.rename("d/.f.tmp", "d/f").unwrap();
    let expected = [
        "/d/f 4 none* replaced",
        "/d/f 3 4-4 renamed",
        "/d/.f.tmp 3 3-3 replaced",
        "/d/f 2 2-3 replaced",
        "/d/f 1 1-1 oldest",
    ];
    same(log_lines(&volume, "d", "f"), &expected);
}

/// The log of a directory has a state for each snapshot before which names came or went, and one before which
/// its mode changed.
#[test]
fn logs_of_directories() {
    let volume = small();
    volume.create_dir("d").unwrap();
    event(&volume, "/");
    volume.write("d/a", "").unwrap();
    event(&volume, "/");
    volume.append("d/a", "more").unwrap();
    event(&volume, "/");
    volume.set_permissions("d", 0o700).unwrap();
    let expected = ["/d 1 none* METADATA", "/d 1 2-3 CONTENT", "/d 0 1-1 oldest"];
    same(log_lines(&volume, "/", "d"), &expected);
    same(log_lines(&volume, "d", ""), &expected);
    same(log_lines(&volume, "/", ""), &["/ 1 1-3* oldest"]);
}

fn deleted_of(volume: &Volume, path: &str, recursive: bool) -> Vec<Deleted> {
    let (mut found, node) = (Vec::new(), volume.node(path).unwrap());
    volume
        .view()
        .deleted(node.inode(), recursive, &mut |deleted| {
            found.push(deleted);
            ControlFlow::Continue(())
        })
        .unwrap();
    found
}

/// Names that are gone are listed with the last snapshot that has them, the latest first. Names that no
/// snapshot has seen, that mean something again, or whose file was renamed are not listed.
#[test]
fn what_is_gone_is_listed() {
    let volume = small();
    volume.create_dir_all("d/sub").unwrap();
    volume.create_dir_all("d/whole").unwrap();
    for name in ["first", "second", "again", "renamed", "sub/below", "whole/in-it"] {
        volume.write(format!("d/{name}"), name).unwrap();
    }
    event(&volume, "d");
    let two = event(&volume, "/");
    volume.remove_file("d/first").unwrap();
    volume.remove_file("d/again").unwrap();
    volume.write("d/unseen", "").unwrap();
    volume.remove_file("d/unseen").unwrap();
    let three = event(&volume, "d");
    volume.remove_file("d/second").unwrap();
    volume.write("d/again", "another").unwrap();
    volume.rename("d/renamed", "elsewhere").unwrap();
    volume.remove_file("d/sub/below").unwrap();
    volume.remove_dir_all("d/whole").unwrap();
    let list = |recursive| -> Vec<(String, EventNo, u64)> {
        let found = deleted_of(&volume, "d", recursive);
        found.iter().map(|d| (text(&d.path), d.last.event.number, d.facts.size)).collect()
    };
    let entry = |path: &str, number, size| (path.to_string(), number, size);
    let expected = [entry("second", three, 6), entry("whole", three, 1), entry("first", two, 5)];
    assert_eq!(list(false), expected);
    let mut all = expected.to_vec();
    all.insert(1, entry("sub/below", three, 9));
    assert_eq!(list(true), all);
    volume.view().forget(&[two]).unwrap();
    assert_eq!(list(false)[2].0, "first", "the first snapshot has it still");
    assert!(list(false)[2].1 < two);
    assert!(deleted_of(&volume, "/", false).is_empty());
}

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
                let number = volume.view().snapshot(root, "", false, false)?.number;
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

/// The differences between any two times, applied to the earlier tree, give the later one; in both
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
        // No question fails.
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

/// Tells threads to stop.
struct Stop<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// A difference from the present ends and does not fail while threads change the present.
#[test]
fn the_present_changes_meanwhile() {
    let volume = small();
    for i in 0..4 {
        volume.create_dir_all(format!("t{i}/d/e")).unwrap();
    }
    let first = event(&volume, "/");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for t in 0..2 {
            let (volume, stop) = (&volume, &stop);
            scope.spawn(move || {
                for round in 0u32.. {
                    if stop.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                    let file = format!("t{t}/d/{}", round % 30);
                    volume.write(&file, vec![1; 5000]).unwrap();
                    volume.rename(format!("t{t}/d"), format!("t{}/x", t + 2)).unwrap();
                    volume.rename(format!("t{}/x", t + 2), format!("t{t}/d")).unwrap();
                    if round % 3 == 0 {
                        volume.remove_file(&file).unwrap();
                    }
                }
            });
        }
        // Also if an assertion fails.
        let _stop = Stop(&stop);
        for _ in 0..150 {
            diff_of(&volume, "/", Some(first), None).unwrap();
            deleted_of(&volume, "/", true);
            log_of(&volume, "/", "t0").unwrap();
        }
    });
}
