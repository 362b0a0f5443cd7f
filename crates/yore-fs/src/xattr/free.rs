//! Freeing the trees of an inode.

use super::plan::{store_tree, tree};
use crate::store::Store;
use crate::{symlink, Result};
use std::sync::Arc;
use yore_core::btree::{Pins, Tree, TreeDelta};
use yore_core::inode::{store_inode, InodeCell, InodeState};
use yore_format::{ContentKind, InodeFlags, InodeNo, MetaAddr};
use yore_meta::{Change, EdgeKind, Op};

/// How many leaves one Op frees.
const LEAVES_PER_STEP: usize = 64;

/// The trees of an inode that is about to be freed.
pub(crate) struct Trees(Vec<Tree>);

/// Keeps in memory what [`free_trees`] frees: the tree of attributes and that of a long symbolic link. Where
/// there may be very many attributes, call [`free_step`] before.
pub(crate) fn prepare_free_trees(
    store: &Store,
    state: &InodeState,
    no: InodeNo,
    pins: &mut Pins,
) -> Result<Trees> {
    let attributes = tree(&store.meta, &state.inode, no)?;
    let mut trees: Vec<Tree> = std::iter::once(attributes).chain(symlink::tree(&state.inode, no)).collect();
    for tree in &mut trees {
        if !tree.is_empty() {
            *tree = tree.with_recorded(store.recorded_until(state, no)?);
        }
        tree.prepare_last(&store.meta, usize::MAX, pins)?;
    }
    Ok(Trees(trees))
}

/// The nodes that an inode lost. They become free after the inode no longer points to them.
#[must_use]
pub(crate) struct FreedTrees(Vec<TreeDelta>);

impl FreedTrees {
    /// Call this with the change that cleared the inode.
    pub(crate) fn stored(self, op: &mut Op<'_>, inode: Change) {
        for delta in self.0 {
            delta.stored(op, inode);
        }
    }
}

/// Inside an Op: frees the trees of an inode.
pub(crate) fn free_trees(
    op: &mut Op<'_>,
    _store: &Store,
    state: &mut InodeState,
    _no: InodeNo,
    trees: Trees,
) -> FreedTrees {
    let inode = &mut state.inode;
    let mut freed = Vec::new();
    for mut tree in trees.0 {
        if let Some(delta) = tree.free_all(op) {
            inode.blocks = inode.blocks.saturating_add_signed(i64::from(delta.nodes));
            freed.push(delta);
        }
    }
    inode.xattr_root = MetaAddr::NONE;
    inode.flags &= InodeFlags::CHOSEN;
    if inode.is_symlink() && inode.content_kind == ContentKind::Tree {
        inode.set_inline(&[]);
    }
    FreedTrees(freed)
}

/// Frees some of the attributes of an inode without names, in one Op; returns true when none are left.
pub(crate) fn free_step(store: &Arc<Store>, cell: &Arc<InodeCell>) -> Result<bool> {
    let reserved = store.reserve_freely(store.near(cell.no), 0)?;
    let mut state = cell.state.write();
    if state.gone || state.inode.links > 0 || state.inode.xattr_root.is_none() {
        return Ok(true);
    }
    let mut pins = Pins::new();
    let recorded_until = store.recorded_until(&state, cell.no)?;
    let mut tree = tree(&store.meta, &state.inode, cell.no)?.with_recorded(recorded_until);
    tree.prepare_last(&store.meta, LEAVES_PER_STEP, &mut pins)?;
    let mut op = store.meta.begin(reserved);
    if op.wants_order() {
        // While the name may still be there, all of its attributes are.
        let unnamed = store_inode(&mut op, cell, &state);
        op.ahead(EdgeKind::Unnamed, unnamed);
    }
    if let Some(delta) = tree.free_last(&mut op, LEAVES_PER_STEP) {
        let unstored = store_tree(&mut state.inode, &tree, delta);
        let stored = store_inode(&mut op, cell, &state);
        unstored.stored(&mut op, stored);
    }
    Ok(tree.is_empty())
}
