//! Units, against blocks that are changed at random.

use super::*;
use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use yore_format::{EventNo, Incarnation, InodeNo, MetaAddr, ZERO_BLOCK};

fn block(kind: BlockKind) -> Box<Block> {
    let mut block = Box::new(ZERO_BLOCK);
    BlockHeader::init(&mut block, kind, 0, MetaAddr(77), InodeNo(16), Incarnation(1), 5, EventNo(0));
    block
}

/// Changes a block once, as the layers above do.
fn change(block: &mut Block, random: &mut Xoshiro256PlusPlus) {
    match kind(block) {
        Some(BlockKind::Directory) => {
            if NodeRef::new(block).key_width() == 0 {
                NodeMut::init(block, 8);
            }
            let key = random.random_range(0..40u64).to_be_bytes();
            let value = vec![random.random::<u8>(); random.random_range(0..300)];
            let found = NodeRef::new(block).search(&key);
            let room = NodeRef::new(block).free_bytes();
            let mut node = NodeMut::new(block);
            match found {
                Ok(i) => {
                    let _ = node.remove(i);
                }
                Err(i) if NodeRef::cell_bytes(8, value.len()) <= room => {
                    let _ = node.insert(i, &key, &value);
                }
                Err(_) => {}
            }
        }
        Some(BlockKind::Inodes) => {
            let slot = random.random_range(0..INODES_PER_BLOCK);
            random.fill(&mut Inode::slot_mut(block, slot).0[..]);
        }
        Some(BlockKind::Bitmap) => {
            let bit = random.random_range(0..300);
            let is_used = BitmapRef::new(block).get(bit);
            let _ = BitmapMut::new(block).set(bit, 1, !is_used);
        }
        _ => {
            let at = HEADER_BYTES + random.random_range(0..64);
            block[at] = random.random();
        }
    }
}

fn meaning(block: &Block) -> Vec<u8> {
    match is_node(block) {
        true => {
            let node = NodeRef::new(block);
            (0..node.count()).flat_map(|i| [node.key(i), node.value(i)].concat()).collect()
        }
        false => block[HEADER_BYTES..].to_vec(),
    }
}

const KINDS: [BlockKind; 4] =
    [BlockKind::Directory, BlockKind::Inodes, BlockKind::Bitmap, BlockKind::HistoryRoots];

/// All changes together give what the block is, and each prefix gives what it was.
#[test]
fn prefixes_of_the_changes_give_what_the_block_was() {
    for seed in 0..200 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        for kind in KINDS {
            let mut now = block(kind);
            for _ in 0..random.random_range(0..30) {
                change(&mut now, &mut random);
            }
            let base = now.clone();
            let (mut pieces, mut was) = (Vec::new(), vec![now.clone()]);
            for _ in 0..40 {
                let before = now.clone();
                change(&mut now, &mut random);
                pieces.push(changed(&before, &now));
                was.push(now.clone());
            }
            for (n, was) in was.iter().enumerate() {
                let width = key_width(&now);
                let made = compose(&base, width, pieces[..n].iter().flatten()).expect("it did fit");
                assert_eq!(meaning(&made), meaning(was), "{kind:?}, seed {seed}, {n} changes");
            }
        }
    }
}
