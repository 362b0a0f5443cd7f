//! Recording the order of changes, for tests that prove it without an engine (docs/EDGES.md, "The judge").

use super::Meta;
use crate::base::recorder::Recording;

impl Meta {
    /// Records all changes of metadata from now on, with what they change and their order. Memory grows by
    /// a block with each of them: for short sequences only.
    pub fn record_order(&self) {
        // With no Op open: one that is has asked before.
        let _alone = self.base().gate.enter_alone();
        self.base().order.record();
    }

    /// What was recorded so far; nothing if nobody has asked for it.
    pub fn recorded_order(&self) -> Recording {
        self.base().order.recorder.wanted().map_or_else(Recording::default, |order| order.recording())
    }
}
