//! Giving history up: which of it is needed, how to free what is not, and how to make room.

pub(crate) mod alone;
pub(crate) mod expunge;
pub(crate) mod forget;
pub(crate) mod needed;
pub(crate) mod references;
pub mod retention;
pub(crate) mod room;
pub(crate) mod rows;
pub(crate) mod seers;
pub(crate) mod shred;
pub(crate) mod spans;
pub(crate) mod unended;
pub(crate) mod whose;
