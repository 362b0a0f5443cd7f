//! Before the first change of an inode that a cut has seen: its version is kept ([`crate::past`]), and of a file the data that
//! the version names is written back first (P4), with that of others that have waited longest. So a version is whole when it is made,
//! and what is dirty in memory belongs to the present alone.

use super::flush::is_written;
use super::group::flush_among_others;
use crate::inode::{InodeCell, InodeState};
use crate::locks::Writing;
use crate::past::VERSION_BLOCKS;
use crate::store::Store;
use crate::{policy, Result};
use std::sync::Arc;
#[cfg(feature = "mutations")]
use yore_format::Number;

/// What a change may draw on for the version that it must leave behind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// What is free.
    Free,
    /// Also what is set aside for deleting.
    Reserve,
}

/// Keeps the inode as it is, if a cut has seen it so. The caller holds no lock of it.
///
/// # Errors
/// Writing back its data may fail; `NoSpace`; damage and device errors. Nothing has changed then.
pub(crate) fn preserve(store: &Store, cell: &Arc<InodeCell>, room: Room) -> Result<()> {
    let _io = cell.io.lock();
    preserve_locked(store, cell, room)
}

/// As [`preserve`], for who holds io.
pub(crate) fn preserve_locked(store: &Store, cell: &Arc<InodeCell>, room: Room) -> Result<()> {
    loop {
        if !must_keep(store, cell, &cell.state.read())? {
            return Ok(());
        }
        let epoch = store.past.epoch();
        let is_file = cell.state.read().inode.is_regular();
        #[cfg(feature = "mutations")]
        let is_file = is_file && !crate::mutation::is(crate::mutation::Mutation::KeptBeforeData);
        if is_file {
            flush_among_others(store, cell)?;
        }
        let near = store.near(cell.no);
        let reserved = match room {
            Room::Free => store.reserve(near, VERSION_BLOCKS)?,
            Room::Reserve => store.reserve_freely(near, VERSION_BLOCKS)?,
        };
        let mut state = cell.state.write();
        if !must_keep(store, cell, &state)? {
            return Ok(());
        }
        if is_file && !is_written(&state) {
            continue; // Somebody wrote before the cut, as he believes.
        }
        let waits = policy::interval_of(store, cell)?;
        let keep = store.past.prepare_version(store, cell.no, &state.inode)?;
        if let Some(mut op) = store.past.begin(&store.meta, reserved, epoch) {
            keep.apply(&mut op, cell, &mut state);
            drop(op);
            if let Some(waits) = waits {
                policy::note_changed(store, waits);
            }
            return Ok(());
        }
    }
}

/// The file's state, to be changed: what a cut has seen of it is kept. The caller holds io.
///
/// # Errors
/// As [`preserve`]; `Stale` for a file that is gone.
pub(super) fn lock_preserved<'c>(
    store: &Store,
    cell: &'c Arc<InodeCell>,
    room: Room,
) -> Result<Writing<'c, InodeState>> {
    loop {
        let state = cell.state.write();
        super::check_alive(&state)?;
        if !must_keep(store, cell, &state)? {
            return Ok(state);
        }
        drop(state);
        preserve_locked(store, cell, room)?;
    }
}

/// Whether the inode must be preserved before it changes.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn must_keep(store: &Store, cell: &InodeCell, state: &InodeState) -> Result<bool> {
    if state.gone {
        return Ok(false);
    }
    #[cfg(feature = "mutations")]
    if crate::mutation::is(crate::mutation::Mutation::KeptOnce) && state.kept(store, cell.no)? > Number(0) {
        return Ok(false);
    }
    store.past.must_keep(store, cell, &state.inode)
}
