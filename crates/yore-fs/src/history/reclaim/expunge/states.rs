//! The states of one file: the present one, and its versions.

use crate::store::Store;
use crate::{InodeNo, Result};
use std::sync::Arc;
use yore_format::{EventNo, Incarnation, Inode, Version};

/// The inode in use, if it is of this incarnation.
pub(super) fn in_use_as(store: &Arc<Store>, no: InodeNo, incarnation: Incarnation) -> Result<Option<Inode>> {
    let Some(cell) = store.cell_if_used(no)? else { return Ok(None) };
    let state = cell.state.read();
    let is_it = !state.gone && state.inode.incarnation == incarnation;
    Ok(is_it.then(|| state.inode.clone()))
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
