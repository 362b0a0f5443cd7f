//! Names: giving, changing and removing them.

use super::handle::Volume;
use super::path::{bytes_of, Links, Located};
use crate::{Error, Node, RenameMode, Result, View};
use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use yore_format::FileKind;

/// # Names
impl Volume {
    /// Removes a name of a file (not a directory); symbolic links are removed, not followed.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsADirectory`].
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.removable(path)
            .and_then(|(located, name)| self.view.unlink(located.directory.inode(), &name))
            .map_err(|e| e.on_path("cannot remove", bytes_of(path)))
    }

    /// Gives a file or directory another name, and atomically replaces whatever has that name (a file, or an
    /// empty directory by a directory).
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::IsADirectory`], [`Error::NotADirectory`], [`Error::NotEmpty`] for a
    /// target that cannot be replaced; [`Error::Invalid`] for a directory moved into itself.
    ///
    /// ```
    /// # fn main() -> yore_fs::Result<()> {
    /// let volume = yore_fs::Volume::memory(32 << 20)?;
    /// volume.write("config.new", "v2")?;
    /// volume.write("config", "v1")?;
    /// volume.rename("config.new", "config")?;
    /// assert_eq!(volume.read("config")?, b"v2");
    /// assert!(!volume.exists("config.new")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameMode::Replace)
    }

    /// As [`Volume::rename`]; `mode` says what happens to an existing target.
    ///
    /// # Errors
    /// As [`Volume::rename`]; [`Error::Exists`] with [`RenameMode::NoReplace`]; [`Error::NotFound`] with
    /// [`RenameMode::Exchange`] and no target.
    pub fn rename_with(&self, from: impl AsRef<Path>, to: impl AsRef<Path>, mode: RenameMode) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let root = "the root directory cannot be renamed";
        let (source, name) =
            self.named(from, root).map_err(|e| e.on_path("cannot rename", bytes_of(from)))?;
        self.target_of_rename(&source, to, root)
            .and_then(|(directory, new)| {
                let found = source.found.as_ref().unwrap_or(&source.directory);
                let view = self.common_view(found, &directory)?;
                view.rename(source.directory.inode(), &name, directory.inode(), &new, mode)
            })
            .map_err(|e| e.on_path("cannot rename to", bytes_of(to)))
    }

    /// The view in which both nodes are.
    fn common_view(&self, a: &Node, b: &Node) -> Result<Cow<'_, View>> {
        match a.event() == b.event() {
            true => Ok(self.view.of(a)),
            false => Err(Error::AcrossTimes),
        }
    }

    /// Where a rename leads; only directories may have a trailing slash.
    fn target_of_rename(&self, source: &Located, to: &Path, root: &'static str) -> Result<(Node, Vec<u8>)> {
        let located = self.locate(to, Links::NoFollow)?;
        let is_directory = source.found.as_ref().is_some_and(|n| n.attr().kind == FileKind::Directory);
        if located.slash && !is_directory {
            return Err(Error::NotADirectory);
        }
        located.into_named(root)
    }

    /// Gives a file a second name. A symbolic link gets the second name itself; it is not followed.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NotPermitted`] for directories, [`Error::TooManyLinks`].
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (original, link) = (original.as_ref(), link.as_ref());
        let node = self.symlink_node(original)?;
        self.vacant_file(link)
            .and_then(|(directory, name)| {
                self.common_view(&node, &directory)?.link(node.inode(), directory.inode(), &name)
            })
            .map(|_| ())
            .map_err(|e| e.on_path("cannot create link", bytes_of(link)))
    }

    /// Creates a symbolic link to `target`, which need not exist and may be any bytes without NUL.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NameTooLong`] for targets above 4,095 bytes.
    ///
    /// ```
    /// # fn main() -> yore_fs::Result<()> {
    /// let volume = yore_fs::Volume::memory(32 << 20)?;
    /// volume.create_dir("releases")?;
    /// volume.write("releases/5", "five")?;
    /// volume.symlink("releases/5", "current")?;
    /// assert_eq!(volume.read("current")?, b"five");
    /// assert_eq!(volume.read_link("current")?, std::path::Path::new("releases/5"));
    /// assert_eq!(volume.canonicalize("current")?, std::path::Path::new("/releases/5"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let link = link.as_ref();
        self.vacant_file(link)
            .and_then(|(directory, name)| {
                let view = self.view.of(&directory);
                view.symlink(&self.caller, directory.inode(), &name, bytes_of(target.as_ref()))
            })
            .map(|_| ())
            .map_err(|e| e.on_path("cannot create symbolic link", bytes_of(link)))
    }

    /// Creates a pipe, socket or device file, or an empty regular file; `rdev` is the device number (`dev_t`
    /// of Linux).
    ///
    /// # Errors
    /// [`Error::Exists`]; [`Error::Invalid`] for directories and symbolic links.
    pub fn create_special(
        &self,
        path: impl AsRef<Path>,
        kind: FileKind,
        permissions: u32,
        rdev: u32,
    ) -> Result<()> {
        let path = path.as_ref();
        self.vacant_file(path)
            .and_then(|(directory, name)| {
                let view = self.view.of(&directory);
                view.create(&self.caller, directory.inode(), &name, kind, permissions, rdev)
            })
            .map(|_| ())
            .map_err(|e| e.on_path("cannot create", bytes_of(path)))
    }

    /// Where a symbolic link leads, as written.
    ///
    /// # Errors
    /// [`Error::Invalid`] for anything but a symbolic link.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        let node = self.symlink_node(path)?;
        if node.attr().kind != FileKind::Symlink {
            let error = Error::Invalid { what: "it is not a symbolic link" };
            return Err(error.on_path("cannot read link", bytes_of(path)));
        }
        let target = self
            .view
            .of(&node)
            .readlink(node.inode())
            .map_err(|e| e.on_path("cannot read link", bytes_of(path)))?;
        Ok(PathBuf::from(OsString::from_vec(target)))
    }

    /// The absolute path without symbolic links, `.` and `..`.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Loop`].
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        self.locate(path, Links::Follow)
            .and_then(|located| match located.found {
                Some(_) => Ok(located.path),
                None => Err(Error::NotFound),
            })
            .map_err(|e| e.on_path("cannot find", bytes_of(path)))
    }
}
