//! Looking up and listing.

use super::in_use::InUse;
use crate::store::Store;
use crate::{dir, DirItem, Error, FileKind, InodeNo, Result};
use std::sync::Arc;
use yore_core::inode::InodeCell;
use yore_format::{Incarnation, InodeFlags, NAME_MAX};

/// The inode that `name` means in a directory; `.` and `..` are names, too.
pub(crate) fn lookup(store: &Arc<Store>, directory: InodeNo, name: &[u8]) -> Result<InUse> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    let parent = store.cell(directory)?;
    let dir_state = parent.state.read();
    dir_state.check_directory()?;
    if name == b"." || name == b".." {
        let no = if name == b"." { directory } else { dir_state.inode.parent };
        drop(dir_state);
        let cell = store.cell(no)?;
        let attr = cell.state.read().attr(no);
        return Ok(InUse::new(store, cell, attr));
    }
    let found = dir::find(store, &dir_state, directory, name)?.ok_or(Error::NotFound)?;
    // While the directory is locked the entry keeps its inode alive; from then on our node does.
    let cell = store.inodes.get_entry(&store.meta, found.inode, found.incarnation)?;
    cell.add_node();
    drop(dir_state);
    let attr = cell.state.read().attr(found.inode);
    Ok(InUse { store: store.clone(), cell, attr })
}

/// What a listing copies while the directory is locked, so that callbacks run without locks.
struct Copied {
    inode: InodeNo,
    incarnation: Incarnation,
    kind: FileKind,
    name: Vec<u8>,
    cookie: u64,
}

/// How many entries are copied at a time.
const BATCH: usize = 128;

/// Calls `each` for the entries after `cookie` until it returns false; with `nodes` also with each entry's
/// node. Entries that exist all the time are seen exactly once. No lock is held while `each` runs.
pub(crate) fn readdir(
    store: &Arc<Store>,
    directory: InodeNo,
    cookie: u64,
    nodes: bool,
    each: &mut dyn FnMut(DirItem<'_>, Option<InUse>) -> bool,
) -> Result<()> {
    let parent = store.cell(directory)?;
    let up = || {
        let state = parent.state.read();
        state.check_directory().map(|()| state.inode.parent)
    };
    let dots = dir::list_dots(directory, cookie, up, &mut |item| each(item, None))?;
    let Some(mut after) = dots else { return Ok(()) };
    loop {
        let batch = copy_batch(store, &parent, directory, after)?;
        for entry in &batch {
            let node = if nodes { node_of(store, &parent, entry)? } else { None };
            if nodes && node.is_none() {
                continue; // Removed since it was copied.
            }
            let item =
                DirItem { inode: entry.inode, kind: entry.kind, name: &entry.name, cookie: entry.cookie };
            if !each(item, node) {
                return Ok(());
            }
        }
        match batch.last() {
            Some(last) if batch.len() == BATCH => after = last.cookie,
            _ => break,
        }
    }
    age_access_time(store, &parent);
    Ok(())
}

fn copy_batch(store: &Store, parent: &InodeCell, no: InodeNo, after: u64) -> Result<Vec<Copied>> {
    let state = parent.state.read();
    match state.check_directory() {
        Err(Error::NotFound) => return Ok(Vec::new()), // Removed while it is open: it is empty.
        other => other?,
    }
    let mut batch = Vec::new();
    dir::list(store, &state, no, after, &mut |cookie, entry| {
        batch.push(Copied {
            inode: entry.inode,
            incarnation: entry.incarnation,
            kind: entry.kind,
            name: entry.name.to_vec(),
            cookie,
        });
        Ok(batch.len() < BATCH)
    })?;
    Ok(batch)
}

/// The node of a copied entry, if the name still means the same inode.
fn node_of(store: &Arc<Store>, parent: &InodeCell, entry: &Copied) -> Result<Option<InUse>> {
    let state = parent.state.read();
    if state.gone || !state.inode.is_directory() {
        return Ok(None);
    }
    match dir::find(store, &state, parent.no, &entry.name)? {
        Some(f) if f.inode == entry.inode && f.incarnation == entry.incarnation => {}
        _ => return Ok(None),
    }
    let cell = store.inodes.get_entry(&store.meta, entry.inode, entry.incarnation)?;
    cell.add_node();
    drop(state);
    let attr = cell.state.read().attr(entry.inode);
    Ok(Some(InUse { store: store.clone(), cell, attr }))
}

/// Notes an access as `relatime` does: if the last one was not after the last change, or is a day old.
pub(crate) fn age_access_time(store: &Arc<Store>, cell: &Arc<InodeCell>) {
    if !store.access_times {
        return;
    }
    let now = crate::clock::now();
    let stale = {
        let s = cell.state.read();
        let i = &s.inode;
        let is_kept = !i.flags.contains(InodeFlags::NO_ACCESS_TIMES);
        let is_old = now.seconds.saturating_sub(i.atime.seconds) > 86_400;
        is_kept && (i.atime <= i.mtime || i.atime <= i.ctime || is_old)
    };
    if stale {
        let mut s = cell.state.write();
        s.inode.atime = now;
        if !s.dirty && !s.gone {
            s.dirty = true;
            drop(s);
            store.note_aged(cell);
        }
    }
}
