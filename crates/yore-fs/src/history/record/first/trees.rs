//! Where look-ups in the trees of the first edition begin.

use crate::history::record::past::Past;

/// The trees of the first edition.
#[derive(Clone, Copy)]
pub(in crate::history::record) struct First<'p> {
    pub(super) past: &'p Past,
}

impl Past {
    /// The trees of the first edition.
    pub(in crate::history::record) fn first(&self) -> First<'_> {
        First { past: self }
    }
}
