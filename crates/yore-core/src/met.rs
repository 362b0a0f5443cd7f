//! Blocks of file data that were met damaged since the volume was opened.
//!
//! Whoever reads a block that is not what its checksum says notes it here, so that others can tell whose it
//! is, and what of the past is whole. Nothing relies on that: the block may have been freed since, and be
//! another file's.
//!
//! A reader only notes it in memory. Housekeeping records it on the volume a moment later, so that it
//! outlives the process however that ends.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use yore_meta::Meta;

/// So many are noted.
const MOST: usize = 1000;

/// Blocks that were met damaged.
#[derive(Debug, Default)]
pub struct MetDamage {
    blocks: Mutex<BTreeSet<u64>>,
    /// Whether some were noted that nobody has tried to record.
    is_new: AtomicBool,
}

impl MetDamage {
    /// Notes a block.
    pub fn note(&self, block: u64) {
        let mut blocks = self.blocks.lock();
        if blocks.len() < MOST && blocks.insert(block) {
            self.is_new.store(true, Ordering::Release);
        }
    }

    /// All that are noted.
    pub fn all(&self) -> BTreeSet<u64> {
        self.blocks.lock().clone()
    }

    /// Forgets these: somebody has found out what they are.
    pub fn forget(&self, blocks: &BTreeSet<u64>) {
        self.blocks.lock().retain(|block| !blocks.contains(block));
    }

    /// Records those that are noted, as many as there is room for, if some are new. They have their use
    /// without a record, so whoever calls this goes on if they cannot be recorded. The caller holds no locks.
    pub fn record(&self, meta: &Meta) {
        if self.is_new.swap(false, Ordering::AcqRel) {
            if let Err(error) = meta.record_damaged(|| self.all()) {
                tracing::warn!(%error, "which data was met damaged cannot be recorded");
            }
        }
    }
}
