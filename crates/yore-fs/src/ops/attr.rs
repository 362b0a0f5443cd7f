//! Attributes, extended attributes, and how writing changes them.

use super::protected::{check_changeable, check_may_set};
use crate::file::Room;
use crate::history::preserve;
use crate::store::Store;
use crate::{
    file, symlink, xattr, Attr, Caller, Error, InodeNo, Result, SetAttr, SetTime, SetXattrMode, WriteMode,
};
use std::sync::Arc;
use yore_core::inode::{store_inode, InodeCell, InodeState};
use yore_format::layout::FILE_SIZE_MAX;
use yore_format::{InodeFlags, Timestamp};

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// The mode after somebody without the privilege to keep these bits changed content or owner: set-user-id is
/// cleared, and so is set-group-id where the group may execute (without, it marks mandatory locking and
/// stays).
fn without_set_id(mode: u32) -> u32 {
    let mode = mode & !SET_USER_ID;
    if mode & GROUP_EXECUTE != 0 {
        mode & !SET_GROUP_ID
    } else {
        mode
    }
}

/// Changes attributes: first the size, in Ops of its own; then all others in one Op.
pub(crate) fn set_attr(store: &Arc<Store>, caller: &Caller, no: InodeNo, set: &SetAttr) -> Result<Attr> {
    store.check_writable()?;
    let cell = store.cell(no)?;
    check_may_set(&cell.state.read(), set)?;
    let now = crate::clock::now();
    if let Some(size) = set.size {
        set_size(store, &cell, size, set, now)?;
    }
    let others = SetAttr { size: None, kill_set_id: false, ..*set };
    if others == SetAttr::default() {
        if set.kill_set_id && set.size.is_none() {
            regular(&cell)?;
            drop_privileges(store, &cell, now)?;
        }
        return Ok(cell.state.read().attr(no));
    }
    let also = |state: &mut InodeState| apply(state, set, caller, now);
    let (flags, is_dir) = {
        let state = cell.state.read();
        (state.inode.flags, state.inode.is_directory())
    };
    let changes_owner = set.uid.is_some() || set.gid.is_some();
    let acl = set.permissions.filter(|_| flags.contains(InodeFlags::ACCESS_ACL));
    let capability = changes_owner && !is_dir && flags.contains(InodeFlags::CAPABILITY);
    match (acl, capability) {
        // Two attributes take two Ops; the one that takes rights away comes first.
        (Some(permissions), true) => {
            xattr::remove_capability(store, &cell, &|_| {})?;
            xattr::change_mode(store, &cell, permissions, &also)?;
        }
        (Some(permissions), false) => xattr::change_mode(store, &cell, permissions, &also)?,
        (None, true) => xattr::remove_capability(store, &cell, &also)?,
        (None, false) => change_inode(store, &cell, &also)?,
    }
    let attr = cell.state.read().attr(no);
    Ok(attr)
}

/// Changes an inode as `also` says, in an Op of its own.
pub(super) fn change_inode(store: &Arc<Store>, cell: &Arc<InodeCell>, also: xattr::Also<'_>) -> Result<()> {
    loop {
        let reserved = store.reserve_freely(store.near(cell.no), 0)?;
        let mut state = cell.state.write();
        state.check_alive()?;
        if preserve::must_preserve(store, cell, &state)? {
            drop((state, reserved));
            preserve::preserve(store, cell, Room::Reserve)?;
            continue;
        }
        also(&mut state);
        let mut op = store.meta.begin(reserved);
        store_inode(&mut op, cell, &state);
        return Ok(());
    }
}

fn set_size(
    store: &Arc<Store>,
    cell: &Arc<InodeCell>,
    size: u64,
    set: &SetAttr,
    now: Timestamp,
) -> Result<()> {
    {
        let state = cell.state.read();
        state.check_alive()?;
        if state.inode.is_directory() {
            return Err(Error::IsADirectory);
        }
        if !state.inode.is_regular() {
            return Err(Error::Invalid { what: "only regular files have a size to set" });
        }
    }
    if size > FILE_SIZE_MAX {
        return Err(Error::FileTooLarge);
    }
    if !set.kill_set_id {
        return file::truncate(&**store, cell, size, &mut |s| touch(s, now), &mut ()).map(|_| ());
    }
    let mut capability = xattr::CapabilityGoes::new(store, cell.no);
    let touch = &mut |s: &mut InodeState| touch_without_set_id(s, now);
    while !file::truncate(&**store, cell, size, touch, &mut capability)? {
        drop_capability(store, cell, now)?;
    }
    Ok(())
}

/// Notes that content changes at `now`.
fn touch(state: &mut InodeState, now: Timestamp) {
    state.inode.mtime = now;
    state.inode.ctime = now;
}

/// Before content changes: clears the set-id bits and the capability of a file, in one Op, at the time that
/// the content will have. This does not happen with the content: the content may reach the medium later than
/// what follows, and a crash must not show new content under old privileges.
fn drop_privileges(store: &Arc<Store>, cell: &Arc<InodeCell>, now: Timestamp) -> Result<()> {
    if drop_capability(store, cell, now)? {
        return Ok(());
    }
    let mode = cell.state.read().inode.mode;
    if without_set_id(mode) == mode {
        return Ok(());
    }
    change_inode(store, cell, &|s| touch_without_set_id(s, now))
}

/// Removes a capability and, in the same Op, the set-id bits. Returns false if there is no capability; then
/// nothing was done.
fn drop_capability(store: &Arc<Store>, cell: &Arc<InodeCell>, now: Timestamp) -> Result<bool> {
    if !cell.state.read().inode.flags.contains(InodeFlags::CAPABILITY) {
        return Ok(false);
    }
    xattr::remove_capability(store, cell, &|s| touch_without_set_id(s, now))?;
    Ok(true)
}

/// Notes that content changes at `now`, by somebody without the privilege to keep set-id bits.
fn touch_without_set_id(state: &mut InodeState, now: Timestamp) {
    state.inode.mode = without_set_id(state.inode.mode);
    touch(state, now);
}

fn apply(state: &mut InodeState, set: &SetAttr, caller: &Caller, now: Timestamp) {
    let time = |t: SetTime| match t {
        SetTime::Now => now,
        SetTime::To(t) => valid(t),
    };
    let inode = &mut state.inode;
    let stranger = |gid: u32| !caller.keeps_set_id && gid != caller.gid;
    if set.uid.is_some() || set.gid.is_some() {
        let was_stranger = stranger(inode.gid);
        inode.uid = set.uid.unwrap_or(inode.uid);
        inode.gid = set.gid.unwrap_or(inode.gid);
        if !inode.is_directory() {
            inode.mode = without_set_id(inode.mode);
            if was_stranger {
                inode.mode &= !SET_GROUP_ID;
            }
        }
    }
    if let Some(permissions) = set.permissions {
        inode.mode = inode.mode & !0o7777 | permissions & 0o7777;
        if stranger(inode.gid) {
            inode.mode &= !SET_GROUP_ID;
        }
    }
    if let Some(t) = set.atime {
        inode.atime = time(t);
    }
    if let Some(t) = set.mtime {
        inode.mtime = time(t);
    }
    inode.ctime = set.ctime.map_or(now, time);
}

/// A timestamp with nanoseconds within the second.
fn valid(t: Timestamp) -> Timestamp {
    Timestamp { seconds: t.seconds, nanos: t.nanos.min(999_999_999) }
}

/// Reads; returns how many bytes.
pub(crate) fn read(store: &Arc<Store>, cell: &Arc<InodeCell>, offset: u64, buf: &mut [u8]) -> Result<usize> {
    regular(cell)?;
    let count = file::read(store, cell, offset, buf)?;
    super::list::age_access_time(store, cell);
    Ok(count)
}

/// Writes; returns the offset. The caller has checked that the volume can be written.
pub(crate) fn write(
    store: &Arc<Store>,
    cell: &Arc<InodeCell>,
    offset: u64,
    data: &[u8],
    mode: WriteMode,
) -> Result<u64> {
    super::protected::check_writes(cell, if mode.append { u64::MAX } else { offset })?;
    let now = crate::clock::now();
    let at = if mode.append { cell.state.read().inode.size } else { offset };
    let fits = at.checked_add(data.len() as u64).is_some_and(|end| end <= FILE_SIZE_MAX);
    if mode.kill_set_id && !data.is_empty() && fits {
        drop_privileges(store, cell, now)?;
    }
    file::write(&**store, cell, offset, data, mode.append, &mut |s: &mut InodeState| touch(s, now))
}

/// Fails unless the inode is a regular file that still exists.
pub(crate) fn regular(cell: &InodeCell) -> Result<()> {
    cell.state.read().check_regular()
}

/// A symbolic link's target.
pub(crate) fn readlink(store: &Arc<Store>, no: InodeNo) -> Result<Vec<u8>> {
    let cell = store.cell(no)?;
    let target = {
        let state = cell.state.read();
        state.check_alive()?;
        if !state.inode.is_symlink() {
            return Err(Error::Invalid { what: "not a symbolic link" });
        }
        symlink::load(store, &state, no)?
    };
    super::list::age_access_time(store, &cell);
    Ok(target)
}

/// The value of an extended attribute.
pub(crate) fn get_xattr(store: &Arc<Store>, no: InodeNo, name: &[u8]) -> Result<Vec<u8>> {
    let cell = store.cell(no)?;
    let state = cell.state.read();
    state.check_alive()?;
    xattr::get(store, &state, no, name)
}

/// Sets an extended attribute.
pub(crate) fn set_xattr(
    store: &Arc<Store>,
    no: InodeNo,
    name: &[u8],
    value: &[u8],
    mode: SetXattrMode,
) -> Result<()> {
    store.check_writable()?;
    let cell = store.cell(no)?;
    check_xattrs_change(&cell)?;
    xattr::set(store, &cell, name, value, mode)
}

/// Removes an extended attribute.
pub(crate) fn remove_xattr(store: &Arc<Store>, no: InodeNo, name: &[u8]) -> Result<()> {
    store.check_writable()?;
    let cell = store.cell(no)?;
    check_xattrs_change(&cell)?;
    xattr::remove(store, &cell, name)
}

fn check_xattrs_change(cell: &InodeCell) -> Result<()> {
    let state = cell.state.read();
    state.check_alive()?;
    check_changeable(&state)
}
