//! The requests that concern the directory of snapshots, see [`crate::snapdir`].

use super::server::Server;
use crate::past::{Key, PastNodes};
use crate::snapdir::{self, DOT, DOT_DOT};
use fuser::{
    Errno, FileAttr, FileType, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus, ReplyEntry, Request,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use yore_fs::{Error, FileKind};

impl Server {
    /// Whether this name is the directory of snapshots, unless a file has the name.
    pub(super) fn is_snapdir(&self, parent: INodeNo, name: &[u8]) -> bool {
        parent == INodeNo::ROOT && self.snapdir.as_ref().is_some_and(|snapdir| snapdir.is_named(name))
    }

    /// Whether this name is the directory of snapshots, and no file has the name.
    pub(super) fn is_snapdir_there(&self, parent: INodeNo, name: &OsStr) -> bool {
        let lookup = || self.view.lookup(self.root, name.as_bytes());
        self.is_snapdir(parent, name.as_bytes()) && matches!(lookup(), Err(Error::NotFound))
    }

    /// Why nothing can be created under this name.
    pub(super) fn taken(&self, parent: INodeNo, name: &OsStr) -> Option<Errno> {
        self.is_snapdir_there(parent, name).then_some(Errno::EEXIST)
    }

    /// The directory's attributes: it has the owner of the root directory, and everybody may look.
    pub(super) fn snapdir_attr(&self) -> yore_fs::Result<FileAttr> {
        let root = self.entry_attr(&self.view.getattr(self.root)?);
        let changed = self.snapdir.as_ref().map_or(root.mtime, |snapdir| snapdir.changed(&self.view));
        let times = FileAttr { atime: changed, mtime: changed, ctime: changed, ..root };
        Ok(FileAttr { ino: snapdir::NODE, size: 0, blocks: 0, perm: 0o555, nlink: 2, ..times })
    }

    /// Replies with the directory. The kernel is to ask again each time: a file may get the name, and the
    /// directory's time of change matters.
    pub(super) fn snapdir_entry(&self, reply: ReplyEntry) {
        match self.snapdir_attr() {
            Ok(attr) => reply.entry(&Duration::ZERO, &attr, Generation(0)),
            Err(error) => reply.error(self.number("lookup", self.root, error)),
        }
    }

    /// Looks a name up in it.
    pub(super) fn lookup_snapshot(&self, request: &Request, name: &[u8], reply: ReplyEntry) {
        match name {
            b"." => return self.snapdir_entry(reply),
            b".." => return self.entry("lookup", self.root, self.view.node(self.root, None), reply),
            _ => {}
        }
        let found = snapdir::when(name).ok_or(Error::NotFound);
        let found = found.and_then(|when| self.lookup_when(request, &self.view, self.root, b".", &when));
        match found {
            Ok(None) => reply.error(Errno::EACCES),
            Ok(Some(node)) => {
                let (attr, timeout) = self.past_entry(snapdir::NODE, Some(name), &node);
                reply.entry(&timeout, &attr, Generation(u64::from(node.attr().incarnation)));
            }
            Err(error) => reply.error(self.number("lookup", self.root, error)),
        }
    }

    /// Lists its entries.
    pub(super) fn list_snapshots(&self, cookie: u64, mut reply: ReplyDirectory) {
        let root = INodeNo(self.root.0);
        for (number, at, name) in [(snapdir::NODE, DOT, "."), (root, DOT_DOT, "..")] {
            if cookie < at && reply.add(number, at, FileType::Directory, name) {
                return reply.ok();
            }
        }
        let mut given = cookie < DOT_DOT;
        let outcome = snapdir::list(&self.view, cookie, &mut |entry| {
            let key = Key::Named { parent: snapdir::NODE.0, name: entry.name.to_vec(), event: entry.event };
            let number = INodeNo(key.number(FileKind::Directory, entry.event, self.root));
            let full = reply.add(number, entry.cookie, FileType::Directory, OsStr::from_bytes(entry.name));
            given |= !full;
            !full
        });
        match outcome {
            Err(error) if !given => reply.error(self.number("readdir", self.root, error)),
            _ => reply.ok(),
        }
    }

    /// Lists its entries with nodes. The kernel asks for nodes at the beginning of every listing, and further
    /// on only if somebody has looked entries up: so the beginning returns none.
    pub(super) fn list_snapshots_with_nodes(&self, cookie: u64, mut reply: ReplyDirectoryPlus) {
        let (now, root) = (Duration::ZERO, INodeNo(self.root.0));
        if cookie < DOT_DOT {
            for (number, at, name) in [(snapdir::NODE, DOT, "."), (root, DOT_DOT, "..")] {
                // The kernel uses only the number and type of these.
                let kind = FileType::Directory;
                let attr = FileAttr { ino: number, kind, ..crate::convert::no_attr() };
                if cookie < at && reply.add(number, at, name, &now, &attr, Generation(0)) {
                    break;
                }
            }
            return reply.ok();
        }
        let (mut given, mut failed) = (false, None);
        let outcome = snapdir::list(&self.view, cookie, &mut |entry| {
            let node = match self.view.as_of(entry.event).node(self.root, None) {
                Ok(node) => node,
                // The snapshot was forgotten a moment ago.
                Err(Error::Stale) => return true,
                Err(error) => {
                    failed = Some(error);
                    return false;
                }
            };
            let (attr, timeout) = self.past_entry(snapdir::NODE, Some(entry.name), &node);
            let (name, generation) = (OsStr::from_bytes(entry.name), u64::from(node.attr().incarnation));
            let full = reply.add(attr.ino, entry.cookie, name, &timeout, &attr, Generation(generation));
            if full {
                debug_assert!(PastNodes::is_past(attr.ino.0));
                self.past.forget_lookups(attr.ino.0, 1);
            }
            given |= !full;
            !full
        });
        match outcome.and(failed.map_or(Ok(()), Err)) {
            Err(error) if !given => reply.error(self.number("readdir", self.root, error)),
            _ => reply.ok(),
        }
    }
}
