//! Whether an inode is a directory, or lies below it or above it. Calls that wait at the gate need this.

use crate::store::Store;
use crate::{ops, Error, InodeNo, Result};
use std::sync::Arc;
use yore_core::inode::DEPTH_MAX;

/// Whether an inode is a directory or lies below it. For a file with several names it is not known where all
/// its names are, so the answer is yes.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn is_below(store: &Arc<Store>, no: InodeNo, directory: InodeNo) -> Result<bool> {
    let mut at = no;
    for _ in 0..DEPTH_MAX {
        if at == directory {
            return Ok(true);
        }
        if at == InodeNo::ROOT {
            return Ok(false);
        }
        let Some(cell) = store.cell_if_used(at)? else { return Ok(false) };
        let state = cell.state.read();
        let inode = &state.inode;
        if state.gone || inode.links == 0 {
            return Ok(false);
        }
        if !inode.is_directory() && (inode.links > 1 || inode.parent == InodeNo::NONE) {
            return Ok(true);
        }
        at = inode.parent;
    }
    // A circle. It is damage, which other code reports.
    Ok(true)
}

/// Whether an inode is a directory, or lies below it or above it.
///
/// # Errors
/// As [`is_below`].
pub(crate) fn is_around(store: &Arc<Store>, no: InodeNo, directory: InodeNo) -> Result<bool> {
    Ok(is_below(store, no, directory)? || is_below(store, directory, no)?)
}

/// The inode that a name means now, if there is one.
pub(super) fn inode_named(store: &Arc<Store>, directory: InodeNo, name: &[u8]) -> Result<Option<InodeNo>> {
    match ops::lookup(store, directory, name) {
        Ok(found) => Ok(Some(found.cell.no)),
        Err(Error::NotFound | Error::NotADirectory | Error::Stale | Error::NameTooLong) => Ok(None),
        Err(e) => Err(e),
    }
}
