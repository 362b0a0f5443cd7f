//! The old trees of history, which programs before format 2.3 recorded in: of versions, of past names, and of
//! changes, in sixteen shards each. Nothing is entered here any more: what is in them is read, begins later
//! when its file is expunged, and is reclaimed.
//!
//! A version has its inode and its birth as its key, a past name its directory, cookie and birth. Where one
//! of them ends, the tree of changes of the same shard has a key that begins with the number of the end.
//! Nobody outside of `history/record` knows these trees: the questions that callers ask are methods of
//! [`super::Past`].

mod changes;
mod names;
mod removal;
mod trees;
mod versions;

pub(super) use removal::FirstRemoval;
