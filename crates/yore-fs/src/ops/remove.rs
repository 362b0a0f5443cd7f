//! Taking names away: unlink, rmdir, and the target that a rename replaces.

use super::names::check_name;
use super::protected::check_changeable;
use crate::core::alloc::KeptGroups;
use crate::core::btree::{Path, Pins};
use crate::core::extent::Edit;
use crate::core::inode::{free_inode, store_inode, InodeCell, InodeState};
use crate::core::locks::Locked;
use crate::core::orphan::OrphansGuard;
use crate::dir::Looked;
use crate::file::Room;
use crate::history::exclude;
use crate::history::preserve::{self, Before};
use crate::history::record::OldName;
use crate::history::versioning;
use crate::store::Store;
use crate::{dir, file, Error, InodeNo, Result};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use yore_format::{ContentKind, Corruption, EventNo, Incarnation, InodeNo as No, Timestamp};
use yore_meta::{Change, Op};

/// Which call removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remove {
    /// unlink: anything but directories.
    File,
    /// rmdir: empty directories.
    Directory,
}

/// Blocks that listing an orphan may need.
const ORPHAN_BLOCKS: u32 = 4;

/// What becomes of an inode that loses a name.
pub(crate) enum Fate<'a> {
    /// It has other names.
    Lives,
    /// It goes in the same Op. Its data is kept from changing by its io lock.
    Goes(Option<Locked<'a>>),
    /// Somebody uses it, or it takes more than one Op to free: it becomes an orphan.
    Orphan,
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
    let parent = store.cell(directory)?;
    // Where a server's clients hold inodes, nearly every one is still held when its name goes.
    let mut with_orphans = what == Remove::File && store.inodes.are_held();
    // The inode's version is kept in the same Op, if there is room for so much at once.
    let mut for_version = store.past.blocks_for_version();
    loop {
        let epoch = store.past.epoch();
        let place = exclude::place_of(store, &parent)?;
        let blocks = if with_orphans { ORPHAN_BLOCKS } else { 0 } + store.past.blocks_for_names(1);
        let reserved = match store.reserve_freely(store.near(directory), blocks + for_version) {
            Err(Error::NoSpace) if for_version > 0 => {
                for_version = 0;
                continue;
            }
            other => other?,
        };
        let orphans = with_orphans.then(|| store.orphans.lock());
        let mut dir = parent.state.write();
        dir.check_directory()?;
        if preserve::must_keep(store, &parent, &dir)? {
            drop((dir, orphans, reserved));
            preserve::preserve(store, &parent, Room::Reserve)?;
            continue;
        }
        let mut pins = Pins::new();
        let Looked::Taken(found, spot) = dir::look(store, &dir, directory, name, &mut pins)? else {
            return Err(Error::NotFound);
        };
        let cell = store.inodes.get_entry(&store.meta, found.inode, found.incarnation)?;
        let io = cell.io.try_lock();
        let mut state = cell.state.write();
        let found = found.detach(store);
        check_changeable(&dir)?;
        check_changeable(&state)?;
        check_kind(&state, what)?;
        let number = store.number();
        let (version, waits) = match preserve::before_change(store, &cell, &state, io.is_some(), number)? {
            Before::Nothing => (None, None),
            Before::Version(version, waits) if for_version > 0 => (Some(version), waits),
            _ => {
                drop((state, io, dir, orphans, reserved));
                preserve::preserve(store, &cell, Room::Reserve)?;
                continue;
            }
        };
        let fate = fate_of(store, &cell, &state, io);
        let kept = version.is_some().then(|| EventNo(number.0 - 1));
        let Some(ready) = prepare_fate(store, (&cell, &state, kept), fate, orphans.as_ref(), &mut pins)?
        else {
            with_orphans = true;
            continue;
        };
        let is_dir = state.inode.is_directory();
        let excluded = exclude::excludes_name(store, place.as_ref(), name, (&cell, &state.inode))?;
        let cover = store.past.hold_cover(store, &cell, &mut state.inode, excluded)?;
        let going = [OldName {
            directory: &parent,
            inode: &dir.inode,
            cookie: found.cookie,
            entry: found.entry(name),
            cover,
            excluded,
        }];
        let mut keep = store.past.prepare(store, number, version.into_iter().collect(), &going)?;
        let Some(mut op) = store.past.begin(&store.meta, reserved, epoch) else { continue };
        let kept = keep.inode(&mut op, cell.no, &mut state);
        keep.name(&mut op, directory, found.cookie, found.birth);
        let placed = dir::remove(&mut op, &mut dir, directory, spot);
        let now = crate::clock::now();
        dir.change_content(now);
        if is_dir {
            dir.inode.links -= 1;
        }
        let counted = store_inode(&mut op, &parent, &dir);
        let gone = placed.stored(&mut op, counted);
        op.before(gone, counted);
        if let Some(kept) = kept {
            op.before(kept, gone);
        }
        let place = (directory, dir.inode.incarnation, found.cookie);
        lose_name(&mut op, store, &cell, &mut state, ready, orphans.as_ref(), place, (gone, now));
        let freed = state.gone;
        drop(op);
        if let Some(waits) = waits {
            versioning::note_changed(store, waits);
        }
        drop(state);
        drop(dir);
        drop(orphans);
        if !freed {
            store.let_go(&cell);
        }
        return Ok(());
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

/// Decides what becomes of an inode that is about to lose one name (a directory: its only one).
pub(crate) fn fate_of<'a>(
    store: &Store,
    cell: &'a InodeCell,
    state: &InodeState,
    io: Option<Locked<'a>>,
) -> Fate<'a> {
    if !state.inode.is_directory() && state.inode.links > 1 {
        return Fate::Lives;
    }
    // The few extents that an inode holds itself can be freed with it.
    let small = state.inode.content_kind != ContentKind::Tree
        && state.data.doomed.is_none()
        && state.inode.xattr_root.is_none();
    // With its io lock held no write-back is under way, and data that was never written is simply forgotten.
    if small && io.is_some() && !state.data.listed && !store.inodes.in_use(cell) {
        Fate::Goes(io)
    } else {
        Fate::Orphan
    }
}

/// A fate whose blocks are in memory.
pub(crate) struct Ready<'a> {
    fate: Fate<'a>,
    /// The extents that go in the same Op.
    extents: Option<(Edit, KeptGroups)>,
    /// An orphan's place in the list.
    way: Option<Path>,
}

/// Keeps in memory what the fate needs. `None`: the orphans lock is needed and not held. With the inode comes
/// what its past will hold, if that is more than it does.
pub(crate) fn prepare_fate<'a>(
    store: &Store,
    (cell, state, kept): (&InodeCell, &InodeState, Option<EventNo>),
    fate: Fate<'a>,
    orphans: Option<&OrphansGuard<'_>>,
    pins: &mut Pins,
) -> Result<Option<Ready<'a>>> {
    let mut ready = Ready { fate, extents: None, way: None };
    if matches!(ready.fate, Fate::Goes(_)) && state.inode.content_kind == ContentKind::Extents {
        match prepare_extents(store, (cell, state, kept), pins) {
            Ok(prepared) => ready.extents = Some(prepared),
            // The name can go nevertheless. Freeing the rest fails later, and says why.
            Err(Error::Corruption(_)) => ready.fate = Fate::Orphan,
            Err(e) => return Err(e),
        }
    }
    if matches!(ready.fate, Fate::Orphan) {
        let Some(orphans) = orphans else { return Ok(None) };
        // A long truncation under way has listed it already, and leaves it there.
        if !state.data.listed {
            let blocks;
            (ready.way, blocks) = orphans.prepare_add(&store.meta, cell.no, pins)?;
            if blocks > ORPHAN_BLOCKS {
                let (expected, found) = (format!("at most {}", ORPHAN_BLOCKS - 2), "more");
                return Err(Corruption::new("list of orphans", "level", expected, found).into());
            }
        }
    }
    Ok(Some(ready))
}

/// The removal of all extents of an inode that holds them itself.
fn prepare_extents(
    store: &Store,
    (cell, state, kept): (&InodeCell, &InodeState, Option<EventNo>),
    pins: &mut Pins,
) -> Result<(Edit, KeptGroups)> {
    let kept = match kept {
        Some(kept) => kept,
        None => store.kept(state, cell.no)?,
    };
    let mut groups = KeptGroups::default();
    let mut edit = Edit::load(&store.meta, cell.no, &state.inode, kept, 0, u64::MAX)?;
    edit.remove(0, u64::MAX);
    edit.prepare(&store.meta, &store.alloc, pins, &mut groups)?;
    Ok((edit, groups))
}

/// Inside an Op: the inode has one name less (a directory: none), the one at `place`, whose removal is
/// `gone`, at `now`.
#[allow(clippy::too_many_arguments)]
pub(crate) fn lose_name(
    op: &mut Op<'_>,
    store: &Store,
    cell: &Arc<InodeCell>,
    state: &mut InodeState,
    ready: Ready<'_>,
    orphans: Option<&OrphansGuard<'_>>,
    place: (No, Incarnation, u64),
    (gone, now): (Change, Timestamp),
) {
    let inode = &mut state.inode;
    inode.links = if inode.is_directory() { 0 } else { inode.links.saturating_sub(1) };
    if (inode.parent, inode.parent_incarnation, inode.parent_cookie) == place || inode.links == 0 {
        super::create::name_at(inode, No::NONE, Incarnation(0), 0);
    }
    cell.cover.follow(inode);
    state.inode.ctime = now;
    if state.inode.links == 0 {
        cell.unlinked.store(true, Ordering::Release);
    }
    let change = match ready.fate {
        Fate::Lives => store_inode(op, cell, state),
        Fate::Goes(_io) => {
            file::forget(store, cell, state);
            // Their claims last until the bits have changed.
            let (edit, _kept) = ready.extents.unzip();
            let applied = edit.map(|edit| edit.apply(op, &store.alloc, &mut state.inode));
            let freed = free_inode(op, cell, state);
            if let Some(applied) = applied {
                applied.stored(op, freed);
            }
            store.inodes.remove(cell);
            freed
        }
        Fate::Orphan => {
            let stored = store_inode(op, cell, state);
            if !state.data.listed {
                let orphans = orphans.expect("prepared with the orphans lock");
                let listed = orphans.add(op, &store.meta, ready.way, cell.no, cell.incarnation);
                op.before(listed, gone);
            }
            stored
        }
    };
    op.before(gone, change);
}
