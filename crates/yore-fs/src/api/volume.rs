//! Paths: a [`Volume`] is used like `std::fs`, in the process that opened it.
//!
//! Every method takes a path on the volume (any bytes but NUL; a leading `/` may be left out), resolves it to
//! inodes with [`View`], and names the path in its errors. The rules of resolution are those of the system
//! calls: symbolic links are followed (40 of them, then [`Error::Loop`]) except in the last place of calls
//! that say so, `..` is the real parent of the directory reached, and a trailing `/` insists on a directory.
//!
//! **Rights.** Whoever opened the volume may do everything to it: no permission is checked, just as whoever
//! can write to a disk can change any file on it. New files belong to the process's effective user and group
//! and have its umask applied ([`Volume::as_caller`] changes that). Programs that serve several users check
//! before they call.
//!
//! **Several threads** may share a volume, and each call is as atomic as the same call of [`View`]. Calls
//! that consist of several others (`create_dir_all`, `remove_dir_all`, `copy`, walking) are not atomic.
//!
//! **Durability.** Changes are visible at once, and are on the medium some seconds later; [`File::sync_all`]
//! and [`Volume::sync`] wait for the medium. [`Volume::close`] reports errors that dropping the volume could
//! not.

mod attributes;
mod dir;
mod directories;
mod file;
mod handle;
mod metadata;
mod names;
mod options;
mod path;
#[cfg(test)]
mod tests;
mod tree;
mod whole;

pub use dir::{DirEntry, ReadDir};
pub use file::{File, OpenOptions};
pub use handle::Volume;
pub use metadata::{FileType, Metadata};
pub use tree::{Walk, WalkEntry};
