//! The block of roots: where the trees of the past begin, and how many blocks the past alone holds.

use super::trees::{HistoryTree, FIRST_ROOTS, HISTORY_ROOTS, LATER_ROOTS};
use crate::{
    Block, BlockHeader, Corruption, InodeNo, MetaAddr, StructLayout, Touched, BLOCK_SIZE, HEADER_BYTES,
};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const ROOTS_AT: usize = HEADER_BYTES;
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRoot {
    root: U64,
    level: u8,
    reserved: [u8; 7],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSpace {
    data: U64,
    nodes: U64,
    trees: U64,
}

const ROOT_BYTES: usize = size_of::<RawRoot>();
const ROOTS_END: usize = ROOTS_AT + FIRST_ROOTS * ROOT_BYTES;
const SPACE_END: usize = ROOTS_END + size_of::<RawSpace>();
const LATER_END: usize = SPACE_END + LATER_ROOTS * ROOT_BYTES;

/// Where the root of this index stands in the block of roots.
fn root_at(index: usize) -> usize {
    match index.checked_sub(FIRST_ROOTS) {
        None => ROOTS_AT + index * ROOT_BYTES,
        Some(later) => SPACE_END + later * ROOT_BYTES,
    }
}

/// Blocks that would be free if there were no past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistorySpace {
    /// Data blocks that versions name and no inode in use does.
    pub data: u64,
    /// Nodes of inodes' trees that versions name and no inode in use does.
    pub nodes: u64,
    /// Nodes of the trees of the past themselves, and the block of their roots.
    pub trees: u64,
}

impl HistorySpace {
    /// All of them.
    pub fn blocks(&self) -> u64 {
        self.data.saturating_add(self.nodes).saturating_add(self.trees)
    }
}

/// A change of [`HistorySpace`]: how many blocks of each kind came or, below zero, went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryGrowth {
    /// Data blocks.
    pub data: i64,
    /// Nodes of inodes' trees.
    pub nodes: i64,
    /// Nodes of the trees of the past.
    pub trees: i64,
}

impl HistoryGrowth {
    /// Whether nothing came or went.
    pub fn is_none(&self) -> bool {
        *self == HistoryGrowth::default()
    }
}

/// The block of roots.
pub struct HistoryRoots;

impl HistoryRoots {
    /// Root and level of a tree. A tree without cells has no root.
    pub fn get(block: &Block, tree: HistoryTree) -> (MetaAddr, u8) {
        let raw = Self::raw(block, tree.index());
        (MetaAddr(raw.root.get()), raw.level)
    }

    /// Changes a root.
    pub fn set(block: &mut Block, tree: HistoryTree, root: MetaAddr, level: u8) -> Touched {
        let at = root_at(tree.index());
        let raw = RawRoot { root: root.0.into(), level, reserved: [0; 7] };
        block[at..at + ROOT_BYTES].copy_from_slice(raw.as_bytes());
        (at..at + ROOT_BYTES).into()
    }

    /// How many blocks the past alone holds.
    pub fn space(block: &Block) -> HistorySpace {
        let raw = RawSpace::ref_from_bytes(&block[ROOTS_END..SPACE_END]).expect("the sizes are equal");
        HistorySpace { data: raw.data.get(), nodes: raw.nodes.get(), trees: raw.trees.get() }
    }

    /// Adds to the counts. A count that damage has made too small stays at 0: it must not keep anybody from
    /// freeing blocks.
    pub fn count(block: &mut Block, growth: HistoryGrowth) -> Touched {
        let space = Self::space(block);
        let raw = RawSpace {
            data: space.data.saturating_add_signed(growth.data).into(),
            nodes: space.nodes.saturating_add_signed(growth.nodes).into(),
            trees: space.trees.saturating_add_signed(growth.trees).into(),
        };
        block[ROOTS_END..SPACE_END].copy_from_slice(raw.as_bytes());
        (ROOTS_END..SPACE_END).into()
    }

    fn raw(block: &Block, index: usize) -> &RawRoot {
        let at = root_at(index);
        RawRoot::ref_from_bytes(&block[at..at + ROOT_BYTES]).expect("the sizes are equal")
    }

    /// The verifier.
    ///
    /// # Errors
    /// [`Corruption`] naming the first impossible root.
    pub fn verify(block: &Block) -> Result<(), Box<Corruption>> {
        let bad = |field, expected: &str, found: String| {
            Err(Corruption::new("roots of the history", field, expected, found))
        };
        for index in 0..HISTORY_ROOTS {
            let raw = Self::raw(block, index);
            let root = MetaAddr(raw.root.get());
            if !root.is_plausible() || root.zone().is_root() {
                return bad("root", "a metadata address", root.to_string());
            }
            if root.is_none() && raw.level != 0 {
                return bad("level", "0 without a root", raw.level.to_string());
            }
            if raw.reserved != [0; 7] {
                return bad("reserved bytes", "zero", "something else".into());
            }
        }
        if block[LATER_END..BLOCK_SIZE].iter().any(|b| *b != 0) {
            return bad("rest", "zeros", "something else".into());
        }
        if BlockHeader::of(block).owner.get() != InodeNo::HISTORY.0 {
            return bad("owner", "3", BlockHeader::of(block).owner.get().to_string());
        }
        Ok(())
    }
}

/// The layouts of the block's structures.
pub(super) fn layouts() -> [StructLayout; 2] {
    [
        crate::tables::layout!("History root", RawRoot: root, level, reserved),
        crate::tables::layout!("History space", RawSpace: data, nodes, trees),
    ]
}
