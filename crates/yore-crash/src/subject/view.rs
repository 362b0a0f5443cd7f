//! The file system: each operation is a call of a [`View`], and references keep inodes.

use super::interface::Subject;
use super::walk::{list, observe};
use crate::model::Identity;
use crate::op::{forgotten, payload, EntryPath, Name, Op, Target, SLOTS};
use crate::outcome::Outcome;
use crate::tree::Tree;
use std::ops::ControlFlow;
use std::time::{SystemTime, UNIX_EPOCH};
use yore_fs::{Attr, Error, EventNo, InodeNo, NewSnapshot, Node, Progress, Timestamp, View, WriteMode};

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
    syncs: u64,
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
        ViewSubject { view, root, slots: [const { None }; SLOTS], snapshots: Own::default(), syncs: 0 }
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

    fn directory(&self, entry_path: &EntryPath) -> Result<(InodeNo, Option<Node>), Error> {
        self.resolve(&entry_path.directory)
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
        let event = self.view.take_snapshot(self.root, &NewSnapshot { wait, ..NewSnapshot::named(name) })?;
        self.snapshots.kept.push(self.snapshots.taken.len());
        self.snapshots.taken.push(event.number);
        Ok(Outcome::Done)
    }

    fn forget(&mut self, which: usize, left: bool) -> Result<Outcome, Error> {
        let Some(index) = forgotten(&mut self.snapshots.kept, which) else { return Ok(Outcome::Done) };
        self.view.forget(&[self.snapshots.taken[index]])?;
        self.give_up(left)
    }

    fn index(&self, rows: u64) -> Result<Outcome, Error> {
        match self.view.index_history(rows) {
            Err(Error::NoSpace) => {} // They have none until there is some.
            other => drop(other?),
        }
        Ok(Outcome::Done)
    }

    fn defragment(&self, target: &Target) -> Result<Outcome, Error> {
        let (inode, _node) = self.resolve(target)?;
        let go_on = &mut || ControlFlow::Continue(());
        match self.view.defragment(inode, 1, &Progress::default(), go_on) {
            Err(Error::Refused(_)) => {} // There is no room.
            other => drop(other?),
        }
        Ok(Outcome::Done)
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
        let to_expunge = self.to_expunge(path, which)?;
        if !to_expunge.is_empty() {
            let files: Vec<_> =
                to_expunge.iter().map(|(no, incarnation)| (InodeNo(*no), *incarnation)).collect();
            self.view.expunge(&files)?;
        }
        self.snapshots.expunged.push(to_expunge);
        self.give_up(left)
    }

    /// The file or directory to which a path led, and everything that was ever named below it.
    fn to_expunge(&self, path: &[Name], which: Option<usize>) -> Result<Vec<Identity>, Error> {
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
        let to_expunge: Vec<Identity> = all.iter().map(|one| (one.inode.0, one.incarnation)).collect();
        match to_expunge.contains(&file) {
            true => Ok(to_expunge),
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

    /// One sync of three may leave what it makes durable in the log.
    fn sync(&mut self) -> Result<(), Error> {
        self.syncs += 1;
        match self.syncs % 3 {
            2 => self.view.sync(),
            _ => self.view.checkpoint(),
        }
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
            Op::Sync => self.sync().map(|()| Outcome::Done),
            Op::Snapshot { name, wait } => self.snapshot(name, *wait),
            Op::Forget { which, left } => self.forget(*which, *left),
            Op::Index { rows } => self.index(*rows),
            Op::Defragment { target } => self.defragment(target),
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
