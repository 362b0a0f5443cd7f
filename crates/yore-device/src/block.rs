//! The unit of everything that devices do.

/// The size of a block in bytes, and the unit of every offset and length given to a [`crate::Device`].
pub const BLOCK_SIZE: usize = 4096;
