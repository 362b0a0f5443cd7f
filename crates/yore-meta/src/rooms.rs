//! The rooms that an Op and the writer work in: metadata blocks and the intent log.

use crate::blocks::Blocks;
use crate::log::intent::Intent;

/// Metadata blocks, with all that they stand on, and the log.
pub(crate) struct Rooms {
    pub(crate) blocks: Blocks,
    pub(crate) log: Intent,
}
