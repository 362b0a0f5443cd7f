//! All that the fast pass keeps of the blocks that it has read. Most inodes leave nothing but sums.

use super::claim::{Part, Span};
use super::node::{InodeWithTrees, Node};
use crate::spill::{Sorted, Sorter};
use crate::CheckError;
use std::collections::BTreeSet;
use std::ops::AddAssign;
use yore_format::{GroupNo, MetaAddr};

/// How much there is of everything.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) zones: u64,
    /// Blocks that were digested, inode blocks among them.
    pub(crate) blocks: u64,
    pub(crate) inode_blocks: u64,
    pub(crate) nodes: u64,
    pub(crate) inodes: u64,
    pub(crate) directories: u64,
    pub(crate) entries: u64,
    pub(crate) extents: u64,
    pub(crate) data_blocks: u64,
    pub(crate) xattrs: u64,
    /// Inodes without links.
    pub(crate) unlinked: u64,
    pub(crate) root_directories: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.zones += other.zones;
        self.blocks += other.blocks;
        self.inode_blocks += other.inode_blocks;
        self.nodes += other.nodes;
        self.inodes += other.inodes;
        self.directories += other.directories;
        self.entries += other.entries;
        self.extents += other.extents;
        self.data_blocks += other.data_blocks;
        self.xattrs += other.xattrs;
        self.unlinked += other.unlinked;
        self.root_directories += other.root_directories;
    }
}

/// All that one worker, or all of them, keep. What does not fit into memory is in temporary files.
pub(crate) struct Summary {
    pub(crate) tally: Tally,
    /// Nodes under their addresses.
    nodes: Sorter,
    /// Inodes with trees under their numbers.
    with_trees: Sorter,
    /// Directories but the root and removed ones, under their numbers; the values are their parents.
    directories: Sorter,
    /// Inodes without links under their numbers; the values are their incarnations.
    unlinked: Sorter,
    /// Under each group and span in which parts of the group the blocks lie that the span has claimed.
    parts: Sorter,
}

/// The same in order, when all is in.
pub(crate) struct InOrder {
    pub(crate) tally: Tally,
    nodes: Sorted,
    pub(crate) with_trees: Sorted,
    pub(crate) directories: Sorted,
    unlinked: Sorted,
    parts: Sorted,
}

impl Summary {
    /// An empty one, each list of which may use so much memory.
    pub(crate) fn new(share: usize) -> Summary {
        let list = || Sorter::new(share);
        let tally = Tally::default();
        Summary {
            tally,
            nodes: list(),
            with_trees: list(),
            directories: list(),
            unlinked: list(),
            parts: list(),
        }
    }

    /// Keeps a node.
    ///
    /// # Errors
    /// [`CheckError::TemporaryFile`], as for all that follow.
    pub(super) fn node(&mut self, node: &Node) -> Result<(), CheckError> {
        self.tally.nodes += 1;
        self.nodes.push(&node.addr.0.to_be_bytes(), &node.packed())
    }

    pub(super) fn with_trees(&mut self, inode: &InodeWithTrees) -> Result<(), CheckError> {
        self.with_trees.push(&inode.number.to_be_bytes(), &inode.packed())
    }

    pub(super) fn directory(&mut self, number: u64, parent: u64) -> Result<(), CheckError> {
        self.directories.push(&number.to_be_bytes(), &parent.to_be_bytes())
    }

    pub(super) fn unlinked(&mut self, number: u64, incarnation: u32) -> Result<(), CheckError> {
        self.tally.unlinked += 1;
        self.unlinked.push(&number.to_be_bytes(), &incarnation.to_be_bytes())
    }

    pub(super) fn part(&mut self, group: GroupNo, span: Span, bits: u64) -> Result<(), CheckError> {
        self.parts.push(&[&group.0.to_be_bytes()[..], &span.bytes()].concat(), &bits.to_be_bytes())
    }

    /// Takes over what another worker kept.
    pub(crate) fn take(&mut self, other: Summary) {
        self.tally += other.tally;
        self.nodes.append(other.nodes);
        self.with_trees.append(other.with_trees);
        self.directories.append(other.directories);
        self.unlinked.append(other.unlinked);
        self.parts.append(other.parts);
    }

    /// All is in.
    pub(crate) fn in_order(self) -> Result<InOrder, CheckError> {
        Ok(InOrder {
            tally: self.tally,
            nodes: self.nodes.into_sorted()?,
            with_trees: self.with_trees.into_sorted()?,
            directories: self.directories.into_sorted()?,
            unlinked: self.unlinked.into_sorted()?,
            parts: self.parts.into_sorted()?,
        })
    }
}

impl InOrder {
    /// The node at an address.
    pub(super) fn node(&self, addr: MetaAddr) -> Result<Option<Node>, CheckError> {
        let packed = self.nodes.last_of(&addr.0.to_be_bytes())?;
        Ok(packed.map(|packed| Node::of(addr, &packed)))
    }

    /// The incarnation of an inode without links.
    pub(super) fn unlinked(&self, number: u64) -> Result<Option<u32>, CheckError> {
        let value = self.unlinked.last_of(&number.to_be_bytes())?;
        Ok(value.and_then(|value| value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))))
    }

    /// The spans that have claimed blocks in these parts.
    pub(super) fn spans(&self, part: Part, spans: &mut BTreeSet<Span>) -> Result<(), CheckError> {
        let group = part.group.0.to_be_bytes();
        let mut cursor = self.parts.from(&group)?;
        while let Some((key, bits)) = cursor.get() {
            let Some(span) = key.strip_prefix(&group).and_then(|span| span.first_chunk()) else { break };
            if number_of(bits) & part.bits != 0 {
                spans.insert(Span::from_bytes(*span));
            }
            cursor.advance()?;
        }
        Ok(())
    }
}

/// A number that is the key or the value of a record.
pub(super) fn number_of(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(*bytes.first_chunk().expect("8 bytes"))
}
