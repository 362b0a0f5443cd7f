//! Operations on inodes and names: one function per file-system call. Each is at most one Op for every part
//! that a crash may separate. [`crate::View`] is their public face.
//!
//! The pattern of every change: reserve; lock the inodes in order (see [`yore_core::inode`]); look up and
//! check; pin what will change; open the Op; change; store the inodes. Whatever can fail comes before the Op
//! (R7). When a lookup shows that another lock or a larger reservation is needed, the call lets everything go
//! and starts over.

pub(crate) mod reap;

mod attr;
mod create;
mod flags;
mod in_use;
mod list;
mod names;
mod protected;
mod remove;
mod rename;

pub(crate) use attr::{get_xattr, read, readlink, regular, remove_xattr, set_attr, set_xattr, write};
pub(crate) use create::{create, link, name_at, NewFile};
pub(crate) use flags::set_flags;
pub(crate) use in_use::InUse;
pub(crate) use list::{age_access_time, lookup, readdir};
pub(crate) use protected::check_writes;
pub(crate) use remove::{remove, Remove};
pub(crate) use rename::rename;
