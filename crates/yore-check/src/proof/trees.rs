//! Trees of inodes, walked over the summaries of their nodes as the walk goes over the nodes themselves: each
//! node must be the one that its parent names, of the level below it, within its bounds, and be named once.
//! Neighbouring leaves must fit together, and all of a tree must agree with the inode.

use super::digest::check_listing;
use super::doubt::{ensure, Certain, Doubt, Stop};
use super::node::{Body, InodeWithTrees, Node};
use super::summary::{number_of, InOrder};
use crate::spill::{Sorted, Sorter};
use std::collections::HashMap;
use yore_format::layout::ZONE_INDEXES;
use yore_format::{BlockKind, InodeFlags, MetaAddr, ZoneNo, SYMLINK_CHUNK_BYTES, SYMLINK_MAX};

/// The highest level of a root.
const LEVEL_MAX: u8 = 12;

/// The nodes of all trees.
struct Trees<'s> {
    nodes: &'s InOrder,
    /// Those that were reached, a bit for each index of a zone.
    is_reached: HashMap<ZoneNo, [u64; ZONE_INDEXES.div_ceil(64) as usize]>,
    reached: u64,
    /// How many nodes the entries of each directory with versions have.
    of_versions: Sorter,
}

/// A node still to be entered.
struct Step {
    addr: MetaAddr,
    level: Option<u8>,
    low: u64,
    high: Option<u64>,
    is_root: bool,
}

/// Compares all trees with the inodes that have them. Every node belongs to one. Returns, under the number of
/// each directory with versions, how many nodes its entries have: its other blocks are not known here. That
/// list may use so much memory.
pub(super) fn compare(summary: &InOrder, share: usize) -> Result<Sorted, Stop> {
    let of_versions = Sorter::new(share);
    let mut trees = Trees { nodes: summary, is_reached: HashMap::new(), reached: 0, of_versions };
    let mut cursor = summary.with_trees.all()?;
    while let Some((number, packed)) = cursor.get() {
        trees.inode(&InodeWithTrees::of(number_of(number), packed))?;
        cursor.advance()?;
    }
    ensure(trees.reached == summary.tally.nodes, "a node to which nothing leads")?;
    Ok(trees.of_versions.into_sorted()?)
}

impl Trees<'_> {
    fn inode(&mut self, inode: &InodeWithTrees) -> Result<(), Stop> {
        let mut blocks = 0;
        if let Some((kind, root, level)) = inode.content {
            let of = (kind, inode.number, inode.incarnation);
            blocks += match kind {
                BlockKind::Directory => self.directory(inode, of, root, level)?,
                BlockKind::Extents => self.extents(of, root, level)?,
                _ => self.symlink(inode, of, root, level)?,
            };
        }
        if inode.has_versions {
            let key = inode.number.to_be_bytes();
            return Ok(self.of_versions.push(&key, &blocks.to_be_bytes())?);
        }
        if !inode.xattrs.is_none() {
            blocks += self.xattrs(inode)?;
        }
        Ok(ensure(blocks == inode.blocks, "another number of blocks of an inode")?)
    }

    fn extents(&mut self, of: Owner, root: MetaAddr, level: u8) -> Result<u64, Stop> {
        let (mut end, mut blocks) = (0, 0);
        let nodes = self.walk(of, root, Some(level), |node| {
            let Body::Extents(leaf) = &node.body else { return Err(OTHER_KIND) };
            if node.count > 0 {
                ensure(node.first >= end, "extents out of order")?;
                (end, blocks) = (leaf.end, blocks + leaf.blocks);
            }
            Ok(())
        })?;
        Ok(nodes + blocks)
    }

    fn directory(
        &mut self,
        inode: &InodeWithTrees,
        of: Owner,
        root: MetaAddr,
        level: u8,
    ) -> Result<u64, Stop> {
        let (mut entries, mut subdirectories, mut before) = (0, 0, None);
        let nodes = self.walk(of, root, Some(level), |node| {
            let Body::Directory(leaf) = &node.body else { return Err(OTHER_KIND) };
            if let Some((first, last)) = leaf.bases {
                ensure(before != Some(first), "names of one hash")?;
                before = Some(last);
            }
            entries += u64::from(node.count);
            subdirectories += u64::from(leaf.subdirectories);
            Ok(())
        })?;
        check_listing(inode.links, inode.size, entries, subdirectories)?;
        Ok(nodes)
    }

    fn symlink(&mut self, inode: &InodeWithTrees, of: Owner, root: MetaAddr, level: u8) -> Result<u64, Stop> {
        let (mut chunks, mut bytes, mut is_full) = (0, 0, true);
        let nodes = self.walk(of, root, Some(level), |node| {
            let Body::Symlink(leaf) = &node.body else { return Err(OTHER_KIND) };
            if node.count > 0 {
                ensure(
                    node.first == chunks && is_full,
                    "chunks of a symbolic link that do not fit together",
                )?;
                (chunks, bytes) = (chunks + u64::from(node.count), bytes + leaf.bytes);
                is_full = leaf.last_is_full;
            }
            Ok(())
        })?;
        debug_assert!(bytes <= chunks * SYMLINK_CHUNK_BYTES as u64);
        ensure(bytes == inode.size && bytes <= SYMLINK_MAX as u64, "a symbolic link of another size")?;
        Ok(nodes)
    }

    fn xattrs(&mut self, inode: &InodeWithTrees) -> Result<u64, Stop> {
        let of = (BlockKind::Xattrs, inode.number, inode.incarnation);
        let (mut next, mut hash, mut flags) = (None, None, InodeFlags::empty());
        let nodes = self.walk(of, inode.xattrs, None, |node| {
            let Body::Xattrs(leaf) = &node.body else { return Err(OTHER_KIND) };
            if let Some(head) = &leaf.head {
                next = Some(head.follow(next.ok_or(Doubt("a chunk of no attribute"))?)?);
            }
            if let Some((first, last)) = leaf.hashes {
                ensure(next.is_none_or(|(_, left)| left == 0), "an attribute without its end")?;
                ensure(hash != Some(first), "attributes of one hash")?;
                (hash, next) = (Some(last), Some(leaf.tail));
            }
            flags |= leaf.flags;
            Ok(())
        })?;
        // What has no links may have lost the end of its attributes, and its flags may say more.
        let is_unlinked = inode.links == 0;
        let is_whole = next.is_none_or(|(_, left)| left == 0);
        ensure(is_whole || is_unlinked, "an attribute without its end")?;
        let is_right = flags == inode.flags || is_unlinked && inode.flags.contains(flags);
        ensure(is_right, "flags of other attributes")?;
        Ok(nodes)
    }

    /// Walks a tree; `leaf` gets its leaves, in ascending order. Returns the number of nodes.
    fn walk(
        &mut self,
        (kind, owner, incarnation): Owner,
        root: MetaAddr,
        level: Option<u8>,
        mut leaf: impl FnMut(&Node) -> Certain,
    ) -> Result<u64, Stop> {
        let mut stack = vec![Step { addr: root, level, low: 0, high: None, is_root: true }];
        let mut nodes = 0;
        while let Some(step) = stack.pop() {
            let node = self.nodes.node(step.addr)?.ok_or(Doubt("a node that does not exist"))?;
            // It was read, so it has an index that zones have.
            let (index, bits) = (step.addr.index(), self.is_reached.entry(step.addr.zone()).or_default());
            let (word, bit) = (&mut bits[usize::from(index / 64)], 1 << (index % 64));
            ensure(*word & bit == 0, "a node to which two lead")?;
            *word |= bit;
            let is_its = (node.kind, node.owner, node.incarnation) == (kind as u8, owner, incarnation);
            ensure(is_its, "a node of another tree")?;
            ensure(step.level.is_none_or(|level| level == node.level), "a node of another level")?;
            ensure(node.level <= LEVEL_MAX, "a tree of too many levels")?;
            match node.count {
                0 => ensure(step.is_root, "an empty leaf")?,
                _ => {
                    let is_below = step.high.is_none_or(|high| node.last < high);
                    ensure(node.first >= step.low && is_below, "keys outside of their bounds")?;
                }
            }
            nodes += 1;
            match &node.body {
                Body::Branch(cells) => {
                    for (i, (key, addr)) in cells.iter().enumerate().rev() {
                        stack.push(Step {
                            addr: *addr,
                            level: Some(node.level - 1),
                            low: if i == 0 { step.low } else { *key },
                            high: cells.get(i + 1).map(|(key, _)| *key).or(step.high),
                            is_root: false,
                        });
                    }
                }
                _ => leaf(&node)?,
            }
        }
        self.reached += nodes;
        Ok(nodes)
    }
}

/// Kind, owner and incarnation of a tree's nodes.
type Owner = (BlockKind, u64, u32);

const OTHER_KIND: Doubt = Doubt("a node of another kind");
