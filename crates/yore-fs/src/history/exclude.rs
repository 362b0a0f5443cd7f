//! What policies exclude: files of which intervals and closes make no versions.
//!
//! **Who.** The nearest policy upwards that says `exclude` decides. Its patterns are those of gitignore(5),
//! for paths from its directory: whatever is below an excluded directory is excluded, and no pattern takes
//! that back. A file's own policy counts for that file, and can only say that nothing is excluded. An inode
//! whose own policy says something about `exclude` is not excluded; nor is a file of several names, because
//! no single directory decides about it.
//!
//! **E1 Never something else.** The state of an inode in use has been the same since it was *born*. Whatever
//! changes an inode that an event covers gives it a new birth, excluded or not. If the inode is excluded, no
//! version is kept for the events that policies took of a directory above ([`spares`]). So as of such an
//! event an excluded inode is exactly what it was until something changes it; after that, there is nothing.
//!
//! **E2 What was promised stays.** Events that somebody asked for cover excluded files like all others. So do
//! the events that policies took before the file was excluded: the row of a policy says since when its
//! patterns exclude (`excluding_since`), and that number moves forward when a directory that was not excluded
//! is moved below the policy's directory ([`before_move`]). A file that is renamed keeps the version before
//! the rename, under its old name.
//!
//! **E3 Data after birth.** Blocks of which no version is kept are overwritten in place. Before that, the new
//! birth of the inode must be durable ([`crate::history::record::Past::settle_renewed`]): otherwise, after a
//! crash in between, old metadata would show new data in the past.
//!
//! **Names.** The name of an excluded file is kept exactly when its versions are. So a past name, or one in
//! use, may lead to an inode that has no state as of a policy's event. Then nothing was there, and listings
//! leave the name out.
//!
//! **Looking.** Whether an inode is excluded depends on all names upwards. Each directory in memory remembers
//! its scope, and each file whether it is excluded, until patterns change or a directory is renamed. To find
//! it out, the search locks one directory after the other. A caller that holds a lock that comes after those
//! of directories only tries these locks, and takes an inode it cannot decide about for not excluded: that
//! keeps too much, never too little.

use crate::store::Store;
use crate::{dir, InodeNo, Result};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use yore_core::inode::{InodeCell, DEPTH_MAX};
use yore_core::memo::{ExclusionScope, Known as Excluded};
use yore_format::{Inode, Policy};

/// Whether the search waits for the locks of directories.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Yes,
    /// The thread holds locks that come later in the lock order.
    No,
}

/// The name of an inode in the directory above, by the cookie in its cell. `None` if the inode has another
/// name by now, or if the name cannot be found out.
fn name_in(store: &Store, above: &InodeCell, cell: &InodeCell, wait: Wait) -> Result<Option<Vec<u8>>> {
    let cookie = cell.cover.excluded.cookie();
    let state = match wait {
        Wait::Yes => Some(above.state.read()),
        Wait::No => above.state.try_read(),
    };
    let Some((state, before)) = state.zip(cookie.checked_sub(1)) else { return Ok(None) };
    if state.check_directory().is_err() {
        return Ok(None);
    }
    let mut name = None;
    dir::list(store, &state, above.no, before, &mut |at, entry| {
        let is_it = (at, entry.inode, entry.incarnation) == (cookie, cell.no, cell.incarnation);
        name = is_it.then(|| entry.name.to_vec());
        Ok(false)
    })?;
    Ok(name)
}

/// The directory above; `None` if there is none, or if it is not known.
fn above(store: &Store, cell: &InodeCell) -> Result<Option<Arc<InodeCell>>> {
    let up = InodeNo(cell.cover.parent.load(Ordering::Relaxed));
    if up == InodeNo::NONE || up == cell.no {
        return Ok(None);
    }
    store.cell_if_used(up)
}

/// The scope of a directory; `None` if it cannot be found out. O(1), or O(depth) after a directory was
/// renamed or patterns changed.
fn scope_in(store: &Store, directory: &Arc<InodeCell>, wait: Wait) -> Result<Option<Arc<ExclusionScope>>> {
    let epoch = store.past.exclusion_epoch();
    let (mut path, mut at) = (Vec::new(), directory.clone());
    let mut found = loop {
        if let Some(Excluded::Directory(scope)) = at.cover.excluded.get(epoch) {
            break scope;
        }
        let followed = at.cover.excluded.followed();
        if let Some(patterns) = store.past.patterns(&store.meta, &at)? {
            let scope = Arc::new(ExclusionScope::deciding(at.no, patterns));
            at.cover.excluded.set(epoch, followed, Excluded::Directory(scope.clone()));
            break scope;
        }
        if at.no == InodeNo::ROOT {
            break Arc::new(ExclusionScope::undecided());
        }
        let Some(up) = above(store, &at)?.filter(|_| path.len() < DEPTH_MAX) else { return Ok(None) };
        let Some(name) = name_in(store, &up, &at, wait)? else { return Ok(None) };
        path.push((at, followed, name));
        at = up;
    };
    for (cell, followed, name) in path.iter().rev() {
        found = Arc::new(found.of_directory(name));
        cell.cover.excluded.set(epoch, *followed, Excluded::Directory(found.clone()));
    }
    Ok(Some(found))
}

/// Finds out whether the name of an inode is excluded; `None` if that is impossible.
fn find_out(store: &Store, cell: &Arc<InodeCell>, is_directory: bool, wait: Wait) -> Result<Option<bool>> {
    let epoch = store.past.exclusion_epoch();
    if let Some(known) = cell.cover.excluded.get(epoch) {
        return Ok(Some(known.excluded()));
    }
    if is_directory {
        return Ok(scope_in(store, cell, wait)?.map(|scope| scope.excluded));
    }
    let followed = cell.cover.excluded.followed();
    let excluded = match store.past.patterns(&store.meta, cell)? {
        Some(_) => false,
        None => {
            let Some(up) = above(store, cell)? else { return Ok(None) };
            let Some(scope) = scope_in(store, &up, wait)? else { return Ok(None) };
            match scope.decided_by() {
                None => false,
                Some(_) => match name_in(store, &up, cell, wait)? {
                    Some(name) => scope.excludes(&name, false),
                    None => return Ok(None),
                },
            }
        }
    };
    cell.cover.excluded.set(epoch, followed, Excluded::Other(excluded));
    Ok(Some(excluded))
}

/// Whether a policy decides about an inode by its name: it has exactly one name, and that is known.
fn is_excludable(inode: &Inode) -> bool {
    inode.is_directory() || (inode.links == 1 && inode.parent != InodeNo::NONE)
}

/// Whether an inode is excluded. The caller holds no lock of an inode.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn is_excluded(store: &Store, cell: &Arc<InodeCell>) -> Result<bool> {
    if !store.past.has_exclusions() {
        return Ok(false);
    }
    let (is_excludable, is_directory) = {
        let state = cell.state.read();
        (!state.gone && is_excludable(&state.inode), state.inode.is_directory())
    };
    Ok(is_excludable && find_out(store, cell, is_directory, Wait::Yes)?.unwrap_or(false))
}

/// Finds out whether an inode is excluded, before the caller locks it. The caller holds no lock of an inode.
///
/// # Errors
/// As [`is_excluded`].
pub(crate) fn warm(store: &Store, cell: &Arc<InodeCell>) -> Result<()> {
    is_excluded(store, cell).map(drop)
}

/// What memory knows of an inode whose state is locked, without a look at other inodes; `None`: nothing.
pub(crate) fn known(store: &Store, cell: &InodeCell, inode: &Inode) -> Option<bool> {
    if !store.past.has_exclusions() || !is_excludable(inode) {
        return Some(false);
    }
    cell.cover.excluded.get(store.past.exclusion_epoch()).map(|known| known.excluded())
}

/// Whether an inode that an event covers is excluded, and no event that also sees excluded files covers its
/// present state. Then the inode gets a new birth without a version. The caller may hold the locks of its
/// state and its io.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn spares(store: &Store, cell: &Arc<InodeCell>, inode: &Inode) -> Result<bool> {
    if !store.past.has_exclusions() || !is_excludable(inode) {
        return Ok(false);
    }
    if inode.born <= store.past.cover_asked(store, cell, inode)? {
        return Ok(false);
    }
    Ok(find_out(store, cell, inode.is_directory(), Wait::No)?.unwrap_or(false))
}

/// The scope of a directory whose names are about to change. `None` if nothing is excluded, or if the scope
/// is not known. The caller holds no lock of an inode.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn scope_of(store: &Store, directory: &Arc<InodeCell>) -> Result<Option<Arc<ExclusionScope>>> {
    match store.past.has_exclusions() {
        true => scope_in(store, directory, Wait::Yes),
        false => Ok(None),
    }
}

/// Whether a name that is about to go is excluded. The state of its inode is locked.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn excludes_name(
    store: &Store,
    scope: Option<&Arc<ExclusionScope>>,
    name: &[u8],
    (cell, inode): (&InodeCell, &Inode),
) -> Result<bool> {
    let Some(scope) = scope.filter(|_| inode.is_directory() || inode.links == 1) else { return Ok(false) };
    Ok(scope.excludes(name, inode.is_directory()) && store.past.patterns(&store.meta, cell)?.is_none())
}

/// Before a directory moves to another place: if it was not excluded, a policy at the new place may exclude
/// what is below it from then on. If no event comes between this call and the move, all earlier events still
/// count for it (E2). The caller holds no lock of an inode.
///
/// # Errors
/// `NoSpace`; damage and device errors.
pub(crate) fn before_move(
    store: &Store,
    cell: &Arc<InodeCell>,
    to: Option<&Arc<ExclusionScope>>,
) -> Result<()> {
    let Some(by) = to.and_then(|scope| scope.decided_by()) else { return Ok(()) };
    if is_excluded(store, cell)? || store.past.patterns(&store.meta, cell)?.is_some() {
        return Ok(());
    }
    match store.cell_if_used(by)? {
        Some(by) => store.past.exclude_anew(store, &by),
        None => Ok(()),
    }
}

/// Before an inode gets another policy: if the new one says nothing any more about `exclude`, the next policy
/// upwards decides. As [`before_move`].
///
/// # Errors
/// As [`before_move`].
pub(crate) fn before_change_of(store: &Store, cell: &Arc<InodeCell>, policy: &Policy) -> Result<()> {
    let says_nothing = policy.exclude.is_none() && cell.no != InodeNo::ROOT;
    if !says_nothing || !store.past.has_exclusions() || store.past.patterns(&store.meta, cell)?.is_none() {
        return Ok(());
    }
    let Some(up) = above(store, cell)? else { return Ok(()) };
    let by = scope_in(store, &up, Wait::Yes)?.and_then(|scope| scope.decided_by());
    match by.map(|by| store.cell_if_used(by)).transpose()?.flatten() {
        Some(by) => store.past.exclude_anew(store, &by),
        None => Ok(()),
    }
}
