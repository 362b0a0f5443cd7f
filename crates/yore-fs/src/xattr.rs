//! Extended attributes: in a tree of their own per inode, whose root the inode keeps.
//!
//! A key consists of 40 bits of hash of namespace and name, 8 bits that tell names of one hash apart, and 16
//! bits of chunk number. A value of up to 1,024 bytes lies in one cell with its name; a longer one goes on in
//! further chunks of 1,024 bytes. The largest value, 65,536 bytes, takes 64 cells, three to a leaf. One Op
//! sets an attribute, also if it replaces another: the new cells take at most 22 leaves, one more at either
//! end of the run, and one branch on every level ([`Tree::blocks_for_run`]), 26 blocks in a tree of two
//! levels, 32 in one of eight.
//!
//! The rules of the namespaces are those of Linux: `user.` is for regular files and directories; `trusted.`
//! and `security.` are for all, and the server decides who sees them; of `system.` there are the two POSIX
//! ACLs (`acl.rs`), which are not stored as given but by their meaning.

pub(crate) mod acl;

mod acls;
mod free;
mod name;
mod plan;
mod read;

#[cfg(test)]
mod calls;
#[cfg(test)]
mod tests;

pub(crate) use acls::{inherit, permits};
pub(crate) use free::{free_step, free_trees, prepare_free_trees};
pub(crate) use plan::tree;
pub(crate) use read::{flags, get, list};

use self::acl::Acl;
pub(crate) use self::acl::Inherited;
use self::name::{Name, ACCESS, CAPABILITY, DEFAULT};
use self::plan::{cells, chunks_of, store_tree, wholly, Attributes, Plan, CELL_BYTES, SLOT};
use self::read::attributes;
use crate::file::{self, Room};
use crate::history::preserve;
use crate::store::Store;
use crate::{Error, Result, SetXattrMode};
use std::sync::Arc;
use yore_core::btree::{Pins, Tree, TreeDelta, Unstored};
use yore_core::extent::birth;
use yore_core::inode::{store_inode, InodeCell, InodeState};
use yore_format::{
    BlockKind, EventNo, Inode, InodeFlags, InodeNo, XattrNamespace, XATTR_CHUNK_BYTES, XATTR_VALUE_MAX,
};
use yore_meta::Op;

/// How many blocks a change of an attribute of ordinary size needs at most. If a change needs more, it asks
/// for more.
const USUAL_BLOCKS: u32 = 4;

/// The ACLs that a new inode inherits, each with its name.
fn each(inherited: &Inherited) -> impl Iterator<Item = (&'static [u8], &[u8])> {
    let access = inherited.access.as_deref().map(|v| (ACCESS, v));
    access.into_iter().chain(inherited.default.as_deref().map(|v| (DEFAULT, v)))
}

/// Sets an attribute, in one Op. Setting an access ACL also changes the mode; an ACL that says no more than
/// the mode is not stored.
///
/// # Errors
/// [`Error::Exists`] and [`Error::NoAttribute`] as `mode` says (it does not apply to ACLs);
/// [`Error::NotPermitted`] on a kind of file that cannot have it; [`Error::AttributeTooLarge`];
/// [`Error::Invalid`] for an impossible ACL; [`Error::NoSpace`].
pub(crate) fn set(
    store: &Arc<Store>,
    cell: &Arc<InodeCell>,
    full: &[u8],
    value: &[u8],
    mode: SetXattrMode,
) -> Result<()> {
    let name = Name::parse(full)?;
    if value.len() > XATTR_VALUE_MAX {
        return Err(Error::AttributeTooLarge);
    }
    if name.namespace != XattrNamespace::System {
        return change(store, cell, name, USUAL_BLOCKS, &mut |_| {
            Ok(Wish { value: Some(value.to_vec()), mode, permissions: None })
        });
    }
    let acl = Acl::decode(value)?;
    change(store, cell, name, USUAL_BLOCKS, &mut |state| {
        let setting = acl.as_ref().filter(|_| name.name == ACCESS);
        let permissions = setting.map(|acl| state.inode.mode & 0o7000 | acl.permissions());
        let stored = acl.as_ref().filter(|acl| name.name == DEFAULT || !acl.is_minimal());
        Ok(Wish { value: stored.map(Acl::encode), mode: SetXattrMode::Any, permissions })
    })
}

/// Removes an attribute, in one Op.
///
/// # Errors
/// [`Error::NoAttribute`] if there is none (removing an ACL that does not exist succeeds);
/// [`Error::NotPermitted`] on a kind of file that cannot have it.
pub(crate) fn remove(store: &Arc<Store>, cell: &Arc<InodeCell>, full: &[u8]) -> Result<()> {
    let name = Name::parse(full)?;
    let mode = match name.namespace {
        XattrNamespace::System => SetXattrMode::Any,
        _ => SetXattrMode::Replace,
    };
    change(store, cell, name, 0, &mut |_| Ok(Wish { value: None, mode, permissions: None }))
}

/// Sets the permissions (12 bits) of an inode with an access ACL, and changes the ACL to match, in one Op.
pub(crate) fn change_mode(
    store: &Arc<Store>,
    cell: &Arc<InodeCell>,
    permissions: u32,
    also: Also<'_>,
) -> Result<()> {
    let name = Name { namespace: XattrNamespace::System, name: ACCESS };
    let wish = &mut |state: &InodeState| {
        let value = acls::chmod(store, state, cell.no, permissions)?;
        Ok(Wish { value, mode: SetXattrMode::Any, permissions: Some(permissions) })
    };
    change_also(store, cell, name, 0, wish, Some(also))
}

/// Removes the capability set of a file, if there is one, and changes the inode with `also`, in one Op.
///
/// # Errors
/// [`Error::Stale`]; corruption; the device.
pub(crate) fn remove_capability(store: &Arc<Store>, cell: &Arc<InodeCell>, also: Also<'_>) -> Result<()> {
    let wish = &mut |_: &InodeState| Ok(Wish { value: None, mode: SetXattrMode::Any, permissions: None });
    change_also(store, cell, CAPABILITY, 0, wish, Some(also))
}

/// Takes away what a crash under an engine that orders changes has left of attributes that the inode's flags
/// do not know: nobody sees them, and they go as if the call that removed them had come through. The inode
/// keeps its times.
///
/// # Errors
/// [`Error::Stale`]; [`Error::NoSpace`]; damage and device errors.
pub(crate) fn remove_unseen(store: &Arc<Store>, cell: &Arc<InodeCell>) -> Result<()> {
    let unseen = {
        let state = cell.state.read();
        let attributes = attributes(store, &state, cell.no);
        let mut unseen = Vec::new();
        for name in Name::with_flags() {
            if attributes.is_unseen(name)? {
                unseen.push((name, state.inode.ctime));
            }
        }
        unseen
    };
    for (name, ctime) in unseen {
        let wish = &mut |_: &InodeState| Ok(Wish { value: None, mode: SetXattrMode::Any, permissions: None });
        change_also(store, cell, name, 0, wish, Some(&|state| state.inode.ctime = ctime))?;
    }
    Ok(())
}

/// A file's capability set, which goes when the file is truncated.
pub(crate) struct CapabilityGoes<'a> {
    store: &'a Store,
    no: InodeNo,
    ready: Option<(Plan, EventNo, Pins)>,
}

impl<'a> CapabilityGoes<'a> {
    pub(crate) fn new(store: &'a Store, no: InodeNo) -> CapabilityGoes<'a> {
        CapabilityGoes { store, no, ready: None }
    }
}

impl file::GoesWithTruncation for CapabilityGoes<'_> {
    fn is_there(&self, state: &InodeState) -> bool {
        state.inode.flags.contains(InodeFlags::CAPABILITY)
    }

    fn prepare(&mut self, state: &InodeState) -> Result<u32> {
        self.ready = None;
        if !self.is_there(state) {
            return Ok(0);
        }
        let mut pins = Pins::new();
        let recorded_until = self.store.recorded_until(state, self.no)?;
        let attributes = Attributes { recorded_until, ..attributes(self.store, state, self.no) };
        let plan = attributes.plan(CAPABILITY, None, SetXattrMode::Any, &mut pins)?;
        let blocks = plan.blocks;
        self.ready = Some((plan, recorded_until, pins));
        Ok(blocks)
    }

    fn apply(&mut self, op: &mut Op<'_>, state: &mut InodeState) -> Unstored {
        match self.ready.take() {
            Some((plan, recorded_until, _pins)) => plan.apply(op, &mut state.inode, birth(recorded_until)),
            None => Unstored::Inside,
        }
    }
}

/// How many blocks [`store_inherited`] takes at most.
pub(crate) fn blocks_for_inherited(inherited: &Inherited) -> u32 {
    let lengths = || each(inherited).map(|(name, value)| (name.len(), value.len()));
    if lengths().all(|(name, value)| value <= XATTR_CHUNK_BYTES && name + value <= XATTR_CHUNK_BYTES) {
        let n = lengths().count();
        return n as u32 + u32::from(n > 1);
    }
    let empty =
        Tree { level: 1, ..Tree::empty(BlockKind::Xattrs, InodeNo::NONE, yore_format::Incarnation(0)) };
    lengths().map(|(_, value)| empty.blocks_for_run(chunks_of(value), CELL_BYTES)).sum()
}

/// Inside an Op: gives a new inode, which has no attributes yet, the ACLs that it inherits. The caller stores
/// the inode.
pub(crate) fn store_inherited(
    op: &mut Op<'_>,
    store: &Store,
    state: &mut InodeState,
    no: InodeNo,
    inherited: &Inherited,
) -> Unstored {
    store_inherited_in(op, &store.hash_seed, &mut state.inode, no, inherited, store.number())
}

fn store_inherited_in(
    op: &mut Op<'_>,
    seed: &[u8; 16],
    inode: &mut Inode,
    no: InodeNo,
    inherited: &Inherited,
    birth: EventNo,
) -> Unstored {
    let mut tree = Tree::empty(BlockKind::Xattrs, no, inode.incarnation);
    let mut all: Option<TreeDelta> = None;
    if op.wants_order() {
        let cells_of = |(name, value)| cells(Name { namespace: XattrNamespace::System, name }, value);
        wholly(op, &each(inherited).flat_map(cells_of).collect::<Vec<_>>());
    }
    for (name, value) in each(inherited) {
        let name = Name { namespace: XattrNamespace::System, name };
        // If both names have the same hash, the second takes the next slot.
        let taken = all.is_some() && Name { name: ACCESS, ..name }.key(seed) == name.key(seed);
        let slot = name.key(seed) + if taken { SLOT } else { 0 };
        for (i, cell) in cells(name, value).iter().enumerate() {
            let delta = tree.insert_run(op, &(slot + i as u64).to_be_bytes(), cell, birth);
            all = Some(delta.after(all));
        }
        inode.flags |= name.flag();
    }
    match all {
        Some(delta) => store_tree(inode, &tree, delta),
        None => Unstored::Inside,
    }
}

/// What a change makes of an attribute.
struct Wish {
    /// Its new value; `None`: the attribute goes.
    value: Option<Vec<u8>>,
    mode: SetXattrMode,
    /// The inode's new permissions (12 bits), if they change, too.
    permissions: Option<u32>,
}

/// Other changes of the inode in the same Op. They run after its ctime was set to the present.
pub(crate) type Also<'a> = &'a dyn Fn(&mut InodeState);

/// Changes one attribute as `wish` says, which is called with the state locked. Tries first with `blocks`
/// reserved.
fn change(
    store: &Arc<Store>,
    cell: &Arc<InodeCell>,
    name: Name<'_>,
    blocks: u32,
    wish: &mut dyn FnMut(&InodeState) -> Result<Wish>,
) -> Result<()> {
    change_also(store, cell, name, blocks, wish, None)
}

fn change_also(
    store: &Arc<Store>,
    cell: &Arc<InodeCell>,
    name: Name<'_>,
    mut blocks: u32,
    wish: &mut dyn FnMut(&InodeState) -> Result<Wish>,
    also: Option<Also<'_>>,
) -> Result<()> {
    // A change that takes no room must be possible on a full volume.
    let frees = blocks == 0;
    loop {
        let near = store.near(cell.no);
        let reserved =
            if frees { store.reserve_freely(near, blocks)? } else { store.reserve(near, blocks)? };
        let mut state = cell.state.write();
        state.check_alive()?;
        if preserve::must_preserve(store, cell, &state)? {
            drop((state, reserved));
            preserve::preserve(store, cell, if frees { Room::Reserve } else { Room::Free })?;
            continue;
        }
        let wish = wish(&state)?;
        if !name.suits(&state.inode) && (wish.value.is_some() || name.namespace == XattrNamespace::User) {
            return Err(Error::NotPermitted { what: "this kind of file cannot have such an attribute" });
        }
        let mut pins = Pins::new();
        let recorded_until = store.recorded_until(&state, cell.no)?;
        let attributes = Attributes { recorded_until, ..attributes(store, &state, cell.no) };
        let plan = attributes.plan(name, wish.value.as_deref(), wish.mode, &mut pins)?;
        if plan.blocks > blocks {
            blocks = plan.blocks;
            continue;
        }
        if plan.is_nothing() && wish.permissions.is_none() && also.is_none() {
            return Ok(());
        }
        if let Some(permissions) = wish.permissions {
            state.inode.mode = state.inode.mode & !0o7777 | permissions & 0o7777;
        }
        state.touch_ctime();
        if let Some(also) = also {
            also(&mut state);
        }
        let mut op = store.meta.begin(reserved);
        // Not the present number: an event may have been taken since this looked at the inode, and that event
        // sees the attribute.
        let unstored = plan.apply(&mut op, &mut state.inode, birth(recorded_until));
        let stored = store_inode(&mut op, cell, &state);
        unstored.stored(&mut op, stored);
        return Ok(());
    }
}
