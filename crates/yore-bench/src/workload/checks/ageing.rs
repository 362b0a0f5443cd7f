//! The tree that is checked, and how it ages.
//!
//! The tree has many small files and some larger ones, in directories of up to a thousand. Then it ages in
//! *levels*: files are made, appended to, truncated and removed, at random, each as often as the others, so
//! there are about as many files as before. A level has a call for each second file. It goes in steps; after
//! each step everything is put on the medium, and Yore takes a snapshot of it all, which other file systems
//! cannot. The same calls are made on all.

use crate::workload::script::{Action, Calls as _, Script, ROOT};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// Steps of a level, and so snapshots.
pub(super) const STEPS: usize = 10;

const PER_DIRECTORY: usize = 1000;
const SMALL: std::ops::RangeInclusive<u64> = 500..=16 << 10;
const LARGE: std::ops::RangeInclusive<u64> = 4 << 10..=2 << 20;

/// How large the tree is.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    /// Files of 500 bytes to 16 KiB.
    pub(super) files: usize,
    /// Files of 4 KiB to 2 MiB.
    pub(super) large: usize,
    /// Decides sizes, and what ages.
    pub(super) seed: u64,
}

/// A tree that grows and ages.
struct Aged {
    script: Script,
    random: StdRng,
    directories: Vec<u32>,
    /// Files that there are, with their sizes.
    there: Vec<(u32, u64)>,
    made: usize,
}

impl Tree {
    /// Makes it, in one phase for directories and one for files.
    pub(super) fn script(&self) -> Script {
        self.grown().script
    }

    /// The same, and behind that [`STEPS`] phases for each of so many levels.
    pub(super) fn aged(&self, levels: usize) -> Script {
        let mut aged = self.grown();
        for _ in 0..levels * STEPS {
            let actions = aged.step((self.files / 2).div_ceil(STEPS));
            aged.script.prepare(actions);
        }
        aged.script
    }

    fn grown(&self) -> Aged {
        let mut script = Script::default();
        let directories = script.make_directories("directory-", self.files.div_ceil(PER_DIRECTORY));
        let random = StdRng::seed_from_u64(self.seed);
        let mut aged = Aged { script, random, directories, there: Vec::new(), made: 0 };
        // The larger ones lie among the others.
        let every = (self.files / self.large.max(1)).max(1);
        let (mut left, mut actions) = (self.large, Vec::new());
        for i in 0..self.files {
            aged.make(&mut actions, i / PER_DIRECTORY, SMALL);
            if left > 0 && i % every == 0 {
                left -= 1;
                aged.make(&mut actions, i / PER_DIRECTORY, LARGE);
            }
        }
        aged.script.prepare(actions);
        aged
    }
}

impl Aged {
    fn make(&mut self, actions: &mut Vec<Action>, directory: usize, sizes: std::ops::RangeInclusive<u64>) {
        let directory = self.directories.get(directory).copied().unwrap_or(ROOT);
        let file = self.script.file(directory, format!("file-{}", self.made));
        self.made += 1;
        let bytes = self.random.random_range(sizes);
        actions.make(file, bytes);
        self.there.push((file, bytes));
    }

    /// So many calls.
    fn step(&mut self, calls: usize) -> Vec<Action> {
        let mut actions = Vec::new();
        for _ in 0..calls {
            let which = self.random.random_range(0..self.there.len().max(1));
            let Some((file, size)) = self.there.get(which).copied() else { break };
            match self.random.random_range(0..4) {
                0 => {
                    let directory = self.random.random_range(0..self.directories.len());
                    // As often larger ones as in the tree.
                    let sizes = if self.random.random_range(0..66) == 0 { LARGE } else { SMALL };
                    self.make(&mut actions, directory, sizes);
                }
                1 => {
                    let bytes = self.random.random_range(SMALL);
                    actions.append_to(file, size, bytes);
                    self.there[which].1 += bytes;
                }
                2 => {
                    let bytes = self.random.random_range(0..=size);
                    actions.extend([
                        Action::Open(file),
                        Action::Truncate { file, bytes },
                        Action::Close(file),
                    ]);
                    self.there[which].1 = bytes;
                }
                _ if self.there.len() > 1 => {
                    actions.push(Action::Remove(file));
                    self.there.swap_remove(which);
                }
                _ => {}
            }
        }
        actions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree has as many files as it should; ageing changes their number little, and only files that are
    /// there.
    #[test]
    fn a_tree_ages() {
        let tree = Tree { files: 2500, large: 40, seed: 1 };
        let script = tree.aged(2);
        assert_eq!(script.phases.len(), 2 + 2 * STEPS);
        assert_eq!(script.directory_count(), 1 + 3);
        let mut there = std::collections::BTreeSet::new();
        let mut kinds = [0; 4];
        for (i, phase) in script.phases.iter().enumerate() {
            for action in &phase.clients[0] {
                match action {
                    Action::Create(file) => {
                        assert!(there.insert(*file));
                        kinds[0] += 1;
                    }
                    Action::Remove(file) => {
                        assert!(there.remove(file));
                        kinds[1] += 1;
                    }
                    Action::Truncate { .. } => kinds[2] += 1,
                    Action::Open(file) => {
                        assert!(there.contains(file));
                        kinds[3] += 1;
                    }
                    _ => {}
                }
            }
            if i == 1 {
                assert_eq!(there.len(), 2540);
                assert_eq!(kinds, [2540, 0, 0, 0]);
            }
        }
        assert!((2300..2800).contains(&there.len()), "{}", there.len());
        assert!(kinds.iter().all(|kind| *kind > 400), "{kinds:?}");
    }
}
