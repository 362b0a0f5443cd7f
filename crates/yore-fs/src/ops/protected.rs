//! What the flags forbid that people give to files and directories (`chattr`).
//!
//! | | immutable | append only |
//! |---|---|---|
//! | file: content, size | stays | grows at its end |
//! | attributes, extended attributes, times other than "now" | stay | stay |
//! | its names | stay, and it gets no more | stay, and it gets no more |
//! | directory: names in it | stay | stay, and more may come |
//!
//! Flags bind everybody until they are taken away. A rollback looks before it begins: on behalf of a caller
//! that may take flags away it also changes what they protect, without taking them away
//! ([`InodeState::unbound`]), so that nothing is left unprotected wherever the rollback is interrupted.
//! `flags.rs` sets them.

use crate::{Error, Result, SetAttr, SetTime};
use yore_core::inode::{InodeCell, InodeState};
use yore_format::InodeFlags;

pub(super) const IMMUTABLE: Error =
    Error::NotPermitted { what: "it is immutable, for root too until `chattr -i`" };
const APPEND_ONLY: Error =
    Error::NotPermitted { what: "it can only be appended to, by root too until `chattr -a`" };

/// Fails if the inode's extended attributes or names may not change.
pub(crate) fn check_changeable(state: &InodeState) -> Result<()> {
    match state.inode.flags {
        _ if state.unbound => Ok(()),
        flags if flags.contains(InodeFlags::IMMUTABLE) => Err(IMMUTABLE),
        flags if flags.contains(InodeFlags::APPEND_ONLY) => Err(APPEND_ONLY),
        _ => Ok(()),
    }
}

/// Fails if a directory may not get another name.
pub(crate) fn check_takes_names(state: &InodeState) -> Result<()> {
    match !state.unbound && state.inode.flags.contains(InodeFlags::IMMUTABLE) {
        true => Err(IMMUTABLE),
        false => Ok(()),
    }
}

/// Fails if these attributes may not be set.
pub(crate) fn check_may_set(state: &InodeState, set: &SetAttr) -> Result<()> {
    let is_chosen = |time: Option<SetTime>| matches!(time, Some(SetTime::To(_)));
    let only_now = set.size.is_none()
        && set.permissions.is_none()
        && set.uid.is_none()
        && set.gid.is_none()
        && !is_chosen(set.atime)
        && !is_chosen(set.mtime);
    match only_now {
        true => check_takes_names(state),
        false => check_changeable(state),
    }
}

/// Fails unless it is a regular file whose bytes from `offset` on may be written.
pub(crate) fn check_writes(cell: &InodeCell, offset: u64) -> Result<()> {
    let state = cell.state.read();
    state.check_regular()?;
    let flags = state.inode.flags & InodeFlags::PROTECTED;
    match flags == InodeFlags::APPEND_ONLY && offset >= state.inode.size {
        true => Ok(()),
        false => check_changeable(&state),
    }
}
