//! Where a file's blocks are: extents, up to four in the inode, more in a tree.
//!
//! Reading is [`mapping`] (one place) and [`each`] (in order). A change has three steps, because an Op must
//! not fail (R7). First, [`Edit::load`] reads the extents around a range of file blocks into a list in
//! memory. Second, edits change that list: they carve out the old extents, put in the new ones, and merge
//! neighbours that continue one another. Third, [`Edit::prepare`] keeps in memory what the difference between
//! the list before and after touches, and [`Edit::apply`] carries the difference over in the Op. A window
//! holds a bounded number of extents; longer ranges take several Ops, and [`Edit::limit`] says how far this
//! one reaches.
//!
//! Invariants, for one file:
//! - **E1** Extents do not overlap, and lie in the data area of one group each (groups begin with a zone, so
//!   none can run into the next).
//! - **E2** Neighbours that continue one another with the same flags and birth are one extent, if one edit
//!   has seen both.
//! - **E3** `inode.blocks` is the sum of the extents' lengths and the number of tree nodes (also the nodes of
//!   the inode's other trees, which their modules count).
//! - **E4** All changes are made with the inode's io mutex held; the state lock is taken on top for the Op
//!   itself. So whoever holds either may rely on the extents.
//!
//! What reaches the medium when: bits set → extents → the inode's pointer → bits clear.

mod edit;
mod mapping;

pub use edit::{Applied, Edit, INLINE_MOST};
pub use mapping::{birth, check_run, each, in_inode, is_own, mapping, of_cell, tree, Extent, Mapping};
