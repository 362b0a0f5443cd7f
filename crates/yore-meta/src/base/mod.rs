//! What lies below the metadata.

pub(crate) mod extensions;
