//! How large the experiments are, beside those of the papers.

/// How large the experiments are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The share of what the papers did.
    pub share: f64,
    /// Files of Netnews; the paper had 520,000.
    pub news: usize,
}

impl Scale {
    /// `full` by this scale, and at least `least`.
    pub(crate) fn of(&self, full: usize, least: usize) -> usize {
        ((full as f64 * self.share) as usize).max(least.min(full))
    }
}
