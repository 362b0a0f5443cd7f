//! Giving history up: what is needed of it, what nobody needs any more, and making room.

pub(crate) mod alone;
pub(crate) mod expunge;
pub(crate) mod forget;
pub(crate) mod needed;
pub mod retention;
pub(crate) mod room;
pub(crate) mod shred;
