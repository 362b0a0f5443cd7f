//! The flags that people give to files and directories (`chattr`): setting them, and what they forbid.
//!
//! | | immutable | append only |
//! |---|---|---|
//! | file: content, size | stays | grows at its end |
//! | attributes, extended attributes, times other than "now" | stay | stay |
//! | its names | stay, and it gets no more | stay, and it gets no more |
//! | directory: names in it | stay | stay, and more may come |
//!
//! They bind everybody until they are taken away. A rollback looks before it begins: of who may take flags away it changes what they
//! protect, too, without taking them away ([`InodeState::unbound`]), so that nothing is left unprotected wherever it is interrupted. A
//! server decides who may set them. Two say something else: no times of access are kept, and backups are to leave it out; new files get both from
//! their directory.

use super::attr::change_inode;
use crate::core::inode::{InodeCell, InodeState};
use crate::store::Store;
use crate::{Error, InodeNo, Result, SetAttr, SetTime};
use std::sync::Arc;
use yore_format::{InodeFlags, WriteFeatures};

const IMMUTABLE: Error = Error::NotPermitted { what: "it is immutable, for root too until `chattr -i`" };
const APPEND_ONLY: Error =
    Error::NotPermitted { what: "it can only be appended to, by root too until `chattr -a`" };

/// Fails if neither content nor attributes nor names may change.
fn check_unprotected(state: &InodeState) -> Result<()> {
    match state.inode.flags {
        _ if state.unbound => Ok(()),
        flags if flags.contains(InodeFlags::IMMUTABLE) => Err(IMMUTABLE),
        flags if flags.contains(InodeFlags::APPEND_ONLY) => Err(APPEND_ONLY),
        _ => Ok(()),
    }
}

impl InodeState {
    /// Fails if its extended attributes, or what it has of names, may not change.
    pub(crate) fn check_changeable(&self) -> Result<()> {
        check_unprotected(self)
    }

    /// Fails if a directory may not get another name.
    pub(crate) fn check_takes_names(&self) -> Result<()> {
        match !self.unbound && self.inode.flags.contains(InodeFlags::IMMUTABLE) {
            true => Err(IMMUTABLE),
            false => Ok(()),
        }
    }

    /// Fails if these attributes may not be set.
    pub(crate) fn check_may_set(&self, set: &SetAttr) -> Result<()> {
        let is_chosen = |time: Option<SetTime>| matches!(time, Some(SetTime::To(_)));
        let only_now = set.size.is_none()
            && set.permissions.is_none()
            && set.uid.is_none()
            && set.gid.is_none()
            && !is_chosen(set.atime)
            && !is_chosen(set.mtime);
        match only_now {
            true => self.check_takes_names(),
            false => check_unprotected(self),
        }
    }
}

/// Fails unless it is a regular file of which the bytes from `offset` on may be written.
pub(crate) fn check_writes(cell: &InodeCell, offset: u64) -> Result<()> {
    let state = cell.state.read();
    state.check_regular()?;
    let flags = state.inode.flags & InodeFlags::PROTECTED;
    match flags == InodeFlags::APPEND_ONLY && offset >= state.inode.size {
        true => Ok(()),
        false => check_unprotected(&state),
    }
}

/// Sets the flags that people choose. Who may is for the caller to decide.
pub(crate) fn set_flags(store: &Arc<Store>, no: InodeNo, flags: InodeFlags) -> Result<()> {
    store.check_writable()?;
    if !InodeFlags::CHOSEN.contains(flags) {
        return Err(Error::Invalid { what: "not one of the flags that can be set" });
    }
    let cell = store.cell(no)?;
    {
        let state = cell.state.read();
        state.check_alive()?;
        if !state.inode.is_regular() && !state.inode.is_directory() {
            return Err(Error::NotPermitted { what: "only files and directories have flags" });
        }
        let is = state.inode.flags & InodeFlags::CHOSEN;
        if is == flags {
            return Ok(());
        }
        if !state.unbound && is.contains(InodeFlags::IMMUTABLE) && flags.contains(InodeFlags::IMMUTABLE) {
            return Err(IMMUTABLE);
        }
    }
    // Before the first inode has one: older programs would take it for damage.
    store.meta.extend(WriteFeatures::INODE_FLAGS)?;
    change_inode(store, &cell, &|state| {
        state.inode.flags = (state.inode.flags - InodeFlags::CHOSEN) | flags;
        state.touch_ctime();
    })
}
