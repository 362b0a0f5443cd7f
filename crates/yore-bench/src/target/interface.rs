//! What a workload needs of a file system.

use crate::Result;

/// A file system under measurement.
pub trait Target: Send + Sync {
    /// A directory held open.
    type Dir: Send + Sync;
    /// An open file, for reading and writing.
    type File: Send + Sync;

    /// The root directory, or the one in which the workload runs.
    fn root(&self) -> Result<Self::Dir>;
    /// Makes a directory; it must not exist.
    fn mkdir(&self, parent: &Self::Dir, name: &str) -> Result<()>;
    /// Opens a directory.
    fn open_dir(&self, parent: &Self::Dir, name: &str) -> Result<Self::Dir>;
    /// Makes directories, which must not exist, and opens them.
    fn new_dirs(&self, parent: &Self::Dir, names: &[String]) -> Result<Vec<Self::Dir>> {
        let new = |name: &String| self.mkdir(parent, name).and_then(|()| self.open_dir(parent, name));
        names.iter().map(new).collect()
    }
    /// Removes an empty directory.
    fn rmdir(&self, parent: &Self::Dir, name: &str) -> Result<()>;
    /// Lists a directory; returns how many names there are besides `.` and `..`.
    fn list(&self, dir: &Self::Dir) -> Result<usize>;
    /// Creates an empty file and opens it; it must not exist.
    fn create(&self, dir: &Self::Dir, name: &str) -> Result<Self::File>;
    /// Opens a file.
    fn open(&self, dir: &Self::Dir, name: &str) -> Result<Self::File>;
    /// A file's size, by name.
    fn stat(&self, dir: &Self::Dir, name: &str) -> Result<u64>;
    /// Whether a directory has a name.
    fn exists(&self, dir: &Self::Dir, name: &str) -> Result<bool>;
    /// Renames a file, replacing what has the new name.
    fn rename(&self, from: &Self::Dir, name: &str, to: &Self::Dir, new_name: &str) -> Result<()>;
    /// Removes a file.
    fn unlink(&self, dir: &Self::Dir, name: &str) -> Result<()>;
    /// Fills `buf` from `offset`; returns the count, less than asked only at the end of the file.
    fn read_at(&self, file: &Self::File, offset: u64, buf: &mut [u8]) -> Result<usize>;
    /// Writes all of `data` at `offset`.
    fn write_at(&self, file: &Self::File, offset: u64, data: &[u8]) -> Result<()>;
    /// Makes a file shorter or longer.
    fn truncate(&self, file: &Self::File, size: u64) -> Result<()>;
    /// A file's content, its attributes and its name are durable when this returns.
    fn fsync(&self, file: &Self::File) -> Result<()>;
    /// Everything done before is on the medium when this returns.
    fn sync(&self) -> Result<()>;
}
