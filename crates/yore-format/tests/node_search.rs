//! Searching a node finds what a search of the sorted keys finds, for keys of every width that trees have.
//! Keys of more than eight bytes are compared as numbers first.

use std::collections::BTreeSet;
use yore_format::{NodeMut, NodeRef, ZERO_BLOCK};

/// Keys that differ in one byte or two, at all places, so that those parts of keys decide that are in both
/// halves of the number, or behind it.
fn keys(width: usize) -> BTreeSet<Vec<u8>> {
    let mut keys = BTreeSet::new();
    for place in 0..width {
        for byte in [1, 0x7f, 0x80, 0xff] {
            let mut key = vec![0x55; width];
            key[place] = byte;
            keys.insert(key.clone());
            key[width - 1] = 0x56;
            keys.insert(key);
        }
    }
    keys
}

#[test]
fn a_search_finds_keys_of_every_width() {
    for width in [8, 10, 11, 16, 17, 19, 24] {
        let all: Vec<_> = keys(width).into_iter().collect();
        // Every other key is in the node, so that those between are looked for, too.
        let there: Vec<_> = all.iter().step_by(2).take(80).cloned().collect();
        let mut block = ZERO_BLOCK;
        let mut node = NodeMut::init(&mut block, width);
        for (i, key) in there.iter().enumerate() {
            node.insert(i, key, b"v");
        }
        for key in &all {
            assert_eq!(NodeRef::new(&block).search(key), there.binary_search(key), "{width}: {key:02x?}");
        }
    }
}
