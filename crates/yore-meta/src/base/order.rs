//! The order of changes (docs/EDGES.md): what a change is, and which change waits for which.
//!
//! Engines that write metadata where it is, in order, need it. The others do not, and get none: an Op asks
//! once, when it opens, whether anybody wants it: `orders.rs`.

use super::units::Piece;
use std::num::NonZeroU64;
use yore_format::{Block, InodeNo, MetaAddr};

/// One change: what one call of [`crate::Op::change`], [`crate::Op::allocate`], [`crate::Op::free`] or
/// [`crate::Op::set_orphan_root`] did. Its number is greater than those of all changes before it: of the
/// volume where somebody wants the order, else of the Op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change(NonZeroU64);

impl Change {
    #[inline]
    pub(crate) fn from_number(number: u64) -> Change {
        Change(NonZeroU64::MIN.saturating_add(number))
    }

    /// Its number.
    pub fn number(self) -> u64 {
        self.0.get() - 1
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Why one change waits for another.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum EdgeKind {
            $($(#[$doc])* $name,)*
        }

        impl EdgeKind {
            /// All kinds that there are.
            pub const ALL: &'static [EdgeKind] = &[$(EdgeKind::$name,)*];
        }
    };
}

kinds! {
    /// An index is in use before its block has an image.
    Made,
    /// All that was put into a new block comes before the pointer to it.
    Contents,
    /// Later changes of a new block come behind the pointer to it.
    Reached,
    /// All that waits in a node comes before the pointer that makes its copies count.
    Moved,
    /// The pointer to the right node comes before the left one is trimmed; and that, before the left one
    /// takes over keys.
    Trimmed,
    /// A first child goes before the keys below are lowered.
    Lowered,
    /// The last pointer goes before the index is free.
    Freed,
    /// The inode with its count comes before the entry.
    Named,
    /// The entry goes before the count is lowered, or the slot cleared.
    Unnamed,
    /// The parent's count is raised before the entry of a directory comes.
    Counted,
    /// The entry of a directory goes before the parent's count is lowered.
    Uncounted,
    /// The new name comes before the old one goes.
    Replaced,
    /// A name that still waits, and those of the directories that lead to it, come before another name of the
    /// inode goes.
    Kept,
    /// An orphan is listed before its last name goes, or its size is stored.
    Listed,
    /// The slot is cleared, or the last extent gone, before an orphan goes off the list.
    Unlisted,
    /// Bits are set before the extent that has the blocks comes.
    Taken,
    /// Extents are in a tree before the size and the count are in the inode; and a lower size is there before
    /// the extents beyond it go.
    Entered,
    /// An extent goes before another one comes in its place.
    Vacated,
    /// The extent goes before the bits are cleared.
    Returned,
    /// A row of the past is there before the present changes what it keeps.
    Recorded,
}

/// What one change did.
pub(crate) enum Did<'a> {
    /// It changed these units of a block, in this order.
    Block { addr: MetaAddr, after: &'a Block, pieces: Vec<Piece> },
    /// It took an index into use. The block is this one, until something is put into it.
    Made { addr: MetaAddr, block: &'a Block },
    /// It freed an index.
    Freed { addr: MetaAddr },
    /// It changed the root of the orphans.
    Orphans { root: MetaAddr, level: u8 },
}

/// Keeps the order of changes. See [`crate::Op`] for what each call says.
pub(crate) trait KeepsOrder: Sync {
    /// An Op opens; returns its number.
    fn begin(&self, alone: bool) -> u64;
    /// What this Op does is done as a whole and by itself.
    fn be_whole(&self, op: u64);
    /// Everything so far reaches the medium before what follows.
    fn drain(&self);
    /// A block is about to be changed, with its lock held.
    fn before(&self, addr: MetaAddr, block: &Block);
    /// A change was made. Of a block: with its lock held, so that numbers ascend as its changes do.
    fn change(&self, op: u64, did: Did<'_>) -> Change;
    /// `first` comes before `then`.
    fn edge(&self, kind: EdgeKind, first: Change, then: Change);
    /// All later changes of this Op come behind `first`.
    fn ahead(&self, kind: EdgeKind, op: u64, first: Change);
    /// All changes of a block so far come before `by`.
    fn all_before(&self, kind: EdgeKind, block: MetaAddr, by: Change);
    /// What a block has counts from the change `by` on.
    fn linked(&self, block: MetaAddr, by: Change);
    /// A name of an inode, in this directory, counts from `by` on.
    fn named(&self, inode: InodeNo, directory: InodeNo, by: Change);
    /// A name of an inode goes with the change `gone`, or a name that is reached through this directory.
    fn unnamed(&self, inode: InodeNo, gone: Change);
    /// An inode that an event has seen is born anew with the change `by`.
    fn reborn(&self, inode: InodeNo, by: Change);
    /// All later changes of this Op come behind the new birth of an inode, if that waits.
    fn behind_birth(&self, op: u64, inode: InodeNo);
    /// Extents of an inode go with the change `gone`.
    fn vacated(&self, inode: InodeNo, gone: Change);
    /// Blocks come to an inode with the change `by`.
    fn occupied(&self, inode: InodeNo, by: Change);
}
