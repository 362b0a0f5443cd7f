//! Requests of commands to a volume, and its answers: one protocol, whether the volume is mounted or opened
//! here.
//!
//! **Typed once.** A [`Request`] and its [`Answer`] are enums that serde writes and reads. There is no other
//! description of the bytes. A new request needs a variant here, an arm in [`answer`], and a method of
//! [`Client`].
//!
//! **Errors travel as themselves.** A request that fails is answered with the [`yore_fs::Error`] that the
//! library gave, with its fields, and the client returns the same error. An error number says less: EBUSY
//! does not say who holds a snapshot until when.
//!
//! **One client, two places.** [`Client`] has one method for each request. [`Mounted`] asks the daemon of a
//! mount, through an open directory of it. [`Here`] answers from a volume that this process has open. Both
//! end in the one function [`answer`], so a command behaves the same on a mount and on a volume opened here.
//! The differences are in [`Who`]: the daemon takes it from the kernel's request, and a process that has
//! opened a volume may do everything on it.
//!
//! # The transport
//!
//! One *restricted* ioctl(2), [`OPCODE`] = `_IOWR('Y', 100, 16376 bytes)`, on any open directory of a mount.
//! An ioctl carries the identity of the asker, arrives at the right daemon whatever the mount is called, and
//! needs no socket that has to be found. The number says how many bytes go in and come back, so the kernel
//! copies a buffer of that size in both directions and nothing else. The buffer holds first the request and
//! then the answer:
//!
//! | bytes | |
//! |---|---|
//! | 0..4 | `yore` |
//! | 4..8 | [`VERSION`] of the writer, little-endian |
//! | 8..12 | length of what follows the head |
//! | 12..16 | zeros |
//! | 16.. | a [`Request`], or a `Result<Answer, yore_fs::Error>`, as [postcard](https://postcard.jamesmunns.com/wire-format) writes it |
//!
//! The head never changes. A daemon of another version answers with its own version and nothing else, and the
//! client says in words that another version of yore serves the mount. So [`VERSION`] must grow with each
//! change of a type that travels. A test fixes the bytes of samples, and fails when they change.
//!
//! Nothing that goes through the ioctl is larger than the buffer. Lists are paged: an answer has as many rows
//! as there is room for, and the number to go on from. The daemon keeps nothing between two pages. What
//! cannot be gone on with from a number, because it was computed as a whole ([`Query`]), is an answer of up
//! to 64 MiB that comes in parts ([`Answer::Part`]); the daemon keeps the rest ([`Ongoing`]).
//!
//! # Bytes from another process
//!
//! Neither side trusts the other. The buffer bounds all lengths, errors are nested at most sixteen deep
//! ([`yore_device::travel`](../yore_device/travel/index.html)), the texts of errors that a process keeps are
//! bounded (`yore_format::travel`), and no bytes panic.

mod client;
mod message;
mod ongoing;
mod server;
mod wire;

pub use client::{check_writable, Client, Here, Mounted, Until, Watch};
pub use message::{
    Answer, Checked, HistoryBytes, Identity, Known, KnownFile, Named, Page, PolicyHere, Query, QueryResult,
    Request, Saying, Shown, Stopped, Take, FORGET_MAX,
};
pub use ongoing::Ongoing;
pub use server::{answer, may_take, Host, Pinning, Who};
pub use wire::{decode_request, encode_nothing, Wrong, BYTES, OPCODE, VERSION};
