//! Removing names: unlink, rmdir, and the target that a rename replaces.

use super::names::check_name;
use super::protected::check_changeable;
use crate::dir::{Found, Lookup, Spot};
use crate::file::Room;
use crate::history::exclude;
use crate::history::preserve::{self, Before};
use crate::history::record::{OldName, OldVersion, Prepared, Recording};
use crate::history::versioning;
use crate::store::Store;
use crate::{dir, file, Error, InodeNo, Result};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use yore_core::btree::{Path, Pins};
use yore_core::extent::Edit;
use yore_core::inode::{free_inode, store_inode, InodeCell, InodeState};
use yore_core::locks::Locked;
use yore_core::memo::ExclusionScope;
use yore_core::orphan::{self, OrphansGuard};
use yore_format::{ContentKind, EventNo, Incarnation, InodeNo as No, Timestamp};
use yore_meta::{Change, EdgeKind, Op, Reserved};

/// Which call removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remove {
    /// unlink: anything but directories.
    File,
    /// rmdir: empty directories.
    Directory,
}

/// How the removal of a name ends for the inode.
pub(crate) enum Removal<'a> {
    /// It has other names.
    Named,
    /// The inode goes in the same Op. Its io lock keeps its data from changing.
    Freed(Option<Locked<'a>>),
    /// Somebody uses the inode, or freeing it takes more than one Op: it becomes an orphan.
    Orphaned,
}

/// A call that removes a name.
struct Call<'a> {
    store: &'a Arc<Store>,
    parent: Arc<InodeCell>,
    name: &'a [u8],
    what: Remove,
}

/// What an attempt has reserved and locked.
struct With {
    reserved: Reserved,
    /// The epoch as of which it is reserved.
    epoch: u64,
    /// The orphans lock, and so many blocks for listing the inode.
    orphans: Option<u32>,
    /// Room for keeping a version.
    version: bool,
}

enum Outcome {
    /// Done; the inode, unless it was freed.
    Done(Option<Arc<InodeCell>>),
    NeedOrphans,
    /// An event has seen this inode as it is: its version must be kept first.
    NeedPreserve(Arc<InodeCell>),
    /// [`crate::history::record::Past::pass_number`] must be called first.
    NeedNumber,
    /// An event has come.
    Again,
}

/// Removes a name.
pub(crate) fn remove(store: &Arc<Store>, directory: InodeNo, name: &[u8], what: Remove) -> Result<()> {
    store.check_writable()?;
    match (name, what) {
        (b".", Remove::Directory) => return Err(Error::Invalid { what: "`.` cannot be removed" }),
        (b"..", Remove::Directory) => return Err(Error::NotEmpty),
        (b"." | b"..", Remove::File) => return Err(Error::IsADirectory),
        _ => check_name(name)?,
    }
    let call = Call { store, parent: store.cell(directory)?, name, what };
    // Where a server counts look-ups for clients, nearly every inode still has some when its name goes.
    let mut orphans = what == Remove::File && store.inodes.has_lookups();
    // The inode's version is kept in the same Op, if there is room for so much at once.
    let mut for_version = store.past.blocks_for_version();
    loop {
        let epoch = store.past.epoch();
        let scope = exclude::scope_of(store, &call.parent)?;
        let for_orphan = orphans.then(|| orphan::blocks_to_add(&store.meta));
        let blocks = for_orphan.unwrap_or(0) + store.past.blocks_for_names(1);
        let reserved = match store.reserve_freely(store.near(directory), blocks + for_version) {
            Err(Error::NoSpace) if for_version > 0 => {
                for_version = 0;
                continue;
            }
            other => other?,
        };
        let with = With { reserved, epoch, orphans: for_orphan, version: for_version > 0 };
        match call.attempt(with, scope.as_ref())? {
            Outcome::Done(left) => {
                if let Some(cell) = left {
                    store.let_go(&cell);
                }
                return Ok(());
            }
            Outcome::NeedOrphans => orphans = true,
            Outcome::NeedPreserve(cell) => preserve::preserve(store, &cell, Room::Reserve)?,
            Outcome::NeedNumber => store.past.pass_number(store)?,
            Outcome::Again => {}
        }
    }
}

impl Call<'_> {
    /// Locks everything that is involved, and removes the name if nothing else is needed first. `scope` is
    /// what decides which files are excluded in the directory.
    // The phases of a call are inlined: what they take by value is copied otherwise, some hundred bytes each.
    #[inline(always)]
    fn attempt(&self, with: With, scope: Option<&Arc<ExclusionScope>>) -> Result<Outcome> {
        let (store, parent, name) = (self.store, &self.parent, self.name);
        let orphans = with.orphans.map(|_| store.orphans.lock());
        let orphans = (orphans.as_ref(), with.orphans.unwrap_or(0));
        let mut dir = parent.state.write();
        dir.check_directory()?;
        if preserve::must_preserve(store, parent, &dir)? {
            return Ok(Outcome::NeedPreserve(parent.clone()));
        }
        let mut pins = Pins::new();
        let Lookup::Taken(found, spot) = dir::lookup_to_change(store, &dir, parent.no, name, &mut pins)?
        else {
            return Err(Error::NotFound);
        };
        dir::check_other(parent.no, name, &found)?;
        let cell = store.inodes.get_entry(&store.meta, found.inode, found.incarnation)?;
        let io = cell.io.try_lock();
        let mut state = cell.state.write();
        let found = found.detach(store);
        check_changeable(&dir)?;
        check_changeable(&state)?;
        check_kind(&state, self.what)?;
        let number = store.number();
        let (ends, waits) = match preserve::before_change(store, &cell, &state, io.is_some(), number)? {
            Before::Nothing => (false, None),
            Before::Version(waits) if with.version => (true, waits),
            _ => return Ok(Outcome::NeedPreserve(cell.clone())),
        };
        let removal = removal_of(store, &cell, &state, io);
        let recorded_until = ends.then(|| EventNo(number.0 - 1));
        let inode = (&*cell, &*state, recorded_until);
        let Some(prepared) = prepare_removal(store, inode, removal, orphans, &mut pins)? else {
            return Ok(Outcome::NeedOrphans);
        };
        let excluded = exclude::excludes_name(store, scope, name, (&cell, &state.inode))?;
        let cover = store.past.hold_cover(store, &cell, &mut state.inode, excluded)?;
        let (cookie, entry) = (found.cookie, found.entry(name));
        let old_name = OldName { directory: parent, inode: &dir.inode, cookie, entry, cover, excluded };
        let old_version = [OldVersion { no: cell.no, inode: &state.inode }];
        let old_versions = &old_version[..usize::from(ends)];
        let mut recording = match store.past.prepare(store, number, old_versions, &[old_name])? {
            Prepared::Ready(recording) => recording,
            Prepared::Again => return Ok(Outcome::Again),
            Prepared::NeedNumber => return Ok(Outcome::NeedNumber),
        };
        let Some(op) = store.past.begin(&store.meta, with.reserved, with.epoch) else {
            return Ok(Outcome::Again);
        };
        let removal = (prepared, orphans.0);
        self.change(op, &mut recording, &mut dir, (&cell, &mut state), (found, spot), removal);
        if let Some(waits) = waits {
            versioning::note_changed(store, waits);
        }
        Ok(Outcome::Done((!state.gone).then(|| cell.clone())))
    }

    /// Makes the Op.
    #[inline(always)]
    fn change(
        &self,
        mut op: Op<'_>,
        recording: &mut Recording<'_>,
        dir: &mut InodeState,
        (cell, state): (&Arc<InodeCell>, &mut InodeState),
        (found, spot): (Found, Spot),
        (removal, orphans): (PreparedRemoval<'_>, Option<&OrphansGuard<'_>>),
    ) {
        let directory = self.parent.no;
        op.behind_birth(directory);
        op.behind_birth(cell.no);
        let is_dir = state.inode.is_directory();
        let recorded = recording.inode(&mut op, cell.no, state);
        recording.name(&mut op, directory, found.cookie, found.birth);
        let mut removal = removal;
        let listed = list_orphan(&mut op, self.store, cell, state, &mut removal, orphans);
        let unstored = dir::remove(&mut op, dir, directory, spot);
        let now = crate::clock::now();
        dir.change_content(now);
        if is_dir {
            dir::lose_directory(dir);
        }
        let counted = store_inode(&mut op, &self.parent, dir);
        let gone = unstored.stored(&mut op, counted).counts;
        if is_dir {
            op.edge(EdgeKind::Uncounted, gone, counted.max(gone));
        }
        if let Some(listed) = listed {
            op.edge(EdgeKind::Listed, listed, gone);
        }
        if let Some(recorded) = recorded {
            op.edge(EdgeKind::Recorded, recorded, gone);
        }
        op.unnamed(cell.no, gone);
        let lost = (directory, dir.inode.incarnation, found.cookie);
        lose_name(&mut op, self.store, cell, state, removal, lost, (gone, now));
    }
}

fn check_kind(state: &InodeState, what: Remove) -> Result<()> {
    match (what, state.inode.is_directory()) {
        (Remove::File, true) => Err(Error::IsADirectory),
        (Remove::Directory, false) => Err(Error::NotADirectory),
        (Remove::Directory, true) if !dir::is_empty(state) => Err(Error::NotEmpty),
        _ => Ok(()),
    }
}

/// Decides how the removal ends for an inode that is about to lose one name (a directory: its only one).
pub(crate) fn removal_of<'a>(
    store: &Store,
    cell: &'a InodeCell,
    state: &InodeState,
    io: Option<Locked<'a>>,
) -> Removal<'a> {
    if !state.inode.is_directory() && state.inode.links > 1 {
        return Removal::Named;
    }
    // The few extents that the inode itself holds can be freed with it.
    let small = state.inode.content_kind != ContentKind::Tree
        && state.data.doomed.is_none()
        && state.inode.xattr_root.is_none();
    // With its io lock held no write-back is under way, and data that was never written is simply dropped.
    if small && io.is_some() && !state.data.listed && !store.inodes.in_use(cell) {
        Removal::Freed(io)
    } else {
        Removal::Orphaned
    }
}

/// A removal whose blocks are in memory.
pub(crate) struct PreparedRemoval<'a> {
    removal: Removal<'a>,
    /// The extents that go in the same Op.
    extents: Option<Box<Edit>>,
    /// An orphan's place in the list.
    position: Option<Box<Path>>,
}

/// Keeps in memory what the removal needs. `None`: the orphans lock is needed and not held, or more blocks
/// than were reserved for listing the inode, whose number comes with the lock. `recorded_until`
/// is the number up to which the past will hold the inode's content, if that is higher than now.
#[inline(always)]
pub(crate) fn prepare_removal<'a>(
    store: &Store,
    (cell, state, recorded_until): (&InodeCell, &InodeState, Option<EventNo>),
    removal: Removal<'a>,
    (orphans, for_orphan): (Option<&OrphansGuard<'_>>, u32),
    pins: &mut Pins,
) -> Result<Option<PreparedRemoval<'a>>> {
    let mut prepared = PreparedRemoval { removal, extents: None, position: None };
    if matches!(prepared.removal, Removal::Freed(_)) && state.inode.content_kind == ContentKind::Extents {
        match prepare_extents(store, (cell, state, recorded_until), pins) {
            Ok(extents) => prepared.extents = Some(Box::new(extents)),
            // The name can go nevertheless. Freeing the rest fails later, and says why.
            Err(Error::Corruption(_)) => prepared.removal = Removal::Orphaned,
            Err(e) => return Err(e),
        }
    }
    if matches!(prepared.removal, Removal::Orphaned) {
        let Some(orphans) = orphans else { return Ok(None) };
        // A long truncation that is under way has listed it already, and leaves it there.
        if !state.data.listed {
            let (position, blocks) = orphans.prepare_add(&store.meta, cell.no, pins)?;
            prepared.position = position;
            if blocks > for_orphan {
                return Ok(None);
            }
        }
    }
    Ok(Some(prepared))
}

/// The removal of all extents of an inode that holds them itself.
fn prepare_extents(
    store: &Store,
    (cell, state, recorded_until): (&InodeCell, &InodeState, Option<EventNo>),
    pins: &mut Pins,
) -> Result<Edit> {
    let recorded_until = match recorded_until {
        Some(recorded_until) => recorded_until,
        None => store.recorded_until(state, cell.no)?,
    };
    let mut edit = Edit::load(&store.meta, cell.no, &state.inode, recorded_until, 0, u64::MAX)?;
    edit.remove(0, u64::MAX);
    edit.prepare(&store.meta, &store.alloc, pins)?;
    Ok(edit)
}

/// Inside an Op, before the name goes: lists the inode if it becomes an orphan. Returns the change from which
/// on it is listed.
pub(crate) fn list_orphan(
    op: &mut Op<'_>,
    store: &Store,
    cell: &InodeCell,
    state: &InodeState,
    prepared: &mut PreparedRemoval<'_>,
    orphans: Option<&OrphansGuard<'_>>,
) -> Option<Change> {
    if !matches!(prepared.removal, Removal::Orphaned) || state.data.listed {
        return None;
    }
    let orphans = orphans.expect("prepared with the orphans lock");
    let position = prepared.position.take();
    Some(orphans.add(op, &store.meta, position, cell.no, cell.incarnation).counts)
}

/// Inside an Op: the inode loses one name (a directory: its only one) at `now`. The name is the one at
/// `lost`, and `gone` is the change that removed it. [`list_orphan`] comes before it.
pub(crate) fn lose_name(
    op: &mut Op<'_>,
    store: &Store,
    cell: &Arc<InodeCell>,
    state: &mut InodeState,
    prepared: PreparedRemoval<'_>,
    lost: (No, Incarnation, u64),
    (gone, now): (Change, Timestamp),
) {
    let inode = &mut state.inode;
    inode.links = if inode.is_directory() { 0 } else { inode.links.saturating_sub(1) };
    if (inode.parent, inode.parent_incarnation, inode.parent_cookie) == lost || inode.links == 0 {
        super::create::name_at(inode, No::NONE, Incarnation(0), 0);
    }
    cell.cover.follow(inode);
    state.inode.ctime = now;
    if state.inode.links == 0 {
        cell.unlinked.store(true, Ordering::Release);
    }
    let change = match prepared.removal {
        Removal::Named => store_inode(op, cell, state),
        Removal::Freed(_io) => {
            file::forget(store, cell, state);
            let applied = prepared.extents.map(|edit| edit.apply(op, &store.alloc, &mut state.inode));
            let cleared = free_inode(op, cell, state);
            op.edge(EdgeKind::Unnamed, gone, cleared);
            if let Some(applied) = applied {
                applied.stored(op, cleared);
            }
            store.inodes.remove(cell);
            return;
        }
        Removal::Orphaned => store_inode(op, cell, state),
    };
    op.edge(EdgeKind::Unnamed, gone, change);
}
