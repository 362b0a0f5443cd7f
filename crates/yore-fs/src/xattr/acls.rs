//! The ACLs that inodes have, and what they allow ([`crate::xattr::acl`] has their form).

use super::name::{ACCESS, DEFAULT};
use super::read::get_acl;
use crate::store::Store;
use crate::types::Asking;
use crate::xattr::acl::{self, Acl, Inherited};
use crate::{Caller, FileKind, Result};
use yore_core::inode::InodeState;
use yore_format::{Corruption, InodeFlags, InodeNo};

/// An ACL that the inode has.
fn stored(store: &Store, state: &InodeState, no: InodeNo, name: &[u8]) -> Result<Option<Acl>> {
    let Some(value) = get_acl(store, state, no, name)? else { return Ok(None) };
    Acl::decode(&value).map_err(|e| Corruption::new("POSIX ACL", "value", "a valid ACL", e).of(no).into())
}

/// Whether an inode's mode and access ACL give a user these permissions (read 4, write 2, execute or search
/// 1), by the rules of the kernel: an ACL whose mask allows nothing does not count.
///
/// # Errors
/// Corruption; the device.
pub(crate) fn permits(
    store: &Store,
    state: &InodeState,
    no: InodeNo,
    asking: &Asking,
    want: u32,
) -> Result<bool> {
    let inode = &state.inode;
    let class = |shift: u32| inode.mode >> shift & want == want;
    if asking.uid == inode.uid {
        return Ok(class(6));
    }
    if inode.mode & 0o070 != 0 {
        if let Some(acl) = stored(store, state, no, ACCESS)? {
            return Ok(acl.permits(inode.gid, asking, want));
        }
    }
    Ok(match asking.groups.contains(&inode.gid) {
        true => class(3),
        false => class(0) && (asking.knows_groups || class(3)),
    })
}

/// The permissions and ACLs that a file made in a directory gets. `permissions` are the 12 bits that the
/// caller gives.
///
/// # Errors
/// Corruption; the device.
pub(crate) fn inherit(
    store: &Store,
    dir: &InodeState,
    dir_no: InodeNo,
    caller: &Caller,
    kind: FileKind,
    permissions: u32,
) -> Result<Inherited> {
    if kind == FileKind::Symlink {
        return Ok(Inherited { mode: 0o777, ..Inherited::default() });
    }
    let default = match dir.inode.flags.contains(InodeFlags::DEFAULT_ACL) {
        true => stored(store, dir, dir_no, DEFAULT)?,
        false => None,
    };
    Ok(acl::inherit_from(default, caller.umask, kind, permissions))
}

/// The access ACL that the inode must have once the mode's permissions are `permissions`; `None` if it has
/// none.
///
/// # Errors
/// Corruption; the device.
pub(crate) fn chmod(
    store: &Store,
    state: &InodeState,
    no: InodeNo,
    permissions: u32,
) -> Result<Option<Vec<u8>>> {
    let mut acl = stored(store, state, no, ACCESS)?;
    if let Some(acl) = &mut acl {
        acl.chmod(permissions);
    }
    Ok(acl.as_ref().map(Acl::encode))
}
