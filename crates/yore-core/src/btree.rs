//! B+trees of slotted pages: directories, extents, attributes, long symbolic links, orphans.
//!
//! Keys are byte strings of one width per tree, compared as bytes. Leaves hold cells (key, value); a branch's
//! cell i holds the address of child i and a lower bound of its keys. What a reader may rely on:
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
//! - **T4** The empty tree has no node: its root is [`MetaAddr::NONE`]. A leaf that loses its last cell goes,
//!   and so does a branch that loses its last child. A branch at the root with one child gives way to it.
//!
//! Nodes under a third full are merged with a sibling under the same parent if that one is in memory and both
//! fit together; two neighbours that do not fit together are half full on average, so space stays bounded
//! without reading siblings for it. Inserting at the right end of the tree leaves the left node of a split
//! nine tenths full.
//!
//! **The past.** Versions of the owner may hold nodes of its tree (V8): all that were born before the newest
//! of them ended, [`Tree::kept`]. These are never changed nor freed here. A change first copies those on its
//! way ([`Tree::own`]): a new node with a new address, born with the inode's present version, and its parent,
//! which is the present's own by then, points to the copy. A node that is kept has only such below it, so
//! what a walk has not copied it need not look into.
//!
//! Changing has two halves (R7). [`Tree::prepare`] reads, checks and keeps in memory whatever changes of a
//! range of keys can touch; it is the half that can fail. [`Tree::insert`], [`Tree::replace`] and
//! [`Tree::remove`] run inside an Op and cannot. A tree is a value: who keeps its root (an inode, the
//! superblock) stores it back, and tells [`TreeDelta::stored`] which change that was.
//!
//! `path.rs` has where a walk is, `tree.rs` the root and the checks of a node; `read.rs` reads, `prepare.rs`
//! is the half that can fail; inside an Op, `nodes.rs` finds and copies nodes, `shrink.rs` removes and
//! merges, `change.rs` inserts, replaces and removes, and `hints.rs` remembers where cells went lately.

mod change;
mod delta;
mod hints;
mod nodes;
mod path;
mod prepare;
mod read;
mod shrink;
#[cfg(test)]
mod tests;
mod tree;

pub use delta::{Placed, TreeDelta};
pub use hints::{InsertPosition, LeafHints};
pub use path::{Path, Pins};
pub use tree::Tree;
