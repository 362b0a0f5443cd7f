//! The calls of a view that read: one method per file-system call on inodes and names.

use super::below::is_below;
use super::handle::{Known, Node, View};
use crate::history::read::at_time::{self, PastInode};
use crate::ops::{self, InUse};
use crate::time::When;
use crate::{file, xattr, Attr, DirItem, Error, InodeNo, Result, SeekTo};

impl Node {
    /// As [`View::read`], without looking the inode up.
    ///
    /// # Errors
    /// As [`View::read`].
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match &self.0 {
            Known::Live(live) => {
                live.store.idle.note();
                let _passage = live.store.gate.enter(|at| is_below(&live.store, live.cell.no, at))?;
                ops::read(&live.store, &live.cell, offset, buf)
            }
            Known::Past { view, inode: PastInode { version: Some(version), attr } } => {
                let Some(seen) = view.seen()? else { return Err(Error::Stale) };
                match at_time::read_from(view.store(), version, offset, buf) {
                    // Files that had its number were expunged; perhaps they were other files.
                    Err(Error::Stale) => at_time::read(view.store(), attr.inode, seen.event, offset, buf),
                    other => other,
                }
            }
            Known::Past { view, inode } => view.read(inode.attr.inode, offset, buf),
        }
    }
}

impl View {
    /// The node for a number that the caller obtained earlier (an NFS handle).
    ///
    /// # Errors
    /// [`Error::Stale`] if the inode is gone or, if the caller gives an incarnation, has another one.
    pub fn node(&self, inode: InodeNo, incarnation: Option<u32>) -> Result<Node> {
        let _passage = self.enter(inode)?;
        if let Some(seen) = self.seen()? {
            let inode = at_time::inode(self.store(), inode, seen.event)?;
            let same = incarnation.is_none_or(|i| i == inode.attr.incarnation);
            return if same { Ok(self.past_node(inode)) } else { Err(Error::Stale) };
        }
        let cell = self.store().cell(inode)?;
        let state = cell.state.read();
        state.check_alive()?;
        let other = incarnation.is_some_and(|i| i != cell.incarnation.0);
        if other || (state.inode.links == 0 && !self.store().inodes.in_use(&cell)) {
            return Err(Error::Stale);
        }
        let node = InUse::new(self.store(), cell.clone(), state.attr(inode));
        drop(state);
        Ok(Node(Known::Live(node)))
    }

    /// Lowers by `count` the lookup count that [`Node::into_counted`] raised for nodes of this view.
    pub fn forget_lookups(&self, inode: InodeNo, count: u64) {
        if self.at.is_some() {
            return;
        }
        if let Some(cell) = self.store().inodes.forget_lookups(inode, count) {
            self.store().let_go(&cell);
        }
    }

    /// What a name in a directory means; `.` and `..` are names, too.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::NameTooLong`].
    pub fn lookup(&self, directory: InodeNo, name: &[u8]) -> Result<Node> {
        let _passage = self.enter_names(&[(directory, name)])?;
        match self.seen()? {
            None => Ok(Node(Known::Live(ops::lookup(self.store(), directory, name)?))),
            Some(seen) => Ok(self.past_node(at_time::lookup(self.store(), directory, name, seen.event)?)),
        }
    }

    /// What a name meant in a directory of this view at a time: a node as of the last event up to then that
    /// has seen the directory, or the inode itself that the name means. `.` is the directory.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such event, or if the name meant nothing then.
    pub fn lookup_at(&self, directory: InodeNo, name: &[u8], when: &When) -> Result<Node> {
        let _passage = self.enter(directory)?;
        let (event, inode) = at_time::lookup_at(self.store(), directory, self.event(), name, when)?;
        Ok(self.as_of(event).past_node(inode))
    }

    /// The inode's attributes.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn getattr(&self, inode: InodeNo) -> Result<Attr> {
        let _passage = self.enter(inode)?;
        if let Some(seen) = self.seen()? {
            return at_time::attr(self.store(), inode, seen.event);
        }
        let cell = self.store().cell(inode)?;
        let state = cell.state.read();
        state.check_alive()?;
        Ok(state.attr(inode))
    }

    /// Notes a read that somebody else has served from a cache: the time of access changes as it does with
    /// [`View::read`].
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn note_read(&self, inode: InodeNo) -> Result<()> {
        if !self.notes_reads() {
            return Ok(());
        }
        let _passage = self.enter(inode)?;
        let cell = self.store().cell(inode)?;
        cell.state.read().check_alive()?;
        ops::age_access_time(self.store(), &cell);
        Ok(())
    }

    /// Whether reads change times of access.
    pub fn notes_reads(&self) -> bool {
        self.at.is_none() && self.store().access_times
    }

    /// The directory's parent; the root is its own parent.
    ///
    /// # Errors
    /// [`Error::NotADirectory`], [`Error::Stale`].
    pub fn parent(&self, directory: InodeNo) -> Result<InodeNo> {
        let _passage = self.enter(directory)?;
        if let Some(seen) = self.seen()? {
            return at_time::parent(self.store(), directory, seen.event);
        }
        let cell = self.store().cell(directory)?;
        let state = cell.state.read();
        state.check_alive()?;
        state.check_directory()?;
        Ok(state.inode.parent)
    }

    /// Calls `each` for the entries after `cookie` (0: from the start) until it returns false. `.` and `..`
    /// come first. Entries that are there all the time come exactly once; no lock is held while `each` runs.
    /// # Errors
    /// [`Error::NotADirectory`].
    pub fn readdir(
        &self,
        directory: InodeNo,
        cookie: u64,
        each: &mut dyn FnMut(DirItem<'_>) -> bool,
    ) -> Result<()> {
        let _passage = self.enter(directory)?;
        match self.at {
            None => ops::readdir(self.store(), directory, cookie, false, &mut |item, _| each(item)),
            Some(event) => {
                self.store().past.note_reading(event);
                at_time::readdir(self.store(), directory, cookie, event, each)
            }
        }
    }

    /// As [`View::readdir`], with each entry's node (none for `.` and `..`).
    ///
    /// # Errors
    /// [`Error::NotADirectory`].
    pub fn readdir_plus(
        &self,
        directory: InodeNo,
        cookie: u64,
        each: &mut dyn FnMut(DirItem<'_>, Option<Node>) -> bool,
    ) -> Result<()> {
        let _passage = self.enter_listing(directory)?;
        let Some(event) = self.at else {
            let live = |node: Option<InUse>| node.map(|node| Node(Known::Live(node)));
            return ops::readdir(self.store(), directory, cookie, true, &mut |item, n| each(item, live(n)));
        };
        self.store().past.note_reading(event);
        let mut failed = None;
        at_time::readdir(self.store(), directory, cookie, event, &mut |item| {
            if matches!(item.name, b"." | b"..") {
                return each(item, None);
            }
            match at_time::inode(self.store(), item.inode, event) {
                Ok(inode) => each(item, Some(self.past_node(inode))),
                // The file is excluded, and was changed just now; or it was expunged.
                Err(Error::NotFound) => true,
                Err(e) => {
                    failed = Some(e);
                    false
                }
            }
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// A symbolic link's target.
    ///
    /// # Errors
    /// [`Error::Invalid`] for other kinds.
    pub fn readlink(&self, inode: InodeNo) -> Result<Vec<u8>> {
        let _passage = self.enter(inode)?;
        match self.seen()? {
            None => ops::readlink(self.store(), inode),
            Some(seen) => at_time::readlink(self.store(), inode, seen.event),
        }
    }

    /// Fills `buf` from `offset`. Returns the count, which is less than the length of `buf` only at the end
    /// of the file.
    ///
    /// # Errors
    /// [`Error::IsADirectory`], [`Error::Invalid`] for other kinds; damage and device errors.
    pub fn read(&self, inode: InodeNo, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let _passage = self.enter(inode)?;
        match self.seen()? {
            None => ops::read(self.store(), &self.store().cell(inode)?, offset, buf),
            Some(seen) => at_time::read(self.store(), inode, seen.event, offset, buf),
        }
    }

    /// The next data or hole at or after `offset`.
    ///
    /// # Errors
    /// [`Error::NoDataThere`] beyond the end, or if no data follows.
    pub fn seek(&self, inode: InodeNo, offset: u64, to: SeekTo) -> Result<u64> {
        let _passage = self.enter(inode)?;
        if let Some(seen) = self.seen()? {
            return at_time::seek(self.store(), inode, seen.event, offset, to);
        }
        let cell = self.store().cell(inode)?;
        ops::regular(&cell)?;
        file::seek(self.store(), &cell, offset, to)
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// [`Error::NoAttribute`], [`Error::Unsupported`] for an unknown namespace.
    pub fn getxattr(&self, inode: InodeNo, name: &[u8]) -> Result<Vec<u8>> {
        let _passage = self.enter(inode)?;
        match self.seen()? {
            None => ops::get_xattr(self.store(), inode, name),
            Some(seen) => at_time::get_xattr(self.store(), inode, seen.event, name),
        }
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn listxattr(&self, inode: InodeNo) -> Result<Vec<Vec<u8>>> {
        let _passage = self.enter(inode)?;
        if let Some(seen) = self.seen()? {
            return at_time::list_xattrs(self.store(), inode, seen.event);
        }
        let cell = self.store().cell(inode)?;
        let state = cell.state.read();
        state.check_alive()?;
        xattr::list(self.store(), &state, inode)
    }
}
