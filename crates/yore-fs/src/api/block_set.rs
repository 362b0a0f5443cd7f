//! A set of blocks of the device.

use std::collections::BTreeMap;
use yore_format::BITS_PER_GROUP;

const WORDS: usize = BITS_PER_GROUP as usize / 64;

/// A set of blocks: a bit for each, in 4 KiB of memory for each 128 MiB of the device that have one of them.
#[derive(Default)]
pub(crate) struct BlockSet {
    len: u64,
    maps: BTreeMap<u64, Box<[u64; WORDS]>>,
}

/// The map that has a block, and its word and bit there.
fn place(block: u64) -> (u64, usize, u32) {
    let bit = (block % u64::from(BITS_PER_GROUP)) as u32;
    (block / u64::from(BITS_PER_GROUP), bit as usize / 64, bit % 64)
}

impl BlockSet {
    /// Adds `len` blocks from `start` on.
    pub(crate) fn note(&mut self, start: u64, len: u64) {
        for block in start..start + len {
            let (map, word, bit) = place(block);
            let map = self.maps.entry(map).or_insert_with(|| Box::new([0; WORDS]));
            self.len += u64::from(map[word] >> bit & 1 == 0);
            map[word] |= 1 << bit;
        }
    }

    /// Whether it has all `len` blocks from `start` on.
    pub(crate) fn has(&self, start: u64, len: u64) -> bool {
        (start..start + len).all(|block| {
            let (map, word, bit) = place(block);
            self.maps.get(&map).is_some_and(|map| map[word] >> bit & 1 != 0)
        })
    }

    /// How many blocks it has.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A set has what was added, across the bounds of its maps, and counts each block once.
    #[test]
    fn blocks_are_counted_once() {
        let (mut set, per_map) = (BlockSet::default(), u64::from(BITS_PER_GROUP));
        set.note(per_map - 2, 5);
        set.note(per_map, 2);
        set.note(9, 0);
        assert_eq!(set.len(), 5);
        assert!(set.has(per_map - 2, 5) && set.has(7, 0));
        assert!(!set.has(per_map - 3, 2) && !set.has(per_map + 2, 2) && !set.has(1 << 50, 1));
    }
}
