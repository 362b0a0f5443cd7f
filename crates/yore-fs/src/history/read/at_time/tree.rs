//! The tree as of an event: what inodes and names were.

use crate::history::record::PastEntry;
use crate::store::Store;
use crate::{dir, file, symlink, xattr, Attr, DirItem, Error, InodeNo, Result};
use std::sync::Arc;
use yore_core::inode::{InodeCell, InodeState};
use yore_format::{Corruption, EventNo, Incarnation, Inode};

/// As of this number everything is as it is now. It lets callers treat the present and the past alike.
pub(crate) const PRESENT: EventNo = EventNo(u64::MAX);

/// Entries copied at a time.
const BATCH: usize = 128;

/// Calls `f` with an inode as of an event, with its state locked for reading, and returns the result. `f` may
/// run twice.
/// # Errors
/// `NotFound` if there was no such inode then; damage and device errors; those of `f`.
pub(crate) fn with<R>(
    store: &Arc<Store>,
    no: InodeNo,
    event: EventNo,
    mut f: impl FnMut(&Arc<InodeCell>, &InodeState) -> Result<R>,
) -> Result<R> {
    if let Some(cell) = store.versions.known(no, event) {
        let state = cell.state.read();
        return f(&cell, &state);
    }
    let in_use = match store.cell_in_memory(no) {
        Some(found) => found,
        None => {
            if let Some(cell) = indexed(store, no, event) {
                let state = cell.state.read();
                return f(&cell, &state);
            }
            store.cell(no)
        }
    };
    match in_use {
        Ok(cell) => {
            let state = cell.state.read();
            if is_as_of(&state, event) {
                return f(&cell, &state);
            }
        }
        Err(Error::Stale) => {}
        Err(e) => return Err(e),
    }
    let cell = store.versions.get(store, &store.past, no, event)?.ok_or(Error::NotFound)?;
    let state = cell.state.read();
    f(&cell, &state)
}

/// The version of an inode that is on the medium alone, if the index says that it was that as of the event.
/// Then the inode in use, which became something else, need not be read.
fn indexed(store: &Store, no: InodeNo, event: EventNo) -> Option<Arc<InodeCell>> {
    let found =
        if event == PRESENT { Ok(None) } else { store.versions.indexed(store, &store.past, no, event) };
    // Where the past is damaged, the inode in use may still be as it was. If not, who looks for its version
    // meets the damage again, and tells of it.
    found.unwrap_or_default()
}

/// Whether an inode in use is still as it was as of the event.
fn is_as_of(state: &InodeState, event: EventNo) -> bool {
    !state.gone && state.inode.links > 0 && state.inode.born <= event
}

/// Runs a longer call on an inode as of an event, without locks. If the inode changed meanwhile, runs it
/// again with the version.
fn during<R>(
    store: &Arc<Store>,
    no: InodeNo,
    event: EventNo,
    mut f: impl FnMut(&Arc<InodeCell>) -> Result<R>,
) -> Result<R> {
    loop {
        let (cell, is_version) = with(store, no, event, |cell, _| Ok((cell.clone(), cell.is_version())))?;
        let result = f(&cell);
        if is_version || is_as_of(&cell.state.read(), event) {
            return result;
        }
    }
}

/// An inode as it was seen.
pub(crate) struct PastInode {
    pub attr: Attr,
    /// The version that it was, unless the inode in use is still so.
    pub version: Option<Arc<InodeCell>>,
}

/// An inode as of an event. Past states have no access times of their own, because nothing can change them
/// any more, and their set-id bits have no effect.
pub(crate) fn inode(store: &Arc<Store>, no: InodeNo, event: EventNo) -> Result<PastInode> {
    with(store, no, event, |cell, state| {
        let attr = state.attr(no);
        let attr = Attr { atime: attr.mtime, permissions: attr.permissions & !0o6000, ..attr };
        Ok(PastInode { attr, version: cell.is_version().then(|| cell.clone()) })
    })
}

/// The attributes of [`inode`].
pub(crate) fn attr(store: &Arc<Store>, no: InodeNo, event: EventNo) -> Result<Attr> {
    inode(store, no, event).map(|inode| inode.attr)
}

/// The directory that an inode was in.
pub(crate) fn parent(store: &Arc<Store>, no: InodeNo, event: EventNo) -> Result<InodeNo> {
    with(store, no, event, |_, state| match state.inode.is_directory() {
        true => Ok(state.inode.parent),
        false => Err(Error::NotADirectory),
    })
}

/// What a name meant in a directory, `.` and `..` included.
pub(crate) fn lookup(
    store: &Arc<Store>,
    directory: InodeNo,
    name: &[u8],
    event: EventNo,
) -> Result<PastInode> {
    if name.len() > yore_format::NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if name == b"." || name == b".." {
        let up = parent(store, directory, event)?;
        return inode(store, if name == b"." { directory } else { up }, event);
    }
    let (no, incarnation) = entry(store, directory, name, event)?.ok_or(Error::NotFound)?;
    let found = inode(store, no, event)?;
    if found.attr.incarnation != incarnation.0 {
        let c = Corruption::new("past name", "incarnation", incarnation, found.attr.incarnation);
        return Err(c.of(directory).into());
    }
    Ok(found)
}

fn check_directory(store: &Arc<Store>, no: InodeNo, event: EventNo) -> Result<()> {
    parent(store, no, event).map(|_| ())
}

/// Looks at the entries in use, and at past names, under one hold of the directory's lock: entries move from
/// one to the other under that lock.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn entry_named(
    store: &Arc<Store>,
    directory: InodeNo,
    name: &[u8],
    event: EventNo,
) -> Result<Option<PastEntry>> {
    let Some(cell) = directory_in_use(store, directory)? else {
        return past_entry(store, directory, name, event);
    };
    let state = cell.state.read();
    if state.check_directory().is_ok() {
        if let Some(found) = live_entry(store, &state, directory, name, event)? {
            return Ok(Some(PastEntry::in_use(directory, found.cookie, &found.entry(name))));
        }
    }
    past_entry(store, directory, name, event)
}

/// The entry in use, if it was there as of the event.
fn live_entry(
    store: &Store,
    state: &InodeState,
    directory: InodeNo,
    name: &[u8],
    event: EventNo,
) -> Result<Option<dir::Found>> {
    let found = dir::find(store, state, directory, name)?.filter(|found| found.birth <= event);
    Ok(found.filter(|found| !store.past.expunging.has(found.inode, found.incarnation, event)))
}

/// The past name, if no entry in use was there as of the event.
fn past_entry(store: &Store, directory: InodeNo, name: &[u8], event: EventNo) -> Result<Option<PastEntry>> {
    let found = store.past.find_name(store, directory, name, event)?;
    Ok(found.filter(|entry| !store.past.expunging.has_entry(entry, event)))
}

/// The inode that a name in a directory meant.
pub(super) fn entry(
    store: &Arc<Store>,
    directory: InodeNo,
    name: &[u8],
    event: EventNo,
) -> Result<Option<(InodeNo, Incarnation)>> {
    let inode_of = |entry: PastEntry| (entry.inode, entry.incarnation);
    // Most directories have not changed since: one look is enough.
    if let Ok(cell) = store.cell(directory) {
        let state = cell.state.read();
        if is_as_of(&state, event) {
            state.check_directory()?;
            return match live_entry(store, &state, directory, name, event)? {
                Some(found) => Ok(Some((found.inode, found.incarnation))),
                None => Ok(past_entry(store, directory, name, event)?.map(inode_of)),
            };
        }
    }
    check_directory(store, directory, event)?;
    Ok(entry_named(store, directory, name, event)?.map(inode_of))
}

/// The inode in use with this number, if it is a directory.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn directory_in_use(store: &Arc<Store>, no: InodeNo) -> Result<Option<Arc<InodeCell>>> {
    Ok(store.cell_if_used(no)?.filter(|cell| cell.state.read().inode.is_directory()))
}

/// Calls `each` with the entries that a directory had after a cookie, `.` and `..` first, until it returns
/// false.
pub(crate) fn readdir(
    store: &Arc<Store>,
    directory: InodeNo,
    cookie: u64,
    event: EventNo,
    each: &mut dyn FnMut(DirItem<'_>) -> bool,
) -> Result<()> {
    // `each` runs without locks.
    let up = store.past.see(event).and_then(|_seeing| parent(store, directory, event))?;
    let Some(mut after) = dir::list_dots(directory, cookie, || Ok(up), each)? else { return Ok(()) };
    let may_miss = store.past.may_miss(&store.meta, event);
    loop {
        let batch = store.past.see(event).and_then(|_seeing| copy_batch(store, directory, after, event))?;
        for entry in &batch {
            if may_miss && is_missing(store, entry, event)? {
                continue;
            }
            let PastEntry { cookie, inode, kind, name, .. } = entry;
            if !each(DirItem { inode: *inode, kind: *kind, name, cookie: *cookie }) {
                return Ok(());
            }
        }
        match batch.last() {
            Some(last) if batch.len() == BATCH => after = last.cookie,
            _ => return Ok(()),
        }
    }
}

/// Whether a name in a directory as of an event leads nowhere: its inode is excluded, and has changed since
/// ([`crate::history::exclude`]).
fn is_missing(store: &Arc<Store>, entry: &PastEntry, event: EventNo) -> Result<bool> {
    let _seeing = store.past.see(event)?;
    match with(store, entry.inode, event, |_, state| Ok(state.inode.incarnation == entry.incarnation)) {
        Ok(is_it) => Ok(!is_it),
        Err(Error::NotFound) => Ok(true),
        Err(e) => Err(e),
    }
}

/// The entries that a directory had, in cookie order, without `.` and `..`, but with those that lead nowhere.
/// The caller keeps the event from becoming invisible.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn entries(store: &Arc<Store>, directory: InodeNo, event: EventNo) -> Result<Vec<PastEntry>> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let batch = copy_batch(store, directory, after, event)?;
        let is_last = batch.len() < BATCH;
        after = batch.last().map_or(after, |last| last.cookie);
        all.extend(batch);
        if is_last {
            return Ok(all);
        }
    }
}

/// The entry in use with a cookie in a directory that is locked; `None` if that is no directory any more.
/// O(log entries).
///
/// # Errors
/// Damage and device errors.
pub(crate) fn entry_in_use(
    store: &Store,
    state: &InodeState,
    directory: InodeNo,
    cookie: u64,
) -> Result<Option<PastEntry>> {
    let (Some(before), mut found) = (cookie.checked_sub(1), None) else { return Ok(None) };
    if state.gone || !state.inode.is_directory() {
        return Ok(None);
    }
    dir::list(store, state, directory, before, &mut |at, entry| {
        found = (at == cookie).then(|| PastEntry::in_use(directory, at, entry));
        Ok(false)
    })?;
    Ok(found)
}

/// What a cookie meant in a directory: the entry in use, which has no death, or a past one. O(log entries).
///
/// # Errors
/// Damage and device errors.
pub(crate) fn entry_at(
    store: &Arc<Store>,
    directory: InodeNo,
    cookie: u64,
    event: EventNo,
) -> Result<Option<PastEntry>> {
    let cell = directory_in_use(store, directory)?;
    let state = cell.as_ref().map(|cell| cell.state.read());
    let found = match state.as_ref().filter(|state| state.check_directory().is_ok()) {
        Some(state) => entry_in_use(store, state, directory, cookie)?.filter(|entry| entry.birth <= event),
        None => None,
    };
    match found {
        Some(found) => Ok(Some(found)),
        None if event == PRESENT => Ok(None),
        None => store.past.name_as_of(&store.meta, directory, cookie, event),
    }
}

/// Where an inode was: the directory and the entry there. `None` if it was not in use, had no name, or had
/// several names and remembers none of them.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn name_of(store: &Arc<Store>, no: InodeNo, event: EventNo) -> Result<Option<PastEntry>> {
    let found = with(store, no, event, |_, state| {
        let inode = &state.inode;
        Ok((inode.parent, inode.parent_cookie, inode.incarnation))
    });
    let (parent, cookie, incarnation) = match found {
        Ok(found) => found,
        Err(Error::NotFound) => return Ok(None),
        Err(e) => return Err(e),
    };
    if parent == InodeNo::NONE {
        return Ok(None);
    }
    let entry = entry_at(store, parent, cookie, event)?;
    // An inode that no event has seen may have been elsewhere then, and no version says so.
    Ok(entry.filter(|entry| (entry.inode, entry.incarnation) == (no, incarnation)))
}

/// Calls `each` with the inodes that an inode number meant in `from..to`, and when, until it returns false:
/// the latest first. The inode in use may become a version meanwhile; then `each` gets it again.
///
/// # Errors
/// Damage and device errors.
pub(crate) fn each_state(
    store: &Arc<Store>,
    no: InodeNo,
    from: EventNo,
    to: EventNo,
    each: &mut dyn FnMut(&Inode, EventNo, EventNo) -> bool,
) -> Result<()> {
    if let Some(cell) = store.cell_if_used(no)? {
        let state = cell.state.read();
        let born = state.inode.born;
        if !state.gone && born < to && !each(&state.inode, born.max(from), to) {
            return Ok(());
        }
    }
    let mut most = to.0;
    while let Some(below) = most.checked_sub(1) {
        let version = store.past.version(&store.meta, no, EventNo(below))?;
        let Some(version) = version.filter(|version| version.end > from) else { break };
        let born = version.inode.born;
        if !each(&version.inode, born.max(from), version.end.min(to)) {
            break;
        }
        most = born.0;
    }
    Ok(())
}

/// The next entries in cookie order, both of those in use and of past names, under one hold of the lock.
fn copy_batch(store: &Arc<Store>, directory: InodeNo, after: u64, event: EventNo) -> Result<Vec<PastEntry>> {
    let mut batch = Vec::new();
    let cell = directory_in_use(store, directory)?;
    let state = cell.as_ref().map(|cell| cell.state.read());
    if let Some(state) = state.as_ref().filter(|state| state.check_directory().is_ok()) {
        dir::list(store, state, directory, after, &mut |cookie, entry| {
            let gone = store.past.expunging.has(entry.inode, entry.incarnation, event);
            if entry.birth <= event && !gone {
                batch.push(PastEntry::in_use(directory, cookie, entry));
            }
            Ok(batch.len() < BATCH)
        })?;
    }
    let in_use = batch.len();
    if event != PRESENT {
        let wanted = |entry: &PastEntry| !store.past.expunging.has_entry(entry, event);
        let past = store.past.names_as_of(&store.meta, (directory, after), event, BATCH, &wanted)?;
        batch.extend(past);
    }
    drop(state);
    debug_assert!(in_use <= BATCH && batch.len() <= in_use + BATCH);
    batch.sort_by_key(|entry| entry.cookie);
    // A crash may have left the row of a name without the end of its entry (docs/EDGES.md): they are one.
    batch.dedup_by_key(|entry| entry.cookie);
    batch.truncate(BATCH);
    Ok(batch)
}

/// Reads a file as it was; returns the number of bytes.
pub(crate) fn read(
    store: &Arc<Store>,
    no: InodeNo,
    event: EventNo,
    offset: u64,
    buf: &mut [u8],
) -> Result<usize> {
    during(store, no, event, |cell| read_from(store, cell, offset, buf))
}

/// Reads from a file's version, or from the inode in use.
pub(crate) fn read_from(store: &Store, cell: &InodeCell, offset: u64, buf: &mut [u8]) -> Result<usize> {
    cell.state.read().check_regular()?;
    file::read(store, cell, offset, buf)
}

/// The next data or hole at or after `offset`, as of the event.
pub(crate) fn seek(
    store: &Arc<Store>,
    no: InodeNo,
    event: EventNo,
    offset: u64,
    to: crate::SeekTo,
) -> Result<u64> {
    during(store, no, event, |cell| {
        cell.state.read().check_regular()?;
        file::seek(store, cell, offset, to)
    })
}

/// A symbolic link's target.
pub(crate) fn readlink(store: &Arc<Store>, no: InodeNo, event: EventNo) -> Result<Vec<u8>> {
    with(store, no, event, |_, state| match state.inode.is_symlink() {
        true => symlink::load(store, state, no),
        false => Err(Error::Invalid { what: "not a symbolic link" }),
    })
}

/// The value of an extended attribute.
pub(crate) fn get_xattr(store: &Arc<Store>, no: InodeNo, event: EventNo, name: &[u8]) -> Result<Vec<u8>> {
    with(store, no, event, |_, state| xattr::get(store, state, no, name))
}

/// The names of all extended attributes.
pub(crate) fn list_xattrs(store: &Arc<Store>, no: InodeNo, event: EventNo) -> Result<Vec<Vec<u8>>> {
    with(store, no, event, |_, state| xattr::list(store, state, no))
}
