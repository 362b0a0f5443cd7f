//! What a workload needs of a file system, and the two ways to it: system calls below a directory, and the
//! library's calls.
//!
//! A workload is written once, for any [`Target`], and compiled for each: what the library costs is then the
//! library's calls and not a detour through paths, and what a mount costs is system calls. Both ways work as
//! a careful program does: directories are held open and files are named within them, so that neither pays
//! for long paths; a file is open from [`Target::create`] or [`Target::open`] until the handle is dropped.
//! Handles belong to the target they came from by type.
//!
//! All methods take `&self` and may be called by several threads.

mod interface;
mod library;
mod system;

pub use interface::Target;
pub use library::LibraryTarget;
pub use system::SystemTarget;
