//! What is below a directory, for tests of rollbacks.

use super::reading::{read_tree, Found};
use std::collections::BTreeMap;
use std::path::PathBuf;
use yore_fs::{FileKind, InodeNo, View};

/// For each path below a directory: kind, permissions, flags, owner, extended attributes and content, and the
/// time of everything but directories and symbolic links.
pub type Tree = BTreeMap<PathBuf, String>;

/// Reads the tree below a directory.
pub fn tree(view: &View, root: InodeNo) -> Tree {
    let mut all = Tree::new();
    for Found { path, attr, content, xattrs } in read_tree(view, root) {
        // The past shows no set-id bits.
        let permissions = attr.permissions & 0o1777;
        let mut what = format!("{:?} {permissions:o} {:?} {} {}", attr.kind, attr.flags, attr.uid, attr.gid);
        match attr.kind {
            FileKind::Directory => {}
            FileKind::Regular => {
                let sum =
                    content.iter().fold(0u64, |sum, b| sum.wrapping_mul(31).wrapping_add(u64::from(*b)));
                what += &format!(" {:?} {} {sum}", attr.mtime, attr.size);
            }
            FileKind::Symlink => what += &format!(" {:?}", String::from_utf8_lossy(&content)),
            _ => what += &format!(" {:?} {}", attr.mtime, attr.rdev),
        }
        for (name, value) in xattrs {
            what += &format!(" {name:?}={value:?}");
        }
        all.insert(path, what);
    }
    all
}
