//! The block of roots: where the trees of the past begin, how many blocks the past alone holds, and how far
//! the annals are indexed.

use super::annals::AnnalsKey;
use super::span_hint::HintPlace;
use super::trees::{HistoryTree, ANNALS_ROOTS, FIRST_ROOTS, HISTORY_ROOTS, HISTORY_SHARDS, LATER_ROOTS};
use crate::{
    Block, BlockHeader, Corruption, EventNo, Features, InodeNo, MetaAddr, StructLayout, Touched, BLOCK_SIZE,
    EVENT_LIMIT, HEADER_BYTES,
};
use zerocopy::little_endian::{U32, U64};
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

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawWatermark {
    end: U64,
    sequence: U32,
    reserved: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawAnnals {
    annals_from: U64,
    hint: U64,
    hint_generation: U64,
    moved: U64,
    references: U64,
}

const ROOT_BYTES: usize = size_of::<RawRoot>();
const ROOTS_END: usize = ROOTS_AT + FIRST_ROOTS * ROOT_BYTES;
const SPACE_END: usize = ROOTS_END + size_of::<RawSpace>();
/// Where that begins which comes with the annals.
const FIRST_EDITION_END: usize = SPACE_END + (LATER_ROOTS - ANNALS_ROOTS) * ROOT_BYTES;
const LATER_END: usize = SPACE_END + LATER_ROOTS * ROOT_BYTES;
/// Roots that no tree has yet.
const UNUSED_ROOTS: usize = 3;
const WATERMARKS_AT: usize = LATER_END + UNUSED_ROOTS * ROOT_BYTES;
const WATERMARK_BYTES: usize = size_of::<RawWatermark>();
const ANNALS_AT: usize = WATERMARKS_AT + HISTORY_SHARDS * WATERMARK_BYTES;
const ANNALS_END: usize = ANNALS_AT + size_of::<RawAnnals>();

const _: () = assert!(FIRST_EDITION_END == 936 && WATERMARKS_AT == 1288 && ANNALS_AT == 1544);

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
    /// References to data blocks that no inode in use has. Only annals count them.
    pub references: i64,
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

impl std::ops::AddAssign for HistoryGrowth {
    fn add_assign(&mut self, more: HistoryGrowth) {
        self.data += more.data;
        self.references += more.references;
        self.nodes += more.nodes;
        self.trees += more.trees;
    }
}

/// What the annals count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnnalsCounts {
    /// The least end of a row that a call appended; rows that ended earlier were converted from the trees of
    /// versions and past names. 0: nothing was appended yet, and everything is in those trees.
    pub annals_from: EventNo,
    /// Where it is written what each event held when the volume was closed. It may be of an earlier close.
    pub hint: Option<HintPlace>,
    /// The number at which a directory last came into another class or was removed as one; 0: never.
    pub moved: EventNo,
    /// References to data blocks that the past has and no inode in use.
    pub references: u64,
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
    /// freeing blocks. With annals this also counts references.
    pub fn count(block: &mut Block, growth: HistoryGrowth) -> Touched {
        let space = Self::space(block);
        let raw = RawSpace {
            data: space.data.saturating_add_signed(growth.data).into(),
            nodes: space.nodes.saturating_add_signed(growth.nodes).into(),
            trees: space.trees.saturating_add_signed(growth.trees).into(),
        };
        block[ROOTS_END..SPACE_END].copy_from_slice(raw.as_bytes());
        let touched = Touched::derived(ROOTS_END..SPACE_END);
        let counts = Self::annals_counts(block);
        if growth.references == 0 || counts.annals_from == EventNo(0) {
            return touched;
        }
        let references = counts.references.saturating_add_signed(growth.references);
        touched.and(Self::set_annals_counts(block, AnnalsCounts { references, ..counts }).meaning)
    }

    /// Whether the byte at `at` is of a count that is recounted.
    pub fn is_counted(at: usize) -> bool {
        let references = ANNALS_AT + std::mem::offset_of!(RawAnnals, references);
        (ROOTS_END..SPACE_END).contains(&at) || (references..references + 8).contains(&at)
    }

    /// Up to which row the indexes have the keys of a shard's rows. The least key there is: of none.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn watermark(block: &Block, shard: usize) -> AnnalsKey {
        let at = watermark_at(shard);
        let raw =
            RawWatermark::ref_from_bytes(&block[at..at + WATERMARK_BYTES]).expect("the sizes are equal");
        AnnalsKey { end: EventNo(raw.end.get()), sequence: raw.sequence.get() }
    }

    /// Moves the watermark of a shard.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn set_watermark(block: &mut Block, shard: usize, to: AnnalsKey) -> Touched {
        let at = watermark_at(shard);
        let raw = RawWatermark { end: to.end.0.into(), sequence: to.sequence.into(), reserved: 0.into() };
        block[at..at + WATERMARK_BYTES].copy_from_slice(raw.as_bytes());
        (at..at + WATERMARK_BYTES).into()
    }

    /// What the annals count.
    pub fn annals_counts(block: &Block) -> AnnalsCounts {
        let raw = RawAnnals::ref_from_bytes(&block[ANNALS_AT..ANNALS_END]).expect("the sizes are equal");
        AnnalsCounts {
            annals_from: EventNo(raw.annals_from.get()),
            hint: HintPlace::of(raw.hint.get(), raw.hint_generation.get()),
            moved: EventNo(raw.moved.get()),
            references: raw.references.get(),
        }
    }

    /// Sets what the annals count.
    pub fn set_annals_counts(block: &mut Block, counts: AnnalsCounts) -> Touched {
        let raw = RawAnnals {
            annals_from: counts.annals_from.0.into(),
            hint: counts.hint.map_or(0, HintPlace::packed).into(),
            hint_generation: counts.hint.map_or(0, |hint| hint.generation.0).into(),
            moved: counts.moved.0.into(),
            references: counts.references.into(),
        };
        block[ANNALS_AT..ANNALS_END].copy_from_slice(raw.as_bytes());
        (ANNALS_AT..ANNALS_END).into()
    }

    fn raw(block: &Block, index: usize) -> &RawRoot {
        let at = root_at(index);
        RawRoot::ref_from_bytes(&block[at..at + ROOT_BYTES]).expect("the sizes are equal")
    }

    /// The verifier.
    ///
    /// # Errors
    /// [`Corruption`] naming the first impossible field.
    pub fn verify(block: &Block) -> Result<(), Box<Corruption>> {
        HistoryRoots::verify_with(block, Features::SUPPORTED)
    }

    /// The same for a volume that has at most these features: what comes with another one is zero.
    ///
    /// # Errors
    /// As [`HistoryRoots::verify`].
    pub fn verify_with(block: &Block, features: Features) -> Result<(), Box<Corruption>> {
        for index in 0..HISTORY_ROOTS {
            let raw = Self::raw(block, index);
            let root = MetaAddr(raw.root.get());
            if !root.is_plausible() || root.zone().is_root() {
                return bad("root", "a metadata address", root);
            }
            if root.is_none() && raw.level != 0 {
                return bad("level", "0 without a root", raw.level);
            }
            if raw.reserved != [0; 7] {
                return bad("reserved bytes", "zero", "something else");
            }
        }
        // Until something was appended, nothing is there that comes with the annals.
        let annals_from = Self::annals_counts(block).annals_from;
        let is_used = features.contains(Features::ANNALS) && annals_from != EventNo(0);
        let end = if is_used { ANNALS_END } else { FIRST_EDITION_END };
        let unused = if is_used { &block[LATER_END..WATERMARKS_AT] } else { &[] };
        if block[end..BLOCK_SIZE].iter().chain(unused).any(|b| *b != 0) {
            return bad("rest", "zeros", "something else");
        }
        if is_used {
            Self::verify_annals(block)?;
        }
        if BlockHeader::of(block).owner.get() != InodeNo::HISTORY.0 {
            return bad("owner", InodeNo::HISTORY, BlockHeader::of(block).owner);
        }
        Ok(())
    }

    /// Checks that no number is one that no key can have.
    fn verify_annals(block: &Block) -> Result<(), Box<Corruption>> {
        let AnnalsCounts { annals_from, moved, .. } = Self::annals_counts(block);
        if annals_from.0 >= EVENT_LIMIT || moved.0 >= EVENT_LIMIT {
            return bad(
                "numbers of events",
                format!("below {EVENT_LIMIT}"),
                format!("{annals_from}, {moved}"),
            );
        }
        for shard in 0..HISTORY_SHARDS {
            let at = watermark_at(shard);
            if block[at + WATERMARK_BYTES - size_of::<U32>()..at + WATERMARK_BYTES] != [0; 4] {
                return bad("reserved bytes", "zero", "something else");
            }
            let end = Self::watermark(block, shard).end;
            if end.0 >= EVENT_LIMIT {
                return bad("watermark", format!("an end below {EVENT_LIMIT}"), end);
            }
        }
        Ok(())
    }
}

fn bad<T>(field: &'static str, expected: impl ToString, found: impl ToString) -> Result<T, Box<Corruption>> {
    Err(Corruption::new("roots of the history", field, expected, found))
}

fn watermark_at(shard: usize) -> usize {
    assert!(shard < HISTORY_SHARDS, "a shard of the history below {HISTORY_SHARDS}, not {shard}");
    WATERMARKS_AT + shard * WATERMARK_BYTES
}

/// The layouts of the block's structures.
pub(super) fn layouts() -> [StructLayout; 4] {
    [
        crate::tables::layout!("History root", RawRoot: root, level, reserved),
        crate::tables::layout!("History space", RawSpace: data, nodes, trees),
        crate::tables::layout!("History watermark", RawWatermark: end, sequence, reserved),
        crate::tables::layout!("History annals", RawAnnals: annals_from, hint, hint_generation, moved, references),
    ]
}
