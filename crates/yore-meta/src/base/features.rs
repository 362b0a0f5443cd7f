//! What a volume gets while it is in use: features that older programs do not know, and rules in the
//! superblock.
//!
//! **E1** A feature is durable before the first byte that needs it. Otherwise a crash could leave, in the log
//! or in a generation, rows that an older program would take for damage. So [`Features::extend`] completes a
//! generation whose superblock has the feature, once in the life of a volume; from then on it costs an atomic
//! load.

use crate::error::Result;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use yore_format::{SpaceRules, Superblock, WriteFeatures};

/// Features and rules of an open volume.
pub(crate) struct Features {
    /// Those that the next superblock has.
    wanted: AtomicU64,
    /// Those that a superblock on the medium has.
    durable: AtomicU64,
    space_rules: Mutex<Option<SpaceRules>>,
    /// The thread that makes a feature durable holds this.
    extending: Mutex<()>,
}

impl Features {
    pub(crate) fn new(found: &Superblock) -> Features {
        let bits = found.features.stored().bits();
        Features {
            wanted: AtomicU64::new(bits),
            durable: AtomicU64::new(bits),
            space_rules: Mutex::new(found.space_rules),
            extending: Mutex::new(()),
        }
    }

    /// The features that the next superblock has.
    pub(crate) fn wanted(&self) -> WriteFeatures {
        WriteFeatures::from_bits_truncate(self.wanted.load(Ordering::Acquire))
    }

    /// Whether the volume has these features, durably.
    #[inline]
    pub(crate) fn has(&self, features: WriteFeatures) -> bool {
        let bits = features.stored().bits();
        self.durable.load(Ordering::Acquire) & bits == bits
    }

    /// Adds features for good. `complete` completes a generation whose superblock has them.
    pub(crate) fn extend(
        &self,
        features: WriteFeatures,
        complete: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let bits = features.stored().bits();
        let _alone = self.extending.lock();
        self.wanted.fetch_or(bits, Ordering::AcqRel);
        complete()?;
        self.durable.fetch_or(bits, Ordering::AcqRel);
        Ok(())
    }

    pub(crate) fn space_rules(&self) -> Option<SpaceRules> {
        *self.space_rules.lock()
    }

    /// Sets what the next superblock says of history on a full volume.
    pub(crate) fn set_space_rules(&self, rules: SpaceRules) {
        *self.space_rules.lock() = Some(rules);
    }
}
