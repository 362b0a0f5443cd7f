//! The states of one file: the present one, and its versions.

use crate::store::Store;
use crate::{Error, InodeNo, Result};
use std::sync::Arc;
use yore_format::{EventNo, Incarnation, Inode, Version};

/// The inode in use, if it is of this incarnation.
pub(super) fn in_use_as(store: &Arc<Store>, no: InodeNo, incarnation: Incarnation) -> Result<Option<Inode>> {
    match store.cell(no) {
        Ok(cell) => {
            let state = cell.state.read();
            let is_it = !state.gone && state.inode.incarnation == incarnation;
            Ok(is_it.then(|| state.inode.clone()))
        }
        Err(Error::Stale) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Calls `each` with the versions of one incarnation, the oldest first.
pub(super) fn each_version(
    store: &Store,
    no: InodeNo,
    incarnation: Incarnation,
    each: &mut dyn FnMut(&Version) -> Result<()>,
) -> Result<()> {
    let mut from = EventNo(0);
    while let Some(version) = store.past.version_after(&store.meta, no, from)? {
        if version.inode.incarnation == incarnation {
            each(&version)?;
        }
        from = version.end;
    }
    Ok(())
}
