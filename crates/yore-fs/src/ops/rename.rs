//! Renaming: a name moves, replacing another or changing places with it, in one Op (rule 13).
//!
//! Renames between directories hold the store's rename lock, so the tree's shape stays still while ancestors
//! are compared and the two directories are locked in the tree's order. A rename that replaces a file first
//! writes the data of the file that takes its place: after a crash the name has its old or its new contents,
//! never an empty stretch where data was written before the rename (rule 12).

use super::create::name_at;
use super::names::check_name;
use super::protected::{check_changeable, check_takes_names};
use super::remove::{fate_of, lose_name, prepare_fate};
use crate::core::btree::Pins;
use crate::core::inode::{store_inode, InodeCell, InodeState, DEPTH_MAX};
use crate::core::locks::Writing;
use crate::core::memo::Place;
use crate::dir::{self, Found, Looked, Spot};
use crate::file::Room;
use crate::history::exclude;
use crate::history::preserve::{self, Before};
use crate::history::record::{Keep, OldName, OldVersion};
use crate::history::versioning;
use crate::store::Store;
use crate::{file, Error, InodeNo, RenameMode, Result};
use std::sync::Arc;
use yore_format::{Corruption, DirEntry, EventNo, Incarnation, Inode};
use yore_meta::Reserved;

const USUAL_BLOCKS: u32 = 10;
/// Blocks that listing a replaced inode as an orphan may need.
const ORPHAN_BLOCKS: u32 = 4;

/// One or two locked directories.
enum Dirs<'a> {
    Same(Writing<'a, InodeState>),
    Two { from: Writing<'a, InodeState>, to: Writing<'a, InodeState> },
}

impl Dirs<'_> {
    fn from(&mut self) -> &mut InodeState {
        match self {
            Dirs::Same(s) => s,
            Dirs::Two { from, .. } => from,
        }
    }

    fn to(&mut self) -> &mut InodeState {
        match self {
            Dirs::Same(s) => s,
            Dirs::Two { to, .. } => to,
        }
    }
}

struct Rename<'a> {
    store: &'a Arc<Store>,
    from: Arc<InodeCell>,
    name: &'a [u8],
    to: Arc<InodeCell>,
    new_name: &'a [u8],
    mode: RenameMode,
    /// For two directories: each with all that is above it, as of taking the rename lock, which keeps them
    /// so. Walked before anything is locked: a walk upwards with a directory locked would wait for a parent
    /// with its child in hand.
    above_from: Vec<InodeNo>,
    above_to: Vec<InodeNo>,
    /// What decides who is excluded in both.
    place_from: Option<Arc<Place>>,
    place_to: Option<Arc<Place>>,
    /// The directories whose move is prepared ([`exclude::before_move`]).
    moving: Vec<InodeNo>,
}

/// The directory and all that is above it. With the rename lock held, and no inode.
fn ancestry(store: &Arc<Store>, of: InodeNo) -> Result<Vec<InodeNo>> {
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

/// Renames.
pub(crate) fn rename(
    store: &Arc<Store>,
    from: InodeNo,
    name: &[u8],
    to: InodeNo,
    new_name: &[u8],
    mode: RenameMode,
) -> Result<()> {
    store.check_writable()?;
    for name in [name, new_name] {
        match check_name(name) {
            Err(Error::Exists) => return Err(Error::Invalid { what: "`.` and `..` cannot be renamed" }),
            other => other?,
        }
    }
    let mut r = Rename {
        store,
        from: store.cell(from)?,
        name,
        to: store.cell(to)?,
        new_name,
        mode,
        above_from: Vec::new(),
        above_to: Vec::new(),
        place_from: None,
        place_to: None,
        moving: Vec::new(),
    };
    // What is no directory must not be locked as one: its lock comes later in the order.
    for parent in [&r.from, &r.to] {
        parent.state.read().check_directory()?;
    }
    let mut settled = None;
    loop {
        match r.in_shape(settled)? {
            Outcome::Done(replaced) => {
                if let Some(cell) = replaced {
                    store.let_go(&cell);
                }
                return Ok(());
            }
            // Without any lock: the device takes its time.
            Outcome::NeedFlush(cell) => {
                file::flush_file(&**store, &cell)?;
                // Also where it went in place: the record with the name must not be there before it.
                store.meta.note_data_written_first();
                settled = Some(cell.no);
            }
            Outcome::NeedPreserve(cell) => preserve::preserve(store, &cell, Room::Reserve)?,
            Outcome::Again => {}
            Outcome::NeedOrphans | Outcome::NeedBlocks(_) => unreachable!("seen to by in_shape"),
        }
    }
}

/// What an attempt has.
#[derive(Clone, Copy)]
struct With {
    /// The lock of the orphans.
    orphans: bool,
    /// Room for keeping versions.
    versions: bool,
}

enum Outcome {
    /// Done; the inode that lost its name, if any.
    Done(Option<Arc<InodeCell>>),
    NeedOrphans,
    NeedBlocks(u32),
    /// This file replaces another, and its data is to be written first.
    NeedFlush(Arc<InodeCell>),
    /// An event has seen this inode as it is: its version is to be kept first.
    NeedPreserve(Arc<InodeCell>),
    /// There was an event.
    Again,
}

impl Rename<'_> {
    fn same_dir(&self) -> bool {
        self.from.no == self.to.no
    }

    /// With the tree's shape kept still, if two directories are concerned. `settled` is the inode whose data
    /// was written.
    fn in_shape(&mut self, settled: Option<InodeNo>) -> Result<Outcome> {
        let store = self.store;
        let _shape = (!self.same_dir()).then(|| store.rename.lock());
        if !self.same_dir() {
            self.above_from = ancestry(store, self.from.no)?;
            self.above_to = ancestry(store, self.to.no)?;
        }
        let mut with_orphans = false;
        let mut blocks = USUAL_BLOCKS;
        let epoch = store.past.epoch();
        self.prepare_places()?;
        let for_names = store.past.blocks_for_names(2);
        // Versions are kept in the same Op, if there is room for so much at once.
        let mut for_versions = 2 * store.past.blocks_for_version();
        loop {
            // A new name is new metadata; only replacing one may draw on what is kept for deleting.
            let near = store.near(self.to.no);
            let reserved = match store.reserve(near, blocks + for_names + for_versions) {
                Err(Error::NoSpace) if for_versions > 0 => {
                    for_versions = 0;
                    continue;
                }
                Err(Error::NoSpace) if blocks == USUAL_BLOCKS => {
                    blocks = ORPHAN_BLOCKS;
                    store.reserve_freely(near, blocks + for_names)?
                }
                other => other?,
            };
            let with = With { orphans: with_orphans, versions: for_versions > 0 };
            match self.attempt(reserved, blocks, with, settled, epoch)? {
                Outcome::NeedOrphans => with_orphans = true,
                Outcome::NeedBlocks(n) if n == USUAL_BLOCKS => return Err(Error::NoSpace), // Refused above already.
                Outcome::NeedBlocks(n) => blocks = n,
                done => return Ok(done),
            }
        }
    }

    /// Finds out what decides who is excluded, and prepares it for directories that come to be somewhere
    /// else. With no inode locked.
    fn prepare_places(&mut self) -> Result<()> {
        let store = self.store;
        self.moving.clear();
        self.place_from = exclude::place_of(store, &self.from)?;
        self.place_to = match self.same_dir() {
            true => self.place_from.clone(),
            false => exclude::place_of(store, &self.to)?,
        };
        if self.place_from.is_none() && self.place_to.is_none() {
            return Ok(());
        }
        let moves = [(&self.from, self.name, &self.place_to), (&self.to, self.new_name, &self.place_from)];
        let moves = &moves[..if self.mode == RenameMode::Exchange { 2 } else { 1 }];
        for (directory, name, to) in moves {
            let found = dir::find(store, &directory.state.read(), directory.no, name)?;
            let Some(found) = found.filter(|found| found.kind == crate::FileKind::Directory) else {
                continue;
            };
            exclude::before_move(
                store,
                &store.inodes.get_entry(&store.meta, found.inode, found.incarnation)?,
                to.as_ref(),
            )?;
            self.moving.push(found.inode);
        }
        Ok(())
    }

    /// Whether a directory that is found under a name was not when its move was prepared.
    fn is_unprepared(&self, found: &Found) -> bool {
        let decides = self.place_from.is_some() || self.place_to.is_some();
        decides && found.kind == crate::FileKind::Directory && !self.moving.contains(&found.inode)
    }

    fn lock_dirs(&self) -> Dirs<'_> {
        if self.same_dir() {
            return Dirs::Same(self.from.state.write());
        }
        let from_first = if self.above_to.contains(&self.from.no) {
            true
        } else if self.above_from.contains(&self.to.no) {
            false
        } else {
            self.from.no < self.to.no
        };
        if from_first {
            let from = self.from.state.write();
            Dirs::Two { from, to: self.to.state.write() }
        } else {
            let to = self.to.state.write();
            Dirs::Two { from: self.from.state.write(), to }
        }
    }

    fn check_shape(&self, source: &Found, target: Option<&Found>) -> Result<()> {
        use crate::FileKind::Directory;
        if !self.same_dir() {
            if source.kind == Directory && self.above_to.contains(&source.inode) {
                return Err(Error::Invalid { what: "a directory cannot be moved into itself" });
            }
            if let Some(t) = target {
                if t.kind == Directory && self.above_from.contains(&t.inode) {
                    return Err(match self.mode {
                        RenameMode::Exchange => {
                            Error::Invalid { what: "a directory cannot be moved into itself" }
                        }
                        _ => Error::NotEmpty,
                    });
                }
            }
        }
        let Some(target) = target else { return Ok(()) };
        if self.mode == RenameMode::Replace && source.inode != target.inode {
            match (source.kind == Directory, target.kind == Directory) {
                (true, false) => return Err(Error::NotADirectory),
                (false, true) => return Err(Error::IsADirectory),
                _ => {}
            }
        }
        Ok(())
    }

    /// Fails if one of the names may not go, or none may come where it goes to.
    fn check_protection(
        &self,
        dirs: &mut Dirs<'_>,
        state: &InodeState,
        other: Option<&InodeState>,
    ) -> Result<()> {
        check_changeable(dirs.from())?;
        check_changeable(state)?;
        match other {
            Some(other) => check_changeable(dirs.to()).and_then(|()| check_changeable(other)),
            None => check_takes_names(dirs.to()),
        }
    }

    fn attempt(
        &self,
        reserved: Reserved,
        blocks: u32,
        with: With,
        settled: Option<InodeNo>,
        epoch: u64,
    ) -> Result<Outcome> {
        let store = self.store;
        let orphans = with.orphans.then(|| store.orphans.lock());
        let mut dirs = self.lock_dirs();
        dirs.from().check_directory()?;
        dirs.to().check_directory()?;
        if preserve::must_keep(store, &self.from, dirs.from())? {
            return Ok(Outcome::NeedPreserve(self.from.clone()));
        }
        if preserve::must_keep(store, &self.to, dirs.to())? {
            return Ok(Outcome::NeedPreserve(self.to.clone()));
        }
        let mut pins = Pins::new();
        let Looked::Taken(source, gone_from) =
            dir::look(store, dirs.from(), self.from.no, self.name, &mut pins)?
        else {
            return Err(Error::NotFound);
        };
        let (target, goes_to, needed) =
            match dir::look(store, dirs.to(), self.to.no, self.new_name, &mut pins)? {
                Looked::Taken(target, spot) => (Some(target), Some(spot), 0),
                Looked::Free(spot, blocks) => (None, Some(spot), blocks),
                Looked::Full => (None, None, 0),
            };
        match (self.mode, &target) {
            (RenameMode::NoReplace, Some(_)) => return Err(Error::Exists),
            (RenameMode::Exchange, None) => return Err(Error::NotFound),
            _ => {}
        }
        if target.as_ref().is_some_and(|t| t.inode == source.inode) {
            return Ok(Outcome::Done(None)); // Two names of one file: nothing to do.
        }
        self.check_shape(&source, target.as_ref())?;
        let cell = store.inodes.get_entry(&store.meta, source.inode, source.incarnation)?;
        let other = match &target {
            Some(t) => Some(store.inodes.get_entry(&store.meta, t.inode, t.incarnation)?),
            None => None,
        };
        let moved = [Some(&source), target.as_ref().filter(|_| self.mode == RenameMode::Exchange)];
        if moved.into_iter().flatten().any(|found| self.is_unprepared(found)) {
            return Ok(Outcome::Again);
        }
        let replaces = self.mode == RenameMode::Replace && target.is_some();
        #[cfg(feature = "mutations")]
        let replaces = replaces && !crate::mutation::is(crate::mutation::Mutation::RenameBeforeData);
        if replaces && settled != Some(cell.no) && source.kind == crate::FileKind::Regular {
            return Ok(Outcome::NeedFlush(cell));
        }
        let goes_to = goes_to.ok_or(dir::FULL)?;
        let (mut state, mut other_state) = lock_children(&cell, other.as_deref());
        self.check_protection(&mut dirs, &state, other_state.as_deref())?;
        let (source, target) = (source.detach(store), target.map(|target| target.detach(store)));
        if let (RenameMode::Replace, Some(o)) = (self.mode, &other_state) {
            if o.inode.is_directory() && !dir::is_empty(o) {
                return Err(Error::NotEmpty);
            }
        }
        // Tried, so they may come after the states; before them they would be held while the state of another
        // directory is waited for.
        let (io, mut other_io) = (cell.io.try_lock(), other.as_ref().and_then(|o| o.io.try_lock()));
        let number = store.number();
        let (mut versions, mut waits) = (Vec::new(), Vec::new());
        let mut is_kept = |cell: &Arc<InodeCell>, state: &InodeState, with_io| -> Result<Option<bool>> {
            match preserve::before_change(store, cell, state, with_io, number)? {
                Before::Nothing => Ok(Some(false)),
                Before::Version(version, wait) if with.versions && self.mode != RenameMode::Exchange => {
                    versions.push(version);
                    waits.extend(wait);
                    Ok(Some(true))
                }
                _ => Ok(None),
            }
        };
        if is_kept(&cell, &state, io.is_some())?.is_none() {
            return Ok(Outcome::NeedPreserve(cell.clone()));
        }
        let mut other_kept = None;
        if let (Some(o), Some(os)) = (&other, &other_state) {
            match is_kept(o, os, other_io.is_some())? {
                Some(true) => other_kept = Some(EventNo(number.0 - 1)),
                Some(false) => {}
                None => return Ok(Outcome::NeedPreserve(o.clone())),
            }
        }
        let (from, to) = (self.place_from.as_ref(), self.place_to.as_ref());
        let excluded = exclude::excludes_name(store, from, self.name, (&cell, &state.inode))?;
        let cover = (store.past.hold_cover(store, &cell, &mut state.inode, excluded)?, excluded);
        let mut other_cover = None;
        if let (Some(o), Some(os)) = (&other, &mut other_state) {
            let excluded = exclude::excludes_name(store, to, self.new_name, (o, &os.inode))?;
            other_cover = Some((store.past.hold_cover(store, o, &mut os.inode, excluded)?, excluded));
        }
        if self.mode == RenameMode::Exchange {
            let (o, os) = (other.as_ref().expect("found"), other_state.as_mut().expect("found"));
            let target = target.as_ref().expect("found");
            let spots = (gone_from, goes_to);
            let both = ((&source, &cell, &mut *state), (target, o, &mut **os));
            let covers = (cover, other_cover.unwrap_or_default());
            return self.exchange(reserved, &mut dirs, both, covers, spots, epoch);
        }

        let cookie = goes_to.cookie();
        if needed + ORPHAN_BLOCKS > blocks {
            return Ok(Outcome::NeedBlocks(needed + ORPHAN_BLOCKS));
        }
        let mut ready = None;
        if let (Some(o), Some(os)) = (&other, &other_state) {
            let fate = fate_of(store, o, os, other_io.take());
            match prepare_fate(store, (o, os, other_kept), fate, orphans.as_ref(), &mut pins)? {
                Some(r) => ready = Some(r),
                None => return Ok(Outcome::NeedOrphans),
            }
        }

        let (from_no, to_no) = (self.from.no, self.to.no);
        let moves_dir = state.inode.is_directory() && from_no != to_no;
        if moves_dir && dirs.to().inode.links == u32::MAX {
            return Err(Error::TooManyLinks);
        }
        let replaces_dir = other_state.as_ref().is_some_and(|o| o.inode.is_directory());
        let entry = DirEntry {
            inode: cell.no,
            incarnation: cell.incarnation,
            birth: number,
            kind: source.kind,
            name: self.new_name,
        };
        let replaced = target.as_ref().zip(other_cover);
        let mut keep = self.keep(&mut dirs, number, versions, (&source, cover), replaced)?;
        let Some(mut op) = store.past.begin(&store.meta, reserved, epoch) else { return Ok(Outcome::Again) };
        let kept = keep.inode(&mut op, cell.no, &mut state);
        let other_kept = other_state.as_mut().zip(other.as_ref());
        let other_kept = other_kept.and_then(|(os, o)| keep.inode(&mut op, o.no, os));
        keep.name(&mut op, from_no, source.cookie, source.birth);
        if let Some(target) = &target {
            keep.name(&mut op, to_no, target.cookie, target.birth);
        }
        let placed = match &target {
            Some(_) => dir::repoint(&mut op, dirs.to(), to_no, goes_to, &entry),
            None => dir::insert(&mut op, store, dirs.to(), to_no, goes_to, &entry),
        };
        let removed = dir::remove(&mut op, dirs.from(), from_no, gone_from);
        let now = crate::clock::now();
        dirs.to().change_content(now);
        dirs.from().change_content(now);
        dirs.to().inode.links += u32::from(moves_dir);
        dirs.from().inode.links -= u32::from(moves_dir);
        dirs.to().inode.links -= u32::from(replaces_dir);
        let to_incarnation = dirs.to().inode.incarnation;
        name_at(&mut state.inode, to_no, to_incarnation, cookie);
        cell.cover.follow(&state.inode);
        if moves_dir {
            store.past.note_moved();
        }
        if state.inode.is_directory() {
            store.past.note_renamed_directory();
        }
        state.inode.ctime = now;
        let stored = store_inode(&mut op, &cell, &state);
        let from_stored = store_inode(&mut op, &self.from, dirs.from());
        let to_stored = match from_no == to_no {
            true => from_stored,
            false => store_inode(&mut op, &self.to, dirs.to()),
        };
        let entered = placed.stored(&mut op, to_stored);
        let gone = removed.stored(&mut op, from_stored);
        op.before(entered, stored);
        op.before(entered, gone);
        for kept in [kept, other_kept].into_iter().flatten() {
            op.before(kept, entered);
        }
        if let (Some(o), Some(os), Some(ready)) = (&other, &mut other_state, ready) {
            let place = (to_no, to_incarnation, cookie);
            lose_name(&mut op, store, o, os, ready, orphans.as_ref(), place, (entered, now));
        }
        drop(op);
        drop((state, other_state));
        for wait in waits {
            versioning::note_changed(store, wait);
        }
        Ok(Outcome::Done(other.clone()))
    }

    /// Makes ready for keeping what the names meant, and these versions.
    fn keep(
        &self,
        dirs: &mut Dirs<'_>,
        number: EventNo,
        versions: Vec<OldVersion>,
        source: Named<'_>,
        target: Option<Named<'_>>,
    ) -> Result<Keep<'_>> {
        fn going<'d>(
            (directory, name): (&'d InodeCell, &'d [u8]),
            inode: &'d Inode,
            (found, (cover, excluded)): Named<'_>,
        ) -> OldName<'d> {
            OldName { directory, inode, cookie: found.cookie, entry: found.entry(name), cover, excluded }
        }
        let (from, to) = match dirs {
            Dirs::Same(state) => (&state.inode, &state.inode),
            Dirs::Two { from, to } => (&from.inode, &to.inode),
        };
        let source = going((&self.from, self.name), from, source);
        let past = &self.store.past;
        match target {
            Some(target) => past.prepare(
                self.store,
                number,
                versions,
                &[source, going((&self.to, self.new_name), to, target)],
            ),
            None => past.prepare(self.store, number, versions, &[source]),
        }
    }

    fn exchange(
        &self,
        reserved: Reserved,
        dirs: &mut Dirs<'_>,
        ((source, cell, state), (target, other, other_state)): (Child<'_>, Child<'_>),
        covers: (Covered, Covered),
        (here_at, there_at): (Spot, Spot),
        epoch: u64,
    ) -> Result<Outcome> {
        let store = self.store;
        let number = store.number();
        let entry = |cell: &InodeCell, kind, name| DirEntry {
            inode: cell.no,
            incarnation: cell.incarnation,
            birth: number,
            kind,
            name,
        };
        let mut keep = self.keep(dirs, number, Vec::new(), (source, covers.0), Some((target, covers.1)))?;
        let Some(mut op) = store.past.begin(&store.meta, reserved, epoch) else { return Ok(Outcome::Again) };
        keep.name(&mut op, self.from.no, source.cookie, source.birth);
        keep.name(&mut op, self.to.no, target.cookie, target.birth);
        let there = entry(cell, source.kind, self.new_name);
        let first = dir::repoint(&mut op, dirs.to(), self.to.no, there_at, &there);
        let here = entry(other, target.kind, self.name);
        let second = dir::repoint(&mut op, dirs.from(), self.from.no, here_at, &here);
        if !self.same_dir() {
            let (a, b) = (u32::from(state.inode.is_directory()), u32::from(other_state.inode.is_directory()));
            dirs.to().inode.links = dirs.to().inode.links + a - b;
            dirs.from().inode.links = dirs.from().inode.links + b - a;
        }
        let incarnations: (Incarnation, Incarnation) =
            (dirs.from().inode.incarnation, dirs.to().inode.incarnation);
        name_at(&mut state.inode, self.to.no, incarnations.1, target.cookie);
        name_at(&mut other_state.inode, self.from.no, incarnations.0, source.cookie);
        cell.cover.follow(&state.inode);
        other.cover.follow(&other_state.inode);
        if !self.same_dir() {
            store.past.note_moved();
        }
        if state.inode.is_directory() || other_state.inode.is_directory() {
            store.past.note_renamed_directory();
        }
        let now = crate::clock::now();
        state.inode.ctime = now;
        other_state.inode.ctime = now;
        store_inode(&mut op, cell, state);
        store_inode(&mut op, other, other_state);
        dirs.to().change_content(now);
        dirs.from().change_content(now);
        let from_stored = store_inode(&mut op, &self.from, dirs.from());
        let to_stored = match self.same_dir() {
            true => from_stored,
            false => store_inode(&mut op, &self.to, dirs.to()),
        };
        let first = first.stored(&mut op, to_stored);
        let second = second.stored(&mut op, from_stored);
        op.before(first, second);
        drop(op);
        Ok(Outcome::Done(None))
    }
}

/// What covers a name, and whether it is excluded.
type Covered = (EventNo, bool);

/// A name, and what covers the inode that it means.
type Named<'a> = (&'a Found, Covered);

/// An inode that changes places with another.
type Child<'a> = (&'a Found, &'a Arc<InodeCell>, &'a mut InodeState);

type ChildGuard<'a> = Writing<'a, InodeState>;

/// Locks the moved and the replaced inode: directories before files, else by number.
fn lock_children<'a>(
    cell: &'a InodeCell,
    other: Option<&'a InodeCell>,
) -> (ChildGuard<'a>, Option<ChildGuard<'a>>) {
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
