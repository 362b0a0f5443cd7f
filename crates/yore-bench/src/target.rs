//! What a workload needs of a file system, and the two ways to it: system calls below a directory, and the library's calls.
//!
//! Both work the way a careful program does: directories are held open and files are named within them, so that neither
//! pays for long paths. Files are closed after each step, as the steps of the workloads are those of different programs.

use crate::{BenchError, Result};
use rustix::fs::{AtFlags, Mode, OFlags};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use yore_fs::{Caller, FileKind, InodeNo, Node, RenameMode, View, WriteMode};

/// A file system under measurement. Directories are numbered in the order of their creation, from 0.
pub trait Target {
    /// What the report calls it.
    fn name(&self) -> &str;
    /// Makes the next directory.
    fn make_directory(&mut self, name: &str) -> Result<()>;
    /// Removes all directories, which are empty, and starts numbering anew.
    fn remove_directories(&mut self) -> Result<()>;
    /// Creates an empty file; it must not exist.
    fn create(&mut self, directory: usize, name: &str) -> Result<()>;
    /// Reads a file's attributes by name and returns its size.
    fn stat(&mut self, directory: usize, name: &str) -> Result<u64>;
    /// Gives a file another name in the same directory.
    fn rename(&mut self, directory: usize, name: &str, new_name: &str) -> Result<()>;
    /// Removes a file.
    fn unlink(&mut self, directory: usize, name: &str) -> Result<()>;
    /// Creates a file, writes `data` and makes it durable.
    fn create_durable(&mut self, directory: usize, name: &str, data: &[u8]) -> Result<()>;
}

/// A directory of any mounted file system, used with system calls.
pub struct DirectoryTarget {
    name: String,
    path: PathBuf,
    root: OwnedFd,
    directories: Vec<(String, OwnedFd)>,
}

impl DirectoryTarget {
    /// Measures in `path`, which must exist.
    pub fn new(name: impl Into<String>, path: impl AsRef<Path>) -> Result<DirectoryTarget> {
        let path = path.as_ref().to_path_buf();
        let doing = format!("opening {path:?}");
        let root =
            rustix::fs::open(&path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                .map_err(|e| BenchError::system(doing)(e.into()))?;
        Ok(DirectoryTarget { name: name.into(), path, root, directories: Vec::new() })
    }

    fn failed(&self, call: &str, name: &str) -> impl FnOnce(rustix::io::Errno) -> BenchError {
        let doing = format!("{call} {name} in {:?}", self.path);
        move |e| BenchError::System { doing, source: e.into() }
    }

    fn at(&self, directory: usize) -> &OwnedFd {
        &self.directories[directory].1
    }

    fn create_open(&self, directory: usize, name: &str) -> Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        rustix::fs::openat(self.at(directory), name, flags, Mode::from(0o644))
            .map_err(|e| self.failed("create", name)(e))
    }
}

impl Target for DirectoryTarget {
    fn name(&self) -> &str {
        &self.name
    }

    fn make_directory(&mut self, name: &str) -> Result<()> {
        rustix::fs::mkdirat(&self.root, name, Mode::from(0o755))
            .map_err(|e| self.failed("mkdir", name)(e))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.root, name, flags, Mode::empty())
            .map_err(|e| self.failed("open", name)(e))?;
        self.directories.push((name.to_string(), opened));
        Ok(())
    }

    fn remove_directories(&mut self) -> Result<()> {
        for (name, _) in std::mem::take(&mut self.directories) {
            rustix::fs::unlinkat(&self.root, &name, AtFlags::REMOVEDIR)
                .map_err(|e| self.failed("rmdir", &name)(e))?;
        }
        Ok(())
    }

    fn create(&mut self, directory: usize, name: &str) -> Result<()> {
        self.create_open(directory, name).map(drop)
    }

    fn stat(&mut self, directory: usize, name: &str) -> Result<u64> {
        rustix::fs::statat(self.at(directory), name, AtFlags::SYMLINK_NOFOLLOW)
            .map(|s| s.st_size as u64)
            .map_err(|e| self.failed("stat", name)(e))
    }

    fn rename(&mut self, directory: usize, name: &str, new_name: &str) -> Result<()> {
        let at = self.at(directory);
        rustix::fs::renameat(at, name, at, new_name).map_err(|e| self.failed("rename", name)(e))
    }

    fn unlink(&mut self, directory: usize, name: &str) -> Result<()> {
        rustix::fs::unlinkat(self.at(directory), name, AtFlags::empty())
            .map_err(|e| self.failed("unlink", name)(e))
    }

    fn create_durable(&mut self, directory: usize, name: &str, data: &[u8]) -> Result<()> {
        let file = self.create_open(directory, name)?;
        let mut rest = data;
        while !rest.is_empty() {
            let written = rustix::io::write(&file, rest).map_err(|e| self.failed("write", name)(e))?;
            rest = &rest[written..];
        }
        rustix::fs::fsync(&file).map_err(|e| self.failed("fsync", name)(e))
    }
}

/// The library in this process.
pub struct LibraryTarget {
    name: String,
    view: View,
    caller: Caller,
    directories: Vec<(String, Node)>,
}

impl LibraryTarget {
    /// Measures in the root directory of `view`.
    pub fn new(name: impl Into<String>, view: View) -> LibraryTarget {
        LibraryTarget { name: name.into(), view, caller: Caller::superuser(), directories: Vec::new() }
    }

    fn failed(&self, call: &str, name: &str) -> impl FnOnce(yore_fs::Error) -> BenchError {
        BenchError::library(format!("{call} {name} in the library"))
    }

    fn at(&self, directory: usize) -> InodeNo {
        self.directories[directory].1.inode()
    }

    fn create_node(&self, directory: usize, name: &str) -> Result<Node> {
        self.view
            .create(&self.caller, self.at(directory), name.as_bytes(), FileKind::Regular, 0o644, 0)
            .map_err(|e| self.failed("create", name)(e))
    }
}

impl Target for LibraryTarget {
    fn name(&self) -> &str {
        &self.name
    }

    fn make_directory(&mut self, name: &str) -> Result<()> {
        let node = self
            .view
            .mkdir(&self.caller, self.view.root(), name.as_bytes(), 0o755)
            .map_err(|e| self.failed("mkdir", name)(e))?;
        self.directories.push((name.to_string(), node));
        Ok(())
    }

    fn remove_directories(&mut self) -> Result<()> {
        for (name, _) in std::mem::take(&mut self.directories) {
            self.view.rmdir(self.view.root(), name.as_bytes()).map_err(|e| self.failed("rmdir", &name)(e))?;
        }
        Ok(())
    }

    fn create(&mut self, directory: usize, name: &str) -> Result<()> {
        self.create_node(directory, name).map(drop)
    }

    fn stat(&mut self, directory: usize, name: &str) -> Result<u64> {
        self.view
            .lookup(self.at(directory), name.as_bytes())
            .map(|node| node.attr().size)
            .map_err(|e| self.failed("lookup", name)(e))
    }

    fn rename(&mut self, directory: usize, name: &str, new_name: &str) -> Result<()> {
        let at = self.at(directory);
        self.view
            .rename(at, name.as_bytes(), at, new_name.as_bytes(), RenameMode::Replace)
            .map_err(|e| self.failed("rename", name)(e))
    }

    fn unlink(&mut self, directory: usize, name: &str) -> Result<()> {
        self.view.unlink(self.at(directory), name.as_bytes()).map_err(|e| self.failed("unlink", name)(e))
    }

    fn create_durable(&mut self, directory: usize, name: &str, data: &[u8]) -> Result<()> {
        let node = self.create_node(directory, name)?;
        let mode = WriteMode { append: false, kill_set_id: false };
        self.view.write(node.inode(), 0, data, mode).map_err(|e| self.failed("write", name)(e))?;
        self.view.fsync(node.inode(), false).map_err(|e| self.failed("fsync", name)(e))
    }
}
