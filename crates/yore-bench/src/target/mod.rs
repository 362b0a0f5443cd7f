//! What a workload needs of a file system, and the two ways to it: system calls below a directory, and the
//! library's calls.
//!
//! A workload is written once, for any [`Target`], and compiled for each. So the library's cost is that of
//! its calls and not of a detour through paths, and a mount's cost is that of system calls. Both ways work as
//! a careful program does: they hold directories open and name files within them, so that neither pays for
//! long paths. A file is open from [`Target::create`] or [`Target::open`] until the handle is dropped. Types
//! tie handles to the target they came from.
//!
//! All methods take `&self`, and several threads may call them.

mod interface;
mod library;
mod system;

pub use interface::Target;
pub use library::LibraryTarget;
pub use system::SystemTarget;
