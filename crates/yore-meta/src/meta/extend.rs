//! Features and rules that a volume gets while it is in use (E1 in `base/features.rs`).

use super::Meta;
use crate::base::gate::assert_no_op;
use crate::error::Result;
use yore_format::{SpaceRules, WriteFeatures};

impl Meta {
    /// Whether the volume has these features, durably.
    #[inline]
    pub fn has_features(&self, features: WriteFeatures) -> bool {
        self.base().features.has(features)
    }

    /// Gives the volume features for good, of those that are a bit of their own ([`WriteFeatures::stored`]).
    /// They are durable when this returns. The caller holds no lock and has no Op open. If the volume has
    /// them already, this costs an atomic load.
    ///
    /// # Errors
    /// [`crate::MetaError::ReadOnly`]; those of writing a generation.
    pub fn extend(&self, features: WriteFeatures) -> Result<()> {
        if self.has_features(features) {
            return Ok(());
        }
        assert_no_op();
        self.check_writable()?;
        self.base().features.extend(features, || self.sync_always())
    }

    /// How much history a full volume keeps; `None`: nobody has said so.
    pub fn space_rules(&self) -> Option<SpaceRules> {
        self.base().features.space_rules()
    }

    /// Sets how much history a full volume keeps. Durable when this returns.
    ///
    /// # Errors
    /// [`crate::MetaError::ReadOnly`]; those of writing a generation.
    ///
    /// # Panics
    /// For a share above 100 percent.
    pub fn set_space_rules(&self, rules: SpaceRules) -> Result<()> {
        assert!(rules.share_percent <= 100, "a share of {} percent", rules.share_percent);
        self.check_writable()?;
        self.base().features.set_space_rules(rules);
        self.sync_always()
    }

    /// As [`Meta::sync`], and a generation is written also if nothing has changed.
    ///
    /// # Errors
    /// As [`Meta::sync`].
    pub fn sync_always(&self) -> Result<()> {
        self.check_writable()?;
        self.base().ledger.note_changed();
        self.sync()
    }
}
