//! The inodes that a rename locks, in the order in which all locks are taken.

use crate::store::Store;
use crate::{InodeNo, Result};
use std::sync::Arc;
use yore_core::inode::{InodeCell, InodeState, DEPTH_MAX};
use yore_core::locks::Writing;
use yore_format::Corruption;

/// A directory in which a name changes. Only a directory may be locked as one: the lock of anything else
/// comes later in the order.
pub(super) fn directory(store: &Store, no: InodeNo) -> Result<Arc<InodeCell>> {
    let cell = store.cell(no)?;
    cell.state.read().check_directory()?;
    Ok(cell)
}

/// One or two locked directories.
pub(super) enum Dirs<'a> {
    Same(Writing<'a, InodeState>),
    Two { from: Writing<'a, InodeState>, to: Writing<'a, InodeState> },
}

impl<'a> Dirs<'a> {
    /// Locks two directories, given with everything above each: the upper one comes first.
    pub(super) fn lock(from: (&'a InodeCell, &[InodeNo]), to: (&'a InodeCell, &[InodeNo])) -> Dirs<'a> {
        let ((from, above_from), (to, above_to)) = (from, to);
        if from.no == to.no {
            return Dirs::Same(from.state.write());
        }
        let from_first = if above_to.contains(&from.no) {
            true
        } else if above_from.contains(&to.no) {
            false
        } else {
            from.no < to.no
        };
        if from_first {
            let from = from.state.write();
            Dirs::Two { from, to: to.state.write() }
        } else {
            let to = to.state.write();
            Dirs::Two { from: from.state.write(), to }
        }
    }

    pub(super) fn from(&mut self) -> &mut InodeState {
        match self {
            Dirs::Same(s) => s,
            Dirs::Two { from, .. } => from,
        }
    }

    pub(super) fn to(&mut self) -> &mut InodeState {
        match self {
            Dirs::Same(s) => s,
            Dirs::Two { to, .. } => to,
        }
    }
}

/// The directory and everything above it. The caller holds the rename lock, and locks no inode.
pub(super) fn ancestry(store: &Arc<Store>, of: InodeNo) -> Result<Vec<InodeNo>> {
    let mut above = vec![of];
    loop {
        let at = above[above.len() - 1];
        let up = store.cell(at)?.state.read().inode.parent;
        if up == at || up == InodeNo::NONE {
            return Ok(above);
        }
        if above.len() > DEPTH_MAX {
            return Err(Corruption::new("directory", "parent", "a way to the root", "a circle")
                .of(of)
                .into());
        }
        above.push(up);
    }
}

/// Locks the moved and the replaced inode: directories before files, else by number.
pub(super) fn lock_children<'a>(
    cell: &'a InodeCell,
    other: Option<&'a InodeCell>,
) -> (Writing<'a, InodeState>, Option<Writing<'a, InodeState>>) {
    let Some(other) = other else { return (cell.state.write(), None) };
    let rank = |c: &InodeCell| (!c.state.read().inode.is_directory(), c.no);
    if rank(cell) < rank(other) {
        let first = cell.state.write();
        (first, Some(other.state.write()))
    } else {
        let first = other.state.write();
        (cell.state.write(), Some(first))
    }
}
