//! Walks over all inodes below a directory, and over all states that a volume has of its inodes.

use crate::history::record::VersionsWalk;
use crate::{DirItem, Error, FileKind, InodeNo, Node, Result, View};
use hashbrown::HashSet;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use yore_core::inode::InodeCell;
use yore_format::Version;

/// Calls `each` with a directory and all inodes that have a name below it, each once; with anything else,
/// only with that. Ends when `each` says so, and returns what it said. What others remove meanwhile may be
/// left out. O(inodes).
///
/// # Errors
/// Damage and device errors, and those of `each`.
pub(crate) fn each_below(
    view: &View,
    start: InodeNo,
    each: &mut dyn FnMut(&Arc<InodeCell>) -> Result<ControlFlow<()>>,
) -> Result<ControlFlow<()>> {
    let (view, store) = (view.present(), view.store());
    let first = store.cell(start)?;
    let is_directory = first.state.read().inode.is_directory();
    if each(&first)?.is_break() {
        return Ok(ControlFlow::Break(()));
    }
    drop(first);
    if !is_directory {
        return Ok(ControlFlow::Continue(()));
    }
    let (mut left, mut met, mut several) = (vec![start], HashSet::new(), HashSet::new());
    while let Some(directory) = left.pop() {
        // This also ends where damage makes a circle.
        if !met.insert(directory) {
            continue;
        }
        let mut below = Vec::new();
        let mut add = |item: DirItem<'_>, node: Option<Node>| {
            if let Some(node) = node.filter(|_| !matches!(item.name, b"." | b"..")) {
                let attr = node.attr();
                below.push((attr.inode, attr.kind, attr.links));
            }
            true
        };
        match view.readdir_plus(directory, 0, &mut add) {
            // It was removed meanwhile, or somebody only keeps it open.
            Err(Error::NotFound | Error::Stale) => continue,
            other => other?,
        };
        for (no, kind, links) in below {
            if kind == FileKind::Directory {
                left.push(no);
            } else if links > 1 && !several.insert(no) {
                continue;
            }
            let cell = match store.cell(no) {
                Err(Error::NotFound | Error::Stale) => continue,
                other => other?,
            };
            if each(&cell)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Calls `each` with all inodes that have a name, each once, and with those without a name that are in use.
/// As [`each_below`].
pub(crate) fn each_inode(
    view: &View,
    each: &mut dyn FnMut(&Arc<InodeCell>) -> Result<ControlFlow<()>>,
) -> Result<ControlFlow<()>> {
    if each_below(view, view.root(), each)?.is_break() {
        return Ok(ControlFlow::Break(()));
    }
    for cell in view.store().inodes.select(|cell| cell.unlinked.load(Ordering::Acquire)) {
        if each(&cell)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Versions that are looked at under one hold of the lock that keeps forgetting back.
const BATCH: usize = 64;

/// An inode as it is, or as the past has it.
pub(crate) enum State<'a> {
    Present(&'a Arc<InodeCell>),
    Version(InodeNo, &'a Version),
}

/// Calls `each` with all inodes of the volume, those without a name included, and then with all versions that
/// the past has, which are not forgotten meanwhile. Ends when `each` says so, and returns what it said. What
/// others remove or record meanwhile may be left out. O(inodes and versions).
///
/// # Errors
/// [`Error::ReadOnly`] for a view of the past; damage and device errors, and those of `each`.
pub(crate) fn each_state(
    view: &View,
    each: &mut dyn FnMut(State<'_>) -> Result<ControlFlow<()>>,
) -> Result<ControlFlow<()>> {
    let store = view.live()?;
    if each_inode(view, &mut |cell| each(State::Present(cell)))?.is_break() {
        return Ok(ControlFlow::Break(()));
    }
    let mut walk = VersionsWalk::default();
    loop {
        let _still = store.past.forgetting.lock();
        let Some(versions) = store.past.next_versions(&store.meta, &mut walk, BATCH)? else {
            return Ok(ControlFlow::Continue(()));
        };
        for (no, version) in &versions {
            if each(State::Version(*no, version))?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }
}
