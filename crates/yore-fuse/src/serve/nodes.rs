//! Which file a node is, and of which time; and how the kernel learns of it.

use super::server::Server;
use crate::config::PastAccess;
use crate::convert::{file_attr, inode_of, no_attr, node_of};
use crate::errno::errno;
use crate::past::{Key, PastNodes};
use crate::privilege;
use crate::snapdir;
use fuser::{Errno, FileAttr, FileType, Generation, INodeNo, ReplyEntry, Request};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;
use yore_fs::time::When;
use yore_fs::{Access, Asking, Attr, DirItem, Error, FileKind, InodeNo, Node, Resolved, View};

impl Server {
    /// The inode of a node of the mount's own time.
    pub(super) fn inode(&self, node: INodeNo) -> InodeNo {
        inode_of(node, self.root)
    }

    /// The view to which a node belongs, and its inode there.
    pub(super) fn seen(&self, node: INodeNo) -> yore_fs::Result<(Cow<'_, View>, InodeNo)> {
        if PastNodes::is_past(node.0) {
            let (event, inode) = self.past.get(node.0).ok_or(Error::Stale)?;
            return Ok((Cow::Owned(self.view.as_of(event)), inode));
        }
        // Its own requests are answered before this; nothing else can be done with it.
        if node == snapdir::NODE {
            return Err(Error::ReadOnly);
        }
        Ok((Cow::Borrowed(&self.view), self.inode(node)))
    }

    /// Whether a node shows the past.
    fn is_of_past(&self, node: INodeNo) -> bool {
        PastNodes::is_past(node.0) || self.view.event().is_some()
    }

    /// Whether a node's access ACL and default ACL are hidden.
    pub(super) fn hides_acls(&self, node: INodeNo) -> bool {
        self.config.past == PastAccess::Owner && self.is_of_past(node)
    }

    /// Attributes as the kernel gets them, with this number.
    fn told(&self, number: INodeNo, attr: &Attr) -> FileAttr {
        let mut told = FileAttr { ino: number, ..file_attr(attr) };
        // Links have no permissions of their own.
        if told.kind != FileType::Symlink && self.hides_acls(number) {
            told.perm &= 0o700;
        }
        told
    }

    /// Attributes as `stat` shows them.
    pub(super) fn shown(&self, node: INodeNo, attr: &Attr) -> FileAttr {
        match PastNodes::is_past(node.0) {
            true => self.told(node, attr),
            false => self.told(INodeNo(attr.inode.0), attr),
        }
    }

    /// Attributes under the number by which the kernel knows the node, which is of the mount's own time.
    pub(super) fn entry_attr(&self, attr: &Attr) -> FileAttr {
        self.told(node_of(attr.inode, self.root), attr)
    }

    /// Replies with a node, which adds one lookup.
    pub(super) fn entry(
        &self,
        call: &'static str,
        at: InodeNo,
        found: yore_fs::Result<Node>,
        reply: ReplyEntry,
    ) {
        match found {
            Ok(node) => {
                let attr = node.into_counted();
                let generation = Generation(u64::from(attr.incarnation));
                reply.entry(&self.config.timeout, &self.entry_attr(&attr), generation);
            }
            Err(error) => reply.error(self.number(call, at, error)),
        }
    }

    /// Replies with a node of the past: `found` under a name in `parent`, or the meaning of the name at the
    /// time in it, which may be another the next time.
    pub(super) fn past_entry(
        &self,
        parent: INodeNo,
        name: Option<&[u8]>,
        found: &Node,
    ) -> (FileAttr, Duration) {
        let (attr, event) = (*found.attr(), found.event().unwrap_or_default());
        let (key, timeout) = match name {
            Some(name) => (Key::Named { parent: parent.0, name: name.to_vec(), event }, Duration::ZERO),
            None => (Key::Below { parent: parent.0, inode: attr.inode }, self.config.timeout),
        };
        let node = self.past.count_lookup(key, attr.kind, event, attr.inode);
        (self.told(INodeNo(node), &attr), timeout)
    }

    /// A name in a node of the past, or the node itself for a handle. A user who comes by names has passed
    /// [`Server::lookup_when`], and the kernel checks the rest. Nobody has checked anything for a user who
    /// comes by a handle.
    pub(super) fn past_lookup(
        &self,
        request: &Request,
        (parent, inode): (INodeNo, InodeNo),
        name: &[u8],
        found: &Node,
        reply: ReplyEntry,
    ) {
        let generation = Generation(u64::from(found.attr().incarnation));
        if name != b"." {
            let (attr, timeout) = self.past_entry(parent, None, found);
            return reply.entry(&timeout, &attr, generation);
        }
        match self.access(request).reaches_inode(inode, None, found.event()) {
            Ok(true) => {}
            Ok(false) => return reply.error(Errno::EACCES),
            Err(error) => return reply.error(self.number("lookup", inode, error)),
        }
        // No directory has a number that encodes event and inode: somebody made this handle up.
        let is_directory = found.attr().kind == FileKind::Directory;
        match is_directory != PastNodes::is_plain(parent.0) && self.past.count_lookup_again(parent.0) {
            true => reply.entry(&self.config.timeout, &self.told(parent, found.attr()), generation),
            false => reply.error(errno(&Error::Stale)),
        }
    }

    /// What the sender of a request may reach.
    pub(super) fn access(&self, request: &Request) -> Access {
        self.view.access(Some(privilege::asking(request)), self.root)
    }

    /// How much of the history a user may learn. The user who runs the daemon may learn everything.
    pub(super) fn access_of(&self, asking: Asking) -> Access {
        self.view.access(Some(asking).filter(|asking| !privilege::may_all(asking.uid)), self.root)
    }

    /// The meaning of a name in a directory at a time, if the asker may reach it: all directories on the way
    /// to it then, with their permissions of then, let the asker pass. The kernel has checked the way as it
    /// is now, and checks the past from there on. `None`: the asker may not reach it, and may not learn
    /// either whether there was such a name.
    pub(super) fn lookup_when(
        &self,
        request: &Request,
        view: &View,
        directory: InodeNo,
        name: &[u8],
        when: &When,
    ) -> yore_fs::Result<Option<Node>> {
        self.saves.settle();
        let access = self.access(request);
        let found = match view.lookup_at(directory, name, when) {
            Ok(node) => {
                if access.reaches_inode(node.inode(), Some(directory), node.event())? {
                    return Ok(Some(node));
                }
                Error::NotFound
            }
            Err(error @ Error::NotFound) => error,
            Err(error) => return Err(error),
        };
        // Unless the asker may see a name for it, the answer is the same whether there was one or not.
        match view.event_for(directory, when) {
            Ok(_) if name == b"." => Ok(None),
            Ok(event) if !access.reaches(directory, Some(event))? => Ok(None),
            Ok(_) | Err(Error::NotFound) => Err(found),
            Err(error) => Err(error),
        }
    }

    /// The meaning of a name with a time; `None`: the asker may not reach it.
    pub(super) fn entry_at_time(&self, parent: INodeNo, name: &[u8], node: Option<&Node>, reply: ReplyEntry) {
        let Some(node) = node else { return reply.error(Errno::EACCES) };
        let (attr, timeout) = self.past_entry(parent, Some(name), node);
        reply.entry(&timeout, &attr, Generation(u64::from(node.attr().incarnation)));
    }

    /// There is no such name.
    pub(super) fn no_entry(&self, reply: ReplyEntry) {
        match self.config.negative_timeout > Duration::ZERO {
            // Node 0 with a lifetime: the kernel remembers that there is no such name.
            true => reply.entry(&self.config.negative_timeout, &no_attr(), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    /// Why a name of the present cannot be removed, moved or replaced: `with`, if the name has a time and
    /// leads to the past.
    pub(super) fn of_past(
        &self,
        call: &'static str,
        (view, directory): (&View, InodeNo),
        name: &OsStr,
        with: Errno,
    ) -> Option<Errno> {
        let name = name.as_bytes();
        // The past refuses all changes by itself. Most names have no time, and need no look-up here.
        if view.event().is_some() || yore_fs::split_time(name).is_none() {
            return None;
        }
        let literal = || view.lookup(directory, name);
        match yore_fs::resolve_name(name, literal, |of, when| view.lookup_at(directory, of, when)) {
            Ok(Resolved::AtTime(_)) => Some(with),
            Ok(Resolved::Literal(_) | Resolved::NothingThen | Resolved::Nothing) => None,
            Err(error) => Some(self.number(call, directory, error)),
        }
    }

    /// `.` and `..` come from an NFS server that holds only a number.
    pub(super) fn find(
        &self,
        node: INodeNo,
        view: &View,
        directory: InodeNo,
        name: &[u8],
    ) -> yore_fs::Result<Node> {
        match name {
            b"." => view.node(directory, None),
            // The way up from a name with a time leads to another time, and the number does not tell which.
            b".." if PastNodes::is_past(node.0) => Err(Error::Stale),
            b".." => view.node(view.parent(directory)?, None),
            name => view.lookup(directory, name),
        }
    }
}

/// The number that a listing shows for an entry: the one that a look-up would return.
pub(super) fn listed_number(directory: INodeNo, view: &View, item: &DirItem<'_>) -> INodeNo {
    match (PastNodes::is_past(directory.0), item.name) {
        (false, _) => INodeNo(item.inode.0),
        (true, b"." | b"..") => directory,
        (true, _) => {
            let key = Key::Below { parent: directory.0, inode: item.inode };
            INodeNo(key.number(item.kind, view.event().unwrap_or_default(), item.inode))
        }
    }
}
