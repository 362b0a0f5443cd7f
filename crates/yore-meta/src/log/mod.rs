//! The intent log: `intent` appends, `replay` is what a mount makes of it, `notes` is the account of file
//! data in it, `region` its place on the medium.

pub(crate) mod intent;
pub(crate) mod notes;
pub(crate) mod region;
pub(crate) mod replay;
