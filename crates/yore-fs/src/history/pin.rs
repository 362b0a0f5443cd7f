//! Cuts that somebody needs to stay: those that are mounted by themselves, and those that something under way may have to go back to.

use crate::types::PinnedBy;
use crate::{Result, View};
use yore_format::Number;

/// A cut that is not forgotten as long as this lives.
#[must_use]
pub struct Pin {
    view: View,
    cut: Number,
    by: PinnedBy,
}

impl Pin {
    /// The tree as of the cut.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The cut.
    pub fn cut(&self) -> Number {
        self.cut
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.view.store().past.unpin(self.cut, self.by);
    }
}

impl View {
    /// Keeps a cut from being forgotten as long as the answer lives, by whomever and for whatever. In memory only: another process
    /// that opens the volume later knows nothing of it. O(log cuts).
    ///
    /// ```
    /// use yore_fs::{Error, PinnedBy, Volume};
    ///
    /// # fn main() -> yore_fs::Result<()> {
    /// let volume = Volume::memory(64 << 20)?;
    /// let view = volume.view();
    /// let cut = view.snapshot(view.root(), "", false, false)?.number;
    /// let pin = view.pin(cut, PinnedBy::Work)?;
    /// assert!(matches!(view.forget(&[cut]), Err(Error::Pinned { .. })));
    /// drop(pin);
    /// view.forget(&[cut])
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] if it is not kept; damage and device errors.
    pub fn pin(&self, cut: Number, by: PinnedBy) -> Result<Pin> {
        self.store().past.pin(&self.store().meta, cut, by)?;
        Ok(Pin { view: self.as_of(cut), cut, by })
    }
}
