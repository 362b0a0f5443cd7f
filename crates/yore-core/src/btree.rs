//! B+trees of slotted pages for directories, extents, attributes, long symbolic links, and orphans.
//!
//! Keys are byte strings, of one width per tree, and compare as bytes. Leaves hold cells (key, value); cell i
//! of a branch holds the address of child i and a lower bound of its keys. What a reader may rely on:
//!
//! - **T1** A node's *bounds* come from its parent: child i of a branch with bounds [lower, upper) has the
//!   bounds [key i, key i+1), where the first child's lower is the branch's own and the last child's upper
//!   likewise. The root's bounds are everything. All keys that count lie in the bounds of their node; a
//!   reader ignores keys at or above the upper bound. (They are what a split or a merge leaves behind in the
//!   left node when an in-place engine stops half-way; the next change of the node removes them.)
//! - **T2** The first cell of a branch carries the branch's own lower bound, so on the left spine of the tree
//!   it is all zero bytes, and no key is ever below the first separator. While an in-place engine is half-way
//!   through the removal of a first child, the key may be higher, never lower; searching takes the first
//!   child then.
//! - **T3** Levels descend by one, and every node names its tree's kind and owner. With T2 (a branch's first
//!   key lies in one parent's bounds only) no damage can make a walk endless, or visit a branch twice.
//! - **T4** The empty tree has no node: its root is `MetaAddr::NONE`. A leaf that loses its last cell goes,
//!   and so does a branch that loses its last child. A branch at the root with one child gives way to it.
//!
//! A node under a third full is merged with a sibling under the same parent, if that sibling is in memory and
//! both fit together. Two neighbours that do not fit together are half full on average, so space stays
//! bounded, and no sibling has to be read for it. Inserting at the right end of the tree leaves the left node
//! of a split nine tenths full.
//!
//! **The past.** Versions of the owner may share nodes of its tree (V8): all nodes that were born before the
//! newest version ended, [`Tree::recorded_until`]. Nothing here changes or frees these nodes. A change first
//! copies those on its way (`Tree::own`): it makes a new node with a new address, born with the inode's
//! present version. The parent, which by then belongs to the present alone, points to the copy. Below a kept
//! node all nodes are kept, so a walk need not look below a node that it has not copied.
//!
//! A change has two halves (R7). [`Tree::prepare`] reads, checks and keeps in memory whatever a change of a
//! range of keys can touch; this half can fail. [`Tree::insert`], [`Tree::replace`] and [`Tree::remove`] run
//! inside an Op and cannot fail. A tree is a value: whoever keeps its root (an inode, the superblock) stores
//! it back, and tells [`TreeDelta::stored`] which change that was.
//!
//! `path.rs` has the position of a walk, `tree.rs` the root and the checks of a node; `read.rs` reads,
//! `prepare.rs` is the half that can fail; inside an Op, `nodes.rs` finds and copies nodes, `shrink.rs`
//! removes and merges, `change.rs` inserts, replaces and removes, `append.rs` appends, `batch.rs` plans many
//! inserts, and `position.rs` has where a cell goes.

mod append;
mod batch;
mod bounds;
mod change;
mod delta;
mod nodes;
mod path;
mod position;
mod prepare;
mod read;
mod shrink;
#[cfg(test)]
mod tests;
mod together;
mod tree;

pub use append::LastLeaf;
pub use batch::BatchInsert;
pub use bounds::Beyond;
pub use delta::{CellChange, TreeDelta, Unstored};
pub use path::{Path, Pins};
pub use position::InsertPosition;
pub use prepare::PastNodes;
pub use tree::Tree;
