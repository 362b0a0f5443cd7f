//! The calls of a view that change the present: each passes the gate, and makes room when the volume is full
//! ([`crate::history::reclaim::room`]).

use crate::api::copy;
use crate::api::room::with_room;
use crate::api::view::{is_below, Node, View};
use crate::history::policy::NameChange;
use crate::history::reclaim::room::{self, Want};
use crate::ops::{self, NewFile, Remove};
use crate::store::Store;
use crate::{
    file, Attr, Behalf, Caller, Error, FallocateMode, FileKind, InodeNo, RenameMode, Result, SetAttr,
    SetXattrMode, WriteMode,
};
use std::sync::Arc;
use yore_core::inode::{InodeCell, InodeState};
use yore_format::{InodeFlags, BLOCK_SIZE};

/// Puts the data of a file where a record of the log finds it. False: it would have to wait for the device.
type MakeReady<'a> = &'a dyn Fn(&Arc<Store>, &Arc<InodeCell>) -> Result<bool>;

impl Node {
    /// As [`View::write`], without looking the inode up.
    ///
    /// # Errors
    /// As [`View::write`].
    pub fn write(&self, offset: u64, data: &[u8], mode: WriteMode) -> Result<u64> {
        let live = self.live()?;
        live.store.check_writable()?;
        let _passage = live.store.gate.enter(|at| is_below(&live.store, live.cell.no, at))?;
        let blocks = || file::missing(&*live.store, &live.cell, offset, data.len() as u64, mode.append);
        let want = Want { what: "a write", behalf: Behalf::Owner, blocks: &blocks };
        with_room(&live.store, &want, |store| ops::write(store, &live.cell, offset, data, mode))
    }
}

impl View {
    /// Makes a change of the present that needs little room. Returns when it is as durable as the volume was
    /// opened for.
    pub(super) fn change<R>(&self, f: impl Fn(&Arc<Store>) -> Result<R>) -> Result<R> {
        let store = self.live()?;
        let changed = with_room(store, &Want::little(self.behalf()), f)?;
        store.meta.settle()?;
        Ok(changed)
    }

    /// Changes the content of a file. The change needs `blocks` data blocks in all.
    fn fill<R>(
        &self,
        what: &'static str,
        blocks: &dyn Fn() -> Result<u64>,
        f: impl Fn(&Arc<Store>) -> Result<R>,
    ) -> Result<R> {
        with_room(self.live()?, &Want { what, behalf: self.behalf(), blocks }, f)
    }

    /// Changes attributes; returns all of them.
    ///
    /// # Errors
    /// [`Error::IsADirectory`], [`Error::Invalid`] and [`Error::FileTooLarge`] for a size;
    /// [`Error::ReadOnly`].
    pub fn setattr(&self, caller: &Caller, inode: InodeNo, set: &SetAttr) -> Result<Attr> {
        let _passage = self.enter(inode)?;
        self.change(|store| ops::set_attr(store, caller, inode, set))
    }

    /// Sets the flags that people choose (`chattr`) on a file or directory, and takes away those that are not
    /// given. What they forbid they forbid to every caller. The caller of this decides who may set them: on
    /// Linux the owner, and only root for the two that protect.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for other kinds, and for a file that is immutable and stays so;
    /// [`Error::Invalid`] for other flags; [`Error::ReadOnly`], [`Error::NoSpace`].
    pub fn set_flags(&self, inode: InodeNo, flags: InodeFlags) -> Result<()> {
        let _passage = self.enter(inode)?;
        self.change(|store| ops::set_flags(store, inode, flags))
    }

    /// Creates a file of any kind but directory and symbolic link. `permissions` are those before umask and
    /// default ACL; `rdev` is the number of a device.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NotFound`] (the directory is gone), [`Error::NoSpace`],
    /// [`Error::NameTooLong`], [`Error::ReadOnly`].
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
        self.change(|store| ops::create(store, caller, directory, name, &new)).map(Node::from)
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// As [`View::create`]; [`Error::TooManyLinks`].
    pub fn mkdir(&self, caller: &Caller, directory: InodeNo, name: &[u8], permissions: u32) -> Result<Node> {
        let _passage = self.enter(directory)?;
        let new = NewFile { kind: FileKind::Directory, permissions, rdev: 0, target: b"" };
        self.change(|store| ops::create(store, caller, directory, name, &new)).map(Node::from)
    }

    /// Creates a symbolic link.
    ///
    /// # Errors
    /// As [`View::create`]; [`Error::NameTooLong`] for a target above 4,095 bytes.
    pub fn symlink(&self, caller: &Caller, directory: InodeNo, name: &[u8], target: &[u8]) -> Result<Node> {
        let _passage = self.enter(directory)?;
        let new = NewFile { kind: FileKind::Symlink, permissions: 0o777, rdev: 0, target };
        self.change(|store| ops::create(store, caller, directory, name, &new)).map(Node::from)
    }

    /// Gives a file another name.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for directories, [`Error::Exists`], [`Error::TooManyLinks`],
    /// [`Error::NoSpace`].
    pub fn link(&self, inode: InodeNo, directory: InodeNo, name: &[u8]) -> Result<Node> {
        let _passage = self.enter_both(inode, directory)?;
        let node = self.change(|store| ops::link(store, inode, directory, name))?;
        NameChange::of_file(self.store(), &node, self.behalf())?.changed(self.store())?;
        Ok(Node::from(node))
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsADirectory`].
    pub fn unlink(&self, directory: InodeNo, name: &[u8]) -> Result<()> {
        let _passage = self.enter_names(&[(directory, name)])?;
        let name_change = NameChange::of(self.live()?, directory, name, self.behalf())?;
        self.change(|store| ops::remove(store, directory, name, Remove::File))?;
        name_change.changed(self.store())
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
        let moves = NameChange::of(store, from, name, self.behalf())?;
        let replaced = NameChange::of(store, to, new_name, self.behalf())?;
        self.change(|store| ops::rename(store, from, name, to, new_name, mode))?;
        replaced.replaced_by(store, &moves)?;
        moves.changed(store)
    }

    /// Writes all of `data`; returns the offset at which it was written.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::FileTooLarge`]; then nothing of `data` was written if it is at most 4
    /// MiB, or goes to the end. Of longer data, whole pieces of 4 MiB from the start may have been written.
    pub fn write(&self, inode: InodeNo, offset: u64, data: &[u8], mode: WriteMode) -> Result<u64> {
        let _passage = self.enter(inode)?;
        let store = self.live()?;
        store.check_writable()?;
        let blocks = || file::missing(&**store, &*store.cell(inode)?, offset, data.len() as u64, mode.append);
        self.fill("a write", &blocks, |store| ops::write(store, &store.cell(inode)?, offset, data, mode))
    }

    /// Allocates, frees or zeroes a range.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; [`Error::NeverFits`] for more than there would be room for without any history
    /// (the history then stays); [`Error::FileTooLarge`], [`Error::Invalid`] for an empty range.
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
            file::fallocate(&**store, &cell, offset, len, mode, &mut InodeState::touch_mtime)
        })?;
        Ok(store.meta.settle()?)
    }

    /// Copies within the volume; returns the bytes copied, which are fewer at the source's end. Whole blocks
    /// are shared by both files where that can be, and take no room for data.
    ///
    /// # Errors
    /// As [`View::write`]; [`Error::NeverFits`] if all of it would not fit without any history that may go:
    /// then nothing was written; [`Error::Invalid`] if the ranges overlap in one file.
    pub fn copy_file_range(
        &self,
        from: InodeNo,
        from_offset: u64,
        to: InodeNo,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        self.copy_from(self, (from, from_offset), (to, to_offset), (len, u64::MAX))
    }

    /// As [`View::copy_file_range`], from a file as `source` shows it, which may be a view of the past of the
    /// same volume. At most `most` of the bytes are read and written; what is shared does not count.
    ///
    /// # Errors
    /// As [`View::copy_file_range`]; [`Error::Invalid`] for another volume; [`Error::Stale`] if the event of
    /// `source` is not kept any more.
    pub fn copy_from(
        &self,
        source: &View,
        (from, from_offset): (InodeNo, u64),
        (to, to_offset): (InodeNo, u64),
        (len, most): (u64, u64),
    ) -> Result<u64> {
        let _passage = match source.event() {
            None => self.enter_both(from, to)?,
            Some(_) => self.enter(to)?,
        };
        let store = self.live()?;
        store.check_writable()?;
        if !self.is_of_same_volume(source) {
            return Err(Error::Invalid { what: "source and target of a copy are on two volumes" });
        }
        let target = store.cell(to)?;
        let from = copy::From { inode: from, event: source.event(), offset: from_offset };
        let len = copy::length(store, from)?.min(len);
        ops::check_writes(&target, to_offset)?;
        let blocks = || {
            let missing = || file::missing(&**store, &target, to_offset, len, false);
            match copy::may_be_shared(from, to_offset) {
                false => missing(),
                true if copy::needs_no_data(store, from.inode, from.event)? => Ok(0),
                true => Ok(missing()?.min(copy::blocks(store, from)?)),
            }
        };
        // It writes in pieces, so it must know before the first one whether all of them will fit.
        if store.alloc.available(&store.meta, 0) <= len.div_ceil(BLOCK_SIZE as u64) {
            room::check(store, self.behalf(), blocks()?)?;
        }
        self.fill("a copy", &blocks, |store| copy::copy(store, from, &target, to_offset, (len, most)))
    }

    /// Makes a file durable before it returns: its content and size, all attributes unless `data_only`, the
    /// names that it has, and the entries of a directory. Unless the engine is `soft-updates` or `sync`,
    /// everything that was done before to names and attributes is durable then, too. This costs one write and
    /// one flush if the volume has a log; else a part of a generation, or all of one. Concurrent callers
    /// share it.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::Stopped`], and errors of earlier write-back of this file.
    pub fn fsync(&self, inode: InodeNo, data_only: bool) -> Result<()> {
        self.prepare_fsync(inode, data_only)?;
        self.force_files(&[inode])
    }

    /// The first half of [`View::fsync`]: what is to become durable is where [`View::force_files`] finds it.
    /// Small changes are only noted in memory. More data than the log takes is written to its blocks, and the
    /// caller waits for the device.
    ///
    /// # Errors
    /// As [`View::fsync`].
    pub fn prepare_fsync(&self, inode: InodeNo, data_only: bool) -> Result<()> {
        self.prepare(inode, data_only, &|store, cell| file::make_ready(&**store, cell).map(|()| true))
            .map(drop)
    }

    /// As [`View::prepare_fsync`], unless that would write data to its blocks, or wait for somebody who does:
    /// then this returns false, and [`View::prepare_fsync`] must follow.
    ///
    /// # Errors
    /// As [`View::fsync`].
    pub fn try_prepare_fsync(&self, inode: InodeNo, data_only: bool) -> Result<bool> {
        self.prepare(inode, data_only, &|store, cell| file::try_make_ready(&**store, cell))
    }

    fn prepare(&self, inode: InodeNo, data_only: bool, make_ready: MakeReady<'_>) -> Result<bool> {
        let store = self.store();
        if self.read_only() {
            return Ok(true);
        }
        let cell = store.cell(inode)?;
        let regular = cell.state.read().inode.is_regular();
        if regular && !make_ready(store, &cell)? {
            return Ok(false);
        }
        if !data_only {
            store.store_if_dirty(&cell)?;
        }
        Ok(true)
    }

    /// Makes durable these files, for which [`View::prepare_fsync`] has returned: the second half of
    /// [`View::fsync`]. One call serves any number of first halves. On a read-only view it does nothing.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::Stopped`].
    pub fn force_files(&self, inodes: &[InodeNo]) -> Result<()> {
        match self.read_only() {
            true => Ok(()),
            false => self.store().force_files(inodes),
        }
    }

    /// Makes durable all names and attributes as they are, and the data of those files for which
    /// [`View::prepare_fsync`] has returned. On a read-only view it does nothing.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::Stopped`].
    pub fn force(&self) -> Result<()> {
        match self.read_only() {
            true => Ok(()),
            false => self.store().force(),
        }
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NoAttribute`] by `mode`; [`Error::AttributeTooLarge`],
    /// [`Error::Unsupported`], [`Error::NotPermitted`], [`Error::NoSpace`].
    pub fn setxattr(&self, inode: InodeNo, name: &[u8], value: &[u8], mode: SetXattrMode) -> Result<()> {
        let _passage = self.enter(inode)?;
        self.change(|store| ops::set_xattr(store, inode, name, value, mode))
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
