//! Walks over all inodes below a directory.

use crate::{DirItem, Error, FileKind, InodeNo, Node, Result, View};
use hashbrown::HashSet;
use std::sync::Arc;
use yore_core::inode::InodeCell;

/// Calls `each` with a directory and all inodes that have a name below it, each once; with anything else,
/// only with that. What others remove meanwhile may be left out. O(inodes).
///
/// # Errors
/// Damage and device errors, and those of `each`.
pub(crate) fn each_below(
    view: &View,
    start: InodeNo,
    each: &mut dyn FnMut(&Arc<InodeCell>) -> Result<()>,
) -> Result<()> {
    let (view, store) = (view.present(), view.store());
    let first = store.cell(start)?;
    let is_directory = first.state.read().inode.is_directory();
    each(&first)?;
    drop(first);
    if !is_directory {
        return Ok(());
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
            match store.cell(no) {
                Err(Error::NotFound | Error::Stale) => {}
                other => each(&other?)?,
            }
        }
    }
    Ok(())
}
