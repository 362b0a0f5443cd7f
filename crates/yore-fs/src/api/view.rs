//! A view of the volume's tree, as it is or as it was, and what reads of it: one method per file-system call on inodes and names. What changes
//! the present, and what is about the past itself, is above, in [`crate::api`].

mod pass;

pub(crate) use pass::is_below;

use crate::history::read::at_time::{self, PastInode};
use crate::history::record::Seeing;
use crate::ops::{self, InUse};
use crate::store::Store;
use crate::time::When;
use crate::{file, xattr, Attr, Behalf, DirItem, Error, InodeNo, Result, SeekTo};
use std::borrow::Cow;
use std::sync::Arc;
use yore_format::Number;

/// The tree of an open volume, for servers and for programs that think in inodes; see [`crate::Volume`] for paths. It is the
/// present, which can be changed, or, from [`View::as_of`], what a cut has seen, which cannot: whatever would change it fails with
/// [`Error::ReadOnly`].
///
/// Cheap to clone. All methods take `&self` and may be called from any number of threads. Inode numbers are stable for
/// the life of a file; an operation on a number whose inode is gone fails with [`Error::Stale`]. When the last clone is
/// dropped the volume is closed as by [`View::close`].
///
/// Nothing here checks permissions: a view has the rights of the process that opened the volume, and a server checks
/// those of its clients (a FUSE mount leaves that to the kernel).
#[derive(Clone)]
pub struct View {
    inner: Arc<Inner>,
    /// The cut as of which the tree is seen; `None`: the present.
    at: Option<Number>,
    /// It belongs to the caller who has closed the gate, and passes it.
    inside: bool,
    /// Whose requests are made with it.
    behalf: Behalf,
}

struct Inner {
    store: Arc<Store>,
    /// Closes the volume. What that takes stands above.
    close: fn(&Arc<Store>) -> Result<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(e) = (self.close)(&self.store) {
            tracing::error!("closing the volume: {e}");
        }
    }
}

/// An inode in use. While a `Node` lives its inode stays, also without a name; dropping the last one of an unlinked
/// inode frees it. One of the past is there in any case, until its cut is forgotten.
pub struct Node(Known);

enum Known {
    Live(InUse),
    Past { view: View, inode: PastInode },
}

impl Node {
    /// Its number.
    pub fn inode(&self) -> InodeNo {
        self.attr().inode
    }

    /// Its attributes when the node was obtained.
    pub fn attr(&self) -> &Attr {
        match &self.0 {
            Known::Live(live) => &live.attr,
            Known::Past { inode, .. } => &inode.attr,
        }
    }

    /// The cut as of which it is seen; `None`: the present.
    pub fn cut(&self) -> Option<Number> {
        match &self.0 {
            Known::Live(_) => None,
            Known::Past { view, .. } => view.at,
        }
    }

    /// As [`View::read`], without looking the inode up.
    ///
    /// # Errors
    /// As [`View::read`].
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match &self.0 {
            Known::Live(live) => {
                let _passage = live.store.gate.enter(|at| pass::is_below(&live.store, live.cell.no, at))?;
                ops::read(&live.store, &live.cell, offset, buf)
            }
            Known::Past { view, inode: PastInode { version: Some(version), attr } } => {
                let Some(seen) = view.seen()? else { return Err(Error::Stale) };
                match at_time::read_from(view.store(), version, offset, buf) {
                    // Files were expunged that have had its number, perhaps others.
                    Err(Error::Stale) => at_time::read(view.store(), attr.inode, seen.cut, offset, buf),
                    other => other,
                }
            }
            Known::Past { view, inode } => view.read(inode.attr.inode, offset, buf),
        }
    }

    /// Keeps the inode beyond this value's life, until as many [`View::release`]: what a FUSE lookup count is. What was needs no
    /// such thing.
    pub fn into_held(self) -> Attr {
        match self.0 {
            Known::Live(live) => {
                live.store.inodes.hold(live.cell.no);
                live.attr
            }
            Known::Past { inode, .. } => inode.attr,
        }
    }

    /// The inode of the present.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] for one of the past.
    pub(crate) fn live(&self) -> Result<&InUse> {
        match &self.0 {
            Known::Live(live) => Ok(live),
            Known::Past { .. } => Err(Error::ReadOnly),
        }
    }
}

impl From<InUse> for Node {
    fn from(live: InUse) -> Node {
        Node(Known::Live(live))
    }
}

impl View {
    /// The present of an open volume, which `close` closes when the last view of it goes.
    pub(crate) fn new(store: Arc<Store>, close: fn(&Arc<Store>) -> Result<()>) -> View {
        View { inner: Arc::new(Inner { store, close }), at: None, inside: false, behalf: Behalf::Owner }
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.inner.store
    }

    /// The store, to change the present.
    pub(crate) fn live(&self) -> Result<&Arc<Store>> {
        match self.at {
            None => Ok(self.store()),
            Some(_) => Err(Error::ReadOnly),
        }
    }

    pub(crate) fn past_node(&self, inode: PastInode) -> Node {
        Node(Known::Past { view: self.clone(), inode })
    }

    /// The cut as of which the tree is seen; `None`: the present.
    pub fn cut(&self) -> Option<Number> {
        self.at
    }

    /// The cut as of which the tree is seen, kept from being forgotten as long as this is held, and from being given up for some
    /// time.
    fn seen(&self) -> Result<Option<Seeing<'_>>> {
        let Some(cut) = self.at else { return Ok(None) };
        let seeing = self.store().past.see(cut)?;
        self.store().past.note_reading(cut);
        Ok(Some(seeing))
    }

    /// The same view for requests of somebody else: what history a full volume may give up for them.
    pub fn on_behalf_of(&self, behalf: Behalf) -> View {
        View { behalf, ..self.clone() }
    }

    /// Whose requests are made with this view.
    pub fn behalf(&self) -> Behalf {
        self.behalf
    }

    /// The same volume's present.
    pub fn present(&self) -> View {
        View { at: None, inside: false, ..self.clone() }
    }

    /// The same volume's present, for the caller who has closed the gate.
    pub(crate) fn inside(&self) -> View {
        View { inside: true, ..self.present() }
    }

    /// The tree as of a cut. Only below the directory that was cut everything is as it was then. Once the cut is forgotten, calls on
    /// it fail with [`Error::Stale`].
    pub fn as_of(&self, cut: Number) -> View {
        View { at: Some(cut), inside: false, ..self.clone() }
    }

    /// The view in which a node was found, this one or one of the same volume as of a cut.
    pub fn of(&self, node: &Node) -> Cow<'_, View> {
        match node.cut() {
            same if same == self.at => Cow::Borrowed(self),
            at => Cow::Owned(View { at, inside: false, ..self.clone() }),
        }
    }

    /// Whether the volume was opened read-only.
    pub fn read_only(&self) -> bool {
        self.store().read_only || self.at.is_some()
    }

    /// The root directory's number.
    pub fn root(&self) -> InodeNo {
        self.store().meta.found().root_directory
    }

    /// The node for a number obtained earlier (an NFS handle).
    ///
    /// # Errors
    /// [`Error::Stale`] if the inode is gone or, where one is given, has another incarnation.
    pub fn node(&self, inode: InodeNo, incarnation: Option<u32>) -> Result<Node> {
        let _passage = self.enter(inode)?;
        if let Some(seen) = self.seen()? {
            let inode = at_time::inode(self.store(), inode, seen.cut)?;
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

    /// Gives back `count` holds taken by [`Node::into_held`] of nodes of this view.
    pub fn release(&self, inode: InodeNo, count: u64) {
        if self.at.is_some() {
            return;
        }
        if let Some(cell) = self.store().inodes.release(inode, count) {
            self.store().let_go(&cell);
        }
    }

    /// What a name in a directory means; also `.` and `..`.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::NameTooLong`].
    pub fn lookup(&self, directory: InodeNo, name: &[u8]) -> Result<Node> {
        let _passage = self.enter_names(&[(directory, name)])?;
        match self.seen()? {
            None => Ok(Node(Known::Live(ops::lookup(self.store(), directory, name)?))),
            Some(seen) => Ok(self.past_node(at_time::lookup(self.store(), directory, name, seen.cut)?)),
        }
    }

    /// What a name meant in a directory of this view at a time: a node as of the last cut up to then that has seen the directory, or
    /// of the inode itself that the name means. `.` is the directory.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such cut, or nothing was there then.
    pub fn look_back(&self, directory: InodeNo, name: &[u8], when: &When) -> Result<Node> {
        let _passage = self.enter(directory)?;
        let (cut, inode) = at_time::look_back(self.store(), directory, self.cut(), name, when)?;
        Ok(self.as_of(cut).past_node(inode))
    }

    /// The inode's attributes.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn getattr(&self, inode: InodeNo) -> Result<Attr> {
        let _passage = self.enter(inode)?;
        if let Some(seen) = self.seen()? {
            return at_time::attr(self.store(), inode, seen.cut);
        }
        let cell = self.store().cell(inode)?;
        let state = cell.state.read();
        state.check_alive()?;
        Ok(state.attr(inode))
    }

    /// Notes a read that somebody else has served from a cache of his own: the time of access changes as it does with
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

    /// The directory's parent; the root's is itself.
    ///
    /// # Errors
    /// [`Error::NotADirectory`], [`Error::Stale`].
    pub fn parent(&self, directory: InodeNo) -> Result<InodeNo> {
        let _passage = self.enter(directory)?;
        if let Some(seen) = self.seen()? {
            return at_time::parent(self.store(), directory, seen.cut);
        }
        let cell = self.store().cell(directory)?;
        let state = cell.state.read();
        state.check_alive()?;
        state.check_directory()?;
        Ok(state.inode.parent)
    }

    /// Calls `each` for the entries after `cookie` (0: from the start) until it returns false. `.` and `..` come first.
    /// Entries that are there throughout come exactly once; `each` runs without locks.
    ///
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
            Some(cut) => {
                self.store().past.note_reading(cut);
                at_time::readdir(self.store(), directory, cookie, cut, each)
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
        let Some(cut) = self.at else {
            let live = |node: Option<InUse>| node.map(|node| Node(Known::Live(node)));
            return ops::readdir(self.store(), directory, cookie, true, &mut |item, n| each(item, live(n)));
        };
        self.store().past.note_reading(cut);
        let mut failed = None;
        at_time::readdir(self.store(), directory, cookie, cut, &mut |item| {
            if matches!(item.name, b"." | b"..") {
                return each(item, None);
            }
            match at_time::inode(self.store(), item.inode, cut) {
                Ok(inode) => each(item, Some(self.past_node(inode))),
                // It is excluded, and was changed just now; or it was expunged.
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
            Some(seen) => at_time::readlink(self.store(), inode, seen.cut),
        }
    }

    /// Fills `buf` from `offset`; returns the count, less than asked only at the end of the file.
    ///
    /// # Errors
    /// [`Error::IsADirectory`], [`Error::Invalid`] for other kinds; damage and device errors.
    pub fn read(&self, inode: InodeNo, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let _passage = self.enter(inode)?;
        match self.seen()? {
            None => ops::read(self.store(), &self.store().cell(inode)?, offset, buf),
            Some(seen) => at_time::read(self.store(), inode, seen.cut, offset, buf),
        }
    }

    /// The next data or hole at or after `offset`.
    ///
    /// # Errors
    /// [`Error::NoDataThere`] beyond the end, or if no data follows.
    pub fn seek(&self, inode: InodeNo, offset: u64, to: SeekTo) -> Result<u64> {
        let _passage = self.enter(inode)?;
        if let Some(seen) = self.seen()? {
            return at_time::seek(self.store(), inode, seen.cut, offset, to);
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
            Some(seen) => at_time::get_xattr(self.store(), inode, seen.cut, name),
        }
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn listxattr(&self, inode: InodeNo) -> Result<Vec<Vec<u8>>> {
        let _passage = self.enter(inode)?;
        if let Some(seen) = self.seen()? {
            return at_time::list_xattrs(self.store(), inode, seen.cut);
        }
        let cell = self.store().cell(inode)?;
        let state = cell.state.read();
        state.check_alive()?;
        xattr::list(self.store(), &state, inode)
    }
}
