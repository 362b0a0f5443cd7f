//! Making files of all kinds, and giving them further names.

use super::in_use::InUse;
use super::names::check_name;
use super::protected::{check_changeable, check_takes_names};
use crate::dir::{Lookup, Spot};
use crate::file::Room;
use crate::history::preserve;
use crate::store::Store;
use crate::xattr::Inherited;
use crate::{dir, symlink, xattr, Attr, Caller, Error, FileKind, InodeNo, Result};
use std::sync::Arc;
use yore_core::btree::Pins;
use yore_core::inode::{store_inode, InodeCell, InodeState};
use yore_format::{
    ContentKind, DirEntry, EventNo, Incarnation, Inode, InodeFlags, MetaAddr, INLINE_BYTES, SYMLINK_MAX,
};
use yore_meta::{EdgeKind, Op, ReservedInode};

/// How many blocks making a file may need before it has to ask for more: two new nodes at every level of the
/// directory's tree and a new root.
const USUAL_BLOCKS: u32 = 8;

const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// What is to be made.
pub(crate) struct NewFile<'a> {
    pub(crate) kind: FileKind,
    /// 12 bits, before umask and default ACL.
    pub(crate) permissions: u32,
    /// For device files.
    pub(crate) rdev: u32,
    /// For symbolic links.
    pub(crate) target: &'a [u8],
}

fn check_target(target: &[u8]) -> Result<()> {
    if target.is_empty() || target.contains(&0) {
        return Err(Error::Invalid { what: "a link's target is 1 to 4095 bytes without NUL" });
    }
    if target.len() > SYMLINK_MAX {
        return Err(Error::NameTooLong);
    }
    Ok(())
}

/// Makes a file in one Op: entry, inode, inherited attributes.
pub(crate) fn create(
    store: &Arc<Store>,
    caller: &Caller,
    directory: InodeNo,
    name: &[u8],
    new: &NewFile<'_>,
) -> Result<InUse> {
    store.check_writable()?;
    check_name(name)?;
    if new.kind == FileKind::Symlink {
        check_target(new.target)?;
    }
    let for_target = symlink::blocks_for(new.target);
    let near = store.near(directory);
    let parent = store.cell(directory)?;
    let mut blocks = USUAL_BLOCKS;
    loop {
        let epoch = store.past.epoch();
        let reserved = store.reserve(near, blocks)?;
        let slot = store.reserve_inode(near)?;
        let mut dir = parent.state.write();
        dir.check_directory()?;
        if preserve::must_preserve(store, &parent, &dir)? {
            drop((dir, slot, reserved));
            preserve::preserve(store, &parent, Room::Free)?;
            continue;
        }
        let mut pins = Pins::new();
        let (spot, for_entry) = match dir::lookup_to_change(store, &dir, directory, name, &mut pins)? {
            Lookup::Taken(..) => return Err(Error::Exists),
            Lookup::Free(spot, blocks) => (spot, blocks),
            Lookup::Full => return Err(dir::FULL),
        };
        check_takes_names(&dir)?;
        let is_dir = new.kind == FileKind::Directory;
        if is_dir && dir.inode.links == u32::MAX {
            return Err(Error::TooManyLinks);
        }
        let inherited = xattr::inherit(store, &dir, directory, caller, new.kind, new.permissions)?;
        let for_inode = for_target + xattr::blocks_for_inherited(&inherited);
        if for_entry + for_inode > blocks {
            blocks = for_entry + for_inode;
            continue;
        }
        let inode = new_inode(store, caller, &dir.inode, directory, spot.cookie(), new, inherited.mode);
        let entry = DirEntry {
            inode: slot.inode(),
            incarnation: inode.incarnation,
            birth: store.number(),
            kind: new.kind,
            name,
        };
        let cell = Arc::new(InodeCell::new(slot.inode(), inode, slot.frame().clone()));
        let mut state = cell.state.write();
        let Some(op) = store.past.begin(&store.meta, reserved, epoch) else { continue };
        let made = Made { cell: &cell, state: &mut state, slot, target: new.target, inherited: &inherited };
        let attr = enter(op, store, made, (&parent, &mut dir), (spot, &entry));
        drop(state);
        return Ok(InUse::new(store, cell, attr));
    }
}

/// A file that an Op makes.
struct Made<'a> {
    cell: &'a Arc<InodeCell>,
    state: &'a mut InodeState,
    slot: ReservedInode,
    /// For symbolic links.
    target: &'a [u8],
    inherited: &'a Inherited,
}

/// The Op of [`create`]: writes the inode with its content, and the entry in the directory.
fn enter(
    mut op: Op<'_>,
    store: &Store,
    made: Made<'_>,
    (parent, dir): (&InodeCell, &mut InodeState),
    (spot, entry): (Spot, &DirEntry<'_>),
) -> Attr {
    let Made { cell, state, slot, target, inherited } = made;
    op.behind_birth(parent.no);
    // Done before the slot is written: whoever looks for this number from then on finds this cell.
    store.inodes.insert(cell);
    let target =
        (entry.kind == FileKind::Symlink).then(|| symlink::store(&mut op, store, state, cell.no, target));
    let acls = xattr::store_inherited(&mut op, store, state, cell.no, inherited);
    let stored = store_inode(&mut op, cell, state);
    acls.stored(&mut op, stored);
    if let Some(target) = target {
        target.stored(&mut op, stored);
    }
    op.take_inode(slot);
    let is_dir = entry.kind == FileKind::Directory;
    dir.inode.links += u32::from(is_dir);
    let counted = (is_dir && op.wants_order()).then(|| store_inode(&mut op, parent, dir));
    let unstored = dir::insert(&mut op, store, dir, parent.no, spot, entry);
    dir.change_content(state.inode.btime);
    let parent_stored = store_inode(&mut op, parent, dir);
    let entered = unstored.stored(&mut op, parent_stored);
    op.edge(EdgeKind::Named, stored, entered.change);
    op.named(cell.no, parent.no, entered.counts);
    if let Some(counted) = counted {
        op.edge(EdgeKind::Counted, counted, entered.change);
    }
    drop(op);
    state.attr(cell.no)
}

fn new_inode(
    store: &Store,
    caller: &Caller,
    parent: &Inode,
    parent_no: InodeNo,
    cookie: u64,
    new: &NewFile<'_>,
    mode: u32,
) -> Inode {
    let inherits_group = parent.mode & SET_GROUP_ID != 0;
    let is_dir = new.kind == FileKind::Directory;
    let mut permissions = mode & 0o7777;
    let stranger = !caller.keeps_set_id && inherits_group && parent.gid != caller.gid;
    if stranger && !is_dir && permissions & SET_GROUP_ID != 0 && permissions & GROUP_EXECUTE != 0 {
        permissions &= !SET_GROUP_ID;
    }
    if is_dir && inherits_group {
        permissions |= SET_GROUP_ID;
    }
    let now = crate::clock::now();
    let number = store.number();
    Inode {
        mode: new.kind.mode() | permissions,
        links: if is_dir { 2 } else { 1 },
        uid: caller.uid,
        gid: if inherits_group { parent.gid } else { caller.gid },
        size: if new.kind == FileKind::Symlink { new.target.len() as u64 } else { 0 },
        blocks: 0,
        incarnation: store.next_incarnation(),
        flags: inherited_flags(parent, new.kind),
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        parent: parent_no,
        parent_incarnation: parent.incarnation,
        parent_cookie: cookie,
        own_event: EventNo(0),
        born: number,
        has_policy: false,
        rdev: if matches!(new.kind, FileKind::BlockDevice | FileKind::CharDevice) { new.rdev } else { 0 },
        xattr_root: MetaAddr::NONE,
        content_kind: ContentKind::Empty,
        content_count: 0,
        content_level: 0,
        content: [0; INLINE_BYTES],
    }
}

/// The flags that a new file inherits from its directory.
fn inherited_flags(parent: &Inode, kind: FileKind) -> InodeFlags {
    match kind {
        FileKind::Regular | FileKind::Directory => {
            parent.flags & (InodeFlags::NO_ACCESS_TIMES | InodeFlags::NO_DUMP)
        }
        _ => InodeFlags::empty(),
    }
}

/// Gives a file another name.
pub(crate) fn link(store: &Arc<Store>, file: InodeNo, directory: InodeNo, name: &[u8]) -> Result<InUse> {
    store.check_writable()?;
    check_name(name)?;
    let cell = store.cell(file)?;
    if cell.state.read().inode.is_directory() {
        return Err(Error::NotPermitted { what: "a directory has one name" });
    }
    let parent = store.cell(directory)?;
    let mut blocks = USUAL_BLOCKS;
    loop {
        let epoch = store.past.epoch();
        let reserved = store.reserve(store.near(directory), blocks)?;
        let mut dir = parent.state.write();
        dir.check_directory()?;
        if preserve::must_preserve(store, &parent, &dir)? {
            drop((dir, reserved));
            preserve::preserve(store, &parent, Room::Free)?;
            continue;
        }
        let mut pins = Pins::new();
        let (spot, needed) = match dir::lookup_to_change(store, &dir, directory, name, &mut pins)? {
            Lookup::Taken(..) => return Err(Error::Exists),
            Lookup::Free(spot, blocks) => (spot, blocks),
            Lookup::Full => return Err(dir::FULL),
        };
        check_takes_names(&dir)?;
        let mut state = cell.state.write();
        state.check_alive()?;
        check_changeable(&state)?;
        if state.inode.links == 0 {
            return Err(Error::NotFound); // Open, but its last name is gone.
        }
        if state.inode.links == u32::MAX {
            return Err(Error::TooManyLinks);
        }
        if needed > blocks {
            blocks = needed;
            continue;
        }
        if preserve::must_preserve(store, &cell, &state)? {
            drop((state, dir, reserved));
            preserve::preserve(store, &cell, Room::Free)?;
            continue;
        }
        store.past.hold_cover(store, &cell, &mut state.inode, false)?;
        let kind =
            FileKind::from_mode(state.inode.mode).expect("a verified inode has one of the seven types");
        let entry =
            DirEntry { inode: file, incarnation: cell.incarnation, birth: store.number(), kind, name };
        let Some(mut op) = store.past.begin(&store.meta, reserved, epoch) else { continue };
        op.behind_birth(directory);
        let now = crate::clock::now();
        state.inode.links += 1;
        state.inode.ctime = now;
        name_at(&mut state.inode, directory, dir.inode.incarnation, spot.cookie());
        cell.cover.follow(&state.inode);
        let counted = store_inode(&mut op, &cell, &state);
        let unstored = dir::insert(&mut op, store, &mut dir, directory, spot, &entry);
        dir.change_content(now);
        let stored = store_inode(&mut op, &parent, &dir);
        let entered = unstored.stored(&mut op, stored);
        op.edge(EdgeKind::Named, counted, entered.change);
        op.named(cell.no, directory, entered.counts);
        drop(op);
        let attr = state.attr(file);
        drop(state);
        return Ok(InUse::new(store, cell.clone(), attr));
    }
}

/// Records where the inode's latest name is.
pub(crate) fn name_at(inode: &mut Inode, directory: InodeNo, incarnation: Incarnation, cookie: u64) {
    inode.parent = directory;
    inode.parent_incarnation = incarnation;
    inode.parent_cookie = cookie;
}
