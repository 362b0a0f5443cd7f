//! The intent log: `intent` appends, `replay` is what a mount makes of it, `notes` is the account of file
//! data in it. `place` finds it, in the volume (`region`) or on a device of its own (`elsewhere` makes it);
//! `opened` is an open one, and `moving` is for volumes that get another.

pub(crate) mod elsewhere;
pub(crate) mod intent;
pub(crate) mod moving;
pub(crate) mod notes;
pub(crate) mod opened;
pub(crate) mod place;
pub(crate) mod region;
pub(crate) mod replay;
