//! The model as a file system: generator, comparison and judge are tested with it.

use super::interface::Subject;
use crate::model::expect::Expect;
use crate::model::{Inode, State, Time, ROOT};
use crate::op::Op;
use crate::outcome::{Kind, Outcome};
use crate::tree::Tree;
use yore_fs::{Attr, FileKind, InodeNo, Timestamp};

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
    inode.attr(|time| match time {
        Time::Known(time) => time,
        Time::Now | Time::Maybe(_) => now,
    })
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
