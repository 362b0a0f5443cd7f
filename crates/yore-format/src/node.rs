//! Nodes of B+trees: slotted pages.
//!
//! ```text
//! 0        64         80            80+2n                heap_start          4096
//! | header | counters | index (n×2) |  free              | cells, any order  |
//! ```
//! A cell is `size u16, flags u8, 0, key, value` with a key of the tree's fixed width, compared as bytes.
//! Cells are self-describing and lie back to back from `heap_start` to the end, so index and counters can be
//! derived from the cells alone: the order of the index is that of the keys of the live cells. A cell stays
//! where it is until [`NodeMut::compact`] moves all of them; removing one only clears its LIVE flag.
//!
//! In a branch the value is the child's address, and cell i's key is the lower bound of child i. Invariant
//! kept by the trees above: a node's keys lie in [own lower bound, next sibling's lower bound).

use crate::header::HEADER_BYTES;
use crate::{Block, BlockHeader, BlockKind, Corruption, Touched, BLOCK_SIZE};

/// Bytes before the index.
pub const NODE_HEADER_BYTES: usize = 80;
/// Bytes for index and cells.
pub const NODE_PAYLOAD_BYTES: usize = BLOCK_SIZE - NODE_HEADER_BYTES;
const CELL_HEADER: usize = 4;
const LIVE: u8 = 1;

const COUNT: usize = HEADER_BYTES;
const HEAP_START: usize = HEADER_BYTES + 2;
const DEAD: usize = HEADER_BYTES + 4;
const KEY_WIDTH: usize = HEADER_BYTES + 6;
const COUNTERS: std::ops::Range<usize> = COUNT..KEY_WIDTH;
const RESERVED: std::ops::Range<usize> = HEADER_BYTES + 7..NODE_HEADER_BYTES;

/// The layout of a node, the block header included.
pub(crate) fn layout() -> crate::StructLayout {
    let fields = [
        ("header", 0),
        ("count", COUNT),
        ("heap_start", HEAP_START),
        ("dead", DEAD),
        ("key_width", KEY_WIDTH),
        ("reserved", RESERVED.start),
        ("index_and_cells", NODE_HEADER_BYTES),
    ];
    crate::tables::layout_of_offsets("Tree node", BLOCK_SIZE, &fields)
}

fn get16(block: &Block, at: usize) -> usize {
    usize::from(u16::from_le_bytes([block[at], block[at + 1]]))
}

fn set16(block: &mut Block, at: usize, value: usize) {
    let value = u16::try_from(value).expect("offsets in a block fit 16 bits");
    block[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

/// The first 16 bytes of a key of 8 to 24 as a number, which orders as they do. Of a shorter key than 16
/// bytes those in the middle are in it twice, which orders the same.
#[inline]
fn wide_number(key: &[u8]) -> Option<u128> {
    let half =
        |at: usize| key.get(at..at + 8).map(|b| u64::from_be_bytes(b.try_into().expect("eight bytes")));
    Some(u128::from(half(0)?) << 64 | u128::from(half(key.len().min(16) - 8)?))
}

/// A node to read. The accessors rely on [`NodeRef::verify`] having passed, which the metadata layer sees to.
#[derive(Clone, Copy)]
pub struct NodeRef<'a> {
    block: &'a Block,
}

impl<'a> NodeRef<'a> {
    /// The key of the cell whose bytes begin at `at`, and its value if it was not removed. For bytes that
    /// [`Touched::meaning`] names.
    pub fn cell_from(self, at: usize) -> (&'a [u8], Option<&'a [u8]>) {
        let value = at + CELL_HEADER + self.key_width();
        let is_live = self.block[at + 2] & LIVE != 0;
        let end = at + get16(self.block, at);
        (&self.block[at + CELL_HEADER..value], is_live.then(|| &self.block[value..end]))
    }

    /// `block` as a node.
    pub fn new(block: &'a Block) -> NodeRef<'a> {
        NodeRef { block }
    }

    /// Number of live cells.
    pub fn count(self) -> usize {
        get16(self.block, COUNT)
    }

    /// 0 for leaves.
    pub fn level(self) -> u8 {
        BlockHeader::of(self.block).level
    }

    /// Bytes of each key.
    pub fn key_width(self) -> usize {
        usize::from(self.block[KEY_WIDTH])
    }

    fn cell(self, i: usize) -> &'a [u8] {
        let at = get16(self.block, NODE_HEADER_BYTES + 2 * i);
        &self.block[at..at + get16(self.block, at)]
    }

    /// Key of cell `i`.
    pub fn key(self, i: usize) -> &'a [u8] {
        let at = get16(self.block, NODE_HEADER_BYTES + 2 * i) + CELL_HEADER;
        &self.block[at..at + self.key_width()]
    }

    /// Key of cell `i` where keys have eight bytes: as a number, which orders as the bytes do.
    fn key_number(self, i: usize) -> u64 {
        let at = get16(self.block, NODE_HEADER_BYTES + 2 * i) + CELL_HEADER;
        u64::from_be_bytes(self.block[at..at + 8].try_into().expect("eight bytes"))
    }

    /// Value of cell `i`.
    pub fn value(self, i: usize) -> &'a [u8] {
        &self.cell(i)[CELL_HEADER + self.key_width()..]
    }

    /// In a branch: the address of child `i`.
    ///
    /// # Errors
    /// [`Corruption`] if the value is no address.
    pub fn child(self, i: usize) -> Result<crate::MetaAddr, Box<Corruption>> {
        let value = self.value(i);
        match <[u8; 8]>::try_from(value).map(u64::from_le_bytes).map(crate::MetaAddr) {
            Ok(addr) if addr.is_plausible() && !addr.is_none() => Ok(addr),
            _ => Err(Corruption::new("tree branch", "child", "a metadata address", format!("{value:02x?}"))
                .at(crate::MetaAddr(BlockHeader::of(self.block).addr.get()))),
        }
    }

    /// Where `key` is (`Ok`) or would be inserted (`Err`). O(log n).
    pub fn search(self, key: &[u8]) -> Result<usize, usize> {
        if let (Ok(key), 8) = (<[u8; 8]>::try_from(key), self.key_width()) {
            return self.search_number(u64::from_be_bytes(key));
        }
        let (mut lo, mut hi) = (0, self.count());
        if key.len() == self.key_width() {
            if let Some(number) = wide_number(key) {
                // Those of keys with a lesser number are before it; of one with the same number all bytes
                // are compared.
                while lo < hi {
                    let mid = (lo + hi) / 2;
                    let found = wide_number(self.key(mid)).unwrap_or_default();
                    if found == number && (key.len() <= 16 || *self.key(mid) == *key) {
                        return Ok(mid);
                    }
                    let less = found < number || found == number && *self.key(mid) < *key;
                    (lo, hi) = if less { (mid + 1, hi) } else { (lo, mid) };
                }
                return Err(lo);
            }
        }
        while lo < hi {
            let mid = (lo + hi) / 2;
            match self.key(mid).cmp(key) {
                std::cmp::Ordering::Less => lo = mid + 1,
                std::cmp::Ordering::Greater => hi = mid,
                std::cmp::Ordering::Equal => return Ok(mid),
            }
        }
        Err(lo)
    }

    /// As [`NodeRef::search`], for keys of eight bytes: numbers compare in one step, and nearly all trees
    /// have such keys.
    fn search_number(self, key: u64) -> Result<usize, usize> {
        let (mut lo, mut hi) = (0, self.count());
        while lo < hi {
            let mid = (lo + hi) / 2;
            let found = self.key_number(mid);
            if found == key {
                return Ok(mid);
            }
            // Without a branch that half of the time is guessed wrong.
            (lo, hi) = if found < key { (mid + 1, hi) } else { (lo, mid) };
        }
        Err(lo)
    }

    /// In a branch with at least one cell: the child whose range holds `key` (the first, for keys before
    /// all).
    pub fn child_for(self, key: &[u8]) -> usize {
        match self.search(key) {
            Ok(i) => i,
            Err(i) => i.saturating_sub(1),
        }
    }

    /// Bytes a new cell may take including its index entry, after compaction if need be.
    pub fn free_bytes(self) -> usize {
        get16(self.block, HEAP_START) - NODE_HEADER_BYTES - 2 * self.count() + get16(self.block, DEAD)
    }

    /// Bytes of live cells and their index entries.
    pub fn used_bytes(self) -> usize {
        NODE_PAYLOAD_BYTES - self.free_bytes()
    }

    /// Bytes that a cell with a value of `value_len` takes, with its index entry.
    pub fn cell_bytes(key_width: usize, value_len: usize) -> usize {
        CELL_HEADER + key_width + value_len + 2
    }

    /// Bytes cell `i` takes, with its index entry.
    pub fn cell_size(self, i: usize) -> usize {
        self.cell(i).len() + 2
    }

    /// The verifier: counters, index and cells agree, keys ascend strictly. O(n).
    ///
    /// # Errors
    /// [`Corruption`] naming the first contradiction.
    pub fn verify(self) -> Result<(), Box<Corruption>> {
        let bad = |field, expected: String, found: String| {
            Err(Corruption::new("tree node", field, expected, found))
        };
        let (count, start, dead, width) =
            (self.count(), get16(self.block, HEAP_START), get16(self.block, DEAD), self.key_width());
        match BlockKind::from_repr(BlockHeader::of(self.block).kind).and_then(BlockKind::key_width) {
            Some(of_kind) if width != of_kind => {
                return bad("key width", of_kind.to_string(), width.to_string());
            }
            None if !matches!(width, 8 | 16 | 24) => {
                return bad("key width", "8, 16 or 24".into(), width.to_string());
            }
            _ => {}
        }
        if self.block[RESERVED].iter().any(|b| *b != 0) {
            return bad("reserved bytes", "zero".into(), "something else".into());
        }
        if start > BLOCK_SIZE || start < NODE_HEADER_BYTES + 2 * count {
            return bad("heap start", format!("between index and {BLOCK_SIZE}"), start.to_string());
        }
        if self.level() > 0 && count == 0 {
            return bad("count", "at least one child in a branch".into(), "0".into());
        }
        let (mut at, mut live, mut dead_found) = (start, 0, 0);
        // Where cells begin: what looks like a cell in the midst of another's bytes is none.
        let mut starts = [0u64; BLOCK_SIZE / 64];
        while at < BLOCK_SIZE {
            let size = if at + CELL_HEADER <= BLOCK_SIZE { get16(self.block, at) } else { 0 };
            if size < CELL_HEADER + width || at + size > BLOCK_SIZE {
                return bad(
                    "cell size",
                    format!("{}..={}", CELL_HEADER + width, BLOCK_SIZE - at),
                    size.to_string(),
                );
            }
            if self.block[at + 3] != 0 {
                return bad("reserved byte of a cell", "0".into(), self.block[at + 3].to_string());
            }
            starts[at / 64] |= 1 << (at % 64);
            match self.block[at + 2] {
                LIVE => live += 1,
                0 => dead_found += size,
                flags => return bad("cell flags", "0 or 1".into(), flags.to_string()),
            }
            at += size;
        }
        if live != count || dead_found != dead {
            let found = format!("{live} live cells, {dead_found} dead bytes");
            return bad("counters", format!("{count} live cells, {dead} dead bytes"), found);
        }
        self.verify_index(count, start, width, &starts)
    }

    fn verify_index(
        self,
        count: usize,
        start: usize,
        width: usize,
        starts: &[u64; BLOCK_SIZE / 64],
    ) -> Result<(), Box<Corruption>> {
        let bad = |field, expected: String, found: String| {
            Err(Corruption::new("tree node", field, expected, found))
        };
        let mut previous: Option<&[u8]> = None;
        for i in 0..count {
            let at = get16(self.block, NODE_HEADER_BYTES + 2 * i);
            if at < start || at + CELL_HEADER + width > BLOCK_SIZE {
                return bad("index entry", format!("an offset in {start}..{BLOCK_SIZE}"), at.to_string());
            }
            if starts[at / 64] & (1 << (at % 64)) == 0 || self.block[at + 2] != LIVE {
                return bad("index entry", "the offset of a live cell".into(), at.to_string());
            }
            let key = self.key(i);
            if previous.is_some_and(|p| p >= key) {
                return bad(
                    "key order",
                    "ascending keys".into(),
                    format!("cell {i} not after its predecessor"),
                );
            }
            previous = Some(key);
            if self.level() > 0 {
                self.child(i)?;
            }
        }
        Ok(())
    }
}

/// A node to change. Every change returns what it touched; its meaning is the range of bytes of the cell,
/// since index and counters are derived data.
pub struct NodeMut<'a> {
    block: &'a mut Block,
}

impl<'a> NodeMut<'a> {
    /// `block`, already a node, to change.
    pub fn new(block: &'a mut Block) -> NodeMut<'a> {
        NodeMut { block }
    }

    /// Makes `block`, whose header is in place, an empty node.
    pub fn init(block: &'a mut Block, key_width: usize) -> NodeMut<'a> {
        block[HEADER_BYTES..].fill(0);
        set16(block, HEAP_START, BLOCK_SIZE);
        block[KEY_WIDTH] = key_width as u8;
        NodeMut { block }
    }

    /// The node, to read.
    pub fn as_ref(&self) -> NodeRef<'_> {
        NodeRef { block: self.block }
    }

    /// Inserts a cell at index `i` (from [`NodeRef::search`]). Moves cells only if it must compact first.
    ///
    /// # Panics
    /// If the cell does not fit [`NodeRef::free_bytes`]: the tree splits before it inserts.
    pub fn insert(&mut self, i: usize, key: &[u8], value: &[u8]) -> Touched {
        let size = CELL_HEADER + key.len() + value.len();
        let count = self.as_ref().count();
        assert_eq!(key.len(), self.as_ref().key_width(), "key of another tree");
        assert!(i <= count && size + 2 <= self.as_ref().free_bytes(), "cell of {size} bytes does not fit");
        let compacted = get16(self.block, HEAP_START) < NODE_HEADER_BYTES + 2 * (count + 1) + size;
        if compacted {
            self.compact();
        }
        let at = get16(self.block, HEAP_START) - size;
        set16(self.block, at, size);
        self.block[at + 2] = LIVE;
        self.block[at + 3] = 0;
        self.block[at + CELL_HEADER..at + CELL_HEADER + key.len()].copy_from_slice(key);
        self.block[at + CELL_HEADER + key.len()..at + size].copy_from_slice(value);
        set16(self.block, HEAP_START, at);
        let entry = NODE_HEADER_BYTES + 2 * i;
        self.block.copy_within(entry..NODE_HEADER_BYTES + 2 * count, entry + 2);
        set16(self.block, entry, at);
        set16(self.block, COUNT, count + 1);
        match compacted {
            true => Touched::whole(at..at + size),
            false => self.touched(at..at + size, i, count + 1),
        }
    }

    /// A change of a cell with that of the counters and of the index entries `from..to`.
    fn touched(&self, cell: std::ops::Range<usize>, from: usize, to: usize) -> Touched {
        let index = NODE_HEADER_BYTES + 2 * from..NODE_HEADER_BYTES + 2 * to;
        Touched::from(cell).and(COUNTERS).and(index)
    }

    /// Removes cell `i`; its bytes stay, marked dead.
    pub fn remove(&mut self, i: usize) -> Touched {
        let count = self.as_ref().count();
        assert!(i < count, "no cell {i} of {count}");
        let entry = NODE_HEADER_BYTES + 2 * i;
        let at = get16(self.block, entry);
        let size = get16(self.block, at);
        self.block[at + 2] = 0;
        let dead = get16(self.block, DEAD) + size;
        set16(self.block, DEAD, dead);
        self.block.copy_within(entry + 2..NODE_HEADER_BYTES + 2 * count, entry);
        set16(self.block, NODE_HEADER_BYTES + 2 * (count - 1), 0);
        set16(self.block, COUNT, count - 1);
        self.touched(at..at + size, i, count)
    }

    /// Overwrites the value of cell `i` where it is, if the new one has the same length; else removes and
    /// inserts.
    ///
    /// # Panics
    /// If the new cell does not fit.
    pub fn replace(&mut self, i: usize, value: &[u8]) -> Touched {
        let width = self.as_ref().key_width();
        let at = get16(self.block, NODE_HEADER_BYTES + 2 * i);
        let size = get16(self.block, at);
        if size == CELL_HEADER + width + value.len() {
            self.block[at + CELL_HEADER + width..at + size].copy_from_slice(value);
            return (at..at + size).into();
        }
        let mut key = [0; 24];
        key[..width].copy_from_slice(self.as_ref().key(i));
        let removed = self.remove(i);
        let mut touched = self.insert(i, &key[..width], value);
        touched.chunks |= removed.chunks;
        touched
    }

    /// Gives the cell `i` another key of the same width. The caller keeps the order.
    pub fn set_key(&mut self, i: usize, key: &[u8]) -> Touched {
        let at = get16(self.block, NODE_HEADER_BYTES + 2 * i);
        self.block[at + CELL_HEADER..at + CELL_HEADER + key.len()].copy_from_slice(key);
        (at..at + get16(self.block, at)).into()
    }

    /// Moves the live cells together, in key order from the end.
    pub fn compact(&mut self) {
        let old = *self.block;
        let node = NodeRef { block: &old };
        let mut at = BLOCK_SIZE;
        for i in 0..node.count() {
            let cell = node.cell(i);
            at -= cell.len();
            self.block[at..at + cell.len()].copy_from_slice(cell);
            set16(self.block, NODE_HEADER_BYTES + 2 * i, at);
        }
        self.block[NODE_HEADER_BYTES + 2 * node.count()..at].fill(0);
        set16(self.block, HEAP_START, at);
        set16(self.block, DEAD, 0);
    }

    /// Whether bytes of cells that were removed are still there.
    pub fn has_remains(node: NodeRef<'_>) -> bool {
        let block = node.block;
        if block[NODE_HEADER_BYTES + 2 * node.count()..get16(block, HEAP_START)].iter().any(|b| *b != 0) {
            return true;
        }
        let mut at = get16(block, HEAP_START);
        while at < BLOCK_SIZE {
            let size = get16(block, at);
            if block[at + 2] & LIVE == 0 && block[at + CELL_HEADER..at + size].iter().any(|b| *b != 0) {
                return true;
            }
            at += size;
        }
        false
    }

    /// Overwrites with zeros what is left of cells that were removed. They stay dead cells of the same size.
    pub fn wipe(&mut self) -> Touched {
        let (count, start) = (self.as_ref().count(), get16(self.block, HEAP_START));
        self.block[NODE_HEADER_BYTES + 2 * count..start].fill(0);
        let mut at = start;
        while at < BLOCK_SIZE {
            let size = get16(self.block, at);
            if self.block[at + 2] & LIVE == 0 {
                self.block[at + CELL_HEADER..at + size].fill(0);
            }
            at += size;
        }
        Touched::whole(0..0)
    }

    /// Moves cells `from..` to the end of the empty or preceding node `right`.
    pub fn move_tail(&mut self, from: usize, right: &mut NodeMut<'_>) {
        let count = self.as_ref().count();
        for i in from..count {
            let n = right.as_ref().count();
            let cell = self.as_ref();
            right.insert(n, cell.key(i), cell.value(i));
        }
        for i in (from..count).rev() {
            self.remove(i);
        }
        self.compact();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventNo, Incarnation, InodeNo, MetaAddr, ZERO_BLOCK};

    fn node() -> Block {
        let mut block = ZERO_BLOCK;
        let addr = MetaAddr(5);
        BlockHeader::init(
            &mut block,
            BlockKind::Directory,
            0,
            addr,
            InodeNo::ROOT,
            Incarnation(1),
            9,
            EventNo(1),
        );
        NodeMut::init(&mut block, 8);
        block
    }

    #[test]
    fn cells_come_back_in_key_order_and_survive_compaction() {
        let mut block = node();
        let keys: Vec<u64> = (0..60).map(|i| (i * 7919) % 61).collect();
        for k in &keys {
            let mut n = NodeMut::new(&mut block);
            let at = n.as_ref().search(&k.to_be_bytes()).unwrap_err();
            n.insert(at, &k.to_be_bytes(), &vec![*k as u8; *k as usize % 30]);
            n.as_ref().verify().unwrap();
        }
        for k in keys.iter().step_by(2) {
            let mut n = NodeMut::new(&mut block);
            let at = n.as_ref().search(&k.to_be_bytes()).unwrap();
            n.remove(at);
            n.as_ref().verify().unwrap();
        }
        NodeMut::new(&mut block).compact();
        let n = NodeRef::new(&block);
        n.verify().unwrap();
        let mut want: Vec<u64> = keys.iter().skip(1).step_by(2).copied().collect();
        want.sort_unstable();
        let got: Vec<u64> =
            (0..n.count()).map(|i| u64::from_be_bytes(n.key(i).try_into().unwrap())).collect();
        assert_eq!(got, want);
    }

    #[test]
    fn a_node_takes_cells_until_full_then_splits() {
        let mut block = node();
        let mut k = 0u64;
        while NodeRef::new(&block).free_bytes() >= NodeRef::cell_bytes(8, 24) {
            let n = NodeRef::new(&block).count();
            NodeMut::new(&mut block).insert(n, &k.to_be_bytes(), &[1; 24]);
            k += 1;
        }
        let mut right = node();
        let n = NodeRef::new(&block).count();
        NodeMut::new(&mut block).move_tail(n / 2, &mut NodeMut::new(&mut right));
        NodeRef::new(&block).verify().unwrap();
        NodeRef::new(&right).verify().unwrap();
        assert_eq!(NodeRef::new(&block).count() + NodeRef::new(&right).count(), n);
    }

    #[test]
    fn random_bytes_never_panic_the_verifier() {
        let mut x = 0x9e37_79b9_7f4a_7c15u64;
        let mut block = node();
        for _ in 0..20_000 {
            for _ in 0..8 {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                let at = 64 + (x as usize >> 8) % 300;
                block[at] = x as u8;
            }
            let _ = NodeRef::new(&block).verify();
        }
    }
}
