//! When versions of an inode are made, according to the policies upwards ([`crate::history::policy`]).

use crate::history::exclude;
use crate::store::Store;
use crate::{InodeNo, Result};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;
use yore_core::inode::{InodeCell, DEPTH_MAX};
use yore_core::memo::{Epochs, Ruled};
use yore_format::{Corruption, Inode, Policy, Versioning};

/// Called with an inode on the way upwards, and the policy of its own.
pub(crate) type Each<'e> = dyn FnMut(&Arc<InodeCell>, Option<Policy>) -> Result<bool> + 'e;

/// Calls `each` with an inode and the directories above it, each with its own policy, until it returns false.
pub(crate) fn upwards(store: &Store, cell: &Arc<InodeCell>, each: &mut Each<'_>) -> Result<()> {
    let mut at = cell.clone();
    for _ in 0..DEPTH_MAX {
        let own = match at.cover.has_policy.load(Ordering::Relaxed) {
            true => store.past.policy(&store.meta, at.no, at.incarnation)?,
            false => None,
        };
        if !each(&at, own)? || at.no == InodeNo::ROOT {
            return Ok(());
        }
        let up = match InodeNo(at.cover.parent.load(Ordering::Relaxed)) {
            InodeNo::NONE => InodeNo::ROOT,
            up => up,
        };
        at = match store.cell_if_used(up)? {
            Some(up) => up,
            // It was removed meanwhile.
            None => store.cell(InodeNo::ROOT)?,
        };
    }
    Err(Corruption::new("directory", "parent", "a way to the root", "a circle").of(cell.no).into())
}

/// When versions of an inode are made. O(1) unless a policy was changed, an event of a directory was taken or
/// a directory was moved; then O(depth · log policies). The inode's state may be locked.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn versioning(store: &Store, cell: &Arc<InodeCell>) -> Result<Ruled> {
    let mut ruled = Ruled::default();
    if !store.past.has_policies() {
        return Ok(ruled);
    }
    let epochs: Epochs = (store.past.policy_epoch(), store.past.epoch());
    let known = |cell: &InodeCell| match *cell.cover.versioning.lock() {
        Some((as_of, ruled)) if as_of == epochs => Some(ruled),
        _ => None,
    };
    let mut path = Vec::new();
    upwards(store, cell, &mut |at, own| {
        if let Some(known) = known(at) {
            ruled = Ruled { at_close: ruled.at_close || known.at_close, ..known };
            return Ok(false);
        }
        // Inodes above one that says "at each close" have other rules.
        if !ruled.at_close {
            path.push(at.clone());
        }
        match own.and_then(|own| own.versioning) {
            None => return Ok(true),
            Some(Versioning::Close) => {
                ruled.at_close = true;
                return Ok(true);
            }
            Some(Versioning::Snapshots) => {}
            Some(Versioning::Interval(nanos)) => ruled.interval = Some((at.no, nanos)),
        }
        Ok(false)
    })?;
    for cell in path {
        *cell.cover.versioning.lock() = Some((epochs, ruled));
    }
    Ok(ruled)
}

/// Whose interval waits for the first change of an inode since its last event, and how long it is; `None` if
/// no interval does. The inode's state may be locked.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn interval_of(
    store: &Store,
    cell: &Arc<InodeCell>,
    inode: &Inode,
) -> Result<Option<(InodeNo, Duration)>> {
    if !store.past.has_policies() || exclude::known(store, cell, inode) == Some(true) {
        return Ok(None);
    }
    let interval = versioning(store, cell)?.interval;
    Ok(interval.map(|(by, nanos)| (by, Duration::from_nanos(nanos))))
}

/// A change was made that an interval waits for.
pub(crate) fn note_changed(store: &Store, (no, interval): (InodeNo, Duration)) {
    if store.due.note(no, interval) {
        store.wake();
    }
}
