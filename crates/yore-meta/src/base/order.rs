//! The order of changes (docs/EDGES.md): what a change is, and which change waits for which.
//!
//! Engines that write metadata where it is need the order. Those of today do not, and get none: an Op asks
//! once, when it opens, whether anybody wants it. A recorder wants it: `recorder.rs`.

/// One change: what one call of [`crate::Op::change`], [`crate::Op::allocate`], [`crate::Op::free`] or
/// [`crate::Op::set_orphan_root`] did. Its number is greater than those of all changes before it: of the
/// volume where somebody wants the order, else of the Op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change(pub(crate) u64);

impl Change {
    /// Its number.
    pub fn number(self) -> u64 {
        self.0
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
    /// A name that still waits comes before another name of the inode goes.
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
    /// The extent goes before the bits are cleared.
    Returned,
    /// A row of the past is there before the present changes what it keeps.
    Recorded,
}
