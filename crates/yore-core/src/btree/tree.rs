//! A tree, known by its root, and the checks of a node that was read.

use super::path::{Key, NodePosition};
use crate::Result;
use yore_format::{
    Block, BlockKind, Corruption, EventNo, Expect, Incarnation, InodeNo, MetaAddr, NodeRef,
    NODE_PAYLOAD_BYTES,
};
use yore_meta::Meta;

/// The greatest level that a root can have; a higher one is damage. Nodes are filled to a third or have
/// neighbours that make up for it, so that even the largest volume has no tree half as high.
const LEVEL_MAX: u8 = 12;

/// The largest cell, with its index entry. However a node is split, one of its halves has room for a cell of
/// this size.
pub(super) const CELL_BYTES_MAX: usize = NODE_PAYLOAD_BYTES / 2;

/// A tree, known by its root. Whoever keeps root and level (an inode's content, `xattr_root`, the superblock)
/// stores them back after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The root's address; NONE: the tree has no cells.
    pub root: MetaAddr,
    /// The root's level; 0 for the empty tree.
    pub level: u8,
    /// What kind of block its nodes are.
    pub kind: BlockKind,
    /// The inode to which they belong.
    pub owner: InodeNo,
    /// The owner's incarnation.
    pub incarnation: Incarnation,
    /// The past holds nodes that were born at this number or before, too.
    pub recorded_until: EventNo,
}

impl Tree {
    /// A tree without cells.
    pub fn empty(kind: BlockKind, owner: InodeNo, incarnation: Incarnation) -> Tree {
        Tree { root: MetaAddr::NONE, level: 0, kind, owner, incarnation, recorded_until: EventNo(0) }
    }

    /// The same tree, where nodes born at `recorded_until` or before belong to versions of its owner, too.
    pub fn with_recorded(self, recorded_until: EventNo) -> Tree {
        Tree { recorded_until, ..self }
    }

    /// The tree with this root, where the level is not stored beside the root's address.
    pub fn at_root(
        meta: &Meta,
        root: MetaAddr,
        kind: BlockKind,
        owner: InodeNo,
        incarnation: Incarnation,
    ) -> Result<Tree> {
        let mut tree = Tree { root, ..Tree::empty(kind, owner, incarnation) };
        if !root.is_none() {
            let frame = meta.read(root, &Expect { kind, owner, incarnation, level: None })?;
            tree.level = NodeRef::new(&frame.read()).level();
        }
        Ok(tree)
    }

    /// How many blocks to reserve for a new tree of `n` cells of `cell_bytes` that are inserted in order:
    /// with the second leaf, the first is made anew.
    pub fn blocks_of_new(n: usize, cell_bytes: usize) -> u32 {
        let leaves = n.div_ceil(NODE_PAYLOAD_BYTES / cell_bytes) as u32;
        leaves + 2 * u32::from(leaves > 1)
    }

    /// Whether it has no cells.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    pub(super) fn key_width(&self, meta: &Meta) -> Result<usize> {
        let frame = meta.read(self.root, &self.expect(self.level))?;
        let page = frame.read();
        Ok(NodeRef::new(&page).key_width())
    }

    pub(super) fn expect(&self, level: u8) -> Expect {
        Expect { kind: self.kind, owner: self.owner, incarnation: self.incarnation, level: Some(level) }
    }

    pub(super) fn root_position(&self, key_width: usize) -> NodePosition {
        NodePosition { addr: self.root, level: self.level, lower: Key::zero(key_width), upper: None }
    }

    pub(super) fn check_level(&self) -> Result<()> {
        if self.level > LEVEL_MAX {
            return Err(self.corrupt(self.root, "level", format!("at most {LEVEL_MAX}"), self.level).into());
        }
        Ok(())
    }

    /// The node in `page`, after all the checks that a walk relies on.
    pub(super) fn checked<'p>(
        &self,
        page: &'p Block,
        position: &NodePosition,
        key_width: usize,
    ) -> std::result::Result<NodeRef<'p>, Box<Corruption>> {
        self.expect(position.level).check(page).map_err(|c| c.at(position.addr))?;
        let node = NodeRef::new(page);
        self.check(node, position, key_width)?;
        Ok(node)
    }

    pub(super) fn check(
        &self,
        node: NodeRef<'_>,
        position: &NodePosition,
        key_width: usize,
    ) -> std::result::Result<(), Box<Corruption>> {
        if node.key_width() != key_width {
            return Err(self.corrupt(position.addr, "key width", key_width, node.key_width()));
        }
        if node.count() == 0 {
            return Ok(());
        }
        let first = node.key(0);
        if *first < *position.lower || (position.level > 0 && !position.is_below_upper(first)) {
            let upper = position.upper.map_or("no bound".into(), |u| format!("{:02x?}", &*u));
            let bounds = format!("from {:02x?} to {upper}, as the parent says", &*position.lower);
            return Err(self.corrupt(position.addr, "first key", bounds, format!("{first:02x?}")));
        }
        Ok(())
    }

    fn corrupt(
        &self,
        addr: MetaAddr,
        field: &'static str,
        expected: impl ToString,
        found: impl ToString,
    ) -> Box<Corruption> {
        Corruption::new(self.kind.name(), field, expected, found).at(addr).of(self.owner)
    }
}
