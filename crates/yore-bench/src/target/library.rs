//! The library in this process.

use super::interface::Target;
use crate::{BenchError, Result};
use yore_fs::{Caller, FileKind, Node, RenameMode, SetAttr, View, WriteMode};

/// The library in this process.
pub struct LibraryTarget {
    view: View,
    caller: Caller,
}

const WRITE: WriteMode = WriteMode { append: false, kill_set_id: false };

fn failed(call: &str, name: &str) -> impl FnOnce(yore_fs::Error) -> BenchError {
    BenchError::library(format!("{call} {name} in the library"))
}

impl LibraryTarget {
    /// Measures in the root directory of `view`.
    pub fn new(view: View) -> LibraryTarget {
        LibraryTarget { view, caller: Caller::superuser() }
    }

    /// The view that is measured.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The view, which is measured no more.
    pub fn into_view(self) -> View {
        self.view
    }
}

impl Target for LibraryTarget {
    type Dir = Node;
    type File = Node;

    fn root(&self) -> Result<Node> {
        self.view.node(self.view.root(), None).map_err(failed("opening", "the root"))
    }

    fn mkdir(&self, parent: &Node, name: &str) -> Result<()> {
        self.view
            .mkdir(&self.caller, parent.inode(), name.as_bytes(), 0o755)
            .map(drop)
            .map_err(|e| failed("mkdir", name)(e))
    }

    fn open_dir(&self, parent: &Node, name: &str) -> Result<Node> {
        self.view.lookup(parent.inode(), name.as_bytes()).map_err(|e| failed("looking up", name)(e))
    }

    fn rmdir(&self, parent: &Node, name: &str) -> Result<()> {
        self.view.rmdir(parent.inode(), name.as_bytes()).map_err(|e| failed("rmdir", name)(e))
    }

    fn list(&self, dir: &Node) -> Result<usize> {
        let mut count = 0;
        self.view
            .readdir(dir.inode(), 0, &mut |item| {
                count += usize::from(!matches!(item.name, b"." | b".."));
                true
            })
            .map_err(|e| failed("listing", "a directory")(e))?;
        Ok(count)
    }

    fn create(&self, dir: &Node, name: &str) -> Result<Node> {
        self.view
            .create(&self.caller, dir.inode(), name.as_bytes(), FileKind::Regular, 0o644, 0)
            .map_err(|e| failed("creating", name)(e))
    }

    fn open(&self, dir: &Node, name: &str) -> Result<Node> {
        self.view.lookup(dir.inode(), name.as_bytes()).map_err(|e| failed("looking up", name)(e))
    }

    fn stat(&self, dir: &Node, name: &str) -> Result<u64> {
        self.open(dir, name).map(|node| node.attr().size)
    }

    fn exists(&self, dir: &Node, name: &str) -> Result<bool> {
        match self.view.lookup(dir.inode(), name.as_bytes()) {
            Ok(_) => Ok(true),
            Err(yore_fs::Error::NotFound) => Ok(false),
            Err(error) => Err(failed("looking up", name)(error)),
        }
    }

    fn rename(&self, from: &Node, name: &str, to: &Node, new_name: &str) -> Result<()> {
        self.view
            .rename(from.inode(), name.as_bytes(), to.inode(), new_name.as_bytes(), RenameMode::Replace)
            .map_err(|e| failed("renaming", name)(e))
    }

    fn unlink(&self, dir: &Node, name: &str) -> Result<()> {
        self.view.unlink(dir.inode(), name.as_bytes()).map_err(|e| failed("unlinking", name)(e))
    }

    fn read_at(&self, file: &Node, offset: u64, buf: &mut [u8]) -> Result<usize> {
        file.read(offset, buf).map_err(|e| failed("reading", "a file")(e))
    }

    fn write_at(&self, file: &Node, offset: u64, data: &[u8]) -> Result<()> {
        file.write(offset, data, WRITE).map(drop).map_err(|e| failed("writing", "a file")(e))
    }

    fn truncate(&self, file: &Node, size: u64) -> Result<()> {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.view
            .setattr(&self.caller, file.inode(), &set)
            .map(drop)
            .map_err(|e| failed("truncating", "a file")(e))
    }

    fn fsync(&self, file: &Node) -> Result<()> {
        self.view.fsync(file.inode(), false).map_err(|e| failed("fsync of", "a file")(e))
    }

    fn sync(&self) -> Result<()> {
        self.view.sync().map_err(|e| failed("sync of", "the volume")(e))
    }
}
