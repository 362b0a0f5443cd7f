//! What is at a block of a file, and what its extents are.

use crate::alloc::{Alloc, Run};
use crate::btree::Tree;
use crate::{Error, Result};
use yore_format::{
    BlockKind, BlockNo, ContentKind, Corruption, EventNo, ExtentValue, Inode, InodeNo, EXTENT_INLINE_BYTES,
};
use yore_meta::Meta;

/// An extent with its first file block.
pub type Extent = (u64, ExtentValue);

/// What is at a block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// For how many blocks this holds, from the requested one on; `u64::MAX` for the hole behind everything.
    pub len: u64,
    /// Where the requested block is, and the flags and birth; `None` in a hole.
    pub extent: Option<ExtentValue>,
}

impl Mapping {
    /// A hole of this many blocks.
    pub fn hole(len: u64) -> Mapping {
        Mapping { len, extent: None }
    }

    /// Whether the medium has content for it.
    pub fn is_written(&self) -> bool {
        self.extent.is_some_and(|e| !e.unwritten)
    }
}

/// The birth of new extents and nodes of an inode, whose content belongs to the past too as far as it was
/// born at `recorded_until` or before. It is the next number, so that neighbours merge (V8).
pub fn birth(recorded_until: EventNo) -> EventNo {
    EventNo(recorded_until.0 + 1)
}

/// Whether these blocks belong to the present alone: then data may be written over what they hold, and they
/// may be freed (V8). The past has no use for blocks that were never written.
pub fn is_own(recorded_until: EventNo, extent: &ExtentValue) -> bool {
    #[cfg(feature = "mutations")]
    let recorded_until = match yore_meta::mutation::is(yore_meta::mutation::Mutation::RecordedReused) {
        true => EventNo(0),
        false => recorded_until,
    };
    (extent.birth > recorded_until || extent.unwritten) && !extent.shared
}

/// The tree of an inode's extents; empty if they are in the inode. Nodes born at `recorded_until` or before
/// belong to the past, too.
pub fn tree(no: InodeNo, inode: &Inode, recorded_until: EventNo) -> Tree {
    let mut tree = Tree::empty(BlockKind::Extents, no, inode.incarnation).with_recorded(recorded_until);
    if inode.content_kind == ContentKind::Tree {
        (tree.root, tree.level) = (inode.tree_root(), inode.content_level);
    }
    tree
}

/// The extents that are in the inode.
pub fn in_inode(no: InodeNo, inode: &Inode) -> impl Iterator<Item = Result<Extent>> + '_ {
    let count = match inode.content_kind {
        ContentKind::Extents => usize::from(inode.content_count),
        _ => 0,
    };
    inode.content.chunks_exact(EXTENT_INLINE_BYTES).take(count).map(move |bytes| {
        let key = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
        decode_value(u64::from(key), &bytes[4..], no)
    })
}

/// The extent in a leaf's cell.
pub fn of_cell(key: &[u8], value: &[u8], no: InodeNo) -> Result<Extent> {
    match key.try_into() {
        Ok(key) => decode_value(u64::from_be_bytes(key), value, no),
        Err(_) => Err(Corruption::new("extent", "key", "eight bytes", key.len()).of(no).into()),
    }
}

fn decode_value(key: u64, value: &[u8], no: InodeNo) -> Result<Extent> {
    let value = ExtentValue::decode(value).map_err(|c| c.of(no))?;
    if key.saturating_add(u64::from(value.len)) > u64::from(u32::MAX) {
        return Err(Corruption::new("extent", "file block", "below 2^32 - 1", key).of(no).into());
    }
    Ok((key, value))
}

/// Adds the owner's name to damage that was found in its extents.
pub(super) fn owned<T>(result: Result<T>, no: InodeNo) -> Result<T> {
    result.map_err(|e| match e {
        Error::Corruption(c) => c.of(no).into(),
        other => other,
    })
}

/// Fails unless data can be in these blocks: they must lie in one group, and neither in a zone nor in the
/// log. Callers check this before they read, write or free them.
pub fn check_run(meta: &Meta, alloc: &Alloc, no: InodeNo, run: Run) -> Result<()> {
    let (group, _) = owned(alloc.group_and_bit(run), no)?;
    match meta.taken_block(group, run.start, run.len)? {
        None => Ok(()),
        Some(block) => {
            let found = "a block of a zone or of the log";
            Err(Corruption::new("extent", "blocks", "blocks of data", found).on(block).of(no).into())
        }
    }
}

pub(super) fn end(extent: &Extent) -> u64 {
    extent.0 + u64::from(extent.1.len)
}

/// The part of an extent in `from..to`, which it overlaps.
pub(super) fn part(extent: &Extent, from: u64, to: u64) -> Extent {
    let (first, last) = (extent.0.max(from), end(extent).min(to));
    let start = BlockNo(extent.1.start.0 + (first - extent.0));
    (first, ExtentValue { start, len: (last - first) as u32, ..extent.1 })
}

/// What is at `block` of the file. O(log extents).
///
/// # Errors
/// Reading the tree may fail; `Corruption` for impossible extents.
pub fn mapping(meta: &Meta, alloc: &Alloc, no: InodeNo, inode: &Inode, block: u64) -> Result<Mapping> {
    let mut below = None;
    let mut above = u64::MAX;
    if inode.content_kind == ContentKind::Tree {
        let tree = tree(no, inode, EventNo(0));
        below = tree
            .floor(meta, &block.to_be_bytes(), |cell| cell.map(|(k, v)| of_cell(k, v, no)))?
            .transpose()?;
        if below.as_ref().is_none_or(|e| end(e) <= block) {
            tree.scan(meta, &(block + 1).to_be_bytes(), &mut |key, value| {
                above = of_cell(key, value, no)?.0;
                Ok(false)
            })?;
        }
    } else {
        for extent in in_inode(no, inode) {
            let extent = extent?;
            if extent.0 <= block {
                below = Some(extent);
            } else {
                above = above.min(extent.0);
            }
        }
    }
    match below {
        Some(extent) if block < end(&extent) => {
            let (_, value) = part(&extent, block, u64::MAX);
            // Blocks that a version names and that nobody ever wrote are a hole to the version. They may lie
            // beyond the end of a volume that became shorter.
            if value.unwritten && value.start.0 + u64::from(value.len) > meta.geometry().blocks {
                return Ok(Mapping::hole(u64::from(value.len)));
            }
            check_run(meta, alloc, no, Run { start: value.start, len: value.len })?;
            Ok(Mapping { len: u64::from(value.len), extent: Some(value) })
        }
        _ => Ok(Mapping::hole(if above == u64::MAX { above } else { above - block })),
    }
}

/// Calls `each` with the extents that end after `from`, in order, until it returns `Ok(false)`.
///
/// # Errors
/// As [`mapping`], and those of `each`.
pub fn each(
    meta: &Meta,
    no: InodeNo,
    inode: &Inode,
    from: u64,
    each: &mut dyn FnMut(Extent) -> Result<bool>,
) -> Result<()> {
    if inode.content_kind != ContentKind::Tree {
        for extent in in_inode(no, inode) {
            let extent = extent?;
            if end(&extent) > from && !each(extent)? {
                break;
            }
        }
        return Ok(());
    }
    let tree = tree(no, inode, EventNo(0));
    let below =
        tree.floor(meta, &from.to_be_bytes(), |cell| cell.map(|(k, v)| of_cell(k, v, no)))?.transpose()?;
    if let Some(extent) = below.filter(|e| end(e) > from) {
        if !each(extent)? {
            return Ok(());
        }
    }
    tree.scan(meta, &(from + 1).to_be_bytes(), &mut |key, value| each(of_cell(key, value, no)?))
}
