//! Directories: names and what they mean. They lie in the directory's inode while they are few, and in a tree
//! when there are more.
//!
//! An entry's key is its *cookie*: a hash of the name under the volume's seed, with eight low bits that tell
//! the names of one hash apart, 256 at most. A name takes the first free cookie of its hash's run and keeps
//! it as long as the entry lives. So a listing can go on behind any cookie, whatever was added or removed
//! meanwhile. A name may lie behind a gap in its run (the entry there before it is gone), so a lookup reads
//! the run to its end; nearly all runs have one entry.
//!
//! Content of a directory's inode: nothing; up to 108 bytes of entries in cookie order; or the root of a
//! tree. Entries move to a tree when the next one does not fit, and never back: the content is *empty* again
//! when the last one goes. `size` counts the entries.
//!
//! A change of a directory inside an Op changes the inode in memory only, and the caller stores the inode: an
//! entry in the inode reaches the medium with it, an entry in a tree with its node. [`Unstored::stored`]
//! hides the difference.

use crate::store::Store;
use crate::{DirItem, Error, Result};
use yore_core::btree::{Path, Pins, Tree, TreeDelta, Unstored};
use yore_core::inode::InodeState;
use yore_format::{
    name_cookie, BlockKind, ContentKind, Corruption, DirEntry, EventNo, FileKind, Incarnation, Inode,
    InodeNo, INLINE_BYTES,
};
use yore_meta::{Meta, Op};

/// Cookies of `.` and `..`; those of entries start at 256.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
/// How many cookies one hash has.
const RUN: u64 = 0xff;
const COOKIE_BYTES: usize = 8;
/// The links of a directory without directories in it: its name, and its own `.`.
const LINKS_LEAST: u32 = 2;

/// What a name means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The entry's cookie.
    pub cookie: u64,
    /// The inode.
    pub inode: InodeNo,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Its type.
    pub kind: FileKind,
    /// The event number since which the name means it.
    pub birth: EventNo,
}

impl Found {
    fn new(cookie: u64, entry: &DirEntry<'_>) -> Found {
        let DirEntry { inode, incarnation, birth, kind, .. } = *entry;
        Found { cookie, inode, incarnation, kind, birth }
    }

    /// The same, with a later birth if the history before that birth is given up because its file is
    /// expunged. An entry that ends is recorded with this birth, because the record that the file had other
    /// names may go. The caller holds the lock on the state of the inode that the entry means.
    pub(crate) fn detach(self, store: &Store) -> Found {
        Found { birth: store.past.expunging.began(self.inode, self.incarnation, self.birth), ..self }
    }

    /// The entry that was found under a name.
    pub(crate) fn entry<'n>(&self, name: &'n [u8]) -> DirEntry<'n> {
        let Found { inode, incarnation, kind, birth, .. } = *self;
        DirEntry { inode, incarnation, birth, kind, name }
    }
}

/// Whether a directory has no entries.
pub(crate) fn is_empty(dir: &InodeState) -> bool {
    dir.inode.content_kind == ContentKind::Empty
}

/// Inside an Op: a directory has one directory less in it. Damage may have made the count too low. That must
/// not make it look like one that is gone, since it still has its name and what is in it.
pub(crate) fn lose_directory(dir: &mut InodeState) {
    dir.inode.links = dir.inode.links.saturating_sub(1).max(LINKS_LEAST);
}

/// Fails if an entry names the directory which it is in. Such an entry is damage, and nobody who has the
/// directory locked may lock what it names.
pub(crate) fn check_other(no: InodeNo, name: &[u8], found: &Found) -> Result<()> {
    if found.inode != no {
        return Ok(());
    }
    let found = format!("this directory itself as {}", String::from_utf8_lossy(name));
    Err(Corruption::new("directory", "entry", "another inode", found).of(no).into())
}

/// Looks a name up. O(log n), no heap memory.
pub(crate) fn find(store: &Store, dir: &InodeState, no: InodeNo, name: &[u8]) -> Result<Option<Found>> {
    find_in(&store.meta, &store.hash_seed, &dir.inode, no, name)
}

/// Calls `each` with the entries behind `after_cookie` (0: all) in cookie order until it returns `Ok(false)`.
/// `each` may read anything, but must not change this directory.
pub(crate) fn list(
    store: &Store,
    dir: &InodeState,
    no: InodeNo,
    after_cookie: u64,
    each: &mut dyn FnMut(u64, &DirEntry<'_>) -> Result<bool>,
) -> Result<()> {
    list_in(&store.meta, &dir.inode, no, after_cookie, each)
}

/// Calls `each` for `.` and `..` if they are behind a cookie. `up` says what is above, and is called only for
/// `..`. Returns the cookie behind which the entries follow; `None` if `each` returned false.
///
/// # Errors
/// Those of `up`.
pub(crate) fn list_dots(
    directory: InodeNo,
    cookie: u64,
    up: impl FnOnce() -> Result<InodeNo>,
    each: &mut dyn FnMut(DirItem<'_>) -> bool,
) -> Result<Option<u64>> {
    if cookie >= DOT_DOT {
        return Ok(Some(cookie));
    }
    for (this, inode, name) in [(DOT, directory, &b"."[..]), (DOT_DOT, up()?, b"..")] {
        let item = DirItem { inode, kind: FileKind::Directory, name, cookie: this };
        if cookie < this && !each(item) {
            return Ok(None);
        }
    }
    Ok(Some(DOT_DOT))
}

/// Where an entry is, or where a new one goes: its cookie, and the way to it if the directory has a tree.
pub(crate) struct Spot {
    cookie: u64,
    /// `None` if the change must find the way anew; then the pins keep the nodes.
    path: Option<Box<Path>>,
}

impl Spot {
    /// The entry's cookie.
    pub(crate) fn cookie(&self) -> u64 {
        self.cookie
    }
}

/// What the look-up of a name to be changed has found.
pub(crate) enum Lookup {
    /// There is such an entry; ready for [`remove`] and [`repoint`].
    Taken(Found, Spot),
    /// There is none; ready for [`insert`], which may need this many blocks.
    Free(Spot, u32),
    /// There is none, and 256 other names have the same hash.
    Full,
}

/// The error of [`Looked::Full`] for a caller that wants to make the name. It is not [`Error::NoSpace`]:
/// forgetting the past would not help.
pub(crate) const FULL: Error = Error::HashFull { what: "names in the directory" };

/// Looks a name up and prepares for changing it, in one walk. The directory stays locked for writing until
/// the change is made or dropped. `pins` keep in memory what the spot does not.
///
/// # Errors
/// Corruption; the device.
pub(crate) fn lookup_to_change(
    store: &Store,
    dir: &InodeState,
    no: InodeNo,
    name: &[u8],
    pins: &mut Pins,
) -> Result<Lookup> {
    lookup_in(&store.meta, &store.hash_seed, &dir.inode, no, name, pins)
}

/// Adds an entry at a free spot.
pub(crate) fn insert(
    op: &mut Op<'_>,
    store: &Store,
    dir: &mut InodeState,
    no: InodeNo,
    spot: Spot,
    entry: &DirEntry<'_>,
) -> Unstored {
    insert_in(op, &mut dir.inode, no, spot, entry, store.number())
}

/// Removes the entry at a spot.
pub(crate) fn remove(op: &mut Op<'_>, dir: &mut InodeState, no: InodeNo, spot: Spot) -> Unstored {
    remove_in(op, &mut dir.inode, no, spot)
}

/// Makes the entry at a spot mean another inode; `entry` has the same name.
pub(crate) fn repoint(
    op: &mut Op<'_>,
    dir: &mut InodeState,
    no: InodeNo,
    spot: Spot,
    entry: &DirEntry<'_>,
) -> Unstored {
    repoint_in(op, &mut dir.inode, no, spot, entry)
}

fn find_in(meta: &Meta, seed: &[u8; 16], inode: &Inode, no: InodeNo, name: &[u8]) -> Result<Option<Found>> {
    let first = name_cookie(seed, name);
    let last = first | RUN;
    if inode.content_kind != ContentKind::Tree {
        for item in Inline::of(inode) {
            let (cookie, entry, _) = item.map_err(|c| c.of(no))?;
            if entry.name == name && (first..=last).contains(&cookie) {
                return Ok(Some(Found::new(cookie, &entry)));
            }
        }
        return Ok(None);
    }
    let found = tree(inode, no).find(meta, &first.to_be_bytes(), &last.to_be_bytes(), |key, value| {
        match DirEntry::decode_named(value, name) {
            Ok(None) => None,
            Ok(Some(entry)) => Some(Ok(Found::new(cookie_of(key), &entry))),
            Err(corruption) => Some(Err(corruption.of(no))),
        }
    })?;
    Ok(found.transpose()?)
}

fn lookup_in(
    meta: &Meta,
    seed: &[u8; 16],
    inode: &Inode,
    no: InodeNo,
    name: &[u8],
    pins: &mut Pins,
) -> Result<Lookup> {
    let first = name_cookie(seed, name);
    if inode.content_kind != ContentKind::Tree {
        return lookup_inline(inode, no, name, first);
    }
    let (tree, last) = (tree(inode, no), first | RUN);
    let seen = tree.path_to(meta, &first.to_be_bytes(), pins, |leaf| {
        let mut free = first;
        for (key, value) in leaf.cells() {
            let cookie = cookie_of(key);
            if cookie > last {
                break;
            }
            if let Some(entry) = DirEntry::decode_named(value, name).map_err(|c| c.of(no))? {
                return Ok(Some((cookie.to_be_bytes(), Ok(Found::new(cookie, &entry)))));
            }
            free += u64::from(cookie == free);
        }
        // Nearly all runs have one cookie. A run that goes on in the next leaf, or is full, is examined in
        // steps.
        Ok((free <= last && leaf.holds(&last.to_be_bytes())).then(|| (free.to_be_bytes(), Err(free))))
    })?;
    match seen {
        Some((path, Ok(found))) => Ok(Lookup::Taken(found, Spot { cookie: found.cookie, path: Some(path) })),
        Some((path, Err(cookie))) => {
            Ok(Lookup::Free(Spot { cookie, path: Some(path) }, tree.blocks_for_inserts(1)))
        }
        None => lookup_in_run(meta, &tree, no, name, first, pins),
    }
}

fn lookup_inline(inode: &Inode, no: InodeNo, name: &[u8], first: u64) -> Result<Lookup> {
    let (mut free, mut found) = (first, None);
    let mut bytes = COOKIE_BYTES + yore_format::DIRENT_FIXED_BYTES + name.len();
    // Reads to the end, even if the name is found early: a change moves what follows.
    for item in Inline::of(inode) {
        let (cookie, entry, range) = item.map_err(|c| c.of(no))?;
        if entry.name == name && (first..=first | RUN).contains(&cookie) {
            found.get_or_insert(Found::new(cookie, &entry));
        }
        bytes += range.len();
        free += u64::from(cookie == free);
    }
    Ok(match found {
        Some(found) => Lookup::Taken(found, Spot { cookie: found.cookie, path: None }),
        None => Lookup::Free(Spot { cookie: free, path: None }, u32::from(bytes > INLINE_BYTES)),
    })
}

/// As [`lookup_in`], for a run of any length in any number of leaves.
fn lookup_in_run(
    meta: &Meta,
    tree: &Tree,
    no: InodeNo,
    name: &[u8],
    first: u64,
    pins: &mut Pins,
) -> Result<Lookup> {
    let last = first | RUN;
    let mut free = first;
    let found = tree.find(meta, &first.to_be_bytes(), &last.to_be_bytes(), |key, value| {
        free += u64::from(cookie_of(key) == free);
        let entry = DirEntry::decode_named(value, name).transpose()?;
        Some(entry.map(|entry| Found::new(cookie_of(key), &entry)).map_err(|c| c.of(no)))
    })?;
    let found = found.transpose()?;
    if found.is_none() && free > last {
        return Ok(Lookup::Full);
    }
    let cookie = found.map_or(free, |found| found.cookie);
    tree.prepare(meta, &cookie.to_be_bytes(), &cookie.to_be_bytes(), pins)?;
    let spot = Spot { cookie, path: None };
    Ok(match found {
        Some(found) => Lookup::Taken(found, spot),
        None => Lookup::Free(spot, tree.blocks_for_inserts(1)),
    })
}

fn list_in(
    meta: &Meta,
    inode: &Inode,
    no: InodeNo,
    after_cookie: u64,
    each: &mut dyn FnMut(u64, &DirEntry<'_>) -> Result<bool>,
) -> Result<()> {
    if inode.content_kind != ContentKind::Tree {
        for item in Inline::of(inode) {
            let (cookie, entry, _) = item.map_err(|c| c.of(no))?;
            if cookie > after_cookie && !each(cookie, &entry)? {
                break;
            }
        }
        return Ok(());
    }
    let Some(from) = after_cookie.checked_add(1) else { return Ok(()) };
    tree(inode, no).scan(meta, &from.to_be_bytes(), &mut |key, value| {
        each(cookie_of(key), &DirEntry::decode(value).map_err(|c| c.of(no))?)
    })
}

fn insert_in(
    op: &mut Op<'_>,
    inode: &mut Inode,
    no: InodeNo,
    spot: Spot,
    entry: &DirEntry<'_>,
    birth: EventNo,
) -> Unstored {
    inode.size += 1;
    let key = spot.cookie.to_be_bytes();
    let mut bytes = [0; COOKIE_BYTES + yore_format::DIRENT_FIXED_BYTES + yore_format::NAME_MAX];
    let item = &mut bytes[..COOKIE_BYTES + entry.encoded_len()];
    item[..COOKIE_BYTES].copy_from_slice(&key);
    entry.encode_into(&mut item[COOKIE_BYTES..]);
    if inode.content_kind == ContentKind::Tree {
        let mut tree = tree(inode, no);
        let delta = tree.insert_at(op, spot.path, &key, &item[COOKIE_BYTES..], birth);
        return store_tree(inode, &tree, delta);
    }
    let old = inode.inline();
    if old.len() + item.len() <= INLINE_BYTES {
        let behind = Inline::of(inode).map(checked).find(|(c, ..)| *c > spot.cookie);
        let (at, len) = (behind.map_or(old.len(), |e| e.2.start), item.len());
        let mut all = [0; INLINE_BYTES];
        all[..at].copy_from_slice(&old[..at]);
        all[at..at + len].copy_from_slice(item);
        all[at + len..old.len() + len].copy_from_slice(&old[at..]);
        let end = old.len() + len;
        inode.set_inline(&all[..end]);
        return Unstored::Inside;
    }
    let mut tree = Tree::empty(BlockKind::Directory, no, inode.incarnation);
    let mut moved: Option<TreeDelta> = None;
    for (cookie, _, range) in Inline::of(inode).map(checked) {
        let delta = tree.insert(op, &cookie.to_be_bytes(), &old[range][COOKIE_BYTES..], birth);
        moved = Some(delta.after(moved));
    }
    let delta = tree.insert(op, &key, &item[COOKIE_BYTES..], birth);
    let delta = delta.after(moved);
    store_tree(inode, &tree, delta)
}

fn remove_in(op: &mut Op<'_>, inode: &mut Inode, no: InodeNo, spot: Spot) -> Unstored {
    // A wrong count is for the checker to find. It must not stop anybody from emptying the directory.
    inode.size = inode.size.saturating_sub(1);
    if inode.content_kind == ContentKind::Tree {
        let mut tree = tree(inode, no);
        let delta = tree.remove_at(op, spot.path, &spot.cookie.to_be_bytes());
        return store_tree(inode, &tree, delta);
    }
    let range = inline_range(inode, spot.cookie);
    let (end, len) = (inode.inline().len(), range.len());
    let mut bytes = inode.content;
    bytes.copy_within(range.end..end, range.start);
    inode.set_inline(&bytes[..end - len]);
    Unstored::Inside
}

fn repoint_in(op: &mut Op<'_>, inode: &mut Inode, no: InodeNo, spot: Spot, entry: &DirEntry<'_>) -> Unstored {
    let mut bytes = [0; yore_format::DIRENT_FIXED_BYTES + yore_format::NAME_MAX];
    let value = &mut bytes[..entry.encoded_len()];
    entry.encode_into(value);
    if inode.content_kind == ContentKind::Tree {
        let mut tree = tree(inode, no);
        let delta = tree.replace_at(op, spot.path, &spot.cookie.to_be_bytes(), value);
        return store_tree(inode, &tree, delta);
    }
    let range = inline_range(inode, spot.cookie);
    assert_eq!(range.len(), COOKIE_BYTES + value.len(), "another name under the same cookie");
    inode.content[range][COOKIE_BYTES..].copy_from_slice(value);
    Unstored::Inside
}

/// The directory's tree, if its content is a tree.
pub(crate) fn tree(inode: &Inode, no: InodeNo) -> Tree {
    Tree {
        root: inode.tree_root(),
        level: inode.content_level,
        ..Tree::empty(BlockKind::Directory, no, inode.incarnation)
    }
}

/// Stores the changed tree in the inode.
fn store_tree(inode: &mut Inode, tree: &Tree, delta: TreeDelta) -> Unstored {
    if tree.is_empty() {
        inode.set_inline(&[]);
    } else {
        inode.set_tree_root(tree.root, tree.level);
    }
    inode.blocks = inode.blocks.saturating_add_signed(i64::from(delta.nodes));
    Unstored::InTree(delta)
}

fn cookie_of(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().expect("a directory's keys have eight bytes, as the walk checked"))
}

type InlineItem<'a> = (u64, DirEntry<'a>, std::ops::Range<usize>);

/// Entries in an inode that prepare found sound.
fn checked(item: std::result::Result<InlineItem<'_>, Box<Corruption>>) -> InlineItem<'_> {
    item.expect("checked before the Op opened")
}

fn inline_range(inode: &Inode, cookie: u64) -> std::ops::Range<usize> {
    Inline::of(inode)
        .map(checked)
        .find(|(c, ..)| *c == cookie)
        .map(|(_, _, range)| range)
        .unwrap_or_else(|| panic!("no entry with cookie {cookie:#x}"))
}

/// The entries in an inode, each with its cookie and the number of bytes that both take. Ends after the first
/// damage.
struct Inline<'a> {
    bytes: &'a [u8],
    at: usize,
    last: u64,
}

impl<'a> Inline<'a> {
    fn of(inode: &'a Inode) -> Inline<'a> {
        Inline { bytes: inode.inline(), at: 0, last: 0 }
    }

    fn decode(&self) -> std::result::Result<InlineItem<'a>, Box<Corruption>> {
        let rest = &self.bytes[self.at..];
        let Some((cookie, rest)) = rest.split_first_chunk::<COOKIE_BYTES>() else {
            return Err(Corruption::new("directory in an inode", "length", "whole entries", rest.len()));
        };
        let cookie = u64::from_be_bytes(*cookie);
        if cookie <= self.last {
            let expected = format!("above {:#x}", self.last);
            return Err(Corruption::new("directory in an inode", "cookie", expected, format!("{cookie:#x}")));
        }
        let (entry, len) = DirEntry::decode_prefix(rest)?;
        Ok((cookie, entry, self.at..self.at + COOKIE_BYTES + len))
    }
}

impl<'a> Iterator for Inline<'a> {
    type Item = std::result::Result<InlineItem<'a>, Box<Corruption>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let item = self.decode();
        match &item {
            Ok((cookie, _, range)) => (self.last, self.at) = (*cookie, range.end),
            Err(_) => self.at = self.bytes.len(),
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests;
