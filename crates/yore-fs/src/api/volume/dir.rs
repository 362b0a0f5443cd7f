//! Listing directories.

use super::metadata::{FileType, Metadata};
use crate::{Error, Node, Result, View};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use yore_format::InodeNo;

/// How many entries are fetched at once.
const BATCH: usize = 512;

/// One entry of a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    pub(super) name: OsString,
    path: PathBuf,
    metadata: Metadata,
}

impl DirEntry {
    /// The name.
    pub fn file_name(&self) -> OsString {
        self.name.clone()
    }

    /// The path that the caller gave for the directory, with the name.
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// The attributes when the entry was read; for a symbolic link, its own.
    pub fn metadata(&self) -> Metadata {
        self.metadata
    }

    /// The type.
    pub fn file_type(&self) -> FileType {
        self.metadata.file_type()
    }

    /// The inode number.
    pub fn ino(&self) -> u64 {
        self.metadata.ino()
    }
}

/// The entries of a directory, read some hundreds at a time. Ends after an error.
pub struct ReadDir {
    view: View,
    directory: Node,
    path: PathBuf,
    cookie: u64,
    batch: VecDeque<DirEntry>,
    done: bool,
}

impl std::fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadDir").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ReadDir {
    pub(super) fn new(view: View, directory: Node, path: PathBuf) -> ReadDir {
        ReadDir { view, directory, path, cookie: 0, batch: VecDeque::new(), done: false }
    }

    /// The directory that is read.
    pub(super) fn inode(&self) -> InodeNo {
        self.directory.inode()
    }

    /// The view in which it is read.
    pub(super) fn view(&self) -> &View {
        &self.view
    }

    /// The path that the caller gave for it.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn fill(&mut self) -> Result<()> {
        let ReadDir { view, directory, path, cookie, batch, done } = self;
        let mut seen = 0;
        let mut unknown: Vec<(OsString, InodeNo)> = Vec::new();
        view.readdir_plus(directory.inode(), *cookie, &mut |item, node| {
            *cookie = item.cookie;
            seen += 1;
            if item.name != b"." && item.name != b".." {
                let name = OsStr::from_bytes(item.name).to_os_string();
                match node {
                    Some(node) => batch.push_back(entry(path, name, Metadata::new(*node.attr()))),
                    None => unknown.push((name, item.inode)),
                }
            }
            seen < BATCH
        })?;
        *done = seen == 0;
        for (name, inode) in unknown {
            match view.getattr(inode) {
                Ok(attr) => batch.push_back(entry(path, name, Metadata::new(attr))),
                // Removed since the listing.
                Err(Error::Stale | Error::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn entry(directory: &Path, name: OsString, metadata: Metadata) -> DirEntry {
    DirEntry { path: directory.join(&name), name, metadata }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        while self.batch.is_empty() && !self.done {
            if let Err(error) = self.fill() {
                self.done = true;
                return Some(Err(error.on_path("cannot list", self.path.as_os_str().as_bytes())));
            }
        }
        self.batch.pop_front().map(Ok)
    }
}
