//! Serves a [`View`](yore_fs::View) through FUSE: the mount point, the connection, and the translation of
//! each request into one call of the view and of its outcome into a reply.
//!
//! # What stands where
//! - [`MountConfig`] says how to serve: names, rights, threads, how long the kernel may believe what it was
//!   told.
//! - `mountpoint` decides whether a directory may be mounted on, and clears away what a dead daemon left
//!   there.
//! - `attach` opens the connection: mount(2) for root, the set-user-id helper `fusermount3` for everybody
//!   else.
//! - `session` runs the threads and ends them; whatever way a session ends, the view is closed and the end is
//!   told.
//! - `serve` is the translation, one method per request, no state of its own beyond what the kernel's flags
//!   say.
//! - [`control`] is what is not a file's business: taking and listing snapshots, by ioctls on directories.
//! - `past` and `snapdir` are what of the past the kernel is told: nodes, and the directory of snapshots.
//! - `errno` is the only place in the project where an error becomes a number.
//!
//! # What the translation relies on
//! Only this daemon changes the volume. So the kernel may keep names, attributes, absent names, link targets,
//! listings and pages for as long as it likes ([`MountConfig::timeout`]), and every request it does not send
//! is a round trip saved, by far the largest cost here. The price: whatever changes the volume *behind the
//! kernel's back* (a restore, another view of the same volume) has to say so through [`Notices`].
//!
//! Permissions are checked by the kernel (`default_permissions`, and POSIX ACLs once negotiated); the view is
//! told who calls only to give new files their owner.
//!
//! # Numbers
//! FUSE insists that the root is node 1. Inode numbers 1 to 15 belong to no file, so node 1 is the root and
//! every other node number is the inode number. Attributes and listings carry the true number, for the root
//! too: `ls -i` shows the same as a program that opens the volume itself.
//!
//! On a mount of one snapshot it is the same. On one of the present, what is of the past has numbers of its
//! own (`past`), and node 2 is the directory of snapshots.
//!
//! # Several mounts of one volume
//! Beside the present, snapshots can be mounted ([`mount_snapshot`]), each with a connection and threads of
//! its own. They end one by one; but a contradiction in memory ends them all.
//!
//! # Holds
//! Each reply that names an inode (lookup, create, an entry of a listing with attributes) is one *lookup*
//! that the kernel later gives back with FORGET. [`Node::into_counted`](yore_fs::Node::into_counted) takes it
//! and [`View::release`](yore_fs::View::release) gives it back, so a file that was unlinked while open stays
//! until the kernel forgets it. Requests are never withdrawn once read (INTERRUPT is declined, after which
//! the kernel waits for the answer), so no hold is lost with a reply nobody reads.

mod attach;
mod config;
pub mod control;
mod convert;
mod errno;
mod error;
mod mapped;
mod mountpoint;
mod notices;
mod past;
mod privilege;
mod process_pins;
mod serve;
mod session;
mod snapdir;
mod tuning;

pub use config::{Granted, MountConfig, PastAccess};
pub use errno::errno;
pub use error::{MountError, NoticeError, SessionError, UnmountError};
pub use mountpoint::{mounted_at, unmount_at, MountedAt};
pub use notices::Notices;
pub use session::{mount, mount_filesystem, mount_snapshot, serve, End, Session, SessionHandle, UnmountHow};
