//! Before the first change of an inode that an event has seen, its version is kept
//! ([`crate::history::record`]). For a file, the data that the version refers to is written back first (P4),
//! together with that of other files that have waited longest. So a version is complete when it is made, and
//! dirty data in memory belongs to the present alone.
//!
//! In most cases an Op of its own keeps the version ([`preserve`]), and the change follows. A call that has
//! nothing to wait for keeps the version in the Op that changes the inode ([`before_change`]).

use crate::file::{flush_late, is_written, History, Room};
use crate::history::exclude;
use crate::history::record::{OldVersion, Prepared};
use crate::history::versioning;
use crate::store::Store;
use crate::{InodeNo, Result};
use std::sync::Arc;
use std::time::Duration;
use yore_core::inode::{store_inode, InodeCell, InodeState};
use yore_format::EventNo;
use yore_meta::EdgeKind;

/// Keeps the inode as it is, if an event has seen that state. The caller holds no lock of the inode.
///
/// # Errors
/// Errors of writing back its data; `NoSpace`; damage and device errors. Then nothing has changed.
pub(crate) fn preserve(store: &Store, cell: &Arc<InodeCell>, room: Room) -> Result<()> {
    exclude::warm(store, cell)?;
    let _io = cell.io.lock();
    preserve_locked(store, cell, room)
}

/// As [`preserve`], for callers that hold the inode's io lock.
fn preserve_locked(store: &Store, cell: &Arc<InodeCell>, room: Room) -> Result<()> {
    loop {
        let epoch = store.past.epoch();
        let spared = {
            let state = cell.state.read();
            if !must_preserve(store, cell, &state)? {
                return Ok(());
            }
            exclude::spares(store, cell, &state.inode)?
        };
        if spared {
            if renew(store, cell, epoch)? {
                return Ok(());
            }
            continue;
        }
        let has_data = has_data(&cell.state.read());
        if has_data {
            flush_late(store, cell)?;
        }
        let near = store.near(cell.no);
        let blocks = store.past.blocks_for_version();
        let reserved = match room {
            Room::Free => store.reserve(near, blocks)?,
            Room::Reserve => store.reserve_freely(near, blocks)?,
        };
        let mut state = cell.state.write();
        if !must_preserve(store, cell, &state)? {
            return Ok(());
        }
        if has_data && !is_written(&state) {
            continue; // A write came in since the flush: it belongs before the event.
        }
        let waits = versioning::interval_of(store, cell, &state.inode)?;
        let number = store.number();
        let old_version = OldVersion { no: cell.no, inode: &state.inode };
        let mut recording = match store.past.prepare(store, number, &[old_version], &[])? {
            Prepared::Ready(recording) => recording,
            Prepared::Again => continue,
            Prepared::NeedNumber => {
                drop((state, reserved));
                store.past.pass_number(store)?;
                continue;
            }
        };
        if let Some(mut op) = store.past.begin(&store.meta, reserved, epoch) {
            let recorded = recording.inode(&mut op, cell.no, &mut state).expect("prepared above");
            let born = store_inode(&mut op, cell, &state);
            op.edge(EdgeKind::Recorded, recorded, born);
            op.reborn(cell.no, born);
            drop(op);
            if let Some(waits) = waits {
                versioning::note_changed(store, waits);
            }
            return Ok(());
        }
    }
}

/// Gives an excluded inode that an event covers a new birth, and keeps no version
/// ([`crate::history::exclude`], E1). False if the caller has to look again.
fn renew(store: &Store, cell: &Arc<InodeCell>, epoch: u64) -> Result<bool> {
    let reserved = store.reserve_freely(store.near(cell.no), 0)?;
    let mut state = cell.state.write();
    if !must_preserve(store, cell, &state)? {
        return Ok(true);
    }
    if !exclude::spares(store, cell, &state.inode)? {
        return Ok(false);
    }
    let number = store.number();
    let Some(mut op) = store.past.begin(&store.meta, reserved, epoch) else { return Ok(false) };
    state.inode.born = number;
    let born = store_inode(&mut op, cell, &state);
    op.reborn(cell.no, born);
    store.past.note_renewed(cell);
    drop(op);
    Ok(true)
}

/// Whether data must be written back before the version is kept.
fn has_data(state: &InodeState) -> bool {
    let is_file = state.inode.is_regular();
    #[cfg(feature = "mutations")]
    let is_file = is_file && !crate::mutation::is(crate::mutation::Mutation::RecordedBeforeData);
    is_file
}

/// What has to happen before a change.
pub(crate) enum Before {
    /// Nothing: no event has seen this state of the inode.
    Nothing,
    /// The version that ends can be kept in the same Op. If an interval waits for the change
    /// ([`versioning::interval_of`]), the caller reports the change afterwards.
    Version(Option<(InodeNo, Duration)>),
    /// The version must be kept first, by [`preserve`].
    Preserve,
}

/// What must be kept of an inode whose state is locked for writing. `number` was read under that lock.
/// `with_io`: the caller holds the io lock, too.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn before_change(
    store: &Store,
    cell: &Arc<InodeCell>,
    state: &InodeState,
    with_io: bool,
    number: EventNo,
) -> Result<Before> {
    if !must_preserve(store, cell, state)? {
        return Ok(Before::Nothing);
    }
    // Whether the inode is excluded has to be found out without locks; if it is, nothing is kept.
    if exclude::known(store, cell, &state.inode) != Some(false) {
        return Ok(Before::Preserve);
    }
    // Only an event taken since `number` was read covers an inode that was born with it or later.
    if (has_data(state) && !(with_io && is_written(state))) || state.inode.born >= number {
        return Ok(Before::Preserve);
    }
    Ok(Before::Version(versioning::interval_of(store, cell, &state.inode)?))
}

/// Whether the inode must be preserved before it changes.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn must_preserve(store: &Store, cell: &InodeCell, state: &InodeState) -> Result<bool> {
    if state.gone {
        return Ok(false);
    }
    #[cfg(feature = "mutations")]
    if crate::mutation::is(crate::mutation::Mutation::RecordedOnce)
        && store.recorded_until(state, cell.no)? > EventNo(0)
    {
        return Ok(false);
    }
    store.past.must_preserve(store, cell, &state.inode)
}

impl History for Store {
    fn recorded_until(&self, state: &InodeState, no: InodeNo) -> Result<EventNo> {
        Store::recorded_until(self, state, no)
    }

    fn must_preserve(&self, cell: &InodeCell, state: &InodeState) -> Result<bool> {
        must_preserve(self, cell, state)
    }

    fn preserve(&self, cell: &Arc<InodeCell>, room: Room) -> Result<()> {
        preserve(self, cell, room)
    }

    fn preserve_locked(&self, cell: &Arc<InodeCell>, room: Room) -> Result<()> {
        preserve_locked(self, cell, room)
    }

    fn settle_renewed(&self, newest: u64) -> Result<()> {
        self.past.settle_renewed(&self.meta, newest)
    }
}
