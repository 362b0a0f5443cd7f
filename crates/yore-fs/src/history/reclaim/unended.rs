//! Rows of the annals that a crash under an engine that orders changes has left without the change of the
//! present that they were made for (docs/EDGES.md, "The past").
//!
//! Such a row says that a state or a name ended, and in the present it has not: it is born when the row's is.
//! (Of a file that is being expunged the present may still have names from before. A row takes only what is
//! not given up of such a name, so it is born when that begins.) As long as nothing changes that hurts
//! nobody, since the past is read from the present first. The next change would record the same state again,
//! under another end. So before the first change of the present, and before rows get their keys, such a state
//! ends: the inode in use begins where the version ends. Whatever is put right in the inode behind the crash,
//! such as a count of links, does not show in the past then. A past name is given up: its entry is in use.
//!
//! Only rows above the watermarks can be such: a batch of keys comes alone, behind all changes from before
//! it. There are few, and a mount reads them at its first change, not before it serves.

use crate::history::reclaim::rows::give_up_rows;
use crate::history::record::{LeavingRow, PastEntry};
use crate::store::Store;
use crate::{dir, InodeNo, Result};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use yore_core::inode::{store_inode, InodeState};
use yore_format::{Version, HISTORY_SHARDS};

/// Rows that are read at a time.
const ROWS: usize = 256;

/// Gives up what a crash has left unended, once in a mount. The caller holds no lock.
///
/// # Errors
/// Damage and device errors. Then the next change looks again.
#[inline]
pub(crate) fn settle(store: &Arc<Store>) -> Result<()> {
    match store.past.may_have_unended.load(Ordering::Acquire) {
        true => settle_all(store),
        false => Ok(()),
    }
}

#[cold]
fn settle_all(store: &Arc<Store>) -> Result<()> {
    let _ending = store.past.ending.lock();
    if !store.past.may_have_unended.load(Ordering::Acquire) {
        return Ok(());
    }
    for shard in 0..HISTORY_SHARDS {
        let mut after = None;
        loop {
            let (rows, next) = store.past.rows_without_keys(&store.meta, shard, after, ROWS)?;
            let mut leaving = Vec::new();
            for row in rows {
                if let Some((no, version)) = &row.version {
                    end_state(store, *no, version)?;
                }
                if row.name.as_ref().map_or(Ok(false), |name| means_still(store, name))? {
                    leaving.push(LeavingRow { row, version_goes: false, name_goes: true });
                }
            }
            give_up_rows(store, &leaving)?;
            match next {
                Some(last) => after = Some(last),
                None => break,
            }
        }
    }
    store.past.may_have_unended.store(false, Ordering::Release);
    Ok(())
}

/// If an inode in use is the state of a version, it begins where that ends. False if it is not.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn end_state(store: &Arc<Store>, no: InodeNo, version: &Version) -> Result<bool> {
    let Some(cell) = store.cell_if_used(no)? else { return Ok(false) };
    let is_it = |state: &InodeState| {
        let born = state.inode.born;
        let is_same = cell.incarnation == version.inode.incarnation && born == version.inode.born;
        !state.gone && is_same && born < version.end
    };
    if !is_it(&cell.state.read()) {
        return Ok(false);
    }
    let reserved = store.reserve_freely(store.near(no), 0)?;
    let mut state = cell.state.write();
    if !is_it(&state) {
        return Ok(false);
    }
    state.inode.born = version.end;
    state.ask_recorded_anew();
    let mut op = store.meta.begin(reserved);
    let born = store_inode(&mut op, &cell, &state);
    op.reborn(no, born);
    Ok(true)
}

fn means_still(store: &Arc<Store>, name: &PastEntry) -> Result<bool> {
    let Some(cell) = store.cell_if_used(name.directory)? else { return Ok(false) };
    let state = cell.state.read();
    if !state.inode.is_directory() {
        return Ok(false);
    }
    let mut still = false;
    dir::list(store, &state, cell.no, name.cookie.saturating_sub(1), &mut |cookie, entry| {
        let is_it = (entry.inode, entry.incarnation) == (name.inode, name.incarnation);
        // If the file is being expunged, the row begins with that, and the entry may not be detached yet.
        let began = store.past.expunging.began(entry.inode, entry.incarnation, entry.birth);
        still = cookie == name.cookie && is_it && began == name.birth && began < name.death;
        Ok(false)
    })?;
    Ok(still)
}
