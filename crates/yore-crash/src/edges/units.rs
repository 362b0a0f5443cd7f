//! Units of blocks: what a change means, in parts that do not move (docs/EDGES.md, "Changes").

use std::collections::BTreeMap;
use yore_format::{
    BitmapMut, BitmapRef, Block, BlockHeader, BlockKind, HistoryRoots, Inode, NodeMut, NodeRef,
    BITS_PER_GROUP, HEADER_BYTES, INODES_PER_BLOCK,
};
use yore_fs::Piece;

/// What a unit has; `None`: nothing.
pub(super) type Value = Option<Vec<u8>>;

/// Units of a block, by name: the key of a cell, or a number.
pub(super) type Units = BTreeMap<Vec<u8>, Value>;

/// Bytes of a unit of a block of which nothing is derived.
const WORD: usize = 8;

fn kind(block: &Block) -> Option<BlockKind> {
    BlockKind::from_repr(BlockHeader::of(block).kind)
}

fn is_node(block: &Block) -> bool {
    kind(block).is_some_and(BlockKind::is_tree)
}

fn number(i: usize) -> Vec<u8> {
    (i as u32).to_be_bytes().to_vec()
}

/// All units that a block has.
fn units(block: &Block) -> Units {
    match kind(block) {
        _ if is_node(block) => {
            let node = NodeRef::new(block);
            (0..node.count()).map(|i| (node.key(i).to_vec(), Some(node.value(i).to_vec()))).collect()
        }
        Some(BlockKind::Inodes) => {
            (0..INODES_PER_BLOCK).map(|i| (number(i), Some(Inode::slot(block, i).to_vec()))).collect()
        }
        Some(BlockKind::Bitmap) => {
            let map = BitmapRef::new(block);
            let set = (0..BITS_PER_GROUP).filter(|bit| map.get(*bit));
            set.map(|bit| (number(bit as usize), Some(Vec::new()))).collect()
        }
        _ => {
            let words = block[HEADER_BYTES..].chunks(WORD).enumerate();
            words.map(|(i, word)| (number(i), Some(word.to_vec()))).collect()
        }
    }
}

/// The units that a change says it changed, with what they have behind it.
pub(super) fn changed(pieces: &[Piece]) -> Units {
    let mut units = Units::new();
    for piece in pieces {
        match piece {
            Piece::Cell { key, value } => {
                units.insert(key.to_vec(), value.as_ref().map(|value| value.to_vec()));
            }
            Piece::Slot { slot, bytes } => drop(units.insert(number((*slot).into()), Some(bytes.to_vec()))),
            Piece::Bits { word, mask, to } => units.extend(
                (0..64)
                    .filter(|bit| mask & 1 << bit != 0)
                    .map(|bit| (number(usize::from(*word) * 64 + bit), (to & 1 << bit != 0).then(Vec::new))),
            ),
            Piece::Word { word, bytes } => drop(units.insert(number((*word).into()), Some(bytes.to_vec()))),
        }
    }
    units
}

/// Whether it is the block of the roots of the history, whose counts are recounted.
fn is_roots(block: &Block) -> bool {
    kind(block) == Some(BlockKind::HistoryRoots)
}

/// Whether a block has what is not of its units: the width of a node's keys, or counts.
pub(super) fn has_form(block: &Block) -> bool {
    is_roots(block) || is_node(block) && NodeRef::new(block).key_width() > 0
}

/// Whether it is a table of counts. Which tables a group has is said in its zone.
pub(super) fn is_table(block: &Block) -> bool {
    kind(block) == Some(BlockKind::CountTable)
}

/// Whether it is a branch without children.
pub(super) fn is_bare(block: &Block) -> bool {
    is_node(block) && NodeRef::new(block).level() > 0 && NodeRef::new(block).count() == 0
}

/// Whether a node has room for these cells.
fn fits(cells: &BTreeMap<&[u8], &[u8]>) -> bool {
    let bytes: usize = cells.iter().map(|(key, value)| NodeRef::cell_bytes(key.len(), value.len())).sum();
    bytes <= yore_format::NODE_PAYLOAD_BYTES
}

/// The block `base` with these units changed; the form of a node is that of `form`. `None`: the cells do not
/// fit.
pub(super) fn compose(base: &Block, form: &Block, change: &Units) -> Option<Box<Block>> {
    if is_node(base) {
        let old = units(base);
        let mut cells: BTreeMap<&[u8], &[u8]> = BTreeMap::new();
        for (key, value) in old.iter().chain(change) {
            match value {
                Some(value) => drop(cells.insert(key, value)),
                None => drop(cells.remove(&key[..])),
            }
        }
        if !fits(&cells) {
            return None;
        }
        let mut block = Box::new(*base);
        if !has_form(form) {
            return Some(block);
        }
        let mut node = NodeMut::init(&mut block, NodeRef::new(form).key_width());
        for (i, (key, value)) in cells.into_iter().enumerate() {
            node.insert(i, key, value);
        }
        return Some(block);
    }
    let mut block = Box::new(*base);
    for at in (HEADER_BYTES..block.len()).filter(|at| is_roots(form) && HistoryRoots::is_counted(*at)) {
        block[at] = form[at];
    }
    for (unit, value) in change {
        let i = u32::from_be_bytes(unit[..].try_into().ok()?) as usize;
        match (kind(base), value) {
            (Some(BlockKind::Inodes), Some(value)) => {
                Inode::slot_mut(&mut block, i).0.copy_from_slice(value);
            }
            (Some(BlockKind::Bitmap), value) => {
                if BitmapRef::new(&block).get(i as u32) != value.is_some() {
                    BitmapMut::new(&mut block).set(i as u32, 1, value.is_some());
                }
            }
            (_, Some(value)) => {
                let at = HEADER_BYTES + i * WORD;
                block[at..at + WORD].copy_from_slice(value);
            }
            (_, None) => {}
        }
    }
    Some(block)
}
