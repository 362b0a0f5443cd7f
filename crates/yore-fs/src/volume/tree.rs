//! Whole trees: walking and removing them, without recursion, so that no depth can exhaust the stack.

use super::{bytes_of, Metadata, ReadDir, Volume};
use crate::{Error, InodeNo, Node, Result};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use yore_format::FileKind;

/// Entries of one directory that are known at a time while it is being emptied.
const BATCH: usize = 1024;

/// What a walk comes by.
#[derive(Clone, Debug)]
pub struct WalkEntry {
    path: PathBuf,
    metadata: Metadata,
    depth: usize,
}

impl WalkEntry {
    /// The path given to the walk, with the names below it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The attributes; of symbolic links, their own.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// 0 for where the walk began.
    pub fn depth(&self) -> usize {
        self.depth
    }
}

/// A walk over a tree, parents before their content. An error about one directory is given in its place and the walk
/// goes on beside it.
#[derive(Debug)]
pub struct Walk {
    volume: Volume,
    start: Option<PathBuf>,
    open: Vec<ReadDir>,
    depth_max: usize,
}

impl Walk {
    pub(super) fn new(volume: Volume, start: PathBuf) -> Walk {
        Walk { volume, start: Some(start), open: Vec::new(), depth_max: usize::MAX }
    }

    /// Goes no deeper than this; 0 gives only where the walk begins.
    #[must_use]
    pub fn max_depth(mut self, depth: usize) -> Walk {
        self.depth_max = depth;
        self
    }

    /// Leaves out the content of the directory that was given last.
    pub fn skip_content(&mut self, of: &WalkEntry) {
        if self.open.last().is_some_and(|top| top.inode().0 == of.metadata.ino()) {
            self.open.pop();
        }
    }

    fn enter(&mut self, entry: &WalkEntry) -> Result<()> {
        if !entry.metadata.is_dir() || entry.depth >= self.depth_max {
            return Ok(());
        }
        let view = self.volume.view();
        let attr = entry.metadata.attr();
        let node = match view.node(attr.inode, Some(attr.incarnation)) {
            Ok(node) => node,
            // Removed while walking.
            Err(Error::Stale | Error::NotFound) => return Ok(()),
            Err(error) => return Err(error.on_path("cannot list", bytes_of(&entry.path))),
        };
        self.open.push(ReadDir::new(view.clone(), node, entry.path.clone()));
        Ok(())
    }

    fn visit(&mut self, path: PathBuf, metadata: Metadata, depth: usize) -> Result<WalkEntry> {
        let entry = WalkEntry { path, metadata, depth };
        self.enter(&entry)?;
        Ok(entry)
    }
}

impl Iterator for Walk {
    type Item = Result<WalkEntry>;

    fn next(&mut self) -> Option<Result<WalkEntry>> {
        if let Some(start) = self.start.take() {
            let found = self.volume.symlink_metadata(&start);
            return Some(found.and_then(|metadata| self.visit(start, metadata, 0)));
        }
        loop {
            let depth = self.open.len();
            match self.open.last_mut()?.next() {
                None => drop(self.open.pop()),
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(entry)) => return Some(self.visit(entry.path(), entry.metadata(), depth)),
            }
        }
    }
}

/// A directory being emptied, with its name in its parent.
struct Doomed {
    parent: InodeNo,
    name: OsString,
    node: Node,
    path: PathBuf,
}

/// Removes `path` with all content. Each directory is listed in batches and listed again until it is empty: entries
/// that others add meanwhile are removed too.
pub(super) fn remove_all(volume: &Volume, path: &Path, each: &mut dyn FnMut(&Path)) -> Result<()> {
    let view = volume.view();
    let cannot = |error: Error, path: &Path| error.on_path("cannot remove", bytes_of(path));
    let (place, name) =
        volume.named(path, "the root directory cannot be removed").map_err(|error| cannot(error, path))?;
    let parent = place.directory.inode();
    let Some(node) = place.found.filter(|node| node.attr().kind == FileKind::Directory) else {
        view.unlink(parent, &name).map_err(|error| cannot(error, path))?;
        each(path);
        return Ok(());
    };
    let name = std::ffi::OsStr::from_bytes(&name).to_os_string();
    // The parents on the stack are held by their nodes below them; the first one's here.
    let _held = place.directory;
    let mut stack = vec![Doomed { parent, name, node, path: path.to_path_buf() }];
    while let Some(top) = stack.last() {
        let listed = batch(volume, top)?;
        if listed.is_empty() {
            match view.rmdir(top.parent, top.name.as_bytes()) {
                // Filled again since the listing: once more.
                Err(Error::NotEmpty) => continue,
                Ok(()) | Err(Error::NotFound) => {}
                Err(error) => return Err(cannot(error, &top.path)),
            }
            each(&top.path);
            stack.pop();
            continue;
        }
        let (parent, directory) = (top.node.inode(), top.path.clone());
        for (name, kind) in listed {
            let path = directory.join(&name);
            if kind == FileKind::Directory {
                match view.lookup(parent, name.as_bytes()) {
                    Ok(node) => stack.push(Doomed { parent, name, node, path }),
                    Err(Error::NotFound) => {}
                    Err(error) => return Err(cannot(error, &path)),
                }
                continue;
            }
            match view.unlink(parent, name.as_bytes()) {
                Ok(()) => each(&path),
                Err(Error::NotFound) => {}
                Err(error) => return Err(cannot(error, &path)),
            }
        }
    }
    Ok(())
}

/// Some entries of a directory.
fn batch(volume: &Volume, top: &Doomed) -> Result<Vec<(OsString, FileKind)>> {
    let mut found = Vec::new();
    volume
        .view()
        .readdir(top.node.inode(), 0, &mut |item| {
            if item.name != b"." && item.name != b".." {
                found.push((std::ffi::OsStr::from_bytes(item.name).to_os_string(), item.kind));
            }
            found.len() < BATCH
        })
        .map_err(|error| error.on_path("cannot list", bytes_of(&top.path)))?;
    Ok(found)
}
