//! Walks through a view: everything that can be seen of it, as a [`Tree`].

use crate::model::{Block, BLOCK};
use crate::op::Name;
use crate::tree::{Facts, Inside, Node as TreeNode, Tree};
use std::collections::BTreeMap;
use std::sync::Arc;
use yore_fs::{Error, FileKind, InodeNo, SeekTo, View};

/// Walks everything below a directory.
///
/// # Errors
/// A message that says where a call failed. If answers contradict each other, the tree has the
/// contradictions.
pub fn observe(view: &View, root: InodeNo) -> Result<Tree, String> {
    walk(view, root, false)
}

/// The same for a volume whose engine orders changes, after a crash: a directory that was being renamed may
/// have both of its names, and its parent may be the one of the other name.
///
/// # Errors
/// As [`observe`].
pub fn observe_ordered(view: &View, root: InodeNo) -> Result<Tree, String> {
    walk(view, root, true)
}

fn walk(view: &View, root: InodeNo, is_ordered: bool) -> Result<Tree, String> {
    let mut tree = Tree { root: root.0, ..Tree::default() };
    // With the parent through which each was found; `None` for the root, whose parent may lie outside.
    let mut waiting = vec![(root, None)];
    while let Some((inode, above)) = waiting.pop() {
        let failed = |what: &str, error: Error| format!("{what} of inode {inode}: {error}");
        let attr = view.getattr(inode).map_err(|error| failed("getattr", error))?;
        let mut xattrs = BTreeMap::new();
        for name in view.listxattr(inode).map_err(|error| failed("listxattr", error))? {
            let value = view.getxattr(inode, &name).map_err(|error| failed("getxattr", error))?;
            xattrs.insert(Name::from(name), Arc::from(value));
        }
        let inside = match attr.kind {
            FileKind::Directory => observe_directory(
                view,
                inode,
                above.filter(|_| !is_ordered),
                is_ordered,
                &mut tree,
                &mut waiting,
            )
            .map_err(|e| failed("listing", e))?,
            FileKind::Regular => Inside::File {
                size: attr.size,
                blocks: content(view, inode, attr.size).map_err(|error| failed("read", error))?,
            },
            FileKind::Symlink => {
                let target = view.readlink(inode).map_err(|error| failed("readlink", error))?;
                if attr.size != target.len() as u64 {
                    tree.contradictions.push(format!(
                        "symbolic link {inode}: size {} of a target of {}",
                        attr.size,
                        target.len()
                    ));
                }
                Inside::Symlink(Name::from(target))
            }
            _ => Inside::Special,
        };
        tree.nodes.insert(inode.0, TreeNode { facts: Facts::of(&attr), xattrs, inside });
    }
    Ok(tree)
}

/// Lists a directory, a few entries at a time so that cookies are used, and looks each name up.
fn observe_directory(
    view: &View,
    inode: InodeNo,
    above: Option<InodeNo>,
    may_have_two_names: bool,
    tree: &mut Tree,
    waiting: &mut Vec<(InodeNo, Option<InodeNo>)>,
) -> Result<Inside, Error> {
    let mut entries = BTreeMap::new();
    let parent = view.parent(inode)?;
    if above.is_some_and(|above| above != parent) {
        tree.contradictions.push(format!("directory {inode} is found in {above:?}, its parent is {parent}"));
    }
    let listed = list(view, inode, 3)?;
    let dots: Vec<_> = listed.iter().take(2).map(|entry| (&entry.0[..], entry.1)).collect();
    if dots != [(b".".as_slice(), inode.0), (b"..".as_slice(), parent.0)] {
        tree.contradictions.push(format!("directory {inode} begins with {dots:?}"));
    }
    for (name, number, kind) in listed.into_iter().skip(2) {
        let node = view.lookup(inode, &name)?;
        let attr = node.attr();
        if (attr.inode.0, attr.kind) != (number, kind) {
            tree.contradictions.push(format!(
                "directory {inode}: {} is listed as {number} {kind:?} and looked up as {} {:?}",
                crate::op::show_name(&name),
                attr.inode,
                attr.kind
            ));
        }
        let seen = tree.nodes.contains_key(&number) || waiting.iter().any(|(waits, _)| waits.0 == number);
        if !seen {
            waiting.push((InodeNo(number), Some(inode)));
        } else if kind == FileKind::Directory && !may_have_two_names {
            tree.contradictions.push(format!("directory {number} has two names"));
        }
        if entries.insert(name.clone(), (number, kind)).is_some() {
            tree.contradictions.push(format!("{} is listed twice", crate::op::show_name(&name)));
        }
    }
    Ok(Inside::Directory { entries, parent: parent.0 })
}

/// All entries of a directory, `batch` to a call.
pub(super) fn list(
    view: &View,
    directory: InodeNo,
    batch: usize,
) -> Result<Vec<(Name, u64, FileKind)>, Error> {
    let mut entries = Vec::new();
    let mut cookie = 0;
    loop {
        let before = entries.len();
        view.readdir(directory, cookie, &mut |item| {
            entries.push((Name::from(item.name), item.inode.0, item.kind));
            cookie = item.cookie;
            entries.len() - before < batch
        })?;
        // An endless listing shows by its length; a sequence makes far fewer entries.
        if entries.len() - before < batch || entries.len() > 100_000 {
            return Ok(entries);
        }
    }
}

/// Beyond this many bytes content is read only where there is data.
const READ_ALL_MAX: u64 = 2 << 20;

/// The blocks of a file that are not all zeros.
fn content(view: &View, inode: InodeNo, size: u64) -> Result<BTreeMap<u64, Arc<Block>>, Error> {
    let mut blocks = BTreeMap::new();
    if size <= READ_ALL_MAX {
        read_blocks(view, inode, 0, size, &mut blocks)?;
        return Ok(blocks);
    }
    let mut at = 0;
    while at < size {
        let from = match view.seek(inode, at, SeekTo::Data) {
            Ok(from) => from,
            Err(Error::NoDataThere) => break,
            Err(error) => return Err(error),
        };
        let to = view.seek(inode, from, SeekTo::Hole)?;
        let start = from - from % BLOCK as u64;
        read_blocks(view, inode, start, to.min(size), &mut blocks)?;
        if to <= at {
            return Err(Error::Invalid { what: "seek does not move on" });
        }
        at = to;
    }
    Ok(blocks)
}

fn read_blocks(
    view: &View,
    inode: InodeNo,
    start: u64,
    end: u64,
    blocks: &mut BTreeMap<u64, Arc<Block>>,
) -> Result<(), Error> {
    const CHUNK: u64 = 64 * BLOCK as u64;
    let mut bytes = vec![0; CHUNK.min(end.saturating_sub(start)) as usize];
    let mut at = start;
    while at < end {
        let len = CHUNK.min(end - at) as usize;
        let mut filled = 0;
        while filled < len {
            let count = view.read(inode, at + filled as u64, &mut bytes[filled..len])?;
            if count == 0 {
                return Err(Error::Invalid { what: "read ends before the size" });
            }
            filled += count;
        }
        for (number, chunk) in bytes[..len].chunks(BLOCK).enumerate() {
            if chunk.iter().any(|byte| *byte != 0) {
                let mut block = [0; BLOCK];
                block[..chunk.len()].copy_from_slice(chunk);
                blocks.insert(at / BLOCK as u64 + number as u64, Arc::new(block));
            }
        }
        at += len as u64;
    }
    Ok(())
}
