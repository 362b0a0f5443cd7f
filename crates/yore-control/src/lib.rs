//! What commands ask of a volume, and what it answers: one protocol, whether the volume is mounted or opened
//! here.
//!
//! **Typed once.** A [`Request`] and its [`Answer`] are enums that serde writes and reads. There is no other
//! description of the bytes: whoever adds a request adds a variant here, an arm in [`answer`], and a method
//! of [`Client`].
//!
//! **Errors travel as themselves.** A request that fails is answered with the [`yore_fs::Error`] that the
//! library gave, with its fields, and the client returns the same error. An error number says less: EBUSY
//! does not say who holds a snapshot until when.
//!
//! **One client, two places.** [`Client`] has one method for each request. [`Mounted`] asks the daemon of a
//! mount, through an open directory of it. [`Here`] answers from a volume that this process has open. Both
//! end in the one function [`answer`], so a command behaves the same on a mount and on a volume opened here.
//! What differs stands in [`Who`]: the daemon takes it from the kernel's request, and who opened a volume may
//! do everything on it.
//!
//! # The transport
//!
//! One *restricted* ioctl(2), [`OPCODE`] = `_IOWR('Y', 100, 16376 bytes)`, on any open directory of a mount.
//! An ioctl carries who asks, arrives at the right daemon whatever the mount is called, and needs no socket
//! that has to be found. The number says how many bytes go in and come back, so the kernel copies a buffer of
//! that size in both directions and nothing else. The buffer holds first the request and then the answer:
//!
//! | bytes | |
//! |---|---|
//! | 0..4 | `yore` |
//! | 4..8 | [`VERSION`] of whoever wrote it, little-endian |
//! | 8..12 | length of what follows the head |
//! | 12..16 | zeros |
//! | 16.. | a [`Request`], or a `Result<Answer, yore_fs::Error>`, as [postcard](https://postcard.jamesmunns.com/wire-format) writes it |
//!
//! The head never changes. A daemon of another version answers with its own version and nothing else, and the
//! client says in words that the mount is served by another version of yore. So [`VERSION`] must grow with
//! each change of a type that travels; a test holds the bytes of samples fixed, and fails when they change.
//!
//! Nothing that goes through the ioctl is larger than the buffer. Lists are paged: an answer has as many rows
//! as there is room for, and the number to go on from. The daemon keeps nothing between two pages.
//!
//! # Bytes from another process
//!
//! Neither side believes the other. Lengths are bounded by the buffer, errors are nested at most sixteen deep
//! ([`yore_device::travel`](../yore_device/travel/index.html)), the texts of errors that a process keeps are
//! bounded (`yore_format::travel`), and no bytes panic.
//!
//! Looking at history is still to come: `control/look.rs` of yore-fuse and the modules below it have requests
//! of their own numbers for that.

mod client;
mod message;
mod server;
mod wire;

pub use client::{Client, Here, Mounted};
pub use message::{
    Answer, Known, KnownFile, Named, Page, PolicyHere, Request, Saying, Stopped, Take, FORGET_MAX,
};
pub use server::told;
pub use server::{answer, may_take, Host, Kept, Who};
pub use wire::{decode_request, encode_answer, encode_nothing, Wrong, BYTES, OPCODE, VERSION};
