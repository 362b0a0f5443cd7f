//! Attributes by path, including extended ones.

use super::handle::Volume;
use super::metadata::{self, Metadata};
use super::path::{bytes_of, Links};
use crate::{Error, Result, SetAttr, SetTime, SetXattrMode};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::SystemTime;

/// # Attributes
impl Volume {
    /// The attributes of the file to which `path` leads.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::Loop`].
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Ok(Metadata::new(*self.node(path)?.attr()))
    }

    /// As [`Volume::metadata`], for a symbolic link itself.
    ///
    /// # Errors
    /// As [`Volume::metadata`].
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Ok(Metadata::new(*self.symlink_node(path)?.attr()))
    }

    /// Whether `path` leads to something. Like `std::fs::exists`, it does not take errors for absence.
    ///
    /// # Errors
    /// Any error but that there is nothing at the path.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.node(path) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.root(), Error::NotFound | Error::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sets permission, set-id and sticky bits (12 bits).
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::ReadOnly`].
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: u32) -> Result<()> {
        let set = SetAttr { permissions: Some(permissions & 0o7777), ..SetAttr::default() };
        self.set(path.as_ref(), Links::Follow, &set, "cannot set the permissions of")
    }

    /// Sets the times of last access and of last change of content; `None` leaves one as it is.
    ///
    /// # Errors
    /// As [`Volume::set_permissions`].
    pub fn set_times(
        &self,
        path: impl AsRef<Path>,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> Result<()> {
        let to = |time: SystemTime| SetTime::To(metadata::timestamp(time));
        let set = SetAttr { atime: accessed.map(to), mtime: modified.map(to), ..SetAttr::default() };
        self.set(path.as_ref(), Links::Follow, &set, "cannot set the times of")
    }

    /// Sets owner and group; `None` leaves one as it is. Clears set-id bits of files.
    ///
    /// # Errors
    /// As [`Volume::set_permissions`].
    pub fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let set = SetAttr { uid, gid, ..SetAttr::default() };
        self.set(path.as_ref(), Links::Follow, &set, "cannot change the owner of")
    }

    /// Sets any attributes; those of a symbolic link, not of its target.
    ///
    /// # Errors
    /// As [`Volume::set_permissions`].
    pub fn set_symlink_attributes(&self, path: impl AsRef<Path>, set: &SetAttr) -> Result<()> {
        self.set(path.as_ref(), Links::NoFollow, set, "cannot set attributes of")
    }

    /// The value of an extended attribute (`user.note`), or `None` if there is none with that name.
    ///
    /// # Errors
    /// [`Error::NotFound`] for the path; [`Error::Unsupported`] for an unknown namespace.
    ///
    /// ```
    /// # fn main() -> yore_fs::Result<()> {
    /// let volume = yore_fs::Volume::memory(32 << 20)?;
    /// volume.write("file", "")?;
    /// volume.set_xattr("file", "user.note", "read me", yore_fs::SetXattrMode::Any)?;
    /// assert_eq!(volume.get_xattr("file", "user.note")?.as_deref(), Some(&b"read me"[..]));
    /// assert_eq!(volume.list_xattrs("file")?, ["user.note"]);
    /// volume.remove_xattr("file", "user.note")?;
    /// assert_eq!(volume.get_xattr("file", "user.note")?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<Option<Vec<u8>>> {
        let path = path.as_ref();
        let node = self.node(path)?;
        match self.view.of(&node).getxattr(node.inode(), name.as_ref().as_bytes()) {
            Ok(value) => Ok(Some(value)),
            Err(Error::NoAttribute) => Ok(None),
            Err(error) => Err(error.on_path("cannot read an attribute of", bytes_of(path))),
        }
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// [`Error::AttributeTooLarge`], [`Error::Exists`] or [`Error::NoAttribute`] by `mode`,
    /// [`Error::Unsupported`] for an unknown namespace.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: impl AsRef<[u8]>,
        mode: SetXattrMode,
    ) -> Result<()> {
        let path = path.as_ref();
        let node = self.node(path)?;
        self.view
            .of(&node)
            .setxattr(node.inode(), name.as_ref().as_bytes(), value.as_ref(), mode)
            .map_err(|e| e.on_path("cannot set an attribute of", bytes_of(path)))
    }

    /// The names of the extended attributes.
    ///
    /// # Errors
    /// [`Error::NotFound`] for the path.
    pub fn list_xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        let path = path.as_ref();
        let node = self.node(path)?;
        let names = self
            .view
            .of(&node)
            .listxattr(node.inode())
            .map_err(|e| e.on_path("cannot list the attributes of", bytes_of(path)))?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`Error::NoAttribute`].
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        let path = path.as_ref();
        let node = self.node(path)?;
        self.view
            .of(&node)
            .removexattr(node.inode(), name.as_ref().as_bytes())
            .map_err(|e| e.on_path("cannot remove an attribute of", bytes_of(path)))
    }
}
