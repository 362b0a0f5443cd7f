//! All that the fast pass keeps of the blocks that it has read. Most inodes leave nothing but sums.

use super::claim::{Claim, Part, Span};
use super::node::{InodeWithTrees, Node};
use crate::spill::{Cursor, Sorted, Sorter};
use crate::CheckError;
use std::collections::BTreeSet;
use std::ops::AddAssign;
use yore_format::{BlockNo, GroupNo, InodeNo, MetaAddr};

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
    /// Inodes in use that have versions, under their numbers.
    with_versions: Sorter,
    /// Inodes that say that they have a policy, under their numbers; the values are their incarnations.
    with_policies: Sorter,
    /// Claims of blocks that are counted as shared.
    shared: Sorter,
}

/// The same in order, when all is in.
pub(crate) struct InOrder {
    pub(crate) tally: Tally,
    nodes: Sorted,
    pub(crate) with_trees: Sorted,
    pub(crate) directories: Sorted,
    unlinked: Sorted,
    parts: Sorted,
    pub(crate) with_versions: Sorted,
    pub(crate) with_policies: Sorted,
    shared: Sorted,
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
            with_versions: list(),
            with_policies: list(),
            shared: list(),
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

    pub(super) fn with_versions(&mut self, number: u64) -> Result<(), CheckError> {
        self.with_versions.push(&number.to_be_bytes(), &[])
    }

    pub(super) fn with_policy(&mut self, number: u64, incarnation: u32) -> Result<(), CheckError> {
        self.with_policies.push(&number.to_be_bytes(), &incarnation.to_le_bytes())
    }

    pub(super) fn shared(&mut self, claim: &Claim) -> Result<(), CheckError> {
        let numbers = [claim.inode.0, claim.key, claim.start.0, claim.len, claim.addr.0];
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
        self.shared.push(&bytes, &[])
    }

    /// Takes over what another worker kept.
    pub(crate) fn take(&mut self, other: Summary) {
        self.tally += other.tally;
        self.nodes.append(other.nodes);
        self.with_trees.append(other.with_trees);
        self.directories.append(other.directories);
        self.unlinked.append(other.unlinked);
        self.parts.append(other.parts);
        self.with_versions.append(other.with_versions);
        self.with_policies.append(other.with_policies);
        self.shared.append(other.shared);
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
            with_versions: self.with_versions.into_sorted()?,
            with_policies: self.with_policies.into_sorted()?,
            shared: self.shared.into_sorted()?,
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

    /// The claims of blocks that are counted as shared.
    pub(super) fn shared(&self) -> Result<SharedClaims<'_>, CheckError> {
        Ok(SharedClaims(self.shared.all()?))
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

/// The claims of blocks that are counted as shared, in the order in which the walk makes them.
pub(super) struct SharedClaims<'s>(Cursor<'s>);

impl SharedClaims<'_> {
    /// The next one; `None` after the last.
    pub(super) fn next(&mut self) -> Result<Option<Claim>, CheckError> {
        let Some((key, _)) = self.0.get() else { return Ok(None) };
        let [inode, file_block, start, len, addr] = [0, 8, 16, 24, 32].map(|at| number_of(&key[at..]));
        self.0.advance()?;
        let (inode, start, addr) = (InodeNo(inode), BlockNo(start), MetaAddr(addr));
        Ok(Some(Claim { inode, key: file_block, start, len, addr }))
    }
}

/// A number that is the key or the value of a record.
pub(super) fn number_of(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(*bytes.first_chunk().expect("8 bytes"))
}
