//! The core of an open volume is a crate of its own, `yore-core`; here it goes by a short name.

pub(crate) use yore_core::{
    alloc, btree, datacache, extent, inode, locks, memo, orphan, pages, retained, Core,
};
