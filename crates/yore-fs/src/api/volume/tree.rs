//! Whole trees: walking and removing them, without recursion, so that no depth can exhaust the stack.
//!
//! **Loops.** Damage can make a directory contain one that it lies in, and a walk would never end. So the
//! walk compares each directory that it finds with those in which it stands. In a sound tree, somebody who
//! moves directories meanwhile can make one directory appear in both places, one after the other. So it is a
//! loop only if the way by which the walk came still leads there.

use super::dir::ReadDir;
use super::handle::Volume;
use super::metadata::Metadata;
use super::path::bytes_of;
use crate::{Error, InodeNo, Node, Result, View};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use yore_format::{Corruption, FileKind};

/// How many entries of one directory are known at a time while it is being emptied.
const BATCH: usize = 1024;

/// An entry that a walk comes to.
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

    /// The attributes; for a symbolic link, its own.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The depth; 0 where the walk began.
    pub fn depth(&self) -> usize {
        self.depth
    }
}

/// The error for a loop: `found`, an entry of `directory`, lies below itself.
fn loops(directory: InodeNo, found: InodeNo) -> Error {
    let found = format!("inode {found}, in which this one lies");
    Corruption::new("directory", "entry", "no directory above", found).of(directory).into()
}

/// A walk over a tree, parents before their content. An error about one directory appears in its place, and
/// the walk goes on beside it. If somebody moves a directory below itself meanwhile, its content appears
/// once.
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

    /// Goes no deeper than this; with 0 it gives only the place where the walk begins.
    #[must_use]
    pub fn max_depth(mut self, depth: usize) -> Walk {
        self.depth_max = depth;
        self
    }

    /// Leaves out the content of the directory that came last.
    pub fn skip_content(&mut self, of: &WalkEntry) {
        if self.open.last().is_some_and(|top| top.inode().0 == of.metadata.ino()) {
            self.open.pop();
        }
    }

    fn enter(&mut self, entry: &WalkEntry) -> Result<()> {
        if !entry.metadata.is_dir() || entry.depth >= self.depth_max {
            return Ok(());
        }
        let attr = entry.metadata.attr();
        if let Some(above) = self.open.iter().find(|above| above.inode() == attr.inode) {
            let cannot = |error: Error| Err(error.on_path("cannot list", bytes_of(&entry.path)));
            let directory = self.open[self.open.len() - 1].inode();
            return match self.volume.symlink_metadata(above.path()) {
                Ok(still) if still.ino() == attr.inode.0 => cannot(loops(directory, attr.inode)),
                Err(error) if !matches!(error.root(), Error::NotFound) => cannot(error),
                _ => Ok(()),
            };
        }
        let view = match self.open.last() {
            Some(above) => above.view().clone(),
            None => self.volume.view.of(&self.volume.symlink_node(&entry.path)?).into_owned(),
        };
        let node = match view.node(attr.inode, Some(attr.incarnation)) {
            Ok(node) => node,
            // The entry was removed during the walk.
            Err(Error::Stale | Error::NotFound) => return Ok(()),
            Err(error) => return Err(error.on_path("cannot list", bytes_of(&entry.path))),
        };
        self.open.push(ReadDir::new(view, node, entry.path.clone()));
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
    /// The position on the stack of the directory in which it lies; 0 for the first, which lies in none of
    /// them.
    above: usize,
}

/// Whether the directory at `at` on the stack, or one above it there, is `found`, and still has the name by
/// which the walk came to it.
fn is_above(view: &View, stack: &[Doomed], mut at: usize, found: InodeNo) -> Result<bool> {
    loop {
        let Doomed { parent, name, node, above, .. } = &stack[at];
        if node.inode() == found {
            return match view.lookup(*parent, name.as_bytes()) {
                Ok(still) => Ok(still.inode() == found),
                Err(Error::NotFound) => Ok(false),
                Err(error) => Err(error),
            };
        }
        if at == 0 {
            return Ok(false);
        }
        at = *above;
    }
}

/// Removes `path` with all content. Each directory is listed in batches and listed again until it is empty:
/// entries that others add meanwhile are removed too.
pub(super) fn remove_all(volume: &Volume, path: &Path, each: &mut dyn FnMut(&Path)) -> Result<()> {
    let view = volume.view();
    let cannot = |error: Error, path: &Path| error.on_path("cannot remove", bytes_of(path));
    let (located, name) = volume.removable(path).map_err(|error| cannot(error, path))?;
    let parent = located.directory.inode();
    let Some(node) = located.found.filter(|node| node.attr().kind == FileKind::Directory) else {
        view.unlink(parent, &name).map_err(|error| cannot(error, path))?;
        each(path);
        return Ok(());
    };
    let name = std::ffi::OsStr::from_bytes(&name).to_os_string();
    // The nodes below them keep the parents on the stack in use; this keeps the first one's parent.
    let _held = located.directory;
    let mut stack = vec![Doomed { parent, name, node, path: path.to_path_buf(), above: 0 }];
    while let Some(top) = stack.last() {
        let Some(listed) = batch(volume, top)? else {
            stack.pop();
            continue;
        };
        if listed.is_empty() {
            match view.rmdir(top.parent, top.name.as_bytes()) {
                // Somebody filled it again since the listing: once more.
                Err(Error::NotEmpty) if is_named(view, top)? => continue,
                // Another directory has its name now. If that one is to go, the parent's listing shows it
                // again.
                Err(Error::NotEmpty) => {
                    stack.pop();
                    continue;
                }
                Ok(()) | Err(Error::NotFound) => {}
                Err(error) => return Err(cannot(error, &top.path)),
            }
            each(&top.path);
            stack.pop();
            continue;
        }
        let (parent, directory, above) = (top.node.inode(), top.path.clone(), stack.len() - 1);
        for (name, kind) in listed {
            let path = directory.join(&name);
            if kind == FileKind::Directory {
                let node = match view.lookup(parent, name.as_bytes()) {
                    Ok(node) => node,
                    Err(Error::NotFound) => continue,
                    Err(error) => return Err(cannot(error, &path)),
                };
                match is_above(view, &stack, above, node.inode()) {
                    Ok(false) => stack.push(Doomed { parent, name, node, path, above }),
                    Ok(true) => return Err(cannot(loops(parent, node.inode()), &path)),
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

/// Whether the directory still has its name.
fn is_named(view: &View, of: &Doomed) -> Result<bool> {
    match view.lookup(of.parent, of.name.as_bytes()) {
        Ok(found) => Ok(found.inode() == of.node.inode()),
        Err(Error::NotFound) => Ok(false),
        Err(error) => Err(error.on_path("cannot remove", bytes_of(&of.path))),
    }
}

/// Some entries of a directory; `None` if somebody else has removed it.
fn batch(volume: &Volume, top: &Doomed) -> Result<Option<Vec<(OsString, FileKind)>>> {
    let mut found = Vec::new();
    let listed = volume.view().readdir(top.node.inode(), 0, &mut |item| {
        if item.name != b"." && item.name != b".." {
            found.push((std::ffi::OsStr::from_bytes(item.name).to_os_string(), item.kind));
        }
        found.len() < BATCH
    });
    match listed {
        Ok(_) => Ok(Some(found)),
        Err(Error::NotFound | Error::Stale) => Ok(None),
        Err(error) => Err(error.on_path("cannot list", bytes_of(&top.path))),
    }
}
