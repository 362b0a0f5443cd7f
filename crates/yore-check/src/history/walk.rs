//! Walking the trees of the past.

use crate::checker::Checker;
use crate::tree::Tree;
use crate::walk::{Leaf, Walk};
use crate::{CheckError, Finding, Problem};
use std::sync::Arc;
use yore_format::{
    Block, BlockKind, Corruption, Expect, HistoryRoots, HistoryTree, Incarnation, InodeNo, MetaAddr,
};

impl Checker<'_> {
    /// The block with the roots of the trees, if the volume has a past.
    pub(super) fn history_roots(&mut self) -> Result<Option<Arc<Block>>, CheckError> {
        if self.sb.history_root.is_none() {
            return Ok(None);
        }
        let expect = Expect {
            kind: BlockKind::HistoryRoots,
            owner: InodeNo::HISTORY,
            incarnation: Incarnation(0),
            level: Some(0),
        };
        let roots = self.reach(self.sb.history_root, &expect)?;
        if let Some(roots) = &roots {
            self.counts.history_trees += 1;
            self.history.space = HistoryRoots::space(roots);
            self.pace.has_past(self.history.space.trees);
        }
        Ok(roots)
    }

    /// A walk over a tree of the past; `None` for one without cells.
    pub(crate) fn past_walk(roots: &Block, tree: HistoryTree) -> Option<Walk> {
        let (root, level) = HistoryRoots::get(roots, tree);
        let tree = Tree {
            kind: tree.kind(),
            owner: tree.owner(),
            incarnation: Incarnation(0),
            root,
            level: Some(level),
            key_width: tree.key_width(),
        };
        (!root.is_none()).then(|| Walk::new(tree))
    }

    /// The next leaf, if there is a tree at all.
    pub(crate) fn next_past_leaf(&mut self, walk: &mut Option<Walk>) -> Result<Option<Leaf>, CheckError> {
        walk.as_mut().map_or(Ok(None), |walk| walk.next_leaf(self))
    }

    /// Reports a cell that cannot be decoded.
    pub(crate) fn damaged_cell(&mut self, c: Box<Corruption>, addr: MetaAddr) {
        self.add_incomplete(Finding::corruption(Problem::CellDamaged, &c.at(addr)));
    }
}

/// The inode in a key.
pub(super) fn inode_of(number: u64) -> Result<InodeNo, Box<Corruption>> {
    let inode = InodeNo(number);
    match inode.is_file() {
        true => Ok(inode),
        false => Err(Corruption::new("key of the history", "inode", "a file's number", inode)),
    }
}
