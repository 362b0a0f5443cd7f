//! Promise: the calls that look at history and the calls that put back agree. After any sequence of changes,
//! snapshots, versions that policies make, renames, links, removals, rollbacks and forgetting:
//!
//! - what `deleted` lists can be seen at the time that it names, as it was then, and so can be brought back;
//! - the log of a name that is gone begins with that state, and so does the log of a path below a directory
//!   that is gone;
//! - a file that a kept snapshot has and that is gone is listed, unless it was renamed;
//! - after a rollback nothing differs.
//!
//! `YORE_SEED=n` begins with another sequence, `YORE_ROUNDS=n` runs `n` sequences.

use crate::common::seeds;
use crate::common::tree as reading;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use reading::{read_tree, Found};
use seeds::seeds;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use yore_device::{Device, MemoryDevice};
use yore_fs::rollback::{Plan, Rights, Verb};
use yore_fs::time::When;
use yore_fs::{
    Change, Deleted, Difference, Error, EventKind, EventNo, EventState, FileKind, InodeNo, Logged,
    MkfsOptions, MountOptions, NewSnapshot, Node, Policy, Progress, RenameMode, Result, Timestamp,
    Versioning, View, Volume,
};

/// Inode and incarnation.
type Identity = (InodeNo, u32);

/// What a path leads to; a directory has no content.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    of: Identity,
    kind: FileKind,
    permissions: u32,
    content: Vec<u8>,
}

/// Everything below a directory, by path.
type Tree = BTreeMap<PathBuf, Entry>;

fn tree(view: &View, root: InodeNo) -> Tree {
    let entry = |Found { path, attr, content, .. }: Found| {
        let of = (attr.inode, attr.incarnation);
        let content = if attr.kind == FileKind::Regular { content } else { Vec::new() };
        (path, Entry { of, kind: attr.kind, permissions: attr.permissions, content })
    };
    read_tree(view, root).into_iter().map(entry).collect()
}

/// The part of a tree below a path, with paths from there, and without what a copy would have for itself.
fn below(tree: &Tree, path: &Path) -> Vec<(PathBuf, FileKind, u32, Vec<u8>)> {
    let part = tree.iter().filter_map(|(at, entry)| {
        let at = at.strip_prefix(path).ok()?;
        Some((at.to_path_buf(), entry.kind, entry.permissions, entry.content.clone()))
    });
    part.collect()
}

/// What an event has seen, as the model knows it.
enum Model {
    /// Everything, from the volume's root directory on; the event's root is the directory with this identity.
    Tree(Tree),
    /// The content of files; the event is of one of them.
    Files(HashMap<Identity, Vec<u8>>),
}

struct Run {
    rng: Xoshiro256PlusPlus,
    volume: Volume,
    device: Arc<dyn Device>,
    /// The tree before the last step.
    before: Tree,
    known: BTreeMap<EventNo, Model>,
    log: Vec<String>,
}

impl Run {
    fn new(seed: u64) -> Run {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(256 << 20));
        Volume::create(device.clone(), &MkfsOptions::default()).unwrap().close().unwrap();
        let volume = Volume::open(device.clone(), &MountOptions::default()).unwrap();
        for directory in ["a/c", "b"] {
            volume.create_dir_all(directory).unwrap();
        }
        let before = tree(volume.view(), volume.view().root());
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        Run { rng, volume, device, before, known: BTreeMap::new(), log: Vec::new() }
    }

    fn pick(&mut self, n: usize) -> usize {
        self.rng.random_range(0..n)
    }

    fn directory(&mut self) -> PathBuf {
        ["/", "/a", "/b", "/a/c", "/b/c"][self.pick(5)].into()
    }

    fn path(&mut self) -> PathBuf {
        let name = ["f", "g", "h", "c"][self.pick(4)];
        self.directory().join(name)
    }

    fn step(&mut self) -> Result<()> {
        let (path, to, volume) = (self.path(), self.path(), self.volume.clone());
        let (what, len) = (self.pick(100), [0, 3, 200, 5000][self.pick(4)]);
        self.log.push(format!("{what} {} {} {len}", path.display(), to.display()));
        match what {
            0..=29 => volume.write(&path, vec![self.pick(250) as u8; len]),
            30..=34 => volume.append(&path, b"more"),
            // This is how programs save a file.
            35..=42 => {
                volume.write("/new", vec![self.pick(250) as u8; len])?;
                self.note();
                volume.rename("/new", &path).or_else(|_| volume.remove_file("/new"))
            }
            43..=54 => volume.remove_file(&path),
            55..=58 => volume.create_dir_all(self.directory()),
            59..=61 => volume.remove_dir_all(&path),
            62..=71 => {
                let mode = if self.pick(5) == 0 { RenameMode::Exchange } else { RenameMode::Replace };
                volume.rename_with(&path, &to, mode)
            }
            72..=74 => volume.hard_link(&path, &to),
            75 => volume.set_permissions(&path, 0o600 + self.pick(64) as u32),
            76..=84 => {
                let directory = self.directory();
                let inode = volume.node(&directory)?.inode();
                volume.view().take_snapshot(inode, &NewSnapshot::default()).map(drop)
            }
            85..=87 => {
                let versioning = [None, Some(Versioning::Snapshots), Some(Versioning::Close)][self.pick(3)];
                let inode = volume.node(self.directory())?.inode();
                volume.view().set_policy(inode, &Policy { versioning, ..Policy::default() })
            }
            88..=93 => self.forget(),
            94..=96 => self.roll_back(),
            97 => {
                self.volume.close()?;
                self.volume = Volume::open(self.device.clone(), &MountOptions::default())?;
                Ok(())
            }
            _ => volume.sync(),
        }
    }

    fn forget(&mut self) -> Result<()> {
        let view = self.volume.view().clone();
        let kept: Vec<EventNo> = view.events()?.iter().map(|event| event.number).collect();
        if !kept.is_empty() {
            let gone = kept[self.pick(kept.len())];
            self.log.push(format!("forget {gone}"));
            view.forget(&[gone])?;
        }
        let left = self.pick(3);
        if left > 0 {
            let ask = &mut |_: &_| if left == 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            view.finish_forgetting(ask)?;
        }
        Ok(())
    }

    /// Rolls a directory back; then nothing differs.
    fn roll_back(&mut self) -> Result<()> {
        let (view, directory) = (self.volume.view().clone(), self.directory());
        let inode = self.volume.node(&directory)?.inode();
        let kept = view.events()?;
        if kept.is_empty() {
            return Ok(());
        }
        let target = kept[self.pick(kept.len())].number;
        self.log.push(format!("roll back to {target}"));
        let plan = Plan { verb: Verb::Rollback, of: None, target, others: None };
        match view.rollback(&Rights::All, inode, &plan, &mut |_| ()) {
            Ok(_) => {}
            // The event has not seen it, or is an event of a file; or a file has the name.
            Err(Error::NotFound | Error::NotADirectory) => return Ok(()),
            Err(e) => panic!("{e}: {:#?}", self.log),
        }
        let found = compare(&view, inode, Some(target), None);
        assert!(found.is_empty(), "after a rollback: {found:#?}: {:#?}", self.log);
        Ok(())
    }

    /// Records in the model what the new events have seen.
    fn note(&mut self) {
        let view = self.volume.view().clone();
        let now = tree(&view, view.root());
        let last = self.known.keys().next_back().copied().unwrap_or_default();
        for event in view.events().unwrap().into_iter().filter(|event| event.number > last) {
            let model = match event.row.kind {
                EventKind::Close | EventKind::Removed => {
                    let files = self.before.values().chain(now.values());
                    let files = files.filter(|entry| entry.kind == FileKind::Regular);
                    Model::Files(files.map(|entry| (entry.of, entry.content.clone())).collect())
                }
                _ if event.row.name.starts_with("before-") => Model::Tree(self.before.clone()),
                _ => Model::Tree(now.clone()),
            };
            self.known.insert(event.number, model);
        }
        self.before = now;
    }

    /// Checks that a name at a time is what the model says.
    fn is_as_known(&self, node: &Node, name: &[u8], event: EventNo, when: &str) {
        let of = (node.inode(), node.attr().incarnation);
        let view = self.volume.view().of(node);
        match &self.known[&event] {
            Model::Files(files) => {
                let mut content = vec![0; node.attr().size as usize];
                view.read(node.inode(), 0, &mut content).unwrap();
                assert!(files.get(&of) == Some(&content), "{when}: another content: {:#?}", self.log);
            }
            Model::Tree(tree) => {
                let is_it = |(path, entry): &(&PathBuf, &Entry)| {
                    entry.of == of && path.file_name() == Some(OsStr::from_bytes(name))
                };
                let Some((path, _)) = tree.iter().find(is_it) else {
                    panic!("{when}: event {event} has not seen {of:?}: {:#?}", self.log)
                };
                let found = below(&self::tree(&view, node.inode()), Path::new(""));
                assert!(found == below(tree, path), "{when}: another content: {:#?}", self.log);
            }
        }
    }

    /// Checks all promises about what is gone.
    fn check(&self) {
        let view = self.volume.view();
        let directories = self.before.iter().filter(|(_, entry)| entry.kind == FileKind::Directory);
        let mut listed: HashSet<(InodeNo, Vec<u8>)> = HashSet::new();
        for (path, directory) in directories {
            for one in deleted(view, directory.of.0) {
                self.check_deleted(directory.of.0, &one, &path.display().to_string());
                listed.insert((directory.of.0, one.path));
            }
        }
        let kept = view.events().unwrap();
        for event in kept.iter().filter(|event| event.row.state == EventState::Kept) {
            let Model::Tree(tree) = &self.known[&event.number] else { continue };
            let root = (event.row.root, event.row.root_incarnation.0);
            let Some((root, _)) = tree.iter().find(|(_, entry)| entry.of == root) else { continue };
            for path in tree.keys().filter(|path| *path != root && path.starts_with(root)) {
                self.check_seen(tree, path, &listed, root.as_os_str().is_empty());
            }
        }
    }

    fn check_deleted(&self, directory: InodeNo, one: &Deleted, of: &str) {
        let view = self.volume.view();
        let when = format!("{} gone from /{of}", String::from_utf8_lossy(&one.path));
        let time = one.last.event.row.time;
        // The time as it is, and as it is printed.
        let zone = jiff::tz::TimeZone::UTC;
        let text = yore_fs::time::print(time, one.last.next.or_else(|| Some(now())), &zone);
        let printed = yore_fs::time::parse(&text, now(), &zone).unwrap();
        for at in [When::At(time), printed] {
            let node = match view.lookup_at(directory, &one.path, &at) {
                Ok(node) => node,
                Err(e) => panic!("{when} cannot be seen at {at:?} ({text}): {e}: {one:#?}: {:#?}", self.log),
            };
            let found = (node.inode(), node.attr().incarnation, node.attr().size, node.event());
            let shown = (one.inode, one.incarnation.0, one.facts.size, Some(one.last.event.number));
            assert_eq!(found, shown, "{when}: {:#?}", self.log);
            self.is_as_known(&node, &one.path, one.last.event.number, &when);
        }
        let newest =
            newest(view, directory, &one.path).unwrap_or_else(|e| panic!("{when}: {e}: {:#?}", self.log));
        let last = newest.last.as_ref().map(|last| last.event.number);
        let logged =
            (newest.inode, newest.incarnation, newest.facts, last, newest.gone.as_ref().map(|g| g.moved));
        let shown = (one.inode, one.incarnation, one.facts, Some(one.last.event.number), Some(false));
        assert_eq!(logged, shown, "{when}: {:#?}", self.log);
    }

    /// Checks that what a kept snapshot has can be found, even if the directories above it are gone.
    fn check_seen(&self, tree: &Tree, path: &Path, listed: &HashSet<(InodeNo, Vec<u8>)>, of_root: bool) {
        let (view, name) = (self.volume.view(), path.file_name().unwrap().as_bytes());
        let above = tree[path.parent().unwrap()].of;
        let now = self.before.iter().find(|(_, entry)| entry.of == above);
        if let Some((now, _)) =
            now.filter(|(now, _)| !self.before.contains_key(&now.join(OsStr::from_bytes(name))))
        {
            let newest = newest(view, above.0, name);
            let newest = newest.unwrap_or_else(|e| panic!("{path:?} in {now:?}: {e}: {:#?}", self.log));
            let gone = newest.gone.as_ref().unwrap_or_else(|| panic!("{path:?} is gone: {:#?}", self.log));
            let is_listed = listed.contains(&(above.0, name.to_vec()));
            assert_eq!(is_listed, !gone.moved, "{path:?} in {now:?}: {newest:#?}: {:#?}", self.log);
        }
        if of_root && !self.before.contains_key(path) {
            self.check_path(path);
        }
    }

    /// A path from the root directory is gone: each name on it, up to the last, is seen at the time with
    /// which its log begins.
    fn check_path(&self, path: &Path) {
        let view = self.volume.view();
        let mut node = view.node(view.root(), None).unwrap();
        let mut prefix = PathBuf::new();
        for name in path.iter() {
            prefix.push(name);
            if let Ok(found) = self.volume.node(&prefix) {
                node = found;
                continue;
            }
            let newest = newest(view, view.root(), prefix.as_os_str().as_bytes());
            // The name above last meant a file.
            if matches!(newest, Err(Error::NotADirectory)) {
                return;
            }
            // The last directory that was seen above may have had no such name, while another one before it
            // had.
            let Ok(newest) = newest else { return };
            let last =
                newest.last.as_ref().unwrap_or_else(|| panic!("{prefix:?}: not seen: {:#?}", self.log));
            let (time, event) = (last.event.row.time, last.event.number);
            let found = view.of(&node).lookup_at(node.inode(), name.as_bytes(), &When::At(time));
            node = found
                .unwrap_or_else(|e| panic!("{prefix:?} as of {event}: {e}: {newest:#?}: {:#?}", self.log));
            let found = (node.inode(), node.attr().incarnation, node.event());
            assert_eq!(
                found,
                (newest.inode, newest.incarnation.0, Some(event)),
                "{prefix:?}: {:#?}",
                self.log
            );
            self.is_as_known(&node, name.as_bytes(), event, &format!("{prefix:?}"));
        }
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() }
}

fn deleted(view: &View, directory: InodeNo) -> Vec<Deleted> {
    let mut all = Vec::new();
    let done = view.deleted(directory, false, &mut |one| {
        all.push(one);
        ControlFlow::Continue(())
    });
    done.unwrap();
    all
}

fn newest(view: &View, directory: InodeNo, path: &[u8]) -> Result<Logged> {
    let mut newest = None;
    view.log_below(directory, path, &mut |_| Ok(()), &mut |logged| {
        newest = Some(logged);
        ControlFlow::Break(())
    })?;
    Ok(newest.expect("a log has a state"))
}

fn compare(view: &View, directory: InodeNo, from: Option<EventNo>, to: Option<EventNo>) -> Vec<Difference> {
    let mut all = Vec::new();
    let done = view.compare(directory, from, to, &Progress::default(), &mut |one| {
        all.push(one);
        ControlFlow::Continue(())
    });
    done.unwrap();
    all
}

#[test]
fn all_of_them_agree() {
    for seed in seeds(40) {
        let mut run = Run::new(seed);
        for step in 0..160 {
            // A step that cannot be done is skipped.
            if let Err(e) = run.step() {
                run.log.push(format!("  {e}"));
            }
            run.note();
            if step % 8 == 7 {
                run.check();
            }
        }
        run.volume.close().unwrap();
    }
}

/// A file that took the place of another one, even in a new directory, is one difference or none.
#[test]
fn what_took_a_place_is_compared() {
    let volume = Volume::memory(64 << 20).unwrap();
    volume.create_dir_all("d/sub").unwrap();
    for name in ["same", "longer", "other", "mode"] {
        volume.write(format!("d/sub/{name}"), vec![1; 300_000]).unwrap();
    }
    let view = volume.view();
    let directory = volume.node("d").unwrap().inode();
    let event = view.take_snapshot(directory, &NewSnapshot::default()).unwrap().number;
    volume.rename("d/sub", "old").unwrap();
    volume.create_dir("d/sub").unwrap();
    for (name, content) in [
        ("same", vec![1; 300_000]),
        ("longer", vec![1; 300_001]),
        ("other", [vec![1; 299_999], vec![2]].concat()),
        ("mode", vec![1; 300_000]),
    ] {
        let path = format!("d/sub/{name}");
        volume.write(&path, content).unwrap();
        let old = volume.metadata(format!("old/{name}")).unwrap();
        volume.set_times(&path, None, Some(old.modified())).unwrap();
    }
    volume.set_permissions("d/sub/mode", 0o600).unwrap();
    volume.remove_dir_all("old").unwrap();
    let found = compare(view, directory, Some(event), None);
    let found: Vec<_> = found.iter().map(|one| (one.change, &one.path[..], one.what.bits())).collect();
    let modified = Change::Modified;
    assert_eq!(
        found,
        [(modified, &b"sub/longer"[..], 1), (modified, b"sub/mode", 2), (modified, b"sub/other", 1)]
    );
}
