//! What a volume gets while it is in use: features that older programs do not know, and rules in the superblock.
//!
//! **E1** A feature is durable before the first byte that needs it. Otherwise a crash could leave, in the log or in a generation, rows
//! that an older program would take for damage. So [`Meta::extend`] completes a generation whose superblock has the feature,
//! once in the life of a volume; from then on it costs an atomic load.

use crate::error::Result;
use crate::meta::{assert_no_op, Meta};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use yore_format::{SpaceRules, Superblock, WriteFeatures};

/// Features and rules of an open volume.
pub(crate) struct Extensions {
    /// Those that the next superblock has.
    wanted: AtomicU64,
    /// Those that a superblock on the medium has.
    durable: AtomicU64,
    space_rules: Mutex<Option<SpaceRules>>,
    /// Held by the one who makes a feature durable.
    extending: Mutex<()>,
}

impl Extensions {
    pub(crate) fn new(found: &Superblock) -> Extensions {
        let bits = found.features.stored().bits();
        Extensions {
            wanted: AtomicU64::new(bits),
            durable: AtomicU64::new(bits),
            space_rules: Mutex::new(found.space_rules),
            extending: Mutex::new(()),
        }
    }

    pub(crate) fn wanted(&self) -> WriteFeatures {
        WriteFeatures::from_bits_truncate(self.wanted.load(Ordering::Acquire))
    }

    pub(crate) fn space_rules(&self) -> Option<SpaceRules> {
        *self.space_rules.lock()
    }
}

impl Meta {
    /// Whether the volume has these features, durably.
    pub fn has_features(&self, features: WriteFeatures) -> bool {
        let bits = features.stored().bits();
        self.extensions.durable.load(Ordering::Acquire) & bits == bits
    }

    /// Gives the volume features for good, of those that are a bit of their own ([`WriteFeatures::stored`]). They are durable when this
    /// returns. The caller holds no lock and has no Op open. A volume that has them costs an atomic load.
    ///
    /// # Errors
    /// [`crate::MetaError::ReadOnly`]; those of writing a generation.
    pub fn extend(&self, features: WriteFeatures) -> Result<()> {
        if self.has_features(features) {
            return Ok(());
        }
        assert_no_op();
        self.check_writable()?;
        let bits = features.stored().bits();
        let _alone = self.extensions.extending.lock();
        self.extensions.wanted.fetch_or(bits, Ordering::AcqRel);
        self.note_root_changed();
        self.sync()?;
        self.extensions.durable.fetch_or(bits, Ordering::AcqRel);
        Ok(())
    }

    /// How much history a full volume keeps; `None`: nobody has said so.
    pub fn space_rules(&self) -> Option<SpaceRules> {
        self.extensions.space_rules()
    }

    /// Says how much history a full volume keeps. Durable when it returns.
    ///
    /// # Errors
    /// [`crate::MetaError::ReadOnly`]; those of writing a generation.
    ///
    /// # Panics
    /// For a share above 100 percent.
    pub fn set_space_rules(&self, rules: SpaceRules) -> Result<()> {
        assert!(rules.share_percent <= 100, "a share of {} percent", rules.share_percent);
        self.check_writable()?;
        *self.extensions.space_rules.lock() = Some(rules);
        self.note_root_changed();
        self.sync()
    }
}
