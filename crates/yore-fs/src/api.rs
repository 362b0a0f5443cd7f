//! What programs ask of a volume: the calls of a [`crate::View`] that change it, or are about its past.

pub(crate) mod block_set;
pub(crate) mod checksums;
pub(crate) mod copy;
pub(crate) mod defrag;
pub(crate) mod inodes;
pub(crate) mod online;
pub(crate) mod opened;
pub(crate) mod room;
pub(crate) mod scrub;
pub(crate) mod shrink;
pub(crate) mod together;
pub(crate) mod verify;
pub(crate) mod view;
pub(crate) mod volume;

mod open;
mod past;
mod present;
mod recorded;
pub(crate) mod recount;
