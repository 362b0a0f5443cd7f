//! The directory as it is and as it was, by paths from it: look-ups in both, and changes of the present one.
//! It records its changes, for callers that cache what they concern.

use super::plan::{split, Changed, Plan};
use crate::api::copy;
use crate::api::room::with_room;
use crate::history::read::at_time;
use crate::history::reclaim::room::Want;
use crate::ops::{self, InUse, NewFile};
use crate::store::Store;
use crate::{
    Attr, Caller, Error, FileKind, InodeNo, RenameMode, Result, SeekTo, SetAttr, SetTime, SetXattrMode, View,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use yore_core::inode::InodeCell;
use yore_format::{EventNo, InodeFlags, BLOCK_SIZE};

/// How many bytes are copied or compared at a time.
const CHUNK: usize = 1 << 20;
/// A caller that may roll back may restore files, whoever owned them.
const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0, keeps_set_id: true };

/// The past and the present tree.
pub(super) struct Trees {
    store: Arc<Store>,
    now: View,
    then: View,
    event: EventNo,
    root: InodeNo,
    changed: RefCell<Changed>,
    /// Flags that are set when everything else is done, because they forbid further changes.
    flags: RefCell<BTreeMap<InodeNo, InodeFlags>>,
    /// The inodes that are being changed even though their flags forbid it; the check of rights came before.
    unbound: RefCell<HashMap<InodeNo, Arc<InodeCell>>>,
}

impl Drop for Trees {
    fn drop(&mut self) {
        for cell in self.unbound.get_mut().values() {
            cell.state.write().unbound = false;
        }
    }
}

impl Trees {
    /// The trees of a directory at which the caller has closed the gate.
    pub(super) fn new(view: &View, root: InodeNo, plan: &Plan) -> Trees {
        let event = plan.target;
        Trees {
            store: view.store().clone(),
            now: view.inside(),
            then: view.as_of(event),
            event,
            root,
            changed: RefCell::default(),
            flags: RefCell::default(),
            unbound: RefCell::default(),
        }
    }

    /// What was changed so far.
    pub(super) fn into_changed(self) -> Changed {
        self.changed.take()
    }

    /// The inode under a path.
    fn find(&self, view: &View, path: &[u8]) -> Result<Option<InodeNo>> {
        let mut at = self.root;
        for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            match view.lookup(at, name) {
                Ok(found) => at = found.inode(),
                Err(Error::NotFound | Error::NotADirectory) => return Ok(None),
                Err(e) => return Err(e.on_path("cannot find", path)),
            }
        }
        Ok(Some(at))
    }

    fn inode(&self, path: &[u8]) -> Result<InodeNo> {
        self.find(&self.now, path)?.ok_or_else(|| Error::NotFound.on_path("cannot find", path))
    }

    /// What is under a path now.
    pub(super) fn is(&self, path: &[u8]) -> Result<Option<Attr>> {
        let found = self.find(&self.now, path)?;
        found.map(|no| self.now.getattr(no)).transpose()
    }

    /// What was under a path then, with all its permissions.
    pub(super) fn was(&self, path: &[u8]) -> Result<Option<Attr>> {
        let Some(no) = self.find(&self.then, path)? else { return Ok(None) };
        let _seeing = self.store.past.see(self.event)?;
        at_time::with(&self.store, no, self.event, |_, state| Ok(state.attr(no))).map(Some)
    }

    fn must_have_been(&self, path: &[u8]) -> Result<Attr> {
        self.was(path)?.ok_or_else(|| Error::NotFound.on_path("cannot find what was", path))
    }

    /// The names in a directory now.
    pub(super) fn list(&self, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        self.now.readdir(self.inode(path)?, 0, &mut |item| {
            if item.name != b"." && item.name != b".." {
                names.push(item.name.to_vec());
            }
            true
        })?;
        Ok(names)
    }

    /// A name in the directory that exists neither now nor then.
    pub(super) fn free_name(&self) -> Result<Vec<u8>> {
        let mut number = 0u64;
        loop {
            let name = format!(".yore-rollback-{number}").into_bytes();
            if self.find(&self.now, &name)?.is_none() && self.find(&self.then, &name)?.is_none() {
                return Ok(name);
            }
            number += 1;
        }
    }

    /// Runs a change; if there is no room, it forgets the oldest snapshots.
    fn change<R>(&self, what: &'static str, path: &[u8], f: impl Fn(&Arc<Store>) -> Result<R>) -> Result<R> {
        with_room(&self.store, &Want::little(self.now.behalf()), f).map_err(|e| e.on_path(what, path))
    }

    /// The directory that contains, or will contain, the last name of a path. It records that the name
    /// changes.
    fn parent_of<'p>(&self, path: &'p [u8]) -> Result<(InodeNo, &'p [u8])> {
        let (above, name) = split(path);
        let directory = self.inode(above)?;
        self.note(directory)?;
        self.changed.borrow_mut().names.insert((directory, name.to_vec()));
        Ok((directory, name))
    }

    /// Records that an inode is about to change.
    fn note(&self, inode: InodeNo) -> Result<()> {
        self.changed.borrow_mut().inodes.insert(inode);
        let cell = self.store.cell(inode)?;
        cell.state.write().unbound = true;
        // The number may have belonged to another inode, which is gone.
        self.unbound.borrow_mut().insert(inode, cell);
        Ok(())
    }

    /// Removes a name of something that is not a directory.
    pub(super) fn remove(&self, path: &[u8]) -> Result<()> {
        self.note(self.inode(path)?)?;
        let (directory, name) = self.parent_of(path)?;
        self.now.unlink(directory, name).map_err(|e| e.on_path("cannot remove", path))
    }

    /// Removes an empty directory.
    pub(super) fn remove_directory(&self, path: &[u8]) -> Result<()> {
        self.note(self.inode(path)?)?;
        let (directory, name) = self.parent_of(path)?;
        self.now.rmdir(directory, name).map_err(|e| e.on_path("cannot remove", path))
    }

    fn create(&self, caller: &Caller, path: &[u8], new: &NewFile<'_>) -> Result<InodeNo> {
        let (directory, name) = self.parent_of(path)?;
        let made: InUse =
            self.change("cannot make", path, |store| ops::create(store, caller, directory, name, new))?;
        Ok(made.cell.no)
    }

    /// Makes an empty directory in place of the one that was under a path. Until its attributes are set, only
    /// its past owner may use it. He may, so that he can go on if the rollback does not end.
    pub(super) fn make_directory(&self, path: &[u8]) -> Result<()> {
        self.make_private(&self.must_have_been(path)?, path)
    }

    /// Makes an empty directory for what is set aside. It belongs to the owner of the directory that is being
    /// rolled back.
    pub(super) fn make_aside(&self, path: &[u8]) -> Result<()> {
        self.make_private(&self.now.getattr(self.root)?, path)
    }

    fn make_private(&self, owner: &Attr, path: &[u8]) -> Result<()> {
        let caller = Caller { uid: owner.uid, gid: owner.gid, ..CALLER };
        let new = NewFile { kind: FileKind::Directory, permissions: 0o700, rdev: 0, target: b"" };
        self.create(&caller, path, &new).map(|_| ())
    }

    /// How many blocks a copy of a past regular file takes, beside those that it shares.
    pub(super) fn data_blocks(&self, then: &[u8]) -> Result<u64> {
        let was = self.must_have_been(then)?;
        if was.size >= copy::SHARED_LEAST && copy::needs_no_data(&self.store, was.inode, self.then.event())? {
            return Ok(0);
        }
        let most = was.blocks_512.div_ceil(BLOCK_SIZE as u64 / 512);
        let (mut blocks, mut at) = (0, 0);
        // Blocks that were set aside and never written are not copied.
        while blocks < most {
            at = match self.then.seek(was.inode, at, SeekTo::Data) {
                Ok(start) => start,
                Err(Error::NoDataThere) => break,
                Err(e) => return Err(e.on_path("cannot read", then)),
            };
            let end = self.then.seek(was.inode, at, SeekTo::Hole)?;
            blocks += end.saturating_sub(at).div_ceil(BLOCK_SIZE as u64);
            at = end;
        }
        Ok(blocks.min(most))
    }

    /// Moves something to another path, which must be free.
    pub(super) fn rename(&self, from: &[u8], to: &[u8]) -> Result<()> {
        self.note(self.inode(from)?)?;
        let ((old, name), (new, new_name)) = (self.parent_of(from)?, self.parent_of(to)?);
        let done = self.now.rename(old, name, new, new_name, RenameMode::NoReplace);
        done.map_err(|e| e.on_path("cannot rename", from))
    }

    /// Gives a file with one path another one, which must be free.
    pub(super) fn link(&self, original: &[u8], path: &[u8]) -> Result<()> {
        let inode = self.inode(original)?;
        self.note(inode)?;
        let (directory, name) = self.parent_of(path)?;
        self.now.link(inode, directory, name).map(drop).map_err(|e| e.on_path("cannot link", path))
    }

    /// Makes anything but a directory as it was, under a path that must be free. A failed copy is removed.
    pub(super) fn copy(&self, then: &[u8], path: &[u8]) -> Result<()> {
        let was = self.must_have_been(then)?;
        let target = match was.kind {
            FileKind::Symlink => self.then.readlink(was.inode)?,
            _ => Vec::new(),
        };
        let new = NewFile { kind: was.kind, permissions: 0o600, rdev: was.rdev, target: &target };
        let made = self.create(&CALLER, path, &new)?;
        let filled = match was.kind {
            FileKind::Regular => self.content(&was, made, path),
            _ => Ok(()),
        };
        let result = filled.and_then(|()| self.make_attributes(&was, made, path, true));
        // If a policy makes a version of each file that is closed, it makes one of this file.
        let result = result.and_then(|()| self.now.closed(made).map(drop));
        if result.is_err() {
            if let Err(e) = self.remove(path) {
                tracing::warn!("a file that could not be made again is there in part: {e}");
            }
        }
        result
    }

    /// Makes the content what it was: blocks are shared where that can be, else copied. Holes stay holes.
    fn content(&self, was: &Attr, made: InodeNo, path: &[u8]) -> Result<()> {
        let cell = self.store.cell(made)?;
        let from = |offset| copy::From { inode: was.inode, event: self.then.event(), offset };
        let mut at = 0;
        loop {
            at = match self.then.seek(was.inode, at, SeekTo::Data) {
                Ok(start) => start,
                Err(Error::NoDataThere) => break,
                Err(e) => return Err(e.on_path("cannot read", path)),
            };
            let end = self.then.seek(was.inode, at, SeekTo::Hole)?;
            while at < end {
                let copied = self.change("cannot write", path, |store| {
                    copy::copy(store, from(at), &cell, at, (end - at, u64::MAX))
                })?;
                if copied == 0 {
                    break;
                }
                at += copied;
            }
        }
        let set = SetAttr { size: Some(was.size), ..SetAttr::default() };
        self.change("cannot write", path, |store| ops::set_attr(store, &CALLER, made, &set)).map(drop)
    }

    /// Makes attributes what they were, with or without times.
    pub(super) fn attributes(&self, then: &[u8], path: &[u8], times: bool) -> Result<()> {
        self.make_attributes(&self.must_have_been(then)?, self.inode(path)?, path, times)
    }

    fn make_attributes(&self, was: &Attr, no: InodeNo, path: &[u8], times: bool) -> Result<()> {
        let set = |set: SetAttr| {
            self.change("cannot set the attributes of", path, |store| ops::set_attr(store, &CALLER, no, &set))
        };
        self.note(no)?;
        // The order matters: a change of owner clears set-id bits and capabilities, and a change of ACLs
        // changes permissions.
        let is = self.now.getattr(no)?;
        if (is.uid, is.gid) != (was.uid, was.gid) {
            set(SetAttr { uid: Some(was.uid), gid: Some(was.gid), ..SetAttr::default() })?;
        }
        let (wanted, present) = (self.xattrs(&self.then, was.inode)?, self.xattrs(&self.now, no)?);
        for name in present.keys().filter(|name| !wanted.contains_key(*name)) {
            self.change("cannot set the attributes of", path, |store| ops::remove_xattr(store, no, name))?;
        }
        for (name, value) in wanted.iter().filter(|(name, value)| present.get(*name) != Some(value)) {
            self.change("cannot set the attributes of", path, |store| {
                ops::set_xattr(store, no, name, value, SetXattrMode::Any)
            })?;
        }
        let is = self.now.getattr(no)?;
        let permissions =
            (was.kind != FileKind::Symlink && is.permissions != was.permissions).then_some(was.permissions);
        let mtime = (times && is.mtime != was.mtime).then_some(SetTime::To(was.mtime));
        if permissions.is_some() || mtime.is_some() {
            // Of its past times only the time of change is known.
            set(SetAttr { permissions, atime: mtime, mtime, ..SetAttr::default() })?;
        }
        if is.flags != was.flags {
            self.flags.borrow_mut().insert(no, was.flags);
        }
        Ok(())
    }

    /// Restores the flags of all inodes whose attributes were restored.
    pub(super) fn set_flags(&self) -> Result<()> {
        for (no, flags) in self.flags.borrow().iter() {
            let want = Want::little(self.now.behalf());
            match with_room(&self.store, &want, |store| ops::set_flags(store, *no, *flags)) {
                // Since then the file was replaced by a new one.
                Err(Error::Stale) => {}
                other => other?,
            }
        }
        Ok(())
    }

    fn xattrs(&self, view: &View, no: InodeNo) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        let names = view.listxattr(no)?;
        names.into_iter().map(|name| Ok((name.clone(), view.getxattr(no, &name)?))).collect()
    }

    /// The past and present attributes of something that only an administrator may set.
    pub(super) fn privileged(
        &self,
        was: InodeNo,
        is: Option<InodeNo>,
    ) -> Result<[BTreeMap<Vec<u8>, Vec<u8>>; 2]> {
        let only = |all: BTreeMap<Vec<u8>, Vec<u8>>| {
            let is_privileged = |name: &[u8]| name.starts_with(b"security.") || name.starts_with(b"trusted.");
            all.into_iter().filter(|(name, _)| is_privileged(name)).collect()
        };
        let is = is.map_or(Ok(BTreeMap::new()), |no| self.xattrs(&self.now, no))?;
        Ok([only(self.xattrs(&self.then, was)?), only(is)])
    }

    /// Whether what is under a path looks the same as what was there, content included.
    pub(super) fn is_same(&self, path: &[u8]) -> Result<bool> {
        let (Some(was), Some(is)) = (self.was(path)?, self.is(path)?) else { return Ok(false) };
        let of = |a: &Attr| {
            let size = if a.kind == FileKind::Directory { 0 } else { a.size };
            (a.kind as u32, a.permissions, a.uid, a.gid, size, a.rdev, a.mtime, a.flags)
        };
        if of(&was) != of(&is) || self.xattrs(&self.then, was.inode)? != self.xattrs(&self.now, is.inode)? {
            return Ok(false);
        }
        match was.kind {
            FileKind::Regular => self.is_same_content(&was, is.inode),
            FileKind::Symlink => Ok(self.then.readlink(was.inode)? == self.now.readlink(is.inode)?),
            _ => Ok(true),
        }
    }

    /// Takes time for the data of both, not for holes.
    fn is_same_content(&self, was: &Attr, is: InodeNo) -> Result<bool> {
        let most = CHUNK.min(was.size as usize);
        let (mut a, mut b, mut at) = (vec![0; most], vec![0; most], 0);
        let data = |view: &View, inode, at| match view.seek(inode, at, SeekTo::Data) {
            Err(Error::NoDataThere) => Ok(was.size),
            found => found,
        };
        while at < was.size {
            at = data(&self.then, was.inode, at)?.min(data(&self.now, is, at)?);
            if at >= was.size {
                break;
            }
            let n = self.then.read(was.inode, at, &mut a)?;
            let m = self.now.read(is, at, &mut b)?;
            if n == 0 || a[..n] != b[..m] {
                return Ok(false);
            }
            at += n as u64;
        }
        Ok(true)
    }
}
