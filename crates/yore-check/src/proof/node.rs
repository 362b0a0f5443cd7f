//! What the fast pass keeps of the blocks that it has read: of tree nodes a few numbers each, of an inode
//! only what its trees must agree with, if it has trees. Most inodes leave nothing but sums.

use super::doubt::{ensure, Certain};
use yore_format::{BlockKind, InodeFlags, MetaAddr, XATTR_CHUNK_BYTES};

/// A node of a tree of an inode.
#[cfg_attr(test, derive(Debug))]
pub(crate) struct Node {
    pub(crate) addr: MetaAddr,
    pub(crate) owner: u64,
    pub(crate) incarnation: u32,
    pub(crate) kind: u8,
    pub(crate) level: u8,
    /// How many cells it has, and the first and the last key if there are any.
    pub(crate) count: u16,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) body: Body,
}

/// What is in a node.
#[cfg_attr(test, derive(Debug))]
pub(crate) enum Body {
    /// The keys and children of a branch.
    Branch(Vec<(u64, MetaAddr)>),
    Extents(ExtentsLeaf),
    Directory(DirectoryLeaf),
    Symlink(SymlinkLeaf),
    Xattrs(Box<XattrsLeaf>),
}

/// Extents, which do not overlap and are in order.
#[derive(Default)]
#[cfg_attr(test, derive(Debug))]
pub(crate) struct ExtentsLeaf {
    /// The file block after the last one.
    pub(crate) end: u64,
    /// Data blocks.
    pub(crate) blocks: u64,
}

/// Entries, each sound by itself, no two of which have one name.
#[derive(Default)]
#[cfg_attr(test, derive(Debug))]
pub(crate) struct DirectoryLeaf {
    /// The hashes of the first and of the last name.
    pub(crate) bases: Option<(u64, u64)>,
    /// Directories among the entries.
    pub(crate) subdirectories: u16,
}

/// Chunks with consecutive keys, all of which are full but perhaps the last.
#[derive(Default)]
#[cfg_attr(test, derive(Debug))]
pub(crate) struct SymlinkLeaf {
    pub(crate) bytes: u64,
    pub(crate) last_is_full: bool,
}

/// Attributes, no two of which have one hash.
#[derive(Default)]
#[cfg_attr(test, derive(Debug))]
pub(crate) struct XattrsLeaf {
    /// Chunks before the first attribute: the end of one in the leaf before.
    pub(crate) head: Option<Head>,
    /// The hashes of the first and of the last attribute that begin here.
    pub(crate) hashes: Option<(u64, u64)>,
    /// The last of them: the key of its next chunk, and how many bytes are still to come.
    pub(crate) tail: (u64, usize),
    /// The flags that an inode with these attributes has.
    pub(crate) flags: InodeFlags,
}

/// Chunks with consecutive keys, all of which are full but perhaps the last.
#[cfg_attr(test, derive(Debug))]
pub(crate) struct Head {
    pub(crate) key: u64,
    pub(crate) count: usize,
    /// Bytes of the last one.
    pub(crate) last: usize,
}

impl Head {
    /// The state of an attribute after these chunks, before which `next` was the next key, with `left` bytes
    /// to come.
    pub(crate) fn follow(&self, (next, left): (u64, usize)) -> Certain<(u64, usize)> {
        let full = (self.count - 1) * XATTR_CHUNK_BYTES;
        let last = left.saturating_sub(full).min(XATTR_CHUNK_BYTES);
        ensure(self.key == next && last > 0 && last == self.last, "chunks that do not fit together")?;
        Ok((next.wrapping_add(self.count as u64), left - full - last))
    }
}

/// What an inode with trees says, to be compared with them.
#[cfg_attr(test, derive(Debug))]
pub(crate) struct InodeWithTrees {
    pub(crate) number: u64,
    pub(crate) incarnation: u32,
    pub(crate) links: u32,
    /// It has versions, and its attributes are compared with theirs. Here is only what its entries must agree
    /// with, for it is a directory.
    pub(crate) has_versions: bool,
    /// Its content, if that is a tree: kind, root and level.
    pub(crate) content: Option<(BlockKind, MetaAddr, u8)>,
    /// Its attributes.
    pub(crate) xattrs: MetaAddr,
    pub(crate) flags: InodeFlags,
    pub(crate) size: u64,
    /// What it says of its blocks, without those that its own extents name.
    pub(crate) blocks: u64,
}
