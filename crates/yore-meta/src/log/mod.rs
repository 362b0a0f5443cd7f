//! The intent log.

pub(crate) mod intent;
pub(crate) mod noted;
pub(crate) mod replay;
