//! The cells of attributes in the tree of an inode: looks them up, and plans and makes changes of one
//! attribute.

use super::name::Name;
use crate::{Error, Result, SetXattrMode};
use std::collections::BTreeMap;
use yore_core::btree::{Pins, Tree, TreeDelta, Unstored};
use yore_format::{
    BlockKind, Corruption, EventNo, Inode, InodeFlags, InodeNo, NodeRef, XattrCell, XATTR_CHUNK_BYTES,
    XATTR_VALUE_MAX,
};
use yore_meta::{Meta, Op};

pub(super) const SLOT: u64 = 1 << 16;
const HASH: u64 = 1 << 24;
/// The largest cell: a first chunk with the longest name behind the shortest prefix.
pub(super) const CELL_BYTES: usize = 4 + 8 + 2 + 8 + 250 + XATTR_CHUNK_BYTES;

const CHUNKS_MAX: usize = XATTR_VALUE_MAX / XATTR_CHUNK_BYTES;
/// Where an inode's attributes are.
pub(super) struct Attributes<'a> {
    pub(super) meta: &'a Meta,
    pub(super) seed: &'a [u8; 16],
    pub(super) inode: &'a Inode,
    pub(super) no: InodeNo,
    /// Content born at this number or before belongs to the past, too. Changes need this.
    pub(super) recorded_until: EventNo,
}

/// An attribute that was found.
struct Found {
    slot: u64,
    cell_len: usize,
    value_len: usize,
    chunk: Vec<u8>,
}

/// A prepared change of one attribute.
pub(super) struct Plan {
    pub(super) tree: Tree,
    pub(super) slot: u64,
    /// The keys of the cells that it has now.
    pub(super) old: Vec<u64>,
    /// The cells that it will have.
    pub(super) new: Vec<Vec<u8>>,
    pub(super) flag: InodeFlags,
    /// How many blocks to reserve.
    pub(super) blocks: u32,
}

impl Attributes<'_> {
    /// The attribute, or the first free slot among those of its name's hash.
    fn locate(&self, tree: &Tree, name: Name<'_>) -> Result<std::result::Result<Found, u64>> {
        let first = name.key(self.seed);
        let mut free = first;
        let last = first | (HASH - 1);
        let found = tree.find(self.meta, &first.to_be_bytes(), &last.to_be_bytes(), |key, cell| {
            let key = u64::from_be_bytes(key.try_into().expect("the walk checked the keys' width"));
            if key & !(SLOT - 1) == free {
                free += SLOT;
            }
            if key & (SLOT - 1) != 0 {
                return None;
            }
            match XattrCell::decode(cell) {
                Ok(XattrCell::First { namespace, name: n, value_len, chunk }) => {
                    let same = namespace == name.namespace && n == name.name;
                    let (value_len, chunk) = (value_len as usize, chunk.to_vec());
                    same.then_some(Ok(Found { slot: key, cell_len: cell.len(), value_len, chunk }))
                }
                Ok(XattrCell::Rest(_)) => {
                    Some(Err(Corruption::new("xattr cell", "kind", "a first chunk", "another").of(self.no)))
                }
                Err(corruption) => Some(Err(corruption.of(self.no))),
            }
        })?;
        Ok(found.transpose()?.ok_or(free))
    }

    /// Whether the inode says that it has such an attribute, if it says so of this name. A crash under an
    /// engine that orders changes may leave cells without the flag: then the call that set the attribute, or
    /// removed it, did not come through as a whole, and there is none.
    fn has_flag(&self, name: Name<'_>) -> bool {
        self.inode.flags.contains(name.flag())
    }

    /// Whether cells of an attribute are there that the inode's flags do not know.
    pub(super) fn is_unseen(&self, name: Name<'_>) -> Result<bool> {
        if self.inode.xattr_root.is_none() || self.has_flag(name) {
            return Ok(false);
        }
        Ok(self.locate(&tree(self.meta, self.inode, self.no)?, name)?.is_ok())
    }

    pub(super) fn get(&self, name: Name<'_>) -> Result<Option<Vec<u8>>> {
        if self.inode.xattr_root.is_none() || !self.has_flag(name) {
            return Ok(None);
        }
        let tree = tree(self.meta, self.inode, self.no)?;
        let Ok(found) = self.locate(&tree, name)? else { return Ok(None) };
        let mut value = found.chunk;
        for i in 1..chunks_of(found.value_len) {
            let want = (found.value_len - value.len()).min(XATTR_CHUNK_BYTES);
            let key = found.slot + i as u64;
            let whole =
                tree.get(self.meta, &key.to_be_bytes(), |cell| match cell.map(XattrCell::decode) {
                    Some(Ok(XattrCell::Rest(bytes))) if bytes.len() == want => {
                        value.extend_from_slice(bytes);
                        true
                    }
                    _ => false,
                })?;
            if !whole {
                let expected = format!("chunk {i} of {want} bytes");
                return Err(Corruption::new("xattr", "value", expected, "another or none")
                    .of(self.no)
                    .into());
            }
        }
        Ok(Some(value))
    }

    pub(super) fn list(&self) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        tree(self.meta, self.inode, self.no)?.scan(self.meta, &[0; 8], &mut |_, cell| {
            if let XattrCell::First { namespace, name, .. } =
                XattrCell::decode(cell).map_err(|c| c.of(self.no))?
            {
                if self.has_flag(Name { namespace, name }) {
                    names.push([namespace.prefix().as_bytes(), name].concat());
                }
            }
            Ok(true)
        })?;
        Ok(names)
    }

    pub(super) fn plan(
        &self,
        name: Name<'_>,
        value: Option<&[u8]>,
        mode: SetXattrMode,
        pins: &mut Pins,
    ) -> Result<Plan> {
        let tree = tree(self.meta, self.inode, self.no)?.with_recorded(self.recorded_until);
        let (slot, old_len) = match (self.locate(&tree, name)?, mode) {
            (Ok(_), SetXattrMode::Create) if self.has_flag(name) => return Err(Error::Exists),
            (Ok(_), SetXattrMode::Replace) if !self.has_flag(name) => return Err(Error::NoAttribute),
            (Err(_), SetXattrMode::Replace) => return Err(Error::NoAttribute),
            (Ok(found), _) => (found.slot, Some(found.cell_len)),
            (Err(free), _) if free & !(HASH - 1) == name.key(self.seed) => (free, None),
            (Err(_), _) => return Err(Error::HashFull { what: "attributes" }),
        };
        let (first, last) = (slot.to_be_bytes(), (slot | (SLOT - 1)).to_be_bytes());
        let mut old = Vec::new();
        tree.find(self.meta, &first, &last, |key, _| {
            old.push(u64::from_be_bytes(key.try_into().expect("the walk checked the keys' width")));
            (old.len() > CHUNKS_MAX).then_some(())
        })?;
        if old.len() > CHUNKS_MAX {
            return Err(Corruption::new("xattr", "chunks", "at most 64", "more").of(self.no).into());
        }
        tree.prepare(self.meta, &first, &last, pins)?;
        let new = value.map_or(Vec::new(), |value| cells(name, value));
        let blocks = match (&old[..], &new[..]) {
            (_, []) => 0,
            ([_], [cell]) if old_len.is_some_and(|len| cell.len() <= len) => 0,
            (_, [_]) => tree.blocks_for_inserts(1),
            (_, cells) => tree.blocks_for_run(cells.len(), CELL_BYTES),
        };
        let copies = match old.len() {
            one @ (0 | 1) => tree.blocks_for_copies(one as u32),
            // They follow one another, so one node that the past has may have many of them.
            _ => tree.past_nodes(self.meta, &first, &last)?.blocks_for_copies(&first, &last),
        };
        Ok(Plan { tree, slot, old, new, flag: name.flag(), blocks: blocks + copies })
    }
}

impl Plan {
    pub(super) fn is_nothing(&self) -> bool {
        self.old.is_empty() && self.new.is_empty()
    }

    /// Makes the change, inside an Op. The caller stores the inode.
    pub(super) fn apply(self, op: &mut Op<'_>, inode: &mut Inode, birth: EventNo) -> Unstored {
        let Plan { mut tree, slot, old, new, .. } = self;
        inode.flags.set(self.flag, !new.is_empty());
        if self.flag == InodeFlags::ACCESS_ACL {
            // Without its ACL the mask would be what the owning group may do.
            op.be_whole();
        }
        let mut all: Option<TreeDelta> = None;
        if let ([key], [cell]) = (&old[..], &new[..]) {
            let delta = tree.replace(op, &key.to_be_bytes(), cell);
            return store_tree(inode, &tree, delta);
        }
        if op.wants_order() && !tree.is_empty() && old.len() + new.len() > 1 {
            // A crash between them would leave a part of the attribute.
            let mut cells: BTreeMap<u64, Option<&[u8]>> = old.iter().map(|key| (*key, None)).collect();
            cells.extend(new.iter().enumerate().map(|(i, cell)| (slot + i as u64, Some(&cell[..]))));
            let cells: Vec<_> = cells.into_iter().map(|(key, value)| (key.to_be_bytes(), value)).collect();
            let (delta, together) = tree.change_together(op, &cells);
            if together {
                return store_tree(inode, &tree, delta);
            }
            op.be_whole();
            all = Some(delta);
        }
        if tree.is_empty() {
            wholly(op, &new);
        }
        for key in old {
            let delta = tree.remove(op, &key.to_be_bytes());
            all = Some(delta.after(all));
        }
        for (i, cell) in new.iter().enumerate() {
            let delta = tree.insert_run(op, &(slot + i as u64).to_be_bytes(), cell, birth);
            all = Some(delta.after(all));
        }
        match all {
            Some(delta) => store_tree(inode, &tree, delta),
            None => Unstored::Inside,
        }
    }
}

/// Cells of a new tree that one leaf may not have. Those that come into a leaf behind its pointer do not wait
/// for each other, so a crash could leave some of them: such an Op is whole.
pub(super) fn wholly(op: &Op<'_>, cells: &[Vec<u8>]) {
    const LEAF: usize = yore_format::BLOCK_SIZE * 3 / 4;
    let bytes: usize = cells.iter().map(|cell| NodeRef::cell_bytes(KEY, cell.len())).sum();
    if op.wants_order() && bytes > LEAF {
        op.be_whole();
    }
}

/// Bytes of a key.
const KEY: usize = 8;

/// The tree of an inode's attributes.
///
/// # Errors
/// Reading its root may fail.
pub(crate) fn tree(meta: &Meta, inode: &Inode, no: InodeNo) -> Result<Tree> {
    Tree::at_root(meta, inode.xattr_root, BlockKind::Xattrs, no, inode.incarnation)
}

/// Stores the changed tree in the inode.
pub(super) fn store_tree(inode: &mut Inode, tree: &Tree, delta: TreeDelta) -> Unstored {
    inode.xattr_root = tree.root;
    inode.blocks = inode.blocks.saturating_add_signed(i64::from(delta.nodes));
    Unstored::InTree(delta)
}

pub(super) fn chunks_of(value_len: usize) -> usize {
    value_len.div_ceil(XATTR_CHUNK_BYTES).max(1)
}

/// The cells of an attribute, encoded.
pub(super) fn cells(name: Name<'_>, value: &[u8]) -> Vec<Vec<u8>> {
    let (chunk, rest) = value.split_at(value.len().min(XATTR_CHUNK_BYTES));
    let Name { namespace, name } = name;
    let first = XattrCell::First { namespace, name, value_len: value.len() as u32, chunk };
    let rest = rest.chunks(XATTR_CHUNK_BYTES).map(|chunk| XattrCell::Rest(chunk).encode());
    std::iter::once(first.encode()).chain(rest).collect()
}
