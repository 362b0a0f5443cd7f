//! A set of page indexes that costs small files nothing: indexes below 64 are bits of a word, the others are
//! in a tree. Most files have no others, and their pages are marked and unmarked all the time.

use std::collections::BTreeSet;
use std::ops::Range;

/// How many indexes the word holds.
const LOW: u32 = u64::BITS;

#[derive(Default)]
pub(super) struct PageSet {
    low: u64,
    /// The indexes from [`LOW`] on.
    high: BTreeSet<u32>,
}

impl PageSet {
    pub(super) fn insert(&mut self, index: u32) {
        if index < LOW {
            self.low |= 1 << index;
        } else {
            self.high.insert(index);
        }
    }

    pub(super) fn remove(&mut self, index: u32) {
        if index < LOW {
            self.low &= !(1 << index);
        } else {
            self.high.remove(&index);
        }
    }

    pub(super) fn contains(&self, index: u32) -> bool {
        if index < LOW {
            self.low & (1 << index) != 0
        } else {
            self.high.contains(&index)
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.low == 0 && self.high.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.low.count_ones() as usize + self.high.len()
    }

    /// The first index at or after `from`.
    pub(super) fn next(&self, from: u32) -> Option<u32> {
        let low = match from {
            0..LOW => self.low >> from << from,
            _ => 0,
        };
        match low {
            0 => self.high.range(from..).next().copied(),
            _ => Some(low.trailing_zeros()),
        }
    }

    /// The indexes in the range, ascending. In an empty range, the start may be greater than the end.
    pub(super) fn range(&self, range: Range<u32>) -> impl Iterator<Item = u32> + '_ {
        let Range { start, end } = range;
        let low = (start..end.min(LOW)).filter(|index| self.contains(*index));
        let start = start.max(LOW);
        low.chain(self.high.range(start..end.max(start)).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A set agrees with a tree of all its indexes.
        #[test]
        fn agrees_with_a_tree(
            changes in prop::collection::vec((0u32..140, any::<bool>()), 0..200),
            (from, to) in (0u32..150, 0u32..150),
        ) {
            let (mut set, mut tree) = (PageSet::default(), BTreeSet::new());
            for (index, insert) in changes {
                if insert {
                    set.insert(index);
                    tree.insert(index);
                } else {
                    set.remove(index);
                    tree.remove(&index);
                }
                prop_assert_eq!(set.contains(index), insert);
            }
            prop_assert_eq!((set.len(), set.is_empty()), (tree.len(), tree.is_empty()));
            prop_assert_eq!(set.next(from), tree.range(from..).next().copied());
            let expected: Vec<u32> = tree.iter().copied().filter(|i| (from..to).contains(i)).collect();
            prop_assert_eq!(set.range(from..to).collect::<Vec<_>>(), expected);
        }
    }
}
