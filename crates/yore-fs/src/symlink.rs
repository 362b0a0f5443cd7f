//! Symbolic links: the target lies in the inode or, above 108 bytes, in a tree of chunks of 1,024 bytes,
//! whose keys are their numbers.
//!
//! A link never changes; its size is the target's length.

use crate::store::Store;
use crate::{Error, Result};
use yore_core::btree::{Tree, TreeDelta, Unstored};
use yore_core::inode::InodeState;
use yore_format::{
    decode_symlink_chunk, BlockKind, ContentKind, Corruption, EventNo, Inode, InodeNo, NodeRef, INLINE_BYTES,
    SYMLINK_CHUNK_BYTES, SYMLINK_MAX,
};
use yore_meta::{Meta, Op};

/// How many blocks to reserve for this target; none for an empty one (for a file that is not a link).
pub(crate) fn blocks_for(target: &[u8]) -> u32 {
    if target.len() <= INLINE_BYTES {
        return 0;
    }
    let cell_bytes = NodeRef::cell_bytes(8, SYMLINK_CHUNK_BYTES);
    Tree::blocks_of_new(target.len().div_ceil(SYMLINK_CHUNK_BYTES), cell_bytes)
}

/// Inside an Op: gives a new link its target of 1 to 4,095 bytes. The caller stores the inode.
pub(crate) fn store(
    op: &mut Op<'_>,
    store: &Store,
    state: &mut InodeState,
    no: InodeNo,
    target: &[u8],
) -> Unstored {
    store_in(op, &mut state.inode, no, target, store.number())
}

fn store_in(op: &mut Op<'_>, inode: &mut Inode, no: InodeNo, target: &[u8], birth: EventNo) -> Unstored {
    inode.size = target.len() as u64;
    if target.len() <= INLINE_BYTES {
        inode.set_inline(target);
        return Unstored::Inside;
    }
    let mut tree = Tree::empty(BlockKind::Symlink, no, inode.incarnation);
    let mut all: Option<TreeDelta> = None;
    for (i, chunk) in target.chunks(SYMLINK_CHUNK_BYTES).enumerate() {
        let delta = tree.insert_run(op, &(i as u64).to_be_bytes(), chunk, birth);
        all = Some(delta.after(all));
    }
    let delta = all.expect("a long target has chunks");
    inode.set_tree_root(tree.root, tree.level);
    inode.blocks = inode.blocks.saturating_add_signed(i64::from(delta.nodes));
    Unstored::InTree(delta)
}

/// The target.
///
/// # Errors
/// [`Error::Invalid`] if this is not a symbolic link; corruption; the device.
pub(crate) fn load(store: &Store, state: &InodeState, no: InodeNo) -> Result<Vec<u8>> {
    load_in(&store.meta, &state.inode, no)
}

fn load_in(meta: &Meta, inode: &Inode, no: InodeNo) -> Result<Vec<u8>> {
    if !inode.is_symlink() {
        return Err(Error::Invalid { what: "not a symbolic link" });
    }
    let mut target = inode.inline().to_vec();
    if let Some(tree) = tree(inode, no) {
        let mut next = 0u64;
        tree.scan(meta, &[0; 8], &mut |key, value| {
            if *key != next.to_be_bytes() || target.len() > SYMLINK_MAX {
                let found = format!("{key:02x?}");
                return Err(Corruption::new("symlink", "chunk number", next, found).of(no).into());
            }
            next += 1;
            target.extend_from_slice(decode_symlink_chunk(value).map_err(|c| c.of(no))?);
            Ok(true)
        })?;
    }
    if target.len() as u64 != inode.size {
        return Err(Corruption::new("symlink", "length", inode.size, target.len()).of(no).into());
    }
    Ok(target)
}

/// The tree of a long link.
pub(crate) fn tree(inode: &Inode, no: InodeNo) -> Option<Tree> {
    (inode.is_symlink() && inode.content_kind == ContentKind::Tree).then(|| Tree {
        root: inode.tree_root(),
        level: inode.content_level,
        ..Tree::empty(BlockKind::Symlink, no, inode.incarnation)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use yore_core::testing::Ground;
    use yore_format::{Incarnation, MetaAddr};

    const NO: InodeNo = InodeNo(400);

    fn link() -> Inode {
        let mut inode = Inode::free();
        (inode.mode, inode.links, inode.incarnation) = (0o120_777, 1, Incarnation(4));
        inode
    }

    /// Targets of every length class come back, and take no more blocks than were reserved.
    #[test]
    fn targets_come_back() {
        let mut ground = Ground::new();
        for len in [1, 107, 108, 109, 1023, 1024, 1025, 2048, 3072, 3073, 4095] {
            let target: Vec<u8> = (0..len).map(|i| (i % 250) as u8 + 1).collect();
            let blocks = blocks_for(&target);
            let reserved = ground.reserve(blocks);
            let mut inode = link();
            let mut op = ground.meta.begin(reserved);
            let unstored = store_in(&mut op, &mut inode, NO, &target, EventNo(1));
            let pointer = op.set_orphan_root(MetaAddr::NONE, 0);
            unstored.stored(&mut op, pointer);
            drop(op);
            assert!(inode.blocks <= u64::from(blocks), "{len}");
            assert_eq!(load_in(&ground.meta, &inode, NO).unwrap(), target, "{len}");
            inode.size += 1;
            assert!(matches!(load_in(&ground.meta, &inode, NO), Err(Error::Corruption(_))));
        }
    }
}
