//! Claims of data blocks, as far as the fast pass must remember them to name both owners of a block.
//!
//! A *span* is 64 blocks of a zone. A *part* is a sixty-fourth of a group. A claim of blocks that all had no
//! owner is not kept: its span only remembers the parts in which the blocks lie. A claim is kept if one of
//! its blocks had an owner already. So the first of two owners is among the kept claims, or in a span that
//! remembers the part of the block. The spans for all blocks with two owners are read together.

use super::doubt::{ensure, Certain};
use std::collections::BTreeSet;
use yore_format::layout::ZONE_INDEXES;
use yore_format::{BlockNo, GroupNo, InodeNo, MetaAddr, ZoneNo, BITS_PER_GROUP};

/// Blocks of a group that have one bit of the parts.
const PART: u32 = BITS_PER_GROUP / u64::BITS;
/// The most blocks with several owners, and the most claims of them, for which spans are read. If there are
/// more, the whole volume is read once more.
const MOST: usize = 1 << 16;
/// And how often one of them is met, for large extents may have the same ones again and again.
const MET_MOST: usize = 4 * MOST;
/// Blocks of a span.
const SPAN: u16 = 64;
const _: () = assert!(ZONE_INDEXES <= SPAN as u32 * 8);

/// A claim of an inode in use, which is its extent from file block `key` on. Claims sort in the order in
/// which the walk makes them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Claim {
    pub(crate) inode: InodeNo,
    pub(crate) key: u64,
    pub(crate) start: BlockNo,
    pub(crate) len: u64,
    /// Where the extent stands.
    pub(crate) addr: MetaAddr,
}

/// Parts of a group.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) group: GroupNo,
    pub(crate) bits: u64,
}

impl Part {
    /// The parts that have any of these bits of a bitmap.
    pub(crate) fn of(group: GroupNo, bit: u32, len: u32) -> Part {
        let (first, last) = (bit / PART, (bit + len.max(1) - 1) / PART);
        let bits = (u64::MAX << first) & (u64::MAX >> (u64::BITS - 1 - last.min(u64::BITS - 1)));
        Part { group, bits }
    }
}

/// Some blocks of a zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    pub(crate) zone: ZoneNo,
    number: u8,
}

impl Span {
    /// The span of an address.
    pub(crate) fn of(addr: MetaAddr) -> Span {
        Span { zone: addr.zone(), number: (addr.index() / SPAN) as u8 }
    }

    /// Whether it has this index of its zone.
    pub(crate) fn has(self, index: u16) -> bool {
        index / SPAN == u16::from(self.number)
    }

    /// As bytes.
    pub(crate) fn bytes(self) -> [u8; 5] {
        let [a, b, c, d] = self.zone.0.to_be_bytes();
        [a, b, c, d, self.number]
    }

    /// The span of these bytes.
    pub(crate) fn from_bytes([a, b, c, d, number]: [u8; 5]) -> Span {
        Span { zone: ZoneNo(u32::from_be_bytes([a, b, c, d])), number }
    }
}

/// Blocks with several owners.
#[derive(Default)]
pub(crate) struct Twice {
    pub(crate) blocks: BTreeSet<u64>,
    /// The claims of them that are known.
    pub(crate) claims: BTreeSet<Claim>,
    /// How many blocks had an owner when they were claimed, each as often as that.
    pub(crate) met: usize,
}

impl Twice {
    /// A doubt if it is too much to look at each.
    pub(crate) fn is_few(&self) -> Certain {
        let are_few = self.blocks.len() <= MOST && self.claims.len() <= MOST && self.met <= MET_MOST;
        ensure(are_few, "many blocks with two owners")
    }

    /// How often one of them may be met among all claims: each by its first owner, too.
    pub(crate) fn met_most(&self) -> usize {
        MET_MOST + self.blocks.len()
    }

    /// Whether any of these blocks has several owners.
    pub(crate) fn concerns(&self, start: BlockNo, len: u64) -> bool {
        self.blocks.range(start.0..start.0.saturating_add(len)).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that the parts are those that have a bit, at the ends of a group, too.
    #[test]
    fn parts_have_their_bits() {
        let bits = |bit, len| Part::of(GroupNo(0), bit, len).bits;
        assert_eq!(bits(0, 1), 1);
        assert_eq!(bits(PART - 1, 2), 3);
        assert_eq!(bits(PART, PART), 2);
        assert_eq!(bits(BITS_PER_GROUP - 1, 1), 1 << 63);
        assert_eq!(bits(0, BITS_PER_GROUP), u64::MAX);
    }
}
