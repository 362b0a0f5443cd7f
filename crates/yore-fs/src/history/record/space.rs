//! How much space the past takes.

use super::past::Past;
use yore_format::{HistoryRoots, HistorySpace};

impl Past {
    /// What the past alone holds. O(1).
    pub(crate) fn space(&self) -> HistorySpace {
        self.roots.get().map_or(HistorySpace::default(), |frame| HistoryRoots::space(&frame.read()))
    }
}
