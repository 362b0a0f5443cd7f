//! Blocks of file data that were met damaged since the volume was opened.
//!
//! Whoever reads a block that is not what its checksum says notes it here, so that others can tell whose it
//! is, and what of the past is whole. Nothing relies on that: the block may have been freed since, and be
//! another file's.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use yore_meta::Meta;

/// So many are noted.
const MOST: usize = 1000;

/// Blocks that were met damaged.
#[derive(Debug, Default)]
pub struct MetDamage(Mutex<BTreeSet<u64>>);

impl MetDamage {
    /// Notes a block.
    pub fn note(&self, block: u64) {
        let mut met = self.0.lock();
        if met.len() < MOST {
            met.insert(block);
        }
    }

    /// All that are noted.
    pub fn all(&self) -> BTreeSet<u64> {
        self.0.lock().clone()
    }

    /// Forgets these: somebody has found out what they are.
    pub fn forget(&self, blocks: &BTreeSet<u64>) {
        self.0.lock().retain(|block| !blocks.contains(block));
    }

    /// Before the volume is closed: records them, as many as there is room for. They have their use without a
    /// record, so closing goes on if they cannot be recorded.
    pub fn record(&self, meta: &Meta) {
        let met = self.all();
        if met.is_empty() {
            return;
        }
        let recorded = meta.scrubs().and_then(|mut record| match record.add_damaged(met) {
            true => meta.record_scrubs(&record, None, false),
            false => Ok(()),
        });
        if let Err(error) = recorded {
            tracing::warn!(%error, "which data was met damaged cannot be recorded");
        }
    }
}
