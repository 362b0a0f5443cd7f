//! The order of changes of an open volume, recorded for tests that prove it (docs/EDGES.md, "The judge").

use crate::api::view::View;
use crate::Result;
use yore_meta::Recording;

impl View {
    /// Records all changes of metadata from now on, with what they change and their order. Memory grows by
    /// two blocks with each of them: for short sequences of calls only.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`].
    pub fn record_order(&self) -> Result<()> {
        let store = self.live()?;
        store.check_writable()?;
        store.meta.record_order();
        Ok(())
    }

    /// What was recorded so far.
    ///
    /// # Errors
    /// Those of a view that is closed.
    pub fn recorded_order(&self) -> Result<Recording> {
        Ok(self.live()?.meta.recorded_order())
    }
}
