//! Attributes, extended attributes, and what writing does to them.

use crate::inode::{store_inode, InodeCell, InodeState};
use crate::store::Store;
use crate::{acl, file, symlink, xattr, Attr, Caller, Error, InodeNo, Result, SetAttr, SetTime, SetXattrMode, WriteMode};
use std::sync::Arc;
use yore_format::{InodeFlags, Timestamp};

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// The mode after somebody without the privilege to keep them changed content or owner: set-user-id falls, and so
/// does set-group-id where the group may execute (without, it marks mandatory locking and stays).
fn without_set_id(mode: u32) -> u32 {
    let mode = mode & !SET_USER_ID;
    if mode & GROUP_EXECUTE != 0 {
        mode & !SET_GROUP_ID
    } else {
        mode
    }
}

/// Changes attributes. Size first, in an Op of its own; then the others in one Op.
pub(crate) fn set_attr(store: &Arc<Store>, _caller: &Caller, no: InodeNo, set: &SetAttr) -> Result<Attr> {
    store.check_writable()?;
    let cell = store.cell(no)?;
    if let Some(size) = set.size {
        let state = cell.state.read();
        state.check_alive()?;
        if state.inode.is_directory() {
            return Err(Error::IsADirectory);
        }
        if !state.inode.is_regular() {
            return Err(Error::Invalid { what: "only regular files have a size to set" });
        }
        drop(state);
        if set.kill_set_id {
            drop_capability(store, &cell)?;
        }
        file::truncate(store, &cell, size, &mut |s: &mut InodeState| {
            s.touch_mtime();
            if set.kill_set_id && set.permissions.is_none() {
                s.inode.mode = without_set_id(s.inode.mode);
            }
        })?;
    }
    if (set.uid.is_some() || set.gid.is_some()) && !cell.state.read().inode.is_directory() {
        drop_capability(store, &cell)?;
    }
    let others = SetAttr { size: None, kill_set_id: false, ..*set };
    if others == SetAttr::default() {
        return Ok(cell.state.read().attr(no));
    }
    if let Some(permissions) = set.permissions {
        let access_acl = cell.state.read().inode.flags.contains(InodeFlags::ACCESS_ACL);
        if access_acl {
            acl::change_mode(store, &cell, permissions)?;
        }
    }
    let reserved = store.reserve_freely(store.near(no), 0)?;
    let mut state = cell.state.write();
    state.check_alive()?;
    apply(&mut state, set);
    let mut op = store.meta.begin(reserved);
    store_inode(&mut op, &cell, &state);
    state.dirty = false;
    drop(op);
    Ok(state.attr(no))
}

fn apply(state: &mut InodeState, set: &SetAttr) {
    let now = crate::store::now();
    let time = |t: SetTime| match t {
        SetTime::Now => now,
        SetTime::To(t) => t,
    };
    let inode = &mut state.inode;
    if set.uid.is_some() || set.gid.is_some() {
        inode.uid = set.uid.unwrap_or(inode.uid);
        inode.gid = set.gid.unwrap_or(inode.gid);
        if !inode.is_directory() {
            inode.mode = without_set_id(inode.mode);
        }
    }
    if let Some(permissions) = set.permissions {
        inode.mode = inode.mode & !0o7777 | permissions & 0o7777;
    }
    if let Some(t) = set.atime {
        inode.atime = valid(time(t));
    }
    if let Some(t) = set.mtime {
        inode.mtime = valid(time(t));
    }
    inode.ctime = set.ctime.map_or(now, |t| valid(time(t)));
}

/// A timestamp with nanoseconds within the second.
fn valid(t: Timestamp) -> Timestamp {
    Timestamp { seconds: t.seconds, nanos: t.nanos.min(999_999_999) }
}

/// Content changes, or the owner: a capability set on the file does not survive it.
fn drop_capability(store: &Arc<Store>, cell: &Arc<InodeCell>) -> Result<()> {
    if cell.state.read().inode.flags.contains(InodeFlags::CAPABILITY) {
        xattr::remove(store, cell, b"security.capability")?;
    }
    Ok(())
}

/// Writes; returns where.
pub(crate) fn write(store: &Arc<Store>, no: InodeNo, offset: u64, data: &[u8], mode: WriteMode) -> Result<u64> {
    store.check_writable()?;
    let cell = store.cell(no)?;
    regular(&cell)?;
    if mode.kill_set_id {
        drop_capability(store, &cell)?;
    }
    file::write(store, &cell, offset, data, mode.append, &mut |s: &mut InodeState| {
        s.touch_mtime();
        if mode.kill_set_id {
            s.inode.mode = without_set_id(s.inode.mode);
        }
    })
}

/// Fails unless the inode is a regular file that still exists.
pub(crate) fn regular(cell: &InodeCell) -> Result<()> {
    let state = cell.state.read();
    state.check_alive()?;
    if state.inode.is_directory() {
        return Err(Error::IsADirectory);
    }
    if !state.inode.is_regular() {
        return Err(Error::Invalid { what: "not a regular file" });
    }
    Ok(())
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
pub(crate) fn set_xattr(store: &Arc<Store>, no: InodeNo, name: &[u8], value: &[u8], mode: SetXattrMode) -> Result<()> {
    store.check_writable()?;
    let cell = store.cell(no)?;
    cell.state.read().check_alive()?;
    xattr::set(store, &cell, name, value, mode)
}

/// Removes an extended attribute.
pub(crate) fn remove_xattr(store: &Arc<Store>, no: InodeNo, name: &[u8]) -> Result<()> {
    store.check_writable()?;
    let cell = store.cell(no)?;
    cell.state.read().check_alive()?;
    xattr::remove(store, &cell, name)
}
