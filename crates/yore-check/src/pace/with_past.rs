//! How long the fast pass of a volume with a past still takes, once all blocks are held.
//!
//! It has three parts. The trees of the past are compared: the volume says how many nodes they have. Then
//! blocks are summed up, all of which are known. Then versions are walked, all of which were counted in the
//! first part. By experience walking them takes as long as comparing the trees took.

use std::time::{Duration, Instant};

/// What it does, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Trees,
    Blocks,
    Versions,
}

/// Something that is done bit by bit.
#[derive(Clone, Copy, Debug, Default)]
struct Amount {
    done: u64,
    all: u64,
}

impl Amount {
    /// What the rest takes, if what is done took so long.
    fn left(&self, took: f64) -> Option<f64> {
        let left = self.all.saturating_sub(self.done) as f64;
        (self.done > 0).then(|| took * left / self.done as f64)
    }
}

/// The work that is left.
#[derive(Debug)]
pub(super) struct WithPast {
    doing: Doing,
    since: Instant,
    trees: Amount,
    blocks: Amount,
    versions: Amount,
    /// What the trees took.
    of_trees: Duration,
    /// What a block takes, before any was summed up.
    each_block: Duration,
}

impl WithPast {
    /// The trees come first. All blocks are so many.
    pub(super) fn new(blocks: u64, each_block: Duration) -> WithPast {
        WithPast {
            doing: Doing::Trees,
            since: Instant::now(),
            trees: Amount::default(),
            blocks: Amount { done: 0, all: blocks },
            versions: Amount::default(),
            of_trees: Duration::ZERO,
            each_block,
        }
    }

    /// The trees have so many nodes.
    pub(super) fn has_trees(&mut self, nodes: u64) {
        self.trees.all = nodes;
    }

    /// The trees were compared, and name so many versions. Blocks are summed up next.
    pub(super) fn sums_up(&mut self, versions: u64) {
        (self.of_trees, self.versions.all) = (self.since.elapsed(), versions);
        (self.doing, self.since) = (Doing::Blocks, Instant::now());
    }

    /// All blocks were summed up. Versions are walked next.
    pub(super) fn walks(&mut self) {
        (self.doing, self.since) = (Doing::Versions, Instant::now());
    }

    /// So much of what is under way was done.
    pub(super) fn note(&mut self, count: u64, is_version: bool) {
        match self.doing {
            Doing::Trees => self.trees.done += count,
            Doing::Blocks => self.blocks.done += count,
            // Nodes that versions lead to are part of walking them.
            Doing::Versions if is_version => self.versions.done += count,
            Doing::Versions => {}
        }
    }

    /// What is left, in seconds.
    pub(super) fn left(&self, now: Instant) -> f64 {
        let took = (now - self.since).as_secs_f64();
        let blocks = self.each_block.as_secs_f64() * self.blocks.all as f64;
        match self.doing {
            Doing::Trees => match self.trees.left(took) {
                // As long as them again for the versions.
                Some(trees) => trees + blocks + (took + trees),
                None => 2.0 * blocks,
            },
            Doing::Blocks => self.blocks.left(took).unwrap_or(blocks) + self.of_trees.as_secs_f64(),
            Doing::Versions if self.versions.all == 0 => 0.0,
            Doing::Versions => self.versions.left(took).unwrap_or(self.of_trees.as_secs_f64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that what is left shrinks as things are done, part by part, and is nothing in the end.
    #[test]
    fn what_is_left_shrinks() {
        let mut work = WithPast::new(1000, Duration::from_millis(1));
        work.has_trees(100);
        let at = |work: &WithPast, seconds: u64| work.left(work.since + Duration::from_secs(seconds));
        assert!((at(&work, 0) - 2.0).abs() < 1e-6);
        work.note(50, false);
        // Ten seconds for the half: ten more, a second for the blocks, and twenty for the versions.
        assert!((at(&work, 10) - 31.0).abs() < 1e-6);
        work.sums_up(200);
        work.of_trees = Duration::from_secs(20);
        assert!((at(&work, 0) - 21.0).abs() < 1e-6);
        work.note(500, false);
        assert!((at(&work, 2) - 22.0).abs() < 1e-6);
        work.walks();
        assert!((at(&work, 0) - 20.0).abs() < 1e-6);
        work.note(7, false);
        work.note(100, true);
        assert!((at(&work, 15) - 15.0).abs() < 1e-6);
        work.note(100, true);
        assert!(at(&work, 30) < 1e-6);
    }
}
