//! Directories: names and what they mean, in the directory's inode while they are few, in a tree when they are more.
//!
//! An entry's key is its *cookie*: a hash of the name under the volume's seed with eight low bits that tell the names of
//! one hash apart, 256 at most. A name takes the first free cookie of its hash's run and keeps it as long as the entry
//! lives, so a listing can go on behind any cookie, whatever was added or removed meanwhile. A name may lie behind
//! a gap in its run (what was there before it is gone), so a lookup reads the run to its end; runs are nearly always of one.
//!
//! Content of a directory's inode: nothing; up to 108 bytes of entries in cookie order; or the root of a tree. Entries move
//! to a tree when the next one does not fit, and never back: the content is *empty* again when the last one goes.
//! `size` counts the entries.
//!
//! What changes a directory inside an Op changes the inode in memory only, and the caller stores it: an entry in the
//! inode reaches the medium with that, an entry in a tree with its node. [`Placed::stored`] hides the difference.

use crate::btree::{Pins, Placed, Tree, TreeDelta};
use crate::inode::InodeState;
use crate::store::Store;
use crate::{Error, Result};
use yore_format::{
    name_cookie, BlockKind, ContentKind, Corruption, DirEntry, FileKind, Incarnation, Inode, InodeNo, Number,
    INLINE_BYTES,
};
use yore_meta::{Meta, Op};

/// Cookies of one hash.
const RUN: u64 = 0xff;
const COOKIE_BYTES: usize = 8;

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
}

impl Found {
    fn new(cookie: u64, entry: &DirEntry<'_>) -> Found {
        Found { cookie, inode: entry.inode, incarnation: entry.incarnation, kind: entry.kind }
    }
}

/// Whether a directory has no entries.
pub(crate) fn is_empty(dir: &InodeState) -> bool {
    dir.inode.content_kind == ContentKind::Empty
}

/// Looks a name up. O(log n), no heap memory.
pub(crate) fn find(store: &Store, dir: &InodeState, no: InodeNo, name: &[u8]) -> Result<Option<Found>> {
    find_in(&store.meta, &store.hash_seed, &dir.inode, no, name)
}

/// Calls `each` with the entries behind `after_cookie` (0: all) in cookie order until it returns `Ok(false)`. `each` may read
/// what it likes, but not change this directory.
pub(crate) fn list(
    store: &Store,
    dir: &InodeState,
    no: InodeNo,
    after_cookie: u64,
    each: &mut dyn FnMut(u64, &DirEntry<'_>) -> Result<bool>,
) -> Result<()> {
    list_in(&store.meta, &dir.inode, no, after_cookie, each)
}

/// Makes ready for [`insert`] of a name that is not there: the cookie that it gets, and how many blocks to reserve.
///
/// # Errors
/// [`Error::NoSpace`] if 256 other names have the same hash; corruption; the device.
pub(crate) fn prepare_insert(
    store: &Store,
    dir: &InodeState,
    no: InodeNo,
    name: &[u8],
    pins: &mut Pins,
) -> Result<(u64, u32)> {
    prepare_insert_in(&store.meta, &store.hash_seed, &dir.inode, no, name, pins)
}

/// Makes ready for [`remove`] or [`repoint`] of an entry that is there.
pub(crate) fn prepare_change(
    store: &Store,
    dir: &InodeState,
    no: InodeNo,
    cookie: u64,
    pins: &mut Pins,
) -> Result<()> {
    prepare_change_in(&store.meta, &dir.inode, no, cookie, pins)
}

/// Adds an entry under the cookie that [`prepare_insert`] gave.
pub(crate) fn insert(
    op: &mut Op<'_>,
    store: &Store,
    dir: &mut InodeState,
    no: InodeNo,
    cookie: u64,
    entry: &DirEntry<'_>,
) -> Placed {
    insert_in(op, &mut dir.inode, no, cookie, entry, store.number())
}

/// Removes the entry with this cookie.
pub(crate) fn remove(
    op: &mut Op<'_>,
    _store: &Store,
    dir: &mut InodeState,
    no: InodeNo,
    cookie: u64,
) -> Placed {
    remove_in(op, &mut dir.inode, no, cookie)
}

/// Makes the entry with this cookie mean another inode; `entry` has the same name.
pub(crate) fn repoint(
    op: &mut Op<'_>,
    _store: &Store,
    dir: &mut InodeState,
    no: InodeNo,
    cookie: u64,
    entry: &DirEntry<'_>,
) -> Placed {
    repoint_in(op, &mut dir.inode, no, cookie, entry)
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
        match DirEntry::decode(value) {
            Ok(entry) if entry.name != name => None,
            Ok(entry) => Some(Ok(Found::new(cookie_of(key), &entry))),
            Err(corruption) => Some(Err(corruption.of(no))),
        }
    })?;
    Ok(found.transpose()?)
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

fn prepare_insert_in(
    meta: &Meta,
    seed: &[u8; 16],
    inode: &Inode,
    no: InodeNo,
    name: &[u8],
    pins: &mut Pins,
) -> Result<(u64, u32)> {
    let first = name_cookie(seed, name);
    let last = first | RUN;
    let mut free = first;
    if inode.content_kind != ContentKind::Tree {
        let mut bytes = COOKIE_BYTES + yore_format::DIRENT_FIXED_BYTES + name.len();
        for item in Inline::of(inode) {
            let (cookie, _, range) = item.map_err(|c| c.of(no))?;
            bytes += range.len();
            free += u64::from(cookie == free);
        }
        return Ok((free, u32::from(bytes > INLINE_BYTES)));
    }
    let tree = tree(inode, no);
    tree.find(meta, &first.to_be_bytes(), &last.to_be_bytes(), |key, _| {
        if cookie_of(key) != free {
            return Some(());
        }
        free += 1;
        None
    })?;
    if free > last {
        return Err(Error::NoSpace);
    }
    tree.prepare(meta, &free.to_be_bytes(), &free.to_be_bytes(), pins)?;
    Ok((free, tree.blocks_for_inserts(1)))
}

fn prepare_change_in(meta: &Meta, inode: &Inode, no: InodeNo, cookie: u64, pins: &mut Pins) -> Result<()> {
    if inode.content_kind != ContentKind::Tree {
        for item in Inline::of(inode) {
            item.map_err(|c| c.of(no))?;
        }
        return Ok(());
    }
    tree(inode, no).prepare(meta, &cookie.to_be_bytes(), &cookie.to_be_bytes(), pins)
}

fn insert_in(
    op: &mut Op<'_>,
    inode: &mut Inode,
    no: InodeNo,
    cookie: u64,
    entry: &DirEntry<'_>,
    birth: Number,
) -> Placed {
    inode.size += 1;
    let mut value = Vec::with_capacity(COOKIE_BYTES + entry.encoded_len());
    value.extend_from_slice(&cookie.to_be_bytes());
    entry.encode(&mut value);
    if inode.content_kind == ContentKind::Tree {
        let mut tree = tree(inode, no);
        let delta = tree.insert(op, &cookie.to_be_bytes(), &value[COOKIE_BYTES..], birth);
        return keep(inode, &tree, delta);
    }
    let old = inode.inline();
    if old.len() + value.len() <= INLINE_BYTES {
        let at = Inline::of(inode).map(checked).find(|(c, ..)| *c > cookie).map_or(old.len(), |e| e.2.start);
        let bytes = [&old[..at], &value, &old[at..]].concat();
        inode.set_inline(&bytes);
        return Placed::Inside;
    }
    let mut tree = Tree::empty(BlockKind::Directory, no, inode.incarnation);
    let mut moved: Option<TreeDelta> = None;
    for (cookie, _, range) in Inline::of(inode).map(checked) {
        let delta = tree.insert(op, &cookie.to_be_bytes(), &old[range][COOKIE_BYTES..], birth);
        moved = Some(delta.after(op, moved));
    }
    let delta = tree.insert(op, &cookie.to_be_bytes(), &value[COOKIE_BYTES..], birth);
    let delta = delta.after(op, moved);
    keep(inode, &tree, delta)
}

fn remove_in(op: &mut Op<'_>, inode: &mut Inode, no: InodeNo, cookie: u64) -> Placed {
    // A wrong count is for the checker to find; it must not stop anybody from emptying the directory.
    inode.size = inode.size.saturating_sub(1);
    if inode.content_kind == ContentKind::Tree {
        let mut tree = tree(inode, no);
        let delta = tree.remove(op, &cookie.to_be_bytes());
        return keep(inode, &tree, delta);
    }
    let range = inline_range(inode, cookie);
    let old = inode.inline();
    let bytes = [&old[..range.start], &old[range.end..]].concat();
    inode.set_inline(&bytes);
    Placed::Inside
}

fn repoint_in(op: &mut Op<'_>, inode: &mut Inode, no: InodeNo, cookie: u64, entry: &DirEntry<'_>) -> Placed {
    let mut value = Vec::with_capacity(entry.encoded_len());
    entry.encode(&mut value);
    if inode.content_kind == ContentKind::Tree {
        let mut tree = tree(inode, no);
        let delta = tree.replace(op, &cookie.to_be_bytes(), &value);
        return keep(inode, &tree, delta);
    }
    let range = inline_range(inode, cookie);
    assert_eq!(range.len(), COOKIE_BYTES + value.len(), "another name under the same cookie");
    let mut bytes = inode.inline().to_vec();
    bytes[range][COOKIE_BYTES..].copy_from_slice(&value);
    inode.set_inline(&bytes);
    Placed::Inside
}

/// The directory's tree, where its content is one.
fn tree(inode: &Inode, no: InodeNo) -> Tree {
    Tree {
        root: inode.tree_root(),
        level: inode.content_level,
        ..Tree::empty(BlockKind::Directory, no, inode.incarnation)
    }
}

/// Takes the changed tree into the inode.
fn keep(inode: &mut Inode, tree: &Tree, delta: TreeDelta) -> Placed {
    if tree.is_empty() {
        inode.set_inline(&[]);
    } else {
        inode.set_tree_root(tree.root, tree.level);
    }
    inode.blocks = inode.blocks.saturating_add_signed(i64::from(delta.nodes));
    Placed::InTree(delta)
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

/// The entries in an inode, each with its cookie and the bytes that both take. Ends after the first damage.
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
