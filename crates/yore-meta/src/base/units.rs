//! Units of blocks: what a change means, in parts that do not move (docs/EDGES.md, "Changes").
//!
//! A block is a set of *units*: the cells of a node, the slots of a block of inodes, the bits of a bitmap,
//! the words of everything else. A change says itself which units it means ([`tell`]), and [`compose`] makes
//! a block from an older one and some of the changes behind it. Where cells lie in a node, its index and its
//! counters, and the count of a bitmap are *derived*: they come out as [`compose`] makes them. Debug builds
//! compare what a change tells with what it did ([`is_all`]).
//!
//! **What holds.** If the changes are a set that is closed under the order of changes of one unit (U1), then
//! each unit of the composed block is as the last of its changes left it. All of the changes together give
//! what the block is now, unit by unit; a test compares.

use hashbrown::{HashMap, HashSet};
use std::collections::BTreeMap;
use std::ops::Range;
use yore_format::{
    BitmapMut, BitmapRef, Block, BlockHeader, BlockKind, Inode, NodeMut, NodeRef, HEADER_BYTES, INODE_BYTES,
    NODE_HEADER_BYTES, NODE_PAYLOAD_BYTES,
};
#[cfg(any(test, debug_assertions))]
use yore_format::{HistoryRoots, BITS_PER_GROUP, BLOCK_SIZE, INODES_PER_BLOCK};

/// Bytes of a unit of a block of which nothing is derived.
const WORD: usize = 8;
/// Bits of a word of a bitmap.
const BITS: usize = 64;

/// What a change did to units of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The cell of a key has this value; `None`: it is gone.
    Cell {
        /// Its key.
        key: Box<[u8]>,
        /// Its value.
        value: Option<Box<[u8]>>,
    },
    /// A slot of a block of inodes has these bytes.
    Slot {
        /// Which one.
        slot: u16,
        /// What it has.
        bytes: Box<[u8]>,
    },
    /// The bits of the mask, in this word of a bitmap, are as in `to`.
    Bits {
        /// Which word of 64 bits.
        word: u16,
        /// The bits that are meant.
        mask: u64,
        /// What the word has.
        to: u64,
    },
    /// A word has these bytes.
    Word {
        /// Which word of eight bytes behind the header.
        word: u16,
        /// What it has.
        bytes: [u8; 8],
    },
}

impl Piece {
    /// Whether all that it does is to clear bits.
    pub(crate) fn only_clears(&self) -> bool {
        matches!(self, Piece::Bits { mask, to, .. } if mask & to == 0)
    }
}

/// Units of several changes.
#[derive(Default)]
pub(crate) struct Units<'t> {
    keys: HashSet<&'t [u8]>,
    slots: HashSet<u16>,
    bits: HashMap<u16, u64>,
    words: HashSet<u16>,
}

impl<'t> Units<'t> {
    /// Whether any of these is among them.
    pub(crate) fn has_any(&self, pieces: &[Piece]) -> bool {
        pieces.iter().any(|piece| match piece {
            Piece::Cell { key, .. } => self.keys.contains(&key[..]),
            Piece::Slot { slot, .. } => self.slots.contains(slot),
            Piece::Bits { word, mask, .. } => self.bits.get(word).is_some_and(|bits| bits & mask != 0),
            Piece::Word { word, .. } => self.words.contains(word),
        })
    }

    pub(crate) fn add_all(&mut self, pieces: &'t [Piece]) {
        for piece in pieces {
            match piece {
                Piece::Cell { key, .. } => drop(self.keys.insert(key)),
                Piece::Slot { slot, .. } => drop(self.slots.insert(*slot)),
                Piece::Bits { word, mask, .. } => *self.bits.entry(*word).or_insert(0) |= mask,
                Piece::Word { word, .. } => drop(self.words.insert(*word)),
            }
        }
    }
}

fn kind(block: &Block) -> Option<BlockKind> {
    BlockKind::from_repr(BlockHeader::of(block).kind)
}

pub(crate) fn is_node(block: &Block) -> bool {
    kind(block).is_some_and(BlockKind::is_tree)
}

/// The width of a node's keys; 0: it has no form yet, and no cells.
pub(crate) fn key_width(block: &Block) -> usize {
    match is_node(block) {
        true => NodeRef::new(block).key_width(),
        false => 0,
    }
}

/// The width of a node's keys behind changes with these pieces; 0: it has no cells even then.
pub(crate) fn width_behind<'p>(base: &Block, mut pieces: impl Iterator<Item = &'p Piece>) -> usize {
    let mut of_pieces = || {
        pieces.find_map(|piece| match piece {
            Piece::Cell { key, .. } => Some(key.len()),
            Piece::Slot { .. } | Piece::Bits { .. } | Piece::Word { .. } => None,
        })
    };
    match key_width(base) {
        0 => of_pieces().unwrap_or(0),
        width => width,
    }
}

/// Whether a block is a branch without children. It is not written before it has some.
pub(crate) fn is_bare(block: &Block) -> bool {
    is_node(block) && {
        let node = NodeRef::new(block);
        node.level() > 0 && node.count() == 0
    }
}

fn word_range(word: usize) -> Range<usize> {
    HEADER_BYTES + word * WORD..HEADER_BYTES + (word + 1) * WORD
}

/// Adds what a change of a block says of itself: the units at `meaning`, as [`yore_format::Touched`] has it,
/// with what they have now.
#[cold]
#[inline(never)]
pub(crate) fn tell(block: &Block, meaning: &Range<usize>, pieces: &mut Vec<Piece>) {
    if meaning.is_empty() {
        return;
    }
    let numbers = |origin: usize, size: usize| {
        meaning.start.saturating_sub(origin) / size..(meaning.end - origin).div_ceil(size)
    };
    match kind(block) {
        _ if is_node(block) => tell_cells(NodeRef::new(block), meaning, pieces),
        Some(BlockKind::Inodes) => pieces.extend(
            numbers(HEADER_BYTES, INODE_BYTES)
                .map(|slot| Piece::Slot { slot: slot as u16, bytes: Inode::slot(block, slot)[..].into() }),
        ),
        Some(BlockKind::Bitmap) => pieces.extend(numbers(0, BITS).map(|word| {
            let from = meaning.start.saturating_sub(word * BITS) as u32;
            let beyond = ((word + 1) * BITS).saturating_sub(meaning.end) as u32;
            let mask = u64::MAX << from & u64::MAX >> beyond;
            Piece::Bits { word: word as u16, mask, to: BitmapRef::new(block).word(word) }
        })),
        _ => pieces.extend(numbers(HEADER_BYTES, WORD).map(|word| {
            let bytes = block[word_range(word)].try_into().expect("eight bytes");
            Piece::Word { word: word as u16, bytes }
        })),
    }
}

fn tell_cells(node: NodeRef<'_>, meaning: &Range<usize>, pieces: &mut Vec<Piece>) {
    if meaning.start >= NODE_HEADER_BYTES {
        let (key, value) = node.cell_from(meaning.start);
        pieces.push(Piece::Cell { key: key.into(), value: value.map(Into::into) });
        return;
    }
    // The image of a new node.
    let cell = |i: usize| Piece::Cell { key: node.key(i).into(), value: Some(node.value(i).into()) };
    pieces.extend((0..node.count()).map(cell));
}

/// A cell of a node is about to get another key.
#[cold]
#[inline(never)]
pub(crate) fn tell_gone(block: &Block, cell: usize, pieces: &mut Vec<Piece>) {
    pieces.push(Piece::Cell { key: NodeRef::new(block).key(cell).into(), value: None });
}

/// Whether what a change said of itself is all that it did.
#[cfg(any(test, debug_assertions))]
pub(crate) fn is_all(before: &Block, after: &Block, told: &[Piece]) -> bool {
    compose(before, key_width(after), told.iter()).is_some_and(|block| changed(&block, after).is_empty())
}

/// What a change did, found by comparing.
#[cfg(any(test, debug_assertions))]
pub(crate) fn changed(before: &Block, after: &Block) -> Vec<Piece> {
    match kind(after) {
        _ if is_node(after) => cells_changed(NodeRef::new(before), NodeRef::new(after)),
        Some(BlockKind::Inodes) => {
            let differs = |slot: &usize| Inode::slot(before, *slot) != Inode::slot(after, *slot);
            let slots = (0..INODES_PER_BLOCK).filter(differs);
            let piece = |slot| Piece::Slot { slot: slot as u16, bytes: Inode::slot(after, slot)[..].into() };
            slots.map(piece).collect()
        }
        Some(BlockKind::Bitmap) => {
            let (old, new) = (BitmapRef::new(before), BitmapRef::new(after));
            let words =
                (0..BITS_PER_GROUP as usize / BITS).map(|word| (word, old.word(word), new.word(word)));
            let pieces = words.filter(|(_, old, new)| old != new);
            pieces
                .map(|(word, old, new)| Piece::Bits { word: word as u16, mask: old ^ new, to: new })
                .collect()
        }
        _ => {
            let is_roots = kind(after) == Some(BlockKind::HistoryRoots);
            let words = (0..(BLOCK_SIZE - HEADER_BYTES) / WORD)
                .filter(|word| before[word_range(*word)] != after[word_range(*word)])
                .filter(|word| !is_roots || !HistoryRoots::is_counted(word_range(*word).start));
            let bytes = |word: usize| after[word_range(word)].try_into().expect("eight bytes");
            words.map(|word| Piece::Word { word: word as u16, bytes: bytes(word) }).collect()
        }
    }
}

/// Both nodes have their cells in the order of keys.
#[cfg(any(test, debug_assertions))]
fn cells_changed(old: NodeRef<'_>, new: NodeRef<'_>) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let gone = |i: usize| Piece::Cell { key: old.key(i).into(), value: None };
    let come = |i: usize| Piece::Cell { key: new.key(i).into(), value: Some(new.value(i).into()) };
    let (mut i, mut k) = (0, 0);
    while i < old.count() && k < new.count() {
        match old.key(i).cmp(new.key(k)) {
            std::cmp::Ordering::Less => {
                pieces.push(gone(i));
                i += 1;
            }
            std::cmp::Ordering::Greater => {
                pieces.push(come(k));
                k += 1;
            }
            std::cmp::Ordering::Equal => {
                if old.value(i) != new.value(k) {
                    pieces.push(come(k));
                }
                (i, k) = (i + 1, k + 1);
            }
        }
    }
    pieces.extend((i..old.count()).map(gone));
    pieces.extend((k..new.count()).map(come));
    pieces
}

/// `base` with these changes, in their order. `width` is that of a node's keys. `None`: the cells of a node
/// do not fit.
pub(crate) fn compose<'p>(
    base: &Block,
    width: usize,
    pieces: impl Iterator<Item = &'p Piece>,
) -> Option<Box<Block>> {
    let mut block = Box::new(*base);
    if is_node(base) {
        let mut cells = cells_of(base);
        pieces.for_each(|piece| put(&mut cells, piece));
        if width == 0 {
            return cells.is_empty().then_some(block);
        }
        if bytes_of(&cells, width) > NODE_PAYLOAD_BYTES {
            return None;
        }
        let mut node = NodeMut::init(&mut block, width);
        for (i, (key, value)) in cells.into_iter().enumerate() {
            node.insert(i, key, value);
        }
        return Some(block);
    }
    for piece in pieces {
        match piece {
            Piece::Slot { slot, bytes } => {
                Inode::slot_mut(&mut block, usize::from(*slot)).0.copy_from_slice(bytes);
            }
            Piece::Bits { word, mask, to } => put_bits(&mut block, *word, *mask, *to),
            Piece::Word { word, bytes } => {
                let at = HEADER_BYTES + usize::from(*word) * WORD;
                block[at..at + WORD].copy_from_slice(bytes);
            }
            Piece::Cell { .. } => unreachable!("a block that is no node has no cells"),
        }
    }
    Some(block)
}

fn put_bits(block: &mut Block, word: u16, mask: u64, to: u64) {
    let differs = (BitmapRef::new(block).word(usize::from(word)) ^ to) & mask;
    let mut left = differs;
    while left != 0 {
        let bit = left.trailing_zeros();
        let is_used = to & (1 << bit) != 0;
        let _ = BitmapMut::new(block).set(u32::from(word) * BITS as u32 + bit, 1, is_used);
        left &= left - 1;
    }
}

type Cells<'a> = BTreeMap<&'a [u8], &'a [u8]>;

fn cells_of(block: &Block) -> Cells<'_> {
    let node = NodeRef::new(block);
    (0..node.count()).map(|i| (node.key(i), node.value(i))).collect()
}

fn put<'a>(cells: &mut Cells<'a>, piece: &'a Piece) {
    match piece {
        Piece::Cell { key, value: Some(value) } => drop(cells.insert(key, value)),
        Piece::Cell { key, value: None } => drop(cells.remove(&key[..])),
        Piece::Slot { .. } | Piece::Bits { .. } | Piece::Word { .. } => {
            unreachable!("a node has nothing but cells")
        }
    }
}

fn bytes_of(cells: &Cells<'_>, width: usize) -> usize {
    cells.values().map(|value| NodeRef::cell_bytes(width, value.len())).sum()
}

#[cfg(test)]
mod tests;
