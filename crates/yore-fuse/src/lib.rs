//! Serves a [`View`](yore_fs::View) through FUSE. This crate has the mount point and the connection. It
//! translates each request into one call of the view, and the outcome of the call into a reply.
//!
//! # What stands where
//! - [`MountConfig`] says how to serve: names, rights, threads, and how long the kernel may believe what it
//!   was told.
//! - `mountpoint` decides whether a directory may be mounted on, and removes what a dead daemon left there.
//! - `attach` opens the connection: mount(2) for root, the set-user-id helper `fusermount3` for everybody
//!   else.
//! - `session` runs the threads and ends them. However a session ends, it closes the view and reports the
//!   end.
//! - `connection` is what the threads of a session share.
//! - `serve` is the translation: one method per request, and no state of its own beyond what the kernel's
//!   flags require.
//! - `serve::asked` brings requests that do not concern the content of files, by ioctls on directories, to
//!   [`yore_control`], which answers them.
//! - `past` and `snapdir` present the past to the kernel: nodes, and the directory of snapshots.
//! - `errno` is the only place in the project where an error becomes a number.
//!
//! # What the translation relies on
//! Only this daemon changes the volume. So the kernel may keep names, attributes, absent names, link targets,
//! listings and pages for as long as it likes ([`MountConfig::timeout`]). Every request that it does not send
//! saves a round trip, which is by far the largest cost here. The price: whatever changes the volume *behind
//! the kernel's back* (a restore, another view of the same volume) has to say so through [`Notices`].
//!
//! The kernel checks permissions (`default_permissions`, and POSIX ACLs once negotiated). The view learns who
//! calls only so that it can give new files their owner.
//!
//! # Numbers
//! FUSE insists that the root is node 1. Inode numbers 1 to 15 belong to no file, so node 1 is the root, and
//! every other node number is the inode number. Attributes and listings carry the true number, for the root
//! too: `ls -i` shows the same as a program that opens the volume itself.
//!
//! The same holds on a mount of one snapshot. On a mount of the present, files of the past have numbers of
//! their own (`past`), and node 2 is the directory of snapshots.
//!
//! # Several mounts of one volume
//! Beside the present, snapshots can be mounted ([`mount_snapshot`]), each with a connection and threads of
//! its own. They end one by one; but a contradiction in memory ends them all.
//!
//! # Lookup counts
//! Each reply that names an inode (lookup, create, an entry of a listing with attributes) is one *lookup*
//! that the kernel later gives back with FORGET. [`Node::into_counted`](yore_fs::Node::into_counted) adds it
//! and [`View::forget_lookups`](yore_fs::View::forget_lookups) gives it back, so a file that was unlinked
//! while open stays until the kernel forgets it. Requests are never withdrawn once read: the daemon declines
//! INTERRUPT, after which the kernel waits for the answer. So no lookup is lost with a reply that nobody
//! reads.

mod attach;
mod config;
mod connection;
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
mod stores;
mod tuning;

pub use config::{Granted, MountConfig, PastAccess};
pub use convert::no_attr;
pub use errno::errno;
pub use error::{MountError, NoticeError, SessionError, UnmountError};
pub use mountpoint::{mounted_at, unmount_at, MountedAt};
pub use notices::Notices;
pub use session::{mount, mount_filesystem, mount_snapshot, serve, End, Session, SessionHandle, UnmountHow};
