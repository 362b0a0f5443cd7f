//! Detaching the present: an inode in use, and entries that mean it, become as if they were made now.

use crate::dir::{self, Lookup};
use crate::history::record::{Expunge, ROW_BLOCKS};
use crate::store::Store;
use crate::{Error, InodeNo, Result};
use yore_core::btree::Pins;
use yore_core::inode::{store_inode, InodeCell, InodeState};
use yore_format::{Corruption, DirEntry, EventNo, GroupNo, Incarnation};
use yore_meta::Op;

/// Gives up the history of a file from now on: enters the row, and in the same Op detaches the inode and the
/// name that it remembers. On return nobody sees what was before. Not durable by itself. The volume has had
/// an event. `None` if an event was taken since `next` was the next number: then nothing has changed.
///
/// # Errors
/// `NoSpace`; damage and device errors. Then nothing has changed.
pub(super) fn expunge(
    store: &Store,
    inode: InodeNo,
    incarnation: Incarnation,
    next: Option<EventNo>,
) -> Result<Option<Expunge>> {
    let cell = store.cell_if_used(inode)?.filter(|cell| cell.incarnation == incarnation);
    let Some(file) = enter(store, cell.as_deref(), (inode, incarnation), next)? else { return Ok(None) };
    store.past.hide(|| store.versions.forget_all(file.inode));
    Ok(Some(file))
}

fn enter(
    store: &Store,
    cell: Option<&InodeCell>,
    (inode, incarnation): (InodeNo, Incarnation),
    next: Option<EventNo>,
) -> Result<Option<Expunge>> {
    let meta = &store.meta;
    // From here on no event is taken.
    let mut entering = store.past.enter_expunges();
    if next.is_some_and(|next| next != meta.number()) {
        return Ok(None);
    }
    loop {
        // The directory is locked first, and the inode may move to another one until then.
        let above = || cell.map(|cell| cell.state.read().inode.parent).filter(|no| *no != InodeNo::NONE);
        let no = above();
        let parent = match no.map(|no| store.cell(no)).transpose() {
            Err(Error::Stale) if above() != no => continue,
            parent => parent?,
        };
        let reserved = store.reserve_freely(GroupNo(0), ROW_BLOCKS)?;
        let mut pins = Pins::new();
        let mut dir = parent.as_ref().map(|parent| parent.state.write());
        let mut state = cell.map(|cell| cell.state.write());
        let now = state.as_ref().map(|state| state.inode.parent).filter(|no| *no != InodeNo::NONE);
        if now != no {
            continue;
        }
        let row = entering.prepare(meta, inode, incarnation)?;
        let file = row.file();
        let entry = match (&parent, &dir, &state) {
            (Some(parent), Some(dir), Some(state)) => {
                Entry::prepare(store, parent, dir, state.inode.parent_cookie, file, &mut pins)?
            }
            _ => None,
        };
        let mut op = meta.begin(reserved);
        entering.apply(&mut op, row);
        if let (Some(entry), Some(parent), Some(dir)) = (entry, &parent, &mut dir) {
            entry.apply(&mut op, parent, dir);
        }
        if let (Some(cell), Some(state)) = (cell, &mut state) {
            // For an inode without a name no new past begins.
            if !state.gone && state.inode.links > 0 && state.inode.born < file.number {
                state.inode.born = file.number;
                store_inode(&mut op, cell, state);
            }
        }
        return Ok(Some(file));
    }
}

/// An entry in use, ready to get the birth of a file's row.
struct Entry {
    name: Vec<u8>,
    found: dir::Found,
    spot: dir::Spot,
    file: Expunge,
}

impl Entry {
    /// The entry at a cookie of a directory whose state is locked for writing, if the entry is older than the
    /// row and means the file.
    fn prepare(
        store: &Store,
        directory: &InodeCell,
        state: &InodeState,
        cookie: u64,
        file: Expunge,
        pins: &mut Pins,
    ) -> Result<Option<Entry>> {
        let Some(before) = cookie.checked_sub(1).filter(|_| state.check_directory().is_ok()) else {
            return Ok(None);
        };
        let mut name = None;
        dir::list(store, state, directory.no, before, &mut |at, entry| {
            let is_it = at == cookie && file.takes(entry.inode, entry.incarnation, entry.birth);
            name = is_it.then(|| entry.name.to_vec());
            Ok(false)
        })?;
        let Some(name) = name else { return Ok(None) };
        match dir::lookup_to_change(store, state, directory.no, &name, pins)? {
            Lookup::Taken(found, spot) if found.cookie == cookie => {
                Ok(Some(Entry { name, found, spot, file }))
            }
            // Damage: one name under two cookies.
            _ => {
                let shown = String::from_utf8_lossy(&name).into_owned();
                Err(Corruption::new("directory", "entry", "one of each name", shown).of(directory.no).into())
            }
        }
    }

    /// Called inside an Op.
    fn apply(self, op: &mut Op<'_>, directory: &InodeCell, state: &mut InodeState) {
        let entry = DirEntry { birth: self.file.number, ..self.found.entry(&self.name) };
        let unstored = dir::repoint(op, state, directory.no, self.spot, &entry);
        let stored = store_inode(op, directory, state);
        unstored.stored(op, stored);
    }
}

/// Gives the entry at a cookie the birth of the file's row, if it means the file and is older than the row.
///
/// # Errors
/// Damage and device errors.
pub(super) fn detach_entry(store: &Store, directory: &InodeCell, cookie: u64, file: Expunge) -> Result<()> {
    let reserved = store.reserve_freely(store.near(directory.no), 0)?;
    let mut pins = Pins::new();
    let mut state = directory.state.write();
    if let Some(entry) = Entry::prepare(store, directory, &state, cookie, file, &mut pins)? {
        entry.apply(&mut store.meta.begin(reserved), directory, &mut state);
    }
    Ok(())
}
