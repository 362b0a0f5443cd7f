//! Extended attributes: in a tree of their own per inode, whose root the inode keeps.
//!
//! A key is 40 bits of hash of namespace and name, 8 bits that tell names of one hash apart, and 16 bits of chunk number. A
//! value of up to 1,024 bytes lies in one cell with its name; a longer one goes on in further chunks of 1,024 bytes. The
//! largest value, 65,536 bytes, takes 64 cells, three to a leaf. Setting one is a single Op, also if it replaces another:
//! the new cells take at most 22 leaves, one more at either end of the run, and one branch on every level
//! ([`Tree::blocks_for_run`]), 26 blocks in a tree of two levels, 32 in one of eight.
//!
//! Rules of the namespaces, as Linux has them: `user.` is for regular files and directories; `trusted.` and `security.` for
//! all, and it is for the server to decide who sees them; of `system.` there are the two POSIX ACLs (`acl.rs`),
//! which are not kept as given but as they are meant.

pub(crate) mod acl;

mod acls;

pub(crate) use acls::{inherit, permits};

use crate::core::btree::{Pins, Placed, Tree, TreeDelta};
use crate::core::extent::birth;
use crate::core::inode::{store_inode, InodeCell, InodeState};
use crate::file::{self, Room};
use crate::store::Store;
use crate::xattr::acl::{Acl, Inherited};
use crate::{symlink, Error, Result, SetXattrMode};
use std::sync::Arc;
use yore_format::{
    xattr_key, BlockKind, ContentKind, Corruption, Inode, InodeFlags, InodeNo, MetaAddr, Number, XattrCell,
    XattrNamespace, NAME_MAX, XATTR_CHUNK_BYTES, XATTR_VALUE_MAX,
};
use yore_meta::{Change, Meta, Op};

const SLOT: u64 = 1 << 16;
const HASH: u64 = 1 << 24;
/// The largest cell: a first chunk with the longest name behind the shortest prefix.
const CELL_BYTES: usize = 4 + 8 + 2 + 8 + 250 + XATTR_CHUNK_BYTES;
const CHUNKS_MAX: usize = XATTR_VALUE_MAX / XATTR_CHUNK_BYTES;
/// What a change of an attribute of ordinary size needs at most; more is asked for when it turns out to be needed.
const USUAL_BLOCKS: u32 = 4;
/// Leaves freed in one Op.
const LEAVES_PER_STEP: usize = 64;

pub(crate) const ACCESS: &[u8] = b"posix_acl_access";
pub(crate) const DEFAULT: &[u8] = b"posix_acl_default";

/// An attribute's name, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name<'a> {
    namespace: XattrNamespace,
    /// Without the namespace's prefix.
    name: &'a [u8],
}

impl<'a> Name<'a> {
    /// A name as programs say it.
    ///
    /// # Errors
    /// [`Error::AttributeTooLarge`] above 255 bytes, [`Error::Invalid`] for nothing behind the prefix or a NUL,
    /// [`Error::Unsupported`] for other namespaces.
    fn parse(full: &'a [u8]) -> Result<Name<'a>> {
        use XattrNamespace::*;
        if full.len() > NAME_MAX {
            return Err(Error::AttributeTooLarge);
        }
        let of = |namespace: XattrNamespace| {
            let name = full.strip_prefix(namespace.prefix().as_bytes())?;
            Some(Name { namespace, name })
        };
        let Some(name) = [User, Trusted, Security, System].into_iter().find_map(of) else {
            return Err(Error::Unsupported { what: "attributes outside user, trusted, security and system" });
        };
        if name.namespace == System && name.name != ACCESS && name.name != DEFAULT {
            return Err(Error::Unsupported { what: "system attributes other than POSIX ACLs" });
        }
        if name.name.is_empty() || name.name.contains(&0) {
            return Err(Error::Invalid { what: "an attribute's name is not empty and has no NUL" });
        }
        Ok(name)
    }

    /// Whether an inode can have such an attribute.
    fn suits(&self, inode: &Inode) -> bool {
        match self.namespace {
            XattrNamespace::User => inode.is_regular() || inode.is_directory(),
            XattrNamespace::System if self.name == DEFAULT => inode.is_directory(),
            XattrNamespace::System => !inode.is_symlink(),
            _ => true,
        }
    }

    fn flag(&self) -> InodeFlags {
        match (self.namespace, self.name) {
            (XattrNamespace::System, ACCESS) => InodeFlags::ACCESS_ACL,
            (XattrNamespace::System, DEFAULT) => InodeFlags::DEFAULT_ACL,
            (XattrNamespace::Security, b"capability") => InodeFlags::CAPABILITY,
            _ => InodeFlags::empty(),
        }
    }

    fn key(&self, seed: &[u8; 16]) -> u64 {
        xattr_key(seed, self.namespace, self.name)
    }
}

impl Inherited {
    fn each(&self) -> impl Iterator<Item = (&'static [u8], &[u8])> {
        let access = self.access.as_deref().map(|v| (ACCESS, v));
        access.into_iter().chain(self.default.as_deref().map(|v| (DEFAULT, v)))
    }
}

/// The value of an attribute.
///
/// # Errors
/// [`Error::NoAttribute`]; those of impossible names; corruption; the device.
pub(crate) fn get(store: &Store, state: &InodeState, no: InodeNo, full: &[u8]) -> Result<Vec<u8>> {
    let name = Name::parse(full)?;
    place(store, state, no).get(name)?.ok_or(Error::NoAttribute)
}

/// An ACL of an inode, encoded.
pub(crate) fn get_acl(
    store: &Store,
    state: &InodeState,
    no: InodeNo,
    name: &[u8],
) -> Result<Option<Vec<u8>>> {
    place(store, state, no).get(Name { namespace: XattrNamespace::System, name })
}

/// The names of all attributes, in no order that means anything.
pub(crate) fn list(store: &Store, state: &InodeState, no: InodeNo) -> Result<Vec<Vec<u8>>> {
    place(store, state, no).list()
}

fn place<'a>(store: &'a Store, state: &'a InodeState, no: InodeNo) -> Place<'a> {
    Place { meta: &store.meta, seed: &store.hash_seed, inode: &state.inode, no, kept: Number(0) }
}

/// Sets an attribute, in one Op. An access ACL changes the mode with it; an ACL that says no more than the mode is not kept.
///
/// # Errors
/// [`Error::Exists`] and [`Error::NoAttribute`] as `mode` says (ACLs pay no heed to it); [`Error::NotPermitted`] on a kind of
/// file that cannot have it; [`Error::AttributeTooLarge`]; [`Error::Invalid`] for an impossible ACL; [`Error::NoSpace`].
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
        let meant = acl.as_ref().filter(|_| name.name == ACCESS);
        let permissions = meant.map(|acl| state.inode.mode & 0o7000 | acl.permissions());
        let kept = acl.as_ref().filter(|acl| name.name == DEFAULT || !acl.is_minimal());
        Ok(Wish { value: kept.map(Acl::encode), mode: SetXattrMode::Any, permissions })
    })
}

/// Removes an attribute, in one Op.
///
/// # Errors
/// [`Error::NoAttribute`] if there is none (an ACL that is not there is removed without complaint); [`Error::NotPermitted`]
/// on a kind of file that cannot have it.
pub(crate) fn remove(store: &Arc<Store>, cell: &Arc<InodeCell>, full: &[u8]) -> Result<()> {
    let name = Name::parse(full)?;
    let mode = match name.namespace {
        XattrNamespace::System => SetXattrMode::Any,
        _ => SetXattrMode::Replace,
    };
    change(store, cell, name, 0, &mut |_| Ok(Wish { value: None, mode, permissions: None }))
}

/// Sets the permissions (12 bits) of an inode with an access ACL, and in the ACL what corresponds, in one Op.
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

const CAPABILITY: Name<'_> = Name { namespace: XattrNamespace::Security, name: b"capability" };

/// Removes the capability set on a file, if there is one, and changes the inode as `also` says, in one Op.
///
/// # Errors
/// [`Error::Stale`]; corruption; the device.
pub(crate) fn remove_capability(store: &Arc<Store>, cell: &Arc<InodeCell>, also: Also<'_>) -> Result<()> {
    let wish = &mut |_: &InodeState| Ok(Wish { value: None, mode: SetXattrMode::Any, permissions: None });
    change_also(store, cell, CAPABILITY, 0, wish, Some(also))
}

/// A file's capability set, which goes when the file is cut.
pub(crate) struct CapabilityGoes<'a> {
    store: &'a Store,
    no: InodeNo,
    ready: Option<(Plan, Number, Pins)>,
}

impl<'a> CapabilityGoes<'a> {
    pub(crate) fn new(store: &'a Store, no: InodeNo) -> CapabilityGoes<'a> {
        CapabilityGoes { store, no, ready: None }
    }
}

impl file::GoesWithCut for CapabilityGoes<'_> {
    fn is_there(&self, state: &InodeState) -> bool {
        state.inode.flags.contains(InodeFlags::CAPABILITY)
    }

    fn prepare(&mut self, state: &InodeState) -> Result<u32> {
        self.ready = None;
        if !self.is_there(state) {
            return Ok(0);
        }
        let mut pins = Pins::new();
        let kept = self.store.kept(state, self.no)?;
        let place = Place { kept, ..place(self.store, state, self.no) };
        let plan = place.plan(CAPABILITY, None, SetXattrMode::Any, &mut pins)?;
        let blocks = plan.blocks;
        self.ready = Some((plan, kept, pins));
        Ok(blocks)
    }

    fn apply(&mut self, op: &mut Op<'_>, state: &mut InodeState) -> Placed {
        match self.ready.take() {
            Some((plan, kept, _pins)) => plan.apply(op, &mut state.inode, birth(kept)),
            None => Placed::Inside,
        }
    }
}

/// How many blocks [`store_inherited`] takes at most.
pub(crate) fn blocks_for_inherited(inherited: &Inherited) -> u32 {
    let lengths = || inherited.each().map(|(name, value)| (name.len(), value.len()));
    if lengths().all(|(name, value)| value <= XATTR_CHUNK_BYTES && name + value <= XATTR_CHUNK_BYTES) {
        let n = lengths().count();
        return n as u32 + u32::from(n > 1);
    }
    let empty =
        Tree { level: 1, ..Tree::empty(BlockKind::Xattrs, InodeNo::NONE, yore_format::Incarnation(0)) };
    lengths().map(|(_, value)| empty.blocks_for_run(chunks_of(value), CELL_BYTES)).sum()
}

/// Inside an Op: gives a new inode, which has no attributes yet, the ACLs that it inherits. The caller stores the inode.
pub(crate) fn store_inherited(
    op: &mut Op<'_>,
    store: &Store,
    state: &mut InodeState,
    no: InodeNo,
    inherited: &Inherited,
) -> Placed {
    store_inherited_in(op, &store.hash_seed, &mut state.inode, no, inherited, store.number())
}

fn store_inherited_in(
    op: &mut Op<'_>,
    seed: &[u8; 16],
    inode: &mut Inode,
    no: InodeNo,
    inherited: &Inherited,
    birth: Number,
) -> Placed {
    let mut tree = Tree::empty(BlockKind::Xattrs, no, inode.incarnation);
    let mut all: Option<TreeDelta> = None;
    for (name, value) in inherited.each() {
        let name = Name { namespace: XattrNamespace::System, name };
        // Should both names have one hash, the second takes the next slot.
        let taken = all.is_some() && Name { name: ACCESS, ..name }.key(seed) == name.key(seed);
        let slot = name.key(seed) + if taken { SLOT } else { 0 };
        for (i, cell) in cells(name, value).iter().enumerate() {
            let delta = tree.insert_run(op, &(slot + i as u64).to_be_bytes(), cell, birth);
            all = Some(delta.after(op, all));
        }
        inode.flags |= name.flag();
    }
    match all {
        Some(delta) => keep(inode, &tree, delta),
        None => Placed::Inside,
    }
}

/// The trees of an inode that is about to be freed.
pub(crate) struct Trees(Vec<Tree>);

/// Keeps in memory what [`free_trees`] frees: the tree of attributes and that of a long symbolic link. Where there may be
/// very many attributes, [`free_step`] goes before.
pub(crate) fn prepare_free_trees(
    store: &Store,
    state: &InodeState,
    no: InodeNo,
    pins: &mut Pins,
) -> Result<Trees> {
    let attributes = tree(&store.meta, &state.inode, no)?;
    let mut trees: Vec<Tree> = std::iter::once(attributes).chain(symlink::tree(&state.inode, no)).collect();
    for tree in &mut trees {
        if !tree.is_empty() {
            *tree = tree.keeping(store.kept(state, no)?);
        }
        tree.prepare_last(&store.meta, usize::MAX, pins)?;
    }
    Ok(Trees(trees))
}

/// The nodes that an inode lost. They become free after it no longer points to them.
#[must_use]
pub(crate) struct FreedTrees(Vec<TreeDelta>);

impl FreedTrees {
    /// To be called with the change that cleared the inode.
    pub(crate) fn stored(self, op: &mut Op<'_>, inode: Change) {
        for delta in self.0 {
            delta.stored(op, inode);
        }
    }
}

/// Inside an Op: frees the trees of an inode.
pub(crate) fn free_trees(
    op: &mut Op<'_>,
    _store: &Store,
    state: &mut InodeState,
    _no: InodeNo,
    trees: Trees,
) -> FreedTrees {
    let inode = &mut state.inode;
    let mut freed = Vec::new();
    for mut tree in trees.0 {
        if let Some(delta) = tree.free_last(op, usize::MAX) {
            inode.blocks = inode.blocks.saturating_add_signed(i64::from(delta.nodes));
            freed.push(delta);
        }
    }
    inode.xattr_root = MetaAddr::NONE;
    inode.flags &= InodeFlags::CHOSEN;
    if inode.is_symlink() && inode.content_kind == ContentKind::Tree {
        inode.set_inline(&[]);
    }
    FreedTrees(freed)
}

/// Frees some of the attributes of an inode without names, in one Op; true when none are left.
pub(crate) fn free_step(store: &Arc<Store>, cell: &Arc<InodeCell>) -> Result<bool> {
    let reserved = store.reserve_freely(store.near(cell.no), 0)?;
    let mut state = cell.state.write();
    if state.gone || state.inode.links > 0 || state.inode.xattr_root.is_none() {
        return Ok(true);
    }
    let mut pins = Pins::new();
    let kept = store.kept(&state, cell.no)?;
    let mut tree = tree(&store.meta, &state.inode, cell.no)?.keeping(kept);
    tree.prepare_last(&store.meta, LEAVES_PER_STEP, &mut pins)?;
    let mut op = store.meta.begin(reserved);
    if let Some(delta) = tree.free_last(&mut op, LEAVES_PER_STEP) {
        let placed = keep(&mut state.inode, &tree, delta);
        let stored = store_inode(&mut op, cell, &state);
        placed.stored(&mut op, stored);
    }
    Ok(tree.is_empty())
}

/// What is to become of an attribute.
struct Wish {
    /// Its value; `None`: it goes.
    value: Option<Vec<u8>>,
    mode: SetXattrMode,
    /// The inode's new permissions (12 bits), if they change, too.
    permissions: Option<u32>,
}

/// What else changes of the inode in the same Op, after the time of its change was set to the present.
pub(crate) type Also<'a> = &'a dyn Fn(&mut InodeState);

/// Changes one attribute as `wish` says when asked with the state locked. Tries with `blocks` reserved first.
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
    // What takes no room must be possible on a full volume.
    let frees = blocks == 0;
    loop {
        let near = store.near(cell.no);
        let reserved =
            if frees { store.reserve_freely(near, blocks)? } else { store.reserve(near, blocks)? };
        let mut state = cell.state.write();
        state.check_alive()?;
        if file::must_keep(store, cell, &state)? {
            drop((state, reserved));
            file::preserve(store, cell, if frees { Room::Reserve } else { Room::Free })?;
            continue;
        }
        let wish = wish(&state)?;
        if !name.suits(&state.inode) && (wish.value.is_some() || name.namespace == XattrNamespace::User) {
            return Err(Error::NotPermitted { what: "this kind of file cannot have such an attribute" });
        }
        let mut pins = Pins::new();
        let kept = store.kept(&state, cell.no)?;
        let place = Place { kept, ..place(store, &state, cell.no) };
        let plan = place.plan(name, wish.value.as_deref(), wish.mode, &mut pins)?;
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
        // Not the present number: a cut may have come since the inode was looked at, and sees the attribute.
        let placed = plan.apply(&mut op, &mut state.inode, birth(kept));
        let stored = store_inode(&mut op, cell, &state);
        placed.stored(&mut op, stored);
        return Ok(());
    }
}

/// Where an inode's attributes are.
struct Place<'a> {
    meta: &'a Meta,
    seed: &'a [u8; 16],
    inode: &'a Inode,
    no: InodeNo,
    /// What was born then or before belongs to the past, too; for changes.
    kept: Number,
}

/// An attribute found.
struct Found {
    slot: u64,
    cell_len: usize,
    value_len: usize,
    chunk: Vec<u8>,
}

/// A change of one attribute, made ready.
struct Plan {
    tree: Tree,
    slot: u64,
    /// The keys of the cells that it has now.
    old: Vec<u64>,
    /// The cells that it will have.
    new: Vec<Vec<u8>>,
    flag: InodeFlags,
    /// Blocks to reserve.
    blocks: u32,
}

impl Place<'_> {
    /// The attribute, or the first free slot among those of its name's hash.
    fn locate(&self, tree: &Tree, name: Name<'_>) -> Result<std::result::Result<Found, u64>> {
        let first = name.key(self.seed);
        let mut free = first;
        let last = first | (HASH - 1);
        let found = tree.find(self.meta, &first.to_be_bytes(), &last.to_be_bytes(), |key, cell| {
            let key = u64::from_be_bytes(key.try_into().expect("the walk checked the keys' width"));
            if key & !(SLOT - 1) == free {
                free += SLOT;
            }
            if key & (SLOT - 1) != 0 {
                return None;
            }
            match XattrCell::decode(cell) {
                Ok(XattrCell::First { namespace, name: n, value_len, chunk }) => {
                    let same = namespace == name.namespace && n == name.name;
                    let (value_len, chunk) = (value_len as usize, chunk.to_vec());
                    same.then_some(Ok(Found { slot: key, cell_len: cell.len(), value_len, chunk }))
                }
                Ok(XattrCell::Rest(_)) => {
                    Some(Err(Corruption::new("xattr cell", "kind", "a first chunk", "another").of(self.no)))
                }
                Err(corruption) => Some(Err(corruption.of(self.no))),
            }
        })?;
        Ok(found.transpose()?.ok_or(free))
    }

    fn get(&self, name: Name<'_>) -> Result<Option<Vec<u8>>> {
        if self.inode.xattr_root.is_none() || !self.inode.flags.contains(name.flag()) {
            return Ok(None);
        }
        let tree = tree(self.meta, self.inode, self.no)?;
        let Ok(found) = self.locate(&tree, name)? else { return Ok(None) };
        let mut value = found.chunk;
        for i in 1..chunks_of(found.value_len) {
            let want = (found.value_len - value.len()).min(XATTR_CHUNK_BYTES);
            let key = found.slot + i as u64;
            let whole =
                tree.get(self.meta, &key.to_be_bytes(), |cell| match cell.map(XattrCell::decode) {
                    Some(Ok(XattrCell::Rest(bytes))) if bytes.len() == want => {
                        value.extend_from_slice(bytes);
                        true
                    }
                    _ => false,
                })?;
            if !whole {
                let expected = format!("chunk {i} of {want} bytes");
                return Err(Corruption::new("xattr", "value", expected, "another or none")
                    .of(self.no)
                    .into());
            }
        }
        Ok(Some(value))
    }

    fn list(&self) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        tree(self.meta, self.inode, self.no)?.scan(self.meta, &[0; 8], &mut |_, cell| {
            if let XattrCell::First { namespace, name, .. } =
                XattrCell::decode(cell).map_err(|c| c.of(self.no))?
            {
                names.push([namespace.prefix().as_bytes(), name].concat());
            }
            Ok(true)
        })?;
        Ok(names)
    }

    fn plan(
        &self,
        name: Name<'_>,
        value: Option<&[u8]>,
        mode: SetXattrMode,
        pins: &mut Pins,
    ) -> Result<Plan> {
        let tree = tree(self.meta, self.inode, self.no)?.keeping(self.kept);
        let (slot, old_len) = match (self.locate(&tree, name)?, mode) {
            (Ok(_), SetXattrMode::Create) => return Err(Error::Exists),
            (Err(_), SetXattrMode::Replace) => return Err(Error::NoAttribute),
            (Ok(found), _) => (found.slot, Some(found.cell_len)),
            (Err(free), _) if free & !(HASH - 1) == name.key(self.seed) => (free, None),
            (Err(_), _) => return Err(Error::HashFull { what: "attributes" }),
        };
        let (first, last) = (slot.to_be_bytes(), (slot | (SLOT - 1)).to_be_bytes());
        let mut old = Vec::new();
        tree.find(self.meta, &first, &last, |key, _| {
            old.push(u64::from_be_bytes(key.try_into().expect("the walk checked the keys' width")));
            (old.len() > CHUNKS_MAX).then_some(())
        })?;
        if old.len() > CHUNKS_MAX {
            return Err(Corruption::new("xattr", "chunks", "at most 64", "more").of(self.no).into());
        }
        tree.prepare(self.meta, &first, &last, pins)?;
        let new = value.map_or(Vec::new(), |value| cells(name, value));
        let blocks = match (&old[..], &new[..]) {
            (_, []) => 0,
            ([_], [cell]) if old_len.is_some_and(|len| cell.len() <= len) => 0,
            (_, [_]) => tree.blocks_for_inserts(1),
            (_, cells) => tree.blocks_for_run(cells.len(), CELL_BYTES),
        };
        let blocks = blocks + tree.blocks_for_copies(old.len() as u32);
        Ok(Plan { tree, slot, old, new, flag: name.flag(), blocks })
    }
}

impl Plan {
    fn is_nothing(&self) -> bool {
        self.old.is_empty() && self.new.is_empty()
    }

    /// Inside an Op. The caller stores the inode.
    fn apply(self, op: &mut Op<'_>, inode: &mut Inode, birth: Number) -> Placed {
        let Plan { mut tree, slot, old, new, .. } = self;
        inode.flags.set(self.flag, !new.is_empty());
        let mut all: Option<TreeDelta> = None;
        if let ([key], [cell]) = (&old[..], &new[..]) {
            let delta = tree.replace(op, &key.to_be_bytes(), cell);
            return keep(inode, &tree, delta);
        }
        for key in old {
            let delta = tree.remove(op, &key.to_be_bytes());
            all = Some(delta.after(op, all));
        }
        for (i, cell) in new.iter().enumerate() {
            let delta = tree.insert_run(op, &(slot + i as u64).to_be_bytes(), cell, birth);
            all = Some(delta.after(op, all));
        }
        match all {
            Some(delta) => keep(inode, &tree, delta),
            None => Placed::Inside,
        }
    }
}

/// The tree of an inode's attributes.
///
/// # Errors
/// Reading its root may fail.
pub(crate) fn tree(meta: &Meta, inode: &Inode, no: InodeNo) -> Result<Tree> {
    Tree::at_root(meta, inode.xattr_root, BlockKind::Xattrs, no, inode.incarnation)
}

/// Takes the changed tree into the inode.
fn keep(inode: &mut Inode, tree: &Tree, delta: TreeDelta) -> Placed {
    inode.xattr_root = tree.root;
    inode.blocks = inode.blocks.saturating_add_signed(i64::from(delta.nodes));
    Placed::InTree(delta)
}

fn chunks_of(value_len: usize) -> usize {
    value_len.div_ceil(XATTR_CHUNK_BYTES).max(1)
}

/// The cells of an attribute, encoded.
fn cells(name: Name<'_>, value: &[u8]) -> Vec<Vec<u8>> {
    let (chunk, rest) = value.split_at(value.len().min(XATTR_CHUNK_BYTES));
    let Name { namespace, name } = name;
    let first = XattrCell::First { namespace, name, value_len: value.len() as u32, chunk };
    let rest = rest.chunks(XATTR_CHUNK_BYTES).map(|chunk| XattrCell::Rest(chunk).encode());
    std::iter::once(first.encode()).chain(rest).collect()
}

#[cfg(test)]
mod calls;
#[cfg(test)]
mod tests;
