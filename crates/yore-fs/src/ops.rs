//! Operations on inodes and names: one function per file-system call, each at most one Op for what a crash may
//! separate. [`crate::View`] is their public face.
//!
//! The pattern of every change: reserve; lock the inodes in order (see [`crate::core::inode`]); look up and check; pin what
//! will change; open the Op; change; store the inodes. Whatever can fail comes before the Op (R7). When a lookup shows
//! that another lock or a larger reservation is needed, everything is let go and the call starts over.

pub(crate) mod reap;

mod attr;
mod create;
mod flags;
mod list;
mod remove;
mod rename;

pub(crate) use attr::{get_xattr, read, readlink, regular, remove_xattr, set_attr, set_xattr, write};
pub(crate) use create::{create, link, NewFile};
pub(crate) use flags::{check_writes, set_flags};
pub(crate) use list::{age_access_time, lookup, readdir};
pub(crate) use remove::{remove, Remove};
pub(crate) use rename::rename;

use crate::core::inode::InodeCell;
use crate::store::Store;
use crate::{Attr, Error, Result};
use std::sync::Arc;
use yore_format::NAME_MAX;

/// An inode in use. See [`crate::Node`].
pub(crate) struct InUse {
    pub(crate) store: Arc<Store>,
    pub(crate) cell: Arc<InodeCell>,
    pub(crate) attr: Attr,
}

impl InUse {
    /// Counts a user of the cell; `attr` as of now.
    pub(crate) fn new(store: &Arc<Store>, cell: Arc<InodeCell>, attr: Attr) -> InUse {
        cell.add_node();
        InUse { store: store.clone(), cell, attr }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if self.cell.drop_node() {
            self.store.let_go(&self.cell);
        }
    }
}

/// Fails for names that no entry can have.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    // All bytes, without leaving early: that is done many at a time.
    let odd = name.iter().fold(false, |odd, b| odd | (*b == 0) | (*b == b'/'));
    if name.is_empty() || odd {
        return Err(Error::Invalid { what: "a name is 1 to 255 bytes without `/` and NUL" });
    }
    if name == b"." || name == b".." {
        return Err(Error::Exists);
    }
    Ok(())
}
