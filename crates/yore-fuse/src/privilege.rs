//! Set-id bits that the daemon has to drop because the kernel cannot tell it to.
//!
//! With HANDLE_KILLPRIV_V2 the kernel leaves dropping set-user-id and set-group-id to the daemon (which
//! spares a GETXATTR `security.capability` before every write), and says in each request whether to drop
//! them. fuser 0.18 passes that on for writes only. The other requests are handled like this:
//!
//! - *truncate*: fuser hides the flag. The kernel sets it for callers without CAP_FSETID, so the daemon
//!   assumes it for every user but root;
//! - *open with O_TRUNC*: arrives as truncate, because ATOMIC_O_TRUNC is not requested;
//! - *fallocate, copy_file_range*: the protocol has no flag; again the daemon drops the bits for every user
//!   but root;
//! - *change of owner*: the view always drops them;
//! - *the kernel's own copy of the mode*: the kernel does not expect the daemon to change the mode, and asks
//!   for it again only at the next `stat` of all attributes. A program just written to would still start with
//!   its set-user-id bit. So the daemon notifies the kernel;
//! - *setting an access ACL* drops set-group-id if the caller is not in the file's group. The flag for it
//!   needs SETXATTR_EXT, which fuser cannot read, so the daemon looks up the caller's groups, as below.

use fuser::Request;
use std::fs;
use yore_fs::{Asking, Attr, Caller, FileKind, InodeNo, Result, SetAttr, View};

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// Position of the file system user id among a thread's user ids: real, effective, saved, file system.
const FS_UID_AT: usize = 3;

/// Drops the bits that a change of content by an ordinary user drops: set-user-id, and set-group-id if the
/// group may execute (without that permission the bit once meant mandatory locking, not privilege). Returns
/// whether there was one to drop.
pub(crate) fn drop_set_id(view: &View, caller: &Caller, inode: InodeNo) -> Result<bool> {
    let attr = view.getattr(inode)?;
    if attr.kind != FileKind::Regular || !has_set_id(&attr) {
        return Ok(false);
    }
    let mut kept = attr.permissions & !SET_UID;
    if kept & GROUP_EXECUTE != 0 {
        kept &= !SET_GID;
    }
    set_permissions(view, caller, inode, attr.permissions, kept)?;
    Ok(kept != attr.permissions)
}

/// Whether a user may do what is anybody's: root and the daemon's user.
pub(crate) fn may_all(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Whether a file has a bit that may have to be dropped.
pub(crate) fn has_set_id(attr: &Attr) -> bool {
    attr.permissions & (SET_UID | SET_GID) != 0
}

/// Call this after the thread `pid` has set an access ACL: drops set-group-id unless that caller may keep it.
pub(crate) fn after_acl(view: &View, caller: &Caller, inode: InodeNo, pid: u32) -> Result<()> {
    let attr = view.getattr(inode)?;
    if attr.permissions & SET_GID == 0 || caller.gid == attr.gid || in_group_or_capable(pid, attr.gid) {
        return Ok(());
    }
    set_permissions(view, caller, inode, attr.permissions, attr.permissions & !SET_GID)
}

fn set_permissions(view: &View, caller: &Caller, inode: InodeNo, old: u32, new: u32) -> Result<()> {
    if new != old {
        view.setattr(caller, inode, &SetAttr { permissions: Some(new), ..SetAttr::default() })?;
    }
    Ok(())
}

/// Whether thread `pid` has `gid` among its groups, or has CAP_FSETID. The thread waits for our answer, so it
/// exists, unless it lives in a namespace of processes that we do not see; then the cautious answer is no.
fn in_group_or_capable(pid: u32, gid: u32) -> bool {
    status_of(pid).is_some_and(|status| status_allows(&status, gid))
}

/// The kernel's status of a thread, if we can see the thread.
fn status_of(thread: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{thread}/status")).ok()
}

/// The sender of a request, with the groups of the thread that waits for the answer, as far as they can be
/// seen.
pub(crate) fn asking(request: &Request) -> Asking {
    let (uid, gid) = (request.uid(), request.gid());
    // Root's groups do not matter, and reading them costs a system call or two.
    let status = if uid == 0 { None } else { status_of(request.pid()) };
    asking_of(uid, gid, status.as_deref())
}

/// If the thread belongs to another user than the one that asks, it is not the one that waits: its number was
/// used again.
fn asking_of(uid: u32, gid: u32, status: Option<&str>) -> Asking {
    let is_asking = |status: &&str| {
        let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
        ids.split_whitespace().nth(FS_UID_AT).and_then(|id| id.parse().ok()) == Some(uid)
    };
    let status = status.filter(is_asking);
    let groups = std::iter::once(gid).chain(groups_in(status.unwrap_or_default())).collect();
    Asking { uid, groups, knows_groups: uid == 0 || status.is_some() }
}

/// The process of a thread that waits for our answer; `None` if we do not see the thread.
pub(crate) fn process_of(thread: u32) -> Option<u32> {
    status_of(thread)?.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

fn groups_in(status: &str) -> impl Iterator<Item = u32> + '_ {
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    groups.split_whitespace().filter_map(|group| group.parse().ok())
}

fn status_allows(status: &str, gid: u32) -> bool {
    const CAP_FSETID: u32 = 4;
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or_default();
    let is_capable = u64::from_str_radix(capabilities.trim(), 16).is_ok_and(|all| all >> CAP_FSETID & 1 != 0);
    is_capable || groups_in(status).any(|group| group == gid)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A supplementary group or the capability keeps the bit; without either it goes.
    #[test]
    fn groups_and_capabilities() {
        let status = "Name:\tx\nGroups:\t4 24 1000 \nCapEff:\t0000000000000000\n";
        assert!(status_allows(status, 24));
        assert!(!status_allows(status, 2));
        assert!(status_allows("Groups:\t\nCapEff:\t0000000000000010\n", 2));
        assert!(!status_allows("", 0));
    }

    /// The groups are those of the thread that asks, or unknown.
    #[test]
    fn who_asks() {
        let status = "Name:\tx\nUid:\t0\t0\t0\t1000\nGroups:\t4 24 \n";
        let known = Asking { uid: 1000, groups: vec![1000, 4, 24], knows_groups: true };
        assert_eq!(asking_of(1000, 1000, Some(status)), known);
        let unknown = Asking { groups: vec![1000], knows_groups: false, ..known };
        assert_eq!(asking_of(1000, 1000, None), unknown);
        assert_eq!(asking_of(1001, 1000, Some(status)), Asking { uid: 1001, ..unknown });
    }
}
