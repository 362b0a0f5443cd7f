//! What is written beside the last generation of a mount, into blocks that stay free: a hint that counts
//! exactly if the superblock of this generation does.
//!
//! It is prepared when the commit thread has ended, so the number of the last generation is known, and Ops
//! are possible that say where it is. Other calls may still be under way. So it is asked once more whether it
//! holds, in the moment in which the generation is frozen and no Op is open: what is in the generation is
//! exactly what was done by then. If it does not hold, zeros are written in its place.
//!
//! It is written before the flush that comes before the superblock. So the superblock of this generation is
//! on the medium only if the hint is, too.

use yore_device::AlignedBuf;
use yore_format::{BlockNo, Generation};

/// The end of a mount.
#[derive(Clone, Copy, Debug)]
pub struct Closing {
    /// The number that the last generation has.
    pub generation: Generation,
    /// The mount.
    pub mount_id: u64,
}

/// Bytes that are written beside the last generation.
pub struct Beside<'a> {
    /// The first block. Nobody else has the blocks, or gets them, and no generation that may still count
    /// names them.
    pub at: BlockNo,
    /// Their bytes.
    pub bytes: AlignedBuf,
    /// Whether the bytes still hold. It is asked with no Op open, and may only take locks that nobody holds
    /// while waiting for an Op.
    pub holds: Box<dyn Fn() -> bool + 'a>,
}

/// As [`Beside`], of a generation that is frozen.
pub(super) struct FrozenBeside {
    pub(super) at: BlockNo,
    pub(super) bytes: AlignedBuf,
}

impl Beside<'_> {
    /// The generation is frozen, with the gate held alone.
    pub(super) fn freeze(self) -> FrozenBeside {
        let bytes = match (self.holds)() {
            true => self.bytes,
            false => AlignedBuf::zeroed(self.bytes.len() / yore_format::BLOCK_SIZE),
        };
        FrozenBeside { at: self.at, bytes }
    }
}
