//! In what two states of one inode differ.

use super::answer::What;
use crate::history::read::at_time::{self, with};
use crate::store::Store;
use crate::{Error, InodeNo, Result};
use std::sync::Arc;
use yore_core::extent;
use yore_core::inode::InodeState;
use yore_format::{ContentKind, EventNo, Inode, InodeFlags, BLOCK_SIZE};

/// How the state of an inode as of `newer` differs from that as of `older`; both are of one incarnation, and
/// events have seen both. States with the same birth are the same. The content is not read: blocks that an
/// event has seen are never written again, so equal blocks mean equal content. O(log); O(extents · log) for a
/// file that was changed and has the same size; and the bytes of its attributes if one was changed.
/// # Errors
/// `NotFound` if there is no such inode at one of the two times; damage and device errors.
pub(super) fn changes(store: &Arc<Store>, no: InodeNo, older: EventNo, newer: EventNo) -> Result<What> {
    loop {
        let (was, is_version) =
            with(store, no, older, |cell, state| Ok((state.inode.clone(), cell.is_version())))?;
        let found = with(store, no, newer, |_, state| {
            if state.inode.born == was.born {
                return Ok(Some((What::empty(), false)));
            }
            // The inode has become a version in between, and may have been written back before that.
            if !is_version {
                return Ok(None);
            }
            let mut what = in_inodes(&was, &state.inode);
            if was.is_regular() && !same_content(store, no, &was, state)? {
                what |= What::CONTENT;
            }
            Ok(Some((what, was.xattr_root != state.inode.xattr_root)))
        })?;
        let Some((mut what, compare_xattrs)) = found else { continue };
        if compare_xattrs && xattrs(store, no, older)? != xattrs(store, no, newer)? {
            what |= What::XATTRS;
        }
        return Ok(what);
    }
}

/// The differences that two inodes show by themselves.
pub(super) fn in_inodes(was: &Inode, is: &Inode) -> What {
    let mut what = What::empty();
    let metadata = |of: &Inode| (of.mode, of.uid, of.gid, of.rdev, of.flags & InodeFlags::CHOSEN);
    what.set(What::METADATA, metadata(was) != metadata(is));
    what.set(What::TIME, was.mtime != is.mtime);
    what.set(What::CONTENT, was.is_directory() && was.mtime != is.mtime);
    what.set(What::LINKS, was.links != is.links);
    what
}

/// All extended attributes, by name.
///
/// # Errors
/// `NotFound`; damage and device errors.
pub(super) fn xattrs(store: &Arc<Store>, no: InodeNo, event: EventNo) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = at_time::list_xattrs(store, no, event)?;
    names.sort_unstable();
    let mut all = Vec::with_capacity(names.len());
    for name in names {
        match at_time::get_xattr(store, no, event, &name) {
            Ok(value) => all.push((name, value)),
            Err(Error::NoAttribute) => {} // Gone meanwhile.
            Err(e) => return Err(e),
        }
    }
    Ok(all)
}

/// Whether a file has the same content as its version. Its state is locked.
fn same_content(store: &Store, no: InodeNo, was: &Inode, state: &InodeState) -> Result<bool> {
    let is = &state.inode;
    // Data that is not on the medium yet was written after the version, which was complete when it was made.
    if was.size != is.size || state.data.is_busy() {
        return Ok(false);
    }
    let is_inline = |inode: &Inode| inode.content_kind == ContentKind::Inline;
    if is_inline(was) || is_inline(is) {
        return Ok(is_inline(was) && is_inline(is) && was.inline() == is.inline());
    }
    if (was.content_kind, &was.content) == (is.content_kind, &is.content) {
        return Ok(true);
    }
    let (blocks, mut at) = (was.size.div_ceil(BLOCK_SIZE as u64), 0);
    while at < blocks {
        let find = |inode| extent::mapping(&store.meta, &store.alloc, no, inode, at);
        let (then, now) = (find(was)?, find(is)?);
        let start = |mapping: &extent::Mapping| mapping.extent.filter(|e| !e.unwritten).map(|e| e.start);
        if start(&then) != start(&now) {
            return Ok(false);
        }
        at = at.saturating_add(then.len.min(now.len).max(1));
    }
    Ok(true)
}
