//! Pins: they keep an event from being forgotten while it is mounted by itself, or while something under way
//! may have to go back to it.

use crate::types::PinnedBy;
use crate::{Result, View};
use yore_format::EventNo;

/// Keeps an event from being forgotten as long as this lives.
#[must_use]
pub struct Pin {
    view: View,
    event: EventNo,
    by: PinnedBy,
}

impl Pin {
    /// The tree as of the event.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The event.
    pub fn event(&self) -> EventNo {
        self.event
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.view.store().past.unpin(self.event, self.by);
    }
}

impl View {
    /// Keeps an event from being forgotten, by anybody and for any reason, as long as the returned pin lives.
    /// In memory only: another process that opens the volume later knows nothing of it. O(log events).
    ///
    /// ```
    /// use yore_fs::{Error, NewSnapshot, PinnedBy, Volume};
    ///
    /// # fn main() -> yore_fs::Result<()> {
    /// let volume = Volume::memory(64 << 20)?;
    /// let view = volume.view();
    /// let event = view.take_snapshot(view.root(), &NewSnapshot::default())?.number;
    /// let pin = view.pin(event, PinnedBy::Work)?;
    /// assert!(matches!(view.forget(&[event]), Err(Error::Pinned { .. })));
    /// drop(pin);
    /// view.forget(&[event])
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] if the event is not kept; damage and device errors.
    pub fn pin(&self, event: EventNo, by: PinnedBy) -> Result<Pin> {
        self.store().past.pin(&self.store().meta, event, by)?;
        Ok(Pin { view: self.as_of(event), event, by })
    }
}
