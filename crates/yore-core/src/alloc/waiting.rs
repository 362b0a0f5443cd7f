//! Runs of blocks, and those of them that wait to be discarded (`discard.rs`).

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::AtomicU32;
use yore_format::BlockNo;

/// Consecutive blocks on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first block.
    pub start: BlockNo,
    /// How many blocks: at least 1, all in one group.
    pub len: u32,
}

impl Run {
    /// The block after the last.
    pub fn end(self) -> u64 {
        self.start.0 + u64::from(self.len)
    }
}

/// Runs that are to be discarded.
#[derive(Default)]
pub(super) struct Discards {
    /// The length of the shortest run that is discarded; 0: none is.
    pub(super) least: AtomicU32,
    pub(super) waiting: Mutex<Waiting>,
    /// Signalled when nothing is under way any more.
    pub(super) ended: Condvar,
}

#[derive(Default)]
pub(super) struct Waiting {
    pub(super) runs: VecDeque<Run>,
    /// Threads that have taken runs from here and not made them available yet.
    pub(super) under_way: u32,
    /// Threads that need these runs. No discard begins meanwhile.
    pub(super) recalls: u32,
    /// Runs that were made available and not discarded.
    #[cfg(feature = "mutations")]
    pub(super) left_out: Vec<Run>,
}
