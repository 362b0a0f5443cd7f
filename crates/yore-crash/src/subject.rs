//! The subject of a test: it carries out operations, and its state can be observed.
//!
//! [`ViewSubject`] is the file system. [`ModelSubject`] is the model with a clock of its own, so that
//! generator, comparison and judge can be tested without a file system, and with one that is wrong on
//! purpose.

use crate::model::{Block, Identity, Inode, State, Time, BLOCK, ROOT};
use crate::op::{payload, Name, Op, Place, Target, SLOTS};
use crate::outcome::{Expect, Kind, Outcome};
use crate::past::forgotten;
use crate::tree::{Facts, Inside, Node as TreeNode, Tree};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use yore_fs::{Attr, Error, EventNo, FileKind, InodeNo, Node, SeekTo, Timestamp, View, WriteMode};

/// Carries out operations, and lets callers observe its state.
pub trait Subject {
    /// Carries out one operation; a `Drop` or `Hold` whose slot or target is missing does nothing.
    fn apply(&mut self, op: &Op) -> Outcome;
    /// The attributes of an inode, with a name or held.
    ///
    /// # Errors
    /// A message.
    fn attr(&self, inode: u64) -> Result<Attr, String>;
    /// The present, by the clock that stamps inodes.
    fn now(&self) -> Timestamp;
    /// Everything below the root.
    ///
    /// # Errors
    /// A message, if the walk failed.
    fn observe(&self) -> Result<Tree, String>;
}

/// Keeps an inode without a name: by a node, or by a lookup count as a FUSE server has it.
enum Reference {
    Node(Node),
    Count(InodeNo),
}

/// A file system, seen from one of its directories.
pub struct ViewSubject {
    view: View,
    root: InodeNo,
    slots: [Option<Reference>; SLOTS],
    snapshots: Own,
}

/// The snapshots that a subject has taken, and which of them it has not forgotten.
#[derive(Clone, Debug, Default)]
pub struct Own {
    taken: Vec<EventNo>,
    kept: Vec<usize>,
    expunged: Vec<Vec<Identity>>,
}

impl Own {
    /// The numbers of all that it has taken.
    pub fn taken(&self) -> &[EventNo] {
        &self.taken
    }

    /// The files whose history each expunge operation has given up.
    pub fn expunged(&self) -> &[Vec<Identity>] {
        &self.expunged
    }
}

impl ViewSubject {
    /// The whole of a view.
    pub fn new(view: View) -> ViewSubject {
        let root = view.root();
        ViewSubject::below(view, root)
    }

    /// One directory of a view and what is below it.
    pub fn below(view: View, root: InodeNo) -> ViewSubject {
        ViewSubject { view, root, slots: [const { None }; SLOTS], snapshots: Own::default() }
    }

    /// The view.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Drops all references that keep inodes.
    pub fn drop_references(&mut self) {
        for slot in 0..SLOTS {
            self.empty(slot);
        }
    }

    fn empty(&mut self, slot: usize) {
        if let Some(Reference::Count(inode)) = self.slots[slot].take() {
            self.view.forget_lookups(inode, 1);
        }
    }

    /// The inode of a target, and the node that keeps it.
    fn resolve(&self, target: &Target) -> Result<(InodeNo, Option<Node>), Error> {
        match target {
            Target::Slot(slot) => match &self.slots[*slot] {
                Some(Reference::Node(node)) => Ok((node.inode(), None)),
                Some(Reference::Count(inode)) => Ok((*inode, None)),
                None => Err(Error::Stale),
            },
            Target::Path(names) => {
                let mut at = (self.root, None);
                for name in names {
                    let node = self.view.lookup(at.0, name)?;
                    at = (node.inode(), Some(node));
                }
                Ok(at)
            }
        }
    }

    fn directory(&self, place: &Place) -> Result<(InodeNo, Option<Node>), Error> {
        self.resolve(&place.directory)
    }

    /// Operations on names.
    fn names(&self, op: &Op) -> Result<Outcome, Error> {
        let view = &self.view;
        let node = |node: Node| Ok(Outcome::Node(*node.attr()));
        match op {
            Op::Create { at, kind, permissions, rdev, caller } => {
                let directory = self.directory(at)?;
                node(view.create(caller, directory.0, &at.name, *kind, *permissions, *rdev)?)
            }
            Op::Mkdir { at, permissions, caller } => {
                let directory = self.directory(at)?;
                node(view.mkdir(caller, directory.0, &at.name, *permissions)?)
            }
            Op::Symlink { at, to, caller } => {
                let directory = self.directory(at)?;
                node(view.symlink(caller, directory.0, &at.name, to)?)
            }
            Op::Link { target, at } => {
                let (inode, directory) = (self.resolve(target)?, self.directory(at)?);
                node(view.link(inode.0, directory.0, &at.name)?)
            }
            Op::Lookup { at } => node(view.lookup(self.directory(at)?.0, &at.name)?),
            Op::Unlink { at } => {
                let directory = self.directory(at)?;
                view.unlink(directory.0, &at.name).map(|()| Outcome::Done)
            }
            Op::Rmdir { at } => {
                let directory = self.directory(at)?;
                view.rmdir(directory.0, &at.name).map(|()| Outcome::Done)
            }
            Op::Rename { from, to, mode } => {
                let (source, target) = (self.directory(from)?, self.directory(to)?);
                view.rename(source.0, &from.name, target.0, &to.name, *mode).map(|()| Outcome::Done)
            }
            Op::Readlink { target } => view.readlink(self.resolve(target)?.0).map(Outcome::Bytes),
            Op::Readdir { target, batch } => {
                let directory = self.resolve(target)?;
                let list = list(view, directory.0, *batch)?;
                let own = [b".".as_slice(), b"..".as_slice()];
                let entries = list.into_iter().filter(|entry| !own.contains(&&entry.0[..]));
                Ok(Outcome::Entries(entries.collect()))
            }
            _ => unreachable!("not an operation on names: {op}"),
        }
    }

    /// Operations on content.
    fn content(&self, op: &Op) -> Result<Outcome, Error> {
        let view = &self.view;
        match op {
            Op::Read { target, offset, len } => {
                let inode = self.resolve(target)?;
                let mut bytes = vec![0xee; *len];
                let count = view.read(inode.0, *offset, &mut bytes)?;
                bytes.truncate(count);
                Ok(Outcome::Bytes(bytes))
            }
            Op::Write { target, offset, len, tag, append, kill_set_id } => {
                let inode = self.resolve(target)?;
                let mode = WriteMode { append: *append, kill_set_id: *kill_set_id };
                view.write(inode.0, *offset, &payload(*tag, *len), mode).map(Outcome::Number)
            }
            Op::Fallocate { target, offset, len, mode } => {
                let inode = self.resolve(target)?;
                view.fallocate(inode.0, *offset, *len, *mode).map(|()| Outcome::Done)
            }
            Op::Seek { target, offset, to } => {
                view.seek(self.resolve(target)?.0, *offset, *to).map(Outcome::Number)
            }
            Op::Copy { from, from_offset, to, to_offset, len } => {
                let (from, to) = (self.resolve(from)?, self.resolve(to)?);
                view.copy_file_range(from.0, *from_offset, to.0, *to_offset, *len).map(Outcome::Number)
            }
            Op::Fsync { target, data_only } => {
                view.fsync(self.resolve(target)?.0, *data_only).map(|()| Outcome::Done)
            }
            _ => unreachable!("not an operation on content: {op}"),
        }
    }

    /// Operations on attributes.
    fn attributes(&self, op: &Op) -> Result<Outcome, Error> {
        let view = &self.view;
        match op {
            Op::SetAttr { target, set, caller } => {
                let inode = self.resolve(target)?;
                view.setattr(caller, inode.0, set).map(Outcome::Node)
            }
            Op::GetXattr { target, name } => view.getxattr(self.resolve(target)?.0, name).map(Outcome::Bytes),
            Op::SetXattr { target, name, len, tag, mode } => {
                let inode = self.resolve(target)?;
                view.setxattr(inode.0, name, &payload(*tag, *len), *mode).map(|()| Outcome::Done)
            }
            Op::ListXattr { target } => {
                let names = view.listxattr(self.resolve(target)?.0)?;
                Ok(Outcome::Names(names.into_iter().map(Name::from).collect()))
            }
            Op::RemoveXattr { target, name } => {
                view.removexattr(self.resolve(target)?.0, name).map(|()| Outcome::Done)
            }
            _ => unreachable!("not an operation on attributes: {op}"),
        }
    }

    /// The same, with snapshots that were taken before the volume was opened.
    pub fn with_snapshots(self, snapshots: Own) -> ViewSubject {
        ViewSubject { snapshots, ..self }
    }

    /// Its snapshots.
    pub fn snapshots(&self) -> &Own {
        &self.snapshots
    }

    fn snapshot(&mut self, name: &[u8], wait: bool) -> Result<Outcome, Error> {
        let name = std::str::from_utf8(name).map_err(|_| Error::Invalid { what: "a snapshot's name" })?;
        let event = self.view.snapshot(self.root, name, false, wait)?;
        self.snapshots.kept.push(self.snapshots.taken.len());
        self.snapshots.taken.push(event.number);
        Ok(Outcome::Done)
    }

    fn forget(&mut self, which: usize, left: bool) -> Result<Outcome, Error> {
        let Some(index) = forgotten(&mut self.snapshots.kept, which) else { return Ok(Outcome::Done) };
        self.view.forget(&[self.snapshots.taken[index]])?;
        self.give_up(left)
    }

    fn give_up(&self, left: bool) -> Result<Outcome, Error> {
        if !left {
            match self.view.finish_forgetting(&mut |_| ControlFlow::Continue(())) {
                Err(Error::NoSpace) => {} // The rest is done when there is some.
                other => drop(other?),
            }
        }
        Ok(Outcome::Done)
    }

    fn expunge(&mut self, path: &[Name], which: Option<usize>, left: bool) -> Result<Outcome, Error> {
        let going = self.going(path, which)?;
        if !going.is_empty() {
            let files: Vec<_> = going.iter().map(|(no, incarnation)| (InodeNo(*no), *incarnation)).collect();
            self.view.expunge(&files)?;
        }
        self.snapshots.expunged.push(going);
        self.give_up(left)
    }

    /// The file or directory to which a path led, and everything that was ever named below it.
    fn going(&self, path: &[Name], which: Option<usize>) -> Result<Vec<Identity>, Error> {
        let (kept, taken) = (&self.snapshots.kept, &self.snapshots.taken);
        let event = which.filter(|_| !kept.is_empty()).map(|which| taken[kept[which % kept.len()]]);
        let view = event.map_or_else(|| self.view.clone(), |event| self.view.as_of(event));
        let (mut at, mut found) = (self.root, None);
        for name in path {
            let node = match view.lookup(at, name) {
                // Nothing has or can have that name.
                Err(Error::NotFound | Error::NotADirectory | Error::NameTooLong | Error::Invalid { .. }) => {
                    return Ok(Vec::new())
                }
                node => node?,
            };
            (at, found) = (node.inode(), Some((node.inode().0, node.attr().incarnation)));
        }
        let Some(file) = found.filter(|_| at != self.root) else { return Ok(Vec::new()) };
        let all = self.view.remembered_below(at, file.1)?;
        let going: Vec<Identity> = all.iter().map(|one| (one.inode.0, one.incarnation)).collect();
        match going.contains(&file) {
            true => Ok(going),
            false => Err(Error::Invalid { what: "what is remembered below a file is without the file" }),
        }
    }

    /// Closes the file that an operation has changed.
    fn close(&self, op: &Op) -> Result<(), Error> {
        let (Op::Write { target, .. }
        | Op::Fallocate { target, .. }
        | Op::Copy { to: target, .. }
        | Op::SetAttr { target, .. }
        | Op::SetXattr { target, .. }) = op
        else {
            return Ok(());
        };
        let file = self.resolve(target)?;
        self.view.closed(file.0).map(|_| ())
    }

    fn hold(&mut self, target: &Target, slot: usize) -> Result<Outcome, Error> {
        let (inode, node) = self.resolve(target)?;
        let node = match node {
            Some(node) => node,
            None => self.view.node(inode, None)?,
        };
        self.empty(slot);
        self.slots[slot] = Some(match slot % 2 {
            0 => Reference::Node(node),
            _ => Reference::Count(node.into_counted().inode),
        });
        Ok(Outcome::Done)
    }
}

impl Subject for ViewSubject {
    fn apply(&mut self, op: &Op) -> Outcome {
        let result = match op {
            Op::Sync => self.view.sync().map(|()| Outcome::Done),
            Op::Snapshot { name, wait } => self.snapshot(name, *wait),
            Op::Forget { which, left } => self.forget(*which, *left),
            Op::Expunge { path, which, left } => self.expunge(path, *which, *left),
            Op::Hold { target, slot } => self.hold(target, *slot),
            Op::Drop { slot } => {
                self.empty(*slot);
                Ok(Outcome::Done)
            }
            Op::Read { .. }
            | Op::Write { .. }
            | Op::Fallocate { .. }
            | Op::Seek { .. }
            | Op::Copy { .. }
            | Op::Fsync { .. } => self.content(op),
            Op::SetAttr { .. }
            | Op::GetXattr { .. }
            | Op::SetXattr { .. }
            | Op::ListXattr { .. }
            | Op::RemoveXattr { .. } => self.attributes(op),
            _ => self.names(op),
        };
        if result.is_ok() {
            if let Err(error) = self.close(op) {
                return Outcome::from(error);
            }
        }
        result.unwrap_or_else(Outcome::from)
    }

    fn attr(&self, inode: u64) -> Result<Attr, String> {
        self.view.getattr(InodeNo(inode)).map_err(|error| format!("getattr of inode {inode}: {error}"))
    }

    fn now(&self) -> Timestamp {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp { seconds: now.as_secs() as i64, nanos: now.subsec_nanos() }
    }

    fn observe(&self) -> Result<Tree, String> {
        observe(&self.view, self.root)
    }
}

/// Walks everything below a directory.
///
/// # Errors
/// A message that says where a call failed. If answers contradict each other, the tree has the
/// contradictions.
pub fn observe(view: &View, root: InodeNo) -> Result<Tree, String> {
    let mut tree = Tree { root: root.0, ..Tree::default() };
    // With the parent through which each was found; `None` for the root, whose parent may lie outside.
    let mut waiting = vec![(root, None)];
    while let Some((inode, above)) = waiting.pop() {
        let failed = |what: &str, error: Error| format!("{what} of inode {inode}: {error}");
        let attr = view.getattr(inode).map_err(|error| failed("getattr", error))?;
        let mut xattrs = BTreeMap::new();
        for name in view.listxattr(inode).map_err(|error| failed("listxattr", error))? {
            let value = view.getxattr(inode, &name).map_err(|error| failed("getxattr", error))?;
            xattrs.insert(Name::from(name), Arc::from(value));
        }
        let inside = match attr.kind {
            FileKind::Directory => observe_directory(view, inode, above, &mut tree, &mut waiting)
                .map_err(|e| failed("listing", e))?,
            FileKind::Regular => Inside::File {
                size: attr.size,
                blocks: content(view, inode, attr.size).map_err(|error| failed("read", error))?,
            },
            FileKind::Symlink => {
                let target = view.readlink(inode).map_err(|error| failed("readlink", error))?;
                if attr.size != target.len() as u64 {
                    tree.contradictions.push(format!(
                        "symbolic link {inode}: size {} of a target of {}",
                        attr.size,
                        target.len()
                    ));
                }
                Inside::Symlink(Name::from(target))
            }
            _ => Inside::Special,
        };
        tree.nodes.insert(inode.0, TreeNode { facts: facts(&attr), xattrs, inside });
    }
    Ok(tree)
}

/// Lists a directory, a few entries at a time so that cookies are used, and looks each name up.
fn observe_directory(
    view: &View,
    inode: InodeNo,
    above: Option<InodeNo>,
    tree: &mut Tree,
    waiting: &mut Vec<(InodeNo, Option<InodeNo>)>,
) -> Result<Inside, Error> {
    let mut entries = BTreeMap::new();
    let parent = view.parent(inode)?;
    if above.is_some_and(|above| above != parent) {
        tree.contradictions.push(format!("directory {inode} is found in {above:?}, its parent is {parent}"));
    }
    let listed = list(view, inode, 3)?;
    let dots: Vec<_> = listed.iter().take(2).map(|entry| (&entry.0[..], entry.1)).collect();
    if dots != [(b".".as_slice(), inode.0), (b"..".as_slice(), parent.0)] {
        tree.contradictions.push(format!("directory {inode} begins with {dots:?}"));
    }
    for (name, number, kind) in listed.into_iter().skip(2) {
        let node = view.lookup(inode, &name)?;
        let attr = node.attr();
        if (attr.inode.0, attr.kind) != (number, kind) {
            tree.contradictions.push(format!(
                "directory {inode}: {} is listed as {number} {kind:?} and looked up as {} {:?}",
                crate::op::show_name(&name),
                attr.inode,
                attr.kind
            ));
        }
        let seen = tree.nodes.contains_key(&number) || waiting.iter().any(|(waits, _)| waits.0 == number);
        if !seen {
            waiting.push((InodeNo(number), Some(inode)));
        } else if kind == FileKind::Directory {
            tree.contradictions.push(format!("directory {number} has two names"));
        }
        if entries.insert(name.clone(), (number, kind)).is_some() {
            tree.contradictions.push(format!("{} is listed twice", crate::op::show_name(&name)));
        }
    }
    Ok(Inside::Directory { entries, parent: parent.0 })
}

/// All entries of a directory, `batch` to a call.
fn list(view: &View, directory: InodeNo, batch: usize) -> Result<Vec<(Name, u64, FileKind)>, Error> {
    let mut entries = Vec::new();
    let mut cookie = 0;
    loop {
        let before = entries.len();
        view.readdir(directory, cookie, &mut |item| {
            entries.push((Name::from(item.name), item.inode.0, item.kind));
            cookie = item.cookie;
            entries.len() - before < batch
        })?;
        // An endless listing shows by its length; a sequence makes far fewer entries.
        if entries.len() - before < batch || entries.len() > 100_000 {
            return Ok(entries);
        }
    }
}

/// Beyond this many bytes content is read only where there is data.
const READ_ALL_MAX: u64 = 2 << 20;

/// The blocks of a file that are not all zeros.
fn content(view: &View, inode: InodeNo, size: u64) -> Result<BTreeMap<u64, Arc<Block>>, Error> {
    let mut blocks = BTreeMap::new();
    if size <= READ_ALL_MAX {
        read_blocks(view, inode, 0, size, &mut blocks)?;
        return Ok(blocks);
    }
    let mut at = 0;
    while at < size {
        let from = match view.seek(inode, at, SeekTo::Data) {
            Ok(from) => from,
            Err(Error::NoDataThere) => break,
            Err(error) => return Err(error),
        };
        let to = view.seek(inode, from, SeekTo::Hole)?;
        let start = from - from % BLOCK as u64;
        read_blocks(view, inode, start, to.min(size), &mut blocks)?;
        if to <= at {
            return Err(Error::Invalid { what: "seek does not move on" });
        }
        at = to;
    }
    Ok(blocks)
}

fn read_blocks(
    view: &View,
    inode: InodeNo,
    start: u64,
    end: u64,
    blocks: &mut BTreeMap<u64, Arc<Block>>,
) -> Result<(), Error> {
    const CHUNK: u64 = 64 * BLOCK as u64;
    let mut bytes = vec![0; CHUNK.min(end.saturating_sub(start)) as usize];
    let mut at = start;
    while at < end {
        let len = CHUNK.min(end - at) as usize;
        let mut filled = 0;
        while filled < len {
            let count = view.read(inode, at + filled as u64, &mut bytes[filled..len])?;
            if count == 0 {
                return Err(Error::Invalid { what: "read ends before the size" });
            }
            filled += count;
        }
        for (number, chunk) in bytes[..len].chunks(BLOCK).enumerate() {
            if chunk.iter().any(|byte| *byte != 0) {
                let mut block = [0; BLOCK];
                block[..chunk.len()].copy_from_slice(chunk);
                blocks.insert(at / BLOCK as u64 + number as u64, Arc::new(block));
            }
        }
        at += len as u64;
    }
    Ok(())
}

/// The promised part of attributes.
pub fn facts(attr: &Attr) -> Facts {
    Facts {
        incarnation: attr.incarnation,
        kind: attr.kind,
        permissions: attr.permissions,
        links: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        atime: attr.atime,
        mtime: attr.mtime,
        ctime: attr.ctime,
        btime: attr.btime,
    }
}

/// The model as a file system: it stamps times from a counter and numbers its inodes from another.
pub struct ModelSubject {
    state: State,
    ticks: i64,
}

impl ModelSubject {
    /// An empty file system.
    pub fn new() -> ModelSubject {
        ModelSubject { state: State::new(&ModelSubject::root()), ticks: 1 }
    }

    /// The attributes of its root directory.
    pub fn root() -> Attr {
        let time = Timestamp { seconds: 0, nanos: 0 };
        Attr {
            inode: InodeNo(1000),
            incarnation: 1,
            kind: FileKind::Directory,
            permissions: 0o755,
            links: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks_512: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            flags: yore_fs::InodeFlags::empty(),
        }
    }

    fn stamp(&mut self) -> Timestamp {
        self.ticks += 1;
        Timestamp { seconds: self.ticks, nanos: 0 }
    }
}

impl Default for ModelSubject {
    fn default() -> Self {
        ModelSubject::new()
    }
}

fn attr_of(inode: &Inode, now: Timestamp) -> Attr {
    let time = |time| match time {
        Time::Known(time) => time,
        Time::Now | Time::Maybe(_) => now,
    };
    let (number, incarnation) = inode.identity.unwrap_or_default();
    Attr {
        inode: InodeNo(number),
        incarnation,
        kind: inode.kind,
        permissions: inode.permissions,
        links: inode.links,
        uid: inode.uid,
        gid: inode.gid,
        rdev: inode.rdev,
        size: inode.data().map_or(0, |data| data.size()),
        blocks_512: 0,
        atime: time(inode.atime),
        mtime: time(inode.mtime),
        ctime: time(inode.ctime),
        btime: time(inode.btime),
        flags: yore_fs::InodeFlags::empty(),
    }
}

impl Subject for ModelSubject {
    fn apply(&mut self, op: &Op) -> Outcome {
        let now = self.stamp();
        let (expect, effects) = self.state.apply(op);
        if let Some(ino) = effects.created {
            self.state.learn_identity(ino, (1000 + ino as u64, 1 + ino as u32));
        }
        for ino in effects.touched {
            if let Some(attr) = self.state.get(ino).map(|inode| attr_of(inode, now)) {
                // This cannot fail: the times are those that it asks for.
                let _ = self.state.learn_times(ino, &attr, now, now);
            }
        }
        let attr = |ino: usize| self.state.get(ino).map(|inode| attr_of(inode, now));
        match expect {
            Expect::Fails(kinds) => {
                let kind = kinds.first().unwrap_or(Kind::Broken);
                Outcome::Failed(kind, "the model says so".into())
            }
            Expect::Skip | Expect::Done => match op {
                Op::SetAttr { target, .. } => match self.state.resolve(target) {
                    Ok(ino) => attr(ino).map_or(Outcome::Done, Outcome::Node),
                    Err(_) => Outcome::Done,
                },
                _ => Outcome::Done,
            },
            Expect::Created(ino) | Expect::Found(ino) => attr(ino).map_or(Outcome::Done, Outcome::Node),
            Expect::Bytes(bytes) => Outcome::Bytes(bytes),
            Expect::Number(number) => Outcome::Number(number),
            Expect::Names(names) => Outcome::Names(names),
            Expect::Entries(entries) => Outcome::Entries(
                entries.into_iter().map(|(name, ino, kind)| (name, 1000 + ino as u64, kind)).collect(),
            ),
            Expect::Data { offset, data } => match data.first_nonzero(offset) {
                Some(at) => Outcome::Number(at),
                None => Outcome::Failed(Kind::NoDataThere, "only zeros".into()),
            },
            Expect::Hole { data, .. } => Outcome::Number(data.size()),
        }
    }

    fn attr(&self, inode: u64) -> Result<Attr, String> {
        let ino = inode as usize - 1000;
        let now = Timestamp { seconds: self.ticks, nanos: 0 };
        self.state.get(ino).map(|inode| attr_of(inode, now)).ok_or_else(|| format!("inode {inode} is gone"))
    }

    fn now(&self) -> Timestamp {
        // The operation in between takes the next tick.
        Timestamp { seconds: self.ticks, nanos: 0 }
    }

    fn observe(&self) -> Result<Tree, String> {
        debug_assert!(self.state.get(ROOT).is_some());
        Ok(Tree::of(&self.state))
    }
}
