//! Where look-ups in the old trees begin.

use crate::history::record::past::Past;

/// The old trees.
#[derive(Clone, Copy)]
pub(in crate::history::record) struct First<'p> {
    pub(super) past: &'p Past,
}

impl Past {
    /// The old trees.
    pub(in crate::history::record) fn first(&self) -> First<'_> {
        First { past: self }
    }
}
