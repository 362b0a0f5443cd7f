//! Reads everything that a view shows at and below a directory. Each test compares the part that its promise
//! is about.

#![allow(dead_code)] // Each test compares its own part.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use yore_fs::{Attr, DirItem, FileKind, InodeNo, View};

/// What a path leads to.
pub struct Found {
    /// From the directory, which is the empty path itself.
    pub path: PathBuf,
    pub attr: Attr,
    /// Bytes of a file, target of a symbolic link, else nothing.
    pub content: Vec<u8>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Reads a directory and everything below it, each directory before its content. The directory is found by
/// its number: nobody keeps the path of a directory that a snapshot has seen.
pub fn read_tree(view: &View, root: InodeNo) -> Vec<Found> {
    let (mut all, mut left) = (Vec::new(), vec![(PathBuf::new(), root)]);
    while let Some((path, inode)) = left.pop() {
        let attr = view.getattr(inode).unwrap();
        let mut content = Vec::new();
        match attr.kind {
            FileKind::Regular => {
                content = vec![0; attr.size as usize];
                assert_eq!(view.read(inode, 0, &mut content).unwrap(), content.len());
            }
            FileKind::Symlink => content = view.readlink(inode).unwrap(),
            FileKind::Directory => {
                let below = &mut |item: DirItem<'_>| {
                    if item.name != b"." && item.name != b".." {
                        left.push((path.join(OsStr::from_bytes(item.name)), item.inode));
                    }
                    true
                };
                view.readdir(inode, 0, below).unwrap();
            }
            _ => {}
        }
        let value = |name: Vec<u8>| (name.clone(), view.getxattr(inode, &name).unwrap());
        let xattrs = view.listxattr(inode).unwrap().into_iter().map(value).collect();
        all.push(Found { path, attr, content, xattrs });
    }
    all
}
