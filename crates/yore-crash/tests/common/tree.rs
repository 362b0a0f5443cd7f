//! What is below a directory, for tests of rollbacks.

use std::collections::BTreeMap;
use std::path::PathBuf;
use yore_fs::{FileKind, InodeNo, View};

/// Of each path below a directory kind, permissions, flags, owner, extended attributes and content; of what is no directory also the
/// time, of symbolic links not that.
pub type Tree = BTreeMap<PathBuf, String>;

/// Reads it.
pub fn tree(view: &View, root: InodeNo) -> Tree {
    let (mut all, mut left) = (Tree::new(), vec![(PathBuf::new(), root)]);
    while let Some((path, no)) = left.pop() {
        let attr = view.getattr(no).unwrap();
        // The past shows no set-id bits.
        let permissions = attr.permissions & 0o1777;
        let mut what = format!("{:?} {permissions:o} {:?} {} {}", attr.kind, attr.flags, attr.uid, attr.gid);
        match attr.kind {
            FileKind::Directory => {
                view.readdir(no, 0, &mut |item| {
                    if item.name != b"." && item.name != b".." {
                        left.push((path.join(String::from_utf8_lossy(item.name).as_ref()), item.inode));
                    }
                    true
                })
                .unwrap();
            }
            FileKind::Regular => {
                let mut bytes = vec![0; attr.size as usize];
                assert_eq!(view.read(no, 0, &mut bytes).unwrap(), bytes.len());
                let sum = bytes.iter().fold(0u64, |sum, b| sum.wrapping_mul(31).wrapping_add(u64::from(*b)));
                what += &format!(" {:?} {} {sum}", attr.mtime, attr.size);
            }
            FileKind::Symlink => {
                what += &format!(" {:?}", String::from_utf8_lossy(&view.readlink(no).unwrap()))
            }
            _ => what += &format!(" {:?} {}", attr.mtime, attr.rdev),
        }
        for name in view.listxattr(no).unwrap() {
            what += &format!(" {name:?}={:?}", view.getxattr(no, &name).unwrap());
        }
        all.insert(path, what);
    }
    all
}
