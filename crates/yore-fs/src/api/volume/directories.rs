//! Directories by path: making, listing, walking and removing them.

use super::dir::ReadDir;
use super::handle::Volume;
use super::path::bytes_of;
use super::tree::{self, Walk};
use crate::{Error, Result};
use std::path::Path;
use yore_format::FileKind;

/// # Directories
impl Volume {
    /// Creates a directory with permissions 0777 less the umask.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NotFound`] (no such parent), [`Error::NoSpace`].
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.create_dir_mode(path, 0o777)
    }

    /// As [`Volume::create_dir`] with other permissions (12 bits, before the umask).
    ///
    /// # Errors
    /// As [`Volume::create_dir`].
    pub fn create_dir_mode(&self, path: impl AsRef<Path>, permissions: u32) -> Result<()> {
        let path = path.as_ref();
        self.vacant(path)
            .and_then(|(parent, name)| {
                self.view.of(&parent).mkdir(&self.caller, parent.inode(), &name, permissions)
            })
            .map(|_| ())
            .map_err(|e| e.on_path("cannot create directory", bytes_of(path)))
    }

    /// Creates a directory and those above it that are missing; one that exists is fine.
    ///
    /// # Errors
    /// [`Error::NotADirectory`] or [`Error::Exists`] if something else is in the way.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let mut missing = Vec::new();
        for ancestor in path.ancestors().filter(|a| !a.as_os_str().is_empty()) {
            match self.metadata(ancestor) {
                Ok(found) if found.is_dir() => break,
                Ok(_) if missing.is_empty() => {
                    return Err(Error::Exists.on_path("cannot create directory", bytes_of(ancestor)))
                }
                Ok(_) => {
                    return Err(
                        Error::NotADirectory.on_path("cannot create a directory in", bytes_of(ancestor))
                    )
                }
                Err(error) if matches!(error.root(), Error::NotFound) => missing.push(ancestor),
                Err(error) => return Err(error),
            }
        }
        for directory in missing.into_iter().rev() {
            match self.create_dir(directory) {
                // Somebody else made it in the meantime.
                Err(error)
                    if matches!(error.root(), Error::Exists)
                        && self.metadata(directory).is_ok_and(|found| found.is_dir()) => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// The entries of a directory, without `.` and `..`, in no particular order. Entries created or removed
    /// while reading may or may not be seen; all others are seen once.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`].
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        let node = self.node(path)?;
        if node.attr().kind != FileKind::Directory {
            return Err(Error::NotADirectory.on_path("cannot list", bytes_of(path)));
        }
        Ok(ReadDir::new(self.view.of(&node).into_owned(), node, path.to_path_buf()))
    }

    /// Everything below (and including) `path`, parents before their content; symbolic links are not
    /// followed. A directory that lies below itself, because of damage, appears as an [`Error::Corruption`]
    /// in its place.
    ///
    /// ```
    /// # fn main() -> yore_fs::Result<()> {
    /// let volume = yore_fs::Volume::memory(32 << 20)?;
    /// volume.create_dir_all("a/b")?;
    /// volume.write("a/b/c", "12345")?;
    /// let mut bytes = 0;
    /// for entry in volume.walk("a") {
    ///     let entry = entry?;
    ///     if entry.metadata().is_file() {
    ///         bytes += entry.metadata().len();
    ///     }
    /// }
    /// assert_eq!(bytes, 5);
    /// # Ok(())
    /// # }
    /// ```
    pub fn walk(&self, path: impl AsRef<Path>) -> Walk {
        Walk::new(self.clone(), path.as_ref().to_path_buf())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`Error::NotEmpty`], [`Error::NotADirectory`], [`Error::NotFound`], [`Error::NotPermitted`] for the
    /// root.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.removable(path)
            .and_then(|(located, name)| self.view.rmdir(located.directory.inode(), &name))
            .map_err(|e| e.on_path("cannot remove directory", bytes_of(path)))
    }

    /// Removes a directory with everything in it, or a single file; symbolic links are removed, not followed.
    /// However large the tree is, this needs memory only for the path to the deepest directory and for a
    /// batch of names at each level.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Corruption`] also where damage makes a directory lie below itself; the
    /// first error, which names the path. What was removed before stays removed.
    ///
    /// ```
    /// # fn main() -> yore_fs::Result<()> {
    /// let volume = yore_fs::Volume::memory(32 << 20)?;
    /// volume.create_dir_all("a/b/c")?;
    /// volume.write("a/b/file", "")?;
    /// volume.remove_dir_all("a")?;
    /// assert!(!volume.exists("a")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        tree::remove_all(self, path.as_ref(), &mut |_| {})
    }

    /// As [`Volume::remove_dir_all`], and calls `each` with the path of everything that it removed,
    /// afterwards.
    ///
    /// # Errors
    /// As [`Volume::remove_dir_all`].
    pub fn remove_dir_all_with(&self, path: impl AsRef<Path>, each: &mut dyn FnMut(&Path)) -> Result<()> {
        tree::remove_all(self, path.as_ref(), each)
    }
}
