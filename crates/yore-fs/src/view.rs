//! A view of the volume's tree, as it is or as it was: operations on inodes and names, one method per file-system call. What is about the
//! past itself is in [`past`].

mod pass;
mod past;

pub use past::NewSnapshot;

pub(crate) use pass::is_below;

use crate::history::{self, PastInode};
use crate::inode::InodeState;
use crate::ops::{self, InUse, NewFile, Remove};
use crate::past::Seeing;
use crate::policy::Naming;
use crate::rollback;
use crate::room::{with_room, Want};
use crate::store::Store;
use crate::{
    file, xattr, Attr, Behalf, Caller, DirItem, Error, FallocateMode, FileKind, InodeNo, MkfsOptions,
    MountOptions, RenameMode, Result, SeekTo, SetAttr, SetXattrMode, Statfs, VolumeInfo, WriteMode,
};
use std::borrow::Cow;
use std::sync::Arc;
use yore_device::Device;
use yore_format::{InodeFlags, Number, Policy, Superblock, VolumeState, FORMAT_MAJOR, FORMAT_MINOR};
use yore_meta::LogStatus;

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
    /// It is of who has closed the gate, and passes it.
    inside: bool,
    /// Whose requests are made with it.
    behalf: Behalf,
}

struct Inner {
    store: Arc<Store>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(e) = self.store.close() {
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
                match history::read_from(view.store(), version, offset, buf) {
                    // Files were expunged that have had its number, perhaps others.
                    Err(Error::Stale) => history::read(view.store(), attr.inode, seen.cut, offset, buf),
                    other => other,
                }
            }
            Known::Past { view, inode } => view.read(inode.attr.inode, offset, buf),
        }
    }

    /// As [`View::write`], without looking the inode up.
    ///
    /// # Errors
    /// As [`View::write`].
    pub fn write(&self, offset: u64, data: &[u8], mode: WriteMode) -> Result<u64> {
        let Known::Live(live) = &self.0 else { return Err(Error::ReadOnly) };
        live.store.check_writable()?;
        let _passage = live.store.gate.enter(|at| pass::is_below(&live.store, live.cell.no, at))?;
        let blocks = || file::missing(&live.store, &live.cell, offset, data.len() as u64, mode.append);
        let want = Want { what: "a write", behalf: Behalf::Owner, blocks: &blocks };
        with_room(&live.store, &want, |store| ops::write(store, &live.cell, offset, data, mode))
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
}

impl View {
    /// Makes a volume on `device`, over all of it, in constant time. A policy with an interval begins with a snapshot of the root
    /// directory, so whatever changes from then on is seen by a snapshot.
    ///
    /// # Errors
    /// [`Error::Refused`] if a volume is there and `force` is not given, if the device is too small (16 MiB), too large
    /// (128 TiB) or read-only; [`Error::Device`].
    pub fn mkfs(device: &Arc<dyn Device>, options: &MkfsOptions) -> Result<VolumeInfo> {
        if !options.force && yore_meta::holds_volume(&**device)? {
            return Err(Error::Refused(format!(
                "{} already holds a Yore volume; making another one destroys it: use --force if that is meant",
                device.describe()
            )));
        }
        let superblock = yore_meta::mkfs(
            &**device,
            &yore_meta::MkfsOptions {
                uuid: options.uuid,
                hash_seed: options.hash_seed,
                label: options.label.clone(),
                engine: options.engine,
                owner: options.owner,
                permissions: options.permissions,
                now: crate::clock::now(),
                log_blocks: options.log_size.map_or_else(
                    || yore_meta::default_log_blocks(device.size() / yore_format::BLOCK_SIZE as u64),
                    |bytes| bytes.div_ceil(yore_format::BLOCK_SIZE as u64),
                ),
            },
        )?;
        if options.policy == Policy::default() {
            return Ok(info_of(&superblock));
        }
        let view = View::open(device.clone(), &MountOptions::default())?;
        let set = view.set_policy(view.root(), &options.policy);
        let info = view.info();
        let closed = view.close();
        set.and(closed).map(|()| info)
    }

    /// Opens the volume on `device`. Under the default engine nothing is repaired and nothing scanned, whatever the
    /// size and however it was left.
    ///
    /// # Errors
    /// [`Error::Refused`] for what is no volume, is truncated, of another version, must be checked first, or cannot be
    /// written; [`Error::Corruption`], [`Error::Device`].
    pub fn open(device: Arc<dyn Device>, options: &MountOptions) -> Result<View> {
        let store = Store::open(device, options)?;
        let view = View { inner: Arc::new(Inner { store }), at: None, inside: false, behalf: Behalf::Owner };
        rollback::finish_all(&view)?;
        Ok(view)
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

    /// Changes the present, for which little room is needed.
    fn change<R>(&self, f: impl Fn(&Arc<Store>) -> Result<R>) -> Result<R> {
        with_room(self.live()?, &Want::little(self.behalf), f)
    }

    /// Changes the content of a file, for which so many data blocks are needed in all.
    fn fill<R>(
        &self,
        what: &'static str,
        blocks: &dyn Fn() -> Result<u64>,
        f: impl Fn(&Arc<Store>) -> Result<R>,
    ) -> Result<R> {
        with_room(self.live()?, &Want { what, behalf: self.behalf, blocks }, f)
    }

    fn past_node(&self, inode: PastInode) -> Node {
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

    /// The same volume's present, for who has closed the gate.
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

    /// What the log that makes fsync cheap is doing.
    pub fn log_status(&self) -> LogStatus {
        self.store().meta.log_status()
    }

    /// Writes everything, marks the volume clean, and stops. Later changes are refused; closing again does nothing.
    ///
    /// # Errors
    /// What could not be written is said; the volume is then as its last complete generation left it.
    pub fn close(&self) -> Result<()> {
        self.store().close()
    }

    /// Whether the volume was opened read-only.
    pub fn read_only(&self) -> bool {
        self.store().read_only || self.at.is_some()
    }

    /// Makes the volume so many bytes long, or as long as its groups allow, while it is used; its device with it, if that can be
    /// made longer. Durable when this returns. Returns whether it was shorter.
    ///
    /// ```
    /// # fn main() -> yore_fs::Result<()> {
    /// let volume = yore_fs::Volume::memory(64 << 20)?;
    /// assert!(!volume.view().lengthen(32 << 20)?);
    /// // Memory is as long as it is.
    /// assert!(volume.view().lengthen(128 << 20).is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Refused`] if the device cannot be made as long, or the volume would be too long; [`Error::ReadOnly`]; damage and device
    /// errors.
    pub fn lengthen(&self, bytes: u64) -> Result<bool> {
        let store = self.live()?;
        store.alloc.lengthen(&store.meta, bytes)
    }

    /// Makes the volume so many bytes long, if nothing lies beyond; the device stays as it is. For who alone uses the volume, and closes it
    /// behind this: only then it is durable in both superblocks, and the device may be shortened. Returns whether it was longer.
    ///
    /// # Errors
    /// [`Error::Refused`] if something lies beyond: then nothing was changed; [`Error::ReadOnly`]; damage and device errors.
    pub fn shorten(&self, bytes: u64) -> Result<bool> {
        let store = self.live()?;
        store.sync()?;
        store.alloc.shorten(&store.meta, bytes)
    }

    /// Erases what is left on the medium of all that is gone: history that was given up, files that were removed, blocks, names and targets of
    /// links that something else has replaced. Finishes what is being given up before. `ask` is asked now and then whether to go on. What the present or a
    /// kept snapshot has stays. Takes time for all that is free and in use as metadata; durable when this returns.
    ///
    /// What lies below the device is beyond reach: copies that a host's file system or a solid-state disk keeps, and
    /// backups.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; damage and device errors.
    pub fn shred(&self, ask: &mut dyn FnMut() -> std::ops::ControlFlow<()>) -> Result<crate::Shredded> {
        crate::shred::shred(self.live()?, ask)
    }

    /// Bytes of the device underneath, which may be more than the volume uses.
    pub fn device_size(&self) -> u64 {
        self.store().meta.device().size()
    }

    /// Facts about the volume, as of now.
    pub fn info(&self) -> VolumeInfo {
        self.store().settle_set_aside();
        let meta = &self.store().meta;
        let mut info = info_of(meta.found());
        let geometry = meta.geometry();
        (info.size, info.groups) = (geometry.blocks * yore_format::BLOCK_SIZE as u64, geometry.groups());
        info.engine = meta.engine();
        info.zones = meta.totals.zones.get() as u32;
        info.metadata_blocks = meta.totals.metadata_blocks.get();
        info.inodes = meta.totals.inodes.get();
        info.free_blocks = meta.totals.free_blocks.get();
        if !self.store().read_only {
            info.generation = meta.completed_generation();
        }
        info
    }

    /// Space. What `blocks_available` promises can be written as data of one file; for some of it a full volume gives up history, of
    /// what it may for this view's requests.
    pub fn statfs(&self) -> Statfs {
        self.store().statfs(self.behalf)
    }

    /// All that was done before is on the medium when this returns.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::Stopped`]; never [`Error::NoSpace`] for data that was accepted.
    pub fn sync(&self) -> Result<()> {
        self.store().sync()
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
            let inode = history::inode(self.store(), inode, seen.cut)?;
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
            Some(seen) => Ok(self.past_node(history::lookup(self.store(), directory, name, seen.cut)?)),
        }
    }

    /// The inode's attributes.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn getattr(&self, inode: InodeNo) -> Result<Attr> {
        let _passage = self.enter(inode)?;
        if let Some(seen) = self.seen()? {
            return history::attr(self.store(), inode, seen.cut);
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

    /// Changes attributes; returns all of them.
    ///
    /// # Errors
    /// [`Error::IsADirectory`], [`Error::Invalid`] and [`Error::FileTooLarge`] for a size; [`Error::ReadOnly`].
    pub fn setattr(&self, caller: &Caller, inode: InodeNo, set: &SetAttr) -> Result<Attr> {
        let _passage = self.enter(inode)?;
        self.change(|store| ops::set_attr(store, caller, inode, set))
    }

    /// Sets the flags that people choose (`chattr`), of a file or directory; those not given are taken away. What they forbid they
    /// forbid to every caller. Who may set them is for the caller to decide: on Linux the owner, and for the two that
    /// protect only root.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for other kinds, and of what is immutable and stays so; [`Error::Invalid`] for other flags;
    /// [`Error::ReadOnly`], [`Error::NoSpace`].
    pub fn set_flags(&self, inode: InodeNo, flags: InodeFlags) -> Result<()> {
        let _passage = self.enter(inode)?;
        self.change(|store| ops::set_flags(store, inode, flags))
    }

    /// The directory's parent; the root's is itself.
    ///
    /// # Errors
    /// [`Error::NotADirectory`], [`Error::Stale`].
    pub fn parent(&self, directory: InodeNo) -> Result<InodeNo> {
        let _passage = self.enter(directory)?;
        if let Some(seen) = self.seen()? {
            return history::parent(self.store(), directory, seen.cut);
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
                history::readdir(self.store(), directory, cookie, cut, each)
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
        history::readdir(self.store(), directory, cookie, cut, &mut |item| {
            if matches!(item.name, b"." | b"..") {
                return each(item, None);
            }
            match history::inode(self.store(), item.inode, cut) {
                Ok(inode) => each(item, Some(self.past_node(inode))),
                Err(e) => {
                    failed = Some(e);
                    false
                }
            }
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Creates a file of any kind but directory and symbolic link. `permissions` before umask and default ACL; `rdev` is
    /// the number of a device.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NotFound`] (the directory is gone), [`Error::NoSpace`], [`Error::NameTooLong`],
    /// [`Error::ReadOnly`].
    pub fn create(
        &self,
        caller: &Caller,
        directory: InodeNo,
        name: &[u8],
        kind: FileKind,
        permissions: u32,
        rdev: u32,
    ) -> Result<Node> {
        let _passage = self.enter(directory)?;
        if matches!(kind, FileKind::Directory | FileKind::Symlink) {
            return Err(Error::Invalid { what: "directories and symbolic links have calls of their own" });
        }
        let new = NewFile { kind, permissions, rdev, target: b"" };
        self.change(|store| ops::create(store, caller, directory, name, &new))
            .map(|node| Node(Known::Live(node)))
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// As [`View::create`]; [`Error::TooManyLinks`].
    pub fn mkdir(&self, caller: &Caller, directory: InodeNo, name: &[u8], permissions: u32) -> Result<Node> {
        let _passage = self.enter(directory)?;
        let new = NewFile { kind: FileKind::Directory, permissions, rdev: 0, target: b"" };
        self.change(|store| ops::create(store, caller, directory, name, &new))
            .map(|node| Node(Known::Live(node)))
    }

    /// Creates a symbolic link.
    ///
    /// # Errors
    /// As [`View::create`]; [`Error::NameTooLong`] for a target above 4,095 bytes.
    pub fn symlink(&self, caller: &Caller, directory: InodeNo, name: &[u8], target: &[u8]) -> Result<Node> {
        let _passage = self.enter(directory)?;
        let new = NewFile { kind: FileKind::Symlink, permissions: 0o777, rdev: 0, target };
        self.change(|store| ops::create(store, caller, directory, name, &new))
            .map(|node| Node(Known::Live(node)))
    }

    /// A symbolic link's target.
    ///
    /// # Errors
    /// [`Error::Invalid`] for other kinds.
    pub fn readlink(&self, inode: InodeNo) -> Result<Vec<u8>> {
        let _passage = self.enter(inode)?;
        match self.seen()? {
            None => ops::readlink(self.store(), inode),
            Some(seen) => history::readlink(self.store(), inode, seen.cut),
        }
    }

    /// Gives a file another name.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for directories, [`Error::Exists`], [`Error::TooManyLinks`], [`Error::NoSpace`].
    pub fn link(&self, inode: InodeNo, directory: InodeNo, name: &[u8]) -> Result<Node> {
        let _passage = self.enter_both(inode, directory)?;
        let node = self.change(|store| ops::link(store, inode, directory, name))?;
        Naming::of_file(self.store(), &node, self.behalf)?.changed(self.store())?;
        Ok(Node(Known::Live(node)))
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsADirectory`].
    pub fn unlink(&self, directory: InodeNo, name: &[u8]) -> Result<()> {
        let _passage = self.enter_names(&[(directory, name)])?;
        let naming = Naming::of(self.live()?, directory, name, self.behalf)?;
        self.change(|store| ops::remove(store, directory, name, Remove::File))?;
        naming.changed(self.store())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::NotEmpty`].
    pub fn rmdir(&self, directory: InodeNo, name: &[u8]) -> Result<()> {
        let _passage = self.enter_names(&[(directory, name)])?;
        self.change(|store| ops::remove(store, directory, name, Remove::Directory))
    }

    /// Renames, atomically.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Exists`] (`NoReplace`), [`Error::NotEmpty`], [`Error::IsADirectory`],
    /// [`Error::NotADirectory`], [`Error::Invalid`] (a directory into itself), [`Error::NoSpace`].
    pub fn rename(
        &self,
        from: InodeNo,
        name: &[u8],
        to: InodeNo,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        let _passage = self.enter_names(&[(from, name), (to, new_name)])?;
        let store = self.live()?;
        let moves = Naming::of(store, from, name, self.behalf)?;
        let replaced = Naming::of(store, to, new_name, self.behalf)?;
        self.change(|store| ops::rename(store, from, name, to, new_name, mode))?;
        replaced.replaced_by(store, &moves)?;
        moves.changed(store)
    }

    /// Fills `buf` from `offset`; returns the count, less than asked only at the end of the file.
    ///
    /// # Errors
    /// [`Error::IsADirectory`], [`Error::Invalid`] for other kinds; damage and device errors.
    pub fn read(&self, inode: InodeNo, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let _passage = self.enter(inode)?;
        match self.seen()? {
            None => ops::read(self.store(), &self.store().cell(inode)?, offset, buf),
            Some(seen) => history::read(self.store(), inode, seen.cut, offset, buf),
        }
    }

    /// Writes all of `data`; returns the offset it went to.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::FileTooLarge`]; nothing of `data` is then written if it is at most 4 MiB, or goes to
    /// the end; of more, whole pieces of 4 MiB from the start may be.
    pub fn write(&self, inode: InodeNo, offset: u64, data: &[u8], mode: WriteMode) -> Result<u64> {
        let _passage = self.enter(inode)?;
        let store = self.live()?;
        store.check_writable()?;
        let blocks = || file::missing(store, &*store.cell(inode)?, offset, data.len() as u64, mode.append);
        self.fill("a write", &blocks, |store| ops::write(store, &store.cell(inode)?, offset, data, mode))
    }

    /// Allocates, frees or zeroes a range.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; [`Error::NeverFits`] for more than there would be room for without any history, which then stays;
    /// [`Error::FileTooLarge`], [`Error::Invalid`] for an empty range.
    pub fn fallocate(&self, inode: InodeNo, offset: u64, len: u64, mode: FallocateMode) -> Result<()> {
        let _passage = self.enter(inode)?;
        let store = self.live()?;
        store.check_writable()?;
        let cell = store.cell(inode)?;
        let at = if matches!(mode, FallocateMode::Allocate { .. }) { u64::MAX } else { 0 };
        ops::check_writes(&cell, at)?;
        let blocks = || match mode {
            FallocateMode::PunchHole => Ok(0),
            _ => file::holes(store, &cell, offset, len),
        };
        self.fill("an allocation", &blocks, |store| {
            file::fallocate(store, &cell, offset, len, mode, &mut InodeState::touch_mtime)
        })
    }

    /// The next data or hole at or after `offset`.
    ///
    /// # Errors
    /// [`Error::NoDataThere`] beyond the end, or if no data follows.
    pub fn seek(&self, inode: InodeNo, offset: u64, to: SeekTo) -> Result<u64> {
        let _passage = self.enter(inode)?;
        if let Some(seen) = self.seen()? {
            return history::seek(self.store(), inode, seen.cut, offset, to);
        }
        let cell = self.store().cell(inode)?;
        ops::regular(&cell)?;
        file::seek(self.store(), &cell, offset, to)
    }

    /// Copies within the volume; returns the bytes copied, fewer at the source's end.
    ///
    /// # Errors
    /// As [`View::write`]; [`Error::Invalid`] if the ranges overlap in one file.
    pub fn copy_file_range(
        &self,
        from: InodeNo,
        from_offset: u64,
        to: InodeNo,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let _passage = self.enter_both(from, to)?;
        let store = self.live()?;
        store.check_writable()?;
        let (source, target) = (store.cell(from)?, store.cell(to)?);
        ops::regular(&source)?;
        ops::check_writes(&target, to_offset)?;
        let touch = InodeState::touch_mtime;
        let blocks = || {
            let len = len.min(source.state.read().inode.size.saturating_sub(from_offset));
            file::missing(store, &target, to_offset, len, false)
        };
        self.fill("a copy", &blocks, |store| {
            file::copy_range(store, &source, from_offset, &target, to_offset, len, &mut { touch })
        })
    }

    /// Durable when it returns: content and size, all attributes unless `data_only`, and the names the file has.
    /// All that was done before to names and attributes is durable then, too. Costs one write and one flush if the volume
    /// has a log, and concurrent callers share them; else a generation.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::Stopped`], and errors of earlier write-back of this file.
    pub fn fsync(&self, inode: InodeNo, data_only: bool) -> Result<()> {
        let store = self.store();
        if self.read_only() {
            return Ok(());
        }
        let cell = store.cell(inode)?;
        let regular = cell.state.read().inode.is_regular();
        if regular {
            file::make_ready(store, &cell)?;
        }
        if !data_only {
            store.store_if_dirty(&cell)?;
        }
        store.force()
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// [`Error::NoAttribute`], [`Error::Unsupported`] for an unknown namespace.
    pub fn getxattr(&self, inode: InodeNo, name: &[u8]) -> Result<Vec<u8>> {
        let _passage = self.enter(inode)?;
        match self.seen()? {
            None => ops::get_xattr(self.store(), inode, name),
            Some(seen) => history::get_xattr(self.store(), inode, seen.cut, name),
        }
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NoAttribute`] by `mode`; [`Error::AttributeTooLarge`], [`Error::Unsupported`],
    /// [`Error::NotPermitted`], [`Error::NoSpace`].
    pub fn setxattr(&self, inode: InodeNo, name: &[u8], value: &[u8], mode: SetXattrMode) -> Result<()> {
        let _passage = self.enter(inode)?;
        self.change(|store| ops::set_xattr(store, inode, name, value, mode))
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// Damage and device errors.
    pub fn listxattr(&self, inode: InodeNo) -> Result<Vec<Vec<u8>>> {
        let _passage = self.enter(inode)?;
        if let Some(seen) = self.seen()? {
            return history::list_xattrs(self.store(), inode, seen.cut);
        }
        let cell = self.store().cell(inode)?;
        let state = cell.state.read();
        state.check_alive()?;
        xattr::list(self.store(), &state, inode)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`Error::NoAttribute`], [`Error::Unsupported`].
    pub fn removexattr(&self, inode: InodeNo, name: &[u8]) -> Result<()> {
        let _passage = self.enter(inode)?;
        self.change(|store| ops::remove_xattr(store, inode, name))
    }
}

fn info_of(superblock: &Superblock) -> VolumeInfo {
    VolumeInfo {
        uuid: superblock.uuid,
        label: superblock.label.clone(),
        format: (FORMAT_MAJOR, FORMAT_MINOR),
        engine: superblock.engine,
        size: superblock.volume_blocks * yore_format::BLOCK_SIZE as u64,
        groups: superblock.geometry().groups(),
        zones: superblock.zones,
        metadata_blocks: superblock.metadata_blocks,
        inodes: superblock.inodes,
        free_blocks: superblock.free_blocks,
        generation: superblock.generation.0,
        mount_id: superblock.mount_id,
        state: match superblock.state {
            VolumeState::Clean => "clean",
            VolumeState::InUse => "in use",
            VolumeState::MustBeChecked => "must be checked",
            VolumeState::LeaksPending => "leaks pending",
        },
        created_seconds: superblock.created_seconds,
        written_seconds: superblock.written_seconds,
        log_size: superblock.log_blocks * yore_format::BLOCK_SIZE as u64,
    }
}
