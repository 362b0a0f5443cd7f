//! Inodes in use.

use crate::store::Store;
use crate::Attr;
use std::sync::Arc;
use yore_core::inode::InodeCell;

/// An inode in use. See [`crate::Node`].
pub(crate) struct InUse {
    pub(crate) store: Arc<Store>,
    pub(crate) cell: Arc<InodeCell>,
    pub(crate) attr: Attr,
}

impl InUse {
    /// Counts a user of the cell; `attr` are the attributes now.
    pub(crate) fn new(store: &Arc<Store>, cell: Arc<InodeCell>, attr: Attr) -> InUse {
        cell.add_node();
        InUse { store: store.clone(), cell, attr }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if self.cell.drop_node() {
            self.store.let_go(&self.cell);
        }
    }
}
