//! Full copies of what an event has seen, with which past views are compared later.

// No test uses all of it.
#![allow(dead_code)]

use super::reading::{read_tree, Found};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use yore_fs::time::When;
use yore_fs::{EventNo, FileKind, InodeNo, Timestamp, View, Volume};

/// Kind, permissions, links (of directories), size, content, attributes.
pub type Copied = (FileKind, u32, u32, u64, Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>);
/// What is below a directory, by path.
pub type Tree = BTreeMap<PathBuf, Copied>;

/// A copy of a directory and everything below it; the paths are relative to it.
pub fn copy(view: &View, root: InodeNo) -> Tree {
    let copied = |Found { path, attr, content, xattrs }: Found| {
        // If one of a file's directories got an event, the file's other links may be elsewhere.
        let (links, size) = if attr.kind == FileKind::Directory { (attr.links, 0) } else { (0, attr.size) };
        (path, (attr.kind, attr.permissions & 0o1777, links, size, content, xattrs))
    };
    read_tree(view, root).into_iter().map(copied).collect()
}

/// A copy of the whole volume as it is.
pub fn copy_all(volume: &Volume) -> Tree {
    copy(volume.view(), volume.view().root())
}

/// An event, and the copy that was made of what it has seen.
pub struct Seen {
    pub event: EventNo,
    pub root: InodeNo,
    /// Empty if the event says that something was removed.
    pub copy: Tree,
    pub named: Option<Named>,
}

/// The directory and name under which a version of a file is found at its time.
pub struct Named {
    directory: InodeNo,
    incarnation: u32,
    name: Vec<u8>,
    time: Timestamp,
}

impl Named {
    /// For the version that a policy has just made of a file, if the file has a name now.
    pub fn of(view: &View, file: InodeNo, time: Timestamp) -> Option<Named> {
        let path = view.path_now(file).unwrap()?;
        let mut directory = view.root();
        for part in path.parent().unwrap().iter().skip(1) {
            directory = view.lookup(directory, part.as_bytes()).unwrap().inode();
        }
        let incarnation = view.getattr(directory).unwrap().incarnation;
        Some(Named { directory, incarnation, name: path.file_name().unwrap().as_bytes().to_vec(), time })
    }

    fn compare(&self, seen: &Seen, volume: &Volume, when: &str) {
        let view = volume.view();
        if !view.getattr(self.directory).is_ok_and(|attr| attr.incarnation == self.incarnation) {
            return; // Nobody can ask there any more.
        }
        let found = view.lookup_at(self.directory, &self.name, &When::At(self.time));
        let found = found.map(|node| (node.inode(), node.event()));
        let name = String::from_utf8_lossy(&self.name);
        let expected = (seen.root, Some(seen.event));
        assert!(
            matches!(found, Ok(found) if found == expected),
            "{when}: {name} in {} at {:?}: {found:?} and not {expected:?}",
            self.directory,
            self.time
        );
    }
}

impl Seen {
    /// Checks that what is found as of the event equals the copy.
    pub fn compare(&self, volume: &Volume, when: &str) {
        if self.copy.is_empty() {
            return;
        }
        if let Some(named) = &self.named {
            named.compare(self, volume, when);
        }
        let found = copy(&volume.view().as_of(self.event), self.root);
        for (path, value) in &self.copy {
            let Some(found) = found.get(path) else {
                panic!("{when}: event {} of {}: {} is not there", self.event, self.root, path.display())
            };
            let same_content = found.4 == value.4;
            let brief = |v: &Copied| (v.0, v.1, v.2, v.3, v.5.len());
            assert!(
                same_content && brief(found) == brief(value) && found.5 == value.5,
                "{when}: event {} of {}: {}: {:?} and not {:?}; content differs at {:?}",
                self.event,
                self.root,
                path.display(),
                brief(found),
                brief(value),
                found.4.iter().zip(&value.4).position(|(a, b)| a != b)
            );
        }
        assert_eq!(found.len(), self.copy.len(), "{when}: event {}: more names", self.event);
    }
}
