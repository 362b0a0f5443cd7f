//! Putting names right that a crash has left half changed, and what inodes say of them: counts of links,
//! where the name is, directories with two names, and inodes with none.

use super::cell_of;
use crate::dir::{self, Lookup};
use crate::file::Room;
use crate::history::exclude;
use crate::history::preserve;
use crate::history::read::at_time::{directory_in_use, entry_in_use};
use crate::history::record::{OldName, PastEntry, Prepared};
use crate::ops::name_at;
use crate::store::Store;
use crate::{Attr, Caller, Error, FileKind, InodeNo, RenameMode, Result, View};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use yore_core::btree::Pins;
use yore_core::inode::{store_inode, InodeCell, InodeState};
use yore_core::orphan;
use yore_format::{DirEntry, Incarnation};
use yore_meta::EdgeKind;

/// Where directories go that have entries and no name, as in a repair.
const LOST_AND_FOUND: &[u8] = b"lost+found";
/// How many blocks an entry of that directory may need before it has to ask for more.
const USUAL_BLOCKS: u32 = 8;
/// How many names are tried that somebody may have taken.
const NAMES_MAX: u32 = 100;

/// Where a name is: the directory, and the cookie there.
type Place = (InodeNo, u64);

impl View {
    /// Lowers the links of an inode by so many more than it has names. `is_remembered`: one of its names is
    /// where the inode says that its name is. False, and nothing is changed, if no link would be left: it has
    /// lost all its names since.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::ReadOnly`]; damage and device errors.
    pub fn lower_links(
        &self,
        inode: InodeNo,
        incarnation: Incarnation,
        by: u32,
        is_remembered: bool,
    ) -> Result<bool> {
        self.writable()?;
        let _passage = self.enter(inode)?;
        self.change(|store| lower_links(store, (inode, incarnation), by, is_remembered))
    }

    /// Notes in an inode of one name that its name is in this directory, under this cookie. False, and
    /// nothing is changed, if it is not there any more.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::ReadOnly`]; damage and device errors.
    pub fn correct_parent(
        &self,
        inode: InodeNo,
        incarnation: Incarnation,
        place: (InodeNo, u64),
    ) -> Result<bool> {
        self.writable()?;
        let _passage = self.enter(inode)?;
        self.change(|store| correct_parent(store, (inode, incarnation), place))
    }

    /// Takes names away from a directory that has several, and keeps one of them. False if the one to keep is
    /// not there any more, or nothing is taken away.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::ReadOnly`]; damage and device errors.
    pub fn end_further_names(
        &self,
        inode: InodeNo,
        incarnation: Incarnation,
        kept: (InodeNo, u64),
        others: &[(InodeNo, u64)],
    ) -> Result<bool> {
        if !self.correct_parent(inode, incarnation, kept)? {
            return Ok(false);
        }
        let mut is_all = !others.is_empty();
        for (directory, cookie) in others {
            let _passage = self.enter(*directory)?;
            let of = (inode, incarnation);
            is_all &= self.change(|store| end_further_name(store, of, kept, (*directory, *cookie)))?;
        }
        Ok(is_all)
    }

    /// What becomes of an inode without a name, that has `links` all the same: it gets back the name that
    /// half an exchange has taken from it; a directory with entries gets one in lost+found; and else it goes.
    /// False, and nothing is changed, if somebody has changed its links.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::ReadOnly`]; damage and device errors.
    pub fn end_unnamed(&self, inode: InodeNo, incarnation: Incarnation, links: u32) -> Result<bool> {
        let store = self.writable()?;
        if let Some(taken) = taken_name(store, inode, incarnation)? {
            return self.give_back(inode, taken);
        }
        let of = (inode, incarnation);
        match ending_of(store, of, links)? {
            Ending::Unknown => return Ok(false),
            Ending::IsKept => return self.rescue(of, links),
            Ending::Goes => {}
        }
        let _passage = self.enter(inode)?;
        let ended = self.change(|store| orphan_unnamed(store, of, links))?;
        if let Some(cell) = &ended {
            store.let_go(cell);
        }
        Ok(ended.is_some())
    }

    /// Gives an inode the name that another one has taken. At each instant it keeps the name that it has by
    /// then.
    fn give_back(&self, inode: InodeNo, (directory, name): (InodeNo, Vec<u8>)) -> Result<bool> {
        for number in 0..NAMES_MAX {
            let between = format!(".exchanged-{inode}-{number}").into_bytes();
            match self.link(inode, directory, &between) {
                Err(Error::Exists) => continue,
                linked => linked?,
            };
            self.rename(directory, &between, directory, &name, RenameMode::Replace)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Gives a directory with entries, which has no name, one in lost+found.
    fn rescue(&self, of: (InodeNo, Incarnation), links: u32) -> Result<bool> {
        let Some(place) = self.lost_and_found()? else { return Ok(false) };
        for number in 0..NAMES_MAX {
            let name = match number {
                0 => format!("#{}", of.0),
                _ => format!("#{}.{number}", of.0),
            };
            let _passage = self.enter(place)?;
            match self.change(|store| enter_unnamed(store, of, links, (place, name.as_bytes()))) {
                Err(Error::Exists) => {}
                entered => return entered,
            }
        }
        Ok(false)
    }

    /// The directory lost+found, which is made if there is none. What somebody else may read or write is left
    /// to him, since names of all users go there: then the directory gets another name, as in a repair.
    fn lost_and_found(&self) -> Result<Option<InodeNo>> {
        let mut name = LOST_AND_FOUND.to_vec();
        for _ in 0..NAMES_MAX {
            let node = match self.lookup(self.root(), &name) {
                Err(Error::NotFound) => self.mkdir(&Caller::superuser(), self.root(), &name, 0o700),
                found => found,
            };
            match node {
                Ok(node) if is_for_lost(node.attr()) => return Ok(Some(node.inode())),
                // Something else has the name, or somebody has just made it.
                Ok(_) => name.push(b'+'),
                Err(Error::Exists) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// Whether this is a directory of root's that nobody else may enter.
fn is_for_lost(attr: &Attr) -> bool {
    attr.kind == FileKind::Directory && attr.uid == 0 && attr.permissions & 0o077 == 0
}

fn lower_links(
    store: &Arc<Store>,
    (inode, incarnation): (InodeNo, Incarnation),
    by: u32,
    is_remembered: bool,
) -> Result<bool> {
    let Some(cell) = cell_of(store, inode, incarnation)? else { return Ok(false) };
    loop {
        let reserved = store.reserve_freely(store.near(inode), 0)?;
        let mut state = cell.state.write();
        let is_directory = state.inode.is_directory();
        let least = if is_directory { 2 } else { 1 };
        if state.gone || state.inode.links < by.saturating_add(least) {
            return Ok(false);
        }
        if preserve::must_preserve(store, &cell, &state)? {
            drop((state, reserved));
            preserve::preserve(store, &cell, Room::Reserve)?;
            continue;
        }
        state.inode.links -= by;
        if !is_directory && !is_remembered {
            // As long as it had several links, nobody minded where it says that its name is.
            name_at(&mut state.inode, InodeNo::NONE, Incarnation(0), 0);
            cell.cover.follow(&state.inode);
        }
        store_inode(&mut store.meta.begin(reserved), &cell, &state);
        return Ok(true);
    }
}

fn correct_parent(
    store: &Arc<Store>,
    of: (InodeNo, Incarnation),
    (directory, cookie): Place,
) -> Result<bool> {
    let (Some(cell), Some(parent)) = (cell_of(store, of.0, of.1)?, directory_in_use(store, directory)?)
    else {
        return Ok(false);
    };
    if of.0 == directory {
        return Ok(false);
    }
    loop {
        let reserved = store.reserve_freely(store.near(of.0), 0)?;
        // As long as this is locked, the entry stays.
        let dir = parent.state.read();
        let entry = entry_in_use(store, &dir, directory, cookie)?;
        if entry.is_none_or(|entry| (entry.inode, entry.incarnation) != of) {
            return Ok(false);
        }
        let mut state = cell.state.write();
        let is_directory = state.inode.is_directory();
        if state.gone || (!is_directory && state.inode.links != 1) {
            return Ok(false);
        }
        let there = (directory, dir.inode.incarnation, cookie);
        if (state.inode.parent, state.inode.parent_incarnation, state.inode.parent_cookie) == there {
            return Ok(true);
        }
        if preserve::must_preserve(store, &cell, &state)? {
            drop((state, dir, reserved));
            preserve::preserve(store, &cell, Room::Reserve)?;
            continue;
        }
        name_at(&mut state.inode, directory, dir.inode.incarnation, cookie);
        cell.cover.follow(&state.inode);
        let mut op = store.meta.begin(reserved);
        store_inode(&mut op, &cell, &state);
        if is_directory {
            store.past.note_moved();
            store.past.note_renamed_directory();
        }
        return Ok(true);
    }
}

/// Takes a name away from a directory that keeps another one, which it remembers.
fn end_further_name(
    store: &Arc<Store>,
    (inode, incarnation): (InodeNo, Incarnation),
    kept: Place,
    (directory, cookie): Place,
) -> Result<bool> {
    let (Some(cell), Some(parent)) =
        (cell_of(store, inode, incarnation)?, directory_in_use(store, directory)?)
    else {
        return Ok(false);
    };
    loop {
        let epoch = store.past.epoch();
        let scope = exclude::scope_of(store, &parent)?;
        let blocks = store.past.blocks_for_names(1);
        let reserved = store.reserve_freely(store.near(directory), blocks)?;
        let mut dir = parent.state.write();
        let Some(entry) = entry_in_use(store, &dir, directory, cookie)? else { return Ok(false) };
        if (entry.inode, entry.incarnation) != (inode, incarnation) {
            return Ok(false);
        }
        let name = entry.name;
        if preserve::must_preserve(store, &parent, &dir)? {
            drop((dir, reserved));
            preserve::preserve(store, &parent, Room::Reserve)?;
            continue;
        }
        let mut pins = Pins::new();
        let Lookup::Taken(found, spot) = dir::lookup_to_change(store, &dir, directory, &name, &mut pins)?
        else {
            return Ok(false);
        };
        let mut state = cell.state.write();
        if found.cookie != cookie || place_of(&state) != Some(kept) {
            return Ok(false);
        }
        let found = found.detach(store);
        let excluded = exclude::excludes_name(store, scope.as_ref(), &name, (&cell, &state.inode))?;
        let cover = store.past.hold_cover(store, &cell, &mut state.inode, excluded)?;
        let entry = found.entry(&name);
        let old_name = OldName { directory: &parent, inode: &dir.inode, cookie, entry, cover, excluded };
        let mut recording = match store.past.prepare(store, store.number(), &[], &[old_name])? {
            Prepared::Ready(recording) => recording,
            Prepared::Again => continue,
            Prepared::NeedNumber => {
                drop((state, dir, reserved));
                store.past.pass_number(store)?;
                continue;
            }
        };
        let Some(mut op) = store.past.begin(&store.meta, reserved, epoch) else { continue };
        op.behind_birth(directory);
        recording.name(&mut op, directory, cookie, found.birth);
        let unstored = dir::remove(&mut op, &mut dir, directory, spot);
        dir.change_content(crate::clock::now());
        // One directory counts it once.
        dir.inode.links -= u32::from(directory != kept.0);
        let counted = store_inode(&mut op, &parent, &dir);
        let gone = unstored.stored(&mut op, counted).counts;
        op.edge(EdgeKind::Uncounted, gone, counted.max(gone));
        op.unnamed(inode, gone);
        store.past.note_renamed_directory();
        return Ok(true);
    }
}

/// What is to become of an inode without a name.
enum Ending {
    /// It is not what the check has met any more.
    Unknown,
    Goes,
    /// It is a directory with entries.
    IsKept,
}

fn ending_of(store: &Arc<Store>, (inode, incarnation): (InodeNo, Incarnation), links: u32) -> Result<Ending> {
    let Some(cell) = cell_of(store, inode, incarnation)? else { return Ok(Ending::Unknown) };
    let state = cell.state.read();
    Ok(match !state.gone && state.inode.links == links {
        false => Ending::Unknown,
        true if state.inode.is_directory() && !dir::is_empty(&state) => Ending::IsKept,
        true => Ending::Goes,
    })
}

/// Gives a directory without a name one in this directory, under this name.
fn enter_unnamed(
    store: &Arc<Store>,
    (inode, incarnation): (InodeNo, Incarnation),
    links: u32,
    (directory, name): (InodeNo, &[u8]),
) -> Result<bool> {
    let Some(cell) = cell_of(store, inode, incarnation)? else { return Ok(false) };
    let parent = store.cell(directory)?;
    if directory == inode {
        return Ok(false);
    }
    let mut blocks = USUAL_BLOCKS;
    loop {
        let epoch = store.past.epoch();
        let reserved = store.reserve_freely(store.near(directory), blocks)?;
        let mut dir = parent.state.write();
        dir.check_directory()?;
        if preserve::must_preserve(store, &parent, &dir)? {
            drop((dir, reserved));
            preserve::preserve(store, &parent, Room::Reserve)?;
            continue;
        }
        let mut pins = Pins::new();
        let (spot, needed) = match dir::lookup_to_change(store, &dir, directory, name, &mut pins)? {
            Lookup::Taken(..) => return Err(Error::Exists),
            Lookup::Free(spot, blocks) => (spot, blocks),
            Lookup::Full => return Err(dir::FULL),
        };
        if dir.inode.links == u32::MAX {
            return Err(Error::TooManyLinks);
        }
        let mut state = cell.state.write();
        if state.gone || state.inode.links != links {
            return Ok(false);
        }
        if needed > blocks {
            blocks = needed;
            continue;
        }
        if preserve::must_preserve(store, &cell, &state)? {
            drop((state, dir, reserved));
            preserve::preserve(store, &cell, Room::Reserve)?;
            continue;
        }
        store.past.hold_cover(store, &cell, &mut state.inode, false)?;
        let (birth, kind) = (store.number(), FileKind::Directory);
        let entry = DirEntry { inode, incarnation, birth, kind, name };
        let Some(mut op) = store.past.begin(&store.meta, reserved, epoch) else { continue };
        op.behind_birth(directory);
        // A directory without a name may have lost its links, too; those of its directories are raised later.
        state.inode.links = links.max(2);
        name_at(&mut state.inode, directory, dir.inode.incarnation, spot.cookie());
        cell.cover.follow(&state.inode);
        cell.unlinked.store(false, Ordering::Release);
        let stored = store_inode(&mut op, &cell, &state);
        dir.inode.links += 1;
        let counted = store_inode(&mut op, &parent, &dir);
        let unstored = dir::insert(&mut op, store, &mut dir, directory, spot, &entry);
        dir.change_content(crate::clock::now());
        let parent_stored = store_inode(&mut op, &parent, &dir);
        let entered = unstored.stored(&mut op, parent_stored);
        op.edge(EdgeKind::Named, stored, entered.change);
        op.edge(EdgeKind::Counted, counted, entered.change);
        op.all_before(EdgeKind::Named, inode.addr(), entered.change);
        op.named(inode, directory, entered.counts);
        store.past.note_moved();
        store.past.note_renamed_directory();
        return Ok(true);
    }
}

/// Where a name is of which an exchange has made another inode's: directory and name. That is the place
/// where the inode says that its name is, if the entry there means an inode that has a name elsewhere, at the
/// place where it says so.
fn taken_name(
    store: &Arc<Store>,
    inode: InodeNo,
    incarnation: Incarnation,
) -> Result<Option<(InodeNo, Vec<u8>)>> {
    let Some(cell) = cell_of(store, inode, incarnation)? else { return Ok(None) };
    let Some((directory, cookie)) = place_of(&cell.state.read()) else { return Ok(None) };
    let Some(entry) = entry_at(store, (directory, cookie))? else { return Ok(None) };
    let Some(other) = cell_of(store, entry.inode, entry.incarnation)? else { return Ok(None) };
    let (place, links) = {
        let state = other.state.read();
        (place_of(&state), state.inode.links)
    };
    let Some(place) = place.filter(|place| *place != (directory, cookie) && links > 1) else {
        return Ok(None);
    };
    let is_there = entry_at(store, place)?.is_some_and(|of| of.inode == other.no);
    Ok((other.no != inode && is_there).then_some((directory, entry.name)))
}

/// Where an inode says that its name is.
fn place_of(state: &InodeState) -> Option<Place> {
    let inode = &state.inode;
    (!state.gone && inode.parent != InodeNo::NONE).then_some((inode.parent, inode.parent_cookie))
}

/// The entry with this cookie in a directory in use.
fn entry_at(store: &Arc<Store>, (directory, cookie): Place) -> Result<Option<PastEntry>> {
    let Some(cell) = directory_in_use(store, directory)? else { return Ok(None) };
    let state = cell.state.read();
    entry_in_use(store, &state, directory, cookie)
}

/// Makes an inode without a name an orphan, if it has so many links.
fn orphan_unnamed(
    store: &Arc<Store>,
    (inode, incarnation): (InodeNo, Incarnation),
    links: u32,
) -> Result<Option<Arc<InodeCell>>> {
    let Some(cell) = cell_of(store, inode, incarnation)? else { return Ok(None) };
    let mut blocks = orphan::blocks_to_add(&store.meta);
    loop {
        let reserved = store.reserve_freely(store.near(inode), blocks)?;
        let orphans = store.orphans.lock();
        let mut state = cell.state.write();
        let is_as_found = !state.gone && !state.data.listed && state.inode.links == links;
        if !is_as_found || (state.inode.is_directory() && !dir::is_empty(&state)) {
            return Ok(None);
        }
        if links > 0 && preserve::must_preserve(store, &cell, &state)? {
            drop((state, orphans, reserved));
            preserve::preserve(store, &cell, Room::Reserve)?;
            continue;
        }
        let mut pins = Pins::new();
        let (position, needed) = orphans.prepare_add(&store.meta, inode, &mut pins)?;
        if needed > blocks {
            blocks = needed;
            continue;
        }
        let mut op = store.meta.begin(reserved);
        let listed = orphans.add(&mut op, &store.meta, position, inode, incarnation).counts;
        state.inode.links = 0;
        name_at(&mut state.inode, InodeNo::NONE, Incarnation(0), 0);
        cell.cover.follow(&state.inode);
        cell.unlinked.store(true, Ordering::Release);
        let counted = store_inode(&mut op, &cell, &state);
        op.edge(EdgeKind::Listed, listed, counted);
        drop(op);
        drop(state);
        return Ok(Some(cell));
    }
}
