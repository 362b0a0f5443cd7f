//! Renaming: a name moves, replacing another or changing places with it, in one Op (rule 13).
//!
//! Renames between directories hold the store's rename lock, so the tree's shape stays still while ancestors
//! are compared and the two directories are locked in the tree's order. A rename that replaces a file first
//! writes the data of the file that takes its place: after a crash the name has its old or its new contents,
//! never an empty stretch where data was written before the rename (rule 12).

mod check;
mod child;
mod locked;

use self::check::{check_protection, check_shape};
use self::child::{Child, Replaced, Waits};
use self::locked::{ancestry, directory, lock_children, Dirs};
use super::names::check_name;
use super::remove::{list_orphan, lose_name, prepare_removal, removal_of};
use crate::dir::{self, Found, Lookup, Spot};
use crate::file::Room;
use crate::history::exclude;
use crate::history::preserve::{self, Before};
use crate::history::record::{OldName, OldVersion, Prepared, Recording};
use crate::history::versioning;
use crate::store::Store;
use crate::{file, Error, InodeNo, RenameMode, Result};
use smallvec::SmallVec;
use std::sync::Arc;
use yore_core::btree::{CellChange, Pins, Unstored};
use yore_core::inode::{store_inode, InodeCell, InodeState};
use yore_core::memo::ExclusionScope;
use yore_core::orphan::{self, OrphansGuard};
use yore_format::{EventNo, Inode, Timestamp};
use yore_meta::{Change, EdgeKind, Op, Reserved};

const USUAL_BLOCKS: u32 = 10;

/// The two names, as the look-up has found them.
struct Names {
    source: Found,
    /// Where the old name is.
    from: Spot,
    target: Option<Found>,
    /// Where the new name is or will be; `None`: nothing can be put there.
    to: Option<Spot>,
    /// How many blocks entering it may need.
    blocks: u32,
}

/// What an attempt has once everything is locked.
struct Ready<'a> {
    reserved: Reserved,
    epoch: u64,
    number: EventNo,
    /// Where the old name is, and where the new one is or will be.
    spots: (Spot, Spot),
    waits: Waits,
    orphans: Option<&'a OrphansGuard<'a>>,
}

struct Rename<'a> {
    store: &'a Arc<Store>,
    from: Arc<InodeCell>,
    name: &'a [u8],
    to: Arc<InodeCell>,
    new_name: &'a [u8],
    mode: RenameMode,
    /// For two directories: each with everything above it, as it was when the rename lock was taken, which
    /// keeps them so. The walk comes before any lock: a walk upwards with a directory locked would wait for a
    /// parent with its child's lock held.
    above_from: Vec<InodeNo>,
    above_to: Vec<InodeNo>,
    /// What decides which files are excluded in both.
    scope_from: Option<Arc<ExclusionScope>>,
    scope_to: Option<Arc<ExclusionScope>>,
    /// The directories whose move is prepared ([`exclude::before_move`]).
    moving: Vec<InodeNo>,
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
    let from = directory(store, from)?;
    let to = if to == from.no { from.clone() } else { directory(store, to)? };
    let mut r = Rename {
        store,
        from,
        name,
        to,
        new_name,
        mode,
        above_from: Vec::new(),
        above_to: Vec::new(),
        scope_from: None,
        scope_to: None,
        moving: Vec::new(),
    };
    let mut settled = None;
    loop {
        match r.in_shape(settled)? {
            Outcome::Done(replaced) => {
                if let Some(cell) = replaced {
                    store.let_go(&cell);
                }
                return Ok(());
            }
            // Done without any lock: the device takes its time.
            Outcome::NeedFlush(cell) => {
                file::flush_file(&**store, &cell)?;
                // Also where the data went in place: the record with the name must not be there before it.
                store.meta.note_data_written_first();
                settled = Some(cell.no);
            }
            Outcome::NeedPreserve(cell) => preserve::preserve(store, &cell, Room::Reserve)?,
            Outcome::NeedNumber => store.past.pass_number(store)?,
            Outcome::Again => {}
            Outcome::NeedOrphans | Outcome::NeedBlocks(_) => unreachable!("seen to by in_shape"),
        }
    }
}

/// What an attempt has reserved and locked.
#[derive(Clone, Copy)]
struct With {
    /// The orphans lock.
    orphans: bool,
    /// Room for keeping versions.
    versions: bool,
}

enum Outcome {
    /// Done; the inode that lost its name, if any.
    Done(Option<Arc<InodeCell>>),
    NeedOrphans,
    NeedBlocks(u32),
    /// This file replaces another, and its data must be written first.
    NeedFlush(Arc<InodeCell>),
    /// An event has seen this inode as it is: its version must be kept first.
    NeedPreserve(Arc<InodeCell>),
    /// [`crate::history::record::Past::pass_number`] must be called first.
    NeedNumber,
    /// An event has come.
    Again,
}

impl Rename<'_> {
    fn same_dir(&self) -> bool {
        self.from.no == self.to.no
    }

    /// Keeps the tree's shape still if two directories are involved. `settled` is the inode whose data was
    /// written.
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
        self.prepare_scopes()?;
        let for_names = store.past.blocks_for_names(2);
        // Versions are kept in the same Op, if there is room for so much at once.
        let mut for_versions = 2 * store.past.blocks_for_version();
        loop {
            // A new name is new metadata; only replacing one may use the room that is set aside for deleting.
            let near = store.near(self.to.no);
            let reserved = match store.reserve(near, blocks + for_names + for_versions) {
                Err(Error::NoSpace) if for_versions > 0 => {
                    for_versions = 0;
                    continue;
                }
                Err(Error::NoSpace) if blocks == USUAL_BLOCKS => {
                    blocks = orphan::blocks_to_add(&store.meta);
                    store.reserve_freely(near, blocks + for_names)?
                }
                other => other?,
            };
            let with = With { orphans: with_orphans, versions: for_versions > 0 };
            match self.attempt(reserved, blocks, with, settled, epoch)? {
                Outcome::NeedOrphans => with_orphans = true,
                // The reservation was refused above already.
                Outcome::NeedBlocks(n) if n == USUAL_BLOCKS => return Err(Error::NoSpace),
                Outcome::NeedBlocks(n) => blocks = n,
                done => return Ok(done),
            }
        }
    }

    /// Finds out what decides which files are excluded, and prepares it for directories that will be
    /// somewhere else. No inode is locked.
    fn prepare_scopes(&mut self) -> Result<()> {
        let store = self.store;
        self.moving.clear();
        self.scope_from = exclude::scope_of(store, &self.from)?;
        self.scope_to = match self.same_dir() {
            true => self.scope_from.clone(),
            false => exclude::scope_of(store, &self.to)?,
        };
        if self.scope_from.is_none() && self.scope_to.is_none() {
            return Ok(());
        }
        let moves = [(&self.from, self.name, &self.scope_to), (&self.to, self.new_name, &self.scope_from)];
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

    /// Whether a name now means a directory whose move was not prepared.
    fn is_unprepared(&self, found: &Found) -> bool {
        let decides = self.scope_from.is_some() || self.scope_to.is_some();
        decides && found.kind == crate::FileKind::Directory && !self.moving.contains(&found.inode)
    }

    /// Locks everything that is involved, looks both names up, and renames if nothing else is needed first.
    // The phases of a call are inlined: what they take by value is copied otherwise, some hundred bytes each.
    #[inline(always)]
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
        let mut dirs = Dirs::lock((&self.from, &self.above_from), (&self.to, &self.above_to));
        if let Some(directory) = self.check_directories(&mut dirs)? {
            return Ok(Outcome::NeedPreserve(directory));
        }
        let mut pins = Pins::new();
        let names = self.lookup_names(&mut dirs, &mut pins)?;
        if names.target.is_some_and(|target| target.inode == names.source.inode) {
            return Ok(Outcome::Done(None)); // Two names of one file: nothing to do.
        }
        check_shape(self.mode, (&self.above_from, &self.above_to), &names.source, names.target.as_ref())?;
        dir::check_other(self.from.no, self.name, &names.source)?;
        if let Some(target) = &names.target {
            dir::check_other(self.to.no, self.new_name, target)?;
        }
        let cell_of = |found: Found| store.inodes.get_entry(&store.meta, found.inode, found.incarnation);
        let (cell, other_cell) = (cell_of(names.source)?, names.target.map(cell_of).transpose()?);
        if self.is_any_unprepared(&names) {
            return Ok(Outcome::Again);
        }
        if self.needs_flush(&names, settled) {
            return Ok(Outcome::NeedFlush(cell));
        }
        let spots = (names.from, names.to.ok_or(dir::FULL)?);
        let (state, other_state) = lock_children(&cell, other_cell.as_deref());
        check_protection(self.mode, &mut dirs, &state, other_state.as_deref())?;
        let mut child = Child::new(store, names.source, &cell, state);
        let other = names.target.zip(other_cell.as_ref()).zip(other_state);
        let mut other = other.map(|((found, cell), state)| Child::new(store, found, cell, state));
        let number = store.number();
        let mut waits = Waits::new();
        if self.end_version(&mut child, number, with, &mut waits)?.is_none() {
            return Ok(Outcome::NeedPreserve(cell.clone()));
        }
        let mut other_recorded_until = None;
        if let Some(other) = &mut other {
            match self.end_version(other, number, with, &mut waits)? {
                Some(ends) => other_recorded_until = ends.then_some(EventNo(number.0 - 1)),
                None => return Ok(Outcome::NeedPreserve(other.cell.clone())),
            }
        }
        self.cover(&mut child, &mut other)?;
        let ready = Ready { reserved, epoch, number, spots, waits, orphans: orphans.as_ref() };
        if self.mode == RenameMode::Exchange {
            return self.exchange(ready, &mut dirs, child, other.expect("found"));
        }
        let for_orphan = orphan::blocks_to_add(&store.meta);
        let most = names.blocks + for_orphan;
        if most > blocks {
            return Ok(Outcome::NeedBlocks(most));
        }
        let Some(other) =
            self.prepare_other(other, other_recorded_until, (ready.orphans, for_orphan), &mut pins)?
        else {
            return Ok(Outcome::NeedOrphans);
        };
        self.replace(ready, &mut dirs, child, other)
    }

    /// Fails if one of them is not a directory; returns one that must be preserved first.
    fn check_directories(&self, dirs: &mut Dirs<'_>) -> Result<Option<Arc<InodeCell>>> {
        dirs.from().check_directory()?;
        dirs.to().check_directory()?;
        if preserve::must_preserve(self.store, &self.from, dirs.from())? {
            return Ok(Some(self.from.clone()));
        }
        let must_preserve = !self.same_dir() && preserve::must_preserve(self.store, &self.to, dirs.to())?;
        Ok(must_preserve.then(|| self.to.clone()))
    }

    /// Looks both names up. Fails if the call does not allow what it finds.
    #[inline(always)]
    fn lookup_names(&self, dirs: &mut Dirs<'_>, pins: &mut Pins) -> Result<Names> {
        let store = self.store;
        let Lookup::Taken(source, from) =
            dir::lookup_to_change(store, dirs.from(), self.from.no, self.name, pins)?
        else {
            return Err(Error::NotFound);
        };
        let (target, to, blocks) =
            match dir::lookup_to_change(store, dirs.to(), self.to.no, self.new_name, pins)? {
                Lookup::Taken(target, spot) => (Some(target), Some(spot), 0),
                Lookup::Free(spot, blocks) => (None, Some(spot), blocks),
                Lookup::Full => (None, None, 0),
            };
        match (self.mode, &target) {
            (RenameMode::NoReplace, Some(_)) => Err(Error::Exists),
            (RenameMode::Exchange, None) => Err(Error::NotFound),
            _ => Ok(Names { source, from, target, to, blocks }),
        }
    }

    /// Whether a directory is to move that had not been found when moves were prepared.
    fn is_any_unprepared(&self, names: &Names) -> bool {
        let moves_too = names.target.as_ref().filter(|_| self.mode == RenameMode::Exchange);
        [Some(&names.source), moves_too].into_iter().flatten().any(|found| self.is_unprepared(found))
    }

    /// Whether the data of a file that replaces another must be written first.
    fn needs_flush(&self, names: &Names, settled: Option<InodeNo>) -> bool {
        let replaces = self.mode == RenameMode::Replace && names.target.is_some();
        #[cfg(feature = "mutations")]
        let replaces = replaces && !crate::mutation::is(crate::mutation::Mutation::RenameBeforeData);
        let source = &names.source;
        replaces && settled != Some(source.inode) && source.kind == crate::FileKind::Regular
    }

    /// Whether a version of the inode ends with the call; `None`: the inode must be preserved first.
    fn end_version(
        &self,
        child: &mut Child<'_>,
        number: EventNo,
        with: With,
        waits: &mut Waits,
    ) -> Result<Option<bool>> {
        let Child { cell, state, io, .. } = &*child;
        match preserve::before_change(self.store, cell, state, io.is_some(), number)? {
            Before::Nothing => Ok(Some(false)),
            Before::Version(wait) if with.versions && self.mode != RenameMode::Exchange => {
                waits.extend(wait);
                child.ends = true;
                Ok(Some(true))
            }
            _ => Ok(None),
        }
    }

    /// Finds out what covers the names.
    fn cover<'c>(&self, child: &mut Child<'c>, other: &mut Option<Child<'c>>) -> Result<()> {
        let store = self.store;
        let source = Some((child, &self.scope_from, self.name));
        let target = other.as_mut().map(|other| (other, &self.scope_to, self.new_name));
        for (child, scope, name) in [source, target].into_iter().flatten() {
            let Child { cell, state, .. } = child;
            let excluded = exclude::excludes_name(store, scope.as_ref(), name, (cell, &state.inode))?;
            let cover = store.past.hold_cover(store, cell, &mut state.inode, excluded)?;
            child.covered = (cover, excluded);
        }
        Ok(())
    }

    /// Prepares the removal of the inode that is replaced, if there is one. `None`: that needs the orphans
    /// lock.
    #[inline(always)]
    fn prepare_other<'c>(
        &self,
        other: Option<Child<'c>>,
        recorded_until: Option<EventNo>,
        orphans: (Option<&OrphansGuard<'_>>, u32),
        pins: &mut Pins,
    ) -> Result<Option<Option<Replaced<'c>>>> {
        let Some(mut other) = other else { return Ok(Some(None)) };
        let removal = removal_of(self.store, other.cell, &other.state, other.io.take());
        let inode = (&**other.cell, &*other.state, recorded_until);
        let prepared = prepare_removal(self.store, inode, removal, orphans, pins)?;
        Ok(prepared.map(|removal| Some((other, removal))))
    }

    /// Prepares for keeping what the names meant, and the versions that end.
    fn prepare_recording(
        &self,
        dirs: &mut Dirs<'_>,
        number: EventNo,
        source: &Child<'_>,
        target: Option<&Child<'_>>,
    ) -> Result<Prepared<'_>> {
        fn old_name<'d>(
            (directory, name): (&'d InodeCell, &'d [u8]),
            inode: &'d Inode,
            child: &Child<'_>,
        ) -> OldName<'d> {
            let (Found { cookie, .. }, (cover, excluded)) = (child.name, child.covered);
            OldName { directory, inode, cookie, entry: child.name.entry(name), cover, excluded }
        }
        let (from, to) = match dirs {
            Dirs::Same(state) => (&state.inode, &state.inode),
            Dirs::Two { from, to } => (&from.inode, &to.inode),
        };
        let ends = [Some(source), target].into_iter().flatten().filter(|child| child.ends);
        let versions: SmallVec<[_; 2]> =
            ends.map(|child| OldVersion { no: child.cell.no, inode: &child.state.inode }).collect();
        let source = old_name((&self.from, self.name), from, source);
        let past = &self.store.past;
        match target {
            Some(target) => {
                let target = old_name((&self.to, self.new_name), to, target);
                past.prepare(self.store, number, &versions, &[source, target])
            }
            None => past.prepare(self.store, number, &versions, &[source]),
        }
    }

    /// Makes the Op that moves a name, which may replace another.
    #[inline(always)]
    fn replace(
        &self,
        ready: Ready<'_>,
        dirs: &mut Dirs<'_>,
        mut child: Child<'_>,
        other: Option<Replaced<'_>>,
    ) -> Result<Outcome> {
        let (store, from_no, to_no) = (self.store, self.from.no, self.to.no);
        let Ready { reserved, epoch, number, spots: (from, to), waits, orphans } = ready;
        let (mut other, removal) = other.unzip();
        let moves_dir = child.is_directory() && from_no != to_no;
        if moves_dir && dirs.to().inode.links == u32::MAX {
            return Err(Error::TooManyLinks);
        }
        let replaces_dir = other.as_ref().is_some_and(Child::is_directory);
        let entry = child.entry(number, self.new_name);
        let cookie = to.cookie();
        let prepared = self.prepare_recording(dirs, number, &child, other.as_ref())?;
        let mut recording = match prepared {
            Prepared::Ready(recording) => recording,
            Prepared::Again => return Ok(Outcome::Again),
            Prepared::NeedNumber => return Ok(Outcome::NeedNumber),
        };
        let Some(mut op) = store.past.begin(&store.meta, reserved, epoch) else { return Ok(Outcome::Again) };
        self.behind_births(&mut op, &child, other.as_ref());
        let recorded = recording.inode(&mut op, child.cell.no, &mut child.state);
        let other_recorded = other.as_mut().and_then(|o| recording.inode(&mut op, o.cell.no, &mut o.state));
        self.record_names(&mut op, &mut recording, &child, other.as_ref());
        if moves_dir {
            self.come_alone(&mut op);
        }
        let mut removal = removal;
        let listed = other.as_ref().zip(removal.as_mut()).and_then(|(other, removal)| {
            list_orphan(&mut op, store, other.cell, &other.state, removal, orphans)
        });
        let raised = raise(&mut op, &mut child);
        dirs.to().inode.links += u32::from(moves_dir);
        let counted = (moves_dir && op.wants_order()).then(|| store_inode(&mut op, &self.to, dirs.to()));
        let now = crate::clock::now();
        let unstored = match &other {
            Some(_) => dir::repoint(&mut op, dirs.to(), to_no, to, &entry),
            None => dir::insert(&mut op, store, dirs.to(), to_no, to, &entry),
        };
        if replaces_dir {
            dir::lose_directory(dirs.to());
        }
        if moves_dir {
            dir::lose_directory(dirs.from());
        }
        let (entered, gone, stored) = self
            .change_both(&mut op, dirs, unstored, now, |op, dir| dir::remove(op, dir, self.from.no, from));
        let gone = gone.counts;
        for first in [raised, counted, listed, recorded, other_recorded].into_iter().flatten() {
            op.edge(EdgeKind::Named, first, entered.change);
        }
        made_before(&mut op, &child, entered.change);
        op.edge(EdgeKind::Replaced, entered.counts, gone);
        op.unnamed(child.cell.no, gone);
        op.named(child.cell.no, to_no, entered.counts);
        if from_no != to_no {
            op.leads_to(to_no, gone);
        }
        if moves_dir {
            op.edge(EdgeKind::Uncounted, gone, stored.0.max(gone));
        }
        if replaces_dir {
            op.edge(EdgeKind::Uncounted, entered.change, stored.1);
        }
        if let Some(other) = &other {
            op.unnamed(other.cell.no, entered.change);
        }
        let incarnation = dirs.to().inode.incarnation;
        child.change_parent(to_no, incarnation, cookie, now);
        self.note_moved(moves_dir, &[&child]);
        let lowered = store_inode(&mut op, child.cell, &child.state);
        op.edge(EdgeKind::Unnamed, gone, lowered);
        let replaced = other.as_ref().map(|other| other.cell.clone());
        if let Some((other, removal)) = other.as_mut().zip(removal) {
            let lost = (to_no, incarnation, cookie);
            let gone = (entered.counts, now);
            lose_name(&mut op, store, other.cell, &mut other.state, removal, lost, gone);
        }
        drop(op);
        drop((child, other));
        for wait in waits {
            versioning::note_changed(store, wait);
        }
        Ok(Outcome::Done(replaced))
    }

    /// A directory that gets another parent: nothing is pending before that. If an event may have seen the
    /// directory, a crash must not leave the new entry with the old parent: what puts the parent right would
    /// change what the event shows.
    fn come_alone(&self, op: &mut Op<'_>) {
        match self.store.past.is_any() {
            true => op.be_whole(),
            false => op.drain(),
        }
    }

    /// At the beginning of the Op: what an event has seen of the directories, and of what the names mean, is
    /// kept before any of it changes.
    fn behind_births(&self, op: &mut Op<'_>, child: &Child<'_>, other: Option<&Child<'_>>) {
        let children = [Some(child), other].into_iter().flatten().map(|child| child.cell.no);
        for inode in [self.from.no, self.to.no].into_iter().chain(children) {
            op.behind_birth(inode);
        }
    }

    /// Makes the Op that exchanges two names.
    fn exchange(
        &self,
        ready: Ready<'_>,
        dirs: &mut Dirs<'_>,
        mut child: Child<'_>,
        mut other: Child<'_>,
    ) -> Result<Outcome> {
        let store = self.store;
        let Ready { reserved, epoch, number, spots: (from, to), .. } = ready;
        let [comes, goes] = [&child, &other].map(|child| !self.same_dir() && child.is_directory());
        let more = if comes { dirs.to() } else { dirs.from() };
        if comes != goes && more.inode.links == u32::MAX {
            return Err(Error::TooManyLinks);
        }
        let mut recording = match self.prepare_recording(dirs, number, &child, Some(&other))? {
            Prepared::Ready(recording) => recording,
            Prepared::Again => return Ok(Outcome::Again),
            Prepared::NeedNumber => return Ok(Outcome::NeedNumber),
        };
        let Some(mut op) = store.past.begin(&store.meta, reserved, epoch) else { return Ok(Outcome::Again) };
        self.behind_births(&mut op, &child, Some(&other));
        self.record_names(&mut op, &mut recording, &child, Some(&other));
        let moves_dir = comes || goes;
        if moves_dir {
            self.come_alone(&mut op);
        }
        let now = crate::clock::now();
        child.change_parent(self.to.no, dirs.to().inode.incarnation, other.name.cookie, now);
        other.change_parent(self.from.no, dirs.from().inode.incarnation, child.name.cookie, now);
        let mut before: SmallVec<[Change; 4]> = SmallVec::new();
        before.extend(raise(&mut op, &mut child));
        before.extend(raise(&mut op, &mut other));
        dirs.to().inode.links = dirs.to().inode.links.saturating_add(comes.into());
        dirs.from().inode.links = dirs.from().inode.links.saturating_add(goes.into());
        if moves_dir && op.wants_order() {
            before.push(store_inode(&mut op, &self.to, dirs.to()));
            before.push(store_inode(&mut op, &self.from, dirs.from()));
        }
        let there = child.entry(number, self.new_name);
        let first = dir::repoint(&mut op, dirs.to(), self.to.no, to, &there);
        if goes {
            dir::lose_directory(dirs.to());
        }
        if comes {
            dir::lose_directory(dirs.from());
        }
        let here = other.entry(number, self.name);
        let (first, second, stored) = self.change_both(&mut op, dirs, first, now, |op, dir| {
            dir::repoint(op, dir, self.from.no, from, &here)
        });
        for counted in before {
            op.edge(EdgeKind::Named, counted, first.change);
        }
        made_before(&mut op, &child, first.change);
        made_before(&mut op, &other, second.change);
        op.unnamed(other.cell.no, first.change);
        // The hint of the one without a name leads to this entry (docs/EDGES.md).
        op.unnamed(child.cell.no, first.change);
        op.edge(EdgeKind::Replaced, first.counts, second.counts);
        op.unnamed(child.cell.no, second.counts);
        op.named(child.cell.no, self.to.no, first.counts);
        op.named(other.cell.no, self.from.no, second.counts);
        if !self.same_dir() {
            op.leads_to(self.to.no, second.counts);
            op.leads_to(self.from.no, first.change);
        }
        if moves_dir {
            op.edge(EdgeKind::Uncounted, first.counts, stored.1);
            op.edge(EdgeKind::Uncounted, second.counts, stored.0);
        }
        self.note_moved(!self.same_dir(), &[&child, &other]);
        for moved in [&child, &other] {
            let lowered = store_inode(&mut op, moved.cell, &moved.state);
            op.edge(EdgeKind::Unnamed, second.counts, lowered);
        }
        drop(op);
        Ok(Outcome::Done(None))
    }

    /// Inside the Op, once the new name is entered: changes the old one by `old`, and stores both
    /// directories. Returns the changes of the new and of the old name, and those of the old and of the new
    /// directory.
    fn change_both(
        &self,
        op: &mut Op<'_>,
        dirs: &mut Dirs<'_>,
        entered: Unstored,
        now: Timestamp,
        old: impl FnOnce(&mut Op<'_>, &mut InodeState) -> Unstored,
    ) -> (CellChange, CellChange, (Change, Change)) {
        dirs.to().change_content(now);
        if self.same_dir() {
            let changed = old(op, dirs.from()).behind(&entered);
            let stored = store_inode(op, &self.from, dirs.from());
            let entered = entered.stored(op, stored);
            return (entered, changed.stored(op, stored), (stored, stored));
        }
        let to_stored = store_inode(op, &self.to, dirs.to());
        let entered = entered.stored(op, to_stored);
        let changed = old(op, dirs.from());
        dirs.from().change_content(now);
        let from_stored = store_inode(op, &self.from, dirs.from());
        (entered, changed.stored(op, from_stored), (from_stored, to_stored))
    }

    /// Inside the Op: keeps what the names meant, if an event has seen it.
    fn record_names(
        &self,
        op: &mut Op<'_>,
        recording: &mut Recording<'_>,
        source: &Child<'_>,
        target: Option<&Child<'_>>,
    ) {
        recording.name(op, self.from.no, source.name.cookie, source.name.birth);
        if let Some(target) = target {
            recording.name(op, self.to.no, target.name.cookie, target.name.birth);
        }
    }

    /// Inside the Op: notes that other events may cover what has moved, and that directories may be
    /// elsewhere.
    fn note_moved(&self, moved: bool, children: &[&Child<'_>]) {
        if moved {
            self.store.past.note_moved();
        }
        if children.iter().any(|child| child.is_directory()) {
            self.store.past.note_renamed_directory();
        }
    }
}

/// Inside the Op, before a file gets another name: raises its count for as long as it may have both, if a
/// crash can come between. The count of a directory says nothing of its names.
fn raise(op: &mut Op<'_>, child: &mut Child<'_>) -> Option<Change> {
    if !op.wants_order() || child.is_directory() {
        return None;
    }
    let links = child.state.inode.links;
    // A count that damage has made the greatest one stays.
    child.state.inode.links = links.saturating_add(1);
    let raised = store_inode(op, child.cell, &child.state);
    child.state.inode.links = links;
    Some(raised)
}

/// Inside the Op, once a directory has another name: its inode may have been made since the last generation,
/// and comes before each of its names. (Of a file, the count that is raised does.)
fn made_before(op: &mut Op<'_>, child: &Child<'_>, entered: Change) {
    if child.is_directory() {
        op.all_before(EdgeKind::Named, child.cell.no.addr(), entered);
    }
}
