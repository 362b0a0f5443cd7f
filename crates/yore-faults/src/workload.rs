//! A sequence of all kinds of operations on a [`sample`](crate::sample) volume, and a small model of what
//! must be there.
//!
//! The model keeps its state after every step, so that the volume after a fault can be compared with the two
//! promises of SEMANTICS.md. First, names and attributes are those after one step, no earlier than the last
//! completed sync or fsync. Second, a file that was not touched since its last sync or fsync has the content
//! of that time. Content touched since is not judged, nor are times.

use crate::sample::content;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use yore_fs::time::When;
use yore_fs::{
    Caller, Error, FallocateMode, File, FileKind, RenameMode, Result, SeekTo, SetXattrMode, View, Volume,
};

/// One step. The paths are those of the sample, or of earlier steps.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // The fields are the arguments of the calls, under their names.
pub enum Step {
    /// A new empty file.
    Create { path: &'static str },
    /// A new directory.
    Mkdir { path: &'static str },
    /// Bytes that follow from `tag`, at an offset.
    Write { path: &'static str, offset: u64, len: usize, tag: u64 },
    /// A new size.
    Truncate { path: &'static str, size: u64 },
    /// A hole.
    Punch { path: &'static str, offset: u64, len: u64 },
    /// Blocks without data.
    Allocate { path: &'static str, offset: u64, len: u64 },
    /// A symbolic link, with a target of `len` bytes.
    Symlink { path: &'static str, len: usize },
    /// Another name for a file.
    Link { from: &'static str, to: &'static str },
    /// Removes a name.
    Unlink { path: &'static str },
    /// Removes a directory.
    Rmdir { path: &'static str },
    /// Renames, and replaces what had the new name.
    Rename { from: &'static str, to: &'static str },
    /// Exchanges two names.
    Exchange { from: &'static str, to: &'static str },
    /// An attribute of `len` bytes.
    SetXattr { path: &'static str, name: &'static str, len: usize },
    /// Removes an attribute.
    RemoveXattr { path: &'static str, name: &'static str },
    /// Other permissions.
    Chmod { path: &'static str, permissions: u32 },
    /// Reads the file and compares it with the model.
    Read { path: &'static str },
    /// Makes one file durable, and all names.
    Fsync { path: &'static str },
    /// Makes everything durable.
    Sync,
    /// Takes a durable snapshot of the volume.
    Snapshot { name: &'static str },
    /// Forgets a snapshot, and what only it had seen.
    Forget { name: &'static str },
}

impl Step {
    /// Whether it changes nothing and promises nothing.
    pub fn only_reads(&self) -> bool {
        matches!(self, Step::Read { .. })
    }
}

/// The workload: every kind of call, on files that are on the medium and on new ones, some of it promised and
/// some not.
pub fn steps() -> Vec<Step> {
    use Step::*;
    vec![
        Read { path: "scattered" },
        Create { path: "new" },
        Write { path: "new", offset: 0, len: 30, tag: 1 },
        Fsync { path: "new" },
        Mkdir { path: "dir" },
        Create { path: "dir/a" },
        Write { path: "dir/a", offset: 100, len: 20_000, tag: 2 },
        SetXattr { path: "dir/a", name: "user.a", len: 20 },
        Fsync { path: "dir/a" },
        Write { path: "dir/a", offset: 8192, len: 100, tag: 3 },
        Link { from: "dir/a", to: "many/linked" },
        Symlink { path: "dir/link", len: 40 },
        Symlink { path: "dir/long link", len: 3000 },
        Sync,
        Read { path: "three" },
        Rename { from: "new", to: "three" },
        Unlink { path: "few/a" },
        Truncate { path: "scattered", size: 60_000 },
        Fsync { path: "scattered" },
        SetXattr { path: "one", name: "user.big", len: 12_000 },
        RemoveXattr { path: "few", name: "user.dir" },
        Chmod { path: "inline", permissions: 0o600 },
        Rename { from: "dir/link", to: "few/sub/link" },
        Snapshot { name: "one" },
        Write { path: "one", offset: 0, len: 4096, tag: 4 },
        Fsync { path: "one" },
        Create { path: "large" },
        Write { path: "large", offset: 0, len: 1_800_000, tag: 5 },
        Read { path: "large" },
        Punch { path: "large", offset: 409_600, len: 400_000 },
        Fsync { path: "large" },
        Allocate { path: "inline", offset: 0, len: 50_000 },
        Exchange { from: "few", to: "dir" },
        Snapshot { name: "two" },
        Fsync { path: "inline" },
        Unlink { path: "scattered" },
        Truncate { path: "large", size: 5000 },
        Mkdir { path: "empty dir" },
        Rmdir { path: "empty dir" },
        Unlink { path: "many/linked" },
        Forget { name: "one" },
        Sync,
        Write { path: "large", offset: 100_000, len: 9000, tag: 6 },
        Create { path: "last" },
        Fsync { path: "large" },
        Unlink { path: "one" },
        Snapshot { name: "three" },
        Rename { from: "last", to: "many/last" },
        Forget { name: "two" },
    ]
}

/// What the model knows of one inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    kind: FileKind,
    permissions: u32,
    links: u32,
    target: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Of regular files.
    content: Vec<u8>,
}

/// Paths, and what they lead to.
#[derive(Clone, Debug, Default)]
pub struct Model {
    names: BTreeMap<String, u64>,
    inodes: BTreeMap<u64, Inode>,
    next: u64,
}

/// The facts that are compared for a name.
type Facts<'a> = (FileKind, u32, u32, &'a [u8], &'a BTreeMap<Vec<u8>, Vec<u8>>);

impl Inode {
    fn facts(&self) -> Facts<'_> {
        let links = if self.kind == FileKind::Directory { 0 } else { self.links };
        (self.kind, self.permissions, links, &self.target, &self.xattrs)
    }
}

impl Model {
    fn at(&mut self, path: &str) -> Option<&mut Inode> {
        self.inodes.get_mut(self.names.get(path)?)
    }

    fn get(&self, path: &str) -> Option<&Inode> {
        self.inodes.get(self.names.get(path)?)
    }

    fn add(&mut self, path: &str, kind: FileKind, permissions: u32) -> &mut Inode {
        self.next += 1;
        let id = self.next << 32;
        self.names.insert(path.into(), id);
        self.inodes.entry(id).or_insert(Inode {
            kind,
            permissions,
            links: 1,
            target: Vec::new(),
            xattrs: BTreeMap::new(),
            content: Vec::new(),
        })
    }

    fn drop_name(&mut self, path: &str) {
        let Some(id) = self.names.remove(path) else { return };
        let Some(inode) = self.inodes.get_mut(&id) else { return };
        inode.links -= 1;
        if inode.links == 0 {
            self.inodes.remove(&id);
        }
    }

    /// Applies a step. A step that must fail changes nothing.
    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Create { path } => drop(self.add(path, FileKind::Regular, 0o644)),
            Step::Mkdir { path } => drop(self.add(path, FileKind::Directory, 0o755)),
            Step::Write { path, offset, len, tag } => self.change(path, |file| {
                let end = offset as usize + len;
                file.resize(file.len().max(end), 0);
                file[end - len..end].copy_from_slice(&content(tag, len));
            }),
            Step::Truncate { path, size } => self.change(path, |file| file.resize(size as usize, 0)),
            Step::Punch { path, offset, len } => self.change(path, |file| {
                let end = file.len().min((offset + len) as usize);
                file[(offset as usize).min(end)..end].fill(0);
            }),
            Step::Allocate { path, offset, len } => self.change(path, |file| {
                file.resize(file.len().max((offset + len) as usize), 0);
            }),
            Step::Symlink { path, len } => {
                self.add(path, FileKind::Symlink, 0o777).target = target(len);
            }
            Step::Link { from, to } => {
                let id = self.names[from];
                self.names.insert(to.into(), id);
                self.inodes.get_mut(&id).expect("a name leads to an inode").links += 1;
            }
            Step::Unlink { path } | Step::Rmdir { path } => self.drop_name(path),
            Step::Rename { from, to } => {
                self.drop_name(to);
                if let Some(id) = self.names.remove(from) {
                    self.names.insert(to.into(), id);
                }
            }
            Step::Exchange { from, to } => {
                let swap = |path: &str, a: &str, b: &str| {
                    let rest = path.strip_prefix(a)?;
                    (rest.is_empty() || rest.starts_with('/')).then(|| format!("{b}{rest}"))
                };
                let names = std::mem::take(&mut self.names);
                let moved =
                    |path: String| swap(&path, from, to).or_else(|| swap(&path, to, from)).unwrap_or(path);
                self.names = names.into_iter().map(|(path, id)| (moved(path), id)).collect();
            }
            Step::SetXattr { path, name, len } => {
                if let Some(inode) = self.at(path) {
                    inode.xattrs.insert(name.as_bytes().to_vec(), content(len as u64, len));
                }
            }
            Step::RemoveXattr { path, name } => {
                if let Some(inode) = self.at(path) {
                    inode.xattrs.remove(name.as_bytes());
                }
            }
            Step::Chmod { path, permissions } => {
                if let Some(inode) = self.at(path) {
                    inode.permissions = permissions;
                }
            }
            Step::Read { .. }
            | Step::Fsync { .. }
            | Step::Sync
            | Step::Snapshot { .. }
            | Step::Forget { .. } => {}
        }
    }

    fn change(&mut self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(inode) = self.at(path) {
            change(&mut inode.content);
        }
    }

    /// Whether names and attributes are the same. Contents are not compared.
    pub fn same_names(&self, other: &Model) -> bool {
        self.names.len() == other.names.len()
            && self.names.keys().all(|path| match (self.get(path), other.get(path)) {
                (Some(a), Some(b)) => a.facts() == b.facts(),
                _ => false,
            })
    }

    /// A path whose content is not the same.
    fn other_content(&self, other: &Model) -> Option<&str> {
        let content = |model: &Model, path| model.get(path).map(|inode| inode.content.clone());
        self.names.keys().map(String::as_str).find(|path| content(self, path) != content(other, path))
    }

    /// What differs, for messages.
    pub fn difference(&self, other: &Model) -> String {
        let paths = self.names.keys().chain(other.names.keys());
        for path in paths {
            let [a, b] = [self, other].map(|model| model.get(path).map(Inode::facts));
            if a != b {
                let mut text = format!("{path}: {a:?} and {b:?}");
                text.truncate(text.char_indices().nth(300).map_or(text.len(), |(at, _)| at));
                return text;
            }
        }
        "nothing".into()
    }
}

fn target(len: usize) -> Vec<u8> {
    vec![b't'; len]
}

/// The content of a volume, as far as it can be read.
#[derive(Debug, Default)]
pub struct Observed {
    /// Everything that could be read whole.
    pub model: Model,
    /// What could not be read, and why.
    pub errors: Vec<(String, Error)>,
}

/// Reads names, attributes and contents of the whole volume.
pub fn observe(volume: &Volume) -> Observed {
    let mut seen = Observed::default();
    let mut directories = vec![(String::new(), volume.view().root())];
    while let Some((path, directory)) = directories.pop() {
        let mut names = Vec::new();
        let listed = volume.view().readdir(directory, 0, &mut |item| {
            names.push(item.name.to_vec());
            true
        });
        if let Err(error) = listed {
            seen.errors.push((path.clone(), error));
        }
        for name in names.into_iter().filter(|name| name != b"." && name != b"..") {
            let text = String::from_utf8_lossy(&name);
            let below = if path.is_empty() { text.into_owned() } else { format!("{path}/{text}") };
            match observe_one(volume.view(), directory, &name) {
                Ok((number, inode)) => {
                    if inode.kind == FileKind::Directory {
                        directories.push((below.clone(), yore_fs::InodeNo(number)));
                    }
                    seen.model.names.insert(below, number);
                    seen.model.inodes.insert(number, inode);
                }
                Err(error) => seen.errors.push((below, error)),
            }
        }
    }
    seen
}

/// The same as of each snapshot of the root directory that has a name.
///
/// # Errors
/// The snapshots cannot be listed.
pub fn observe_snapshots(volume: &Volume) -> Result<Vec<(String, Observed)>> {
    let view = volume.view();
    let events = view.events()?.into_iter();
    let named = events.filter(|event| event.row.root == view.root() && !event.row.name.is_empty());
    Ok(named.map(|event| (event.row.name, observe(&Volume::from_view(view.as_of(event.number))))).collect())
}

fn observe_one(view: &View, directory: yore_fs::InodeNo, name: &[u8]) -> Result<(u64, Inode)> {
    let node = view.lookup(directory, name)?;
    let (attr, no) = (*node.attr(), node.inode());
    let mut xattrs = BTreeMap::new();
    for name in view.listxattr(no)? {
        let value = view.getxattr(no, &name)?;
        xattrs.insert(name, value);
    }
    let target = if attr.kind == FileKind::Symlink { view.readlink(no)? } else { Vec::new() };
    let content = if attr.kind == FileKind::Regular { read_all(view, no, attr.size)? } else { Vec::new() };
    let links = if attr.kind == FileKind::Directory { 1 } else { attr.links };
    Ok((no.0, Inode { kind: attr.kind, permissions: attr.permissions, links, target, xattrs, content }))
}

fn read_all(view: &View, no: yore_fs::InodeNo, size: u64) -> Result<Vec<u8>> {
    // After a fault the volume may claim any size; the workload's files are smaller than this.
    let mut bytes = vec![0; size.min(4 << 20) as usize];
    let count = view.read(no, 0, &mut bytes)?;
    bytes.truncate(count);
    drop(view.seek(no, 0, SeekTo::Data));
    Ok(bytes)
}

/// Carries out one step.
///
/// # Errors
/// Those of the call.
///
/// # Panics
/// If there is a `model`, and a read returns other bytes than it has.
pub fn run(volume: &Volume, step: &Step, model: Option<&Model>) -> Result<()> {
    let (view, caller) = (volume.view(), Caller::superuser());
    let find = |path: &str| volume.symlink_node(path);
    match *step {
        Step::Create { path } => {
            let (directory, name) = split(volume, path)?;
            view.create(&caller, directory, name, FileKind::Regular, 0o644, 0).map(drop)
        }
        Step::Mkdir { path } => {
            let (directory, name) = split(volume, path)?;
            view.mkdir(&caller, directory, name, 0o755).map(drop)
        }
        Step::Write { path, offset, len, tag } => {
            let mode = yore_fs::WriteMode { append: false, kill_set_id: false };
            view.write(find(path)?.inode(), offset, &content(tag, len), mode).map(drop)
        }
        Step::Truncate { path, size } => volume.truncate(path, size),
        Step::Punch { path, offset, len } => {
            view.fallocate(find(path)?.inode(), offset, len, FallocateMode::PunchHole)
        }
        Step::Allocate { path, offset, len } => {
            view.fallocate(find(path)?.inode(), offset, len, FallocateMode::Allocate { keep_size: false })
        }
        Step::Symlink { path, len } => {
            let (directory, name) = split(volume, path)?;
            view.symlink(&caller, directory, name, &target(len)).map(drop)
        }
        Step::Link { from, to } => volume.hard_link(from, to),
        Step::Unlink { path } => volume.remove_file(path),
        Step::Rmdir { path } => volume.remove_dir(path),
        Step::Rename { from, to } => volume.rename(from, to),
        Step::Exchange { from, to } => volume.rename_with(from, to, RenameMode::Exchange),
        Step::SetXattr { path, name, len } => {
            let value = content(len as u64, len);
            view.setxattr(find(path)?.inode(), name.as_bytes(), &value, SetXattrMode::Any)
        }
        Step::RemoveXattr { path, name } => view.removexattr(find(path)?.inode(), name.as_bytes()),
        Step::Chmod { path, permissions } => volume.set_permissions(path, permissions),
        Step::Read { path } => {
            let found = File::open(volume, path).and_then(|file| {
                let size = file.metadata()?.attr().size;
                read_all(view, file.inode(), size)
            })?;
            let expected = model.and_then(|model| model.get(path));
            assert!(expected.is_none_or(|inode| inode.content == found), "{path} reads as something else");
            Ok(())
        }
        Step::Fsync { path } => view.fsync(find(path)?.inode(), false),
        Step::Sync => volume.sync(),
        Step::Snapshot { name } => view.snapshot(view.root(), name, false, true).map(drop),
        Step::Forget { name } => {
            view.forget(&[view.event_for(view.root(), &When::Named(name.into()))?])?;
            view.finish_forgetting(&mut |_| ControlFlow::Continue(())).map(drop)
        }
    }
}

fn split<'p>(volume: &Volume, path: &'p str) -> Result<(yore_fs::InodeNo, &'p [u8])> {
    match path.rsplit_once('/') {
        Some((directory, name)) => Ok((volume.symlink_node(directory)?.inode(), name.as_bytes())),
        None => Ok((volume.view().root(), path.as_bytes())),
    }
}

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
